"""The words of the course, with a meaning and a source for each, from `glossary.csv`.

Leaves out: the columns of the table, which `lab.schema()` has.
"""

import csv
import difflib
import html
import textwrap
from pathlib import Path

with (Path(__file__).parent / "glossary.csv").open(encoding="utf-8", newline="") as _file:
    TERMS = {row["term"]: (row["meaning"], row["source"]) for row in csv.DictReader(_file)}
"""Meaning and source of each word, in order. The source is empty for terms of the field and of this kit."""


LEFT = "text-align:left"


class Glossary:
    """Words with their meanings, shown as a table."""

    def __init__(self, terms: dict[str, tuple[str, str]]):
        self.terms = terms

    def __repr__(self) -> str:
        return "\n".join(textwrap.fill(_line(term), 110, subsequent_indent="    ") for term in self.terms)

    def _repr_html_(self) -> str:
        rows = "".join(
            f'<tr><th scope="row" style="{LEFT}">{html.escape(term)}</th>'
            f'<td style="{LEFT};white-space:normal">{html.escape(meaning)}</td><td>{html.escape(source)}</td></tr>'
            for term, (meaning, source) in self.terms.items()
        )
        head = (
            '<thead><tr><th scope="col">word</th><th scope="col">meaning</th><th scope="col">source</th></tr></thead>'
        )
        return f"<table>{head}<tbody>{rows}</tbody></table>"


def glossary(*words: str) -> Glossary:
    """Return the meaning of some words, or of all.

    Args:
        *words: The words, in upper or lower case. Without any: the whole glossary.

    Returns:
        A `Glossary`, which shows itself as a table.

    Raises:
        KeyError: A word is not in the glossary. The message names similar ones.
    """
    known = {term.lower(): term for term in TERMS}
    for word in words:
        if word.lower() not in known:
            like = difflib.get_close_matches(word.lower(), known, n=3, cutoff=0.4)
            raise KeyError(f"the glossary has no {word!r}" + (f"; like it: {', '.join(like)}" if like else ""))
    chosen = [known[word.lower()] for word in words] or list(TERMS)
    return Glossary({term: TERMS[term] for term in chosen})


def _line(term: str) -> str:
    meaning, source = TERMS[term]
    return f"{term}: {meaning}" + (f" ({source})" if source else "")
