"""Runs that earlier versions recorded: they open for reading everywhere, and training on in one says what made it."""

import json
import shutil

import pandas as pd
import pytest
import small

import mas_lab as lab
from mas_lab.runs.manifest import Manifest

RECORDED = {
    "is": "Recipe", "name": "grpo_mixed", "plan": {"is": "episodes", "n": 3}, "by": ["task"],
    "credit": {"is": "episode_return", "invalid": 0.0, "of": {"is": "mixed", "alpha": 1.0}}, "center": None,
    "scale": None, "once_per": "episode", "loss": {"is": "clipped", "low": 0.2, "kl": 0.0, "entropy": 0.0, "tis": None,
    "high": None, "dual": None}, "aggregate": "token", "same_prompt": False,
}  # fmt: skip
"""A recipe as format 1 wrote it."""


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return small.make_models(tmp_path_factory.mktemp("models"))


@pytest.fixture
def old(models, tmp_path):
    """A run in whose run.json stands what format 1 wrote."""
    recipe = lab.RECIPES["grpo"].replace(plan=lab.episodes(3))
    list(lab.train(small.Relay(), small.make_team("shared", models), recipe, 2, run=tmp_path / "old", **small.SETTINGS))
    small.of_format(tmp_path / "old", 1, recipe=RECORDED, versions={"mas-lab": "0.1.0"})
    return tmp_path / "old"


def test_a_run_of_format_1_opens_for_reading(old, tmp_path):
    for run in (lab.load_run(old), lab.load_run(lab.export(old, tmp_path / "old.zip"))):
        assert (run.recipe_name, run.steps, run.made_by) == ("grpo_mixed", 2, "mas-lab 0.1.0 (format 1)")
        assert "grpo_mixed, 2 steps" in repr(run) and len(run.turns) and len(run.stats)
        for instrument in (lab.RewardInspector, lab.SpikeInspector, lab.RolloutViewer):
            assert "grpo_mixed" in instrument(run).to_html(tmp_path / "shown.html").read_text()
    assert set(lab.load_run(old).team()) == set(small.AGENTS)


def test_a_run_of_format_1_stands_on_the_board_beside_new_ones_by_its_name(old, models, tmp_path):
    recipe, asked = lab.RECIPES["grpo"].replace(plan=lab.episodes(3)), small.SETTINGS | {"seed": 7}
    list(lab.train(small.Relay(), small.make_team("shared", models), recipe, 2, run=tmp_path / "new", **asked))
    known = RECORDED | {"credit": {"is": "episode_return", "invalid": 0.0, "of": None}, "name": "grpo"}
    config = json.loads((old / "run.json").read_text()) | {"recipe": known, "seed": 6}
    shutil.copytree(old, tmp_path / "known")
    (tmp_path / "known" / "run.json").write_text(json.dumps(config))
    board = lab.AblationBoard([old, tmp_path / "known", tmp_path / "new"])
    assert dict(zip(board.table["recipe"], board.table["seeds"], strict=True)) == {"grpo_mixed": 1, "grpo": 2}


def test_training_on_in_a_run_of_format_1_says_what_made_it(old, models):
    team = small.make_team("shared", models)
    with pytest.raises(
        lab.RunError, match=r"cannot resume, it was made by mas-lab 0\.1\.0 \(format 1\).*the version that made it"
    ):
        list(lab.train(small.Relay(), team, "grpo", 3, run=old, **small.SETTINGS))


def test_a_recipe_of_format_1_reads_back_where_its_parts_are_still_there(old):
    config = json.loads((old / "run.json").read_text())
    config["recipe"]["credit"]["of"] = None
    (old / "run.json").write_text(json.dumps(config))
    recipe = lab.RECIPES["grpo"].replace(name="grpo_mixed", plan=lab.episodes(3))
    assert lab.load_run(old).recipe == recipe


def test_a_run_of_a_later_version_is_refused_by_its_format(old):
    config = json.loads((old / "run.json").read_text()) | {"format": 99}
    (old / "run.json").write_text(json.dumps(config))
    with pytest.raises(lab.RunError, match=r"made by mas-lab 0\.1\.0 \(format 99\).*reads up to format 3: update it"):
        lab.load_run(old)


def test_a_run_of_format_2_is_trained_on_and_recorded_from_then_on(models, tmp_path):
    run = tmp_path / "run"
    list(small.start("shared", models, tmp_path / "straight", 4))
    list(small.start("shared", models, run, 3))
    small.of_format(run, 2)
    (run / "turns" / "000002.parquet").rename(run / "turns" / "000003.parquet")
    with pytest.raises(lab.RunError, match=r"turns/000002\.parquet is missing"):
        lab.load_run(run).turns  # noqa: B018
    (run / "turns" / "000003.parquet").rename(run / "turns" / "000002.parquet")
    turns = lab.load_run(run).turns
    assert [report.step for report in small.start("shared", models, run, 4)] == [3]
    assert small.bits(run) == small.bits(tmp_path / "straight")
    assert lab.load_run(run).config == lab.load_run(tmp_path / "straight").config
    pd.testing.assert_frame_equal(lab.load_run(run).turns[: len(turns)], turns)
    assert set(Manifest(run).parts) == set(Manifest(tmp_path / "straight").parts)


def test_killed_while_it_becomes_one_of_this_format_it_goes_on(models, tmp_path):
    list(small.start("shared", models, tmp_path / "straight", 2))
    list(small.start("shared", models, tmp_path / "old", 1))
    small.of_format(tmp_path / "old", 2)
    moments = (3, 6, 7, 8)
    for moment in moments:
        shutil.copytree(tmp_path / "old", tmp_path / "runs" / f"shared-{moment}")
    deaths = small.child("killed", models, tmp_path / "runs", 2, *moments)
    assert [death["ended"] for death in deaths] == [9] * len(moments)
    for death in deaths:
        assert death["bits"] == small.bits(tmp_path / "straight"), f"killed before write {death['moment']}"
        assert lab.load_run(tmp_path / "runs" / f"shared-{death['moment']}").config["format"] == 3
