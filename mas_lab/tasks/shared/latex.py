r"""Write an answer in one spelling, without its unit: `3 \geq x` as `x \le 3`, `4\text{ cm}` as `4` and `cm`.

Equal values are left to `math-verify`: this module changes how an answer is written, never what it says.
"""

import re
from dataclasses import dataclass
from fractions import Fraction

_SIGNS = str.maketrans({
    "\u2212": "-", "\u2010": "-", "\u2011": "-", "\u2012": "-", "\u2013": "-", "\u2014": "-", "\u00d7": r"\times ",
    "\u00b7": r"\cdot ", "\u2264": r"\le ", "\u2265": r"\ge ", "\u2260": r"\ne ", "\u2a7d": r"\le ", "\u2a7e": r"\ge ",
    "\u03c0": r"\pi ", "\u221e": r"\infty ", "\u222a": r"\cup ", "\u2229": r"\cap ", "\u2208": r"\in ", "\u00b0": "",
    "\u2205": r"\emptyset ", "\u00b1": r"\pm ", "\u00a0": r"\,", "\u2009": r"\,", "\u202f": r"\,", "\u20ac": "",
    "\u00a3": "",
})  # fmt: skip
_TEXT = r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|math(?:bf|it|rm|sf|tt)|[mh]box|operatorname|emph)\s*\{"
_SPELLINGS = [(re.compile(pattern), spelling) for pattern, spelling in (
    (r"<=|\\leq(?:q|slant)?(?![a-z])", r"\\le "), (r">=|\\geq(?:q|slant)?(?![a-z])", r"\\ge "),
    (r"!=|\\neq(?![a-z])|\\not\s*=", r"\\ne "), (r"\\lt(?![a-z])", "<"), (r"\\gt(?![a-z])", ">"),
    (r"\\(?:boxed|fbox)(?![a-z])", ""), (r"\\varnothing", r"\\emptyset"), (r"\\[dtc]frac(?![a-z])", r"\\frac"), (r"\{[pbB]matrix\}", "{pmatrix}"),
    (r"(?<=\d)(?:\{,\}|,?\s*\\[,;! ])\s*(?=\d{3}(?!\d))", ""),  # between thousands
    (r"\\degree(?![a-z])|\^\s*\{?\s*\\circ\s*\}?", ""),
    (rf"{_TEXT}\s*(?:percent(?:age)?|pct)\s*\}}|\bpercent(?:age)?\b|\\?%", r"\\%"),
    (r"^\s*\$?\s*\\\$(.+)$", r"\1\\text{ dollars}"),
    (r"\\(?:left|right|[bB]igg?[lr]?|displaystyle)(?![a-z])|(?<!\\)\\[()\[\]]|\$", ""),
    (r"(?<!\\)\\[,;:! ]|~|\\q?quad(?![a-z])|\s+", " "),
    (r"\((\d[\dA-Z]*)\)\s*_", r"\1_"), (r"(?<![\\a-zA-Z])(sqrt|sin|cos|tan|log|ln|pi)(?![a-z])", r"\\\1"),
    (r"(\d) +(\d+)/(\d+)$", r"\1\\frac{\2}{\3}"),
)]  # fmt: skip
_WRAPPED = re.compile(_TEXT + r"([^{}]*)\}")
_UNIT = re.compile(
    rf"(.*(?:\d|\\pi).*?)((?:[\s/]*(?:\\cdot)?\s*{_TEXT}[A-Za-z ./]+\}}(?:\^\s*\{{?\d\}}?)?)+"
    r"|(?<=[\d)}])\s+[A-Za-z]{2,}(?: [A-Za-z]+){,3}(?:\^\s*\{?\d\}?)?)[ .]*"
)
_NO_UNIT = re.compile(r"\b(?:or|and|not|but|to|least|most|more|less|than|about)\b")
"""Words that make a number another answer; other words after a number are its unit."""
_AND = re.compile(r",?\s*(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])|\\(?:lor|land|vee|wedge)(?![a-z])|;")
_THOUSANDS = re.compile(r"(?<![\d.])\d{1,3}(?:,\d{3})+(?!\d)")
_REPEATING = re.compile(r"(\d*)\.(\d*)\\(?:overline|bar)\s*\{(\d+)\}")
_FALLS = re.compile(r"(>|\\ge(?![a-z]))")
_RISES = {">": "<", r"\ge": r"\le "}
_NUMBER = re.compile(r"([+-]?(?=\.?\d)(?:\d{1,3}(?: \d{3})+|\d+)?(?:\.\d*)?(?:[eE][+-]?\d{1,3})?)(?:/(\d+))?", re.ASCII)
_BASE = re.compile(r"(?<![\\A-Za-z])\d[\dA-Z]*\)?_|^[\dA-Z]{2,}_")
_BASE_NAMES = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_BASE_NAME = re.compile(rf"(?<=_\{{)({'|'.join(_BASE_NAMES)})(?=\}})")
_WORD = re.compile(r"[^\W\d_]{3,}")
_WORDS = re.compile(r"[(\s]*[^\W\d_][\w\s.,'\u2019()\"&-]*")


@dataclass(frozen=True)
class Answer:
    text: str
    """Mathematics or words in one spelling, without unit, LaTeX text commands and degree signs."""
    unit: str = ""
    """Letters and digits of its unit, such as `cm2`."""
    is_text: bool = False
    """Whether it is words and no mathematics: nothing but words, in a text command or with a run of three letters."""

    @property
    def spelling(self) -> str:
        """Return the text without spaces and braces."""
        return re.sub(r"[\s{}]", "", self.text)

    @property
    def words(self) -> list[str]:
        """Return the parts of a list of words in a fixed order, by letters and digits; empty if it is no words.

        A single letter keeps its case.
        """
        parts = ("".join(filter(str.isalnum, part)) for part in self.text.split(",") if _WORDS.fullmatch(self.text))
        return sorted(part if len(part) == 1 else part.casefold() for part in parts)

    @property
    def brackets(self) -> str:
        """Return the outer brackets of a set, tuple or interval, such as `[)`; empty if there are none."""
        text = re.split(r"\\in(?![a-z])", self.text.replace("\\{", "{").replace("\\}", "}"))[-1].strip()
        return text[0] + text[-1] if re.fullmatch(r"[(\[{].*,.*[)\]}]", text) else ""

    @property
    def in_base(self) -> bool:
        """Return whether a numeral has a base, as in `2516_8`."""
        return _BASE.search(self.spelling) is not None

    @property
    def number(self) -> Fraction | None:
        """Return the value of an integer, a decimal or a simple fraction; `None` for any other text."""
        found = _NUMBER.fullmatch(self.text)
        if not found or (found[2] and ("." in found[1] or not int(found[2]))):
            return None
        return Fraction(found[1].replace(" ", "")) / int(found[2] or 1)


def read(text: str) -> Answer:
    """Return an answer in one spelling."""
    text = text.translate(_SIGNS).strip()
    for pattern, spelling in _SPELLINGS:
        text = pattern.sub(spelling, text)
    whole = _WRAPPED.fullmatch(text.strip())
    found = _UNIT.fullmatch(whole[1] if whole else text)
    unit = found[2] if found and not _NO_UNIT.search(found[2]) else ""
    bare = wrapped = found[1] if unit else text
    while (inner := _WRAPPED.sub(r"\1", bare)) != bare:
        bare = inner
    bare = _BASE_NAME.sub(lambda found: str(_BASE_NAMES.index(found[1]) + 2), bare)
    bare = _AND.sub(",", _REPEATING.sub(_fraction, bare)).strip().rstrip(".,:").strip()
    if not re.search(r"[(\[]|\\\{", bare):  # in brackets, a comma may separate
        bare = _THOUSANDS.sub(lambda found: found[0].replace(",", ""), bare)
    if _FALLS.search(bare) and not re.search(r"<|\\le(?![a-z])", bare):  # 3 > x is x < 3
        bare = "".join(_RISES.get(part, part) for part in reversed(_FALLS.split(bare)))
    if re.fullmatch(r"[^%,=<]+\\%", bare):
        bare = rf"\frac{{{bare[:-2]}}}{{100}}"
    is_text = _WORDS.fullmatch(bare) is not None and (bool(whole) or wrapped != inner or bool(_WORD.search(bare)))
    letters = re.sub(r"[^a-z\d]", "", _WRAPPED.sub(r"\1", unit).lower())
    return Answer(bare, letters, is_text)


def _fraction(found: re.Match) -> str:
    """Return a decimal that repeats as a fraction: 0.1\\overline{6} is (16 - 1) / 90."""
    whole, fixed, repeated = found.groups()
    below = (10 ** len(repeated) - 1) * 10 ** len(fixed)
    return rf"\frac{{{int(whole + fixed + repeated) - int(whole + fixed or 0)}}}{{{below}}}"
