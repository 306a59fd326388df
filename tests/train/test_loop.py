"""The loop: every recipe trains, every setting does what it says, bad input is refused before anything is written.

Also games: self-play against an earlier self, judged by each player's own return.
"""

import itertools
import math
from dataclasses import dataclass

import pandas as pd
import pytest
import small
import torch
from backends.drawn import same, weights
from scripted import Duel

import mas_lab as lab
from mas_lab.train import Report, Settings, step_seed

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
    recipe = smaller(lab.RECIPES[name])
    env, team = small.Relay(together=isinstance(recipe.plan, lab.joint)), small.make_team("per_agent", models)
    before = {agent: weights(team[agent]) for agent in team}
    check(list(lab.train(env, team, recipe, steps=2, seed=1, tasks=3)), small.AGENTS)
    assert not any(same(before[agent], weights(team[agent])) for agent in team)


def check(reports: list[Report], agents) -> None:
    """Two whole steps, with every column, on weights that said what they are now trained on."""
    assert [report.step for report in reports] == [0, 1]
    for report in reports:
        needed = [name for name, meant in lab.SCHEMA.items() if meant.required]
        assert [name for name in report.turns.columns if name not in ("removed", "value", "target")] == needed
        assert (report.turns["step"] == report.step).all() and (report.stats["step"] == report.step).all()
        assert set(report.stats["agent"]) == set(agents)
        assert report.stats["grad_norm"].sum() > 0
        assert report.stats["mismatch"].max() < 1e-4
        assert set(report.profile) == {"rollout", "advantages", "update"}
        assert all(seconds > 0 for seconds in report.profile.values())
        assert report.tokens == sum(map(len, report.turns["completion_ids"]))


def test_each_step_has_tasks_of_its_own_and_the_call_alone_makes_none(team, tmp_path):
    training = lab.train(small.Relay(), team, small.RECIPE, 2, run=tmp_path / "run", **QUICK)
    assert list(tmp_path.iterdir()) == []
    first, second = training
    assert set(first.turns["task"]).isdisjoint(second.turns["task"])
    assert all(task.startswith("train-") for task in first.turns["task"])
    assert len({step_seed(seed, step) for seed in range(20) for step in range(20)}) == 400


def test_schedules_by_hand():
    linear = Settings(schedule="linear", horizon=4)
    assert [linear.lr_scale(step) for step in range(6)] == [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
    cosine = Settings(schedule="cosine", horizon=4)
    expected = [1.0, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2, 0.0, 0.0]
    assert [cosine.lr_scale(step) for step in range(6)] == pytest.approx(expected, abs=1e-12)
    assert [Settings().lr_scale(step) for step in (0, 10**6)] == [1.0, 1.0]


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


def test_settings_reach_the_optimizer(models):
    team, seen = small.make_team("unlike", models, lr=0.01), []
    asked = QUICK | {"schedule": "linear", "horizon": 4, "epochs": 2, "minibatches": 2, "max_norm": 0.01}
    for report in lab.train(small.Relay(max_turns=3), team, small.RECIPE, 5, max_turns=1, **asked):
        rates = report.stats.groupby("agent")["lr"].first()
        left = 1 - report.step / 4
        assert rates.to_dict() == pytest.approx({"asker": 0.01 * left, "doer": 0.005 * left})
        assert sorted(report.stats["optimizer_step"].unique()) == [0, 1, 2, 3]
        assert report.stats["turns"].sum() == 2 * len(report.turns) and set(report.turns["turn"]) == {0}
        assert report.stats["policy_norm_clipped"].max() == pytest.approx(0.01, rel=1e-4)
        seen.append(weights(team["asker"]))
    assert [same(one, two) for one, two in itertools.pairwise(seen)] == [False, False, False, True]
    assert team["asker"].lr == 0.01


@pytest.mark.parametrize("kind", ["per_agent", "lora"])
@pytest.mark.parametrize("frozen", [("asker",), small.AGENTS])
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
    """Not a number for the first token of every batch."""

    def __call__(self, logprobs_N, old_N, advantages_N, row_N, entropy_N=None, reference_N=None):
        losses_N = super().__call__(logprobs_N, old_N, advantages_N, row_N, entropy_N, reference_N)
        return torch.cat([losses_N[:1] * math.nan, losses_N[1:]])


def test_a_loss_that_is_not_finite_never_steps(team, tmp_path):
    before, recipe = weights(team["asker"]), small.RECIPE.replace(loss=broken_loss())
    with pytest.raises(lab.UpdateError, match=r"policy 'shared' is not finite; \d+ rows .*task 'train-\d+'.*agent"):
        list(lab.train(small.Relay(), team, recipe, 1, run=tmp_path / "run", **QUICK))
    assert lab.load_run(tmp_path / "run").steps == 0
    [report] = lab.train(small.Relay(), team, recipe, 1, nonfinite="skip", **QUICK)
    assert report.stats["skipped"].all() and report.stats["culprits"].str.contains("task 'train-").all()
    assert same(before, weights(team["asker"]))


class Flat(small.Relay):
    """Everything earns nothing."""

    def step(self, state, actions):
        step = super().step(state, actions)
        zero = dict.fromkeys(step.local_rewards, 0.0)
        return lab.Step(step.state, 0.0, zero, step.valid, False, step.done)


def test_an_all_flat_batch_is_reported_and_teaches_nothing(team):
    before = weights(team["asker"])
    [flat] = lab.train(Flat(), team, small.RECIPE, 1, **QUICK)
    assert repr(flat) == f"Report(step 0: success 0.00, {len(flat.turns)} turns, {flat.tokens} tokens; {flat.notes[0]})"
    assert flat.notes == ("all groups are flat: every advantage is 0, nothing was learned",)
    assert same(before, weights(team["asker"]))


def table(*rows) -> pd.DataFrame:
    """(episode, node, parent, agent, action, kept, probe, success) per row."""
    columns = ["episode", "node", "parent", "agent", "action", "kept", "probe", "success"]
    return pd.DataFrame(rows, columns=columns)


CROSSED = [
    *(("a", "a/0", "", "p", f"a/0.{i}-*", True, False, True) for i in range(2)),
    *(("a", "a/0", "", "q", f"a/0.*-{j}", True, False, j == 0) for j in range(2)),
]
SUCCESSES = {
    "of several chains is the mean over episodes": (1 / 2, [
        ("a", "a/0", "", "p", "a/0.0", True, False, False),
        ("a", "a/1", "a/0.0", "e", "a/1.0", True, False, True),
        ("b", "b/0", "", "p", "b/0.0", True, False, True),
        ("b", "b/1", "b/0.0", "e", "b/1.0", True, False, False)]),
    "of a cross takes each joint action once": (1 / 2, CROSSED),
    "of a tree of agents together is what the last one saw": (1, [
        ("a", "a/0", "", "p", "a/0.0-0", True, False, False),
        ("a", "a/0", "", "p", "a/0.1-0", False, False, False),
        ("a", "a/0", "", "q", "a/0.0-0", False, False, False),
        ("a", "a/0", "", "q", "a/0.0-1", True, False, True)]),
    "does not count continuations": (0, [
        ("a", "a/0", "", "p", "a/0.0", True, False, False),
        ("a/0.0+0", "a/0.0+0/1", "a/0.0", "e", "a/0.0+0/1.0", True, True, True),
        ("a", "a/1", "a/0.0", "e", "a/1.0", True, False, False)]),
}  # fmt: skip


@pytest.mark.parametrize("case", SUCCESSES)
def test_success_by_hand(case):
    expected, rows = SUCCESSES[case]
    assert Report(0, table(*rows), pd.DataFrame()).success == pytest.approx(expected)


def refuse(error, match, tmp_path, env=None, team=None, recipe=small.RECIPE, steps=1, **settings):
    with pytest.raises(error, match=match):
        lab.train(env or small.Relay(), team, recipe, steps, run=tmp_path / "run", **settings)
    assert list(tmp_path.iterdir()) == []


def test_groups_of_one_by_their_key_are_refused_when_they_show(team):
    lone = lab.RECIPES["dr_mas"].replace(by=("episode", "agent", "turn"))
    with pytest.raises(lab.TableError, match=r"train: every group has a single row \(K = 1\)"):
        next(lab.train(small.Relay(), team, lone, 1, **QUICK))


@pytest.mark.parametrize(("error", "words", "asked"), [
    (ValueError, r"unknown recipe 'at_gpr'; known are grpo, .*at_grpo", {"recipe": "at_gpr"}),
    (TypeError, r"unknown setting 'task'; known are tasks, split, rounds, epochs", {"task": 3}),
    (ValueError, r"schedule='warmup'; known are constant, linear, cosine", {"schedule": "warmup"}),
    (ValueError, r"needs horizon=", {"schedule": "linear"}),
    (ValueError, r"learn=.*; say who learns from step 0 on", {"learn": {3: ["asker"]}}),
    (ValueError, r"learn has \[\] from step 4 on; name at least one agent", {"learn": {0: ["asker"], 4: []}}),
    (ValueError, r"learn has \['boss'\] from step 0 on; .* \['asker', 'doer'\]", {"learn": {0: ["boss"]}}),
    (ValueError, r"nonfinite='ignore'; known are raise, skip", {"nonfinite": "ignore"}),
    (ValueError, r"score_at=.*whole numbers of 1 or more", {"score_at": [0]}),
    (ValueError, r"aggregate='mean'; known are token, turn", {"recipe": small.RECIPE.replace(aggregate="mean")}),
    (TypeError, r"give steps=, how many to make, or budget=", {"steps": None}),
    (ValueError, r"K = 1", {"recipe": lab.RECIPES["grpo"].replace(plan=lab.episodes(1))}),
    (ValueError, r"K = 1", {"recipe": lab.RECIPES["magrpo"].replace(plan=lab.joint(1))}),
])  # fmt: skip
def test_what_makes_no_sense_is_refused_before_the_run_begins(team, tmp_path, error, words, asked):
    refuse(error, words, tmp_path, team=team, **asked)


def test_a_team_without_one_of_the_agents_is_refused(team, models, tmp_path):
    alone = lab.Team({"asker": team["asker"]})
    refuse(ValueError, r"agent 'doer' has no policy; the env plays .*the team \['asker'\]", tmp_path, team=alone)
    with pytest.raises(ValueError, match=r"two policies would have one name among \['a\+b', 'a\+b'\]"):
        lab.Team({"a": team["asker"], "b": team["asker"], "a+b": lab.load_policy(models / "a")})
    with pytest.raises(ValueError, match=r"frozen names agent 'boss'; the team has \['asker', 'doer'\]"):
        lab.Team(dict(team), frozen=("boss",))


COUNTS = ["tasks", "rounds", "epochs", "minibatches", "save_every", "horizon", "max_turns", "workers", "score_every",
          "score_tasks", "score_episodes", "steps", "seed"]  # fmt: skip


def test_numbers_that_make_no_sense_are_named(team, tmp_path):
    for setting in COUNTS:
        refuse(ValueError, rf"{setting}=-1", tmp_path, team=team, **{setting: -1})
        if setting not in ("steps", "seed"):
            refuse(ValueError, rf"{setting}=0 .* \(1 or more\)", tmp_path, team=team, **{setting: 0})


def test_an_impure_env_and_a_nan_reward_are_found_before_the_run_begins(team, tmp_path):
    impure, nan = small.Relay(broken="impure"), small.Relay(broken="nan")
    two_answers = r"env 'relay', task 'train-\d+', agent 'asker', turn 0, text '.*': step gave two answers"
    refuse(lab.EnvError, two_answers, tmp_path, team=team, env=impure)
    refuse(lab.EnvError, r"task 'train-\d+', agent 'asker', turn 0", tmp_path, team=team, env=nan)


GAME = {"tasks": 4, "check": False, "save_every": 1}
SELF_PLAY = lab.Recipe("self_play", lab.episodes(8), ("task", "agent"), lab.own_return())


@dataclass(frozen=True)
class Words(Duel):
    """A duel in the eight words that small models know: w7 beats w0."""

    def observe(self, state, agent):
        return [{"role": "user", "content": {"left": "asker", "right": "doer"}[agent]}]

    def step(self, state, actions):
        ((agent, text),) = actions.items()
        return super().step(state, {agent: text[1:] if text in small.WORDS else text})


def test_a_player_learns_against_its_frozen_earlier_self(models, tmp_path):
    run, learner = tmp_path / "first", lab.load_policy(models / "a", lr=1e-2)
    first = lab.Team({"left": learner, "right": lab.load_policy(models / "b")}, frozen="right")
    [*_, last] = lab.train(Words(), first, SELF_PLAY, steps=2, run=run, **GAME)
    assert last.turns["advantage"].any() and lab.load_run(run).recipe == SELF_PLAY
    assert {type(one) for one in last.turns["info"]} == {dict}
    assert lab.load_run(run).turns["info"].tolist()[-len(last.turns) :] == last.turns["info"].tolist()

    earlier = lab.load_run(run).team()["left"]
    second = lab.Team({"left": learner, "right": earlier}, frozen="right")
    before = weights(earlier)
    assert same(weights(learner), before)
    list(lab.train(Words(), second, SELF_PLAY, steps=3, **GAME))
    assert same(weights(earlier), before) and not same(weights(learner), before)


def test_evaluation_reports_what_each_player_won(models):
    team = lab.Team.per_agent(lambda agent: lab.load_policy(models / "a"), Words.agents)
    env = Words()
    scores = lab.evaluate(env, team, env.tasks(6, "test", 0), k=8)
    own = scores.pivot(index="task", columns="agent", values="own_return")
    assert (own["left"] == -own["right"]).all() and own["left"].any() and (scores["return"] == 0).all()
    wins = scores[scores["agent"] == "left"].set_index("task")["success"]
    assert (own["left"] <= wins).all() and wins.max() > 0
