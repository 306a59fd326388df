"""Let a solver, a verifier and an optional fixer solve problems of any reasoning-gym generator (arXiv 2505.24760).

`lab.make_env("math", size="full", data="reasoning_gym:NAME")` poses such problems too, and compares answers as
mathematics. Here the generator itself judges an answer, so it may be a list, a grid or a sequence of words.

Seam of the kit: a task of the kit as the base class. Agents, order and rewards are those of `math`. What changes: which
problems are posed, how an answer is read, when it is right, and what the demonstration says.
Run it: pip install 'mas-lab[puzzles]', then python examples/reasoning_gym_env.py
Leaves out: curricula, and the partial credit of some generators.
"""

import hashlib
import inspect
import json
import random
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import mas_lab as lab

Math = lab.ENVS["math"]
EVALUATES = re.compile(r"\b(eval|exec|parse_expr|sympify)\(")
"""Calls by which some generators run an answer as code to judge it."""
HARMLESS = re.compile(
    r"(\d+(\.\d+)?|\b([a-zA-Z]|sin|cos|tan|exp|log|sqrt|pi)\b(?!\s*\.)(\*\*\d{1,2}(?!\d))?|\*(?!\*)|[\s+\-/(),\[\]=])*"
)
"""Numbers, single letters and their powers, usual functions, operators and brackets: run as code, none of them can do
harm or take forever."""
LONGEST = 300
"""Most characters of an answer that is run as code."""


@lru_cache(maxsize=64)
def generator(dataset: str, seed: int, size: int, config: str) -> Any:
    import reasoning_gym

    return reasoning_gym.create_dataset(dataset, seed=seed, size=size, **json.loads(config))


@dataclass(frozen=True)
class Posed(Math.state_type):
    drawn: tuple[int, int] = (0, 0)
    """(seed of the generator, number of the problem)."""


@dataclass(frozen=True)
class ReasoningGym(Math):
    """Problems of the generator `dataset`, solved, verified and, with `fixer=True`, fixed.

    An answer is right if the generator scores it 1. A generator that runs answers as code gets only harmless ones; any
    other is compared with the solution. Full size has answers in boxes, pocket size has `answer` and the text after it.
    """

    dataset: str = "chain_sum"
    config: Mapping[str, Any] = field(default_factory=dict)
    """Options of `reasoning_gym.create_dataset`."""

    name, pocket, sizes = "reasoning_gym", "", ("pocket", "full")
    words = ("solve", "check", "fix", "others", "tried", "answer", "none", "approve", "reject")
    """Words that play may show besides those of the problems."""
    wrong, misjudged = 0.5, 0.25
    """Share of the demonstrated answers and verdicts that are wrong, at `mistakes` = 1."""

    @property
    def max_tokens(self) -> int:
        return 1024 if self.full else 16

    def entries(self, seed: int, size: int) -> Any:
        return generator(self.dataset, seed, size, json.dumps(dict(self.config)))

    def tasks(self, n: int, split: str, seed: int) -> list[lab.Task]:
        """Return `n` different problems; the text of a problem decides whether it is in `train` or in `test`."""
        drawn = random.Random(f"{self.dataset} {split} {seed}").randrange(2**31)
        found: dict[str, lab.Task] = {}
        for place, entry in enumerate(self.entries(drawn, 1000 + 100 * n)):
            text = entry["question"]
            digit = int(hashlib.sha256(" ".join(text.split()).encode()).hexdigest()[:12], 16) % 10
            if text not in found and (digit == 9 if split == "test" else digit < 8):
                data = {"problem": text, "gold": str(entry["answer"]), "drawn": [drawn, place]}
                found[text] = lab.Task(f"{self.dataset} {drawn} {place}", data)
            if len(found) == n:
                return [*found.values()]
        raise lab.EnvError(f"{self.dataset}: only {len(found)} of {n} different problems of {split!r}; ask for fewer")

    def start(self, task: lab.Task) -> Posed:
        return Posed(task.data["problem"], task.data["gold"], drawn=tuple(task.data["drawn"]))

    def read_answer(self, text: str) -> str | None:
        """Return the answer of a solver or fixer, or None."""
        if self.full:
            return super().read_answer(text)
        return text.rpartition("answer ")[2].strip() or None if "answer " in text else None

    def is_right(self, answer: str | None, state: Posed) -> bool:
        if answer is None or answer == state.gold:
            return answer is not None
        seed, place = state.drawn
        puzzles = self.entries(seed, place + 1)
        runs_it = EVALUATES.search(inspect.getsource(inspect.getmodule(type(puzzles))))
        if runs_it and not (len(answer) <= LONGEST and HARMLESS.fullmatch(answer)):
            return False
        try:
            return puzzles.score_answer(answer, puzzles[place]) >= 1.0
        except Exception:  # a generator may say by any error that it cannot read an answer
            return False

    def demonstrate(self, state: Posed, agent: str, rng: random.Random) -> str:
        """Return the answer, or now and then that of the next problem; or a verdict, now and then the wrong one."""
        if agent == "verifier":
            misjudges = rng.random() < self.misjudged * self.mistakes
            verdict = "approve" if self.is_right(state.answers[-1], state) != misjudges else "reject"
            return f"<verdict>{verdict}</verdict>" if self.full else verdict
        seed, place = state.drawn
        slips = rng.random() < self.wrong * self.mistakes
        answer = self.entries(seed, place + 2)[place + 1]["answer"] if slips else state.gold
        return f"\\boxed{{{answer}}}" if self.full else f"answer {answer}"


def main(steps: int = 5, tasks: int = 16, lessons: int = 100) -> None:
    """Teach a pocket model common divisors, train solver and verifier, and print what each earns."""
    env = ReasoningGym(dataset="gcd", config={"max_value": 30})
    lab.check_env(env, tasks=2)  # raises an error where the env breaks its contract
    with tempfile.TemporaryDirectory() as folder:
        team = lab.Team.shared(lab.load_policy(lab.make_pocket(env, folder, steps=lessons)), env.agents)
        for report in lab.train(env, team, "dr_mas", steps=steps, seed=0, tasks=tasks):
            right = report.turns.groupby("agent")["local_reward"].mean().round(2).to_dict()
            print(f"step {report.step}: own reward {right}")


if __name__ == "__main__":
    main()
