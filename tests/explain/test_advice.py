"""What rewards show of an agent, and which baseline its gradients favour: by hand, and on the pocket models."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small import Relay, make_team
from tables import episodes_table

import mas_lab as lab
from mas_lab.explain.moments import baseline_unit, pooled_inflation
from mas_lab.table import TableError

FACTS = ["spoke", "rows", "peerless", "signal", "sigma_ratio"]


def team(rewards, helped, task="t", calls=1):
    """The solver speaks in each episode, the helper `calls` times in those at `helped`."""
    rows = [(task, f"{task}{i:02}", "solver", reward) for i, reward in enumerate(rewards)]
    rows += [(task, f"{task}{i:02}", "helper", rewards[i]) for i in helped] * calls
    return pd.DataFrame(rows, columns=["task", "episode", "agent", "credit"])


def advice(*tables, **named):
    return lab.advise(pd.concat(tables, ignore_index=True), **named).set_index("agent")


LOW = [1.0] * 4 + [0.2, 0.0, 0.2, 0.0]


def test_the_facts_by_hand():
    """The helper earns 0.2, 0, 0.2, 0 where the others earn 1: mu = 4.4 / 8 and mu_k = 0.1; its sum of squares is 0.04
    around its own mean and 0.04 + 4 * 0.45^2 = 0.85 around the global one."""
    found = advice(team(LOW, range(4, 8))).loc["helper"]
    assert found[["spoke", "rows", "peerless"]].tolist() == [0.5, 4, 0]
    assert found["signal"] == pytest.approx(0.04 / 0.85) and np.isnan(found["sigma_ratio"])
    assert found["why"] == (
        "helper spoke in 50 % of the episodes (4 rows). 5 % of its squared advantages under a global mean is signal, "
        "the rest is an offset that its answers share. Rewards do not tell whether its own mean pays: pass team=, or "
        "call lab.uphill(team, env)."
    )


def test_without_a_team_there_is_no_recommendation():
    found = advice(*(team(LOW, range(4, 8), f"t{i}") for i in range(8)))
    assert list(found.columns) == [*FACTS, "why"]
    assert found["why"].str.endswith("pass team=, or call lab.uphill(team, env).").all()
    assert not found["why"].str.contains("may pay|may cost|matters").any()


def test_who_speaks_once_in_each_episode_has_signal_alone():
    found = advice(team([1.0, 0.0, 0.5, 0.2], range(4)))
    assert found["signal"].tolist() == [1, 1] and "is signal. Rewards" in found.loc["helper", "why"]


def test_a_step_is_compared_within_itself():
    one = team(LOW, range(4, 8))
    twice = pd.concat([one.assign(step=0), one.assign(step=1, credit=one["credit"] + 5)], ignore_index=True)
    alike = ["rows", "peerless", "signal"]
    expected = advice(one)[alike].assign(rows=lambda found: 2 * found["rows"])
    pd.testing.assert_frame_equal(pd.DataFrame(advice(twice)[alike]), pd.DataFrame(expected))
    assert advice(twice)["spoke"].to_dict() == {"solver": 1, "helper": 0.5}


def test_what_rewards_cannot_tell_is_said():
    alone = advice(*(team([1.0, 0.0, 1.0, float(i % 2)], (3,), f"t{i}") for i in range(12)), agents=("critic",))
    assert alone.index.tolist() == ["critic", "solver", "helper"]
    assert alone.loc["critic", ["rows", "spoke", "why"]].tolist() == [0, 0, "critic never spoke."]
    assert alone.loc["critic", ["peerless", "signal", "sigma_ratio"]].isna().all()
    flat = advice(*(team([1.0, 0.0, 0.0, 0.0], (1, 2), f"t{i}") for i in range(12))).loc["helper"]
    assert flat["signal"] == 0 and "credits never differ within a task" in flat["why"]
    equal = advice(*(team([1.0, 1.0, 1.0, 1.0], (1, 2), f"t{i}") for i in range(12))).loc["helper"]
    assert np.isnan(equal["signal"]) and "credits never differ within a task" in equal["why"]
    assert np.isnan(equal["peerless"]), "nobody trains on these rows"


def test_trees_count_every_row():
    """A task of one episode is a tree: the left agent earns 0 and 1, the right one 2 to 5; mu = 15 / 6."""
    rows = [("t", "t", "left", float(i)) for i in range(2)] + [("t", "t", "right", 2.0 + i) for i in range(4)]
    found = advice(pd.DataFrame(rows, columns=["task", "episode", "agent", "credit"])).loc["left"]
    assert found["signal"] == pytest.approx(0.25 / (0.25 + (0.5 - 15 / 6) ** 2)) and found["spoke"] == 1


def of_tasks(*credits):
    """The helper speaks in the last of eight episodes of each task, for these credits, where the others earn 1."""
    return pd.concat([
        team([1.0] * (8 - len(own)) + list(own), range(8 - len(own), 8), f"t{i}") for i, own in enumerate(credits)
    ], ignore_index=True)  # fmt: skip


def test_rows_that_only_a_global_mean_trains_on_are_counted():
    """Two rows alone and three among equals, of nine: the two of a task in which all earn 1 train nobody."""
    found = advice(of_tasks([0.0], [0.5], [0.0, 0.0, 0.0], [0.2, 0.0, 0.2, 0.0], [1.0, 1.0])).loc["helper"]
    assert found["peerless"] == pytest.approx(5 / 9)
    assert "56 % of the rows that a global mean trains on are alone or among equal credits" in found["why"]


def test_unequal_deviations_are_warned_of():
    """Deviations of 0.1 and 0.01: a factor of 10. A pair is too few to say what its task's deviation is."""
    found = advice(of_tasks([0.2, 0.0, 0.2, 0.0], [0.02, 0.0, 0.02, 0.0], [0.001, 0.0])).loc["helper"]
    assert found["sigma_ratio"] == pytest.approx(10) and "differs between its tasks by a factor of 10" in found["why"]
    even = advice(of_tasks([0.2, 0.0, 0.2, 0.0], [0.04, 0.0, 0.04, 0.0], [0.001, 0.0])).loc["helper"]
    assert even["sigma_ratio"] == pytest.approx(5) and "deviation differs" not in even["why"]
    assert np.isnan(advice(of_tasks([0.2, 0.0, 0.2, 0.0], [0.5, 0.0])).loc["helper", "sigma_ratio"])


@pytest.mark.parametrize(("name", "frozen", "uneven"), [
    ("stakes", ("solver", "clerk"), True), ("paid_help", ("solver",), False),
])  # fmt: skip
def test_gradients_decide_where_there_is_a_team(name, frozen, uneven):
    """Real rollouts of the shipped pocket models, whose helpers gained 0.28 and 0.09 under one deviation per agent."""
    env = lab.make_env(name)
    played_by = lab.Team.per_agent(lambda agent: lab.load_policy(env.pocket), env.agents, frozen=frozen)
    turns = lab.rollout(env, played_by, env.tasks(96, "train", seed=0), lab.episodes(8), seed=0)
    found = advice(lab.group(turns, by="task", credit=lab.episode_return()), team=played_by)
    warned = found["why"].str.contains("standard deviation differs").to_dict()
    assert warned == {agent: uneven and agent == "helper" for agent in env.agents}
    helper = found.loc["helper"]
    assert helper["own"] == "may pay" and helper["cos_own_robust"] - helper["cos_grpo"] > 0.1
    cosines = f"{helper['cos_grpo']:+.2f} under grpo and {helper['cos_own_robust']:+.2f} under own_robust"
    assert helper["why"].endswith(f"{cosines}. So its own mean may pay.")
    silent = found.loc[list(frozen)]
    assert silent[["cos_grpo", "cos_own_robust"]].isna().all(axis=None), "they do not learn"
    assert (silent["own"] == "cannot be told").all() and silent["why"].str.contains("does not learn").all()


@pytest.mark.parametrize(("grpo", "own_robust", "verdict"), [
    (0.1, 0.25, "may pay"), (0.25, 0.1, "may cost"), (0.2, 0.25, "hardly matters"), (np.nan, 0.25, "cannot be told"),
])  # fmt: skip
def test_the_verdict_follows_from_the_difference_of_the_cosines(models, monkeypatch, grpo, own_robust, verdict):
    env, both = Relay(), make_team("per_agent", models)
    turns = lab.group(lab.rollout(env, both, env.tasks(4, "train", 0), lab.episodes(4)), "task", lab.episode_return())
    cosines = pd.DataFrame({"cos_grpo": grpo, "cos_own_robust": own_robust}, index=pd.Index(["asker"], name="agent"))
    monkeypatch.setattr("mas_lab.explain.advice._cosines", lambda turns, team: cosines)
    assert advice(turns, team=both)["own"].to_dict() == {"asker": verdict, "doer": "cannot be told"}


def test_a_team_is_asked_for_what_it_can_tell(models):
    env, both = Relay(), make_team("per_agent", models)
    turns = lab.group(lab.rollout(env, both, env.tasks(4, "train", 0), lab.episodes(4)), "task", lab.episode_return())
    found = advice(turns, team=both)
    assert list(found.columns) == [*FACTS, "cos_grpo", "cos_own_robust", "own", "why"]
    assert set(lab.schema("advise")["column"]) == {"agent", *found.columns}
    pd.testing.assert_frame_equal(pd.DataFrame(advice(turns)[FACTS]), pd.DataFrame(found[FACTS]))
    with pytest.raises(TypeError, match="advise: agents="):
        lab.advise(turns, both["asker"])
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
    assert not found["why"].str.contains("nan|inf").any() and found["peerless"].dropna().between(0, 1).all()
    pooled = pooled_inflation(lab.inflation(turns, once_per=baseline_unit(turns))).set_index("agent")
    assert found["signal"].to_dict() == pytest.approx(pooled["signal"].to_dict(), nan_ok=True)
    shuffled = turns.sample(frac=1, random_state=seed % 2**32)
    pd.testing.assert_frame_equal(advice(shuffled).loc[found.index], found)
    categories = turns.assign(**{name: turns[name].astype("category") for name in ("task", "episode", "agent")})
    assert advice(categories)["why"].to_dict() == found["why"].to_dict()


def test_what_cannot_be_judged_is_refused():
    rows = team([1.0, 0.0], (0,))
    for words, turns in (
        ("advise: column 'task' is missing", rows.drop(columns="task")),
        ("advise: column 'episode' is missing", rows.drop(columns="episode")),
        ("column 'credit' is not a finite number", rows.assign(credit=[1.0, 0.0, np.inf])),
        ("advise: the table has no row to judge by", rows.assign(probe=True)),
    ):
        with pytest.raises(TableError, match=words):
            lab.advise(turns)
