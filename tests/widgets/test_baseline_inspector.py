"""Two baselines over the same rows: the menus, what they change, and the table without a notebook."""

import pandas as pd
import pytest
from small import Relay, make_team

import mas_lab as lab
from mas_lab.widgets.baseline_inspector import CHOICES


@pytest.fixture(scope="module")
def turns(models):
    """Three tasks of four episodes each."""
    env = Relay()
    return lab.rollout(env, make_team("per_agent", models), env.tasks(3, "train", 0), lab.episodes(4), seed=0)


def test_the_first_sides_are_grpo_and_dr_mas(turns, spiky):
    inspector = lab.BaselineInspector(turns)
    expected = pd.DataFrame(lab.rejudge(turns, ["grpo", "dr_mas"])).replace({"grpo": "A", "dr_mas": "B"})
    pd.testing.assert_frame_equal(pd.DataFrame(inspector.table), expected)
    assert "step 0" in repr(inspector) and len(lab.BaselineInspector(spiky).table) == 4


def test_a_choice_changes_its_side_alone(turns):
    inspector = lab.BaselineInspector(turns)
    before = inspector.table.set_index(["agent", "recipe"])["size"]
    after = inspector.choose(1, scale="none", compared_with="the task").table.set_index(["agent", "recipe"])["size"]
    assert before.xs("A", level=1).equals(after.xs("A", level=1))
    assert not before.xs("B", level=1).equals(after.xs("B", level=1))
    with pytest.raises(ValueError, match="scale='half' cannot be chosen; known are"):
        inspector.choose(0, scale="half")


def test_a_notebook_shows_six_menus_that_recompute(turns, monkeypatch):
    shown, made = [], []
    box = type("Box", (), {"model_id": "m"})
    monkeypatch.setattr("IPython.display.display", lambda bundle, **_: shown.append(bundle))
    monkeypatch.setattr("ipywidgets.VBox", lambda children: made.extend(children) or box())
    inspector = lab.BaselineInspector(turns)
    inspector._ipython_display_()
    menus = [menu for row in made[:2] for menu in row.children]
    assert len(menus) == 2 * len(CHOICES) and "<table>" in shown[0]["text/html"]
    before = made[2].value
    menus[-1].value = "none"
    assert inspector.chosen[1]["scale"] == "none" and made[2].value != before
