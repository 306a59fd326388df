import pandas as pd

import mas_lab as lab
from mas_lab.course.checks.n08 import BRANCHES, branch_returns, story

HALF = [0.9, -1.1, -0.3, 0.5]


def marloo(table):
    total, size = (table.groupby("group")["credit"].transform(how) for how in ("sum", "size"))
    return (table["credit"] - (total - table["credit"]) / (size - 1).clip(lower=1)).where(size > 1, 0.0)


def lone_rows_unjudged(table):
    total, size = (table.groupby("group")["credit"].transform(how) for how in ("sum", "size"))
    return table["credit"] - (total - table["credit"]) / (size - 1)


def lone_rows_paid_raw(table):
    total, size = (table.groupby("group")["credit"].transform(how) for how in ("sum", "size"))
    return table["credit"] - (total - table["credit"]) / (size - 1).clip(lower=1)


def with_itself(table):
    return table["credit"] - table.groupby("group")["credit"].transform("mean")


def over_all_rows(table):
    others = (table["credit"].sum() - table["credit"]) / (len(table) - 1)
    return table["credit"] - others


def cost(g, agents, turns, mode):
    branches = g if mode == "aligned" else g**agents
    nodes = sum(branches**turn for turn in range(turns))
    return agents * g * nodes, branches * nodes


def as_many_completions_as_actions(g, agents, turns, mode):
    return agents * cost(g, agents, turns, mode)[1], cost(g, agents, turns, mode)[1]


def leaves_alone(g, agents, turns, mode):
    branches = g if mode == "aligned" else g**agents
    return agents * g * branches ** (turns - 1), branches**turns


def g_times_agents(g, agents, turns, mode):
    branches = g if mode == "aligned" else g * agents
    nodes = sum(branches**turn for turn in range(turns))
    return agents * g * nodes, branches * nodes


def summed(gamma):
    first = {"a": 1.0 + gamma * 2.0, "b": 1.6 + gamma * 0.4}
    return {name: first.get(name, worth) for name, worth in BRANCHES.items()}


def returns(of):
    return {gamma: of(gamma) for gamma in (0.5, 1.0)}


FIRST, SECOND, THIRD, FOURTH = (sentence.split() for sentence in story().split(" .")[:4])
SUMMARY = (" ".join(FIRST), f"{' '.join(FIRST)} then {' '.join(SECOND)}")
NOTHING = ("red blue pink gray", "red blue pink gray also one two three four")
NOUNS = [sentence[place] for place in (1, 3, 5) for sentence in (FIRST, SECOND, THIRD, FOURTH)]
SHUFFLED = (" ".join(NOUNS[:6]), " ".join(["then", *NOUNS[2:6], "but", *NOUNS[6:10], "so", *NOUNS[10:]]))
RIGHT = {
    "08.1": [({"short": HALF, "detailed": HALF},), ({"detailed": tuple(HALF), "short": HALF},)],
    "08.2": [(marloo,), (lambda table: lab.normalize(table, center="loo", scale="none")["advantage"],)],
    "08.3": [(cost,), (lambda *given: list(cost(*given)),)],
    "08.4": [(returns(branch_returns),)],
    "08.5": [(NOTHING,)],
    "08.6": [(SHUFFLED,)],
}
WRONG = {
    "08.1": [
        (...,),
        ({"short": [round(a / 0.78, 2) for a in HALF], "detailed": HALF},),
        ({agent: [a / 2 for a in HALF] for agent in ("short", "detailed")},),
        ({agent: [2.4, 0.4, 1.2, 2.0] for agent in ("short", "detailed")},),
        (HALF,),
    ],
    "08.2": [
        (with_itself,),
        (lone_rows_unjudged,),
        (lone_rows_paid_raw,),
        (over_all_rows,),
        (lambda table: ...,),
        (lambda table: lab.normalize(table, center="loo", scale="none"),),
        (lambda table: pd.Series([0.0]),),
    ],
    "08.3": [(as_many_completions_as_actions,), (leaves_alone,), (g_times_agents,), (lambda *given: 16,), (...,)],
    "08.4": [
        (returns(summed),),
        (returns(lambda gamma: branch_returns(1.0)),),
        (returns(lambda gamma: BRANCHES),),
        (returns(lambda gamma: {"a": 1.5, "b": 1.3}),),
        (1.5,),
    ],
    "08.5": [(SUMMARY,), (("red blue pink gray", "red blue pink gray"),), (("red", "blue"),), (...,), ("red blue",)],
    "08.6": [(SUMMARY,), (NOTHING,), ((" ".join(NOUNS[:6]), " ".join(NOUNS[6:])),), (SHUFFLED[0],)],
}
