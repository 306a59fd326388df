"""Runs of a folder, zips, lists and labels as entries to compare, and what is no run."""

import shutil

import pandas as pd
import pytest
from own_parts import written_in
from small import RECIPE, SETTINGS, Relay, make_team

import mas_lab as lab
from mas_lab.runs.scores import keep_scores, run_curve
from mas_lab.table import TableError


@pytest.fixture(scope="module")
def handed_in(models, tmp_path_factory):
    """A class of three: two recipes each, one step, exported; bob handed in alice's runs."""
    root = tmp_path_factory.mktemp("class")
    runs = root.parent / f"{root.name} runs"
    for name, recipe in {"tree": RECIPE, "wide": RECIPE.replace(plan=lab.tree(2))}.items():
        for student, seed in (("alice", 1), ("carol", 2)):
            run, settings = runs / f"{student} {name}", SETTINGS | {"seed": seed}
            list(lab.train(Relay(), make_team("shared", models), recipe, 1, run=run, **settings))
        shutil.copytree(runs / f"alice {name}", runs / f"bob {name}")
    for run in runs.iterdir():
        lab.export(run, root / f"{run.name}.zip")
    return root


@pytest.mark.slow
def test_folders_zips_lists_and_labels_are_compared_by_the_options_that_differ(handed_in):
    board = lab.AblationBoard(handed_in, score="return", over="step")
    for name, k in zip(board.table["recipe"], (3, 2), strict=True):
        assert name.startswith("at_grpo (plan=tree(") and f"k={k}" in name and f"pick={lab.mixed(1.0)!r}" in name
    assert board.table[["runs", "seeds"]].to_numpy().tolist() == [[3, 2], [3, 2]]
    assert len(board.runs) == 6 and board.pairs["seed"].tolist() == [1, 2]
    assert "training episodes" in board.cautions[-1]
    expected = run_curve(lab.load_run(handed_in / "carol tree.zip"))["return"].iloc[-1]
    assert board.runs.set_index("file").loc["carol tree.zip", "final"] == pytest.approx(expected)
    runs = handed_in.parent / f"{handed_in.name} runs"
    listed = [lab.load_run(path) for path in sorted(runs.iterdir())]
    for same in (runs, listed):
        found = lab.AblationBoard(same, score="return", over="step").runs
        pd.testing.assert_frame_equal(found.drop(columns="file"), board.runs.drop(columns="file"))
    named = lab.AblationBoard({"K = 3": sorted(runs.glob("* tree")), "K = 2": sorted(runs.glob("* wide"))}, over="step")
    assert named.table["recipe"].tolist() == ["K = 3", "K = 2"]


def test_held_out_scores_are_taken_where_all_runs_kept_them(handed_in, models, tmp_path):
    runs = tmp_path / "runs"
    for run in (handed_in.parent / f"{handed_in.name} runs").iterdir():
        shutil.copytree(run, runs / run.name)
    scored = lab.evaluate(Relay(), make_team("shared", models), Relay().tasks(4, "test", 0))
    first, *others = sorted(runs.iterdir())
    for place, path in enumerate((*others, first), start=1):
        if path == first:
            assert not lab.AblationBoard(runs, score="return").held_out
            with pytest.raises(TableError, match="no finite return at some step, or no scored step"):
                lab.AblationBoard(runs, score="return", held_out=True)
        for step in (0, 1):
            keep_scores(lab.load_run(path), step, scored.assign(**{"return": place % len(others) + step / 10}))
    board = lab.AblationBoard(runs, score="return", over="step")
    assert board.held_out and "held-out tasks" in repr(board) and sorted(board.runs["final"])[:2] == [0.1, 1.1]


def test_a_part_of_a_notebook_and_the_same_part_of_a_module_are_one_recipe(models, tmp_path):
    for name, module, number in (("a", "__main__", 0.0), ("b", "parts", 0.0), ("c", "__main__", 1.0)):
        recipe = RECIPE.replace(center=written_in(module, number)["center"])
        list(lab.train(Relay(), make_team("shared", models), recipe, 1, run=tmp_path / name, **SETTINGS))
    runs = [lab.load_run(tmp_path / name) for name in "abc"]
    moved = lab.AblationBoard(runs[:2], score="return")
    assert moved.table[["recipe", "runs"]].to_numpy().tolist() == [["at_grpo", 2]]
    changed = lab.AblationBoard([runs[0], runs[2]], score="return").table["recipe"].tolist()
    assert len(set(changed)) == 2 and all(name.startswith("at_grpo (center=center@") for name in changed)


def test_a_file_that_is_no_run_is_named(handed_in, tmp_path):
    folder = tmp_path / "class"
    folder.mkdir()
    shutil.copy(handed_in / "bob tree.zip", folder)
    (folder / "notes.txt").write_text("hello")
    with pytest.raises(lab.RunError, match=r"notes\.txt is neither a run's folder nor a zip .*; move it out of"):
        lab.AblationBoard(folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(lab.RunError, match="is empty; put the folders"):
        lab.AblationBoard(tmp_path / "empty")
