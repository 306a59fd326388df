"""Rollouts with earlier weights: which version samples what, in turns or in a thread, and runs that go on bit for bit.

The engine of the threads here hands out copies of a model as snapshots; tests/backends/vllm has a real server.
"""

import shutil
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import small
import torch
from backends.drawn import same, weights
from counted import DRAWN, Counted, waits
from toy_backend import BigramPolicy

import mas_lab as lab
from mas_lab.policy import samples_of

STEPS = 4
SETTINGS = small.SETTINGS | {"minibatches": 1, "schedule": None, "save_every": 100}


def served(team: lab.Team, load) -> lab.Team:
    """Let the engines of a team give snapshots: policies of their own with the same weights. `load(name)` makes one."""

    def snapshot(name, policy):
        copy = load(name)
        for own, other in zip(copy.parameters.values(), policy.parameters.values(), strict=True):
            own.data.copy_(other.data)
        return copy

    for name, policy in team.policies.items():
        policy.engine.snapshots, policy.engine.snapshot = True, partial(snapshot, name)
    return team


@pytest.fixture
def start(models):
    """Begin a training; return team and loop. `kind` "served": weights per agent, whose engines give snapshots."""

    def begin(kind="per_agent", staleness=2, steps=STEPS, recipe=small.RECIPE, team=None, env=None, **options):
        make = partial(small.make_team, kind.replace("served", "per_agent"), models)
        team = team or (served(make(), lambda name: make()[name]) if kind == "served" else make())
        settings = SETTINGS | {"staleness": staleness} | options
        return team, lab.train(env or small.Relay(), team, recipe, steps, **settings)

    return begin


def ages(reports) -> dict[str, list[int]]:
    """The age of each policy's rows, step by step; a policy has one version in a step."""
    rows = pd.concat([report.turns for report in reports])
    assert (rows.groupby(["step", "policy"])["policy_version"].nunique() == 1).all()
    age = (rows["step"] - rows["policy_version"]).groupby([rows["policy"], rows["step"]]).first()
    return {policy: own.tolist() for policy, own in age.groupby("policy")}


def expected(staleness: int, steps: int = STEPS) -> list[int]:
    return [min(step, staleness) for step in range(steps)]


# Which weights sample


@pytest.mark.parametrize(("kind", "staleness"), [("shared", 2), ("lora", 2), ("served", 1)])
def test_rows_are_sampled_by_the_version_that_they_name(start, kind, staleness):
    """By copies of the weights that this test makes itself; and the loss compares with their log-probabilities."""
    team, training = start(kind, staleness)
    names = {name: agents[0] for name in team.policies if (agents := team.learners(name))}
    copies = [{name: weights(team[agent]) for name, agent in names.items()}]
    reports = []
    for report in training:
        reports.append(report)
        copies.append({name: weights(team[agent]) for name, agent in names.items()})
    assert ages(reports) == dict.fromkeys(names, expected(staleness))
    assert all(policy.kept == {} for policy in team.policies.values())
    old = 0
    for report in reports:
        for name, rows in report.turns.groupby("policy"):
            ratios = {}
            for version in {rows["policy_version"].iloc[0], report.step}:
                policy = team.policies[name]
                policy.kept = {0: copies[version][name]}
                with policy.at_version(0):
                    found_N = policy.forward(samples_of(rows, weight=0.0)).logprobs_N
                ratios[version] = (found_N - torch.tensor([p for row in rows["logprobs"] for p in row])).exp()
            sampled, learned = ratios[rows["policy_version"].iloc[0]], ratios[report.step]
            assert (sampled - 1).abs().max() < 1e-4
            old += (learned - 1).abs().max() > 0.01
            used = rows["advantage"].repeat(rows["completion_ids"].map(len)).to_numpy() != 0
            stats = report.stats[report.stats["policy"] == name]
            assert stats["max_ratio"].max() == pytest.approx(learned[torch.from_numpy(used)].max().item(), rel=1e-4)
            assert (stats["age"] == report.step - rows["policy_version"].iloc[0]).all()
    assert old >= 3


@pytest.mark.parametrize("kind", ["per_agent", "served"])
def test_held_out_scores_are_those_of_the_newest_weights(start, kind):
    small.assert_newest_weights_are_scored(*start(kind, steps=3, score_every=1, score_tasks=3, score_episodes=2))


def test_weights_that_never_learn_have_version_0(start, models):
    team = lab.Team(dict(small.make_team("per_agent", models)), frozen=("doer",))
    reports = list(start(team=team, steps=3)[1])
    assert all((report.turns.query("agent == 'doer'")["policy_version"] == 0).all() for report in reports)
    assert ages(reports)["asker"] == expected(2, 3) and set(reports[-1].stats["agent"]) == {"asker"}


@dataclass(frozen=True)
class kept_weights:
    """A credit that checks that the team has the weights that sampled the rows."""

    needs_team = True

    def __call__(self, turns, team):
        for name, rows in turns.groupby("policy"):
            found_N = team.policies[name].forward(samples_of(rows, advantage=0.0, weight=0.0)).logprobs_N
            assert (found_N - torch.tensor([p for row in rows["logprobs"] for p in row])).abs().max() < 1e-4
        return lab.mixed()(turns)


@pytest.mark.parametrize("kind", ["per_agent", "served"])
def test_a_part_that_needs_the_team_gets_the_weights_that_sampled_and_no_thread_plays(start, kind):
    DRAWN.clear()
    reports = list(start(kind, steps=3, recipe=small.RECIPE.replace(credit=kept_weights()), env=Counted())[1])
    assert ages(reports)["asker"] == expected(2, 3) and set(DRAWN) == {"MainThread"}


# In a thread


@pytest.mark.parametrize("staleness", [1, 3])
def test_a_thread_plays_the_next_step_during_the_update_with_the_numbers_of_a_training_in_turns(start, staleness):
    """The first update waits until the tasks of the second step are drawn."""
    DRAWN.clear()
    watch, seen = waits(2)
    team, training = start("served", staleness, env=Counted(), watch=watch)
    first = next(training)
    assert seen[0] == 2 and len(DRAWN) == 2 and not [name for name in DRAWN[1:] if not name.startswith("rollout")]
    reports = [first, *training]
    assert len(DRAWN) == STEPS  # none beyond the last
    alone, in_turns = start("per_agent", staleness)
    for one, other in zip(reports, in_turns, strict=True):
        pd.testing.assert_frame_equal(one.turns, other.turns)
        pd.testing.assert_frame_equal(one.stats, other.stats)
    assert all(same(weights(team[agent]), weights(alone[agent])) for agent in team)


@dataclass(frozen=True)
class breaking:
    """A credit that fails in step 2."""

    def __call__(self, turns):
        if turns["step"].iloc[0] == 2:
            raise ZeroDivisionError
        return lab.mixed()(turns)


def test_an_error_of_the_thread_is_raised_at_its_step_and_costs_no_step_before(start, tmp_path):
    _, training = start("served", run=tmp_path / "run", recipe=small.RECIPE.replace(credit=breaking()))
    assert [next(training).step, next(training).step] == [0, 1]
    with pytest.raises(lab.TableError, match="failed in step 2"):
        next(training)
    assert lab.load_run(tmp_path / "run").checkpoint().step == 2


# Keeping


MOMENTS = []


@dataclass(frozen=True)
class Copied(small.Relay):
    """It copies the run in MOMENTS whenever the tasks of a step are drawn: what a kill would leave at that moment."""

    def tasks(self, n, split, seed):
        if MOMENTS:
            MOMENTS.append(Path(shutil.copytree(MOMENTS[0], MOMENTS[0].with_name(f"killed{len(MOMENTS)}"))))
        return super().tasks(n, split, seed)


@contextmanager
def copying(monkeypatch, run):
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules[__name__], "MOMENTS", moments := [run])
        yield moments


@pytest.mark.parametrize(("kind", "staleness"), [("shared", 1), ("lora", 2), ("served", 2)])
def test_a_run_that_is_killed_between_checkpoints_goes_on_bit_for_bit(start, tmp_path, monkeypatch, kind, staleness):
    def run(folder):
        list(start(kind, staleness, env=Copied(), run=folder, save_every=2)[1])

    with copying(monkeypatch, tmp_path / "run") as moments:
        run(moments[0])
    kept = [lab.load_run(killed).checkpoint().step for killed in moments[1:]]
    assert kept == ([0, 0, 0, 2] if kind == "served" else [0, 0, 2, 2])  # a thread draws a step ahead
    for killed in moments[2::2]:  # with steps beyond the checkpoint
        run(killed)
        assert small.bits(killed) == small.bits(moments[0])


STOPS = []


@dataclass(frozen=True)
class stopping:
    """A credit that breaks off the fourth step, while the team has earlier weights."""

    def __call__(self, turns):
        if STOPS and turns["step"].iloc[0] == 3:
            raise KeyboardInterrupt
        return lab.mixed()(turns)


STRAIGHT = {}  # what a run has that was not stopped, by kind


@pytest.mark.parametrize(("kind", "where"), [
    ("shared", "in the loop"), ("lora", "while earlier weights sample"), ("lora", "in the update"),
    ("served", "while earlier weights sample"), ("served", "in the update"), ("served", "in the loop"),
])  # fmt: skip
def test_a_run_that_is_stopped_goes_on_bit_for_bit_with_the_newest_weights(start, tmp_path, monkeypatch, kind, where):
    def run(name):
        return start(kind, run=tmp_path / name, recipe=small.RECIPE.replace(credit=stopping()))[1]

    if kind not in STRAIGHT:
        list(run("straight"))
        STRAIGHT[kind] = small.bits(tmp_path / "straight")
    training = run("run")
    if where == "while earlier weights sample":
        monkeypatch.setattr(sys.modules[__name__], "STOPS", [3])
    for _ in range(3):
        next(training)
    if where == "in the update":
        monkeypatch.setattr("mas_lab.cells.update.clip_and_step", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    if where == "in the loop":
        training.close()
    else:
        with pytest.raises(KeyboardInterrupt):
            next(training)
    monkeypatch.undo()
    assert lab.load_run(tmp_path / "run").checkpoint().step == 3
    list(run("run"))
    assert small.bits(tmp_path / "run") == STRAIGHT[kind]


def test_a_fork_goes_on_bit_for_bit_and_with_another_staleness_from_what_is_kept(start, tmp_path):
    list(start("lora", run=tmp_path / "straight", steps=5)[1])
    list(start("lora", run=tmp_path / "a", steps=3)[1])
    list(start("lora", run=tmp_path / "same", fork=tmp_path / "a", steps=5)[1])
    assert small.bits(tmp_path / "same") == small.bits(tmp_path / "straight")
    for staleness, found in ((1, [1, 1]), (4, [2, 3]), (0, None)):
        folder = tmp_path / str(staleness)
        reports = list(start("lora", staleness, run=folder, fork=tmp_path / "a", steps=5)[1])
        assert found is None or ages(reports)["asker"] == found
        assert f"staleness: 2 -> {staleness}" in lab.load_run(folder).config["forked"]["changed"]
        assert bool(list((folder / "checkpoints/000005").rglob("kept.safetensors"))) == bool(staleness)
    reports = list(start("lora", 2, run=tmp_path / "again", fork=tmp_path / "0", steps=7)[1])
    assert ages(reports)["asker"] == [0, 1]  # that run kept no earlier weights


# Rows of other weights


def test_update_takes_rows_of_a_version_that_the_policy_keeps(models):
    team = small.make_team("per_agent", models, lr=0.1)
    table = small.judged(team)
    old = {agent: team[agent].copy_weights() for agent in team}
    lab.update(team, table)
    for agent in team:
        team[agent].kept = {0: old[agent]}
    before = {agent: weights(team[agent]) for agent in team}
    with pytest.raises(lab.UpdateError, match="these rows were sampled before the last update"):
        lab.update(team, table.assign(step=2, policy_version=2))  # the present weights
    assert all(same(before[agent], weights(team[agent])) for agent in team)
    stats = lab.update(team, table.assign(policy_version=0, step=2))
    assert (stats["age"] == 2).all() and stats["mismatch"].min() > 0.01
    assert not any(same(before[agent], weights(team[agent])) for agent in team)


# Bad input


@dataclass(frozen=True)
class learning_curriculum:
    state: dict = field(default_factory=dict)

    def __call__(self, env, n, split, seed):
        return env.tasks(n, split, seed)

    def after(self, report):
        return self


class newest(lab.tree):
    needs_newest = True


@pytest.mark.parametrize(("words", "options"), [
    (r"staleness=-1 .*whole number \(0 or more\)", {"staleness": -1}),
    (r"curriculum=.*learns from the report of each step.*use staleness=0", {"curriculum": learning_curriculum()}),
    (r"plan=.* needs the newest weights.*use staleness=0", {"recipe": small.RECIPE.replace(plan=newest(3))}),
    (r"cannot keep earlier weights \(BigramPolicy\)",
     {"team": lab.Team.shared(BigramPolicy(small.WORDS), small.AGENTS)}),
])  # fmt: skip
def test_what_allows_no_staleness_is_refused(start, words, options):
    with pytest.raises(ValueError, match=words):
        start(**options)
    start(staleness=0, curriculum=learning_curriculum())


def test_several_ranks_are_refused(start, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="staleness=2 is for one process, and a launcher started several"):
        start()
