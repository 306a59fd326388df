"""Parts that remember: kept and resumed bit for bit, never shared by two trainings, never left half-changed."""

import json
from dataclasses import dataclass, field

import pandas as pd
import pytest
import small

import mas_lab as lab
from mas_lab.runs.run import Checkpoint
from mas_lab.train.memory import Memory, own_copies

STEPS = 3
RAE = lab.RECIPES["dr_mas"].replace(name="rae", plan=lab.episodes(3), center=lab.running_mean(), scale="none")


def start(models, recipe, run, steps=STEPS, **changes):
    team = small.make_team("shared", models)
    return lab.train(small.Relay(), team, recipe, steps, run=run, **small.SETTINGS | {"save_every": 2} | changes)


def remembered(run) -> dict:
    return Checkpoint(max((run / "checkpoints").iterdir())).state["memory"]


@dataclass(repr=False)
class surprise:
    """A credit of one's own that remembers: what a text earned beyond the best that its agent ever earned."""

    breaks_at: int | None = None
    best: dict = field(default_factory=dict, init=False)
    steps: int = field(default=0, init=False)

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


@dataclass(frozen=True)
class weaker(lab.reinforce):
    """A loss that weighs each call less than the one before, and holds a team that no copy is made of."""

    team: object = None
    held: dict = field(default_factory=lambda: {"calls": 0}, compare=False, repr=False)

    def __call__(self, *tensors):
        self.held["calls"] += 1
        return super().__call__(*tensors) / self.held["calls"]

    def state(self):
        return dict(self.held)

    def load_state(self, state):
        self.held.update(state)


REMEMBERING = {
    "a center": RAE, "a credit": RAE.replace(name="surprise", credit=surprise()),
    "a loss": RAE.replace(name="weaker", loss=weaker()),
}  # fmt: skip


@pytest.mark.parametrize("what", REMEMBERING)
def test_a_run_that_remembers_goes_on_bit_for_bit(models, tmp_path, what):
    recipe = REMEMBERING[what]
    list(start(models, recipe, tmp_path / "straight"))
    for steps in (1, STEPS):
        list(start(models, recipe, tmp_path / "cut", steps))
    assert small.bits(tmp_path / "cut") == small.bits(tmp_path / "straight")
    assert remembered(tmp_path / "cut") == remembered(tmp_path / "straight")
    assert set(remembered(tmp_path / "cut")) == {"center", what.removeprefix("a ")}


def test_part_that_holds_a_team_is_copied_without_it(models):
    team = small.make_team("shared", models)
    recipe, _, memory = own_copies(RAE.replace(loss=weaker(team)), None)
    assert recipe.loss.team is team and memory.parts["loss"] is recipe.loss


def test_finished_run_says_that_it_is_complete(models, tmp_path):
    list(start(models, RAE, tmp_path / "run"))
    with pytest.warns(UserWarning, match=rf"already complete: {STEPS} of {STEPS} steps; nothing is trained"):
        assert list(start(models, RAE, tmp_path / "run")) == []


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
    with pytest.raises(lab.TableError, match="failed in step 2: RuntimeError: the judge went home"):
        list(start(models, broken, tmp_path / "run", save_every=10))
    assert lab.load_run(tmp_path / "run").checkpoint().step == 2
    assert remembered(tmp_path / "run") == remembered(tmp_path / "whole")


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


def test_parts_that_remember_by_halves_or_no_plain_data_are_refused(models):
    class half(surprise):
        load_state = None

    with pytest.raises(TypeError, match=r"credit=.*half.* has state\(\) alone; a part that remembers has both"):
        start(models, RAE.replace(credit=half()), None)

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
