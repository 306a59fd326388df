r"""Math by solver and verifier: one answers, the other approves or sends back (Dr. MAS, arXiv 2602.08847).

With `fixer=True` a third role is called only after a rejection; a global baseline inflates the gradient of this agent.
Pocket size has chains of digits with + - *, read from left to right, mod 10. The size "words" has short questions for
a small real model. Full size has word problems for an instruction model, with answers in `\boxed{}`. Comparing two
answers is in `grading`, reading files in `rows`.
"""

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from mas_lab.env import Message, Step
from mas_lab.tasks.shared import chains, questions
from mas_lab.tasks.shared.bases import LATEST, PROMPTS, chat, numbered, role_of
from mas_lab.tasks.shared.grading import is_right

VERDICTS = {"approve": True, "reject": False}
FORMAT, MATCH = 0.2, 0.8
"""Local reward of a solver for an answer that can be read, and for a right answer."""


@dataclass(frozen=True)
class Turn:
    """One turn: `answer` of a solver or fixer (`None`: unreadable), `approved` of a verifier (else `None`)."""

    agent: str
    text: str
    answer: str | None = None
    approved: bool | None = None


@dataclass(frozen=True)
class State(chains.ProblemState):
    turns: tuple[Turn, ...] = ()

    @property
    def rounds(self) -> int:
        """Return the number of verdicts so far."""
        return sum(turn.approved is not None for turn in self.turns)

    @property
    def answers(self) -> list[str | None]:
        return [turn.answer for turn in self.turns if turn.approved is None]

    @property
    def rejected(self) -> list[str | None]:
        """Return the answers that a verifier sent back, oldest first."""
        return [self.turns[i - 1].answer for i, turn in enumerate(self.turns) if turn.approved is False]


def _in_short(turn: Turn) -> str:
    if turn.approved is None:
        return f"{turn.agent} answered: {turn.answer or 'nothing that can be read'}"
    return f"{turn.agent} rejected that answer"


@dataclass(frozen=True)
class Math(chains.MathTask):
    """A solver answers and a verifier judges the answer, for up to `max_turns` rounds.

    With `fixer=True` the order is solver, verifier, and after each rejection fixer, verifier. The episode ends at an
    approval or after the last round's verdict, and the last answer counts. `team_reward` is 1 or 0 at that step alone,
    so `max_return` = 1. Drafts and earlier verdicts earn 0.

    `local_reward` of solver and fixer: 0.2 for an answer that can be read, plus 0.8 for a right answer. `local_reward`
    of the verifier: 1 if its verdict agrees with the truth. An unreadable verdict is invalid, earns 0 and sends the
    answer back. The recipe decides the cost of an invalid output: `episode_return(invalid=Math.invalid_penalty)`.

    Rewards "published" read the verdict as the released code does. One verdict "approve" approves, even beside a
    "reject", and an unreadable verdict approves. Defect: a verifier that writes nonsense lets everything pass.

    With `n_agents` above 2 (3 with a fixer) there are several solvers. In each round they speak in turn, each sees the
    last four answers before its own, and the last solver's answer is judged. With a fixer they speak only in the first
    round.

    `size` is either "pocket" (5 digits), "words", "full", or the number of digits of a pocket chain, 2 to 9.
    """

    n_agents: int | None = None
    """Number of agents, 2 to 16: one verifier, with `fixer` one fixer, and solvers. `None` means one solver."""
    fixer: bool = False
    max_turns: int = 3

    sizes = ("pocket", "words", "full")
    name = "math"
    paper = "Dr. MAS, arXiv 2602.08847"
    order = "solver → verifier (→ fixer?), up to 3 loops"
    state_type = State
    invalid_penalty = 0.1
    """Penalty of Dr. MAS: it is subtracted from the return of an invalid output."""
    hasty = {"solver": 0.5, "verifier": 0.75, "fixer": 1.0, "solo": 0.5}
    """Share of the answers of `demonstrate` without running values, by role, at `mistakes` = 1."""
    trusts = 0.85
    """Share of its verdicts without running values that approve."""
    words = (*chains.WORDS, "solve", "check", "fix", "others", "tried", "answer", "none", *VERDICTS)

    def __post_init__(self):
        super().__post_init__()
        self.require("fixer", not (self.single_agent and self.fixer), "a fixer needs a team; leave single_agent out")

    @property
    def fewest(self) -> int:
        return 3 if self.fixer else 2

    @property
    def solvers(self) -> tuple[str, ...]:
        count = (self.n_agents or self.fewest) - self.fewest + 1
        return ("solo",) if self.single_agent else numbered("solver", count)

    @property
    def roles(self) -> tuple[str, ...]:
        return (*self.solvers, "verifier", *(["fixer"] if self.fixer else []))

    def acting(self, state: State) -> tuple[str, ...]:
        if state.done:
            return ()
        last = state.turns[-1].agent if state.turns else "verifier"
        if last == "verifier":
            return ("fixer",) if self.fixer and state.turns else self.solvers[:1]
        following = dict(pairwise((*self.solvers, "verifier")))
        return (following.get(last, "verifier"),)

    def observe(self, state: State, agent: str) -> list[Message]:
        role = role_of(agent)
        if not self.full:
            system = PROMPTS["math_words"]["judge"] if role == "verifier" else PROMPTS["words"]["system"]
            return chat(self._short_prompt(state, role), system if self.in_words else "")
        early, late = state.turns[:-LATEST], state.turns[-LATEST:]
        work = ["\n".join(map(_in_short, early)), *(f"{turn.agent} wrote:\n{turn.text}" for turn in late)]
        work = "\n\n".join(filter(None, work))
        content = state.problem + (f"\n\nWork so far:\n\n{work}" if work else "")
        if role in ("verifier", "fixer"):
            content += f"\n\nCurrent answer: {state.answers[-1] or 'none that can be read'}"
        return chat(content, PROMPTS["math"][role])

    def _short_prompt(self, state: State, role: str) -> str:
        """Return a prompt such as `answer 8 check 3 + 4` or `tried 8 others 7 solve 3 + 4`, or the same in words.

        `tried` lists the rejected answers, `others` the answers of this round. The problem comes last: its distance to
        the answer is then always the same, which small models learn faster.
        """
        say, comma = PROMPTS["math_words" if self.in_words else "math_pocket"], ", " if self.in_words else " "
        if role == "verifier":
            return say[role].format(answers=state.answers[-1] or say["none"], problem=state.problem)
        begin = max((i + 1 for i, turn in enumerate(state.turns) if turn.approved is not None), default=0)
        listed = {"tried": state.rejected, "others": [turn.answer for turn in state.turns[begin:]][-LATEST:]}
        texts = {name: comma.join(one or say["none"] for one in answers) for name, answers in listed.items() if answers}
        lists = [say[name].format(answers=answers) for name, answers in texts.items()]
        return " ".join([*lists, say[role].format(problem=state.problem)])

    def read_verdict(self, text: str) -> bool | None:
        """Return True for approved, False for sent back, and `None` for an unreadable verdict.

        A pocket verdict has optional running values, then one verdict word. In words it is any text with one verdict.
        """
        if self.full or self.in_words:
            form = r"\b(approve|reject)\b" if self.in_words else r"<verdict>\s*(approve|reject)\s*</verdict>"
            found = re.findall(form, text.lower())
        else:
            found = [word for word in text.split() if not chains.is_digit(word)]
            found = found if self.published or text.split()[-1:] == found else []
        if self.published:
            return True if "approve" in found else False if "reject" in found else None
        return VERDICTS.get(found[0]) if len(found) == 1 else None

    def is_right(self, answer: str | None, state: State) -> bool:
        return is_right(answer, state.gold)

    def act(self, state: State, actions: Mapping[str, str]) -> Step:
        (agent,) = self.acting(state)
        text = actions[agent]
        if agent == "verifier":
            verdict, right = self.read_verdict(text), self.is_right(state.answers[-1], state)
            valid = verdict is not None
            approved = verdict if valid else self.published
            done = approved or state.rounds + 1 >= self.max_turns
            turn, local = Turn(agent, text, approved=approved), float(valid and verdict == right)
        else:
            answer, done = self.read_answer(text), self.single_agent
            valid, right = answer is not None, self.is_right(answer, state)
            turn, local = Turn(agent, text, answer=answer), FORMAT * valid + MATCH * right
        after, success = replace(state, turns=(*state.turns, turn), done=done), done and right
        return Step(after, float(success), {agent: local}, {agent: valid}, success, done)

    def demonstrate(self, state: State, agent: str, rng: random.Random) -> str:
        """Return an imperfect answer to learn from: guesses, wrong running values, hasty approvals.

        In full size it has the right form; the answer in it is wrong half of the time.
        """
        role = role_of(agent)
        if self.full:
            approve = rng.random() < self.trusts
            answer, verdict = self.half_right(state, rng), "approve" if approve else "reject"
            return f"<verdict>{verdict}</verdict>" if role == "verifier" else f"\\boxed{{{answer}}}"
        if self.in_words:
            text = questions.attempt(state.problem, rng, self.mistakes)
            agrees = questions.read_number(text) == state.answers[-1] if role == "verifier" else None
            return text if agrees is None else "approve" if agrees else "reject"
        values, working = chains.attempt(state.problem, rng, self.hasty[role], self.mistakes)
        if role != "verifier":
            return chains.answer_text(values, working)
        approve = str(values[-1]) == state.answers[-1] if working else rng.random() < self.trusts
        return chains.answer_text(values, working, "approve" if approve else "reject")
