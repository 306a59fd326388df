"""The loop: every recipe trains, every setting does what it says, bad input is refused before anything is written."""

import itertools
import math
from dataclasses import dataclass

import pytest
import small
from backends.drawn import same, weights

import mas_lab as lab
from mas_lab.table import SCHEMA
from mas_lab.train import step_seed

QUICK = {"tasks": 2, "check": False}


@pytest.fixture
def team(models):
    return small.make_team("shared", models)


def smaller(recipe: lab.Recipe) -> lab.Recipe:
    """The recipe with three candidates, or episodes, a task."""
    plan = recipe.plan
    if isinstance(plan, lab.tree):
        return recipe.replace(plan=lab.tree(3, plan.pick, min(plan.follow, 1)))
    return recipe.replace(plan=type(plan)(3))


@pytest.mark.parametrize("name", lab.RECIPES)
def test_every_recipe_trains(name, models):
    """Whole steps, with every column, on weights that said what they are now trained on."""
    recipe = smaller(lab.RECIPES[name])
    env, team = small.Relay(together=isinstance(recipe.plan, lab.joint)), small.make_team("per_agent", models)
    before = {agent: weights(team[agent]) for agent in team}
    steps = 1 + (name in ("grpo", "c3", "ccpo", "at_grpo", "magrpo"))  # one of each plan
    reports = list(lab.train(env, team, recipe, steps=steps, seed=1, tasks=3))
    assert not any(same(before[agent], weights(team[agent])) for agent in team)
    assert [report.step for report in reports] == list(range(steps))
    needed = [name for name, meant in SCHEMA.items() if meant.required]
    for report in reports:
        assert [name for name in report.turns.columns if name not in ("removed", "value", "target")] == needed
        assert (report.turns["step"] == report.step).all() and (report.stats["step"] == report.step).all()
        assert set(report.stats["agent"]) == set(small.AGENTS)
        assert report.stats["grad_norm"].sum() > 0 and report.stats["mismatch"].max() < 1e-4
        assert set(report.profile) == {"rollout", "advantages", "update"} and min(report.profile.values()) > 0
        assert report.tokens == sum(map(len, report.turns["completion_ids"]))


def test_each_step_has_tasks_of_its_own_and_the_call_alone_makes_none(team, tmp_path):
    training = lab.train(small.Relay(), team, small.RECIPE, 2, run=tmp_path / "run", **QUICK)
    assert list(tmp_path.iterdir()) == []
    first, second = training
    assert set(first.turns["task"]).isdisjoint(second.turns["task"])
    assert all(task.startswith("train-") for task in first.turns["task"])
    assert len({step_seed(seed, step) for seed in range(20) for step in range(20)}) == 400


def test_agents_learn_in_stages_also_after_a_resume(models, tmp_path):
    """The doer alone, then the asker alone, then both; the second half of the run is another call."""
    asked = QUICK | {"learn": {0: ["doer"], 1: ["asker"], 2: list(small.AGENTS)}}
    team, seen = small.make_team("per_agent", models), []
    seen.append({agent: weights(team[agent]) for agent in team})
    for steps in (1, 3):
        for report in lab.train(small.Relay(), team, small.RECIPE, steps, run=tmp_path / "run", **asked):
            seen.append({agent: weights(team[agent]) for agent in team})
            assert set(report.stats["agent"]) == set(asked["learn"][report.step])
    moved = [[agent for agent in team if not same(a[agent], b[agent])] for a, b in itertools.pairwise(seen)]
    assert moved == [["doer"], ["asker"], list(small.AGENTS)]


def test_a_frozen_role_of_shared_weights_adds_nothing_to_their_gradient(models):
    """The step is that of a table without its rows."""
    team = lab.Team(dict(small.make_team("shared", models)), frozen="asker")
    [report] = lab.train(small.Relay(), team, small.RECIPE, 1, **QUICK)
    assert set(report.stats["agent"]) == {"doer"} and set(report.turns["agent"]) == set(small.AGENTS)
    alone = small.make_team("shared", models)
    lab.update(alone, report.turns[report.turns["agent"] == "doer"], loss=small.RECIPE.loss, seed=step_seed(0, 0))
    assert same(weights(team["doer"]), weights(alone["doer"]))


@pytest.mark.parametrize(("kind", "frozen"), [("per_agent", small.AGENTS), ("lora", ("asker",))])
def test_a_frozen_agent_speaks_and_does_not_learn(models, tmp_path, kind, frozen):
    team = lab.Team(dict(small.make_team(kind, models)), frozen=frozen)
    before = {agent: weights(team[agent]) for agent in team}
    reports = list(lab.train(small.Relay(), team, small.RECIPE, 2, run=tmp_path / "run", **QUICK))
    assert set(reports[0].turns["agent"]) == set(small.AGENTS)
    assert set(reports[0].stats["agent"]) == set(small.AGENTS) - set(frozen)
    assert {agent for agent in team if same(before[agent], weights(team[agent]))} == set(frozen)
    assert lab.load_run(tmp_path / "run").steps == 2


@dataclass(frozen=True)
class broken_loss(lab.clipped):
    def __call__(self, *tensors):
        return super().__call__(*tensors) * math.nan


def test_a_loss_that_is_not_finite_never_steps(team, tmp_path):
    before, recipe = weights(team["asker"]), small.RECIPE.replace(loss=broken_loss())
    with pytest.raises(lab.UpdateError, match=r"policy 'shared' is not finite; \d+ rows .*task 'train-\d+'.*agent"):
        list(lab.train(small.Relay(), team, recipe, 1, run=tmp_path / "run", **QUICK))
    assert lab.load_run(tmp_path / "run").steps == 0
    assert same(before, weights(team["asker"]))


def test_groups_of_one_by_their_key_are_refused_when_they_show(team):
    lone = lab.RECIPES["dr_mas"].replace(by=("episode", "agent", "turn"))
    with pytest.raises(lab.TableError, match=r"train: every group has a single row \(K = 1\)"):
        next(lab.train(small.Relay(), team, lone, 1, **QUICK))
