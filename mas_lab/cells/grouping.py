"""Cell 2, `group`: who is compared with whom, and on which number.

Adds `credit` and `group`. Group identity is the values of the `by` columns and nothing else: never the position of a
row, a stride, the prompt's text or nesting, so that shuffling the rows changes nothing. Leaves out: the comparison
itself (`normalize`).
"""

from collections.abc import Sequence

import pandas as pd

from mas_lab.cells.credits import Credit
from mas_lab.table import TableError, column, forbid, place, require


def group(turns: pd.DataFrame, by: Sequence[str] | str, credit: Credit, same_prompt: bool = False) -> pd.DataFrame:
    """The table with `credit` and `group` added.

    `by`: the columns whose values name a group. GRPO compares by task; Dr. MAS by (task, agent); AT-GRPO by (episode,
    agent, turn), equation 3 of arXiv 2510.11062; MAGRPO by (node, agent).
    `credit`: `table -> Series`, see `mas_lab.cells.credits`.
    `same_prompt`: refuse a group whose rows answer different prompts, as AT-GRPO's groups must not.

    Raises `TableError` on a missing column, a NaN or infinite reward, or a duplicated (node, candidate, agent).
    """
    by = (by,) if isinstance(by, str) else tuple(by)
    require(turns, by, "group")
    forbid(turns, ["credit", "group"], "group")
    _refuse_duplicates(turns)
    scored = turns.assign(credit=credit(turns), group=_labels(turns, by))
    require(scored, ["credit"], "group")
    scored["credit"] = scored["credit"].astype(float)
    if same_prompt:
        _refuse_mixed_prompts(scored)
    return scored


def _labels(turns: pd.DataFrame, by: tuple[str, ...]) -> pd.Series:
    """One readable string per distinct key; values are quoted where plain text would merge two keys."""
    keys = turns[list(by)].drop_duplicates()
    for write in (str, repr):
        labels = [" · ".join(write(value) for value in key) for key in keys.astype(object).itertuples(index=False)]
        if len(set(labels)) == len(labels):
            break
    by_key = dict(zip(keys.astype(object).itertuples(index=False, name=None), labels, strict=True))
    rows = turns[list(by)].astype(object).itertuples(index=False, name=None)
    return pd.Series([by_key[row] for row in rows], index=turns.index, name="group", dtype=object)


def _refuse_duplicates(turns: pd.DataFrame) -> None:
    names = set(turns.columns)
    if not {"candidate", "agent"} <= names or not ("node" in names or {"episode", "turn"} <= names):
        return
    call = pd.DataFrame({name: column(turns, name) for name in ("node", "candidate", "agent")})
    twice = call.duplicated()
    if twice.any():
        raise TableError(
            f"group: (node, candidate, agent) stands twice, at {place(turns[twice].iloc[0])}; "
            "one row is one model call, and a padding or repeated row would enter the statistics twice"
        )


def _refuse_mixed_prompts(turns: pd.DataFrame) -> None:
    prompt = "prompt_ids" if "prompt_ids" in turns.columns else "prompt"
    require(turns, [prompt], "group(same_prompt=True)")
    said = turns[prompt].map(tuple) if prompt == "prompt_ids" else turns[prompt]
    mixed = said.groupby(turns["group"]).transform("nunique") > 1
    if mixed.any():
        row = turns[mixed].iloc[0]
        raise TableError(
            f"group: the rows of group {row['group']!r} answer different prompts, first at {place(row)}; "
            "group by more columns, or pass same_prompt=False if you mean to compare across prompts"
        )
