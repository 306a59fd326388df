"""How much advantage goes the wrong way, and the same rows under several recipes: by hand."""

import numpy as np
import pandas as pd
import pytest

import mas_lab as lab

ROWS = pd.DataFrame({
    "task": ["t", "t", "t", "u", "u"], "episode": ["a", "b", "c", "d", "e"], "agent": "late",
    "local_reward": [1.0, 0.0, 0.0, 1.0, 0.0], "team_reward": 0.0, "advantage": [2.0, 1.0, -1.0, -0.5, 0.0],
})  # fmt: skip


def test_shares_by_hand():
    """The mean is 0.4. Of 4.5 in all, +1 on a wrong answer and -0.5 on a right one go the wrong way."""
    [row] = lab.wrong_way(ROWS).to_dict("records")
    assert row["recipe"] == "trained" and row["wrong_way"] == pytest.approx(1.5 / 4.5)
    assert row["reinforced"] == pytest.approx(1 / 3) and row["wrong"] == 3


def test_each_step_has_its_own_mean_and_an_agent_without_advantages_no_share():
    steps = pd.concat([ROWS.assign(step=0), ROWS.assign(step=1, advantage=0.0, local_reward=1.0)])
    found = lab.wrong_way(steps.reset_index(drop=True)).set_index("step")
    assert found.loc[0, "wrong_way"] == pytest.approx(1 / 3)
    assert np.isnan(found.loc[1, "wrong_way"]) and np.isnan(found.loc[1, "reinforced"]) and found.loc[1, "wrong"] == 0


@pytest.mark.parametrize("earned", [-0.01, 0.1, 0.2])
def test_equal_rewards_are_neither_right_nor_wrong_though_their_mean_is_rounded(earned):
    rows = pd.concat([ROWS] * 13, ignore_index=True).assign(local_reward=earned)
    [row] = lab.wrong_way(rows).to_dict("records")
    assert row["wrong"] == 0 and row["wrong_way"] == 0 and np.isnan(row["reinforced"])


def test_recipes_of_one_name_are_refused():
    grpo = lab.RECIPES["grpo"]
    for compare in (lab.wrong_way, lab.rejudge):
        with pytest.raises(ValueError, match=r"two of the recipes \['grpo', 'grpo'\] have one name.*replace\(name="):
            compare(ROWS, [grpo, grpo.replace(lone="lend")])


def test_other_recipes_judge_the_same_rows_again():
    """Stage 2 is reached in one episode of four, wrong, and the team earns 0.5 there and 0 elsewhere."""
    rows = [(episode, "one", float(episode == "a"), 0.5 * (episode == "a")) for episode in "abcd"]
    rows.append(("a", "two", 0.0, 0.0))
    turns = pd.DataFrame(rows, columns=["episode", "agent", "local_reward", "team_reward"]).assign(
        task="t", turn=0, valid=True, kept=True
    )
    turns = pd.concat(
        [turns, turns.assign(task="u", local_reward=1.0, team_reward=0.5, episode=lambda t: t["episode"] + "u")]
    )
    found = lab.wrong_way(turns.reset_index(drop=True), recipes=["grpo", "dr_mas"]).set_index(["agent", "recipe"])
    assert found.loc[("two", "grpo"), "reinforced"] == 1 and found.loc[("two", "dr_mas"), "reinforced"] == 0
    assert set(lab.schema("wrong_way")["column"]) == {"step", *found.reset_index().columns}


def test_a_recipe_compares_each_step_with_itself_whatever_the_order_and_the_index():
    """One task plays twice. All rows of the second step earn the same, so no recipe has anything to teach there."""
    rewards = [0.0, 0.0, 0.0, 1.0]
    steps = [
        pd.DataFrame({"task": "t", "episode": list("abcd"), "agent": "solver", "turn": 0, "valid": True, "kept": True,
                      "local_reward": earned, "team_reward": earned}).assign(step=step)
        for step, earned in enumerate((rewards, [1.0] * 4))
    ]  # fmt: skip
    shuffled = pd.concat(steps).sample(frac=1, random_state=1)
    for name in ("grpo", "own_robust", "dr_mas"):
        recipe = lab.RECIPES[name]
        alone = pd.concat([recipe.advantages(step) for step in steps])
        found = recipe.advantages(shuffled)
        assert found.index.equals(shuffled.index) and found["episode"].equals(shuffled["episode"])
        again = found.sort_values(["step", "episode"])
        assert again["advantage"].tolist() == pytest.approx(alone["advantage"].tolist(), abs=1e-12)
        assert (again.loc[again["step"] == 1, "advantage"] == 0).all() and again["advantage"].abs().max() > 0.5
        chosen = recipe.replace(select=lab.not_flat())
        assert chosen.advantages(chosen.advantages(shuffled))["selected"].sum() == 4, "an earlier choice is replaced"
    judged = lab.rejudge(shuffled, ["grpo"]).iloc[0]
    assert judged["rows"] == 8 and judged["silent"] == 0.5
    assert len(lab.wrong_way(shuffled, ["grpo"])) == 2


def turns(**columns):
    rows = [("t", "a", "one", 1.0), ("t", "b", "one", 0.0), ("t", "c", "one", 0.0), ("t", "a", "two", 1.0)]
    table = pd.DataFrame(rows, columns=["task", "episode", "agent", "team_reward"])
    return table.assign(turn=0, depth=0, valid=True, kept=True, success=False, **columns)


def test_a_lone_row_falls_silent_under_its_own_baseline():
    """Agent two has one row, of return 1: above the task's mean, and without a peer of its own."""
    found = lab.rejudge(turns(local_reward=[1.0, 0.0, 0.0, 0.0]), ["grpo", "dr_mas"]).set_index(["agent", "recipe"])
    assert found.loc[("two", "grpo"), "silent"] == 0 and found.loc[("two", "dr_mas"), "silent"] == 1
    assert found.loc[("two", "dr_mas"), "without_peer"] == 1 and found.loc[("one", "dr_mas"), "without_peer"] == 0
    assert (found["other_sign"] == 0).all() and found.loc[("one", "grpo"), "rows"] == 3
    assert set(lab.schema("rejudge")["column"]) == set(found.reset_index().columns)


def test_what_the_table_holds_is_not_used_own_rewards_may_be_absent_and_a_recipe_may_turn_every_sign():
    judged = lab.RECIPES["dr_mas"].advantages(turns())
    found = lab.rejudge(judged.assign(advantage=7.0), ["grpo", "dr_mas"])
    pd.testing.assert_frame_equal(pd.DataFrame(found), pd.DataFrame(lab.rejudge(turns(), ["grpo", "dr_mas"])))
    assert found["wrong_way"].isna().all() and found["size"].max() < 2
    opposite = lab.RECIPES["grpo"].replace(name="opposite", credit=lambda table: -lab.episode_return()(table))
    found = lab.rejudge(turns(), ["grpo", opposite])
    assert found.loc[found["recipe"] == "opposite", "other_sign"].tolist() == pytest.approx([1.0, 1.0])
