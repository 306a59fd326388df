"""The runs are small tables with each defect, made by hand; the trained ones: notebook 13 itself."""

from types import SimpleNamespace

import pandas as pd

import mas_lab as lab
from mas_lab.course.checks.n13 import found

ROWS = [
    {"task": "t0", "agent": "a", "group": "g0", "advantage": 1.0, "completion_ids": [7, 1], "episode": "e0"},
    {"task": "t0", "agent": "a", "group": "g0", "advantage": -1.0, "completion_ids": [8, 1], "episode": "e1"},
    {"task": "t0", "agent": "b", "group": "g1", "advantage": 0.0, "completion_ids": [7, 7, 1], "episode": "e1"},
]


def run(mismatch=0.0, **changed):
    turns = pd.DataFrame(ROWS)
    for column, (row, value) in changed.items():
        turns.at[row, column] = value
    return SimpleNamespace(turns=turns, stats=pd.DataFrame({"step": [0, 1], "mismatch": [0.0, mismatch]}))


STALE, LONE, PADDED = run(2.0), run(advantage=(2, 0.5)), run(completion_ids=(1, [8, 1, 0, 0]))
MIXED, FINE = run(group=(2, "g0")), run()
RUNS = {"A": STALE, "B": LONE, "D": PADDED, "E": MIXED, "mended": FINE}


ENV = lab.make_env("plan_path")
UNTRAINED = lab.Team.shared(lab.load_policy(ENV.pocket), ENV.agents)
C = SimpleNamespace(env=ENV, team=UNTRAINED, curve=pd.DataFrame({"success": [0.5, 1.0]}))


def lazy(turns, stats):
    return "stale weights" if stats["mismatch"].max() > 1e-3 else "fine"


RIGHT = {
    "13.1": [(STALE, "stale weights", 1)],
    "13.2": [(LONE, "lone row", 2)],
    "13.3": [(C, "best of K", 0.48)],
    "13.4": [(PADDED, "padding", 1, 2)],
    "13.5": [(MIXED, "group key", 0, 2)],
    "13.6": [(found, RUNS)],
}
WRONG = {
    "13.1": [(STALE, "padding", 1), (STALE, "stale weights", 0), (STALE, "stale", 1)],
    "13.2": [(LONE, "lone row", 0), (FINE, "lone row", 2), (LONE, "group key", 2), (LONE, "lone row", 99)],
    "13.3": [(C, "padding", 0.7), (C, "best of K", 0.97)],
    "13.4": [(PADDED, "padding", 0, 0), (PADDED, "padding", 1, 4), (PADDED, "lone row", 1, 2)],
    "13.5": [(MIXED, "group key", 0, 1), (FINE, "group key", 0, 2), (MIXED, "best of K", 0, 2)],
    "13.6": [(lazy, RUNS), (lambda turns, stats: "fine", RUNS), (lambda turns, stats: None, RUNS)],
}
