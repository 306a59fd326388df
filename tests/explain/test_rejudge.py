"""The same rows under several recipes: signs, silent rows and rows that lose their peer, by hand."""

import pandas as pd
import pytest

import mas_lab as lab

ROWS = [("t", "a", "one", 1.0), ("t", "b", "one", 0.0), ("t", "c", "one", 0.0), ("t", "a", "two", 1.0)]


def turns(**columns):
    table = pd.DataFrame(ROWS, columns=["task", "episode", "agent", "team_reward"])
    return table.assign(turn=0, valid=True, kept=True, success=False, **columns)


def test_a_lone_row_falls_silent_under_its_own_baseline():
    """Agent two has one row, of return 1: above the task's mean, and without a peer of its own."""
    found = lab.rejudge(turns(local_reward=[1.0, 0.0, 0.0, 0.0], depth=0), ["grpo", "dr_mas"]).set_index(
        ["agent", "recipe"]
    )
    assert found.loc[("two", "grpo"), "silent"] == 0 and found.loc[("two", "dr_mas"), "silent"] == 1
    assert found.loc[("two", "dr_mas"), "without_peer"] == 1 and found.loc[("one", "dr_mas"), "without_peer"] == 0
    assert (found["other_sign"] == 0).all() and found.loc[("one", "grpo"), "rows"] == 3
    assert set(lab.schema("rejudge")["column"]) == set(found.reset_index().columns)


def test_what_the_table_holds_already_is_not_used_and_own_rewards_may_be_absent():
    judged = lab.RECIPES["dr_mas"].advantages(turns(depth=0))
    found = lab.rejudge(judged.assign(advantage=7.0), ["grpo", "dr_mas"])
    pd.testing.assert_frame_equal(pd.DataFrame(found), pd.DataFrame(lab.rejudge(turns(depth=0), ["grpo", "dr_mas"])))
    assert found["wrong_way"].isna().all() and found["size"].max() < 2


def test_a_recipe_that_turns_every_sign():
    opposite = lab.RECIPES["grpo"].replace(name="opposite", credit=lambda table: -lab.episode_return()(table))
    found = lab.rejudge(turns(depth=0), ["grpo", opposite])
    assert found.loc[found["recipe"] == "opposite", "other_sign"].tolist() == pytest.approx([1.0, 1.0])
