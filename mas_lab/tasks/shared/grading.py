r"""Compare two answers: numbers exactly, other mathematics with `math-verify`, and words as SQuAD does.

The page of tasks has a table of what is judged by whom. `math-verify` runs in a child process. Its own time limit needs
the main thread's alarm, which `env.step` does not have, because rollouts step in threads. Without a limit an answer
such as 9^(9^9) would stop the whole program. Finding the answer in a text is not done here, except for `last_boxed`.

Before two answers are compared, each is written in one spelling, without its unit: `3 \geq x` as `x \le 3`,
`4\text{ cm}` as `4` and `cm`. This changes how an answer is written, never what it says. The spellings stand in a TOML
file beside the tasks.
"""

import re
import string
import tomllib
import unicodedata
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from mas_lab.child import ChildEnded, workers

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_MARKS = re.escape(string.punctuation) + "\u2010-\u2027\u2030-\u205e\u00ab\u00bb\u3001\u3002"
_PUNCTUATION = re.compile(rf"(?!(?<=\d)[./]\d|(?<!\w)-\d)[{_MARKS}]")
_LOGIC = re.compile(r"(\\(?:land|wedge)(?![a-z])|\band\b)|\\(?:lor|vee)(?![a-z])|\bor\b")
_RELATION = re.compile(r"[<>\u2264\u2265]|\\(?:[lg]e|[lg]eq|lor|vee|land|wedge)(?![a-z])")
LONGEST = 300
"""Most characters of an answer; a longer one counts as wrong and is not read."""
_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*(?:(\{)|(-?\d[\d.,/]*|[^\s{$]+(?=\s*\$)))")
r"""A box with its brace, or without one, as in `\boxed 5`: a number, or a word before a dollar sign."""
_INNER = re.compile(r"\\(?:boxed|fbox)\s*\{([^{}]*)\}")

_NUMBER = re.compile(r"([+-]?(?=\.?\d)(?:\d{1,3}(?: \d{3})+|\d+)?(?:\.\d*)?(?:[eE][+-]?\d{1,3})?)(?:/(\d+))?", re.ASCII)
_PREFIXED = re.compile(r"[+-]?0(?:[xX][\da-fA-F]+|[bB][01]+|[oO][0-7]+)", re.ASCII)
_BRACKETS = re.compile(r"(?!\([^()]*\)\s*,\s*\(|.*\\c[au]p\b)(?:.*\\in(?![a-z]))?\s*([(\[]|\\\{).*,.*([)\]]|\\\})")
_APART = re.compile(
    r"(?=[-+\d./ ,|&()\[\]{}\\]*$).*\d[ |&\[\]{}]+[-+]?\.?\d|.*(?<![A-Za-z_^] )(?<![\w^.])[\d.]*\d \.?\d"
)
"""Numbers in a row or a grid, which spaces, bars or brackets separate, and not the base and the 4 of `\\log_2 4`."""
_LOOSE = re.compile(r" (?![\w.])|(?<![\w.]) |(?<=\\equiv) ")
"""A space that does not stand between two names or numbers."""
_PASSED_OVER = re.compile(r"^\[(?=[^],]*\]$)|['\"]+|(?:\\ldots ?)+$")
"""What `math-verify` would pass over: square brackets around one value, primes, and dots at the end."""
_NAME = re.compile(r"^\s*(?:([eiI])|[^\W\d_]{3,}[\w ]*)\s*=(?=[^=]*$)")
"""A name that `math-verify` would read as a product of letters or as a constant."""
_VALUE = re.compile(r"\s*([A-Za-z](?:_\w)?)\s*=([^=(\[]+)")
_WORDS_BETWEEN = re.compile(r"[\d.]+ *[A-Za-z]{2,}[A-Za-z, ]*\d.*")
"""Numbers with words between them, such as `3 to 1` and `5 feet 6`."""
_LIST = re.compile(r"[^(\[]*,[^(\[]*")
_LATEX = re.compile(r"\\[A-Za-z]+\*?\s*(?:\{[^{}]*\})?")
_WORD = re.compile(r"(?<![^\W\d_])(?<![-+*/^=<>])(?<![-+*/^=<>] )[^\W\d_]{2,}+(?! ?[-+*/^=<>])")
"""A word that is no term of mathematics, as in `ab + bc = 1`."""

TEXT = (
    r"\\(?:text(?:bf|it|rm|sf|tt|up|sl|sc|md|normal)?|math(?:bf|it|rm|sf|tt)|[mh]box|operatorname|emph|underline|bm|boldsymbol"
    r"|bf|rm|it)\s*\{"
)
LISTS = tomllib.loads(Path(__file__).parents[1].joinpath("spellings.toml").read_text(encoding="utf-8"))
PATTERNS = [(re.compile(pattern.replace("TEXT", TEXT)), spelling) for pattern, spelling in LISTS["spellings"].items()]
WRAPPED = re.compile(TEXT + r"([^{}]*)\}")
NUMERAL = re.compile(LISTS["numeral"].replace("TEXT", TEXT))
UNIT_SPELLINGS = [(re.compile(pattern), spelling) for pattern, spelling in LISTS["unit_spellings"].items()]
SHORT = LISTS["units"]
SHORT |= {f"k{short}": f"kilo{word}" for short, word in SHORT.items()}
SHORT |= {f"{prefix[0]}{short}": f"{prefix}{SHORT[short]}" for prefix in ("centi", "milli") for short in "mgls"}
"""Abbreviations of units. A letter that many words begin with has one meaning: `m` is no minute and no mile."""
KNOWN = "|".join(sorted({word for word in (*SHORT, *SHORT.values()) if len(word) > 1}, key=len, reverse=True))
"""Units of two letters or more, the longest first."""
UNIT = re.compile(
    r"(.*(?:\d|\\pi).*?)(?!.*\b(?:not|but|to|least|most|more|less|than|about)\b)"
    rf"((?:[\s/]*(?:\\cdot)?\s*{TEXT}[A-Za-z ./]+(?:\^\d)?\s*\}}(?:\^\s*\{{?\d\}}?)?)+"
    r"|(?:(?<=[\d)}])|(?<=\\pi))\s+(?:[A-Za-z]{2,}|[mgl](?=/(?:[sh]\b|[a-z]{2})))(?:[./ ] ?[A-Za-z]+){,3}"
    rf"(?:\^\s*\{{?\d\}}?)?|(?<=\d)(?i:{KNOWN})s?(?:\^\s*\{{?\d\}}?)?)[ .]*"
)
"""A number and its unit: any words behind it but those that make it another answer. Without a space, a known unit."""
LETTERS = re.compile(r"(?<=[\d)}])\s*([A-Za-z]+(?:/[A-Za-z]+)?)(\s*\^\s*\{?\d\}?)?$")
"""Letters behind a number, which are a unit if the other answer has one."""
OPTION = re.compile(r"(?:(?:[Oo]ption|[Cc]hoice) )?\(?([A-Z])(?:[):.] (?!.*\b[A-Z]\b).+|\)?)")
"""The letter of an option, alone or with its text, and no other letter."""
ONE_SIGN = re.compile("([\u00b2\u00b3\u00b9\u2070-\u207b\u207f]+)|([\u2080-\u208b]+)|[\u00bc-\u00be\u2150-\u215e]")
"""A power, an index or a fraction in characters of its own: x², x₁, ½."""
REPEATING = re.compile(r"(\d*)\.(\d*)\\(?:overline|bar)\s*\{(\d+)\}")
WORDS = re.compile(r"[(\s]*[^\W\d_][\w\s.,'\u2019()\"&-]*")
LONG_WORD = re.compile(r"[^\W\d_]{3,}")


def last_boxed(text: str) -> str | None:
    r"""Return the content of the last `\boxed{…}` or `\fbox{…}` of `text`, or `None` if there is none.

    Braces are balanced, and a box inside a box belongs to its content. If the last box is empty, or has no end, the
    answer is `None` too.
    """
    closes, opened = {}, []
    for brace in re.finditer(r"\\.|[{}]", text, re.DOTALL):
        if brace[0] == "{":
            opened.append(brace.start())
        elif brace[0] == "}" and opened:
            closes[opened.pop()] = brace.start()
    found, end = "", 0
    for box in _BOX.finditer(text):
        if box.start() >= end:
            close = closes.get(box.start(1))
            found = (text[box.end() : close] if close else "") if box[1] else box[2].rstrip(".,")
            end = close or box.end()
    return _INNER.sub(r"\1", found).strip() or None


class Answer(NamedTuple):
    text: str
    """Mathematics or words, without unit, LaTeX text commands and degree signs; a numeral such as `0x1f` is decimal."""
    unit: str
    """Its unit in lower case and one spelling, such as `cm2` and `miles/hour`."""
    words: list[str]
    """Letters and digits of each part of a list of words, sorted; empty if it has a sign of mathematics.

    A single letter keeps its case.
    """
    is_text: bool
    """Whether it is words, and they stand in a text command or have a run of three letters; `ab` may be a product."""


@lru_cache(maxsize=8192)
def spelled(text: str) -> Answer:
    """Return an answer in one spelling."""
    text = ONE_SIGN.sub(_plain, text)
    for pattern, spelling in PATTERNS:
        text = pattern.sub(spelling, text.strip())
    text = NUMERAL.sub(_decimal, text)
    measured = UNIT.fullmatch(WRAPPED.sub(r"\1", text) if WRAPPED.fullmatch(text) else text)
    text, unit = measured.groups() if measured else (text, "")
    bare = text
    while WRAPPED.search(bare):
        bare = WRAPPED.sub(r"\1", bare)
    bare = REPEATING.sub(_sum, bare).strip().rstrip(".,:").strip()
    bare = str(int(bare, 0)) if _PREFIXED.fullmatch(bare) else bare
    parts = ["".join(filter(str.isalnum, part)) for part in bare.split(",")] if WORDS.fullmatch(bare) else []
    words = sorted(part if len(part) == 1 else part.casefold() for part in parts)
    unit = WRAPPED.sub(r"\1", unit).lower()
    for pattern, spelling in UNIT_SPELLINGS:
        unit = pattern.sub(spelling, unit)
    return Answer(bare, unit.strip(), words, bool(words and (WRAPPED.search(text) or LONG_WORD.search(bare))))


def _plain(found: re.Match) -> str:
    text = unicodedata.normalize("NFKC", found[0])
    if found[1]:
        return f"^{text} " if len(text) == 1 else f"^{{{text}}}"
    return f"_{{{text}}}" if found[2] else r"\frac{{{}}}{{{}}}".format(*text.split("\u2044"))


def _decimal(found: re.Match) -> str:
    r"""Return the value of a numeral plus a symbol of its base: `math-verify` would count 2516_9 as 2516_8."""
    digits, base = WRAPPED.sub(r"\1", found[1]), found[2]
    valid = base.isdigit() and all(int(digit, 36) < int(base) for digit in digits) and int(base) <= 36
    return rf"({int(digits, int(base)) if valid else found[1]}+\beta_{{{base}}})"


def _sum(found: re.Match) -> str:
    r"""Return a decimal that repeats as a sum: 0.1\overline{6} is 1/10 + 6/90."""
    zeros, nines = "0" * len(found[2]), "9" * len(found[3])
    return rf"(\frac{{{found[1]}{found[2]}0}}{{1{zeros}0}}+\frac{{{found[3]}}}{{{nines}{zeros}}})"


def same_answer(answer: str, gold: str, timeout_s: float = 5.0) -> bool:
    """Return whether `answer` means the same as `gold`; both are LaTeX or plain text, without a box.

    An answer that cannot be graded within `timeout_s` seconds counts as different. Raises RuntimeError, with what to
    install, if `math-verify` is missing.
    """
    if max(len(answer), len(gold)) > LONGEST:
        return False
    one, other = spelled(answer), spelled(gold)
    if other.unit and not one.unit:
        one = spelled(LETTERS.sub(r"\\text{ \1}\2", one.text))
    if re.fullmatch(r"\(?[A-Z]\)?", other.text) and (option := OPTION.fullmatch(one.text)):
        return option[1] == other.text.strip("()")
    one, other = _in_a_tuple(one, other), _in_a_tuple(other, one)
    logic = [[found != "" for found in _LOGIC.findall(text)] for text in (answer, gold)]
    if all(logic) and logic[0] != logic[1] and _RELATION.search(gold):  # it would count P and Q as P or Q
        return False
    numbers = _number(one.text), _number(other.text)
    fits = not (one.unit and other.unit) or _same_unit(one.unit, other.unit)
    if not fits or None not in numbers:
        return fits and numbers[0] == numbers[1]
    if one.is_text or other.is_text:
        return one.words == other.words
    texts = [_LOOSE.sub("", answer.text) for answer in (one, other)]
    if texts[0].casefold() == texts[1].casefold():  # `math-verify` would count A as a
        return texts[0] == texts[1] or ("".join(one.words).isalpha() and one.words == other.words)
    if any(_APART.match(answer.text) for answer in (one, other)):
        return _in_order(one.text, other.text)  # it would count 30 20 10 as 10 20 30
    passed = [sorted(_PASSED_OVER.findall(a if "=" in b else a.rpartition("=")[2])) for a, b in (texts, texts[::-1])]
    if (":" in texts[0] and ":" in texts[1]) or passed[0] != passed[1]:
        return False  # it would count 1:3:2 as 1:2:3, and 12' as 12
    if all(_WORDS_BETWEEN.fullmatch(answer.text) for answer in (one, other)):  # it would count 3 to 1 as 1 to 3
        parts = [re.findall(r"[\d.]+|[a-z]+", answer.text.lower().replace("feet", "foot")) for answer in (one, other)]
        return len(parts[0]) == len(parts[1]) and all(map(_same_word, *parts))
    rows = [[_number(part.strip()) for part in answer.text.split(",")] for answer in (one, other)]
    if None not in rows[0] + rows[1] and len(set(rows[1])) < len(rows[1]):  # it would count 2, 3 as 2, 2, 3
        return sorted(rows[0]) == sorted(rows[1])
    if numbers != (None, None) and any(map(_LIST.fullmatch, texts)):
        return False  # it would count 5, 5 as 5
    brackets = {found[1] + found[2] for found in map(_BRACKETS.fullmatch, (one.text, other.text)) if found}
    if len(brackets) > 1:  # `math-verify` would count \{1,2\} as (1,2)
        return False
    try:
        names = [found and found[1] for found in map(_NAME.match, texts)]
        if ("=" in texts[0]) != ("=" in texts[1]) or (names[0] and names[0] == names[1]):
            one, other = (answer._replace(text=_NAME.sub("", answer.text)) for answer in (one, other))
        exact = [str(numbers[0] or one.text), str(numbers[1] or other.text)]  # it would count 0.333333 as \frac{1}{3}
        return workers("math").ask(exact, timeout_s)
    except ChildEnded:  # ended at the time limit, or crashed on this answer
        return False


def _in_a_tuple(one: Answer, other: Answer) -> Answer:
    """Return `x=3, y=4` as `(3,4)`, x before y, if the other answer is no such list: as sets (3,4) would be (4,3)."""
    lists = [list(map(_VALUE.fullmatch, answer.text.split(","))) for answer in (one, other)]
    if not all(lists[0]) or all(lists[1]) or len({found[1] for found in lists[0]}) < max(2, len(lists[0])):
        return one
    values = [found[2] for found in sorted(lists[0], key=lambda found: "xyz".find(found[1]))]
    return one._replace(text=f"({','.join(values)})")


def _in_order(*texts: str) -> bool:
    """Return whether two texts have equal numbers in the same order, and equal brackets if both have brackets."""
    brackets = r"[()\[\]{}]|" if all(re.search(r"[()\[\]{}]", text) for text in texts) else ""
    parts = [re.findall(brackets + r"[^\s,|&\\()\[\]{}]+", text) for text in texts]
    rows = [
        [part if re.match(r"0\d", part) or _number(part) is None else _number(part) for part in row] for row in parts
    ]  # 000 is no 0: it may end 1 000
    return rows[0] == rows[1]


def _same_unit(one: str, other: str) -> bool:
    """Return whether two units have as many parts, and equal words up to the end of the shorter part."""
    parts, others = one.split("/"), other.split("/")
    words = [pair for both in zip(parts, others, strict=False) for pair in zip(*map(str.split, both), strict=False)]
    return len(parts) == len(others) and all(_same_word(*pair) for pair in words)


def _same_word(one: str, other: str) -> bool:
    """Return whether two words of units are equal, or one is the other's plural or abbreviation."""
    (word, power), (other, other_power) = (re.match(r"(.*?)(\d*)$", word).groups() for word in (one, other))
    return power == other_power and not _forms(word).isdisjoint(_forms(other))


def _forms(word: str) -> set[str]:
    """Return a word of a unit and what it may be the plural of, in full."""
    singular = {word.removesuffix(ending) for ending in ("s", "es")}
    return {SHORT.get(form, form) for form in {word} | {form for form in singular if len(form) > 1}}


def _number(text: str) -> Fraction | None:
    found = _NUMBER.fullmatch(text)
    if not found or (found[2] and ("." in found[1] or not int(found[2]))):
        return None
    return Fraction(found[1].replace(" ", "")) / int(found[2] or 1)


def is_readable(gold: str) -> bool:
    """Return whether `gold` is right when it is given in a box, and says something."""
    return is_right(last_boxed(rf"\boxed{{{gold}}}"), gold) and spelled(gold).text.strip("?!-{} ") != ""


def is_short(gold: str) -> bool:
    """Return whether a gold without a mark is an answer, and no list of texts or sentence such as "So it is 5."."""
    bare = _LATEX.sub(" ", gold).strip()
    begins = _WORD.match(bare) and re.search(r"[\d\\]", gold)
    marked = "boxed" in gold or re.match(r"\[\s*['\"]", gold)
    return not marked and len(_WORD.findall(bare)) <= (8 if not begins else 1 if gold.endswith(".") else 2)


def plain_answer(text: str) -> str:
    """Return a text as SQuAD compares it: lower case, no punctuation, no articles, white space as one space.

    Numbers keep their signs: 3.5 is not 35. Punctuation is that of all languages, such as curly quotes.
    If nothing would be left ("The The", "A"), the articles stay, and if still nothing is left, the punctuation.
    Otherwise all such answers would be equal.
    """
    low = unicodedata.normalize("NFKC", text).lower().replace("\u2212", "-")
    bare = _PUNCTUATION.sub("", low)
    return next((" ".join(left.split()) for left in (_ARTICLES.sub(" ", bare), bare, low) if left.strip()), "")


@lru_cache(maxsize=8192)
def is_right(answer: str | None, gold: str) -> bool:
    """Return whether an answer is the same as `gold`; `None` (unreadable) is not. Results are cached."""
    return answer is not None and same_answer(answer, gold)
