"""A run whose every part is somebody's own: it trains, resumes, exports, and opens in every instrument."""

import shutil
from dataclasses import dataclass, field, replace

import pytest
import small

import mas_lab as lab
from mas_lab.describe import describe
from mas_lab.study.equality import of_run

STEPS = 3


@dataclass(frozen=True)
class three_tries:
    """A plan: whole episodes, as many as `instances`, each a chain."""

    instances: int = 3

    def __call__(self, game):
        at = game.start()
        while at is not None:
            said = yield [lab.Generate(at, agent) for agent in game.acting(at)]
            [step] = yield [lab.StepEnv(at, said)]
            game.record(at, said, step)
            at = game.next(at, said, step)


@dataclass(frozen=True)
class politeness:
    """A credit: the team's reward of the row, and a little for every word."""

    per_word: float = 0.01

    def __call__(self, turns):
        return turns["team_reward"] + turns["local_reward"] + self.per_word * turns["completion"].str.split().str.len()


@dataclass(frozen=True)
class worst_so_far:
    """A center that learns."""

    state: dict = field(default_factory=dict, repr=False, compare=False)

    def __call__(self, turns):
        return turns["agent"].map(turns.groupby("agent")["credit"].min().to_dict() | self.state)

    def after(self, turns):
        lowest = turns.groupby("agent")["credit"].min()
        lowest = {agent: min(self.state.get(agent, low), float(low)) for agent, low in lowest.items()}
        return replace(self, state={**self.state, **lowest})


@dataclass(frozen=True)
class but_the_last:
    """A selector: all rows but those of the last episode of each task."""

    def __call__(self, turns):
        return turns["episode"] != turns.groupby("task")["episode"].transform("max")


class reversed_tasks:
    """A curriculum that keeps nothing."""

    def __call__(self, env, n, split, seed):
        return env.tasks(n, split, seed)[::-1]


OWN = lab.Recipe("mine", three_tries(), ("task",), politeness(), worst_so_far(), "none", select=but_the_last())


def start(models, run, steps=STEPS, recipe=OWN, **changes):
    asked = small.SETTINGS | {"curriculum": reversed_tasks(), "watch": lab.SpikeWatch()} | changes
    return lab.train(small.Relay(), small.make_team("shared", models), recipe, steps, run=run, **asked)


@pytest.fixture(scope="module")
def runs(models, tmp_path_factory):
    """`straight`, three steps at once; `cut`, the same in three goes."""
    root = tmp_path_factory.mktemp("runs")
    list(start(models, root / "straight"))
    for steps in (1, 2, 3):
        list(start(models, root / "cut", steps))
    return root


def test_run_of_own_parts_resumes_bit_for_bit_and_describes_them(models, runs):
    assert small.bits(runs / "cut") == small.bits(runs / "straight")
    config = lab.load_run(runs / "cut").config
    for part in ("plan", "credit", "center", "select"):
        assert config["recipe"][part]["is"] == f"{__name__}.{type(getattr(OWN, part)).__name__}"
    assert config["recipe"]["credit"]["per_word"] == 0.01 and "state" not in config["recipe"]["center"]
    assert config["recipe"] == describe(OWN)
    with pytest.raises(lab.RunError, match=r"recipe\.credit\.per_word differs: the run has 0\.01, this call has 0\.5"):
        list(start(models, runs / "cut", recipe=OWN.replace(credit=politeness(0.5))))


def test_parts_whose_source_changed_are_recorded_from_their_first_step_on(models, runs, tmp_path):
    run, name = shutil.copytree(runs / "cut", tmp_path / "run"), f"{__name__}.politeness"
    now = lab.load_run(run).config["sources"]
    small.recorded(run, sources=now | {name: "abcdef"})
    list(start(models, run, STEPS + 1))
    config = lab.load_run(run).config
    assert config["continued"] == [{"step": STEPS, "sources": now}]
    assert of_run(config)["continued"] == config["continued"]
    assert list(start(models, tmp_path / "fork", STEPS + 1, fork=run)) == []
    assert lab.load_run(tmp_path / "fork").config["forked"]["changed"] == [f"sources.{name}: 'abcdef' -> {now[name]!r}"]


def test_run_of_own_parts_opens_in_every_instrument(runs, tmp_path):
    run = lab.load_run(lab.export(runs / "cut", tmp_path / "cut.zip"))
    assert "mine, 3 steps" in repr(run) and run.turns["selected"].mean() == pytest.approx(2 / 3)
    for instrument in (lab.RewardInspector, lab.SpikeInspector, lab.RolloutViewer):
        assert "mine" in instrument(run).to_html(tmp_path / "shown.html").read_text()
        assert instrument(run).figure() is not None
    with pytest.raises(ValueError, match=r"three_tries.*is not part of mas_lab.*your own code"):
        run.recipe  # noqa: B018
    board = lab.AblationBoard([run])
    assert set(board.runs["recipe"]) == {"mine"} and "mine" in board.to_html(tmp_path / "board.html").read_text()
