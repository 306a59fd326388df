r"""Orchestrator: one agent splits a problem, workers answer the parts, and it joins the answers (arXiv 2605.24202).

Pocket size has sums of products of digits, mod 10. Full size has word problems for an instruction model, with parts in
`<part>` and answers in `\boxed{}`.
"""

import random
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain

from mas_lab.env import Message, Step
from mas_lab.tasks.shared import chains
from mas_lab.tasks.shared.bases import PROMPTS, chat, numbered, role_of, tagged
from mas_lab.tasks.shared.grading import is_right
from mas_lab.tasks.shared.rows import draw

NEEDED = re.compile(r"\+ (?=\d \*)")
"""A plus before a product. A worker reads from left to right, so `4 + 2 * 5` is wrong unless it is split there."""


def split(problem: str) -> list[str]:
    """Return the parts of a pocket problem that give its value when each is read from left to right."""
    return NEEDED.sub("and ", problem).split(" and ")


def joined(values: Iterable[int | str]) -> str:
    """Return the chain that adds `values`."""
    return " + ".join(map(str, values))


def value(problem: str) -> int:
    """Return the value of a pocket problem, products first, mod 10: `3 + 4 * 2` gives 1."""
    return chains.value(joined([chains.value(part) for part in split(problem)]))


def sums(rng: random.Random, parts: int, digits: int) -> Iterator[str]:
    """Yield random problems without end, each with one right split into `parts`.

    A part has `digits` digits on average and at least 2: a product, then digits that are added. Only the first part may
    be without a product.
    """
    while True:
        lengths = [2] * parts
        for _ in range(parts * (digits - 2)):
            lengths[rng.choice([place for place in range(parts) if lengths[place] < 2 * digits - 2])] += 1
        operations = []
        for place, length in enumerate(lengths):
            factors = rng.randint(min(place, 1), length - 1)
            operations += ["+", *"*" * factors, *"+" * (length - 1 - factors)]
        yield " ".join(f"{operation} {rng.randint(1, 9)}" for operation in operations)[2:]


@dataclass(frozen=True)
class State(chains.ProblemState):
    parts: tuple[str, ...] = ()
    answers: tuple[str | None, ...] = ()
    """Answers of the workers (`None`: unreadable)."""


@dataclass(frozen=True)
class Orchestrator(chains.MathTask):
    """The orchestrator splits a problem, the workers answer the parts at once, and it joins their answers.

    A worker sees nothing but its part.

    `team_reward` is 1 for a right answer at the end, so `max_return` = 1 is reached exactly by success. `local_reward`
    is 1 for the right split, for a right answer to the worker's part, and for the right sum of the workers' answers.
    A split that cannot be read is invalid and ends the episode.

    Pocket size: the problem is `3 + 4 + 2 * 5`, the split `3 + 4 and 2 * 5`. Workers read their part from left to
    right, so a split at another plus gives a wrong value. A split must repeat the problem, with `and` in place of one
    plus per further worker: so it has no empty part, and it cannot tell an answer. At the end the orchestrator sees the
    workers' answers alone.

    Full size: the split has a `<part>` for each worker. At the end the orchestrator sees the problem again, as in the
    paper, so it could do without the workers; replays `without(n, ["worker_1"])` show whether it does. `local_reward`
    of the split is then 1 for a readable one, of the workers 0 (their parts have no known answer), and of the last turn
    1 for a right answer.

    `size` is either "pocket" (3 digits per worker), "full", or the number of digits per worker, 3 to 5.
    """

    n_agents: int | None = None
    """Number of agents, 3 to 16: the orchestrator and its workers. `None` means two workers."""

    name = "orchestrator"
    paper = "arXiv 2605.24202"
    order = "orchestrator → worker_1 + worker_2 → orchestrator"
    pocket = "orchestrator"
    max_turns = 2
    state_type = State
    numbers = range(3, 6)
    unit = "digits per worker"
    choices = {"rewards": ("ours",)}
    default = 3
    fewest = 3
    hasty = {"worker": 0.3, "orchestrator": 0.25, "solo": 0.5}
    """Share of the answers of `demonstrate` without running values, by role, at `mistakes` = 1."""
    careless = 0.4
    """Share of its splits at a plus that is drawn at random."""
    words = (*"0123456789+*", "split", "and", "solve", "join", "whole", "answer", "none")

    @property
    def roles(self) -> tuple[str, ...]:
        return ("orchestrator", *numbered("worker", (self.n_agents or self.fewest) - 1))

    @property
    def workers(self) -> tuple[str, ...]:
        return self.roles[1:]

    @property
    def max_tokens(self) -> int:
        return 1024 if self.full else 2 * self.number * len(self.workers)

    def problems(self, n: int, split: str, seed: int) -> list[tuple[str, dict[str, str]]]:
        if self.full:
            return super().problems(n, split, seed)
        rng = random.Random(f"{self.name} {self.number} {len(self.workers)} {split} {seed}")
        drawn = draw(sums(rng, len(self.workers), self.number), n, split, self.name)
        return [(problem, {"problem": problem, "gold": str(value(problem))}) for problem in drawn]

    def acting(self, state: State) -> tuple[str, ...]:
        if state.done or self.single_agent:
            return super().acting(state)
        return self.workers if state.parts and not state.answers else ("orchestrator",)

    def observe(self, state: State, agent: str) -> list[Message]:
        if agent in self.workers:
            part = state.parts[self.workers.index(agent)]
            return chat(part, PROMPTS["orchestrator"]["worker"]) if self.full else chat(f"solve {part}")
        answers = [answer or "none" for answer in state.answers]
        duty = "whole" if self.single_agent else "join" if answers else "split"
        if not self.full:
            return chat(f"{duty} {' '.join(answers) if answers else state.problem}")
        found = [f"Part: {part}\nAnswer: {answer}" for part, answer in zip(state.parts, answers, strict=bool(answers))]
        return chat("\n\n".join([state.problem, *found]), PROMPTS["orchestrator"][duty].format(n=len(self.workers)))

    def read_split(self, text: str, problem: str) -> tuple[str, ...]:
        """Return the part of each worker, or an empty tuple if the split cannot be read."""
        if self.full:
            parts = [part for _, part in tagged(text, "part")]
            fits = all(parts)
        else:
            parts = " ".join(text.split()).split(" and ")
            fits = joined(parts) == problem
        return tuple(parts) if fits and len(parts) == len(self.workers) else ()

    def act(self, state: State, actions: Mapping[str, str]) -> Step:
        answers = {agent: self.read_answer(text) for agent, text in actions.items()}
        valid = {agent: answer is not None for agent, answer in answers.items()}
        if set(actions) == set(self.workers):
            pairs = zip(answers.items(), state.parts, strict=True)
            right = {agent: not self.full and answer == str(chains.value(part)) for (agent, answer), part in pairs}
            local = {agent: float(is_so) for agent, is_so in right.items()}
            return Step(replace(state, answers=tuple(answers.values())), 0.0, local, valid, False, False)
        ((agent, text),) = actions.items()
        if not (self.single_agent or state.parts):
            parts = self.read_split(text, state.problem)
            right = bool(parts) and (self.full or list(parts) == split(state.problem))
            after = replace(state, parts=parts, done=not parts)
            return Step(after, 0.0, {agent: float(right)}, {agent: bool(parts)}, False, after.done)
        success = right = is_right(answers[agent], state.gold)
        if not (self.single_agent or self.full):
            right = None not in state.answers and answers[agent] == str(chains.value(joined(state.answers)))
        return Step(replace(state, done=True), float(success), {agent: float(right)}, valid, success, True)

    def demonstrate(self, state: State, agent: str, rng: random.Random) -> str:
        """Return an imperfect turn to learn from: splits at a wrong plus, guesses, wrong running values.

        In full size it has the right form; the answer in it is wrong half of the time.
        """
        splits = not (self.single_agent or state.parts)
        if self.full:
            answer = self.half_right(state, rng)
            return f"<part>{state.problem}</part>\n" * len(self.workers) if splits else f"\\boxed{{{answer}}}"
        if splits:
            return " and ".join(self._attempt_split(state.problem, rng))
        hasty = self.hasty[role_of(agent)]
        if self.single_agent:
            parts = [self._attempt(part, rng, 0.0)[0] for part in split(state.problem)]
            total, working = self._attempt(joined([part[-1] for part in parts]), rng, hasty)
            values = [*chain.from_iterable(parts), *total]
        else:
            total = joined([answer or 0 for answer in state.answers])
            part = dict(zip(self.workers, state.parts, strict=True)).get(agent, total)
            values, working = self._attempt(part, rng, hasty)
        return chains.answer_text(values, working)

    def _attempt(self, part: str, rng: random.Random, hasty: float) -> tuple[list[int], bool]:
        values, working = chains.attempt(part, rng, hasty, self.mistakes)
        return values or [int(part)], working

    def _attempt_split(self, problem: str, rng: random.Random) -> list[str]:
        """Return the right split, or now and then one at random."""
        if rng.random() >= self.careless * self.mistakes:
            return split(problem)
        terms = problem.split(" + ")
        cuts = sorted(rng.sample(range(1, len(terms)), len(self.workers) - 1))
        return [" + ".join(terms[i:j]) for i, j in zip([0, *cuts], [*cuts, len(terms)], strict=True)]
