"""Are two answers the same? Numbers exactly, other mathematics by `math-verify`, and words by what SQuAD compares.

`math-verify` runs in a child process: its own time limit needs the main thread's alarm, which `env.step` does not have
(rollouts step in threads), and an answer such as 9^(9^9) would otherwise stop the whole program. One child serves all
callers and is replaced when it had to be killed. Leaves out: finding the answer in a text, but for `last_boxed`.
"""

import re
import string
import threading
from fractions import Fraction
from functools import lru_cache

from mas_lab.tasks.shared import equality
from mas_lab.tasks.shared.child import Child, ChildEnded

_NUMBER = re.compile(r"[+-]?(\d+|\d{1,3}(,\d{3})+)(\.\d+)?(/\d+)?")
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_LONGEST = 300
"""Characters. A longer "answer" is an essay in a box and counts as wrong unread."""


class GradingError(RuntimeError):
    """The grader itself is broken (math-verify missing, or its process does not start): says what to install."""


def last_boxed(text: str) -> str | None:
    r"""What stands in the last `\boxed{…}` of `text`, braces balanced; None if there is none or it is empty."""
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
    """Does `answer` mean the same as `gold`? Both in LaTeX or plain text, without a box.

    An answer that cannot be graded within `timeout_s` seconds is not the same. Raises `GradingError`.
    """
    numbers = _number(answer), _number(gold)
    if None not in numbers:
        return numbers[0] == numbers[1]
    if len(answer) > _LONGEST:
        return False
    return _grader.ask(answer, gold, timeout_s)


def plain_answer(text: str) -> str:
    """A text as SQuAD compares it: lower case, without punctuation and articles, white space as one space.

    Where nothing would be left ("The The", "A"), articles stay, and then punctuation: all such answers would be one.
    """
    low = text.lower()
    bare = "".join(character for character in low if character not in string.punctuation)
    return next((" ".join(left.split()) for left in (_ARTICLES.sub(" ", bare), bare, low) if left.strip()), "")


@lru_cache(maxsize=8192)
def is_right(answer: str | None, gold: str) -> bool:
    """Is an answer that could be read (`None`: it could not) the same as `gold`? Remembers what it graded."""
    return answer is not None and same_answer(answer, gold)


def _number(text: str) -> Fraction | None:
    text = text.strip().strip("$").strip()
    if len(text) > _LONGEST or not _NUMBER.fullmatch(text) or ("." in text and "/" in text):
        return None
    numerator, _, denominator = text.replace(",", "").partition("/")
    return None if denominator and int(denominator) == 0 else Fraction(numerator) / int(denominator or 1)


class _Grader:
    """A child that compares answers; started at the first question, and replaced when it had to be ended."""

    def __init__(self):
        self._lock = threading.Lock()
        self._child: Child | None = None

    def ask(self, answer: str, gold: str, timeout_s: float) -> bool:
        with self._lock:
            if self._child is None or not self._child.lives:
                self._child = self._start()
            try:
                return self._child.ask([answer, gold], timeout_s)
            except ChildEnded:  # at the time limit, or on this answer
                return False

    def _start(self) -> Child:
        try:
            return Child(equality.__file__)
        except ChildEnded:
            raise GradingError(
                "answers that are not plain numbers need math-verify: pip install math-verify[antlr4_13_2]"
            ) from None


_grader = _Grader()
