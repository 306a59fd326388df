"""RewardInspector: its numbers by hand, its figures from tables, runs and paths, its page."""

import re

import pandas as pd
import pytest
from small import Relay, make_team

import mas_lab as lab
from mas_lab.table import TableError
from mas_lab.train import Report
from mas_lab.train.verdict import verdict_of_table
from mas_lab.widgets.figures import colors
from mas_lab.widgets.rewards import GLOBAL, OWN, comparison, reward_table, two_baselines


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
    assert set(reward_table(turns.drop(columns="valid"))["valid"]) == {1.0}, "a table by hand may lack it"
    # The fixer is alone in task u; in the same task of another step it earns something else.
    twice = reward_table(pd.concat([turns.assign(step=0), turns.assign(step=1, credit=turns["credit"] + 1)]))
    names = ["lone", "flat", "spoke", "F", "signal"]
    pd.testing.assert_frame_equal(twice[names], reward_table(turns)[names])
    aged = reward_table(turns.assign(step=4, policy_version=turns["agent"].map({"solver": 3, "fixer": 1})))
    assert aged.set_index("agent")["age"].to_dict() == {"solver": 1.0, "fixer": 3.0} and "age" not in twice


def test_an_agent_that_is_silent_in_the_last_step_stays_in_every_instrument(turns):
    """Its place and colour are those of the whole run, and its row in the table counts 0."""
    first, last = turns.assign(step=0), turns[turns["agent"] == "solver"].assign(step=1)
    inspector = lab.RewardInspector(pd.concat([first, last]))
    assert inspector.source.agents == ("solver", "fixer") and inspector.step == 1
    assert inspector.table.set_index("agent").loc["fixer", ["rows", "spoke"]].tolist() == [0, 0.0]
    assert [note.text for note in inspector.figure().layout.annotations] == ["solver", "fixer<br>did not speak"]
    assert "step 1. Did not speak in step 1: fixer." in inspector._first()
    who = {"step": [0, 0, 1], "optimizer_step": 0, "policy": "shared", "agent": ["solver", "fixer", "solver"]}
    norms = dict.fromkeys(("grad_norm", "policy_norm", "policy_norm_clipped"), 1.0)
    norms = pd.DataFrame({**who, **norms})
    spikes = lab.SpikeInspector(norms)
    assert spikes.data()["agents"] == colors(["solver", "fixer"]) and "in step 1: fixer." in spikes.static()
    three = ("solver", "fixer", "critic")
    assert lab.RewardInspector(turns, agents=three).table["agent"].tolist() == list(three), "it never spoke"


@pytest.fixture(scope="module")
def played(models):
    """Three tasks of four episodes each."""
    env = Relay()
    turns = lab.rollout(env, make_team("per_agent", models), env.tasks(3, "train", 0), lab.episodes(4), seed=0)
    return lab.RECIPES["grpo"].advantages(turns)


def test_the_first_baseline_is_that_of_dr_mas_and_a_choice_changes_its_side_alone(played):
    inspector = lab.RewardInspector(played)
    expected = pd.DataFrame(lab.rejudge(inspector.turns, ["grpo", "dr_mas"]))
    expected = expected.replace({"grpo": "global", "dr_mas": "chosen"})
    pd.testing.assert_frame_equal(pd.DataFrame(inspector.judged()), expected)
    other = inspector.judged("the task", "nobody").set_index(["recipe", "agent"])["size"]
    first = expected.set_index(["recipe", "agent"])["size"]
    assert other["global"].equals(first["global"]) and not other["chosen"].equals(first["chosen"])
    with pytest.raises(KeyError, match="half"):
        inspector.judged("half")


def test_an_episode_counts_once_in_the_tasks_mean_and_deviation():
    """Credits 1 (three rows), 0 and 0.5: mean 0.5, variance 1/6."""
    rows = [("e0", 0, 1.0), ("e0", 1, 0.0), ("e0", 2, 0.0), ("e1", 0, 0.0), ("e2", 0, 0.5)]
    table = pd.DataFrame([{"task": "t", "episode": episode, "agent": "a", "turn": turn, "depth": turn, "valid": True,
                           "team_reward": reward} for episode, turn, reward in rows])  # fmt: skip
    grouped = lab.group(table, by="task", credit=lab.episode_return())
    inspector = lab.RewardInspector(grouped)
    for mean, deviation, size in (("the task", "nobody", 0.4), ("nobody", "the task", 0.7 / (1 / 6) ** 0.5)):
        found = inspector.judged(mean, deviation).set_index("recipe")
        assert found.loc["chosen", "size"] == pytest.approx(size, abs=1e-5)


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


def test_it_reads_tables_reports_runs_and_paths_and_names_what_it_cannot_read(spiky, turns):
    run = lab.load_run(spiky)
    report, of_path = Report(4, run.step_turns(4), run.stats), lab.RewardInspector(spiky)
    for other in map(lab.RewardInspector, (run, run.turns, report)):
        assert other.step == of_path.step == 4
        pd.testing.assert_frame_equal(of_path.table, other.table)
    stats = dict(list(run.stats.groupby("step")))
    both = lab.RewardInspector([Report(step, run.step_turns(step), stats[step]) for step in (3, 4)])
    assert both.source.steps == [3, 4]
    with pytest.raises(TableError, match="two tables of the list hold step 4; play each step with"):
        lab.RewardInspector([report, report])
    assert lab.RewardInspector(spiky, step=1).table["rows"].sum() == len(run.step_turns(1))
    with pytest.raises(lab.RunError, match="there is no step 9; the run holds 5"):
        lab.RewardInspector(spiky, step=9)
    for wrong, why in ((turns.drop(columns="credit"), "column 'credit' is missing"), (run.stats, "it got statistics"),
                       (turns[:0].assign(policy="p"), "there are no rows")):  # fmt: skip
        with pytest.raises(TableError, match=why):
            lab.RewardInspector(wrong)
    with pytest.raises(TableError, match="there are no rows"):
        lab.RolloutViewer(turns[:0].assign(completion=""))


def test_the_page_works_offline(spiky, tmp_path):
    inspector = lab.RewardInspector(spiky)
    page = inspector.to_html(tmp_path / "rewards.html").read_text(encoding="utf-8")
    assert not re.search("<[^>]* (src|href)=", re.sub("(<script[^>]*>).*?</script>", r"\1", page, flags=re.S))
    expected = {"* plotly.js (cartesian": 1, "<figure ": 2, "The numbers behind this figure": 2}
    assert {text: page.count(text) for text in expected} == expected
    assert page.count('"sendChartToCloud","sendDataToCloud"') == 2, "a figure offers to send the data away"
    assert len(page) < 8e6 and verdict_of_table(inspector.turns) in page


def test_a_comparison_says_what_changes_most_with_both_sides_and_their_difference(turns):
    agents = pd.Index(["solver", "fixer"], name="agent")
    numbers = {
        "rows": 4,
        "silent": 0.0,
        "other_sign": 0.0,
        "without_peer": 0.0,
        "size": 1.0,
        "reinforced": float("nan"),
    }
    before = pd.DataFrame(numbers, agents).assign(wrong_way=[0.1, 0.5]).reset_index()
    after = before.assign(other_sign=[0.0, 0.25], wrong_way=[0.1, 0.2])
    told = comparison(before, after, *OWN)
    sentence = "fixer changes most: 25 % of its rows get the other sign, and 20 % of its advantage goes the wrong way"
    assert f"By the mean of {OWN[0]}, deviation of {OWN[1]}, {sentence} instead of 50 %." in told
    assert "0.50 → 0.20 (-0.30)" in told.replace("\xa0", " ") and "<b>wrong_way</b>: share of its advantage" in told
    assert "deviation of nobody, no row gets the other sign" in comparison(before, before, "the task", "nobody")


def test_a_notebook_and_a_page_have_two_menus_that_compare(spiky, monkeypatch):
    shown, menus, inspector = [], {}, lab.RewardInspector(spiky)
    monkeypatch.setattr("mas_lab.widgets.rewards.interact", lambda made, **own: menus.update(own, made=made))
    monkeypatch.setattr("IPython.display.display", lambda one, **_: shown.append(one))
    inspector._ipython_display_()
    assert [type(one).__name__ for one in shown] == ["HTML", "Figure", "HTML"] and lab.verdict(spiky) in shown[0].data
    assert (menus["mean"].value, menus["deviation"].value) == OWN and "asker, doer" in repr(inspector)
    found = []
    for pair in (OWN, GLOBAL):
        menus["made"](*pair)
        found.append(shown[-1].data.removeprefix('<div class="tex2jax_ignore mathjax_ignore">').removesuffix("</div>"))
        assert {"chosen baseline", "global baseline"} <= {trace.name for trace in shown[-2].data}
    assert found[0] != found[1]
    parts = re.findall('<div data-whose="([^"]+)"( hidden)?>', inspector._menus())
    assert len(parts) == 16 and [name for name, hidden in parts if not hidden] == [", ".join(OWN)]
    assert all(one in inspector._menus() for one in found)
