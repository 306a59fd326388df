"""The index of a run's episodes: against plain loops over rows, and by hand."""

import math

import numpy as np
import pandas as pd
import pytest

import mas_lab as lab
from mas_lab.explain.index import MEANINGS, indexed, informative, reduced


def by_loop(turns):
    """{(step, episode): row of the index}, a row of the table at a time."""
    sizes = {}
    for row in turns.to_dict("records"):
        if not row["probe"]:
            sizes[row["step"], row["group"]] = sizes.get((row["step"], row["group"]), 0) + 1
    found = {}
    usual = turns[~turns["probe"]].groupby(["step", "agent"])["local_reward"].mean()
    for (step, episode), own in turns[~turns["probe"]].groupby(["step", "episode"]):
        rows = own.sort_values(["depth", "agent"], kind="stable").to_dict("records")
        kept = {}
        for row in rows:
            if row["kept"]:
                kept.setdefault(row["depth"], []).append(row)
        branches = any(len({row["agent"] for row in at}) < len(at) for at in kept.values())
        unlike = any(len({row["team_reward"] for row in at}) > 1 for at in kept.values())
        advantages = [one for row in rows for one in np.atleast_1d(np.asarray(row["advantage"], float))]
        largest = max(map(abs, advantages))
        means = [-sum(row["logprobs"]) / len(row["logprobs"]) for row in rows if len(row["logprobs"])]
        found[step, episode] = {
            "task": rows[0]["task"], "agents": ", ".join(dict.fromkeys(row["agent"] for row in rows)),
            "return": math.nan if branches or unlike else sum(at[0]["team_reward"] for at in kept.values()),
            "success": any(row["success"] for row in rows if row["kept"]),
            "advantage": largest if largest in advantages else -largest,
            "surprise": max(means, default=math.nan), "tokens": sum(len(row["completion_ids"]) for row in rows),
            "rows": len(rows), "truncated": sum(row["finish"] == "length" for row in rows),
            "invalid": sum(not row["valid"] for row in rows),
            "lone": sum(sizes[step, row["group"]] == 1 for row in rows),
            "reinforced": sum(
                row["local_reward"] < usual[step, row["agent"]] and np.max(row["advantage"]) > 0 for row in rows
            ),
        }  # fmt: skip
    return found


def compare(index, turns):
    found = by_loop(turns)
    assert {(row["step"], row["episode"]) for row in index.to_dict("records")} == set(found)
    for row in index.to_dict("records"):
        told = found[row["step"], row["episode"]]
        assert {name: row[name] for name in told} == pytest.approx(told, nan_ok=True), row["episode"]


def test_every_number_of_a_runs_index_is_that_of_a_plain_loop(spiky, tmp_path):
    run = lab.load_run(spiky)
    index = lab.RolloutViewer(spiky).index
    compare(index, run.turns)
    assert list(index.columns) == list(MEANINGS) and index["telling"].is_monotonic_decreasing
    zipped = lab.RolloutViewer(lab.export(run, tmp_path / "handed_in.zip")).index
    pd.testing.assert_frame_equal(zipped, index)
    pd.testing.assert_frame_equal(lab.RolloutViewer(run.turns, agents=("asker", "doer")).index, index)


def test_where_agents_act_together_the_last_one_says_whether_it_succeeded():
    """left's first candidate was scored against right's first, which the state did not follow."""
    turns = pd.DataFrame({
        "step": 0, "task": "t", "episode": "t", "node": "t/0", "turn": 0, "depth": 0, "candidate": [0, 1, 0, 1],
        "agent": ["left", "left", "right", "right"], "kept": [True, False, False, True], "team_reward": 0.0,
        "success": [True, False, True, False], "advantage": 0.0, "completion": "", "completion_ids": [[1]] * 4,
        "logprobs": [[-1.0]] * 4,
    })  # fmt: skip
    assert indexed(reduced(turns))["success"].tolist() == [False]
    assert indexed(reduced(turns.assign(success=[False, True, False, True])))["success"].tolist() == [True]


def test_what_tells_much_by_hand():
    index = pd.DataFrame({
        "success": [True, False, None, False, False], "advantage": [-2.5, 0.5, np.nan, -7.0, 3.0],
        "surprise": [0.25, np.nan, 4.0, 4.0, 1.0],
        "lone": [0, 0, 2, 1, 0], "truncated": [0, 0, 1, 5, 0], "invalid": [0, 0, 0, 1, 0],
    })  # fmt: skip
    assert informative(index.astype({"success": "boolean"})).tolist() == [2.75, 2.5, 3.0, 9.0, 6.0]
