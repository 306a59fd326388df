"""Filter an index of episodes by a line of words.

The page reads the same grammar (`static/rollouts_filter.js`); a test compares the two. This module leaves out the texts
of the episodes (`texts`).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from mas_lab.widgets.text import escape_control_chars

BLANK = r"\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
"""Characters that a browser treats as white space."""
PART = re.compile(rf'(-?)(?:([a-zA-Z]+):)?(?:"([^"]*)"?|([^{BLANK}]+))')
RANGE = re.compile(r"([0-9]+)(?:-([0-9]+))?")
COUNTED = ("invalid", "truncated", "lone")
FLAGS = ("failed", "succeeded", *COUNTED, "marked")


@dataclass(frozen=True)
class Term:
    """One condition of a filter; `kind` is a flag, "agent", "task", "step", "run" or "text"."""

    kind: str
    value: str = ""
    low: int = 0
    high: int = 0
    negated: bool = False


def parse(line: str) -> list[Term]:
    """Return the terms of a line; a name outside the grammar is read as text."""
    return [term for term in map(_term, PART.finditer(line)) if term.value != "" or term.kind != "text"]


def _term(found: re.Match) -> Term:
    minus, name, quoted, plain = found.groups()
    value, negated = plain if quoted is None else quoted, minus == "-"
    lower, field = value.lower(), (name or "").lower()
    if name is None and quoted is None and lower in FLAGS:
        return Term(lower, negated=negated)
    if field in ("agent", "task"):
        return Term(field if lower else "text", lower, negated=negated)
    if field in ("step", "run") and (span := RANGE.fullmatch(value)):
        return Term(field, value, int(span[1]), int(span[2] or span[1]), negated)
    return Term("text", f"{name}:{value}".lower() if name is not None else lower, negated=negated)


def matching(
    index: pd.DataFrame,
    line: str,
    have: Callable[[np.ndarray, str], np.ndarray],
    marked: Callable[[], np.ndarray],
) -> np.ndarray:
    """Return a mask of the index rows that meet all conditions of a line.

    `have(places, word)` returns which of these rows have a word in their texts. It is called last, and only for the
    rows that are left. `marked()` returns which rows have a mark.
    """
    terms, found = parse(line), np.ones(len(index), bool)
    for term in terms:
        if term.kind != "text":
            found &= _has(index, term, marked) ^ term.negated
    for term in terms:
        if term.kind == "text":
            left = np.flatnonzero(found)
            found[left] = have(left, term.value) ^ term.negated
    return found


def _has(index: pd.DataFrame, term: Term, marked: Callable) -> np.ndarray:
    if term.kind in ("failed", "succeeded"):
        return (index["success"] == (term.kind == "succeeded")).fillna(False).to_numpy(bool)
    if term.kind in COUNTED:
        return (index[term.kind] > 0).to_numpy(bool)
    if term.kind == "marked":
        return marked()
    if term.kind in ("step", "run"):
        return index[term.kind].between(term.low, term.high).to_numpy(bool)
    if term.kind == "agent":
        named = {
            agents: term.value in escape_control_chars(agents).lower().split(", ")
            for agents in index["agents"].unique()
        }
        return index["agents"].map(named).to_numpy(bool)
    return np.fromiter((term.value in escape_control_chars(task).lower() for task in index["task"]), bool, len(index))
