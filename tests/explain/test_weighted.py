"""What `advise` says of groups and, with the team, of gradients: by hand, by other means, and on pocket models."""

import numpy as np
import pandas as pd
import pytest
import torch
from small import AGENTS, Relay, make_team

import mas_lab as lab
from mas_lab.explain import weighted
from mas_lab.explain.advice import COSTS, PAYS, PEERLESS
from mas_lab.policy import Sample

LOW = [1.0] * 4 + [0.2, 0.0, 0.2, 0.0]


def table(*rows):
    return pd.DataFrame(rows, columns=["task", "episode", "agent", "credit"])


def of_tasks(*credits):
    """The helper speaks in the last of eight episodes of each task, for these credits, where the others earn 1."""
    rows = []
    for task, own in enumerate(credits):
        for number, credit in enumerate([1.0] * (8 - len(own)) + list(own)):
            agents = ("solver", "helper") if number >= 8 - len(own) else ("solver",)
            rows += [(task, f"{task}.{number}", agent, credit) for agent in agents]
    return table(*rows)


def helper(turns, **options):
    return lab.advise(turns, **options).set_index("agent").loc["helper"]


def test_rows_that_only_a_global_mean_trains_on_are_counted():
    """Two rows alone and three among equals, of nine: the two of a task in which all earn 1 train nobody."""
    found = helper(of_tasks([0.0], [0.5], [0.0, 0.0, 0.0], [0.2, 0.0, 0.2, 0.0], [1.0, 1.0]))
    assert found["peerless"] == pytest.approx(5 / 9) and found["own"] == PEERLESS
    assert "What matters is whether such rows are trained on: compare grpo with grpo_masked." in found["why"]
    assert "56 % of the rows that a global mean trains on" in found["why"]


def test_unequal_deviations_are_warned_of():
    """Deviations of 0.1 and 0.01: a factor of 10. A pair is too few to say what its task's deviation is."""
    found = helper(of_tasks([0.2, 0.0, 0.2, 0.0], [0.02, 0.0, 0.02, 0.0], [0.001, 0.0]))
    assert found["sigma_ratio"] == pytest.approx(10) and "differs between its tasks by a factor of 10" in found["why"]
    even = helper(of_tasks([0.2, 0.0, 0.2, 0.0], [0.04, 0.0, 0.04, 0.0], [0.001, 0.0]))
    assert even["sigma_ratio"] == pytest.approx(5) and "deviation differs" not in even["why"]
    assert np.isnan(helper(of_tasks([0.2, 0.0, 0.2, 0.0], [0.5, 0.0]))["sigma_ratio"])


@pytest.mark.parametrize(("name", "frozen", "warned"), [
    ("stakes", ("solver", "clerk"), True), ("paid_help", ("solver",), False),
])  # fmt: skip
def test_the_scale_is_warned_of_where_it_ruins_an_agent_and_only_there(name, frozen, warned):
    """Real rollouts of the shipped pocket models, a few tasks."""
    env = lab.make_env(name)
    team = lab.Team.per_agent(lambda agent: lab.load_policy(env.pocket), env.agents, frozen=frozen)
    turns = lab.rollout(env, team, env.tasks(12, "train", seed=0), lab.episodes(8), seed=0)
    found = lab.advise(lab.group(turns, by="task", credit=lab.episode_return()), team=team).set_index("agent")
    warnings = found["why"].str.contains("standard deviation differs").to_dict()
    assert warnings == {agent: warned and agent == "helper" for agent in env.agents}
    assert found.loc["helper", "own"] == "may pay" and found.loc["helper", "weighted_gain"] > 3
    assert found.loc[list(frozen), ["weighted_gain", "snr", "progress"]].isna().all(axis=None), "they do not learn"


@pytest.fixture
def measured(monkeypatch):
    """Set the |z|^2 of each row and the SNR^2 of the helper's gradient."""

    def set_to(square, snr):
        def measure(team, rows, away):
            own = rows.index[rows["agent"] == rows["agent"].max()]
            return square(rows.loc[own]), {"helper": snr}

        monkeypatch.setattr(weighted, "_measured", measure)

    return set_to


@pytest.fixture(scope="module")
def fake():
    """A team of the right names; nothing is asked of its policies."""
    return lab.Team({"solver": object(), "helper": object()})


def test_equal_norms_give_the_gain_and_unequal_ones_weigh_its_sums(measured, fake):
    """LOW: mu = 0.55, mu_k = 0.1. If only the rows at 0.2 have a score, the sums are 2 * 0.35^2 and 2 * 0.1^2."""
    turns = of_tasks(*[LOW[4:]] * 8)
    measured(lambda own: pd.Series(3.0, own.index), 0.0)
    found = helper(turns, team=fake)
    assert found["weighted_gain"] == pytest.approx(found["gain"]) == pytest.approx(found["progress"])
    measured(lambda own: (own["credit"] == 0.2).astype(float), 0.0)
    kept = (1 - 1 / 4) / (1 - 1 / 8)
    assert helper(turns, team=fake)["weighted_gain"] == pytest.approx(kept**2 * 0.35**2 / 0.1**2)


def test_a_high_signal_leaves_nothing_to_gain(measured, fake):
    """At SNR^2 = 4 even an endless gain makes 1.25 of the progress; at 0.5 a gain of 15.6 makes 2.66 of it."""
    turns = of_tasks(*[LOW[4:]] * 8)
    for snr, own in ((4.0, "hardly matters"), (0.5, "may pay"), (0.0, "may pay")):
        measured(lambda rows: pd.Series(1.0, rows.index), snr)
        found = helper(turns, team=fake)
        gain = found["gain"]
        assert found["own"] == own and found["progress"] == pytest.approx(gain * (1 + snr) / (1 + gain * snr))
        assert ("the signal is high already" in found["why"]) == (snr == 4)
    assert helper(turns)["own"] == "may pay", "credits alone cannot tell"
    assert (1 + 4) / 4 == PAYS == 1 / COSTS


@pytest.fixture(scope="module")
def played(models):
    """A rollout of two agents of their own, and each row's score as a vector, by autograd."""
    team, env = make_team("per_agent", models), Relay()
    turns = lab.rollout(env, team, env.tasks(4, "train", 0), lab.episodes(4), seed=0)
    turns = lab.group(turns, by="task", credit=lab.episode_return())
    scores = []
    for row in turns.itertuples():
        policy = team[row.agent]
        sample = Sample(row.prompt_ids, row.completion_ids, row.logprobs, row.temperature, 1.0, 1.0)
        parts = torch.autograd.grad(policy.logprobs([sample]).sum(), list(policy.parameters.values()))
        scores.append(torch.cat([part.flatten() for part in parts]).double().numpy())
    return turns, scores


def test_gain_and_signal_are_those_of_the_gradients_themselves(played, models):
    turns, scores = played
    found = lab.advise(turns, team=make_team("per_agent", models)).set_index("agent")
    plain = lab.advise(turns).set_index("agent")
    pd.testing.assert_frame_equal(found[plain.columns.drop(["own", "why"])], plain.drop(columns=["own", "why"]))
    for agent in AGENTS:
        z = np.array([score for score, name in zip(scores, turns["agent"], strict=True) if name == agent])
        own = turns[turns["agent"] == agent]
        assert len(own) <= weighted.MOST
        by_episode = turns.drop_duplicates("episode").groupby("task")["credit"].mean()
        away = own["credit"] - own["task"].map(by_episode)
        away_k = own["credit"] - own.groupby("task")["credit"].transform("mean")
        square = (z**2).sum(1)
        kept = ((1 - 1 / plain.loc[agent, "n_k"]) / (1 - 1 / plain.loc[agent, "N"])) ** 2
        expected = kept * (away**2 * square).sum() / (away_k**2 * square).sum()
        assert found.loc[agent, "weighted_gain"] == pytest.approx(expected, rel=1e-4)
        g = z * away.to_numpy()[:, None]
        products = g @ g.T
        signal = (products.sum() - np.trace(products)) / np.trace(products)
        assert found.loc[agent, "snr"] == pytest.approx(max(signal, 0), rel=1e-3, abs=1e-6)


def test_at_most_64_rows_are_measured_and_stand_for_all(played, models, monkeypatch):
    turns, _ = played
    monkeypatch.setattr(weighted, "MOST", 5)
    seen = []
    measure = weighted.row_scores
    monkeypatch.setattr(weighted, "row_scores", lambda policy, rows: seen.append(len(rows)) or measure(policy, rows))
    first, again = (lab.advise(turns, team=make_team("per_agent", models)) for _ in range(2))
    pd.testing.assert_frame_equal(first, again)
    assert seen == [5] * 4 and first["weighted_gain"].notna().all()


def test_shared_weights_have_one_weighted_gain(played, models):
    team, env = make_team("shared", models), Relay()
    turns = lab.rollout(env, team, env.tasks(4, "train", 0), lab.episodes(4), seed=0)
    turns = lab.group(turns, by="task", credit=lab.episode_return())
    for by in (("agent",), ("agent", "turn")):
        found = lab.advise(turns, by=by, team=team)
        assert len(found) == (2 if by == ("agent",) else found.groupby(list(by)).ngroups)
        for name in ("weighted_gain", "snr", "progress"):
            assert found[name].nunique() == 1


def test_a_team_in_the_place_of_agents_is_refused(played, models):
    with pytest.raises(TypeError, match="advise: agents="):
        lab.advise(played[0], make_team("per_agent", models)["asker"])
