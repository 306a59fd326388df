"""Calculator: a teaching task in which a team calls a tool that really runs.

Two agents work out a chain of three numbers, one operation each. The numbers are too large for a pocket model to add in
its head, so each agent calls `calculate` and reads the result. `program` makes the same calls as a program behind the
gateway. The task has only a pocket size.
"""

import json
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from mas_lab.env import Message, Step, Task, Tools
from mas_lab.tasks.shared.bases import DrawnTask, chat
from mas_lab.tasks.shared.rows import draw

OPERATIONS = {"+": int.__add__, "-": int.__sub__}
WHOLE, OPERATION = {"type": "integer"}, {"type": "string", "enum": [*OPERATIONS]}
ARGUMENTS = {"type": "object", "properties": {"a": WHOLE, "op": OPERATION, "b": WHOLE}, "required": ["a", "op", "b"]}
SAYS = "Add or subtract two whole numbers."
CALCULATE = {"type": "function", "function": {"name": "calculate", "description": SAYS, "parameters": ARGUMENTS}}
"""The tool, in the form of OpenAI's chat completions."""
SLIPS = {"number": 0.08, "name": 0.05, "key": 0.05, "brace": 0.06, "end": 0.08, "answer": 0.06}
"""Probability that a demonstrated call has another number, an unknown name, a wrong argument, a brace too few or no
closing mark, and that a demonstrated answer is another number, at `mistakes` = 1."""
LARGEST = 10**100
"""Bound of a result that is written in digits."""
NUMBER = re.compile(r"-?\d{1,9}")
"""An answer that can be read."""


def calculate(a: int, op: str, b: int) -> int:
    """Return a + b or a - b."""
    return OPERATIONS[op](a, b)


def results_of(message: Message) -> list[Message]:
    """Run the calls of a message, and return their results as messages of the role "tool"."""
    results = []
    for call in message.get("tool_calls", ()):
        arguments = call["function"]["arguments"]
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
        a, b = (int(arguments[key]) for key in ("a", "b"))  # to a schema, 30.0 is an integer, and more keys are right
        result = calculate(a, arguments["op"], b)
        content = str(result) if abs(result) < LARGEST else "too large"  # Python writes 4300 digits at most
        results.append({"role": "tool", "tool_call_id": call["id"], "content": content})
    return results


def value(chain: str) -> str:
    """Return the value of a chain, read from left to right: `30 + 4 - 12` gives `22`."""
    first, *rest = chain.split()
    total = int(first)
    for operation, number in zip(rest[::2], rest[1::2], strict=True):
        total = calculate(total, operation, int(number))
    return str(total)


def program(task: Task, endpoint: Any) -> float:
    """Play the task as a program, for `programs.play` and `ProgramEnv`; return 1 for the right value, else 0."""
    first, *rest = task.data["chain"].split()
    answer = first
    for agent, operation, number in zip(("opener", "closer"), rest[::2], rest[1::2], strict=True):
        messages = chat(f"{answer} {operation} {number}")
        message = endpoint.message(agent, messages, tools=[CALCULATE])
        if results := results_of(message):
            message = endpoint.message(agent, [*messages, message, *results], tools=[CALCULATE])
        answer = (message["content"] or "").strip()
        if not NUMBER.fullmatch(answer):
            break
    return float(answer == value(task.data["chain"]))


@dataclass(frozen=True)
class State:
    """State of an episode: the chain, the place of its next operation, and the messages of the agent that acts now."""

    chain: str
    first: str
    """First number of the operation that is due."""
    part: int = 0
    messages: tuple[Message, ...] = ()
    done: bool = False

    @property
    def question(self) -> str:
        return " ".join([self.first, *self.chain.split()[2 * self.part + 1 :][:2]])


@dataclass(frozen=True)
class Calculator(DrawnTask):
    """The opener works out the first operation of a chain, and the closer the second, from the opener's answer.

    Each may call the tool `calculate` and then says a number. `team_reward` is 1 if the last number is the value of the
    chain, so `max_return` = 1. `local_reward` is 1 for an answer that is right for the question asked, and for a call
    that leads to it. What is neither a call nor a number is invalid, and ends the episode, as does a second call.
    """

    largest: int = 99
    """Largest number of a chain, at least 20; the smallest is 10."""
    max_turns: int = 4
    mistakes: float = 1.0
    """How imperfect `demonstrate` is, 0 to 1."""

    name = "calculator"
    order = "opener → closer, each with a tool"
    paper = "a teaching task of this kit"
    agents = ("opener", "closer")
    max_return, max_tokens = 1.0, 32
    words = (*"0123456789", *OPERATIONS, "calculate", "compute", "a", "op", "b", "c")
    """Words of the pocket model: digits, and the names in right and wrong calls."""

    def __post_init__(self):
        self.require("largest", self.largest >= 20, "use a number from 20")
        self.require("max_turns", self.max_turns >= 1, "an agent needs at least one turn")
        self.require("mistakes", 0 <= self.mistakes <= 1, "use a share from 0 to 1")

    def tools(self, agent: str) -> Tools:
        return [CALCULATE]

    def problems(self, n: int, split: str, seed: int) -> list[tuple[str, dict[str, Any]]]:
        rng = random.Random(f"{self.name} {self.largest} {split} {seed}")
        return [(chain, {"chain": chain}) for chain in draw(self._chains(rng), n, split, self.name)]

    def _chains(self, rng: random.Random) -> Iterator[str]:
        while True:
            first, *others = (rng.randint(10, self.largest) for _ in range(3))
            yield " ".join([str(first), *(f"{rng.choice([*OPERATIONS])} {number}" for number in others)])

    def start(self, task: Task) -> State:
        return State(task.data["chain"], task.data["chain"].split()[0])

    def acting(self, state: State) -> tuple[str, ...]:
        return () if state.done else (self.agents[state.part],)

    def observe(self, state: State, agent: str) -> list[Message]:
        return [*chat(state.question), *state.messages]

    def step(self, state: State, actions: Mapping[str, Message]) -> Step:
        [(agent, message)] = actions.items()
        results, right = results_of(message), value(state.question)
        if results:
            done = bool(state.messages)
            after = replace(state, messages=(*state.messages, message, *results), done=done)
            return Step(after, 0.0, {agent: float(results[-1]["content"] == right)}, {agent: True}, False, done)
        answer, last = message["content"].strip(), state.part == 1
        valid = NUMBER.fullmatch(answer) is not None
        after = State(state.chain, answer, 1, done=last or not valid)
        success = last and answer == value(state.chain)
        return Step(after, float(success), {agent: float(answer == right)}, {agent: valid}, success, after.done)

    def demonstrate(self, state: State, agent: str, rng: random.Random) -> str:
        """Return a call with slips in it, or the result of the call, now and then another number."""
        slips = {kind: rng.random() < share * self.mistakes for kind, share in SLIPS.items()}
        other = str(rng.randint(10, self.largest))
        if state.messages:
            return other if slips["answer"] else state.messages[-1]["content"]
        a, op, b = state.question.split()
        arguments = {"a": int(a), "op": op, ("c" if slips["key"] else "b"): int(other if slips["number"] else b)}
        call = json.dumps({"name": "compute" if slips["name"] else "calculate", "arguments": arguments})
        end = "" if slips["end"] else "\n</tool_call>"
        return f"<tool_call>\n{call[: -1 if slips['brace'] else None]}{end}"
