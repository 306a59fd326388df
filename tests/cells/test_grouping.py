"""Who is compared with whom: groups are the values of columns, and bad tables are refused with their place."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tables import candidates_table, episodes_table, shuffled

from mas_lab.cells.credits import episode_return, mixed
from mas_lab.cells.grouping import group
from mas_lab.cells.normalization import normalize
from mas_lab.table import ADDED_BY, ROLLOUT, SCHEMA, TableError, schema

BY_TURN = ("episode", "agent", "turn")


def table(**columns):
    return pd.DataFrame(columns)


def at_turn_0(**columns):
    """Two candidates of one agent at one turn, with some columns replaced."""
    usual = {"task": "t3", "episode": "e", "node": "e/0", "agent": "solver", "turn": 0, "candidate": [0, 1]}
    return table(**{**usual, "team_reward": [0.0, 1.0], "local_reward": [0.5, 0.25], **columns})


def partition(turns):
    """The groups as sets of row marks, whatever their ids are called."""
    return {frozenset(rows["mark"]) for _, rows in turns.groupby("group")}


def test_credit_and_group_are_all_that_is_added():
    turns = table(task=list("ttu"), team_reward=[1, 2, 3])
    grouped = group(turns, by="task", credit=mixed())
    assert list(turns.columns) == ["task", "team_reward"]
    assert list(grouped.columns) == ["task", "team_reward", "credit", "group"]
    assert grouped["credit"].tolist() == [1.0, 2.0, 3.0] and grouped["credit"].dtype == float
    assert grouped["group"].tolist()[0] == grouped["group"].tolist()[1] != grouped["group"].tolist()[2]


@settings(max_examples=6)
@given(st.integers(0, 2**32 - 1))
def test_trap_1_groups_are_columns_never_position_stride_or_prompt(seed):
    """One group per (episode, agent, turn) of the table, in any order of its rows, and no group holds two of them."""
    turns = candidates_table(seed).assign(mark=lambda rows: range(len(rows)))
    grouped = group(turns, BY_TURN, mixed())
    keys = turns.set_index("mark")[list(BY_TURN)].apply(tuple, axis=1)
    assert partition(grouped) == {frozenset(keys.index[keys == key]) for key in set(keys)}
    again = group(shuffled(turns, np.random.default_rng(seed)), BY_TURN, mixed())
    assert again.set_index("mark")["group"].to_dict() == grouped.set_index("mark")["group"].to_dict()


@pytest.mark.parametrize("keys", [
    [(0,), ("0",), (-0.5,), ("-0.5",)], [("a · b", "c"), ("a", "b · c"), ("a · b · c", "")],
    [("'a'",), ("a",), ("None",), (True,), ("True",)],
])  # fmt: skip
def test_keys_that_read_alike_stay_apart(keys):
    rows = [key for key in keys for _ in range(2)]
    turns = pd.DataFrame(rows, columns=[f"k{i}" for i in range(len(keys[0]))], dtype=object)
    turns = turns.assign(team_reward=1.0)
    assert group(turns, list(turns.columns[:-1]), mixed())["group"].nunique() == len(keys)


def test_categories_are_compared_by_value_and_unused_ones_make_no_group():
    task = pd.Categorical(["a", "b", "a"], categories=["unused", "b", "a"])
    turns = table(task=task, episode=pd.Categorical(list("xyz")), agent="p", turn=0, team_reward=[0.0, 1.0, 2.0])
    plain = turns.astype({"task": str, "episode": str})
    for credit in (mixed(), episode_return()):
        assert group(turns, "task", credit)["group"].tolist() == group(plain, "task", credit)["group"].tolist()
        assert group(turns, "task", credit)["credit"].tolist() == [0.0, 1.0, 2.0]


def test_a_group_with_several_prompts_is_refused_on_request():
    """By the ids that were read, where the table has them."""
    turns = at_turn_0(prompt=["at a3", "at b3"])
    for other in (turns, at_turn_0(prompt="at a3", prompt_ids=[[1, 2], [1, 3]])):
        with pytest.raises(TableError, match=r"answer different prompts, first at .*'t3'.*agent 'solver', turn 0"):
            group(other, BY_TURN, mixed(), same_prompt=True)
    assert group(turns, BY_TURN, mixed())["group"].nunique() == 1
    for alike in (at_turn_0(prompt="at a3"), at_turn_0(prompt_ids=[[1, 2], np.array([1, 2])])):
        group(alike, BY_TURN, mixed(), same_prompt=True)
    with pytest.raises(TableError, match="column 'prompt' is missing"):
        group(at_turn_0(), BY_TURN, mixed(), same_prompt=True)


@pytest.mark.parametrize("table, words", [
    (at_turn_0().drop(columns="turn"), "column 'turn' is missing; it is added by `rollout`"),
    (at_turn_0(agent=["solver", None]), r"group: column 'agent' is empty .* at task 't3'"),
    (at_turn_0(credit=0.0), "group: column 'credit' is already there and would be overwritten"),
    ([{"task": "t"}], r"give a table of turns .*, not list"),
    (pd.concat([at_turn_0(), table(task=["t", "u"])], axis=1), r"columns \['task'\] occur twice"),
])  # fmt: skip
def test_what_is_no_table_of_turns_is_refused(table, words):
    with pytest.raises(TableError, match=words):
        group(table, BY_TURN, mixed())


@pytest.mark.parametrize("column, value", [
    ("team_reward", float("nan")), ("team_reward", "1.0"), ("local_reward", float("inf")), ("local_reward", None),
])  # fmt: skip
def test_a_reward_that_is_no_finite_number_is_refused_with_its_place(column, value):
    with pytest.raises(TableError, match=f"'{column}' is .*task 't3'.*agent 'solver', turn 0, candidate 1"):
        group(at_turn_0(**{column: [0.0, value]}), BY_TURN, mixed())


def test_a_credit_is_a_finite_number_on_the_index_of_its_table_or_an_array():
    with pytest.raises(TableError, match=r"group, credit=<.*: column 'credit' is .*task 't3'.*candidate 1"):
        group(at_turn_0(), BY_TURN, lambda turns: turns["team_reward"] / (1 - turns["team_reward"]))
    turns = episodes_table(0).sample(frac=1, random_state=0)
    lengths = [float(len(node)) for node in turns["node"]]
    with pytest.raises(TableError, match=r"gave \d+ numbers on another index for \d+ rows; give a Series"):
        group(turns, "task", lambda rows: pd.Series([float(len(node)) for node in rows["node"]]))
    found = group(turns, "task", lambda rows: np.array([float(len(node)) for node in rows["node"]]))
    assert found["credit"].tolist() == lengths and found.index.equals(turns.index)
    with pytest.raises(
        TableError, match=r"group: credit <.* gave int for \d+ rows; give a Series on the table's index"
    ):
        group(turns, "task", len)


def test_the_same_candidate_of_another_node_or_agent_is_another_call():
    group(at_turn_0(candidate=[1, 1], node=["e/0", "e/1"]), "task", mixed())
    group(at_turn_0(candidate=[1, 1], agent=["solver", "verifier"]), "task", mixed())


def test_the_schema_gives_every_column_a_meaning_and_a_cell():
    declared = schema()
    assert list(declared["column"]) == list(SCHEMA) and declared["meaning"].str.len().gt(5).all()
    added_by = {"rollout", "group", "normalize", "select", "entropies"}
    assert set(declared["added_by"]) == added_by and set(ROLLOUT) < set(ADDED_BY)


def test_lists_identify_a_group():
    """Prompts of equal token ids are one group, as lists and as arrays."""
    turns = pd.DataFrame({"task": "t", "episode": list("abc"), "agent": "x", "turn": 0, "team_reward": [1.0, 0.0, 5.0]})
    for ids in ([[1, 2], [1, 2], [1]], [np.array([1, 2]), np.array([1, 2]), np.array([1])]):
        found = group(turns.assign(prompt_ids=ids), "prompt_ids", episode_return())
        assert found["group"].tolist() == ["[1, 2]", "[1, 2]", "[1]"]
        assert normalize(found, center=("prompt_ids",), scale="none")["advantage"].tolist() == [0.5, -0.5, 0.0]
