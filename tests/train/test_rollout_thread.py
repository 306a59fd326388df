"""Rollouts in a thread beside the updates: which weights sample, how far ahead, and that a replay repeats it.

The engine here hands out copies of a model as snapshots, in place of a server; tests/backends/vllm has a real one.
"""

import threading
from dataclasses import dataclass, field, replace
from functools import partial

import pandas as pd
import pytest
import small
from backends.drawn import same, weights
from counted import DRAWN, Counted, waits

import mas_lab as lab
from mas_lab.train.overlap import TIMES

WALL = partial(lab.overlap, clock="wall")
SETTINGS = small.SETTINGS | {"minibatches": 1, "schedule": "constant"}


def served(team: lab.Team, load) -> lab.Team:
    """Let the engines of a team give snapshots: policies of their own with the same weights. `load(name)` makes one."""

    def snapshot(name, policy):
        copy = load(name)
        for own, other in zip(copy.parameters.values(), policy.parameters.values(), strict=True):
            own.data.copy_(other.data)
        copy.version = policy.version
        return copy

    for name, policy in team.policies.items():
        policy.engine.snapshots, policy.engine.snapshot = True, partial(snapshot, name)
    return team


@pytest.fixture
def start(models):
    """Begin a training whose rollouts play ahead; return team and loop."""

    def begin(steps=5, overlap=None, recipe=small.RECIPE, team=None, env=None, **options):
        fresh = partial(small.make_team, "per_agent", models)
        team = team or served(fresh(), lambda name: fresh()[name])
        overlap = overlap or WALL(2)
        return team, lab.train(env or small.Relay(), team, recipe, steps, overlap=overlap, **SETTINGS | options)

    return begin


def test_a_run_that_overlapped_is_replayed_bit_for_bit_where_nothing_overlaps(models, start, tmp_path):
    DRAWN.clear()
    team, loop = start(env=Counted(), run=tmp_path / "run", save_every=100, watch=waits(3)[0])
    ages = []
    for report in loop:
        [age] = set(report.step - report.turns["policy_version"])
        assert (report.stats["age"] == age).all()
        ages.append(age)
    assert ages[:3] == [0, 1, 2] and max(ages) == 2
    again = small.make_team("per_agent", models)
    list(lab.train(Counted(), again, small.RECIPE, 5, overlap=lab.overlap(2, replay=tmp_path / "run"),
                   run=tmp_path / "again", **SETTINGS))  # fmt: skip
    assert all(same(weights(team[agent]), weights(again[agent])) for agent in team)
    one, other = (lab.load_run(tmp_path / name).turns for name in ("run", "again"))
    pd.testing.assert_frame_equal(one, other)
    assert all(policy.kept == {} for policy in team.policies.values())


@pytest.mark.parametrize("staleness", [0, 1, 3])
def test_rollouts_play_ahead_as_far_as_the_staleness_and_no_further(start, staleness):
    """While the first update waits, the thread draws the tasks of `staleness` steps more."""
    DRAWN.clear()
    watch, seen = waits(staleness + 1)
    _, loop = start(overlap=WALL(staleness), env=Counted(), watch=watch, max_norm=None)
    reports = list(loop)
    assert seen[0] == staleness + 1 and len(DRAWN) == 5 and set(DRAWN) == {"rollout_0"}
    times = pd.concat([report.stats[list(TIMES)].head(1) for report in reports])
    assert (times["rollout_end"] <= times["update_start"]).all() and (times["update_start"] < times["update_end"]).all()
    ends = times["update_end"].to_numpy()
    assert (times["rollout_start"].to_numpy()[staleness + 1 :] >= ends[: len(ends) - staleness - 1]).all()
    if staleness:
        assert times["rollout_start"].iloc[1] < times["update_end"].iloc[0]


def test_scores_are_those_of_the_newest_weights_and_wait_for_the_rollout(start):
    small.assert_newest_weights_are_scored(*start(score_every=1, score_tasks=3, score_episodes=2))


def test_a_run_that_was_left_goes_on_with_its_clock(start, tmp_path):
    _, loop = start(run=tmp_path / "run")
    next(loop), next(loop)
    loop.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("rollout")]
    list(start(run=tmp_path / "run")[1])
    stats = lab.load_run(tmp_path / "run").stats.drop_duplicates("step")
    assert stats["step"].tolist() == [0, 1, 2, 3, 4] and stats["update_end"].is_monotonic_increasing
    assert stats["age"].tolist()[2] == 0  # what was played ahead is played anew


@dataclass(frozen=True)
class breaking:
    """A credit that fails in step 2."""

    def __call__(self, turns):
        if turns["step"].iloc[0] == 2:
            raise ZeroDivisionError
        return lab.mixed()(turns)


def test_an_error_of_the_thread_is_raised_at_its_step_and_costs_no_step_before(start, tmp_path):
    _, loop = start(run=tmp_path / "run", recipe=small.RECIPE.replace(credit=breaking()), save_every=100)
    assert [next(loop).step, next(loop).step] == [0, 1]
    with pytest.raises(lab.TableError, match="failed in step 2"):
        next(loop)
    assert lab.load_run(tmp_path / "run").checkpoint().step == 2


@dataclass(frozen=True)
class counting:
    """A curriculum that notes how many reports it has learned from when it draws."""

    state: dict = field(default_factory=lambda: {"reports": 0})

    def __call__(self, env, n, split, seed):
        LEARNED.append(self.state["reports"])
        return env.tasks(n, split, seed)

    def after(self, report):
        return replace(self, state={"reports": self.state["reports"] + 1})


LEARNED = []


def test_at_staleness_0_a_curriculum_draws_with_what_it_learned_from_every_report_before(start):
    LEARNED.clear()
    list(start(overlap=WALL(0), curriculum=counting())[1])
    assert LEARNED == [0, 1, 2, 3, 4]


@dataclass(frozen=True)
class needy:
    needs_team = True

    def __call__(self, turns, team):
        return lab.mixed()(turns)


def test_bad_input(models, start):
    plain = small.make_team("per_agent", models)
    for overlap in (WALL(2), WALL(0)):
        with pytest.raises(ValueError, match=r"engine of policy 'asker' cannot: load it with backend='vllm', where="):
            start(team=plain, overlap=overlap)
        with pytest.raises(ValueError, match=r"credit=needy\(\) computes with the team's weights"):
            start(recipe=small.RECIPE.replace(credit=needy()), overlap=overlap)
    with pytest.raises(ValueError, match="clock='sun'; known are simulated, wall"):
        lab.overlap(1, clock="sun")
