"""Scores by enumeration and by hand; evaluation leaves weights and training's random stream alone."""

import itertools
import sys

import pandas as pd
import pytest
import small
import torch
from hypothesis import given
from hypothesis import strategies as st
from scripted import Ladder, team_of

import mas_lab as lab
from mas_lab.train import Report
from mas_lab.train.evaluate import pass_at

TIMES = ["latency", "throughput"]
GREEDY = lab.Sampling(temperature=0.0)


@pytest.fixture(scope="module")
def team(models):
    """Two models with tokenizers of their own."""
    return lab.Team({"asker": lab.load_policy(models / "a"), "doer": lab.load_policy(models / "b")})


@given(st.integers(1, 8).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_is_the_share_of_draws_with_a_success(numbers):
    n, c, j = numbers
    draws = list(itertools.combinations([True] * c + [False] * (n - c), j))
    assert pass_at(j, n, c) == pytest.approx(sum(map(any, draws)) / len(draws), abs=1e-12)


def replay(env, team, tasks, k, **options) -> pd.DataFrame:
    """The turns that evaluate() scored: evaluation draws under step -1."""
    return lab.rollout(env, team, tasks, lab.episodes(k), step=-1, **options)


@pytest.mark.parametrize("together", [False, True])
def test_every_number_is_that_of_the_episodes_counted_by_hand(team, together):
    env = small.Relay(together=together)
    tasks, k = env.tasks(5, "test", 0), 3
    price = {"asker": (0.125, 0.5), "doer": (0.25, 2.0)}
    scores = lab.evaluate(env, team, tasks, k=k, seed=4, price=price)
    turns = replay(env, team, tasks, k, seed=4)
    assert list(zip(scores["task"], scores["agent"], strict=True)) == [(t.id, a) for t in tasks for a in env.agents]
    for score in scores.to_dict("records"):
        own = turns[turns["task"] == score["task"]]
        ends, earned = [], []
        for _, episode in own.groupby("episode"):
            steps = {row["depth"]: row for row in episode.to_dict("records")}
            ends.append(steps[max(steps)]["success"])
            earned.append(sum(row["team_reward"] for row in steps.values()))
        assert len(ends) == k
        assert score["success"] == pytest.approx(sum(ends) / k)
        assert score["return"] == pytest.approx(sum(earned) / k)
        assert [score[f"pass@{j}"] for j in (1, 2, 3)] == [pass_at(j, k, sum(ends)) for j in (1, 2, 3)]
        mine = own[own["agent"] == score["agent"]]
        assert score["own_return"] == pytest.approx(mine["local_reward"].sum() / k)
        assert score["turns"] == pytest.approx(len(mine) / k)
        assert score["tokens"] == pytest.approx(sum(map(len, mine["completion_ids"])) / k)
        assert score["invalid"] == pytest.approx((~mine["valid"].astype(bool)).sum() / k)
        assert score["prompt_tokens"] == pytest.approx(sum(map(len, mine["prompt_ids"])) / k)
        of_prompt, of_completion = price[score["agent"]]
        assert score["cost"] == pytest.approx(score["prompt_tokens"] * of_prompt + score["tokens"] * of_completion)
    assert [name for name in scores if name.startswith("pass@")] == ["pass@1", "pass@2", "pass@3"]
    with pytest.raises(ValueError, match=r"pass@5 cannot be estimated from 3 episodes"):
        pass_at(5, k, 2)


def test_latency_is_from_an_episodes_start_to_its_end_and_throughput_of_them_all(monkeypatch):
    """A clock that moves by a second whenever the world makes a step; all episodes start at once.

    The engine answers in waves. The first, of all three, is over at second 3, where task 2 ends; the second at 5.
    """
    clock = [0.0]

    class Slow(Ladder):
        def step(self, state, actions):
            clock[0] += 1.0
            return super().step(state, actions)

    monkeypatch.setattr(sys.modules["mas_lab.train.evaluate"].time, "perf_counter", lambda: clock[0])
    env = Slow(max_turns=1)
    team = team_of(env, lambda prompt, nth, seed: "win" if prompt == "planner hears t2" else "1")
    scores = lab.evaluate(env, team, env.tasks(3, "test", 0))
    assert scores[scores["agent"] == "planner"]["latency"].tolist() == [5.0, 5.0, 3.0]
    assert scores["throughput"].tolist() == [3 / 5] * 6
    told = lab.summary(scores)
    assert told["throughput"].tolist() == [3 / 5] * 2 and told["latency"].tolist() == pytest.approx([13 / 3] * 2)


def test_swap_exchanges_the_policies(team):
    env = small.Relay()
    tasks = env.tasks(4, "test", 0)
    swapped = lab.evaluate(env, team, tasks, k=2, swap=("asker", "doer"))
    by_hand = lab.Team({"asker": team["doer"], "doer": team["asker"]})
    assert "cost" not in swapped
    numbers = [name for name in swapped.columns if name not in TIMES]
    pd.testing.assert_frame_equal(swapped[numbers], lab.evaluate(env, by_hand, tasks, k=2)[numbers])
    for other in (lab.evaluate(env, team, tasks, k=2), lab.evaluate(env, by_hand, tasks, k=2, seed=1)):
        assert not swapped[numbers].equals(other[numbers])


def test_greedy_evaluation_takes_the_likeliest_token_whatever_the_seed(team):
    env = small.Relay()
    tasks = env.tasks(4, "test", 0)
    scores = [lab.evaluate(env, team, tasks, 2, sampling=GREEDY, seed=seed).drop(columns=TIMES) for seed in (0, 1)]
    pd.testing.assert_frame_equal(*scores)
    turns = replay(env, team.with_sampling(GREEDY), tasks, 1)
    for row in turns.head(4).to_dict("records"):
        ids = torch.tensor([row["prompt_ids"] + row["completion_ids"]])
        with torch.no_grad():
            likeliest = team[row["agent"]].model(ids).logits.argmax(-1)[0]
        n = len(row["prompt_ids"])
        assert row["completion_ids"] == likeliest[n - 1 : -1].tolist()


def test_what_evaluate_refuses(team):
    env = small.Relay()
    tasks = env.tasks(2, "test", 0)
    for options, match in [
        ({"k": 0}, r"evaluate: k=0 \(int\); give a whole number \(1 or more\)"),
        ({"tasks": 8}, r"evaluate: tasks=8 \(int\); give a list of Task, such as env\.tasks\("),
        ({"swap": ("asker", "boss")}, r"unknown agent 'boss'; the env plays asker, doer"),
        ({"sampling": {"boss": GREEDY}}, r"sampling names agent 'boss'; the team has \['asker', 'doer'\]"),
        ({"tasks": []}, "no tasks"),
        ({"tasks": [tasks[0], tasks[0]]}, r"task 'test-\d+' occurs twice"),
        ({"team": lab.Team({"asker": team["asker"]})}, r"agent 'doer' has no policy"),
    ]:
        with pytest.raises(ValueError, match=match):
            lab.evaluate(env, **{"team": team, "tasks": tasks, **options})


def table(*rows) -> pd.DataFrame:
    """(episode, node, parent, agent, action, kept, probe, success) per row."""
    columns = ["episode", "node", "parent", "agent", "action", "kept", "probe", "success"]
    return pd.DataFrame(rows, columns=columns)


CROSSED = [
    *(("a", "a/0", "", "p", f"a/0.{i}-*", True, False, True) for i in range(2)),
    *(("a", "a/0", "", "q", f"a/0.*-{j}", True, False, j == 0) for j in range(2)),
]
SUCCESSES = {
    "of several chains is the mean over episodes": (1 / 2, [
        ("a", "a/0", "", "p", "a/0.0", True, False, False),
        ("a", "a/1", "a/0.0", "e", "a/1.0", True, False, True),
        ("b", "b/0", "", "p", "b/0.0", True, False, True),
        ("b", "b/1", "b/0.0", "e", "b/1.0", True, False, False)]),
    "of a cross takes each joint action once": (1 / 2, CROSSED),
    "of a tree of agents together is what the last one saw": (1, [
        ("a", "a/0", "", "p", "a/0.0-0", True, False, False),
        ("a", "a/0", "", "p", "a/0.1-0", False, False, False),
        ("a", "a/0", "", "q", "a/0.0-0", False, False, False),
        ("a", "a/0", "", "q", "a/0.0-1", True, False, True)]),
    "does not count continuations": (0, [
        ("a", "a/0", "", "p", "a/0.0", True, False, False),
        ("a/0.0+0", "a/0.0+0/1", "a/0.0", "e", "a/0.0+0/1.0", True, True, True),
        ("a", "a/1", "a/0.0", "e", "a/1.0", True, False, False)]),
}  # fmt: skip


@pytest.mark.parametrize("case", SUCCESSES)
def test_success_by_hand(case):
    expected, rows = SUCCESSES[case]
    assert Report(0, table(*rows), pd.DataFrame()).success == pytest.approx(expected)
