"""Parts that learn (`Recipe.after` in `train.loop`): kept and resumed bit for bit, and unchanged by an error."""

from dataclasses import dataclass, field, replace

import pytest
import small

import mas_lab as lab
from mas_lab.runs.run import Checkpoint

STEPS = 2
RAE = lab.RECIPES["dr_mas"].replace(name="rae", plan=lab.episodes(3), center=lab.running_mean(), scale="none")


def start(models, recipe, run, steps=STEPS, **changes):
    team = small.make_team("shared", models)
    return lab.train(small.Relay(), team, recipe, steps, run=run, **small.SETTINGS | {"save_every": 2} | changes)


def states(run) -> dict:
    return Checkpoint(max((run / "checkpoints").iterdir())).state["memory"]


@dataclass(frozen=True)
class surprise:
    """A credit of one's own that learns: what a text earned beyond the best that its agent ever earned."""

    breaks_at: int | None = None
    state: dict = field(default_factory=lambda: {"best": {}, "steps": 0}, repr=False, compare=False)

    def __call__(self, turns):
        if self.state["steps"] + 1 == self.breaks_at:
            raise RuntimeError("the judge went home")
        return turns["local_reward"] - turns["agent"].map(lambda agent: self.state["best"].get(agent, 0.0))

    def after(self, turns):
        best = self.state["best"] | turns.groupby("agent")["local_reward"].max().to_dict()
        best = {agent: max(float(reward), self.state["best"].get(agent, 0.0)) for agent, reward in best.items()}
        return replace(self, state={"best": best, "steps": self.state["steps"] + 1})


@dataclass(frozen=True)
class weaker(lab.reinforce):
    """A loss that weighs each step less than the one before."""

    state: dict = field(default_factory=lambda: {"steps": 1}, compare=False, repr=False)

    def __call__(self, *tensors):
        return super().__call__(*tensors) / self.state["steps"]

    def after(self, turns):
        return replace(self, state={"steps": self.state["steps"] + 1})


LEARNING = {
    "credit": RAE.replace(name="surprise", credit=surprise()), "loss": RAE.replace(name="weaker", loss=weaker()),
}  # fmt: skip


@pytest.mark.parametrize("what", LEARNING)
def test_a_run_that_learns_goes_on_bit_for_bit(models, tmp_path, what):
    recipe = LEARNING[what]
    list(start(models, recipe, tmp_path / "straight"))
    for steps in (1, STEPS):
        list(start(models, recipe, tmp_path / "cut", steps))
    assert small.bits(tmp_path / "cut") == small.bits(tmp_path / "straight")
    assert states(tmp_path / "cut") == states(tmp_path / "straight")
    assert set(states(tmp_path / "cut")) == {"center", what}
    with pytest.warns(UserWarning, match=rf"already complete: {STEPS} of {STEPS} steps; nothing is trained"):
        assert list(start(models, recipe, tmp_path / "cut")) == []


def test_a_loop_by_hand_learns_what_a_training_learns(models):
    """The recipe that was passed stays as it is; the next steps use its next values."""
    recipe, trained = RAE, []
    for report in start(models, RAE, None):
        added = ["credit", "group", "center", "scale", "advantage"]
        turns = recipe.advantages(report.turns.drop(columns=added))
        assert turns["center"].equals(report.turns["center"])
        trained.append(recipe := recipe.after(turns))
    assert RAE.center.state == {"means": []} and len({str(one.center.state) for one in trained}) == STEPS


def test_an_error_in_the_middle_of_a_step_leaves_run_and_states_at_the_last_good_one(models, tmp_path):
    broken = RAE.replace(name="surprise", credit=surprise(breaks_at=3))
    complete = RAE.replace(name="surprise", credit=surprise())
    list(start(models, complete, tmp_path / "complete", 2))
    with pytest.raises(lab.TableError, match="failed in step 2: RuntimeError: the judge went home"):
        list(start(models, broken, tmp_path / "run", 3, save_every=10))
    assert lab.load_run(tmp_path / "run").checkpoint().step == 2
    assert states(tmp_path / "run") == states(tmp_path / "complete")


def test_a_resume_without_the_state_is_refused(models, tmp_path):
    @dataclass(frozen=True)
    class fixed:
        breaks_at: int | None = None

        def __call__(self, turns):
            return turns["local_reward"]

    fixed.__qualname__ = fixed.__name__ = surprise.__qualname__
    learns, does_not = (RAE.replace(name="s", credit=credit, center=None) for credit in (surprise(), fixed()))
    list(start(models, learns, tmp_path / "with", 1))
    with pytest.raises(lab.RunError, match=r"cannot resume, the credit learns .* not in both"):
        list(start(models, does_not, tmp_path / "with"))


def test_a_state_that_is_no_plain_data_is_refused(models, tmp_path):
    with pytest.raises(TypeError, match=r"train: state\['credit'\].* \(set\)"):
        list(start(models, RAE.replace(credit=surprise(state={"a": {1, 2}})), tmp_path / "run"))
