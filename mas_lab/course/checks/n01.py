"""Exercises of notebook 01: numbers of calls, a log-probability, an episode's return, a pick without rewards."""

import numpy as np
import pandas as pd

from mas_lab.course.compare import agrees, asked, close, entries, explored, need, same_rows, tables
from mas_lab.course.exercises import exercise

ASKED = ("episodes(8)", "tree(8)", "joint(2)", "joint(8), all three together")
COUNTS = (8 * 6, 8 * 6, sum(2**level for level in range(1, 7)), 8 * 3)


@exercise(
    "01.1",
    "There are three agents and two rounds. How many decisions follow each other?",
    "episodes and tree: candidates times decisions. joint(2): 2 + 4 + 8 + ..., with one term per decision.",
    "If agents act together, a joint action takes one call of each agent.",
)
def calls(counts):
    for name, yours, ours in zip(ASKED, entries(counts, len(ASKED), "counts"), COUNTS, strict=True):
        close(yours, ours, name, tolerance=1e-9)


@exercise(
    "01.2",
    "First divide the logits by the temperature, then take the log-softmax.",
    "The log-softmax is the token's scaled logit, minus the log of the sum of exp over all scaled logits.",
    "exp(800) overflows. Subtract the largest scaled logit from all: the result is the same, without overflow.",
)
def logprob(answer):
    def right(logits, token, temperature):
        scaled = logits / temperature
        return scaled[token] - np.logaddexp.reduce(scaled)

    rng, drawn = np.random.default_rng(1), ((5, 1.0, 1), (5, 2.0, 1), (40, 0.5, 3), (40, 3.0, 5), (8, 0.7, 2000))
    agrees(answer, right, [(rng.normal(size=n) * spread, int(rng.integers(n)), heat) for n, heat, spread in drawn])


@exercise(
    "01.3",
    "Which rows belong to steps that were really taken? The column `kept` says so.",
    "`drop_duplicates` on episode and depth leaves one row per step.",
)
def returns(answer):
    for number, table in enumerate(tables(6)):
        yours, ours = asked(answer, explored(table)), table.groupby("episode")["team_reward"].sum()
        right = isinstance(yours, pd.Series) and set(yours.index) == set(ours.index)
        need(right, f"return a Series whose index holds the episodes {', '.join(ours.index)}")
        for episode, earned in ours.items():
            close(yours[episode], earned, f"table {number}, {episode}, which earned {earned:.2f}", tolerance=1e-6)


@exercise(
    "01.4",
    "The column `logprobs` holds a list per row: a number for each sampled token.",
    "`turns['logprobs'].map(...)` with a function that takes the mean of a list.",
)
def surest(answer):
    rng = np.random.default_rng(4)
    for _ in range(4):
        said = [(-rng.exponential(size=int(rng.integers(1, 9)))).tolist() for _ in range(8)]
        table = pd.DataFrame({"agent": "planner", "candidate": range(8), "logprobs": said, "temperature": 1.0})
        table = table.assign(local_reward=rng.random(8).round(2), team_reward=0.0, valid=True)
        same_rows(asked(answer, table), table["logprobs"].map(np.mean), table, what="number")
