"""Let a solver, a verifier and an optional fixer solve problems of any reasoning-gym generator (arXiv 2505.24760).

It needs the extra `puzzles`: `lab.make_env("reasoning_gym", dataset="countdown")`. The order of agents and their
rewards are those of `math`. The problems, and the judgement of an answer, are the generator's. Curricula, and the
partial credit of some generators, are not used.
"""

import inspect
import json
import random
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from mas_lab.env import Task
from mas_lab.tasks.math import Math, State
from mas_lab.tasks.shared.bases import role_of
from mas_lab.tasks.shared.rows import check_split, content_id, generated, generator

EVALUATES = re.compile(r"\b(eval|exec|parse_expr|sympify)\(")
"""Pattern of calls that run a given text as code."""
HARMLESS = re.compile(
    r"(\d+(\.\d+)?|\b([a-zA-Z]|sin|cos|tan|exp|log|sqrt|pi)\b(?!\s*\.)(\*\*\d{1,2}(?!\d))?|\*(?!\*)|[\s+\-/(),\[\]=])*"
)
"""Pattern of answers that are safe to evaluate: numbers, single letters and their powers, usual functions, operators
and brackets. None of them can run code or take forever."""
LONGEST = 300
"""Most characters of an answer that is judged by running it."""


@dataclass(frozen=True)
class Posed(State):
    drawn: tuple[int, int] = (0, 0)
    """(seed of the generator, number of the problem)."""


@dataclass(frozen=True)
class ReasoningGym(Math):
    """Problems of `dataset` that are solved, verified and, with `fixer=True`, fixed.

    `config` holds options of `reasoning_gym.create_dataset`. Roles, loops and rewards are those of `Math`. An answer is
    right if the generator scores it 1. Some generators run an answer as code to judge it. With them, only numbers,
    letters, operators and brackets are judged in this way; any other answer is compared with the solution. Full size
    has answers in boxes. Pocket size has `answer` and the text after it, for a model that you train yourself
    (`lab.make_pocket`).
    """

    dataset: str = "chain_sum"
    config: Mapping[str, Any] = field(default_factory=dict)

    sizes = ("pocket", "full")
    name = "reasoning_gym"
    paper = "reasoning-gym, arXiv 2505.24760"
    order = "solver → verifier (→ fixer?), up to 3 loops"
    pocket = ""
    words = ("solve", "check", "fix", "others", "tried", "answer", "none", "approve", "reject")
    """Words that play may show besides the words of the problems."""
    wrong = 0.5
    """Share of the answers of `demonstrate` that answer another problem, at `mistakes` = 1."""
    misjudged = 0.25
    """Share of its verdicts that are wrong, at `mistakes` = 1."""

    def __post_init__(self):
        self.require("size", self.size in self.sizes, "use 'pocket' or 'full', and config= for the rest")
        self.require("data", self.data is None, "name a generator: dataset='chain_sum'")
        super().__post_init__()
        self._generator(0, 1)

    @property
    def max_tokens(self) -> int:
        return 1024 if self.full else 16

    def tasks(self, n: int, split: str, seed: int) -> list[Task]:
        """Return `n` different problems; a longer list starts with the shorter one."""
        check_split(split, self.name)
        number = random.Random(f"{self.dataset} {split} {seed}").randrange(2**31)
        tasks = []
        entries = self._generator(number, 1000 + 100 * n)
        for place, question, gold in generated(entries, n, split, f"reasoning_gym {self.dataset!r}"):
            data = {"problem": question, "gold": gold, "drawn": [number, place]}
            tasks.append(Task(f"{self.dataset}-{content_id(f'{question} {number} {place}')}", data))
        return tasks

    def start(self, task: Task) -> Posed:
        seed, place = task.data["drawn"]
        return Posed(task.data["problem"], task.data["gold"], drawn=(seed, place))

    def read_answer(self, text: str) -> str | None:
        """Return the answer, or `None`; in pocket size it is the text after the last `answer`."""
        if self.full:
            return super().read_answer(text)
        return text.rpartition("answer ")[2].strip() or None if "answer " in text else None

    def is_right(self, answer: str | None, state: Posed) -> bool:
        return answer is not None and _is_right(self.dataset, json.dumps(dict(self.config)), *state.drawn, answer)

    def demonstrate(self, state: Posed, agent: str, rng: random.Random) -> str:
        """Return an imperfect answer to learn from: the answer to another problem, or the wrong verdict."""
        if role_of(agent) == "verifier":
            approve = self.is_right(state.answers[-1], state) != (rng.random() < self.misjudged * self.mistakes)
            verdict = "approve" if approve else "reject"
            return verdict if not self.full else f"<verdict>{verdict}</verdict>"
        seed, place = state.drawn
        slips = rng.random() < self.wrong * self.mistakes
        answer = self._generator(seed, place + 2)[place + 1]["answer"] if slips else state.gold
        return f"answer {answer}" if not self.full else f"\\boxed{{{answer}}}"

    def _generator(self, seed: int, size: int) -> Any:
        return generator(self.dataset, seed, size, json.dumps(dict(self.config)))


@lru_cache(maxsize=8192)
def _is_right(dataset: str, config: str, seed: int, place: int, answer: str) -> bool:
    puzzles = generator(dataset, seed, place + 1, config)
    entry = puzzles[place]
    runs_answers = EVALUATES.search(inspect.getsource(sys.modules[type(puzzles).__module__]))
    if runs_answers and not (len(answer) <= LONGEST and HARMLESS.fullmatch(answer)):
        return answer == str(entry["answer"])
    try:
        return puzzles.score_answer(answer, entry) >= 1.0
    except Exception:  # a generator that cannot read an answer may say so by any error
        return False
