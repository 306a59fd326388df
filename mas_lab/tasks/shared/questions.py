"""Pose short questions in English whose answer is a number: the problems of the size "words".

This module draws and solves questions, reads answers, and makes imperfect ones. The questions are for a small real
model, which learns them in some tens of steps. Their templates stand in `words.toml`.
"""

import operator
import random
import re
from collections.abc import Iterator

from mas_lab.env import EnvError
from mas_lab.tasks.shared.bases import WORD_LISTS

MAX_TOKENS = 12
"""Most tokens of an answer."""
OPERATIONS = {"sum": operator.add, "difference": operator.sub, "larger": max, "smaller": min}
SHARES = {"sum": 5, "difference": 1, "larger": 1, "smaller": 1}
"""How often each operation is drawn. A small model learns differences last."""
LISTS = WORD_LISTS["questions"]
TEMPLATES = LISTS["templates"]
"""Operation -> templates of a question about the numbers `a` and `b`."""
PATTERNS = [
    (kind, re.compile(re.sub(r"\\{(\w+)\\}", lambda f: "([0-9]+)" if f[1] in "ab" else r"\w+", re.escape(text)) + "$"))
    for kind, texts in TEMPLATES.items()
    for text in texts
]
NUMBER = re.compile(r"(?<![\w.,])-?[0-9]+(?:[.,][0-9]+)*")
WRONG = 0.1
"""Share of the answers of `attempt` that are wrong, at `mistakes` = 1."""


def parts(question: str) -> tuple[str, int, int]:
    """Return the operation of the question at the end of a text, and its two numbers."""
    for kind, pattern in PATTERNS:
        if found := pattern.search(question):
            return kind, int(found[1]), int(found[2])
    raise EnvError(f"{question!r} ends with none of the questions in words.toml")


def value(question: str) -> int:
    """Return the answer to the question at the end of a text: "What is 47 + 35?" gives 82."""
    kind, first, second = parts(question)
    return OPERATIONS[kind](first, second)


def calculation(question: str) -> str:
    """Return the operation and its numbers, whatever their order; it decides the split of a question.

    So no calculation is in two splits, in whatever words.
    """
    kind, *numbers = parts(question)
    return " ".join([kind, *map(str, sorted(numbers))])


def questions(rng: random.Random) -> Iterator[str]:
    """Yield random questions without end; whole tens are subtracted."""
    while True:
        (kind,) = rng.choices([*SHARES], [*SHARES.values()])
        numbers = rng.sample(range(10, 100), 2)
        if kind == "difference":
            numbers = [max(numbers), min(numbers) // 10 * 10]
        names = {"name": rng.choice(LISTS["names"]), "things": rng.choice(LISTS["things"])}
        yield rng.choice(TEMPLATES[kind]).format(a=numbers[0], b=numbers[1], **names)


def read_number(text: str) -> str | None:
    """Return the last number of a text, as it is written, or `None` if there is none: 47 of "The answer is 47."."""
    return found[-1] if (found := NUMBER.findall(text)) else None


def attempt(question: str, rng: random.Random, mistakes: float = 1.0) -> str:
    """Return an answer to the question at the end of a text; a share `WRONG * mistakes` is off by 1 or 10."""
    off = rng.choice((-10, -1, 1, 10)) if rng.random() < WRONG * mistakes else 0
    return str(abs(value(question) + off))
