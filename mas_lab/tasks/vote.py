r"""Vote: several voters answer one problem unseen by each other, and the majority decides (arXiv 2605.24202).

Pocket size has chains of digits as in `math`. Full size has word problems for an instruction model, with answers in
`\boxed{}`.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

from mas_lab.env import Message, Step
from mas_lab.tasks.shared import chains
from mas_lab.tasks.shared.bases import PROMPTS, chat, numbered
from mas_lab.tasks.shared.chains import ProblemState
from mas_lab.tasks.shared.grading import is_right


@dataclass(frozen=True)
class Vote(chains.MathTask):
    """Voters answer one problem at the same time, and the answer with the most votes is the team's.

    Rewards: `team_reward` = [the decision is right], where a tie decides nothing. `local_reward` = [own answer is
    right].

    An answer that cannot be read is invalid, and no vote.

    `size` is either "pocket" (5 digits), "full", or the number of digits of a pocket chain, 2 to 9.
    """

    n_agents: int | None = None
    """Number of voters, 2 to 16. `None` means three."""

    name = "vote"
    paper = "arXiv 2605.24202"
    order = "voter_1 + voter_2 + voter_3, the majority decides"
    choices = {"rewards": ("ours",)}
    max_turns = 1
    hasty = 0.5
    """Share of the answers of `demonstrate` without running values, at `mistakes` = 1."""
    words = (*chains.WORDS, "solve", "answer")

    @property
    def roles(self) -> tuple[str, ...]:
        return numbered("voter", self.n_agents or 3)

    def observe(self, state: ProblemState, agent: str) -> list[Message]:
        return chat(state.problem, PROMPTS["vote"]["voter"]) if self.full else chat(f"solve {state.problem}")

    def decided(self, answers: list[str]) -> str | None:
        """Return the answer with the most votes, or `None` if several have as many."""
        votes = [sum(is_right(other, answer) for other in answers) for answer in answers]
        first = [answer for answer, count in zip(answers, votes, strict=True) if count == max(votes)]
        return first[0] if first and all(is_right(other, first[0]) for other in first) else None

    def act(self, state: ProblemState, actions: Mapping[str, str]) -> Step:
        answers = {agent: self.read_answer(text) for agent, text in actions.items()}
        decision = self.decided([answer for answer in answers.values() if answer is not None])
        success = is_right(decision, state.gold)
        local = {agent: float(is_right(answer, state.gold)) for agent, answer in answers.items()}
        valid = {agent: answer is not None for agent, answer in answers.items()}
        return Step(replace(state, done=True), float(success), local, valid, success, True, {"decision": decision})

    def demonstrate(self, state: ProblemState, agent: str, rng: random.Random) -> str:
        """Return an imperfect answer to learn from; in full size it is wrong half of the time."""
        if self.full:
            return f"\\boxed{{{self.half_right(state, rng)}}}"
        return chains.answer_text(*chains.attempt(state.problem, rng, self.hasty, self.mistakes))
