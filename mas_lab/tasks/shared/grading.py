"""Compare two answers: numbers exactly, other mathematics with `math-verify`, and words as SQuAD does.

`math-verify` runs in a child process. Its own time limit needs the main thread's alarm, which `env.step` does not have,
because rollouts step in threads. Without a limit an answer such as 9^(9^9) would stop the whole program. Finding the
answer in a text is not done here, except for `last_boxed`.
"""

import re
import string
from fractions import Fraction
from functools import lru_cache

from mas_lab.backends.child import ChildEnded, workers

_NUMBER = re.compile(r"[+-]?(\d+|\d{1,3}(,\d{3})+)(\.\d+)?(/\d+)?")
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_WORDS = re.compile("[A-Za-z]{3,}")
_LAYOUT = {"frac", "dfrac", "tfrac", "sqrt", "text", "mathrm", "mbox", "left", "right", "cdot", "times", "circ", "quad",
           "displaystyle", "boxed"}  # fmt: skip
"""Commands that change how an answer looks, not what it says."""
_UNIT = re.compile(r"\\(text|mathrm|mbox)\{[^{}]*\}")
_NAMED = re.compile(r"\s*\$?\s*[A-Za-z]\s*=")
"""The beginning of `x = 7`."""
_LONGEST = 300
"""Most characters of an answer; a longer one counts as wrong and is not read."""


def last_boxed(text: str) -> str | None:
    r"""Return the content of the last `\boxed{…}` of `text`, braces balanced, or `None` if there is none.

    An empty box also gives `None`.
    """
    start = text.rfind(r"\boxed{")
    if start < 0:
        return None
    depth, begin = 1, start + len(r"\boxed{")
    for at in range(begin, len(text)):
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        if depth == 0:
            return text[begin:at].strip() or None
    return None


def same_answer(answer: str, gold: str, timeout_s: float = 5.0) -> bool:
    """Return whether `answer` means the same as `gold`; both are LaTeX or plain text, without a box.

    An answer that cannot be graded within `timeout_s` seconds counts as different. Raises RuntimeError, with what to
    install, if `math-verify` is missing.
    """
    numbers = _number(answer), _number(gold)
    if None not in numbers:
        return numbers[0] == numbers[1]
    if not _of_one_kind(answer, gold):
        return False
    try:
        return len(answer) <= _LONGEST and workers("math").ask([answer, gold], timeout_s)
    except ChildEnded:  # ended at the time limit, or crashed on this answer
        return False


def _of_one_kind(answer: str, gold: str) -> bool:
    """Return False where `math-verify` would pass over what `answer` says: words, percent, `6=7`, a set for a tuple."""
    told = {part: (part in answer, part in gold) for part in ("%", "_", r"\mid", r"\{")}
    words = [set(_WORDS.findall(_UNIT.sub("", text))) - _LAYOUT for text in (answer, gold)]
    equation = "=" in answer and "=" not in gold and not _NAMED.match(answer)
    return all(own == asked for own, asked in told.values()) and words[0] <= words[1] and not equation


def plain_answer(text: str) -> str:
    """Return a text as SQuAD compares it: lower case, no punctuation, no articles, white space as one space.

    If nothing would be left ("The The", "A"), the articles stay, and if still nothing is left, the punctuation.
    Otherwise all such answers would be equal.
    """
    low = text.lower()
    bare = "".join(character for character in low if character not in string.punctuation)
    return next((" ".join(left.split()) for left in (_ARTICLES.sub(" ", bare), bare, low) if left.strip()), "")


@lru_cache(maxsize=8192)
def is_right(answer: str | None, gold: str) -> bool:
    """Return whether an answer is the same as `gold`; `None` (unreadable) is not. Results are cached."""
    return answer is not None and same_answer(answer, gold)


def _number(text: str) -> Fraction | None:
    text = text.strip().strip("$").strip()
    if len(text) > _LONGEST or not _NUMBER.fullmatch(text) or ("." in text and "/" in text):
        return None
    numerator, _, denominator = text.replace(",", "").partition("/")
    return None if denominator and int(denominator) == 0 else Fraction(numerator) / int(denominator or 1)
