import pandas as pd

import mas_lab as lab
from mas_lab.course.checks.n08 import BRANCHES, branch_returns, story

HALF = [0.9, -1.1, -0.3, 0.5]


def marloo(table, least=1, lone=0.0):
    total, size = (table.groupby("group")["credit"].transform(how) for how in ("sum", "size"))
    found = table["credit"] - (total - table["credit"]) / (size - 1).clip(lower=least)
    return found if lone is None else found.where(size > 1, lone)


def with_itself(table):
    return table["credit"] - table.groupby("group")["credit"].transform("mean")


def cost(g, agents, turns, mode, crossed=lambda g, agents: g**agents):
    branches = g if mode == "aligned" else crossed(g, agents)
    nodes = sum(branches**turn for turn in range(turns))
    return agents * g * nodes, branches * nodes


def leaves_alone(g, agents, turns, mode):
    branches = g if mode == "aligned" else g**agents
    return agents * g * branches ** (turns - 1), branches**turns


def returns(of):
    return ({gamma: of(gamma) for gamma in (0.5, 1.0)},)


FIRST, SECOND, THIRD, FOURTH = (sentence.split() for sentence in story().split(" .")[:4])
SUMMARY = (" ".join(FIRST), f"{' '.join(FIRST)} then {' '.join(SECOND)}")
NOTHING = ("red blue pink gray", "red blue pink gray also one two three four")
NOUNS = [sentence[place] for place in (1, 3, 5) for sentence in (FIRST, SECOND, THIRD, FOURTH)]
SHUFFLED = (" ".join(NOUNS[:6]), " ".join(["then", *NOUNS[2:6], "but", *NOUNS[6:10], "so", *NOUNS[10:]]))
RIGHT = {
    "08.1": [({"short": HALF, "detailed": HALF},)],
    "08.2": [(marloo,), (lambda table: lab.normalize(table, center="loo", scale="none")["advantage"],)],
    "08.3": [(cost,)],
    "08.4": [returns(branch_returns)],
    "08.5": [(NOTHING,)],
    "08.6": [(SHUFFLED,)],
}
WRONG = {
    "08.1": [({"short": [round(a / 0.78, 2) for a in HALF], "detailed": HALF},), ({"short": HALF},), (HALF,)],
    "08.2": [
        (with_itself,),
        (lambda table: marloo(table, least=0, lone=None),),
        (lambda table: marloo(table, lone=None),),
        (lambda table: lab.normalize(table, center="loo", scale="none"),),
        (lambda table: pd.Series([0.0]),),
    ],
    "08.3": [
        (lambda g, agents, *given: (agents * cost(g, agents, *given)[1], cost(g, agents, *given)[1]),),
        (leaves_alone,),
        (lambda *given: cost(*given, crossed=lambda g, agents: g * agents),),
        (lambda *given: 16,),
    ],
    "08.4": [returns(lambda gamma: branch_returns(1.0)), returns(lambda gamma: BRANCHES), (1.5,)],
    "08.5": [(SUMMARY,), (("red blue pink gray", "red blue pink gray"),), ("red blue",)],
    "08.6": [(SUMMARY,), (NOTHING,), ((" ".join(NOUNS[:6]), " ".join(NOUNS[6:])),)],
}
