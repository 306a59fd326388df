"""Pose chains of digits with + - *, read from left to right, mod 10: the arithmetic of several pocket tasks.

This module draws and solves chains, reads answers, and makes imperfect answers. It has the base classes of the tasks
that pose nothing else, and in the size "words" the questions of `questions`. The tasks decide who is asked, and what an
answer earns.
"""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from mas_lab.env import Message, Step, Task
from mas_lab.tasks.shared import questions
from mas_lab.tasks.shared.bases import PROMPTS, DrawnTask, SizedTask, chat
from mas_lab.tasks.shared.grading import last_boxed
from mas_lab.tasks.shared.rows import draw, word_problems

CHAIN = 5
"""Digits of a chain by default."""
OPERATIONS = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}
WORDS = (*"0123456789", *OPERATIONS)
"""Words of a chain."""

SLIPS = 0.04
"""Share of the running values of `attempt` that are drawn at random, at `mistakes` = 1."""
GUESSES = 0.1
"""Share of its answers without running values that are right, beyond chance."""


def values_of(chain: str, slip: Callable[[int], int] = int) -> list[int]:
    """Return the first digit and the running values of a chain, mod 10, read from left to right.

    Each value is what `slip` makes of the right one.
    """
    first, *rest = chain.split()
    values = [int(first)]
    for operation, digit in zip(rest[::2], rest[1::2], strict=True):
        values.append(slip(OPERATIONS[operation](values[-1], int(digit)) % 10))
    return values


def value(chain: str) -> int:
    """Return the value of a chain: `3 + 4 * 2` gives 4."""
    return values_of(chain)[-1]


def chains(rng: random.Random, digits: int = CHAIN) -> Iterator[str]:
    """Yield random chains without end."""
    while True:
        drawn = [str(rng.randrange(10)) for _ in range(digits)]
        yield " ".join([drawn[0], *(f"{rng.choice([*OPERATIONS])} {digit}" for digit in drawn[1:])])


def is_digit(word: str) -> bool:
    return len(word) == 1 and word in "0123456789"


def read_answer(text: str) -> str | None:
    """Return the digit of an answer such as `2 0 7 5 answer 5`, or `None` if it cannot be read.

    An answer has optional running values, then `answer` and one digit, and nothing else.
    """
    *working, mark, digit = text.split() if len(text.split()) > 1 else ("", "", "")
    return digit if mark == "answer" and all(map(is_digit, [*working, digit])) else None


def attempt(chain: str, rng: random.Random, hasty: float, mistakes: float = 1.0) -> tuple[list[int], bool]:
    """Return an imperfect solution: the running values, the answer last, and whether they are written out.

    A running value is wrong now and then, and later values continue from it. In haste (a share `hasty` of the time) the
    values are not written out, and the answer is mostly a guess. Both shares are multiplied by `mistakes`, 0 to 1.
    """
    values = values_of(chain, lambda right: rng.randrange(10) if rng.random() < SLIPS * mistakes else right)
    working = rng.random() >= hasty * mistakes
    if not working and rng.random() >= GUESSES:
        values[-1] = rng.randrange(10)
    return values[1:], working


def answer_text(values: list[int], working: bool, end: str = "") -> str:
    """Return an answer such as `2 0 7 5 answer 5`, or `answer 5` without `working`; `end` replaces `answer 5`."""
    return " ".join([*map(str, values if working else []), end or f"answer {values[-1]}"])


@dataclass(frozen=True)
class ChainState:
    problems: tuple[str, ...]
    place: int = 0
    """Place in `agents` of the agent that answers now; with a chain for each agent, also the place of its chain."""
    tried: str | None = None
    """Wrong answer of an agent before, if it is shown: a digit, or "none" if it could not be read."""
    done: bool = False


@dataclass(frozen=True)
class ProblemState:
    problem: str
    gold: str
    done: bool = False


class DigitTask(DrawnTask):
    """Base class of the tasks that pose chains of digits, or in the size "words" short questions."""

    pocket = "math"
    max_return = 1.0
    number = CHAIN

    @property
    def max_tokens(self) -> int:
        return 1024 if self.full else questions.MAX_TOKENS if self.in_words else self.number + 3

    def drawn(self, n: int, split: str, seed: int) -> list[str]:
        """Return `n` different chains or questions; a longer list starts with the shorter one."""
        rng = random.Random(f"{self.name} {'words' if self.in_words else self.number} {split} {seed}")
        if self.in_words:
            return draw(questions.questions(rng), n, split, self.name, questions.calculation)
        return draw(chains(rng, self.number), n, split, self.name)

    def value(self, problem: str) -> str:
        """Return the right answer."""
        return str(questions.value(problem) if self.in_words else value(problem))

    def read_answer(self, text: str) -> str | None:
        r"""Return the answer of a text, or `None` if it cannot be read.

        A pocket answer has optional running values, then `answer 7`, and nothing else. In words it is the last number,
        in full size the last `\boxed{}`.
        """
        return last_boxed(text) if self.full else questions.read_number(text) if self.in_words else read_answer(text)


@dataclass(frozen=True)
class MathTask(SizedTask, DigitTask):
    """Base class of the math tasks: chains in pocket size, word problems in full size."""

    data: str | None = None
    """Full size: a file, a folder or a data set of the hub (`rows.read`), or `reasoning_gym:<task>`. `None` means
    `reasoning_gym:gsm_symbolic`. `rows.COLUMNS` lists the columns of a file."""

    numbers = range(2, 10)
    unit = "digits"
    default = CHAIN
    state_type = ProblemState
    """Class of the state, which `start` makes of a problem and its answer."""

    def __post_init__(self):
        super().__post_init__()
        self.require("data", self.full or not self.data, "it is for size='full'; other problems are generated")

    def problems(self, n: int, split: str, seed: int) -> list[tuple[str, dict[str, str]]]:
        if self.full:
            pairs = word_problems(self.data, n, split, seed, self.name)
        else:
            pairs = [(problem, self.value(problem)) for problem in self.drawn(n, split, seed)]
        return [(problem, {"problem": problem, "gold": gold}) for problem, gold in pairs]

    def start(self, task: Task) -> Any:
        return self.state_type(task.data["problem"], task.data["gold"])

    def half_right(self, state: Any, rng: random.Random) -> str:
        """Return an answer that is wrong half of the time."""
        return state.gold if rng.random() < 0.5 else f"{state.gold}0"


@dataclass(frozen=True)
class ChainTask(DigitTask):
    """Base class of the teaching tasks in which every agent answers a chain of digits, one turn each.

    In the size "words" the chains are questions in English, and all other rules stay.

    A subclass has `name`, `agents` and `result(state, right, text, answer)`, which returns the state after a text with
    this answer (`None`: unreadable), the team reward and the success. Or it has its own state and `step`.
    """

    size: str = field(default="pocket", kw_only=True, metadata={"younger": True})
    """Either "pocket", for chains of digits, or "words", for short questions in English that a small real model can
    learn."""

    sizes = ("pocket", "words")
    paper = "a teaching task of this kit"
    max_turns = 1
    words = (*WORDS, "solve", "answer")
    """Every word of a prompt or answer."""
    chains_per_task = 1
    """Number of different chains of a task; its data has `problem` for one chain, else `problems`."""

    def __post_init__(self):
        """Raise ValueError for a bad option."""
        self.require("size", self.size in self.sizes, f"use {' or '.join(map(repr, self.sizes))}")

    def problems(self, n: int, split: str, seed: int) -> list[tuple[str, dict[str, Any]]]:
        """Return the chains of `n` tasks; all of them differ."""
        each = self.chains_per_task
        drawn = self.drawn(n * each, split, seed)
        groups = [drawn[first : first + each] for first in range(0, len(drawn), each)]
        return [(", ".join(own), {"problems": own} if each > 1 else {"problem": own[0]}) for own in groups]

    def start(self, task: Task) -> ChainState:
        return ChainState(tuple(task.data.get("problems") or [task.data["problem"]]))

    def acting(self, state: ChainState) -> tuple[str, ...]:
        return () if state.done else (self.agents[state.place],)

    def posed(self, state: ChainState) -> str:
        """Return the chain that is answered now."""
        return state.problems[0]

    def prompt(self, problem: str, tried: str | None = None) -> list[Message]:
        """Return the prompt for a problem, with the wrong answer `tried` of an agent before ("none": unreadable)."""
        if not self.in_words:
            return chat(f"tried {tried} solve {problem}" if tried else f"solve {problem}")
        say = PROMPTS["words"]
        wrong = say["wrong"].format(answer=say["none"] if tried == "none" else tried) + " " if tried else ""
        return chat(wrong + problem, say["system"])

    def observe(self, state: ChainState, agent: str) -> list[Message]:
        return self.prompt(self.posed(state), state.tried)

    def step(self, state: ChainState, actions: Mapping[str, str]) -> Step:
        ((agent, text),) = actions.items()
        answer = self.read_answer(text)
        right = answer == self.value(self.posed(state))
        after, team, success = self.result(state, right, text, answer)
        return Step(after, team, {agent: float(right)}, {agent: answer is not None}, success, after.done)

    def demonstrate(self, state: Any, agent: str, rng: random.Random) -> str:
        """Return an answer to the agent's prompt that is right about half of the time (in words, in nine of ten)."""
        prompt = self.observe(state, agent)[-1]["content"]
        if self.in_words:
            return questions.attempt(prompt, rng)
        return answer_text(*attempt(prompt.partition("solve ")[2], rng, hasty=0.5))


class ChainSequence(ChainTask):
    """Base class of the tasks whose agents are called one after the other, each with its own chain."""

    @property
    def chains_per_task(self) -> int:
        return len(self.agents)

    def posed(self, state: ChainState) -> str:
        return state.problems[state.place]
