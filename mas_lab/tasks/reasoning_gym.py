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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from mas_lab.env import EnvError, Task
from mas_lab.tasks.math import Math, State
from mas_lab.tasks.shared.options import role_of
from mas_lab.tasks.shared.rows import check_split, content_id, draw

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

    name = "reasoning_gym"
    paper = "reasoning-gym, arXiv 2505.24760"
    order = "solver → verifier (→ fixer?), up to 3 loops"
    pocket = ""
    wrong = 0.5
    """Share of the answers of `demonstrate` that answer another problem, at `mistakes` = 1."""
    misjudged = 0.25
    """Share of its verdicts that are wrong, at `mistakes` = 1."""

    def __post_init__(self):
        if self.size not in ("pocket", "full"):
            raise ValueError(f"reasoning_gym: size={self.size!r}; use 'pocket' or 'full', and config= for the rest")
        if self.data is not None:
            raise ValueError(f"reasoning_gym: data={self.data!r}; name a generator: dataset='chain_sum'")
        super().__post_init__()
        _generator(self.dataset, json.dumps(dict(self.config)), 0, 1)

    @property
    def max_tokens(self) -> int:
        return 1024 if self.size == "full" else 16

    @property
    def words(self) -> tuple[str, ...]:
        """Return the words that play may show besides the words of the problems."""
        return ("solve", "check", "fix", "others", "tried", "answer", "none", "approve", "reject")

    def tasks(self, n: int, split: str, seed: int) -> list[Task]:
        """Return `n` different problems; a longer list starts with the shorter one."""
        check_split(split, self.name)
        number = random.Random(f"{self.dataset} {split} {seed}").randrange(2**31)
        entries = self._generator(number, 1000 + 100 * n)
        places: dict[str, int] = {}

        def questions() -> Iterator[str]:
            for place in range(len(entries)):
                question = entries[place]["question"]
                places.setdefault(question, place)
                yield question

        found = draw(questions(), n, split, f"reasoning_gym {self.dataset!r}")
        return [self._task(text, number, places[text], entries) for text in found]

    def _task(self, question: str, seed: int, place: int, entries: Any) -> Task:
        posed = {"problem": question, "gold": str(entries[place]["answer"]), "drawn": [seed, place]}
        return Task(f"{self.dataset}-{content_id(f'{question} {seed} {place}')}", posed)

    def start(self, task: Task) -> Posed:
        seed, place = task.data["drawn"]
        return Posed(task.data["problem"], task.data["gold"], drawn=(seed, place))

    def read_answer(self, text: str) -> str | None:
        """Return the answer, or `None`; in pocket size it is the text after the last `answer`."""
        if self.size == "full":
            return super().read_answer(text)
        return text.rpartition("answer ")[2].strip() or None if "answer " in text else None

    def is_right(self, answer: str | None, state: Posed) -> bool:
        return answer is not None and _is_right(self.dataset, json.dumps(dict(self.config)), *state.drawn, answer)

    def demonstrate(self, state: Posed, agent: str, rng: random.Random) -> str:
        """Return an imperfect answer to learn from: the answer to another problem, or the wrong verdict."""
        if role_of(agent) == "verifier":
            approve = self.is_right(state.answers[-1], state) != (rng.random() < self.misjudged * self.mistakes)
            verdict = "approve" if approve else "reject"
            return verdict if self.size == "pocket" else f"<verdict>{verdict}</verdict>"
        seed, place = state.drawn
        slips = rng.random() < self.wrong * self.mistakes
        answer = self._generator(seed, place + 2)[place + 1]["answer"] if slips else state.gold
        return f"answer {answer}" if self.size == "pocket" else f"\\boxed{{{answer}}}"

    def _generator(self, seed: int, size: int) -> Any:
        return _generator(self.dataset, json.dumps(dict(self.config)), seed, size)


@lru_cache(maxsize=64)
def _generator(dataset: str, config: str, seed: int, size: int) -> Any:
    """Return the generator; raise EnvError if the package or the generator is missing, or refuses its configuration."""
    try:
        import reasoning_gym
        from reasoning_gym.factory import DATASETS
    except ImportError:
        raise EnvError("generated puzzles need reasoning-gym: pip install 'mas-lab[puzzles]'") from None
    if dataset not in DATASETS:
        raise EnvError(f"reasoning_gym has no dataset {dataset!r}; known are: {', '.join(sorted(DATASETS))}")
    try:
        return reasoning_gym.create_dataset(dataset, seed=seed, size=size, **json.loads(config))
    except (TypeError, AssertionError, ValueError) as error:
        raise EnvError(f"reasoning_gym {dataset!r}: config={config}: {error}") from error


@lru_cache(maxsize=8192)
def _is_right(dataset: str, config: str, seed: int, place: int, answer: str) -> bool:
    generator = _generator(dataset, config, seed, place + 1)
    entry = generator[place]
    if _runs_answers(type(generator)) and not (len(answer) <= LONGEST and HARMLESS.fullmatch(answer)):
        return answer == str(entry["answer"])
    try:
        return generator.score_answer(answer, entry) >= 1.0
    except Exception:  # a generator that cannot read an answer may say so by any error
        return False


@lru_cache(maxsize=128)
def _runs_answers(kind: type) -> bool:
    return bool(EVALUATES.search(inspect.getsource(sys.modules[kind.__module__])))
