"""Scores on held-out tasks while training: when they are made, that they change nothing, and who shows them.

Also what a training may spend: it ends with its budget, wherever it was stopped on the way.
"""

import shutil

import pandas as pd
import pytest
from small import SETTINGS, Relay, bits, make_team, start

import mas_lab as lab
from mas_lab.runs.scores import mean_scores, run_curve, score_curve, scored_steps
from mas_lab.train.__main__ import line
from mas_lab.train.budget import KINDS, Budget, Usage
from mas_lab.train.tracking import numbers

SCORED = {"score_every": 2, "score_tasks": 3, "score_episodes": 2}
MADE = ["task", "agent", "success", "return", "turns", "tokens"]


@pytest.fixture(scope="module")
def scored(models, tmp_path_factory):
    """Five steps, scored on the way: the run's folder and its reports."""
    run = tmp_path_factory.mktemp("scored") / "run"
    return run, list(start("shared", models, run, 5, **SCORED))


def test_a_team_is_scored_before_training_on_the_way_and_in_the_end(scored):
    run, reports = scored
    made = [None if report.held_out is None else sorted(set(report.held_out["step"])) for report in reports]
    assert made == [[0], [2], None, [4], [5]]
    told = pd.concat([report.held_out for report in reports if report.held_out is not None])
    assert told.groupby("step").size().to_dict() == dict.fromkeys((0, 2, 4, 5), 3 * 2)
    assert all(name.startswith("test-") for name in told["task"])
    kept = score_curve(lab.load_run(run))
    pd.testing.assert_frame_equal(kept[["step", "success", "return"]], mean_scores(told), check_exact=True)


def test_training_is_the_same_with_and_without_bit_for_bit(scored, models, tmp_path):
    list(start("shared", models, tmp_path / "plain", 5))
    assert bits(tmp_path / "plain") == bits(scored[0])


def test_scores_are_those_of_evaluate_by_the_runs_seed(scored, models):
    before = scored[1][0].held_out
    env, seed = Relay(), SETTINGS["seed"]
    found = lab.evaluate(env, make_team("shared", models), env.tasks(3, "test", seed=seed), k=2, seed=seed)
    pd.testing.assert_frame_equal(before[MADE], found[MADE], check_exact=True)


def test_a_run_that_was_stopped_is_scored_once_where_it_stopped(scored, models, tmp_path):
    run = tmp_path / "run"
    list(start("shared", models, run, 3, **SCORED))
    assert scored_steps(lab.load_run(run)) == [0, 2, 3]
    reports = list(start("shared", models, run, 5, **SCORED | {"score_every": 4}))
    assert [None if report.held_out is None else set(report.held_out["step"]) for report in reports] == [{4}, {5}]
    assert bits(run) == bits(scored[0])
    both = score_curve(lab.load_run(run)).merge(score_curve(lab.load_run(scored[0])), on="step")
    assert both["step"].tolist() == [0, 2, 4, 5] and (both["return_x"] == both["return_y"]).all()


def test_scores_of_steps_that_a_kill_undid_do_not_count_until_they_are_made_again(scored, models, tmp_path):
    run = shutil.copytree(scored[0], tmp_path / "run")
    shutil.rmtree(max((run / "checkpoints").iterdir()))  # as if killed before the checkpoint after step 5
    for steps, kept in ((4, [0, 2, 4]), (5, [0, 2, 4, 5])):
        list(start("shared", models, run, steps, **SCORED))
        assert score_curve(lab.load_run(run))["step"].tolist() == kept


def test_scores_are_told_on_a_line_and_to_a_tracker(scored):
    first, *_, unscored, _, _ = scored[1]
    success = mean_scores(first.held_out)["success"].iloc[-1]
    assert f"held out {success:.3f}" in line(first, 5) and "held out" not in line(unscored, 5)
    assert numbers(first)["held_out/success"] == success
    assert not [name for name in numbers(unscored) if name.startswith("held_out")]


SCORES = {"score_tasks": 2, "score_episodes": 1}


@pytest.fixture(scope="module")
def whole(models, tmp_path_factory):
    run = tmp_path_factory.mktemp("spent") / "run"
    reports = list(start("shared", models, run, 6))
    return run, reports


def test_what_was_spent_is_told_the_same_by_reports_and_by_the_run(whole):
    run, reports = whole
    usage = Usage()
    for report in reports:
        usage.add(report)
    assert usage.steps == Usage.of(lab.load_run(run)).steps
    assert [usage.after(done)["tokens"] for done in range(1, 7)] == run_curve(lab.load_run(run))["tokens"].tolist()
    turns = reports[0].turns
    assert usage.steps[0]["episodes"] == turns["episode"].nunique()
    assert usage.after(6)["optimizer_steps"] == sum(report.stats["optimizer_step"].nunique() for report in reports)
    assert usage.after(0) == dict.fromkeys(KINDS, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_it_ends_with_the_step_that_reaches_the_budget(whole, models, kind, tmp_path):
    usage = Usage.of(lab.load_run(whole[0]))
    for amount, steps in ((usage.after(3)[kind], 3), (usage.after(3)[kind] + 1, 4)):
        reports = list(start("shared", models, None, None, budget={kind: amount}))
        assert len(reports) == steps
    assert len(list(start("shared", models, None, 2, budget={kind: amount}))) == 2, "or after its steps"


def test_a_run_that_was_stopped_ends_where_it_would_have(whole, models, tmp_path):
    tokens = Usage.of(lab.load_run(whole[0])).after(5)["tokens"]
    run, asked = tmp_path / "run", {"budget": Budget("tokens", tokens)}
    next(start("shared", models, run, None, **asked))
    assert len(list(start("shared", models, run, None, **asked))) == 4
    assert list(start("shared", models, run, None, **asked)) == []


def test_scores_stand_where_a_count_of_tokens_is_reached_and_at_both_ends(whole, models, tmp_path):
    usage = Usage.of(lab.load_run(whole[0]))
    counts = [1, usage.after(2)["tokens"] + 1, usage.after(4)["tokens"]]
    run = tmp_path / "run"
    asked = SCORES | {"score_at": counts}
    for _ in zip(range(3), start("shared", models, run, 6, **asked), strict=False):
        pass
    list(start("shared", models, run, 6, **asked))
    assert score_curve(lab.load_run(run))["step"].tolist() == [0, 1, 3, 4, 6]


def test_held_out_tasks_vary_with_the_seed_unless_they_have_one(models):
    def played(seed, **own):
        [report] = start("shared", models, None, 1, seed=seed, score_every=1, **SCORES, **own)
        return set(report.held_out["task"])

    assert played(1) != played(2) and played(1, score_seed=5) == played(2, score_seed=5)


NO_BUDGETS = {
    "a budget of 0 tokens; give a whole number": {"tokens": 0},
    "1.5} .*a whole number": {"tokens": 1.5},
    "a budget of 'hours'; give one of tokens, episodes, optimizer_steps": {"hours": 2},
    "a budget is one of tokens": {"tokens": 1, "episodes": 1},
}


@pytest.mark.parametrize("words", NO_BUDGETS)
def test_what_is_no_budget_is_refused(models, words):
    with pytest.raises(ValueError, match=words):
        start("shared", models, None, None, budget=NO_BUDGETS[words])
