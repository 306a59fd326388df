"""The verdict on a run: by hand, on recorded harm and on runs without harm, and at the end of a training."""

import numpy as np
import pandas as pd
import pytest
import small
from backends.drawn import same, weights

import mas_lab as lab
from mas_lab.table import TableError
from mas_lab.train.verdict import FEWEST, verdict_of_table

NOTHING = "Nothing stands out."


def rows(wrong_advantage: float, right_advantage: float = 1.0, pairs: int = FEWEST):
    """The helper speaks ten times a step in one task: wrong, then right."""
    return pd.DataFrame([
        {"step": pair // 5, "task": "t", "episode": f"{pair}.{right}", "node": f"{pair}.{right}", "agent": "helper",
         "turn": 0, "depth": 0, "local_reward": float(right), "team_reward": 0.0, "valid": True, "success": False,
         "credit": float(right), "group": f"{pair}", "advantage": right_advantage if right else wrong_advantage}
        for pair in range(pairs) for right in (False, True)
    ])  # fmt: skip


TOLD = 'helper {} learned the wrong thing ({} of its advantage). Compare it with its own answers: recipe "own_robust".'


def test_wrong_answers_that_are_reinforced_stand_out():
    """0.5 of 1.5 in each step. Under own_robust all team rewards are equal, so there is no advantage."""
    told = verdict_of_table(rows(0.5))
    assert told == TOLD.format("partly", "33 %")
    assert verdict_of_table(rows(0.5).set_index(np.arange(2 * FEWEST) % FEWEST)) == told, "a repeated index"
    assert verdict_of_table(rows(-0.5)) == NOTHING
    assert verdict_of_table(rows(0.5, pairs=FEWEST - 1)) == NOTHING, "too few to say"
    assert verdict_of_table(rows(0.5), frozen=["helper"]) == NOTHING, "its advantages train nobody"
    tree = rows(0.5).assign(kept=[True, False] * FEWEST)  # own_robust has no advantage there, which says nothing
    assert verdict_of_table(tree) == NOTHING


def test_right_answers_that_are_punished_stand_out():
    """Most of the advantage goes the wrong way, though no wrong answer is reinforced. Own means make it none."""
    table = rows(-1.0, -1.5).assign(team_reward=lambda one: one["local_reward"])
    assert verdict_of_table(table) == TOLD.format("mostly", "60 %")
    better = table.assign(step=np.arange(40) // 4, local_reward=table["local_reward"].where(np.arange(40) < 20, 1.0))
    assert verdict_of_table(better).startswith("Return did not clearly rise from 0.50 "), "its own reward rose"


def test_a_team_reward_against_the_own_reward_is_named():
    """The helper's own reward falls and its credit rises; or most of its advantage is against it, whoever judges."""
    falls = rows(-0.5, pairs=40).assign(
        local_reward=lambda one: one["local_reward"] * (one["step"] < 2),
        credit=lambda one: (one["step"] >= 2) + 0.1 * one["credit"],
    )
    told = "The credit pays what the own reward of helper calls wrong"
    assert verdict_of_table(falls) == told + ", which fell from 0.50 (steps 0 to 1) to 0.00 (from step 6). " + (
        "The own reward of helper fell from 0.50 (steps 0 to 1) to 0.00 (from step 6)."
    )
    assert verdict_of_table(falls.assign(credit=0.0)).startswith("The own reward of helper fell from 0.50 ")
    upside_down = rows(1.0, -1.0).assign(team_reward=lambda one: 1 - one["local_reward"], task=lambda one: one["group"])
    assert verdict_of_table(upside_down) == told + "."


@pytest.mark.parametrize(("change", "words"), [
    ({"advantage": 0.0}, "hardly a row had an advantage: all groups are flat, their rows earned the same."),
    ({"valid": False}, "hardly an answer was valid."),
    ({"valid": False, "advantage": 0.0}, "hardly an answer was valid: no answer is valid, so none is rewarded."),
])  # fmt: skip
def test_a_run_that_is_dead_at_its_end_never_passes(change, words):
    late = rows(-0.5, pairs=30).query("step >= 4").assign(credit=0.0, **change)
    assert verdict_of_table(pd.concat([rows(-0.5, pairs=20), late])) == f"From step 4 on {words}"
    assert verdict_of_table(pd.concat([rows(-0.5, pairs=30), late.assign(step=6)])) == NOTHING, "a single dead step"
    alone = rows(-0.5, pairs=30).query("step == 5")[:1].assign(task="u", episode="u", step=70)
    late = pd.concat([late.assign(step=lambda one, copy=copy: one["step"] + copy) for copy in range(0, 60, 2)])
    assert verdict_of_table(pd.concat([rows(-0.5, pairs=20), late, alone])).startswith("From step 4 on "), "a good row"


def played(*success: float):
    """Twenty episodes a step, of which these shares succeed."""
    return pd.concat([rows(0.5, pairs=10).assign(
        step=step, task="t", parent="", action=lambda one: one["episode"], success=lambda one, share=share: (
            one["episode"].map(lambda name: int(name.split(".")[0]) < 10 * share)), team_reward=lambda one: (
            one["success"].astype(float))) for step, share in enumerate(success)])  # fmt: skip


def test_success_on_held_out_tasks_that_a_run_kept_is_told_before_that_of_its_episodes():
    scores = pd.DataFrame([(step, task, float(task < 9 - step)) for step in (0, 4, 8) for task in range(10)],
                          columns=["step", "task", "success"])  # fmt: skip
    rose = played(0.2, 0.2, 0.4, 0.8, 0.8, 0.8)
    told = "Success fell on held-out tasks from 0.90 (step 0) to 0.10 (step 8)."
    assert verdict_of_table(rose, scores=scores).startswith(told)
    for kept in (scores[scores["step"] == 0], scores.assign(step=8 - scores["step"])):
        assert verdict_of_table(rose, scores=kept) == NOTHING


def test_a_success_that_fell_is_told_first_and_noise_is_not():
    told = "Success fell from 0.80 (steps 0 to 1) to 0.20 (from step 4)."
    fell = played(0.8, 0.8, 0.4, 0.2, 0.2, 0.2)
    assert verdict_of_table(fell).startswith(told), "within the first third too"
    assert verdict_of_table(fell.drop(columns="success")).startswith(told.replace("Success", "Return"))
    assert "fell" not in verdict_of_table(fell.assign(team_reward=0.0)), "the winner of a game"
    late = played(0.2, 0.2, 0.4, 0.8, 0.8, 0.8, 0.8, 0.9, 0.2, 0.2)
    assert verdict_of_table(late).startswith("Success fell from 0.80 (steps 3 to 6) to 0.20 (from step 8).")
    assert "fell" not in verdict_of_table(played(0.8, 0.8, 0.4, 0.2, 0.2)), "five steps show no trend"
    assert verdict_of_table(played(0.2, 0.2, 0.4, 0.4, 0.8, 0.8)) == NOTHING
    stuck = "Success did not clearly rise from 0.50 (steps 0 to 1) to 0.40 (from step 4)."
    assert verdict_of_table(played(0.8, 0.2, 0.4, 0.4, 0.2, 0.6)) == stuck, "a fall within the noise"


def test_an_agent_that_ceases_to_speak_is_named():
    for last, told in {4: "solver does not speak after step 4.", 6: NOTHING}.items():
        table = rows(-0.5, pairs=40)
        assert verdict_of_table(table.assign(agent=table["agent"].where(table["step"] > last, "solver"))) == told


@pytest.mark.parametrize(("change", "reason"), [
    ({"advantage": 0.0, "credit": 1.0}, "all groups are flat"),
    ({"advantage": 0.0}, "no row has a peer that earned something else"),
    ({"advantage": 0.0, "valid": False}, "no answer is valid"),
    ({"advantage": 0.0, "selected": False}, "no row is selected"),
    ({"advantage": 0.0, "success": True}, "every episode succeeded"),
    ({"advantage": 0.0, "group": range(2 * FEWEST)}, "every group has a single row, so nothing is compared"),
])  # fmt: skip
def test_a_silent_table_says_why(change, reason):
    assert verdict_of_table(rows(0.0).assign(**change)).startswith(f"Nothing was learned: {reason}")
    once = pd.concat([rows(0.0).assign(step=step, success=step == 0) for step in range(2)])
    assert "succeeded" not in verdict_of_table(once), "an episode of another step has the same name"


@pytest.mark.parametrize(("name", "recipe", "frozen", "harmed"), [
    ("ladder", "grpo", (), "stage_4"), ("ladder", "dr_mas", (), None), ("paid_help", "grpo", ("solver",), "helper"),
    ("finisher", "grpo", (), "finisher"), ("cascade", "grpo", (), "tier_4"),
    ("stakes", "dr_mas", ("solver", "clerk"), "helper"), ("stakes", "own_pooled", ("solver", "clerk"), None),
    ("math", "grpo", (), None), ("vote", "grpo", (), None), ("orchestrator", "grpo", (), None),
])  # fmt: skip
def test_harm_that_studies_measured_stands_out_and_its_absence_does_not(name, recipe, frozen, harmed):
    """First rollouts of the shipped models; docs/instruments.md says so. `dr_mas` ruins the helper of `stakes`."""
    env = lab.make_env(name)
    team = lab.Team.per_agent(lambda agent: lab.load_policy(env.pocket), env.agents, frozen=frozen)
    turns = lab.rollout(env, team, env.tasks(64, "train", seed=0), lab.episodes(8))
    told = verdict_of_table(lab.RECIPES[recipe].advantages(turns), team.frozen)
    assert told == NOTHING if harmed is None else told.startswith(f"{harmed} ")


def test_a_training_ends_with_the_verdict_on_its_run_in_a_terminal(models, tmp_path, capsys, monkeypatch):
    team = small.make_team("per_agent", models)
    list(lab.train(small.Relay(), team, small.RECIPE, 2, tasks=2, check=False))
    assert not capsys.readouterr().out, "it is a pipe"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    list(lab.train(small.Relay(), team, small.RECIPE, 2, run=tmp_path / "run", tasks=2, check=False))
    named = f"{small.RECIPE.name}, rate {team['asker'].lr:g}, seed 0"
    assert capsys.readouterr().out == f"{named}: {lab.verdict(tmp_path / 'run')}\n"
    list(lab.train(small.Relay(), team, small.RECIPE, 1, tasks=2, check=False))
    assert capsys.readouterr().out.strip()
    loop = lab.train(small.Relay(), team, small.RECIPE, 2, tasks=2, check=False)
    next(loop)
    loop.close()
    assert not capsys.readouterr().out, "it was left before its end"
    with pytest.raises(TableError, match="verdict: column 'advantage' is missing"):
        lab.verdict(rows(0.5).drop(columns="advantage"))


def test_a_dead_training_warns_once(models):
    """Credits that are all the same: no row has an advantage in four steps."""
    flat = small.RECIPE.replace(credit=lambda turns: turns["team_reward"] * 0)
    team = small.make_team("per_agent", models)
    before = {agent: weights(team[agent]) for agent in team}
    with pytest.warns(UserWarning, match="no row had an advantage in the last 3 steps.*all groups are flat") as warned:
        [one, *_] = lab.train(small.Relay(), team, flat, 4, tasks=2, check=False)
    assert repr(one).endswith(f", {len(one.turns)} turns, {one.tokens} tokens; {one.notes[0]})")
    assert "nothing was learned: all groups are flat" in one.notes[0]
    assert all(same(before[agent], weights(team[agent])) for agent in team)
    assert len([one for one in warned if "no row had an advantage" in str(one.message)]) == 1
