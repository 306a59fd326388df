r"""Write an answer in one spelling, without its unit: `3 \geq x` as `x \le 3`, `4\text{ cm}` as `4` and `cm`.

Equal values are left to `math-verify`: this module changes how an answer is written, never what it says. The spellings
stand in a TOML file beside the tasks.
"""

import re
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

TEXT = r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|math(?:bf|it|rm|sf|tt)|[mh]box|operatorname|emph)\s*\{"
SPELLINGS = tomllib.loads(Path(__file__).parents[1].joinpath("spellings.toml").read_text(encoding="utf-8"))
PATTERNS = [(re.compile(pattern.replace("TEXT", TEXT)), replacement) for pattern, replacement in SPELLINGS.items()]
WRAPPED = re.compile(TEXT + r"([^{}]*)\}")
UNIT = re.compile(
    r"(.*(?:\d|\\pi).*?)(?!.*\b(?:not|but|to|least|most|more|less|than|about)\b)"
    rf"((?:[\s/]*(?:\\cdot)?\s*{TEXT}[A-Za-z ./]+\}}(?:\^\s*\{{?\d\}}?)?)+"
    r"|(?<=[\d)}])\s+[A-Za-z]{2,}(?: [A-Za-z]+){,3}(?:\^\s*\{?\d\}?)?)[ .]*"
)
"""A number and its unit: any words behind it but those that make it another answer."""
REPEATING = re.compile(r"(\d*)\.(\d*)\\(?:overline|bar)\s*\{(\d+)\}")
WORDS = re.compile(r"[(\s]*[^\W\d_][\w\s.,'\u2019()\"&-]*")
LONG_WORD = re.compile(r"[^\W\d_]{3,}")


class Answer(NamedTuple):
    text: str
    """Mathematics or words, without unit, LaTeX text commands and degree signs."""
    unit: str
    """Letters and digits of its unit, such as `cm2`."""
    words: list[str]
    """Letters and digits of each part of a list of words, sorted; empty if it has a sign of mathematics.

    A single letter keeps its case.
    """
    is_text: bool
    """Whether it is words, and they stand in a text command or have a run of three letters; `ab` may be a product."""


@lru_cache(maxsize=8192)
def read(text: str) -> Answer:
    """Return an answer in one spelling."""
    for pattern, spelling in PATTERNS:
        text = pattern.sub(spelling, text.strip())
    measured = UNIT.fullmatch(WRAPPED.sub(r"\1", text) if WRAPPED.fullmatch(text) else text)
    text, unit = measured.groups() if measured else (text, "")
    bare = text
    while WRAPPED.search(bare):
        bare = WRAPPED.sub(r"\1", bare)
    bare = REPEATING.sub(_sum, bare).strip().rstrip(".,:").strip()
    parts = ["".join(filter(str.isalnum, part)) for part in bare.split(",")] if WORDS.fullmatch(bare) else []
    words = sorted(part if len(part) == 1 else part.casefold() for part in parts)
    letters = re.sub(r"[^a-z\d]", "", WRAPPED.sub(r"\1", unit).lower())
    return Answer(bare, letters, words, bool(words and (WRAPPED.search(text) or LONG_WORD.search(bare))))


def _sum(found: re.Match) -> str:
    r"""Return a decimal that repeats as a sum: 0.1\overline{6} is 1/10 + 6/90."""
    zeros, nines = "0" * len(found[2]), "9" * len(found[3])
    return rf"(\frac{{{found[1]}{found[2]}0}}{{1{zeros}0}}+\frac{{{found[3]}}}{{{nines}{zeros}}})"
