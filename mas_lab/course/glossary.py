"""The words of the course, with a meaning and a source for each, from `glossary.csv`.

Leaves out: the columns of the table, which `lab.schema()` has.
"""

import difflib
from pathlib import Path

import pandas as pd

from mas_lab.display.documented_frame import documented

TERMS = pd.read_csv(Path(__file__).with_suffix(".csv"), keep_default_na=False)
"""Columns `term`, `meaning` and `source`, in order. The source is empty for terms of the field and of this kit."""


def glossary(*words: str) -> pd.DataFrame:
    """Return the meaning of some words, or of all.

    Args:
        *words: The words, in upper or lower case. Without any: the whole glossary.

    Returns:
        A table with the columns `term`, `meaning` and `source`, which a notebook shows in full.

    Raises:
        KeyError: A word is not in the glossary. The message names similar ones.
    """
    places = {term.lower(): place for place, term in enumerate(TERMS["term"])}
    for word in words:
        if str(word).lower() not in places:
            like = difflib.get_close_matches(str(word).lower(), places, n=3, cutoff=0.4)
            raise KeyError(f"the glossary has no {word!r}" + (f"; like it: {', '.join(like)}" if like else ""))
    chosen = [places[word.lower()] for word in words]
    return documented(TERMS.iloc[chosen] if words else TERMS)
