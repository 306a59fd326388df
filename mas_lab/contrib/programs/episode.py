"""One run of a user's program on one task: its thread, its calls, its limits and its rows.

Leaves out: how a call is answered (`dispatcher`).
"""

import asyncio
import inspect
import secrets
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

from mas_lab.arguments import ArgumentError, check_arguments
from mas_lab.cells.episode import EpisodeState, Generation, Node
from mas_lab.contrib.programs.chat import ChatRequest, RequestError, answer_to, parse_request
from mas_lab.env import Message, Step, Task, not_plain, transcript
from mas_lab.policy import Completion, Request
from mas_lab.team import Team
from mas_lab.tool_calls import answer_of

Program = Callable[[Task, "Endpoint"], Any]
"""Function or coroutine function `program(task, endpoint)` of a user.

It makes its calls and returns the rewards: a number for the team, {agent: number} for single agents, or an
`EpisodeResult`.
"""

LARGEST = 1e150
"""Rewards must stay below this number; the squares of larger ones overflow."""


@dataclass(frozen=True)
class EpisodeResult:
    """Rewards and outcome of one episode that a program played."""

    team: float | bool = 0.0
    """Reward of the team, recorded at the episode's last call."""
    agents: Mapping[str, float | bool] = field(default_factory=dict)
    """Local rewards, {agent: number}, recorded at each agent's last call. Agents that are not named get 0."""
    success: bool | None = None
    """True if the goal was reached. `None`: an episode succeeds if `team` is at least the env's `max_return`."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """Plain data for the column `info` of the episode's last call."""

    def __post_init__(self):
        check_arguments(EpisodeResult, vars(self), "the program's result")


@dataclass(frozen=True)
class Endpoint:
    """Access to the team's agents within one episode.

    `base_url` and `api_key` are for any client of OpenAI's chat completions, where `model` is the agent's name.
    `endpoint("solver", "2 + 2?")` makes a call without a client.
    """

    base_url: str
    api_key: str
    ask: Callable[[Any], dict[str, Any]] = field(repr=False)

    def __call__(self, agent: str, messages: str | Sequence[Message], **options: Any) -> str:
        """Return the text that `agent` answers to `messages`.

        A plain text is sent as one message of the user. `options`: temperature, max_tokens, stop.
        """
        return self.message(agent, messages, **options)["content"] or ""

    def message(self, agent: str, messages: str | Sequence[Message], **options: Any) -> Message:
        """Return the message that `agent` answers with; with the option `tools`, it may have `tool_calls`.

        Messages, tools and calls have the form of OpenAI's chat completions, as do the other options.
        """
        chat = [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
        return self.ask({"model": agent, "messages": chat, **options})["choices"][0]["message"]


@dataclass(eq=False)
class Call:
    """One call. `number` counts the calls of its agent, `depth` those of its episode, from 0."""

    episode: "Episode"
    chat: ChatRequest
    number: int
    depth: int
    answer: SimpleQueue = field(default_factory=SimpleQueue)
    """The request to the engine and its completion, or a `RequestError`; the first one counts."""

    @property
    def place(self) -> str:
        return f"task {self.episode.state.task.id!r}, agent {self.chat.agent!r}, turn {self.number}"


@dataclass(eq=False)
class Episode:
    """A running program of `env`. Each call is put into `news`, and at the end the episode itself."""

    env: Any
    team: Team
    state: EpisodeState
    news: SimpleQueue
    key: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    calls: list[Call] = field(default_factory=list)
    said: dict[int, Generation] = field(default_factory=dict)
    """The answers, by the depth of their calls."""
    issued: dict[str, Message] = field(default_factory=dict)
    """The messages with tool calls that it was answered, by the ids of their calls."""
    result: EpisodeResult | None = None
    why: str = ""
    """Reason why the episode failed; empty if it did not."""
    refusal: str = ""
    """Why its first unanswered call got no answer."""
    since: float = 0.0
    seconds: float = 0.0
    _over: bool = False
    _lock: Lock = field(default_factory=Lock)

    @property
    def place(self) -> str:
        return f"episode {self.state.episode!r} of task {self.state.task.id!r}"

    @property
    def failure(self) -> str:
        """Return why the episode failed: its own reason, or that no call was answered; an empty text if it did not."""
        if self.why or self.said:
            return self.why
        return f"no call of it was answered{f' ({self.refusal})' if self.refusal else ' before it returned'}"

    def start(self, base_url: str) -> None:
        self.since, endpoint = time.monotonic(), Endpoint(base_url, self.key, self.ask)
        Thread(target=self._work, args=(endpoint,), name=f"mas_lab {self.place}", daemon=True).start()

    def _work(self, endpoint: Endpoint) -> None:
        try:
            returned = self.env.program(self.state.task, endpoint)
            returned = asyncio.run(returned) if inspect.iscoroutine(returned) else returned
        except BaseException as error:  # any error fails this episode and no other
            place = traceback.extract_tb(error.__traceback__)[1:2]
            where = f" ({place[0].filename.rpartition('/')[2]}, line {place[0].lineno})" if place else ""
            self.end(None, f"its program raised {type(error).__name__}: {error}{where}")
        else:
            self.end(*result_of(returned, self.env.agents, {call.chat.agent for call in self.calls}))

    def ask(self, body: Any) -> dict[str, Any]:
        """Wait for the answer to one request and return it, or raise `RequestError`."""
        try:
            call = self._call(parse_request(body))
            self.news.put(call)
            answer = call.answer.get()
            if isinstance(answer, RequestError):
                raise answer
            return self._take(call, *answer)
        except RequestError as refused:
            self.refusal = self.refusal or str(refused)
            raise

    def _call(self, chat: ChatRequest) -> Call:
        """Return the call of a request, unless the episode may not make it."""
        chat.messages = [self._as_issued(message) for message in chat.messages]
        with self._lock:
            if self._over:
                raise self._ended()
            if chat.agent not in self.env.agents:
                self.why = f"it called agent {chat.agent!r:.80}, and the agents are {', '.join(self.env.agents)}"
                raise RequestError(404, self.why)
            if len(self.calls) >= self.env.max_calls:
                self.why = f"it made more than max_calls={self.env.max_calls} calls"
                raise RequestError(403, self.why)
            number = sum(one.chat.agent == chat.agent for one in self.calls)
            self.calls.append(Call(self, chat, number, len(self.calls)))
            return self.calls[-1]

    def _as_issued(self, message: Message) -> Message:
        """Return the message with tool calls that this episode sent; clients write its arguments in their own way."""
        ids = [call["id"] for call in message.get("tool_calls", ())]
        return next((self.issued[name] for name in ids if name in self.issued), message)

    def _take(self, call: Call, request: Request, completion: Completion) -> dict[str, Any]:
        """Keep what a completion says to a call, and return the answer.

        It runs in the thread of the call, because to compare arguments with a schema may take seconds.
        """
        chat, tools, message = call.chat, call.chat.offered, {"role": "assistant", "content": completion.text}
        demand = "" if chat.tool_choice in ("auto", "none") else f"\ntool_choice: {chat.tool_choice}"
        columns = {
            "policy": self.team.name_of(chat.agent), "prompt": transcript(chat.messages, tools) + demand,
            "prompt_ids": list(request.prompt_ids), "temperature": request.temperature, "completion": completion.text,
            "completion_ids": list(completion.ids), "logprobs": list(completion.logprobs), "finish": completion.finish,
        }  # fmt: skip
        if tools:
            found = answer_of(self.team[chat.agent], request.prompt_ids, completion, tools, call.depth)
            message, columns["call_status"] = found
        for one in request.stop if completion.finish == "stop" else ():
            message["content"] = message["content"].partition(one)[0]  # OpenAI's answers do not include the stop text
        with self._lock:
            if self._over:
                raise self._ended()
            self.issued |= {one["id"]: message for one in message.get("tool_calls", ())}
            self.said[call.depth] = Generation(chat.agent, 0, completion.text, columns)
        tokens = len(request.prompt_ids), len(completion.ids)
        return answer_to(chat, message, completion.finish, tokens, call.depth)

    def end(self, result: EpisodeResult | None, why: str) -> None:
        """End the episode; later calls of this method have no effect."""
        with self._lock:
            if self._over:
                return
            self._over, self.seconds, self.why = True, time.monotonic() - self.since, self.why or why
        if self.failure:
            is_paid = self.env.failed is not None and self.said
            result = EpisodeResult(self.env.failed, success=False) if is_paid else None
        self.result = result
        for call in self.calls:
            call.answer.put(self._ended())
        self.news.put(self)

    def _ended(self) -> RequestError:
        return RequestError(410, f"{self.place} has ended: {self.why or 'it has returned'}")

    def record(self) -> None:
        """Write the rows of all answered calls as one path, in the order of the calls; none without a result.

        The last row has the team's reward, and the last row of each agent has its local reward.
        """
        end, said = self.result, [self.said[depth] for depth in sorted(self.said)] if self.result else []
        parent, turns, last = "", Counter(), {one.agent: one for one in said}
        for depth, one in enumerate(said):
            at, done = Node(None, f"{self.state.episode}/{depth}", parent, depth, turns), one is said[-1]
            own = {one.agent: float(end.agents.get(one.agent, 0.0)) if one is last[one.agent] else 0.0}
            won = end.team >= self.env.max_return - 1e-9 if end.success is None else end.success
            valid = {one.agent: one.columns.get("call_status", "none") in ("none", "ok")}
            info = end.info if done else {}
            self.state.record(at, [one], Step(None, float(end.team * done), own, valid, bool(won and done), done, info))
            parent, turns = self.state.action_name(at, [one]), turns + Counter([one.agent])


def result_of(returned: Any, agents: Sequence[str], called: set[str]) -> tuple[EpisodeResult | None, str]:
    """Return a program's return value as a result, and the reason why it is none (or an empty text)."""
    try:
        if not isinstance(returned, EpisodeResult):
            returned = EpisodeResult(agents=returned) if isinstance(returned, Mapping) else EpisodeResult(returned)
    except ArgumentError as error:
        return None, str(error)
    for agent, reward in {"the team": returned.team, **returned.agents}.items():
        if not abs(reward) < LARGEST:
            return None, f"the reward of {agent} is {reward!r:.80}; return a number below {LARGEST:g}"
    for agent, reward in returned.agents.items():
        if agent not in agents or (reward and agent not in called):
            return None, f"it pays agent {agent!r:.80}, which it never called"
    return returned, not_plain(returned.info, "info")
