"""Two baselines over the same rows: the menus, what they change, and the table without a notebook."""

import ipywidgets
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


@pytest.mark.parametrize(("labels", "size"), [
    ({"center": "mean", "scale": "none"}, 0.4),
    ({"center": "mean of the others", "scale": "none"}, 0.6),
    ({"center": "none", "scale": "none"}, 0.7),
    ({"center": "none"}, 0.7 / (1 / 6) ** 0.5),
])  # fmt: skip
def test_an_episode_counts_once_whatever_the_scale(labels, size):
    """Credits 1 (three rows), 0 and 0.5: mean 0.5, variance 1/6, mean of the others 0.25, 0.75 and 0.5."""
    rows = [("e0", 0, 1.0), ("e0", 1, 0.0), ("e0", 2, 0.0), ("e1", 0, 0.0), ("e2", 0, 0.5)]
    table = pd.DataFrame([{"task": "t", "episode": episode, "agent": "a", "turn": turn, "depth": turn, "valid": True,
                           "team_reward": reward} for episode, turn, reward in rows])  # fmt: skip
    found = lab.BaselineInspector(table).choose(0, **labels).table
    assert found["size"][0] == pytest.approx(size, abs=1e-5)


def test_without_a_reward_of_the_team_agents_are_judged_by_their_own(turns):
    own = turns.assign(
        team_reward=0.0, local_reward=turns["team_reward"] + 0.1 * (turns["agent"] == turns["agent"].iloc[0])
    )
    expected = lab.rejudge(own, [lab.RECIPES["dr_mas"].replace(name="B", credit=lab.own_return())])
    found = lab.BaselineInspector(own).table
    found = found[found["recipe"] == "B"].reset_index(drop=True)
    assert found["size"].tolist() == expected["size"].tolist() and (found["size"] > 0).all()


def test_a_notebook_shows_six_menus_that_recompute(turns, monkeypatch):
    shown, made = [], []
    interactive = ipywidgets.interactive
    monkeypatch.setattr(
        "ipywidgets.interactive", lambda *args, **menus: made.append(interactive(*args, **menus)) or made[0]
    )
    monkeypatch.setattr("IPython.display.display", lambda bundle, **_: shown.append(bundle["text/html"]))
    inspector = lab.BaselineInspector(turns)
    inspector._ipython_display_()
    menus = made[0].kwargs_widgets
    assert [menu.value for menu in menus] == [label for side in inspector.chosen for label in side.values()]
    assert menus[3].description == "B: compared with" and len(menus) == 2 * len(CHOICES) and "<table>" in shown[0]
    menus[-1].value = "none"
    assert inspector.chosen[1]["scale"] == "none" and "<table>" in shown[-1] and shown[-1] != shown[0]
