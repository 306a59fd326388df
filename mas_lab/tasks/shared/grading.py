"""Compare two answers: numbers exactly, other mathematics with `math-verify`, and words as SQuAD does.

The page of tasks has a table of what is judged by whom. `math-verify` runs in a child process. Its own time limit needs
the main thread's alarm, which `env.step` does not have, because rollouts step in threads. Without a limit an answer
such as 9^(9^9) would stop the whole program. Finding the answer in a text is not done here, except for `last_boxed`,
and writing it in one spelling is in `latex`.
"""

import re
import string
from functools import lru_cache
from itertools import accumulate

from mas_lab.tasks.sandbox import workers
from mas_lab.tasks.shared.child import ChildEnded
from mas_lab.tasks.shared.latex import Answer, read

_ARTICLES = re.compile(r"\b(a|an|the)\b")
LONGEST = 300
"""Most characters of an answer; a longer one counts as wrong and is not read."""
_BOX = re.compile(r"\\(?:boxed|fbox)(?![A-Za-z])\s*(?:(\{)|(-?\d[\d.,/]*|[^\s{$]+(?=\s*\$)))")
r"""A box with its brace, or without one, as in `\boxed 5`: a number, or a word before a dollar sign."""
_INNER = re.compile(r"\\(?:boxed|fbox)\s*\{([^{}]*)\}")

_LATEX = re.compile(r"\\[A-Za-z]+\*?\s*(?:\{[^{}]*\})?")
_PLAIN_WORD = re.compile(r"[^\W\d_]{2,}")


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


def same_answer(answer: str, gold: str, timeout_s: float = 5.0) -> bool:
    """Return whether `answer` means the same as `gold`; both are LaTeX or plain text, without a box.

    An answer that cannot be graded within `timeout_s` seconds counts as different. Raises RuntimeError, with what to
    install, if `math-verify` is missing.
    """
    if max(len(answer), len(gold)) > LONGEST:
        return False
    one, other = read(answer), read(gold)
    if not _units_fit(one.unit, other.unit):
        return False
    numbers = one.number, other.number
    if None not in numbers:
        return numbers[0] == numbers[1]
    if one.is_text or other.is_text:
        return one.words == other.words
    if one.spelling == other.spelling:
        return True
    if not _comparable(one, other):
        return False
    try:
        return workers("math").ask([one.text, other.text], timeout_s)
    except ChildEnded:  # ended at the time limit, or crashed on this answer
        return False


def _units_fit(one: str, other: str) -> bool:
    """Return whether two units are the same, one of them is missing, or one abbreviates the other (`cm`, `hr`)."""
    short, long = sorted((one, other), key=len)
    return short in ("", long) or (len(long) > 2 and re.match(".*".join(short), long) is not None)


def _comparable(answer: Answer, gold: Answer) -> bool:
    r"""Return False where `math-verify` passes over what makes an answer another one.

    A base: 2516_9 would count as 2516_8. Brackets: `\{1,2\}` would count as (1,2). A percent sign in a list, and dots.
    After a brace too many, it would not read on.
    """
    depths = [0, *accumulate({"{": 1, "}": -1}.get(sign, 0) for sign in re.sub(r"\\.", "", answer.text))]
    if min(depths) < 0 or depths[-1]:
        return False
    brackets = {answer.brackets, gold.brackets} - {""}
    passed_over = [("%" in one.text, "dots" in one.text) for one in (answer, gold)]
    return not (answer.in_base or gold.in_base) and len(brackets) < 2 and passed_over[0] == passed_over[1]


def is_readable(gold: str) -> bool:
    """Return whether an answer can be the same as `gold`: it is not too long, and says something."""
    return len(gold) <= LONGEST and read(gold).spelling.strip("?!-") != ""


def is_short(gold: str) -> bool:
    """Return whether a gold without a mark is an answer, and no sentence such as "So the answer is 5."."""
    bare, ends = _LATEX.sub(" ", gold).strip(), gold.rstrip().endswith(".")
    words = _PLAIN_WORD.findall(bare)
    if not read(gold).is_text or re.search(r"\d", bare):
        return "boxed" not in gold and len(words) <= (8 if not _PLAIN_WORD.match(bare) else 1 if ends else 2)
    return len(words) <= (3 if ends else 8)


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
