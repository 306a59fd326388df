"""Shares of the gradient by step and row: as `lab.attribute` gives them, and as a watch recorded them."""

import pandas as pd
import pytest
from small import AGENTS, RECIPE, Relay

import mas_lab as lab
from mas_lab.explain.spike_rule import spike_steps
from mas_lab.table import TableError
from mas_lab.widgets.episodes import token_shares
from mas_lab.widgets.source import Source

RELAY = Relay()


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
