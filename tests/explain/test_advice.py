"""Would an own baseline pay? By hand, as a law of simulated policies, and on the rollouts of pocket models.

The sentences of `advice_words` are tested here too.
"""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import Relay, make_team
from tables import episodes_table

import mas_lab as lab
from mas_lab.explain.advice import COSTS, FEW, NUMBERS, PAYS, PEERLESS
from mas_lab.explain.advice_words import headline
from mas_lab.explain.moments import baseline_unit, pooled_inflation
from mas_lab.table import TableError

UNKNOWN = "cannot be told"


def table(*rows):
    return pd.DataFrame(rows, columns=["task", "episode", "agent", "credit"])


def team(rewards, helped, task="t", calls=1):
    """The solver speaks in each episode, the helper `calls` times in those at `helped`."""
    rows = [(task, f"{task}{i:02}", "solver", reward) for i, reward in enumerate(rewards)]
    return table(*rows, *[(task, f"{task}{i:02}", "helper", rewards[i]) for i in helped] * calls)


def advice(*tables, **named):
    return lab.advise(pd.concat(tables, ignore_index=True), **named).set_index("agent")


def predicted(turns):
    return pd.DataFrame(lab.advise(turns))[["agent", *NUMBERS]]


def helper_of(*tables):
    return predicted(pd.concat(tables, ignore_index=True)).set_index("agent").loc["helper"]


LOW = [1.0] * 4 + [0.2, 0.0, 0.2, 0.0]


def test_the_gain_follows_from_the_sums_of_squares():
    """The helper earns 0.2, 0, 0.2, 0 where the others earn 1: mu = 4.4 / 8, mu_k = 0.1, its sum of squares is 0.04
    around its own mean and 0.04 + 4 * 0.45^2 = 0.85 around the global one."""
    found = helper_of(team(LOW, range(4, 8)))
    assert found[["rows", "n_k", "N", "lone", "flat"]].tolist() == [4, 4, 8, 0, 0]
    assert found["signal"] == pytest.approx(0.04 / 0.85)
    kept = (1 - 1 / 4) / (1 - 1 / 8)
    assert found["gain"] == pytest.approx(kept**2 * 0.85 / 0.04) == pytest.approx(15.612, abs=1e-3)
    assert found["offset"] == pytest.approx(kept * 0.85 / 0.04 - 1)
    assert found["threshold"] == pytest.approx((1 - 4 / 8) / (4 - 1))
    many = helper_of(team([1.0] * 996 + [0.2, 0.0, 0.2, 0.0], range(996, 1000)))
    assert many["threshold"] == pytest.approx(1 / (4 - 1), rel=0.005), "the plain one, in a task of many episodes"


def test_who_speaks_once_in_each_episode_is_judged_alike_by_both():
    found = advice(team([1.0, 0.0, 0.5, 0.2], range(4)), team([1.0, 0.0, 1.0, 1.0, 0.0], range(5), "u"))
    assert found["gain"].tolist() == pytest.approx([1, 1]) and found["offset"].tolist() == pytest.approx([0, 0])
    assert "the same" in found.loc["solver", "why"]


def test_uneven_groups_count_by_their_rows():
    """Groups of 1 and 4 rows: five rows, two of whose degrees of freedom are the means'; 5 / 2 rows a group. The lone
    row's distance from the global mean is in the offset."""
    found = helper_of(team([1.0, 1.0, 1.0, 0.0], [3]), team([1.0, 0.0, 1.0, 0.0], range(4), "u"))
    assert found[["rows", "n_k", "N"]].tolist() == pytest.approx([5, 5 / 2, 4])
    assert found[["lone", "flat"]].tolist() == pytest.approx([1 / 5, 0])
    assert found["gain"] == pytest.approx(((3 / 5) / (3 / 4)) ** 2 * (0.75**2 + 1.0) / 1.0)


def test_a_flat_group_loses_no_information_and_keeps_its_offset_away():
    """All that the global mean adds for such a group is noise; what its rows told, 0, an own mean keeps."""
    both = helper_of(team(LOW, range(4, 8)), team([1.0] * 4 + [0.0] * 4, range(4, 8), "u"))
    assert both["flat"] == 0.5 and both["n_k"] == 4
    assert both["gain"] == pytest.approx(((3 / 4) / (7 / 8)) ** 2 * (0.85 + 4 * 0.5**2) / 0.04)


def test_calls_of_one_episode_count_as_one():
    once, thrice = (helper_of(team([1.0, 0.0, 1.0, 0.0], (1, 2), calls=calls)) for calls in (1, 3))
    for name in ("n_k", "signal", "offset", "gain"):
        assert thrice[name] == pytest.approx(once[name])
    assert thrice["rows"] == 3 * once["rows"]
    found = advice(*(team([1.0, 0.0, 1.0, 0.0], (1,), f"t{i}", calls=2) for i in range(6))).loc["helper"]
    assert found[["n_k", "lone", "flat", "gain", "own"]].tolist() == [1, 0, 1, 0, PEERLESS]


def test_a_step_is_compared_within_itself():
    one = team(LOW, range(4, 8))
    twice = pd.concat([one.assign(step=0), one.assign(step=1, credit=one["credit"] + 5)], ignore_index=True)
    expected = predicted(one).assign(rows=lambda found: 2 * found["rows"])
    pd.testing.assert_frame_equal(predicted(twice), expected)
    assert advice(twice)["spoke"].to_dict() == {"solver": 1, "helper": 0.5}


def test_trees_count_every_row_and_joint_actions_cost_neither_baseline_more():
    """A task of one episode is a tree. Two writers who act at once share each credit, so that the global mean holds it
    twice among eight rows, the own mean once among four."""
    joint = [("t", "t", agent, credit) for credit in (0.1, 0.5, 0.4, 0.9) for agent in ("left", "right")]
    found = predicted(table(*joint).assign(node="t/0")).set_index("agent")
    assert found["n_k"].tolist() == found["N"].tolist() == [4, 4]
    assert found["gain"].tolist() == pytest.approx([1, 1])
    tree = [("t", "t", "left", credit) for credit in (0.0, 1.0)] + [("t", "t", "right", 2.0 + i) for i in range(4)]
    found = predicted(table(*tree)).set_index("agent").loc["left"]
    assert found[["n_k", "N"]].tolist() == [2, 6]
    mu = (1 + 14) / 6
    assert found["gain"] == pytest.approx(((1 / 2) / (5 / 6)) ** 2 * (mu**2 + (1 - mu) ** 2) / 0.5)


def test_each_verdict_comes_with_a_reason():
    pays = advice(*(team(LOW, range(4, 8), f"t{i}") for i in range(8))).loc["helper"]
    assert pays["own"] == "may pay" and pays["spoke"] == 0.5 and pays["gain"] > PAYS
    assert pays["why"] == (
        "helper spoke in 50 % of the episodes, with 4.0 rows to compare in a task. The global mean shifts its credits "
        "by 4.1 of their own standard deviations, and 5 % of its squared advantages is signal; with its own mean, its "
        "gradient's squared signal-to-noise ratio would be 16 times as high. So its own mean may pay. In two tests "
        "on other settings this did not predict which agents gained."
    )
    costs = advice(*(team([1.0, 0.0, 1.0, 0.0], (0, 1), f"t{i}") for i in range(12))).loc["helper"]
    assert costs["own"] == "may cost" and costs["gain"] == pytest.approx((2 / 3) ** 2) and costs["gain"] < COSTS
    assert "does not shift its credits; with its own mean" in costs["why"] and "0.44 times" in costs["why"]
    assert "degrees of freedom" not in costs["why"]
    assert advice(*(team(LOW, range(8), f"t{i}") for i in range(2)))["own"].tolist() == ["hardly matters"] * 2


def test_an_agent_without_a_verdict_gets_the_reason():
    alone = advice(*(team([1.0, 0.0, 1.0, float(i % 2)], (3,), f"t{i}") for i in range(12)), agents=("critic",))
    assert alone.index.tolist() == ["critic", "solver", "helper"]
    assert alone.loc["critic", ["rows", "spoke", "own"]].tolist() == [0, 0, UNKNOWN]
    assert alone.loc["critic", "why"] == "critic never spoke."
    assert alone.loc["helper", ["own", "gain", "threshold"]].tolist() == [PEERLESS, 0, np.inf]
    assert "never in two episodes of one" in alone.loc["helper", "why"]
    flat = advice(*(team([1.0, 0.0, 0.0, 0.0], (1, 2), f"t{i}") for i in range(12))).loc["helper"]
    assert flat["own"] == PEERLESS and np.isnan(flat["gain"]) and "credits never differ" in flat["why"]
    equal = advice(*(team([1.0, 1.0, 1.0, 1.0], (1, 2), f"t{i}") for i in range(12))).loc["helper"]
    assert equal["own"] == UNKNOWN and np.isnan(equal["peerless"]), "nobody trains on these rows"
    few = advice(team([1.0, 0.0, 0.7, 0.2], (1, 2))).loc["helper"]
    assert few["own"] == UNKNOWN and "Too few rows for a verdict (2)" in few["why"]
    single = advice(table(*(("t", "t", "a", 1.0), ("u", "u", "a", 0.0)))).loc["a"]
    assert single["own"] == UNKNOWN and "a single episode each" in single["why"]
    few = advice(*(team([1.0, 1.0, 0.2, 0.0], (2, 3), f"t{i}") for i in range(FEW // 2))).loc["helper"]
    assert few["own"] == "may pay" and f"This rests on {FEW // 2} degrees of freedom" in few["why"]


def test_shared_weights_are_judged_by_the_gradient_that_they_share():
    """Solver and helper in one gradient: the sums of both, (32 - 8 + 16 - 4) of their 48 degrees of freedom."""
    rows = pd.concat([team(LOW, range(4, 8), f"t{i}") for i in range(4)])
    apart, together = advice(rows.assign(policy=rows["agent"])), advice(rows.assign(policy="one"))
    assert apart["shared"].tolist() == [False, False] and together["shared"].tolist() == [True, True]
    pd.testing.assert_frame_equal(apart, advice(rows))
    pd.testing.assert_series_equal(apart["gain"], together["gain"])
    mu = 4.4 / 8
    solver = 4 * (1 - mu) ** 2 + 2 * (0.2 - mu) ** 2 + 2 * mu**2
    kept = ((8 * 7 / 8 + 4 * 3 / 4) / 12) / (7 / 8)
    expected = kept**2 * (solver + 0.85) / (solver + 0.04)
    assert together["policy_gain"].tolist() == pytest.approx([expected] * 2)
    assert 1 < expected < apart.loc["helper", "gain"] / 2
    assert together["own"].tolist() == ["may pay"] * 2 and apart["own"].tolist() == ["hardly matters", "may pay"]
    assert "Its weights also speak for solver" in together.loc["helper", "why"]
    assert "also speak" not in apart.loc["helper", "why"]


def of_tasks(*credits):
    """The helper speaks in the last of eight episodes of each task, for these credits, where the others earn 1."""
    return pd.concat([
        team([1.0] * (8 - len(own)) + list(own), range(8 - len(own), 8), f"t{i}") for i, own in enumerate(credits)
    ], ignore_index=True)  # fmt: skip


def test_rows_that_only_a_global_mean_trains_on_are_counted():
    """Two rows alone and three among equals, of nine: the two of a task in which all earn 1 train nobody."""
    turns = of_tasks([0.0], [0.5], [0.0, 0.0, 0.0], [0.2, 0.0, 0.2, 0.0], [1.0, 1.0])
    found = advice(turns).loc["helper"]
    assert found["peerless"] == pytest.approx(5 / 9) and found["own"] == PEERLESS
    assert "What matters is whether such rows are trained on: compare grpo with grpo_masked." in found["why"]
    assert "56 % of the rows that a global mean trains on" in found["why"]


def test_unequal_deviations_are_warned_of():
    """Deviations of 0.1 and 0.01: a factor of 10. A pair is too few to say what its task's deviation is."""
    found = advice(of_tasks([0.2, 0.0, 0.2, 0.0], [0.02, 0.0, 0.02, 0.0], [0.001, 0.0])).loc["helper"]
    assert found["sigma_ratio"] == pytest.approx(10) and "differs between its tasks by a factor of 10" in found["why"]
    even = advice(of_tasks([0.2, 0.0, 0.2, 0.0], [0.04, 0.0, 0.04, 0.0], [0.001, 0.0])).loc["helper"]
    assert even["sigma_ratio"] == pytest.approx(5) and "deviation differs" not in even["why"]
    assert np.isnan(advice(of_tasks([0.2, 0.0, 0.2, 0.0], [0.5, 0.0])).loc["helper", "sigma_ratio"])


@pytest.mark.parametrize(("name", "frozen", "warned", "verdict"), [
    ("stakes", ("solver", "clerk"), True, "may pay"), ("paid_help", ("solver",), False, "may pay"),
])  # fmt: skip
def test_gradients_decide_where_there_is_a_team(name, frozen, warned, verdict):
    """Real rollouts of the shipped pocket models, whose helpers gained 0.28 and 0.09 under one deviation per agent."""
    env = lab.make_env(name)
    played_by = lab.Team.per_agent(lambda agent: lab.load_policy(env.pocket), env.agents, frozen=frozen)
    turns = lab.rollout(env, played_by, env.tasks(96, "train", seed=0), lab.episodes(8), seed=0)
    found = advice(lab.group(turns, by="task", credit=lab.episode_return()), team=played_by)
    warnings = found["why"].str.contains("standard deviation differs").to_dict()
    assert warnings == {agent: warned and agent == "helper" for agent in env.agents}
    helper = found.loc["helper"]
    assert helper["own"] == verdict and helper["cos_own_robust"] - helper["cos_grpo"] > 0.1
    assert "cosine" in headline(helper) and "under own_robust" in helper["why"]
    assert "did not predict" not in helper["why"]
    assert found.loc[list(frozen), ["cos_grpo", "cos_own_robust"]].isna().all(axis=None), "they do not learn"


def test_a_team_is_asked_for_what_it_can_tell(models):
    env, both = Relay(), make_team("per_agent", models)
    turns = lab.group(lab.rollout(env, both, env.tasks(4, "train", 0), lab.episodes(4)), "task", lab.episode_return())
    assert advice(turns, team=both)["own"].notna().all()
    assert (
        lab.advise(turns)
        .drop(columns=["own", "why"])
        .equals(lab.advise(turns, team=both).drop(columns=["own", "why", "cos_grpo", "cos_own_robust"]))
    )
    with pytest.raises(TypeError, match="advise: agents="):
        lab.advise(turns, both["asker"])
    with pytest.raises(ValueError, match="one gradient for all of its turns"):
        lab.advise(turns, by=("agent", "turn"), team=both)
    with pytest.raises(ValueError, match="two tasks or more"):
        lab.advise(turns[turns["task"] == turns["task"].iloc[0]], team=both)
    with pytest.raises(TableError, match="advise: column 'prompt_ids' is missing"):
        lab.advise(turns.drop(columns="prompt_ids"), team=both)


@pytest.mark.slow
@settings(max_examples=15)
@given(st.integers(0, 2**31))
def test_any_table_is_judged_whatever_its_order(seed):
    turns = lab.group(episodes_table(seed), by="task", credit=lab.episode_return())
    found = advice(turns)
    assert set(found["own"]) <= {"may pay", "may cost", "hardly matters", UNKNOWN, PEERLESS}
    assert not found["why"].str.contains("nan|inf").any()
    told = found[found["gain"].notna() & ((found["offset"] - found["threshold"]).abs() > 1e-9)]
    assert ((told["gain"] > 1) == (told["offset"] > told["threshold"])).all()
    pooled = pooled_inflation(lab.inflation(turns, once_per=baseline_unit(turns))).set_index("agent")
    assert found["signal"].to_dict() == pytest.approx(pooled["signal"].to_dict(), nan_ok=True)
    shuffled = turns.sample(frac=1, random_state=seed % 2**32)
    pd.testing.assert_frame_equal(advice(shuffled).loc[found.index], found)
    categories = turns.assign(**{name: turns[name].astype("category") for name in ("task", "episode", "agent")})
    assert advice(categories)["why"].to_dict() == found["why"].to_dict()


def speak(spoken, offset, calls, words, episodes=8):
    """A tabular softmax policy says `words` words of two in each call, with logits of 0. An episode's credit is the
    share of calls whose first word was the right one; episodes without a call earn 0 or 1, less `offset`. Gives calls,
    credits and grad log pi of each episode (and, of the last, each word)."""
    rng, tasks = np.random.default_rng(0), int(6000 / spoken)
    m = (rng.random((tasks, episodes)) < spoken) * rng.integers(1, calls + 1, (tasks, episodes))
    made = np.arange(calls) < m[..., None]
    said = rng.random((tasks, episodes, calls, words)) < 0.5
    right = (said[..., 0] & made).sum(2) / np.maximum(m, 1)
    credit = np.where(m > 0, right, (rng.random((tasks, episodes)) < 0.5) - offset)
    return m, credit, ((said - np.float32(0.5)) * made[..., None]).sum(2)


def measured_gain(m, credit, z):
    """The ratio of squared signal to noise of the summed gradient, own mean over global, over these tasks."""
    own, everyone = (m * credit).sum(1) / np.maximum(m.sum(1), 1), credit.mean(1)
    gradients = [np.einsum("te,tew->tw", credit - center[:, None], z) for center in (own, everyone)]
    signals = [gradient[:, 0].mean() ** 2 / gradient.var(0).sum() for gradient in gradients]
    return signals[0] / signals[1]


def as_turns(m, credit):
    """The turns of 4,000 of these tasks, beside a solver that speaks in each episode."""
    m, credit = m[:4000], credit[:4000]
    m = np.stack([np.ones_like(m), m])
    agent, task, episode = (np.repeat(place, m[np.nonzero(m)]) for place in np.nonzero(m))
    named = {"agent": np.array(["solver", "helper"])[agent], "episode": task * 8 + episode}
    return pd.DataFrame({**named, "task": task, "credit": credit[task, episode]})


@pytest.mark.parametrize("calls", [1, 3])
@pytest.mark.parametrize("offset", [0.5, 2])
@pytest.mark.parametrize("spoken", [0.1, 0.25, 0.7])
def test_the_prediction_holds_for_a_policy_of_many_words(spoken, offset, calls):
    m, credit, z = speak(spoken, offset, calls, words=16)
    gain = predicted(as_turns(m, credit)).set_index("agent").loc["helper", "gain"]
    assert gain == pytest.approx(measured_gain(m, credit, z), rel=0.15)


def test_the_prediction_is_too_high_for_a_policy_of_one_word():
    m, credit, z = speak(0.25, 0, 1, words=1)
    ratio = predicted(as_turns(m, credit)).set_index("agent").loc["helper", "gain"] / measured_gain(m, credit, z)
    assert 1.5 < ratio < 2.5


def test_what_cannot_be_judged_is_refused():
    rows = team([1.0, 0.0], (0,))
    for error, words, turns, by in (
        (TableError, "advise: column 'task' is missing", rows.drop(columns="task"), ("agent",)),
        (TableError, "advise: column 'episode' is missing", rows.drop(columns="episode"), ("agent",)),
        (TableError, "column 'credit' is not a finite number", rows.assign(credit=[1.0, 0.0, np.inf]), ("agent",)),
        (TableError, "advise: the table has no row to judge by", rows.assign(probe=True), ("agent",)),
        (TableError, "column 'turn' is missing", two_turns().drop(columns="turn"), ("agent", "turn")),
        (ValueError, "it is 'agent', and maybe 'turn'", two_turns(), ("turn",)),
    ):
        with pytest.raises(error, match=words):
            lab.advise(turns, by=by)


def two_turns():
    """The helper speaks twice where the solver earned little."""
    once = pd.concat([team(LOW, range(4, 8), f"t{i}").assign(turn=0) for i in range(4)])
    again = once[once["agent"] == "helper"].assign(turn=1, credit=lambda rows: rows["credit"] * 2)
    return pd.concat([once, again], ignore_index=True).assign(policy=lambda rows: rows["agent"])


def test_by_turn_each_turn_is_an_agent_of_its_own():
    turns = two_turns()
    found = lab.advise(turns, by=("agent", "turn"))
    assert found[["agent", "turn"]].to_numpy().tolist() == [["solver", 0], ["helper", 0], ["helper", 1]]
    named = lab.advise(turns.assign(agent=turns["agent"] + " at turn " + turns["turn"].astype(str)))
    pd.testing.assert_frame_equal(pd.DataFrame(found.drop(columns=["agent", "turn"])),
                                  pd.DataFrame(named.drop(columns="agent")))  # fmt: skip
    helper = found[found["agent"] == "helper"]
    assert helper["shared"].all() and helper["policy_gain"].nunique() == 1 and helper["gain"].nunique() == 2
    assert "helper at turn 1 spoke in 50 %" in helper["why"].iloc[1]
    untold = lab.advise(turns.drop(columns="policy"), by=("agent", "turn"))
    assert untold["policy_gain"].tolist() == pytest.approx(found["policy_gain"].tolist()), "its turns share its weights"
