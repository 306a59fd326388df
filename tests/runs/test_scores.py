"""What a run scored: against the reports of its steps, against credits, and kept beside it."""

import shutil
from dataclasses import dataclass

import pandas as pd
import pytest
from small import RECIPE, SETTINGS, Relay, make_team, of_format

import mas_lab as lab
from mas_lab.cells.episode import Generate, StepEnv
from mas_lab.runs.disk import read_note
from mas_lab.runs.scores import KEPT, episode_returns, kept_scores, run_curve, step_scores, training_curve
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
    """Three steps under each plan, in turns and together."""
    return {
        (name, together): list(
            lab.train(Relay(together), make_team("shared", models), recipe, 3, **SETTINGS | {"tasks": 3})
        )
        for name, recipe in PLANS.items()
        for together in (False, True)
    }


@pytest.mark.parametrize("together", [False, True], ids=["in turns", "together"])
@pytest.mark.parametrize("plan", PLANS)
def test_the_curve_says_what_the_reports_say(reports, plan, together):
    told = reports[plan, together]
    curve = training_curve(pd.concat([report.turns for report in told]))
    assert curve["step"].tolist() == [0, 1, 2]
    assert curve["success"].tolist() == pytest.approx([report.success for report in told])
    assert curve["tokens"].tolist() == pd.Series([report.tokens for report in told]).cumsum().tolist()
    apart = pd.concat([training_curve(report.turns) for report in told])
    assert curve["return"].tolist() == pytest.approx(apart["return"].tolist())


@pytest.mark.parametrize("together", [False, True], ids=["in turns", "together"])
def test_where_an_episode_does_not_branch_its_return_is_its_reward(reports, together):
    turns = reports["episodes", together][0].turns
    expected = lab.episode_return()(turns).groupby(turns["episode"]).first()
    assert episode_returns(turns).to_dict() == pytest.approx(expected.to_dict())


def test_a_branching_return_by_hand():
    """Two joint actions; the first earns 1 and ends, the second earns 0 and is followed by 0.5 and 1."""
    rows = [("e/0", "", 0, 0, 1.0), ("e/0", "", 0, 1, 0.0), ("e/1", "e/0.1", 1, 0, 0.5), ("e/1", "e/0.1", 1, 1, 1.0)]
    turns = pd.DataFrame(rows, columns=["node", "parent", "depth", "candidate", "team_reward"])
    assert episode_returns(turns.assign(episode="e", agent="a")).to_dict() == {"e": (1.0 + 0.75) / 2}


@pytest.fixture
def run(spiky, tmp_path):
    return lab.load_run(shutil.copytree(spiky, tmp_path / "copy"))


def test_training_keeps_what_each_step_scored_with_its_turns(run, tmp_path):
    zipped = lab.load_run(lab.export(run, tmp_path / "run.zip"))
    for one in (run, zipped):
        assert [read_note(part, KEPT) for part in one.parts("turns")] == [
            step_scores(run.step_turns(step)) for step in range(5)
        ]
        pd.testing.assert_frame_equal(run_curve(one), training_curve(run.turns), check_exact=True)


def test_turns_that_pandas_wrote_anew_are_scored_anew(run):
    """Nothing that was kept survives a change of the table; a run of an earlier version kept nothing, and did not
    record what its tables held."""
    of_format(run.folder, 2)
    path = run.folder / "turns" / "000003.parquet"
    kept, turns = run_curve(run), pd.read_parquet(path)
    turns.assign(team_reward=turns["team_reward"] + 1).to_parquet(path)
    expected = training_curve(run.turns)
    assert (expected["return"] != kept["return"]).tolist() == [False, False, False, True, False]
    pd.testing.assert_frame_equal(run_curve(run), expected)
    for path in (run.folder / "turns").iterdir():
        pd.read_parquet(path).to_parquet(path)
    pd.testing.assert_frame_equal(run_curve(run), expected)


def test_torn_turns_are_named(run):
    path = run.folder / "turns" / "000003.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(lab.RunError, match=r"turns/000003\.parquet is changed"):
        run_curve(run)
    of_format(run.folder, 2)
    with pytest.raises(lab.RunError, match=r"turns/000003\.parquet is not a whole table"):
        run_curve(run)


@dataclass(frozen=True)
class forgetful:
    """Follows two candidates of the first node and says of one that it did not."""

    instances = 2

    def __call__(self, game):
        start = game.start()
        for number in range(2):
            said = yield [Generate(start, "asker", number)]
            [step] = yield [StepEnv(start, said)]
            row = game.row(start, said[0], game.action(start, said), [step])
            game.rows.append({**row, "kept": number == 0})
            at = game.next(start, said, step, branch=number)
            said = yield [Generate(at, "doer")]
            [step] = yield [StepEnv(at, said)]
            game.record(at, said, step)


def test_a_plan_without_returns_trains_and_whoever_asks_for_its_curve_is_told_why(models, tmp_path):
    recipe = RECIPE.replace(plan=forgetful(), by=("task", "agent"), same_prompt=False)
    [report] = lab.train(Relay(), make_team("shared", models), recipe, 1, run=tmp_path / "run", **SETTINGS)
    assert len(report.turns) == 2 * 2 * 4
    with pytest.raises(TableError, match="is not an action of a node in the table"):
        run_curve(lab.load_run(tmp_path / "run"))


def test_held_out_scores_are_kept_and_exported(run, models, tmp_path):
    assert kept_scores(run).empty
    scores = lab.evaluate(Relay(), make_team("shared", models), Relay().tasks(4, "test", 0), k=2)
    for step in (5, 0):
        lab.keep_scores(run, step, scores)
    kept = kept_scores(run)
    expected = scores.groupby("task")[["success", "return"]].first().mean()
    assert kept["step"].tolist() == [0, 5]
    assert kept[["success", "return"]].to_numpy().tolist() == [pytest.approx(expected.tolist())] * 2
    assert kept["tokens"].tolist() == [0, run.turns["completion_ids"].map(len).sum()]
    zipped = lab.load_run(lab.export(run, tmp_path / "run.zip"))
    pd.testing.assert_frame_equal(kept_scores(zipped), kept)
    pd.testing.assert_frame_equal(run_curve(zipped), run_curve(run))
    with pytest.raises(TypeError, match="is an exported zip; keep scores with the run's folder"):
        lab.keep_scores(zipped, 1, scores)


def test_scores_that_belong_to_no_step_are_refused(run):
    with pytest.raises(TableError, match="column 'task' is missing; pass what evaluate"):
        lab.keep_scores(run, 1, pd.DataFrame({"success": [1.0]}))
    with pytest.raises(ValueError, match=r"step=6, but .* holds 5 steps"):
        lab.keep_scores(run, 6, pd.DataFrame({"task": ["t"], "success": [1.0], "return": [1.0]}))
