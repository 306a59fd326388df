"""Exercises of notebook 16: running a tool call, trained tokens, and malformed calls of each agent."""

import numpy as np
import pandas as pd

from mas_lab.course.compare import close, close_by, entries, need, result_of
from mas_lab.course.exercises import exercise

STATUSES = ("none", "ok", "invalid_json", "unclosed", "unknown_tool", "wrong_arguments")


@exercise("16.1")
def run(answer):
    rng = np.random.default_rng(161)
    for number in range(8):
        a, op, b = int(rng.integers(10, 99)), "+-"[number % 2], int(rng.integers(10, 99))
        name = f"call_{number}_0"
        call = {"id": name, "function": {"name": "calculate", "arguments": {"a": a, "op": op, "b": b}}}
        yours = result_of(answer, call)
        right = {"role": "tool", "tool_call_id": name, "content": str(a + b if op == "+" else a - b)}
        need(isinstance(yours, dict), f"return a message, a dict, not {type(yours).__name__}")
        for key, value in right.items():
            need(yours.get(key) == value, f"{a} {op} {b}: your {key!r} is {yours.get(key)!r}; it should be {value!r}")


def _rows(seed: int) -> pd.DataFrame:
    """Return rows of two agents with statuses and token ids."""
    rng = np.random.default_rng(seed)
    agents = rng.permutation(["opener", "closer"] * int(rng.integers(20, 40)))
    drawn = rng.choice(STATUSES, len(agents), p=[0.4, 0.3, *[0.075] * 4])
    ids = {
        column: [rng.integers(0, 50, rng.integers(*lengths)).tolist() for _ in agents]
        for column, lengths in (("prompt_ids", (20, 70)), ("completion_ids", (1, 30)))
    }
    return pd.DataFrame({"agent": agents, "call_status": drawn, **ids})


@exercise("16.2")
def tokens(answer):
    for seed in range(4):
        rows = _rows(seed)
        yours = entries(result_of(answer, rows), 2, "trained, and only read")
        for name, column, number in zip(("trained", "read"), ("completion_ids", "prompt_ids"), yours, strict=True):
            close(number, rows[column].map(len).sum(), f"a table of {len(rows)} rows, tokens {name}", 1e-9)


@exercise("16.3")
def malformed(answer):
    for seed in range(4, 8):
        rows = _rows(seed)
        called = rows[rows["call_status"] != "none"]
        right = (called["call_status"] != "ok").groupby(called["agent"]).mean()
        close_by(result_of(answer, rows), right, f"shares of {len(called)} calls")
