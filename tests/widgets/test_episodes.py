"""The index of a run's episodes, which of them a page holds, and the shares of the gradient of their tokens."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from small import AGENTS, RECIPE, Relay

import mas_lab as lab
from mas_lab.explain.index import MEANINGS, informative
from mas_lab.explain.spike_rule import spike_steps
from mas_lab.table import TableError
from mas_lab.widgets.episodes import in_rounds, page_data, plain, ranks, token_shares
from mas_lab.widgets.source import Source

RELAY = Relay()


def by_loop(turns):
    """{(step, episode): row of the index}, a row of the table at a time."""
    sizes = {}
    for row in turns.to_dict("records"):
        if not row["probe"]:
            sizes[row["step"], row["group"]] = sizes.get((row["step"], row["group"]), 0) + 1
    found = {}
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


def made(**columns):
    """An index with a few of its columns, the others at rest."""
    n = len(next(iter(columns.values())))
    rest = {"run": 0, "step": range(n), "task": "t", "episode": [f"e{place}" for place in range(n)], "agents": "a",
            "return": 0.0, "success": True, "advantage": 0.0, "surprise": 0.0, "tokens": 1, "rows": 1, "truncated": 0,
            "invalid": 0, "lone": 0, "telling": 0.0}  # fmt: skip
    return pd.DataFrame({**rest, **columns}).astype({"success": "boolean"})


def test_what_tells_much_by_hand():
    told = {"success": [True, False, None, False, False], "advantage": [-2.5, 0.5, np.nan, -7.0, 3.0]}
    odd = {"lone": [0, 0, 2, 1, 0], "truncated": [0, 0, 1, 5, 0], "invalid": [0, 0, 0, 1, 0]}
    index = made(surprise=[0.25, np.nan, 4.0, 4.0, 1.0], **told, **odd)
    assert informative(index).tolist() == [2.75, 2.5, 3.0, 9.0, 6.0]


def test_each_steps_most_telling_comes_first_with_its_companion():
    assert list(in_rounds(made(step=[0, 0, 1, 1, 2], task=list("abcde")))) == [0, 2, 4, 1, 3]
    failed = made(success=[False, True, True, False], step=[5, 1, 4, 4], task=["t"] * 4)
    assert list(in_rounds(failed))[:2] == [0, 2], "the nearest success of the same task stands behind a failure"
    two = made(run=[0, 1, 1, 1], step=[5, 2, 6, 6], task=["t", "t", "t", "u"])
    assert list(in_rounds(two))[:2] == [0, 2], "the same task of the other run"


def test_a_page_is_filled_to_its_limit():
    index, sizes = made(step=[step for step in range(20) for _ in range(10)]), []
    nodes = [{"candidates": [{"shades": {"surprise": [1.0]}}]}]

    def make(place):
        return {"name": "x" * 100, "nodes": nodes}, {"g": [{"node": "n", "agent": "a", "candidate": place}]}

    def fill(limit, **options):
        return page_data(index, make, in_rounds(index), limit, **options)

    for limit in (20_000, 40_000):
        data = fill(limit)
        sizes.append(len(data["episodes"]))
        assert limit / 2 < len(json.dumps(data)) < limit * 1.2 and set(data["index"]["step"]) == set(range(20))
        assert data["left_out"] == data["total"] - sizes[-1] and data["shades"] == ["surprise"]
    assert sizes[0] < sizes[1] < len(fill(1e9)["episodes"]) == len(index)
    assert fill(1, first=[7])["index"]["episode"] == ["e7"] and fill(1)["index"]["episode"] == ["e0"]
    assert len(data["groups"]["g"]) == sizes[-1], "a member of a group stands there twice"


def test_an_index_is_sorted_by_size_by_words_and_by_the_numbers_in_them():
    index = made(advantage=[-3.0, 1.0, np.nan], task=["maze 10", "Maze 9", "a"], success=[None, True, False])
    assert ranks(index, "advantage").tolist()[:2] == [3.0, 1.0] and math.isnan(ranks(index, "advantage")[2])
    assert ranks(index, "task").tolist() == [2, 1, 0]
    assert ranks(index, "success").tolist()[1:] == [1.0, 0.0] and math.isnan(ranks(index, "success")[0])
    assert plain(index)["success"] == [None, True, False] and plain(index)["advantage"] == [-3.0, 1.0, None]


# Shares of the gradient


@pytest.fixture(scope="module")
def turns(team):
    played = [lab.rollout(RELAY, team, RELAY.tasks(2, "train", seed), RECIPE.plan, step=seed) for seed in (3, 5)]
    return RECIPE.advantages(pd.concat(played, ignore_index=True))


def test_a_tables_shares_are_found_by_step_and_row(team, turns):
    own = {step: rows.reset_index(drop=True) for step, rows in turns.groupby("step")}
    shares = pd.concat([lab.attribute(team, rows).assign(step=step) for step, rows in own.items()])
    found = token_shares(Source(turns), shares)
    assert {step for step, _ in found} == {3, 5} and sum(map(sum, found.values())) == pytest.approx(2.0)
    for (step, row), one in found.items():
        assert one == shares.loc[(shares["step"] == step) & (shares["row"] == row), "share"].tolist()
        assert len(one) == len(own[step]["completion_ids"][row])


def test_shares_of_a_step_of_a_run(spiky):
    run = lab.load_run(spiky)
    with pytest.raises(TableError, match=r"they name no step; .*assign\(step=3\)"):
        token_shares(Source(run), lab.attribute(run.team(), run.step_turns(3)))
    found = token_shares(Source(run), lab.attribute(run.team(), run.step_turns(3)).assign(step=3))
    assert {step for step, _ in found} == {3} and sum(map(sum, found.values())) == pytest.approx(1.0)


def test_shares_of_other_turns_are_refused(team, turns):
    turns = turns[turns["step"] == 3].reset_index(drop=True)
    shares = lab.attribute(team, turns)
    source = Source(turns)
    long = int(shares.loc[shares["token"] == 1, "row"].iloc[0])
    with pytest.raises(TableError, match=rf"row {long} of step 3 has 1 shares, and the table [23] tokens"):
        token_shares(source, shares[(shares["row"] == long) & (shares["token"] == 0)])
    with pytest.raises(TableError, match="no such row"):
        token_shares(source, shares.assign(row=9999))
    with pytest.raises(TableError, match="column 'share' is missing"):
        token_shares(source, shares.drop(columns="share"))


def test_a_run_has_what_its_watch_recorded(spiky, tmp_path):
    run = lab.load_run(spiky)
    records = spike_steps(run.stats, run.watched()["spikes"])
    found = token_shares(Source(run))
    assert set(found) == {(spike["step"], int(row)) for spike in records for row in spike["tokens"]}
    highest = records[0]
    for row, own in highest["tokens"].items():
        assert found[highest["step"], int(row)] == own
    assert token_shares(Source(lab.export(run, tmp_path / "handed_in.zip"))) == found
    assert token_shares(Source(run.turns)) == {}


def test_a_page_shades_by_them(spiky, team, turns):
    data = lab.RolloutViewer(spiky).data()
    run, known = lab.load_run(spiky), token_shares(Source(spiky))
    assert "share" in data["shades"]
    shown = 0
    for one in data["episodes"]:
        table = run.step_turns(one["step"])
        for node in one["nodes"]:
            for said in node["candidates"]:
                place = (table["node"] == node["node"]) & (table["agent"] == node["agent"])
                row = table.index[place & (table["candidate"] == said["index"])][0]
                recorded = known.get((one["step"], row))
                shown += recorded is not None
                assert said["shades"].get("share", []) == [round(share, 4) for share in recorded or []]
    assert shown
    own = turns[turns["step"] == 3].reset_index(drop=True)
    given = lab.RolloutViewer(lab.entropies(team, own), shares=lab.attribute(team, own), agents=AGENTS).data()
    assert given["shades"] == ["surprise", "entropy", "advantage", "share"]
