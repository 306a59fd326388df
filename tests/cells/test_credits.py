"""The numbers that are compared: by hand, against plain recursion on random trees, and refused where meaningless."""

import numpy as np
import pandas as pd
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import candidates_table, episodes_table, joint_table

from mas_lab.cells.credits import (
    counterfactual,
    difference_return,
    episode_return,
    mixed,
    own_return,
    return_to_go,
)
from mas_lab.cells.grouping import group
from mas_lab.table import TableError

seeds = st.integers(0, 2**32 - 1)
often = settings(max_examples=6)


def table(**columns):
    return pd.DataFrame(columns)


def test_a_local_reward_is_not_read_where_it_does_not_count():
    turns = table(team_reward=[1.0, 0.5], local_reward=[0.25, -1.0], episode="e", turn=[0, 1], agent="s")
    assert mixed(2.0, local=4.0)(turns).tolist() == [3.0, -3.0]
    assert mixed()(turns[["team_reward"]]).tolist() == [1.0, 0.5]
    noisy = turns.assign(local_reward=["not", "a number"])
    assert mixed(2.0, local=0.0)(noisy).tolist() == [2.0, 1.0] and episode_return()(noisy).tolist() == [1.5, 1.5]
    for credit in (mixed(), episode_return(own=1.0)):
        with pytest.raises(TableError, match="column 'local_reward' is not a finite number"):
            credit(noisy)


@pytest.mark.parametrize("kind", ["int8", "float16", object])
def test_narrow_rewards_neither_wrap_around_nor_round(kind):
    """np.bool_ in an object column is a number too, as it comes from a comparison in pandas."""
    values = [np.True_, np.False_, np.True_] if kind is object else [100, 0, 120]
    rewards, depth = pd.Series(values, dtype=kind), [0, 1, 0]
    turns = table(episode=list("eef"), depth=depth, agent="a", team_reward=rewards, local_reward=rewards, removed="")
    wide = turns.assign(team_reward=[float(one) for one in values], local_reward=[float(one) for one in values])
    for credit in (mixed(), episode_return(own=1.0), own_return(), return_to_go(), difference_return()):
        found = credit(turns)
        assert found.tolist() == credit(wide).tolist() and found.dtype == float
        assert group(turns, "episode", credit)["credit"].tolist() == found.tolist()


def test_an_episode_earns_its_kept_steps_and_a_joint_step_once():
    """Two critics act together at depth 1; at depth 2 a candidate was sampled that the state did not follow."""
    turns = table(
        episode="e", depth=[0, 1, 1, 2, 2], turn=[0, 0, 0, 1, 1], agent=["p", "c", "j", "p", "p"],
        candidate=[0, 0, 0, 0, 1], kept=[True, True, True, False, True], team_reward=[1.0, 2.0, 2.0, 50.0, 4.0],
        local_reward=[9.0] * 5,
    )  # fmt: skip
    assert episode_return()(turns).tolist() == [7.0] * 5


@pytest.mark.parametrize("name, value", [("depth", [0, 0]), ("node", ["n", "n"])])
def test_agents_that_acted_together_say_so_by_depth_or_node(name, value):
    turns = table(episode="e", agent=["x", "y"], turn=0, team_reward=[1.0, 1.0])
    assert episode_return()(turns.assign(**{name: value})).tolist() == [1.0, 1.0]
    assert episode_return()(turns).tolist() == [2.0, 2.0]


@often
@given(seed=seeds)
def test_episode_return_on_random_tables(seed):
    turns = episodes_table(seed)
    rows = turns.to_dict("records")
    assert episode_return(0.3)(turns).tolist() == pytest.approx(reference.row_credits(rows, 0.3), abs=1e-12)
    expected = reference.row_credits(rows, 0.3, own=0.5)
    assert episode_return(0.3, own=0.5)(turns).tolist() == pytest.approx(expected, abs=1e-12)


def test_a_branching_episode_has_no_return():
    turns = table(task="t", episode="e", depth=0, turn=0, agent="s", candidate=[0, 1], team_reward=[0.0, 1.0])
    with pytest.raises(TableError, match=r"several kept actions at task 't', episode 'e', agent 's', turn 0.*branches"):
        episode_return()(turns)
    with pytest.raises(TableError, match="branches there"):
        episode_return()(joint_table(0, "aligned", 1.0, agents=["x", "y"]))
    with pytest.raises(TableError, match=r"own_return: several kept actions at .*episode 'e'.*episodes"):
        own_return()(turns.assign(local_reward=1.0))


def test_agents_that_acted_together_share_one_reward():
    turns = table(task="t", episode="e", depth=0, turn=0, agent=["x", "y"], team_reward=[0.0, 1.0])
    with pytest.raises(TableError, match="disagree on team_reward at task 't', episode 'e', agent 'x', turn 0"):
        episode_return()(turns)


@pytest.mark.parametrize("column, value", [("kept", "False"), ("depth", None)])
def test_optional_columns_are_checked_where_they_stand(column, value):
    turns = table(episode=["e", "f"], turn=0, agent="s", team_reward=[1.0, 2.0]).assign(**{column: [1, value]})
    with pytest.raises(TableError, match=f"episode_return: column '{column}' is .*episode 'f', agent 's', turn 0"):
        episode_return()(turns)


def test_a_chain_by_hand():
    turns = table(episode=list("eeef"), turn=[0, 1, 2, 0], agent="s", team_reward=[1.0, 2.0, 4.0, 8.0])
    assert return_to_go()(turns).tolist() == [7.0, 6.0, 4.0, 8.0]
    assert return_to_go(0.5)(turns).tolist() == [1.0 + 0.5 * 4.0, 2.0 + 0.5 * 4.0, 4.0, 8.0]


@pytest.mark.parametrize("mode", ["aligned", "cross"])
@pytest.mark.parametrize("hidden", [[], ["depth"]])
@often
@given(seed=seeds, gamma=st.sampled_from([1.0, 0.7]))
def test_return_to_go_on_random_trees(mode, hidden, seed, gamma):
    turns = joint_table(seed, mode, gamma).drop(columns=hidden)
    task = ("", "2*3", "a-b.c", "*")[seed % 4]  # its name stands before the last dot of an action
    named = turns.assign(
        **{name: turns[name].map(lambda one: one and task + one) for name in ("node", "parent", "action")}
    )
    assert return_to_go(gamma)(named).tolist() == pytest.approx(turns["return"].tolist())


def test_return_to_go_refuses_a_tree_of_candidates():
    turns = candidates_table(2)
    assert not turns["kept"].all()
    with pytest.raises(TableError, match=r"return_to_go: a candidate that the state did not follow, at task 't.*turn"):
        return_to_go()(turns)
    with pytest.raises(TableError, match=r"several candidates at .* and the episode goes on"):
        return_to_go()(turns[["episode", "turn", "agent", "candidate", "team_reward"]])


@pytest.mark.parametrize("parent", ["elsewhere.0", "r.5"])
def test_a_parent_that_is_no_action_of_the_table_is_refused(parent):
    turns = table(node=["r", "r", "c"], parent=["", "", parent], agent="x", candidate=[0, 1, 0], team_reward=1.0)
    with pytest.raises(TableError, match=f"parent '{parent}' is not an action of a node in the table"):
        return_to_go()(turns)


def test_counterfactual_wants_continuations():
    turns = candidates_table(2).assign(probe=False, done=False)
    with pytest.raises(TableError, match=r"holds no continuations; roll out with tree\(k, follow=m\)"):
        counterfactual()(turns)


@pytest.mark.parametrize("to_go, third", [(False, 1.5), (True, 0.5)])
def test_own_return_by_hand(to_go, third):
    turns = table(episode=list("aaabb"), depth=[0, 1, 2, 0, 1], agent=["left", "right", "left", "left", "right"],
                  local_reward=[1.0, -2.0, 0.5, 4.0, 0.0])  # fmt: skip
    credit, unkept = own_return(to_go=to_go), turns.assign(kept=[True, False, True, True, True])
    assert credit(turns).tolist() == [1.5, -2.0, third, 4.0, 0.0]
    assert credit(turns.sample(frac=1.0, random_state=1)).sort_index().tolist() == [1.5, -2.0, third, 4.0, 0.0]
    if to_go:
        with pytest.raises(TableError, match=r"own_return: a candidate that the state did not follow, .*agent 'right'"):
            credit(unkept)
    else:
        assert credit(unkept).tolist() == [1.5, 0.0, third, 4.0, 0.0]


def test_a_difference_counts_what_was_earned_before_the_agents_first_turn():
    """Episode e earned 1, 2, 4. Without b, from depth 1 on, it earned 0.5; without a it earned 3."""
    turns = table(episode=["e"] * 3 + ["e without b", "e without a", "e without a"], depth=[0, 1, 2, 1, 0, 1],
                  agent=list("abaaba"), team_reward=[1.0, 2.0, 4.0, 0.5, 1.0, 2.0], probe=[False] * 3 + [True] * 3,
                  removed=["", "", "", "b", "a", "a"])  # fmt: skip
    assert difference_return()(turns)[:3].tolist() == [7 - 3, 7 - 1.5, 7 - 3]
    assert difference_return()(turns[turns["removed"] != "a"])[:3].tolist() == [7, 7 - 1.5, 7]
    with pytest.raises(TableError, match=r"difference_return: the table holds no replays; roll out with without\(n\)"):
        difference_return()(turns.drop(columns="removed"))


CHAINS = table(task="t", episode=list("aabb"), agent="s", turn=[0, 1, 0, 1], depth=[0, 1, 0, 1], kept=True,
               node=["a/0", "a/1", "b/0", "b/1"], candidate=0, parent=["", "a/0.0", "", "b/0.0"],
               local_reward=[1.0, 2.0, 4.0, 8.0], team_reward=[0.0, 1.0, 0.0, 3.0])  # fmt: skip
JOINT = table(task="t", episode="t", agent=["x", "y"] * 4, turn=[0] * 4 + [1] * 4, depth=[0] * 4 + [1] * 4,
              node=["t/0"] * 4 + ["t/0.0-0/1"] * 2 + ["t/0.1-1/1"] * 2, candidate=[0, 0, 1, 1, 0, 0, 0, 0], kept=True,
              parent=[""] * 4 + ["t/0.0-0"] * 2 + ["t/0.1-1"] * 2,
              team_reward=[1.0, 1.0, 0.0, 0.0, 2.0, 2.0, 5.0, 5.0])  # fmt: skip
FOLLOWED = table(task="t", episode=["t", "t", "t+0", "t+1"], node=["t/0"] * 2 + ["a/1", "b/1"], depth=[0, 0, 1, 1],
                 parent=["", "", "t/0.0", "t/0.1"], turn=[0, 0, 1, 1], agent="s", candidate=[0, 1, 0, 0],
                 action=["t/0.0", "t/0.1", "a/1.0", "b/1.0"], kept=[True, False, True, True],
                 probe=[False] * 2 + [True] * 2, team_reward=[1.0, 3.0, 2.0, 4.0])  # fmt: skip
REPLAYED = table(task="t", episode=["e", "e", "e without b"], depth=[0, 1, 1], turn=[0, 0, 0], agent=["a", "b", "a"],
                 candidate=0, probe=[False, False, True], removed=["", "", "b"],
                 team_reward=[1.0, 2.0, 0.5])  # fmt: skip


@pytest.mark.parametrize(
    "credit, turns, numbers",
    [
        (mixed(2.0), CHAINS, [1.0, 4.0, 4.0, 14.0]),
        (episode_return(), CHAINS, [1.0, 1.0, 3.0, 3.0]),
        (own_return(), CHAINS, [3.0, 3.0, 12.0, 12.0]),
        (own_return(to_go=True), CHAINS, [3.0, 2.0, 12.0, 8.0]),
        (return_to_go(), CHAINS, [1.0, 1.0, 3.0, 3.0]),
        (return_to_go(), JOINT, [3.0, 3.0, 5.0, 5.0, 2.0, 2.0, 5.0, 5.0]),
        (counterfactual(), FOLLOWED, [3.0, 7.0, 2.0, 4.0]),
        (difference_return(), REPLAYED, [3.0, 1.5, 0.5]),
    ],
    ids=lambda value: repr(value) if callable(value) else None,
)
def test_a_joined_table_has_the_credits_of_its_steps(credit, turns, numbers):
    """Two steps drew the same task, so their episodes and nodes have the same names; the second earned ten times."""
    rewards = [name for name in ("team_reward", "local_reward") if name in turns]
    second = turns.assign(step=1, **{name: 10 * turns[name] for name in rewards})
    joined = pd.concat([second, turns.assign(step=0)]).sample(frac=1, random_state=0)
    found = group(joined, ("step", "task", "agent"), credit)
    assert found.index.equals(joined.index)
    assert found[found["step"] == 0].sort_index()["credit"].tolist() == numbers
    assert found[found["step"] == 1].sort_index()["credit"].tolist() == [10 * number for number in numbers]
