"""What the texts of notebooks are compared with: recorded runs and studies."""

from functools import cache

import forms
import pandas as pd

import mas_lab as lab
from mas_lab.paths import data_dir
from mas_lab.study.record import Recorded

RESULTS = data_dir() / "results"
MASTERS = {path.stem[:2]: path for path in forms.masters()}
TEXTS = {number: path.read_text(encoding="utf-8") for number, path in MASTERS.items()}


def says(number: str, told: str, *values, **named) -> None:
    """Fail unless notebook `number` has this text, with these values in its gaps."""
    told = told.format(*values, **named)
    assert told in TEXTS[number], f"notebook {number} does not say: {told}"


def csv(path: str) -> pd.DataFrame:
    return pd.read_csv(RESULTS / path)


@cache
def study(name: str) -> Recorded:
    return Recorded(RESULTS / "studies" / name)


@cache
def board(name: str) -> lab.AblationBoard:
    return lab.AblationBoard(study(name))


@cache
def agents(name: str) -> pd.DataFrame:
    return study(name).agents


def finals(name: str, task: str) -> pd.Series:
    """Final score by recipe, over all seeds."""
    table = board(name).table
    return table[table["env"] == task].set_index("recipe")["final"]


def runs(name: str, task: str, recipe: str) -> list[float]:
    """Final score of each seed."""
    table = board(name).runs
    return table.loc[(table["env"] == task) & (table["recipe"] == recipe), "final"].tolist()


def difference(name: str, task: str, recipe: str) -> pd.Series:
    """The row of differences to the baseline."""
    table = board(name).differences
    return table[(table["env"] == task) & (table["recipe"] == recipe)].iloc[0]


def between(values) -> str:
    return f"between {min(values):.2f} and {max(values):.2f}"


def listed(values) -> str:
    """`0.79, 0.80 and 0.80`."""
    *first, last = (f"{value:.2f}" for value in values)
    return f"{', '.join(first)} and {last}"
