"""Scores on held-out tasks while training: when they are made, that they change nothing, and who shows them."""

import shutil

import pandas as pd
import pytest
from small import SETTINGS, Relay, bits, make_team, start

import mas_lab as lab
from mas_lab.runs.scores import mean_scores, score_curve, scored_steps
from mas_lab.train.__main__ import line

SCORED = {"score_every": 2, "score_tasks": 3, "score_episodes": 2}
MADE = ["task", "agent", "success", "return", "turns", "tokens"]


@pytest.fixture(scope="module")
def scored(models, tmp_path_factory):
    """Three steps, scored on the way: the run's folder and its reports."""
    run = tmp_path_factory.mktemp("scored") / "run"
    return run, list(start("shared", models, run, 3, **SCORED))


def test_a_team_is_scored_before_training_on_the_way_and_in_the_end(scored):
    run, reports = scored
    made = [None if report.held_out is None else sorted(set(report.held_out["step"])) for report in reports]
    assert made == [[0], [2], [3]]
    told = pd.concat([report.held_out for report in reports if report.held_out is not None])
    assert told.groupby("step").size().to_dict() == dict.fromkeys((0, 2, 3), 3 * 2)
    assert all(name.startswith("test-") for name in told["task"])
    kept = score_curve(lab.load_run(run))
    pd.testing.assert_frame_equal(kept[["step", "success", "return"]], mean_scores(told), check_exact=True)


def test_training_is_the_same_with_and_without_bit_for_bit(scored, models, tmp_path):
    [first, *_] = start("shared", models, tmp_path / "plain", 3)
    assert bits(tmp_path / "plain") == bits(scored[0])
    success = mean_scores(scored[1][0].held_out)["success"].iloc[-1]
    assert f"held out {success:.3f}" in line(scored[1][0], 3) and "held out" not in line(first, 3)


def test_scores_are_those_of_evaluate_by_the_runs_seed(scored, models):
    before = scored[1][0].held_out
    env, seed = Relay(), SETTINGS["seed"]
    found = lab.evaluate(env, make_team("shared", models), env.tasks(3, "test", seed=seed), k=2, seed=seed)
    pd.testing.assert_frame_equal(before[MADE], found[MADE], check_exact=True)


def test_a_run_that_was_stopped_is_scored_once_where_it_stopped(scored, models, tmp_path):
    run = tmp_path / "run"
    list(start("shared", models, run, 2, **SCORED))
    assert scored_steps(lab.load_run(run)) == [0, 2]
    [report] = start("shared", models, run, 3, **SCORED | {"score_every": 4})
    assert set(report.held_out["step"]) == {3} and bits(run) == bits(scored[0])
    both = score_curve(lab.load_run(run)).merge(score_curve(lab.load_run(scored[0])), on="step")
    assert both["step"].tolist() == [0, 2, 3] and (both["return_x"] == both["return_y"]).all()


def test_scores_of_steps_that_a_kill_undid_do_not_count_until_they_are_made_again(scored, models, tmp_path):
    run = shutil.copytree(scored[0], tmp_path / "run")
    shutil.rmtree(max((run / "checkpoints").iterdir()))  # as if killed before the checkpoint after step 3
    for steps, kept in ((2, [0, 2]), (3, [0, 2, 3])):
        list(start("shared", models, run, steps, **SCORED))
        assert score_curve(lab.load_run(run))["step"].tolist() == kept
