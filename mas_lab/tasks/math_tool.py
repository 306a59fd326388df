r"""Math with a tool: a reasoner answers, and a tool user writes a program that answers (AT-GRPO, arXiv 2510.11062).

Both work on the same problem at once and do not see each other's text, as in the released code. Turns continue until
their answers agree. Pocket size has chains of digits as in `math`, and programs of one line. Full size has word
problems for an instruction model, with answers in `\boxed{}` and Python in a fenced block. A prompt shows only the last
turn; the released code shows all turns. Running programs is in `sandbox`, comparing two answers in `grading`, reading
files in `rows`.
"""

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from mas_lab.env import Message, Step
from mas_lab.tasks import sandbox
from mas_lab.tasks.shared import chains, programs
from mas_lab.tasks.shared.bases import PROMPTS, chat
from mas_lab.tasks.shared.grading import is_right
from mas_lab.tasks.shared.programs import Result

RUNS, PRINTS, FORMAT, MATCH = 0.1, 0.1, 0.2, 0.8
"""Local rewards: for a program that ends without an error, for a program that prints, for a reasoner's answer that can
be read, and for a right answer of either agent."""
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
UNREAD = Result(sandbox.Outcome("no program"))
SLIPS = {"digit": 0.15, "operation": 0.1, "modulo": 0.15, "bracket": 0.1}
"""Probability that a program of `demonstrate` has another digit, has another operation, forgets `% 10`, or lacks its
last bracket, at `mistakes` = 1."""

PYTHON = ("x", "=", *(f"{operation}=" for operation in chains.OPERATIONS), ";", "print", "(", ")", "%", "10")
PROMPT_WORDS = ("printed", "answered", "answer", "other", "nothing", "none", *sandbox.STATUSES[1:])
"""Words of pocket programs and prompts."""


@dataclass(frozen=True)
class State(chains.ProblemState):
    """State after a turn: the tool user's program, its result, and both answers.

    `code` is `None` if no program could be read; `printed` and `answer` are `None` if there is no readable answer.
    """

    turn: int = 0
    code: str | None = None
    ran: Result = UNREAD
    printed: str | None = None
    answer: str | None = None


@dataclass(frozen=True)
class MathTool(chains.MathTask):
    """A reasoner and a tool user, who writes a program, answer a problem at once, until they agree (`max_turns`).

    Rewards: `team_reward` = [the answers agree and are right]. `local_reward` of the tool user, whose answer is the
    last line that its program prints, is 0.1 [it ends without error] + 0.1 [it prints] + 0.8 [right], and of the
    reasoner 0.2 [readable] + 0.8 [right].

    Published rewards (PettingLLMs): in each turn the team earns 1 if the reasoner is right, and each agent 1 if it is
    right itself. `max_return` is then `max_turns`, and success needs a right reasoner in the last turn. Fault: the
    reasoner alone earns the team's reward, and more of it the longer the two disagree; a program that crashes with the
    answer in its error counts as right.

    In the next turn each agent sees both answers of the turn before. The tool user also sees its last program and what
    it printed, or its error. A program that ends with an error has no answer; a guess that it prints counts like any
    answer. An output without a readable program or answer is invalid.

    A program that needs something that the sandbox lacks (status "unsupported") fails like any other. `Step.info` has
    the status, the last line and the error of each program. It also says whether the answer is right and agreed on, and
    has `backstop` if the wall clock ended the program.

    A single agent writes programs until one prints an answer that can be read, and this answer counts.

    `size` is either "pocket" (5 digits), "full", or the number of digits of a pocket chain, 2 to 9.
    """

    max_turns: int = 4

    name = "math_tool"
    paper = "AT-GRPO, arXiv 2510.11062"
    order = "tool + reasoner, until they agree, up to 4 turns"
    pocket = "math_tool"
    state_type = State
    hasty = 0.5
    """Share of the answers of `demonstrate` that are not computed, at `mistakes` = 1: the reasoner leaves out the
    running values, and the tool user prints a digit."""
    copies = 0.5
    """Share of its answers that copy the other agent's answer of the turn before, at `mistakes` = 1."""

    roles = ("tool", "reasoner")
    words = (*chains.WORDS, *PYTHON, *PROMPT_WORDS, "tool", "reasoner", "solo")

    @property
    def max_return(self) -> float:
        return float(self.max_turns if self.published and not self.single_agent else 1)

    @property
    def max_tokens(self) -> int | Mapping[str, int]:
        if self.full:
            return 1024
        return {agent: self.number + 3 if agent == "reasoner" else 4 * self.number + 8 for agent in self.agents}

    def observe(self, state: State, agent: str) -> list[Message]:
        if not self.full:
            return chat(self._pocket_prompt(state, agent))
        say, ran = PROMPTS[self.name], state.ran
        if not state.turn:
            return chat(state.problem, say[agent])
        ended = "printed" if ran.line else "silent"
        kind = "lacking" if ran.unknown else ended if ran.outcome.status == "ok" else "failed"
        result = say[kind].format(error=ran.error, status=ran.outcome.status, line=ran.line)
        program = say["program"].format(code=state.code, result=result) if state.code else say["no_program"]
        answers = {"answer": state.answer or say["unread"], "printed": state.printed or say["unread"]}
        return chat(f"{state.problem}\n\n{say[f'last_{agent}'].format(program=program, **answers)}", say[agent])

    def _pocket_prompt(self, state: State, agent: str) -> str:
        """Return a prompt such as `printed error answered 7 tool 3 + 4`.

        The problem comes last: its distance to the answer is then always the same, which small models learn faster.
        """
        if not state.turn:
            return f"{agent} {state.problem}"
        ran = state.ran
        printed = state.printed or ("none" if ran == UNREAD else ran.outcome.status)
        printed = ("other" if ran.line else "nothing") if printed == "ok" else printed
        answered = "" if agent == "solo" else f"answered {state.answer or 'none'} "
        return f"printed {printed} {answered}{agent} {state.problem}"

    def answer_of(self, ran: Result) -> str | None:
        """Return a program's answer, to 12 digits, or `None`; a pocket answer is one digit and nothing else."""
        answer = ran.line if ran.outcome.status == "ok" and len(ran.line) < programs.LONGEST_LINE else ""
        if ran.outcome.status != "ok" and self.published:
            answer = (NUMBER.findall(f"{ran.error} {ran.line}") or [""])[-1]
        answer = re.sub(r"^-?\d+\.\d{12,}$", lambda long: f"{float(long[0]):.12g}", answer)  # 100 * 1.1
        return answer if answer and (self.full or chains.is_digit(answer)) else None

    def act(self, state: State, actions: Mapping[str, str]) -> Step:
        writer, *reasoner = self.agents
        code = programs.read_code(actions[writer], "print")
        ran = programs.printed(code) if code else UNREAD
        printed, answer = self.answer_of(ran), self.read_answer(actions["reasoner"]) if reasoner else None
        found = {writer: printed} | dict.fromkeys(reasoner, answer)
        right = {agent: is_right(one, state.gold) for agent, one in found.items()}
        agreed = None not in found.values() and (not reasoner or is_right(answer, printed))
        last = agreed or state.turn + 1 == self.max_turns
        if self.published:
            solved, local = right[self.agents[-1]], {agent: float(one) for agent, one in right.items()}
        else:
            solved = agreed and all(right.values())
            local = {agent: FORMAT * (answer is not None) + MATCH * right[agent] for agent in reasoner}
            runs = ran.outcome.status == "ok"
            local[writer] = RUNS * runs + PRINTS * (runs and ran.line != "") + MATCH * right[writer]
        after = replace(state, turn=state.turn + 1, code=code, ran=ran, printed=printed, answer=answer, done=last)
        valid = {writer: code is not None} | dict.fromkeys(reasoner, answer is not None)
        info = ran.info | {"right": right[writer], "agreed": agreed}
        return Step(after, float(solved), local, valid, last and solved, last, info)

    def demonstrate(self, state: State, agent: str, rng: random.Random) -> str:
        """Return an imperfect answer to learn from: slips, guesses, and copies of the other agent's answer.

        In full size it has the right form; the answer in it is wrong half of the time.
        """
        if self.full:
            answer = self.half_right(state, rng)
            return f"\\boxed{{{answer}}}" if agent == "reasoner" else f"```python\nprint({answer!r})\n```"
        other = {"tool": state.answer, "reasoner": state.printed}.get(agent)
        if other and rng.random() < self.copies * self.mistakes:
            return f"answer {other}" if agent == "reasoner" else f"print ( {other} )"
        values, working = chains.attempt(state.problem, rng, self.hasty, self.mistakes)
        if agent == "reasoner":
            return chains.answer_text(values, working)
        return written(state.problem, rng, self.mistakes) if working else f"print ( {values[-1]} )"


def written(chain: str, rng: random.Random, mistakes: float = 0.0) -> str:
    """Return the program of a chain, `x = 3 ; x += 4 ; print ( x % 10 )`, with occasional slips."""
    slips = [rng.random() < SLIPS[kind] * mistakes for kind in SLIPS]
    words, operations = chain.split(), [*chains.OPERATIONS]
    if slips[0]:
        words[2 * rng.randrange(len(words) // 2 + 1)] = str(rng.randrange(10))
    if slips[1]:
        words[2 * rng.randrange(len(words) // 2) + 1] = rng.choice(operations)
    steps = [f"x {operation}= {digit}" for operation, digit in zip(words[1::2], words[2::2], strict=True)]
    last = "print ( x )" if slips[2] else "print ( x % 10 )"
    return " ; ".join([f"x = {words[0]}", *steps, last.removesuffix(" )") if slips[3] else last])
