"""A fork begins as another run, bit for bit, and goes on under what is asked now; whole, or not there."""

import dataclasses
import shutil
from dataclasses import dataclass

import pandas as pd
import pytest
from faults import fill
from small import RECIPE, SETTINGS, Memory, Relay, bits, make_team

import mas_lab as lab
from mas_lab.runs.scores import scored_steps
from mas_lab.table import selected

STEPS, AT = 3, 2
SCORED = {"score_every": 2, "score_tasks": 2, "score_episodes": 1}


def train(models, run, steps=STEPS, kind="shared", recipe=RECIPE, lr=1e-2, **changes):
    """All steps of the training that these tests fork, or of a fork of it."""
    team = make_team(kind, models, lr)
    return list(lab.train(Relay(), team, recipe, steps, run=run, watch=Memory(), **SETTINGS | SCORED | changes))


@pytest.fixture(scope="module", params=["shared", "lora"])
def cut(request, models, tmp_path_factory):
    """(kind, a run of `AT` steps, the bits of one that made all `STEPS`)."""
    root, kind = tmp_path_factory.mktemp("fork"), request.param
    train(models, root / "a", AT, kind)
    shutil.copytree(root / "a", root / "straight")
    train(models, root / "straight", STEPS, kind)
    return kind, root / "a", bits(root / "straight")


def forked(run) -> dict:
    return lab.load_run(run).config["forked"]


def test_unchanged_fork_equals_the_uninterrupted_run(cut, models, tmp_path):
    kind, a, straight = cut
    before = bits(a)
    reports = train(models, tmp_path / "b", kind=kind, fork=a)
    assert [report.step for report in reports] == list(range(AT, STEPS))
    assert bits(tmp_path / "b") == straight and bits(a) == before
    assert forked(tmp_path / "b")["step"] == AT and forked(tmp_path / "b")["changed"] == []
    assert (tmp_path / "b").parent.joinpath(forked(tmp_path / "b")["from"]).resolve() == a.resolve()
    assert scored_steps(lab.load_run(tmp_path / "b"))[0] == 0
    assert not list((tmp_path / "b").rglob("*.tmp"))


@pytest.fixture(scope="module")
def first(models, tmp_path_factory):
    train(models, run := tmp_path_factory.mktemp("first") / "a", AT)
    return run


@pytest.fixture
def a(first, tmp_path):
    return shutil.copytree(first, tmp_path / "a")


def test_fork_records_its_changes_and_resumes_by_them(a, models, tmp_path):
    b = tmp_path / "forks" / "b"
    other = RECIPE.replace(plan=lab.tree(2), loss=lab.clipped(0.3))
    asked = {"recipe": other, "lr": 5e-3, "max_norm": 0.5, "score_every": 1}
    train(models, b, AT + 1, fork=a, **asked)
    told = forked(b)
    assert told["from"] == "../a" and told["step"] == AT
    assert set(told["changed"]) == {
        "recipe.plan.k: 3 -> 2", "recipe.loss.low: 0.2 -> 0.3", "max_norm: 1.0 -> 0.5", "score_every: 2 -> 1",
        "lr of shared: 0.01 -> 0.005",
    }  # fmt: skip
    ours, theirs = lab.load_run(b), lab.load_run(a)
    pd.testing.assert_frame_equal(ours.stats[ours.stats["step"] < AT], theirs.stats)
    assert ours.step_turns(AT)["candidate"].max() == 1 and ours.recipe == other
    assert ours.team()["asker"].lr == 5e-3 and theirs.team()["asker"].lr == 1e-2
    board = lab.AblationBoard({"before": a, "after": b}, score="return", over="step")
    [caution] = [caution for caution in board.cautions if "forked" in caution]  # it is no second seed
    assert caution.startswith(f"b was forked from ../a and shares its first {AT} steps")
    with pytest.raises(lab.RunError, match="cannot resume"):
        train(models, b, fork=a)
    shutil.copytree(b, tmp_path / "forks" / "c")
    assert [report.step for report in train(models, b, AT + 2, fork=a, **asked)] == [AT + 1]
    shutil.rmtree(a)  # it needs the other run no more
    assert [report.step for report in train(models, tmp_path / "forks" / "c", AT + 2, **asked)] == [AT + 1]
    assert bits(b) == bits(tmp_path / "forks" / "c") and train(models, b, AT + 2, fork=a, **asked) == []


def test_refused_fork_leaves_nothing(a, models, tmp_path):
    before = {path: path.read_bytes() for path in a.rglob("*") if path.is_file()}

    def refused(match, error=lab.RunError, env=None, kind="shared", fork=a, run="b", **changes):
        with pytest.raises(error, match=match):
            next(lab.train(env or Relay(), make_team(kind, models), RECIPE, STEPS, fork=fork,
                           run=run and tmp_path / run, **SETTINGS | changes))  # fmt: skip

    refused("cannot fork .*together differs.*same env", env=Relay(together=True))
    refused("cannot fork .*team.policies", kind="per_agent")
    refused("give run=, a folder", TypeError, run=None)
    refused("is there already and was forked from no run", run="a")
    refused("holds tables, not weights", fork=lab.export(a, tmp_path / "a.zip"))
    train(models, tmp_path / "c", AT, fork=a)
    refused(r"was forked from .*a, and this call forks .*c", fork=tmp_path / "c", run="c")
    assert {path.name for path in tmp_path.iterdir()} == {"a", "a.zip", "c"}
    assert {path: path.read_bytes() for path in a.rglob("*") if path.is_file() and path in before} == before
    [part] = a.glob("turns/000001-*")
    part.write_bytes(part.read_bytes()[:-1] + b"x")
    refused(f"{part.name} is changed")
    part.unlink()
    refused(r"000001-\*.parquet is missing")
    assert not (tmp_path / "b").exists()


@dataclass(frozen=True)
class Counting:
    """A selector that counts its calls."""

    from_: int = 0
    state: dict = dataclasses.field(default_factory=lambda: {"calls": 0}, compare=False)

    def __call__(self, turns):
        return pd.Series(True, index=turns.index)

    def after(self, turns):
        return dataclasses.replace(self, state={"calls": self.state["calls"] + 1})


def test_unchanged_parts_keep_their_states_and_changed_ones_start_anew(models, tmp_path):
    def states(run):
        return lab.load_run(run).checkpoint().state["memory"]

    train(models, tmp_path / "a", AT, recipe=RECIPE.replace(select=Counting()))
    train(models, tmp_path / "b", AT + 1, recipe=RECIPE.replace(select=Counting()), fork=tmp_path / "a")
    assert states(tmp_path / "b") == {"select": {"calls": AT + 1}} and forked(tmp_path / "b")["changed"] == []
    train(models, tmp_path / "c", AT + 1, recipe=RECIPE.replace(select=Counting(1)), fork=tmp_path / "a")
    assert states(tmp_path / "c") == {"select": {"calls": 1}}
    assert forked(tmp_path / "c")["changed"] == ["recipe.select.from_: 0 -> 1", "select learns from here on"]
    train(models, tmp_path / "d", AT + 1, fork=tmp_path / "a")
    assert states(tmp_path / "d") == {}
    assert "the state of select is left" in forked(tmp_path / "d")["changed"]


def test_steps_before_a_fork_that_adds_a_selector_count_as_selected(a, models, tmp_path):
    [report] = train(models, tmp_path / "b", AT + 1, recipe=RECIPE.replace(select=Counting()), fork=a)
    kept = lab.load_run(tmp_path / "b").turns
    assert kept["selected"].isna().any() and selected(kept).all()
    assert selected(pd.concat([lab.load_run(a).turns, report.turns])).all()


def test_checkpoint_that_a_training_deletes_meanwhile_is_not_missed(a):
    seen = []

    def use(checkpoint):
        seen.append(checkpoint.step)
        if len(seen) == 1:
            shutil.rmtree(checkpoint.folder)
        return checkpoint.state["step"]

    assert lab.load_run(a).with_checkpoint(use) == 1 and seen == [2, 1]
    with pytest.raises(ZeroDivisionError):  # of a checkpoint that is there
        lab.load_run(a).with_checkpoint(lambda checkpoint: 1 / 0)


def test_fork_that_fails_at_any_change_of_a_file_leaves_nothing(a, models, tmp_path):
    """What a kill leaves stands under another name, and the next start deletes it."""
    (tmp_path / "b.tmp").mkdir()
    for moment in range(1, 99, 7):
        with pytest.MonkeyPatch.context() as patched:
            refused = fill(patched, moment)
            try:
                train(models, tmp_path / "b", AT, fork=a)
            except lab.RunError:
                assert {path.name for path in tmp_path.iterdir()} - {"b"} <= {"a", "b.tmp"}
        if (tmp_path / "b" / "run.json").is_file() or not refused:
            break
    assert moment > 10
    train(models, tmp_path / "b", AT, fork=a)
    assert bits(tmp_path / "b") == bits(a) and {path.name for path in tmp_path.iterdir()} == {"a", "b"}
