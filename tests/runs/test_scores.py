"""What a run scored: against the reports of its steps, against credits, and kept beside it."""

import shutil

import pandas as pd
import pytest
from small import RECIPE, SETTINGS, Relay, make_team

import mas_lab as lab
from mas_lab.runs.scores import episode_returns, keep_scores, run_curve, score_curve, step_scores, training_curve
from mas_lab.table import TableError

PLANS = {
    "episodes": lab.RECIPES["grpo"].replace(plan=lab.episodes(3)),
    "tree": RECIPE,
    "probed": RECIPE.replace(plan=lab.tree(2, follow=1)),
    "aligned": lab.RECIPES["magrpo"].replace(plan=lab.joint(2)),
    "cross": lab.RECIPES["magrpo"].replace(plan=lab.joint(2, mode="cross")),
}


@pytest.fixture(scope="module")
def reports(models):
    """Two steps under each plan, in turns and together."""
    return {
        (name, together): list(lab.train(Relay(together), make_team("shared", models), recipe, 2, **SETTINGS))
        for name, recipe in PLANS.items()
        for together in (False, True)
    }


@pytest.mark.parametrize("together", [False, True], ids=["in turns", "together"])
@pytest.mark.parametrize("plan", PLANS)
def test_curve_equals_the_reports_in_the_order_of_the_index(reports, plan, together):
    told = reports[plan, together]
    turns = pd.concat([report.turns for report in told])
    curve = training_curve(turns)
    for seed in range(2):
        shuffled = turns.sample(frac=1, random_state=seed)
        pd.testing.assert_frame_equal(training_curve(shuffled), curve)
    assert curve["step"].tolist() == [0, 1]
    assert curve["success"].tolist() == pytest.approx([report.success for report in told])
    assert curve["tokens"].tolist() == pd.Series([report.tokens for report in told]).cumsum().tolist()
    apart = [step_scores(report.turns)["return"] for report in told]
    assert curve["return"].tolist() == pytest.approx(apart)
    if plan == "episodes":
        turns = told[0].turns
        expected = lab.episode_return()(turns).groupby(turns["episode"]).first()
        assert episode_returns(turns).to_dict() == pytest.approx(expected.to_dict())


def test_a_hand_typed_table_is_in_acting_order_by_index():
    """a kept its second candidate, which fails with b's first one; b's kept candidate is played with it, and wins."""
    rows = [("a", 0, False, 0.0), ("a", 1, True, 0.0), ("b", 0, True, 1.0), ("b", 1, False, 0.0)]
    turns = pd.DataFrame(rows, columns=["agent", "candidate", "kept", "success"])
    turns = turns.assign(episode="e", node="e/0", depth=0, team_reward=turns["success"], completion_ids=[[1]] * 4)
    for order in (turns, turns[::-1]):
        assert training_curve(order)[["success", "return"]].to_numpy().tolist() == [[1.0, 1.0]]


def test_branching_return_is_a_mean_over_branches():
    """Two joint actions; the first earns 1 and ends, the second earns 0 and is followed by 0.5 and 1."""
    rows = [("e/0", "", 0, 0, 1.0), ("e/0", "", 0, 1, 0.0), ("e/1", "e/0.1", 1, 0, 0.5), ("e/1", "e/0.1", 1, 1, 1.0)]
    turns = pd.DataFrame(rows, columns=["node", "parent", "depth", "candidate", "team_reward"])
    assert episode_returns(turns.assign(episode="e", agent="a")).to_dict() == {"e": (1.0 + 0.75) / 2}


@pytest.fixture
def run(spiky, tmp_path):
    return lab.load_run(shutil.copytree(spiky, tmp_path / "copy"))


def test_held_out_scores_are_kept_and_exported(run, models, tmp_path):
    assert score_curve(run).empty
    scores = lab.evaluate(Relay(), make_team("shared", models), Relay().tasks(4, "test", 0), k=2)
    for step in (5, 0):
        keep_scores(run, step, scores)
    kept = score_curve(run)
    expected = scores.groupby("task")[["success", "return"]].first().mean()
    assert kept["step"].tolist() == [0, 5]
    assert kept[["success", "return"]].to_numpy().tolist() == [pytest.approx(expected.tolist())] * 2
    assert kept["tokens"].tolist() == [0, run.turns["completion_ids"].map(len).sum()]
    zipped = lab.load_run(lab.export(run, tmp_path / "run.zip"))
    pd.testing.assert_frame_equal(score_curve(zipped), kept)
    pd.testing.assert_frame_equal(run_curve(zipped), run_curve(run))
    with pytest.raises(TypeError, match="is an exported zip; keep scores with the run's folder"):
        keep_scores(zipped, 1, scores)


def test_scores_of_no_step_are_refused(run):
    with pytest.raises(TableError, match="column 'task' is missing; pass what evaluate"):
        keep_scores(run, 1, pd.DataFrame({"success": [1.0]}))
    with pytest.raises(ValueError, match=r"step=6, but .* holds 5 steps"):
        keep_scores(run, 6, pd.DataFrame({"task": ["t"], "success": [1.0], "return": [1.0]}))
