"""Which episodes of an index a page shows and in which order, and the shares of the gradient of their tokens."""

import json

import numpy as np
import pandas as pd

import mas_lab as lab
from mas_lab.explain.spike_rule import spike_steps
from mas_lab.widgets.episodes import in_rounds, page_data, plain, recorded_shares
from mas_lab.widgets.source import Source


def made(**columns):
    """An index with a few of its columns, the others at rest."""
    n = len(next(iter(columns.values())))
    rest = {"run": 0, "step": range(n), "task": "t", "episode": [f"e{place}" for place in range(n)], "agents": "a",
            "return": 0.0, "success": True, "advantage": 0.0, "surprise": 0.0, "tokens": 1, "rows": 1, "truncated": 0,
            "invalid": 0, "lone": 0, "reinforced": 0, "telling": 0.0}  # fmt: skip
    return pd.DataFrame({**rest, **columns}).astype({"success": "boolean"})


def test_each_steps_most_telling_comes_first_with_its_companion():
    assert list(in_rounds(made(step=[0, 0, 1, 1, 2], task=list("abcde")))) == [0, 2, 4, 1, 3]
    failed = made(success=[False, True, True, False], step=[5, 1, 4, 4], task=["t"] * 4)
    assert list(in_rounds(failed))[:2] == [0, 2], "the nearest success of the same task stands behind a failure"
    two = made(run=[0, 1, 1, 1], step=[5, 2, 6, 6], task=["t", "t", "t", "u"])
    assert list(in_rounds(two))[:2] == [0, 2], "the same task of the other run"
    index = plain(made(advantage=[-3.0, np.nan], success=[None, True]))
    assert (index["success"], index["advantage"]) == ([None, True], [-3.0, None]), "a page's script reads plain values"


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


def test_a_run_has_what_its_watch_recorded(spiky, tmp_path):
    run = lab.load_run(spiky)
    records = spike_steps(run.stats, run.watched()["spikes"])
    found = recorded_shares(Source(run))
    assert set(found) == {(spike["step"], int(row)) for spike in records for row in spike["tokens"]}
    assert all(found[records[0]["step"], int(row)] == own for row, own in records[0]["tokens"].items())
    assert recorded_shares(Source(lab.export(run, tmp_path / "handed_in.zip"))) == found
    assert recorded_shares(Source(run.turns)) == {}


def test_a_page_shades_by_them(spiky):
    data = lab.RolloutViewer(spiky).data()
    run, known = lab.load_run(spiky), recorded_shares(Source(spiky))
    assert "share" in data["shades"]
    shown = 0
    for one in data["episodes"]:
        actions = run.step_turns(one["step"])["action"].tolist()
        for said in (said for node in one["nodes"] for said in node["candidates"]):
            recorded = known.get((one["step"], actions.index(said["action"])), [])
            shown += bool(recorded)
            assert said["shades"].get("share", []) == [round(share, 4) for share in recorded]
    assert shown
