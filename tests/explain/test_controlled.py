"""The controlled team: credits as promised, F by its formula, and norms that are those of the batch."""

import pytest
from small import Relay, make_team

import mas_lab as lab
from mas_lab.table import TableError

N = 6


@pytest.fixture(scope="module")
def turns(models):
    env = Relay(max_turns=1)
    return lab.rollout(env, make_team("per_agent", models), env.tasks(3, "train", 0), lab.episodes(N), seed=0)


@pytest.mark.parametrize("called", [2, 3, 4])
@pytest.mark.parametrize("shift", [0.0, 1.5, 6.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_statistics_are_those_that_were_asked_for(turns, called, shift, seed):
    found = lab.inflation(lab.controlled(turns, "doer", called, shift, seed))
    p = called / N
    variance = 1 + shift**2 * p * (1 - p)
    doer, asker = (found[found["agent"] == agent] for agent in ("doer", "asker"))
    assert doer["n_k"].tolist() == [called] * 3 and asker["n_k"].tolist() == [N] * 3
    assert doer["b_k"].tolist() == pytest.approx([-shift * (1 - p) / variance**0.5] * 3, abs=1e-9)
    assert doer["v_k"].tolist() == pytest.approx([1 / variance] * 3)
    assert asker["F_k"].tolist() == pytest.approx([1.0] * 3)  # speaks exactly once per trajectory


def test_a_number_of_calls_that_cannot_be_had_is_refused(turns):
    for called in (1, N - 1):
        with pytest.raises(TableError, match=f"in {called} trajectories of each task: 2 to 4 are possible"):
            lab.controlled(turns, "doer", called, 1.0)
    silent = turns[~((turns["agent"] == "doer") & (turns["task"] == turns["task"].iloc[0]))]
    with pytest.raises(TableError, match="2 to 0 are possible"):
        lab.controlled(silent, "doer", 2, 1.0)


def test_prediction_and_measurement_are_those_of_the_tables(turns, models):
    team = make_team("per_agent", models)
    found = lab.controlled_inflation(team, turns, "doer", 2, 3.0, draws=1)
    one = lab.baseline_ratio(team, lab.controlled(turns, "doer", 2, 3.0)).set_index("agent").loc["doer"]
    assert found["measured"] == pytest.approx(one["measured"], rel=1e-6)
    assert found["predicted"] == pytest.approx(one["predicted"], rel=1e-6)
    assert found["F"] == pytest.approx((1 + 9 * (2 / 3) ** 2) / (1 + 9 * 2 / 9))
    more = lab.controlled_inflation(team, turns, "doer", 2, 3.0, draws=3)
    assert more["F"] == pytest.approx(found["F"]) and more["measured"] != found["measured"]
    still = lab.controlled_inflation(make_team("per_agent", models), turns, "doer", 3, 0.0, draws=1)
    assert (still["F"], still["measured"]) == pytest.approx((1, 1), rel=1e-4), "without a shift both baselines are one"
