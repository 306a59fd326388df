"""SpikeInspector: the norms it draws, the anatomy it holds, and what it says where nothing was recorded."""

import pandas as pd
import pytest
from widgets.test_rollouts import held

import mas_lab as lab
from mas_lab.table import TableError
from mas_lab.train import Report
from mas_lab.widgets.figures import colors
from mas_lab.widgets.spikes import POLICY, _told

AGENTS = ("asker", "doer")


def test_every_norm_of_the_run_is_a_point_and_every_spike_is_marked(spiky):
    inspector, stats = lab.SpikeInspector(spiky), lab.load_run(spiky).stats
    drawn = inspector.figure().data
    lines = {trace.name: trace for trace in drawn if trace.mode == "lines+markers"}
    assert list(lines)[:3] == ["shared, all", *(f"shared: {agent}" for agent in AGENTS)]
    for agent in AGENTS:
        norms = stats.loc[stats["agent"] == agent, "grad_norm"]
        shown = lines[f"shared: {agent}"]
        assert shown.y.tolist() == pytest.approx(norms.where(norms > 0).tolist(), nan_ok=True)
        assert shown.line.color == colors(AGENTS)[agent]
        told = inspector.scores[inspector.scores["agent"] == agent]
        assert list(shown.text) == [_told(row) for row in told.to_dict("records")]
    assert lines["shared, all"].line.color == POLICY and inspector.figure().layout.yaxis.type == "log"
    marks = [trace for trace in drawn if trace.mode == "markers"]
    assert {place for trace in marks for place in trace.customdata} == set(range(len(inspector.spikes)))
    row = {"step": 3, "optimizer_step": 0, "norm": 1.2345, "score": float("nan"), "usual": 0.6}
    assert _told(row) == "step 3, its optimizer step 0<br>norm 1.234, no score yet"


def test_an_agent_that_is_called_seldom_stands_at_the_steps_in_which_it_was():
    """Steps 0 and 3 call nobody but the first agent; the other's two norms stand over steps 1 and 2 of its policy."""
    calls = [(0, "asker"), (1, "asker"), (1, "doer"), (2, "asker"), (2, "doer"), (3, "asker")]
    rows = [{"step": step, "optimizer_step": 0, "policy": agent, "agent": agent, "policy_norm": 1.0 + step,
             "grad_norm": 1.0 + step, "policy_norm_clipped": 1.0}
            for step, agent in calls]  # fmt: skip
    inspector = lab.SpikeInspector(pd.DataFrame(rows), agents=AGENTS)
    drawn = {trace.name: list(trace.x) for trace in inspector.figure().data}
    assert drawn["asker"] == [0, 1, 2, 3] and drawn["doer"] == [1, 2]


def test_each_table_of_a_hand_written_loop_is_a_step():
    """`update` writes no step; the norm of the seventh update is 45 times the norms before it."""
    row = {"optimizer_step": 0, "policy": "shared", "agent": "asker"}
    updates = [pd.DataFrame([{**row, "grad_norm": norm, "policy_norm": norm}]) for norm in [2.0] * 6 + [90.0]]
    scores = lab.SpikeInspector(updates).scores
    assert scores["step"].tolist() == list(range(7)) and scores["spike"].tolist() == [False] * 6 + [True]


def recalling(run, changed=lambda spikes: spikes):
    """A watch that knows the spikes of a run, as `changed`."""
    watch, state = lab.SpikeWatch(), run.checkpoint().state["watch"]
    watch.load_state(state | {"spikes": changed(state["spikes"])})
    return watch


def test_the_spike_that_opens_first_is_made_of_several_rows(spiky):
    def alone(spikes):
        row = max(spikes[0]["rows"], key=lambda row: spikes[0]["rows"][row])
        return [spikes[0] | {name: {row: spikes[0][name][row]} for name in ("rows", "tokens")}, *spikes[1:]]

    run = lab.load_run(spiky)
    inspector = lab.SpikeInspector(run, watch=recalling(run, alone))
    assert len(inspector.first["rows"]) > 1 and inspector.data()["first"] == 1
    assert f"A spike opened: step {inspector.first['step']}, " in inspector.static()
    single = recalling(run, lambda spikes: alone(spikes)[:1])
    assert lab.SpikeInspector(run, watch=single).data()["first"] == 0, "there is no other"


def test_a_proxy_shades_no_token_of_an_episode(spiky):
    run = lab.load_run(spiky)
    watch = recalling(run, lambda spikes: [spike | {"exact": False} for spike in spikes])
    assert "share" not in lab.SpikeInspector(run, watch=watch).data()["rollouts"]["shades"]


def test_the_anatomy_adds_up_from_token_to_agent(spiky):
    """And the episodes of the largest samples are on the page: each sample's address names a row of them."""
    data, turns = held(lab.SpikeInspector(spiky).page()), lab.load_run(spiky)
    episodes = {(one["step"], one["name"]): one for one in data["rollouts"]["episodes"]}
    assert data["rollouts"]["shades"][0] == "share" and len(data["rollouts"]["index"]["step"]) == len(episodes)
    assert data["rollouts"]["total"] == len(episodes) + data["rollouts"]["left_out"]
    shaded = 0
    for spike in data["spikes"]:
        rows = turns.step_turns(spike["step"])
        assert sum(agent["share"] for agent in spike["anatomy"]) == pytest.approx(1, abs=1e-4)
        shown = []
        for agent in spike["anatomy"]:
            assert agent["share"] == pytest.approx(sum(group["share"] for group in agent["groups"]))
            for group in agent["groups"]:
                assert group["rows"] == len(group["samples"]) + group["little"]
                listed = sum(sample["share"] for sample in group["samples"])
                assert group["share"] == pytest.approx(listed, abs=1e-3 * group["little"] + 1e-9)
                for sample in group["samples"]:
                    row = rows.iloc[sample["row"]]
                    assert (row["agent"], row["group"]) == (agent["agent"], group["group"])
                    assert sample["numbers"]["advantage"] == pytest.approx(row["advantage"], abs=1e-4)
                    shown += [(sample, row)] if "tokens" in sample else []
        assert 1 <= len(shown) <= 6
        for sample, row in shown:
            assert sum(sample["shares"]) == pytest.approx(sample["share"], abs=1e-4)
            assert sample["said"] == row["completion"]
            assert " ".join(text for text in sample["tokens"] if text[0] != "<") == row["completion"]
            at = sample["at"]
            place = at["node"], row["agent"], at["candidate"]
            nodes = episodes[spike["step"], at["episode"]]["nodes"]
            [candidate] = [one for node in nodes for one in node["candidates"]
                           if (node["node"], node["agent"], str(one["index"])) == place]  # fmt: skip
            assert candidate["said"] == sample["said"] and candidate["tokens"] == sample["tokens"]
            assert len(candidate["shades"]["share"]) == len(sample["shares"]) and candidate["tell"]
            groups = data["rollouts"]["groups"][f"0|{spike['step']}|{candidate['group']}"]
            assert (at["episode"], at["node"]) in {(one["episode"], one["node"]) for one in groups}
            shaded += candidate["shades"]["share"] == pytest.approx(sample["shares"], abs=1e-4)
    assert shaded > 0


def test_a_watch_of_ones_own_and_reports_do_without_a_folder(spiky):
    run = lab.load_run(spiky)
    watch = recalling(run)
    reports = [Report(step, run.step_turns(step), own) for step, own in run.stats.groupby("step")]
    one, other = lab.SpikeInspector(reports, watch=watch), lab.SpikeInspector(spiky)
    assert one.spikes == other.spikes
    tokens = one.data()["spikes"][0]["anatomy"][0]["groups"][0]["samples"][0]["tokens"]
    assert tokens[0].startswith("#")  # no tokenizer is known
    assert "train with watch=SpikeWatch()" in lab.SpikeInspector(run.stats).data()["empty"], "nothing watched"
    few = lab.SpikeInspector([run.stats, run.turns.groupby("step").head(3)], watch=watch)
    with pytest.raises(TableError, match="the table has 3 rows of it; give it all rows"):
        few.page()


def test_what_clipping_left_is_told_of_the_policies_that_it_touched():
    rows = [{"step": step, "optimizer_step": 0, "policy": policy, "agent": policy, "grad_norm": norm,
             "policy_norm": norm, "policy_norm_clipped": min(norm, 1.0)}
            for step in range(3) for policy, norm in (("calm", 0.5), ("wild", 0.5 + step))]  # fmt: skip
    figure = lab.SpikeInspector(pd.DataFrame(rows)).figure()
    [clipped] = [trace for trace in figure.data if trace.name == "after clipping"]
    assert list(clipped.x) == [0, 1, 2]
    assert list(clipped.y) == [0.5, 1.0, 1.0] and clipped.line.dash == "dot"
