"""Parts that remember: kept and resumed bit for bit, never shared by two trainings, never left half-changed."""

import copy
import json
from dataclasses import dataclass, field

import pandas as pd
import pytest
import small

import mas_lab as lab
from mas_lab.runs.checkpoint import Checkpoint
from mas_lab.train.memory import Memory, own_copies

STEPS = 3
RAE = lab.RECIPES["dr_mas"].replace(name="rae", plan=lab.episodes(3), center=lab.running_mean(), scale="none")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return small.make_models(tmp_path_factory.mktemp("models"))


def start(models, recipe, run, steps=STEPS, **changes):
    team = small.make_team("shared", models)
    return lab.train(small.Relay(), team, recipe, steps, run=run, **small.SETTINGS | {"save_every": 2} | changes)


def remembered(run) -> dict:
    return Checkpoint(max((run / "checkpoints").iterdir())).state["memory"]


class surprise:
    """A credit of one's own that remembers: what a text earned beyond the best that its agent ever earned."""

    def __init__(self, breaks_at: int | None = None):
        self.best, self.steps, self.breaks_at = {}, 0, breaks_at

    def __call__(self, turns):
        self.steps += 1
        best = turns["agent"].map(lambda agent: self.best.get(agent, 0.0))
        for agent, own in turns.groupby("agent"):
            self.best[agent] = max(self.best.get(agent, 0.0), float(own["local_reward"].max()))
        if self.steps == self.breaks_at:
            raise RuntimeError("the judge went home")
        return turns["local_reward"] - best

    def state(self):
        return {"best": self.best, "steps": self.steps}

    def load_state(self, state):
        self.best, self.steps = dict(state["best"]), state["steps"]


REMEMBERING = {"a center": RAE, "a credit": RAE.replace(name="surprise", credit=surprise())}


@pytest.mark.parametrize("what", REMEMBERING)
def test_a_run_that_remembers_goes_on_bit_for_bit(models, tmp_path, what):
    recipe = REMEMBERING[what]
    reports = list(start(models, recipe, tmp_path / "straight"))
    for steps in (1, STEPS):
        list(start(models, recipe, tmp_path / "cut", steps))
    assert small.bits(tmp_path / "cut") == small.bits(tmp_path / "straight")
    assert remembered(tmp_path / "cut") == remembered(tmp_path / "straight")
    assert set(remembered(tmp_path / "cut")) == ({"credit", "center"} if what == "a credit" else {"center"})
    alone = RAE.replace(center=None)
    assert not (reports[-1].turns["center"] == list(start(models, alone, None))[-1].turns["center"]).all()


def test_the_running_mean_of_a_run_is_the_formula(models, tmp_path):
    reports = list(start(models, RAE, tmp_path / "run"))
    mean = {}
    for report in reports:
        for agent, own in report.turns.groupby("agent"):
            m = own.groupby("episode")["credit"].mean().mean()
            assert own["center"].tolist() == pytest.approx([mean.get(agent, m)] * len(own), abs=1e-12)
            mean[agent] = 0.95 * mean.get(agent, m) + 0.05 * m
    assert {key: value for [key], value in remembered(tmp_path / "run")["center"]["means"]} == pytest.approx(mean)


def test_a_training_leaves_nothing_in_the_recipe_and_takes_nothing_from_it(models):
    def advantages():
        return pd.concat(report.turns["advantage"] for report in start(models, RAE, None, 2))

    first = advantages()
    assert RAE.center.state() == {"means": []} and (advantages() == first).all()
    turns = next(start(models, RAE, None)).turns.drop(columns=["credit", "group", "center", "scale", "advantage"])
    by_hand = RAE.replace(center=lab.running_mean())
    by_hand.advantages(turns)
    assert by_hand.center.state()["means"]  # in a loop of one's own the object itself remembers
    again = pd.concat(report.turns["advantage"] for report in start(models, by_hand, None, 2))
    assert (again == first).all()


def test_an_error_in_the_middle_of_a_step_leaves_run_and_memory_at_the_last_good_one(models, tmp_path):
    """The credit changes what it remembers, then raises, at the third step; a checkpoint was due after two and ten."""
    broken = RAE.replace(name="surprise", credit=surprise(breaks_at=3))
    whole = RAE.replace(name="surprise", credit=surprise())
    list(start(models, whole, tmp_path / "whole", 2))
    with pytest.raises(RuntimeError, match="the judge went home"):
        list(start(models, broken, tmp_path / "run", save_every=10))
    assert lab.load_run(tmp_path / "run").checkpoint().step == 2
    assert remembered(tmp_path / "run") == remembered(tmp_path / "whole")
    list(start(models, whole, tmp_path / "run", save_every=10))
    list(start(models, whole, tmp_path / "straight"))
    assert small.bits(tmp_path / "run") == small.bits(tmp_path / "straight")


def test_an_error_while_the_team_learns_goes_on_from_the_newest_checkpoint(models, tmp_path):
    steps_seen = []

    def no_second_step(policy, norms, attribute):
        steps_seen.append(policy)
        if len(steps_seen) > 2:  # two optimizer steps a training step
            raise RuntimeError("the watch fell asleep")

    with pytest.raises(RuntimeError, match="fell asleep"):
        list(start(models, RAE, tmp_path / "run", watch=no_second_step, save_every=1))
    list(start(models, RAE, tmp_path / "one", 1))
    assert remembered(tmp_path / "run") == remembered(tmp_path / "one")
    for run in ("run", "straight"):
        list(start(models, RAE, tmp_path / run, save_every=1))
    assert small.bits(tmp_path / "run") == small.bits(tmp_path / "straight")


def test_what_raises_leaves_the_memory_as_it_was():
    _, _, memory = own_copies(RAE, None)
    with pytest.raises(RuntimeError), memory.unmoved_by_errors():
        memory.parts["center"].load_state({"means": [[["asker"], 1.0]]})
        raise RuntimeError
    assert memory.state() == {"center": {"means": []}}


def test_a_resume_without_the_memory_is_refused(models, tmp_path):
    class forgetful(surprise):
        state = load_state = None

    forgetful.__qualname__ = forgetful.__name__ = surprise.__qualname__
    with_memory, without = (RAE.replace(name="s", credit=credit, center=None) for credit in (surprise(), forgetful()))
    list(start(models, with_memory, tmp_path / "with", 1))
    with pytest.raises(lab.RunError, match=r"cannot resume, credit: the run's remembers .* what is asked does not"):
        list(start(models, without, tmp_path / "with"))
    list(start(models, without, tmp_path / "without", 1))
    with pytest.raises(lab.RunError, match=r"credit: what is asked remembers .* the run's does not; pass the one"):
        list(start(models, with_memory, tmp_path / "without"))
    with pytest.raises(lab.RunError, match=r"recipe\.center"):
        list(start(models, RAE.replace(name="s", credit=surprise()), tmp_path / "with"))


@dataclass
class half:
    def __call__(self, turns):
        return turns["team_reward"]

    def state(self):
        return {}


def test_a_part_that_remembers_by_halves_is_refused_before_anything_is_played(models, tmp_path):
    with pytest.raises(TypeError, match=r"credit=half\(\) has state\(\) alone; a part that remembers has both"):
        start(models, RAE.replace(credit=half()), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_what_is_no_plain_data_is_named():
    class odd(surprise):
        def __init__(self, held):
            self.held = held

        def state(self):
            return self.held

    for held, words in (({"a": {1, 2}}, "holds set"), ({3: 1}, "holds dict with keys that are no text")):
        with pytest.raises(TypeError, match=rf"state\(\) of credit=.* {words}; plain data alone"):
            Memory({"credit": odd(held)}).state()
    kept = Memory({"credit": odd({"a": (1, 2.5, None, True, "x")})}).state()
    assert kept == json.loads(json.dumps(kept)) == {"credit": {"a": [1, 2.5, None, True, "x"]}}


@dataclass(frozen=True)
class counting:
    """A selector that remembers in a field of its own."""

    every: int = 2
    seen: list = field(default_factory=list, init=False, compare=False)

    def __call__(self, turns):
        self.seen.append(len(turns))
        return pd.Series(len(self.seen) % self.every == 0, turns.index)

    def state(self):
        return {"seen": self.seen}

    def load_state(self, state):
        self.seen[:] = state["seen"]


def test_a_selector_may_remember_too(models, tmp_path):
    recipe = RAE.replace(name="every second step", center=None, scale=None, select=counting())
    reports = list(start(models, recipe, tmp_path / "run", 4))
    assert [bool(report.turns["selected"].any()) for report in reports] == [False, True, False, True]
    assert [len(report.stats) for report in reports] == [0, 4, 0, 4]
    assert "nothing was learned" in repr(reports[0]) and recipe.select.seen == []
    assert remembered(tmp_path / "run") == {"select": {"seen": [len(report.turns) for report in reports]}}
    run = lab.load_run(tmp_path / "run")
    assert run.steps == 4 and set(run.stats["step"]) == {1, 3}
    for instrument in (lab.RewardInspector, lab.SpikeInspector, lab.RolloutViewer):
        assert "every second step" in instrument(run).to_html(tmp_path / "shown.html").read_text()


def test_parts_that_do_not_remember_stay_the_objects_that_they_are():
    recipe, curriculum, memory = own_copies(lab.RECIPES["at_grpo"], None)
    assert recipe == lab.RECIPES["at_grpo"] and recipe.credit is lab.RECIPES["at_grpo"].credit
    assert (curriculum, memory.state()) == (None, {})
    assert copy.deepcopy(RAE) == RAE
