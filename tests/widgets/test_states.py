"""States played again are those of a plain walk, and where anything disagrees there is no picture but a reason."""

import shutil
from dataclasses import dataclass, replace

import pandas as pd
import pytest
from small import Relay, recorded

import mas_lab as lab
from mas_lab.display.svg_rules import validate_svg
from mas_lab.widgets.source import Source
from mas_lab.widgets.states import NoStates, States, states

PLANS = {"episodes": lab.episodes(2), "followed": lab.tree(2, follow=1), "cross": lab.joint(2, mode="cross")}


@dataclass(frozen=True)
class Drawn(Relay):
    """A relay that writes its state into its picture."""

    def draw(self, state):
        told = f"{state.word} {state.heard} {state.turn}".strip()
        return f'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9" viewBox="0 0 9 9"><g id="{told}"/></svg>'


def rows_of(turns, episode=None):
    """Those of one episode, as a page reads them."""
    turns = turns[~turns["probe"]]
    return turns[turns["episode"] == (episode or turns["episode"].iloc[0])].to_dict("records")


def walked(env, task, rows):
    """Node -> state, each by itself: from the node back to the start by `parent`, and forwards by what was said."""
    texts = {(row["node"], row["agent"], str(row["candidate"])): row["completion"] for row in rows}
    parents, found = {row["node"]: row["parent"] for row in rows}, {}
    for node in parents:
        actions, parent = [], parents[node]
        while parent:
            actions.append(parent.rpartition("."))
            parent = parents[parent.rpartition(".")[0]]
        state = env.start(task)
        for before, _, picks in reversed(actions):
            chosen = zip(env.acting(state), picks.split("-"), strict=True)
            state = env.step(state, {agent: texts[before, agent, pick] for agent, pick in chosen}).state
        found[node] = state
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Turns of a pocket model in three mazes, kept as a run of two steps."""
    env, folder = lab.make_env("plan_path", max_turns=2), tmp_path_factory.mktemp("runs") / "maze"
    team = lab.Team.shared(lab.load_policy(env.pocket), env.agents)
    recipe = lab.RECIPES["at_grpo"].replace(plan=lab.tree(2))
    list(lab.train(env, team, recipe, 2, seed=3, run=folder, tasks=3, check=False))
    return folder


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("together", [False, True])
def test_states_are_those_of_a_plain_walk(plan, together, team):
    env = Drawn(together=together)
    [task] = env.tasks(1, "train", 0)
    turns = lab.rollout(env, team, [task], PLANS[plan], seed=2)
    rows = rows_of(turns)
    again = walked(env, task, rows)
    assert len(again) == len({row["node"] for row in rows}) > 1
    assert states(env, task, rows[::-1]) == {node: env.draw(state) for node, state in again.items()}


def played(team, **changes):
    """(env, task, rows) of a relay's tree, with `changes` to the first row that led on."""
    env = Drawn()
    [task] = env.tasks(1, "train", 0)
    turns = lab.rollout(env, team, [task], lab.tree(2), seed=2)
    first = turns.index[turns["kept"] & (turns["depth"] == 0)][0]
    for name, value in changes.items():
        turns.loc[first, name] = value
    return env, task, rows_of(turns)


DIFFER = {
    "team_reward": (0.25, "earns 0.0, and not 0.25 as before"), "completion": ("w9 eos", "has another prompt than in"),
    "agent": ("nobody", "has another prompt than in"), "parent": ("gone/0.1", "lacks the rows of 'gone/0'"),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFER)
def test_what_disagrees_with_the_table_gives_no_picture_and_says_where(name, team):
    value, why = DIFFER[name]
    with pytest.raises(NoStates, match=why):
        states(*played(team, **{name: value}))


def test_what_is_missing_or_breaks_is_told(team):
    env, task, rows = played(team)
    with pytest.raises(NoStates, match="lacks a row of the action"):
        states(env, task, [row for row in rows if row["depth"] or not row["kept"]])
    with pytest.raises(NoStates, match="has another prompt"):
        states(env, replace(task, data={"word": "w9"}), rows)

    class Breaks(Drawn):
        def draw(self, state):
            return 1 // 0

    held = States(Source(pd.DataFrame(rows)), Breaks(), [task])
    assert held(0, rows) == {} and "Breaks failed: ZeroDivisionError" in held.reason


def of(source, step=0, place=0, **options):
    """(States, its pictures of one episode of a step)."""
    held, turns = States(Source(source), **options), Source(source).turns(step)
    return held, held(step, rows_of(turns, turns["episode"].unique()[place]))


@pytest.mark.slow
def test_a_run_has_the_states_of_each_step(run, tmp_path):
    for source in (run, lab.export(run, tmp_path / "handed_in.zip")):
        for step in (0, 1):
            held, found = of(source, step, 1)
            turns = lab.load_run(source).step_turns(step)
            rows = rows_of(turns, turns["episode"].unique()[1])
            assert held.reason == "" and set(found) == {row["node"] for row in rows}
            for row in rows:  # the first picture of the episode stands where its prompt says
                at, goal = (row["prompt"].split()[row["prompt"].split().index(word) + 1] for word in ("at", "goal"))
                assert f"stands at {at}, the goal is {goal}" in found[row["node"]]
            assert not any(map(validate_svg, found.values()))


def test_what_a_run_does_not_tell_gives_a_reason(run, spiky, tmp_path):
    assert of(spiky)[1] == {}
    changes = {
        "curriculum": ({"curriculum": {"is": "mine:Curriculum"}}, "a curriculum drew the tasks"),
        "seed": ({"seed": 4}, "is not among those that the env draws again for step 0; pass tasks="),
        "another size": ({"env": {"name": "plan_path", "size": 6}}, "is not among those"),
    }
    for name, (change, why) in changes.items():
        shutil.copytree(run, tmp_path / name)
        recorded(tmp_path / name, **change)
        held, found = of(tmp_path / name)
        assert found == {} and why in held.reason, name


def test_tables_in_memory_are_of_the_tasks_given_or_of_seed_0(team):
    env = Drawn()
    for split, seed, passed in (("test", 0, False), ("train", 7, True)):
        tasks = env.tasks(3, split, seed)
        turns = lab.rollout(env, team, tasks, lab.episodes(1))
        held, found = of(turns, 0, 2, env=env, tasks=tasks if passed else ())
        assert found and held.reason == ""
    held, found = of(turns, env=env)
    assert found == {} and "pass tasks=" in held.reason
    assert of(turns)[1] == {}


def test_a_page_has_the_states_of_its_run_and_says_why_some_are_missing(run, spiky):
    viewer = lab.RolloutViewer(run)
    pictures = [node["state"] for one in viewer.data()["episodes"] for node in one["nodes"]]
    assert pictures and not any(map(validate_svg, pictures)) and "no pictures" not in viewer.page()
    own = lab.RolloutViewer(spiky)
    assert not any("state" in node for one in own.data()["episodes"] for node in one["nodes"])
    assert "no pictures" not in own.page()  # there is nothing to be had
    other = lab.RolloutViewer(run, env=lab.make_env("plan_path", size=4))
    assert "Some episodes have no pictures of their states: task &#x27;plan_path-" in other.page()
    drawn = lab.RolloutViewer(spiky, env=Drawn()).data()
    assert all("state" in node for one in drawn["episodes"] for node in one["nodes"])


@pytest.mark.browser
def test_pictures_are_shown_and_told(run, open_page, tmp_path):
    page = open_page(lab.RolloutViewer(run).to_html(tmp_path / "page.html"))
    pictures = page.locator("img.state")
    shown = pictures.evaluate_all("all => all.map((one) => [one.complete, one.naturalWidth, one.alt])")
    assert shown and all(complete and width == 154 for complete, width, _ in shown)  # five cells of 26 and their edge
    assert "environment step 0. A maze. The team stands at" in shown[0][2]
