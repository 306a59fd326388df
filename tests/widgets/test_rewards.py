"""RewardInspector: its numbers by hand, its figures from tables, runs and paths, its page.

Also tests `credit_figures`.
"""

import re

import pandas as pd
import pytest

import mas_lab as lab
from mas_lab.table import TableError
from mas_lab.train.verdict import verdict_of_table
from mas_lab.widgets.credit_figures import calls_over_steps, rewards_over_steps, two_baselines
from mas_lab.widgets.figures import colors
from mas_lab.widgets.rewards import call_table, reward_table


@pytest.fixture
def turns():
    """The fixer speaks in the two failed episodes of four, the solver in each; a second task is flat."""
    rows = [("t", f"e{i}", 0, "solver", float(i < 2), True) for i in range(4)]
    rows += [("t", "e2", 0, "fixer", 0.0, True), ("t", "e3", 0, "fixer", 0.0, False)]
    rows += [("u", f"f{i}", 0, "solver", 1.0, True) for i in range(2)] + [("u", "f0", 0, "fixer", 1.0, True)]
    table = pd.DataFrame(rows, columns=["task", "episode", "turn", "agent", "team_reward", "valid"])
    return lab.normalize(lab.group(table, by=("task", "agent"), credit=own_credit))


def own_credit(table):
    return table["team_reward"]


def test_the_table_by_hand(turns):
    found = reward_table(turns).set_index("agent")
    assert found.loc["fixer", ["rows", "spoke", "mean", "valid"]].tolist() == pytest.approx([3, 3 / 6, 1 / 3, 2 / 3])
    assert found.loc["fixer", ["lone", "flat"]].tolist() == pytest.approx([1 / 3, 2 / 3])
    assert found.loc["solver", ["lone", "flat", "50 %"]].tolist() == pytest.approx([0, 2 / 6, 1.0])
    counted = [-2 / 3, 0, 2 / 3, 0]  # of three rows, one is the flat task's
    assert found.loc["fixer", ["b", "v", "F", "signal"]].tolist() == pytest.approx(counted)
    assert found.loc["solver", ["b", "v", "F", "signal"]].tolist() == pytest.approx([0, 4 / 6, 4 / 6, 1])
    assert reward_table(turns, ("agent", "turn"))["rows"].tolist() == [6, 3]


def test_the_age_of_rows_is_their_step_minus_their_version(turns):
    versions = turns["agent"].map({"solver": 3, "fixer": 1})
    aged = turns.assign(step=4, policy_version=versions)
    assert reward_table(aged).set_index("agent")["age"].to_dict() == {"solver": 1.0, "fixer": 3.0}
    assert "age" not in reward_table(turns)


def test_the_facts_are_those_of_the_table(turns, tmp_path):
    """A silent agent has a row; no page says that an own baseline would pay."""
    inspector = lab.RewardInspector(turns, agents=("solver", "fixer", "critic"))
    pd.testing.assert_frame_equal(inspector.advice, lab.advise(turns, ("solver", "fixer", "critic")))
    page = inspector.to_html(tmp_path / "rewards.html").read_text(encoding="utf-8")
    assert "<summary>All numbers</summary>" in page and "What the rewards show, step 0" in page and "critic" in page
    assert "baseline pay" not in page and verdict_of_table(turns) in page


def test_an_agent_that_is_silent_in_the_last_step_stays_in_every_instrument(turns):
    """Its place and colour are those of the whole run, and its row in the table counts 0."""
    first, last = turns.assign(step=0), turns[turns["agent"] == "solver"].assign(step=1)
    inspector = lab.RewardInspector(pd.concat([first, last]))
    assert inspector.source.agents == ("solver", "fixer") and inspector.step == 1
    assert inspector.table.set_index("agent").loc["fixer", ["rows", "spoke"]].tolist() == [0, 0.0]
    assert [note.text for note in inspector.figure().layout.annotations] == ["solver", "fixer"]
    norms = pd.DataFrame({"step": [0, 0, 1], "optimizer_step": 0, "policy": "shared", "agent": ["solver", "fixer", "solver"],
                          "grad_norm": 1.0, "policy_norm": 1.0, "policy_norm_clipped": 1.0, "skipped": False})  # fmt: skip
    spikes = lab.SpikeInspector(norms)
    assert spikes.data()["agents"] == colors(["solver", "fixer"])


def test_turns_are_taken_for_agents_of_their_own(spiky):
    inspector = lab.RewardInspector(spiky)
    table, turns = inspector.turn_table.set_index(["agent", "turn"]), inspector.turns
    assert sorted(table.index) == [("asker", 0), ("asker", 1), ("doer", 0), ("doer", 1)]
    for (agent, turn), row in table.iterrows():
        own = turns[(turns["agent"] == agent) & (turns["turn"] == turn)]
        assert row[["rows", "mean"]].tolist() == pytest.approx([len(own), own["credit"].mean()])


def test_groups_and_episodes_of_two_steps_are_not_one(turns):
    """The fixer is alone in task u; in the same task of another step it earns something else."""
    twice = pd.concat([turns.assign(step=0), turns.assign(step=1, credit=turns["credit"] + 1)])
    for name in ("lone", "flat", "spoke", "F", "signal"):
        assert reward_table(twice)[name].tolist() == pytest.approx(reward_table(turns)[name].tolist())


def test_both_baselines_are_drawn_and_each_agent_has_its_colour(turns):
    agents = ("solver", "fixer", "critic")
    turns = pd.concat([turns, turns[turns["agent"] == "solver"].assign(agent="critic")])
    figure = two_baselines(turns, agents)
    credits = [trace for trace in figure.data if trace.name in agents]
    assert {trace.name: trace.marker.color for trace in credits} == colors(agents)
    assert [sum(trace.y) for trace in credits] == [6, 3, 6]
    under_global = [trace for trace in figure.data if trace.name == "global baseline"]
    fixers = [(x, y) for x, y in zip(under_global[1].x, under_global[1].y, strict=True) if y]
    assert [y for _, y in fixers] == [2, 1] and [x for x, _ in fixers] == pytest.approx([-1, 0], abs=0.1)
    assert {trace.yaxis for trace in credits} == {"y", "y2", "y3"}
    assert {trace.yaxis for trace in under_global} == {"y4", "y5", "y6"}, "the advantages do not stand below"
    lines = {(shape.line.dash or "solid", round(shape.x0, 9)) for shape in figure.layout.shapes}
    assert ("solid", round(1 / 3, 9)) in lines and ("dash", round(4 / 6, 9)) in lines
    titles = [figure.layout.xaxis3.title.text, figure.layout.xaxis6.title.text, figure.layout.yaxis.title.text]
    assert all(titles) and "(SD)" in titles[1]


def test_it_reads_tables_reports_runs_and_paths(spiky):
    run = lab.load_run(spiky)
    of_path, of_run, verdict_of_table = (lab.RewardInspector(x) for x in (spiky, run, run.turns))
    assert of_path.step == of_run.step == verdict_of_table.step == 4
    for other in (of_run, verdict_of_table):
        pd.testing.assert_frame_equal(of_path.table, other.table)
    report = lab.Report(4, run.step_turns(4), run.stats)
    pd.testing.assert_frame_equal(lab.RewardInspector(report).table, of_path.table)
    stats = dict(list(run.stats.groupby("step")))
    both = lab.RewardInspector([lab.Report(step, run.step_turns(step), stats[step]) for step in (3, 4)])
    assert both.source.steps == [3, 4]
    with pytest.raises(TableError, match="two tables of the list hold step 4; play each step with"):
        lab.RewardInspector([report, report])
    assert lab.RewardInspector(spiky, step=1).table["rows"].sum() == len(run.step_turns(1))


@pytest.mark.parametrize("made", [lab.RewardInspector, lab.RolloutViewer, lab.BaselineInspector])
def test_a_table_without_rows_is_refused(made, turns):
    rows = turns.assign(policy="p", prompt_ids=[[1]] * len(turns), completion_ids=[[1]] * len(turns), completion="")
    for empty in (rows[:0], rows.assign(step=0)[:0]):
        with pytest.raises(TableError, match="there are no rows"):
            made(empty)


def test_episodes_and_tasks_may_be_whole_numbers(turns):
    numbers = {name: pd.factorize(turns[name])[0] for name in ("task", "episode")}
    data = lab.RolloutViewer(turns.assign(completion="", **numbers)).data()
    assert [one["name"] for one in data["episodes"]] == data["index"]["episode"]
    assert set(data["index"]["task"]) == {"0", "1"}


def test_the_curve_holds_every_steps_mean(spiky):
    curve = lab.RewardInspector(spiky).curve()
    turns = lab.load_run(spiky).turns
    expected = turns.groupby(["step", "agent"])["credit"].mean()
    assert curve.set_index(["step", "agent"])["mean"].sort_index().tolist() == pytest.approx(expected.tolist())
    figure = rewards_over_steps(curve, ("asker", "doer"))
    assert [trace.name for trace in figure.data if trace.showlegend is None] == ["asker", "doer"]


def test_calls_are_turns_in_an_episode_whatever_was_tried_in_them(turns):
    """The fixer speaks in three of six episodes at step 0, in none at step 1; a candidate more is no call more."""
    later = turns[turns["agent"] == "solver"].assign(step=1)
    tried = later.assign(candidate=1), later.assign(turn=1)[:3], later.assign(probe=True, turn=2)
    steps = pd.concat([turns.assign(step=0), later, *tried])
    calls = call_table(steps.assign(probe=steps["probe"].fillna(False).astype(bool)))
    told = [[0, "solver", 1.0], [0, "fixer", 0.5], [1, "solver", 1.5], [1, "fixer", 0.0]]
    assert calls[["step", "agent", "calls"]].to_numpy().tolist() == told
    others = call_table(turns, ("critic",))[["step", "agent", "calls"]].to_numpy().tolist()
    assert others == [[0, "critic", 0.0], [0, "solver", 1.0], [0, "fixer", 0.5]]
    drawn = [(trace.name, list(trace.x), list(trace.y)) for trace in calls_over_steps(calls).data]
    assert drawn == [("solver", [0, 1], [1.0, 1.5]), ("fixer", [0, 1], [0.5, 0.0])]


def test_the_page_works_offline(spiky, tmp_path):
    page = lab.RewardInspector(spiky).to_html(tmp_path / "rewards.html").read_text(encoding="utf-8")
    assert not re.search("<[^>]* (src|href)=", re.sub("(<script[^>]*>).*?</script>", r"\1", page, flags=re.S))
    expected = {"* plotly.js (cartesian": 1, "<figure ": 4, "The numbers behind this figure": 4}
    assert {text: page.count(text) for text in expected} == expected
    assert page.count('"sendChartToCloud","sendDataToCloud"') == 4, "a figure offers to send the data away"
    assert len(page) < 8e6


def test_a_notebook_shows_a_figure_and_a_table(spiky, monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    lab.RewardInspector(spiky)._ipython_display_()
    assert [type(one).__name__ for one in shown] == ["HTML", "Figure", "Figure", "Figure", "Figure", "HTML"]
    assert lab.verdict(spiky) in shown[0].data
    assert ">asker</td>" in shown[5].data and "baseline pay" not in shown[5].data
    titles = [figure.layout.yaxis.title.text for figure in shown[1:5]]
    assert titles == [None, "rows", "credit (line: mean; band: quartiles)", "calls in an episode"]
    names = [(trace.name, trace.legendgroup) for trace in shown[1].data]
    assert names == 2 * [("own reward", "own_reward"), ("wrong answers that were reinforced", "reinforced")]
    assert "asker, doer" in repr(lab.RewardInspector(spiky))


def test_what_it_cannot_read_is_named(spiky, turns):
    with pytest.raises(TableError, match="column 'credit' is missing"):
        lab.RewardInspector(turns.drop(columns="credit"))
    with pytest.raises(TableError, match="it got statistics"):
        lab.RewardInspector(lab.load_run(spiky).stats)
    with pytest.raises(TypeError, match="got int"):
        lab.RewardInspector(3)
    with pytest.raises(lab.RunError, match="there is no step 9; the run holds 5"):
        lab.RewardInspector(spiky, step=9)
