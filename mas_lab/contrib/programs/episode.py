"""One run of a user's program on one task: its thread, its calls, its limits and its rows.

Leaves out: how a call is answered (`dispatcher`).
"""

import asyncio
import inspect
import secrets
import ssl
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass, field
from numbers import Real
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any

from mas_lab.cells.normalization import TALLEST
from mas_lab.contrib.programs.chat import ChatAnswer, ChatRequest, RequestError, answer_to, parse_request, read_token
from mas_lab.env import Message, Task, not_plain, transcript
from mas_lab.policy import Completion, Policy, Request
from mas_lab.tool_calls import answer_of

Program = Callable[[Task, "Endpoint"], Any]
"""Function or coroutine function `program(task, endpoint)` of a user.

It makes its calls and returns the rewards: a number for the team, {agent: number} for single agents, or an
`EpisodeResult`.
"""


@dataclass(frozen=True)
class EpisodeResult:
    """Rewards and outcome of one episode that a program played."""

    team: float = 0.0
    """Reward of the team, recorded at the episode's last call."""
    agents: Mapping[str, float] = field(default_factory=dict)
    """Local rewards, {agent: number}, recorded at each agent's last call. Agents that are not named get 0."""
    success: bool | None = None
    """True if the goal was reached. `None`: an episode succeeds if `team` is at least the env's `max_return`."""
    info: Mapping[str, Any] = field(default_factory=dict)
    """Plain data for the column `info` of the episode's last call."""


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

    def client(self, **options: Any) -> Any:
        """Return an `openai.OpenAI` client for this episode, without retries.

        Requires the package `openai`. `options` go to the client's constructor.
        """
        from openai import DefaultHttpxClient, OpenAI

        # Loopback needs no certificates, and reading them all takes 20 ms of each episode.
        plain = DefaultHttpxClient(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        own = {"base_url": self.base_url, "api_key": self.api_key, "max_retries": 0, "http_client": plain}
        return OpenAI(**own | options)


@dataclass(eq=False)
class Call:
    """One call in flight. `number` counts the calls of its agent, `depth` those of its episode, from 0."""

    episode: "Episode"
    chat: ChatRequest
    number: int
    depth: int
    answer: Future = field(default_factory=Future)

    @property
    def place(self) -> str:
        return f"task {self.episode.task.id!r}, agent {self.chat.agent!r}, turn {self.number}"

    def settle(self, drawn: tuple[Request, Policy, str, Completion] | RequestError) -> None:
        """Set what the policy of a name drew, or why it drew nothing, unless the call has one of them.

        An episode may end in its own thread while another thread answers its call.
        """
        self.episode.open.discard(self)
        with suppress(InvalidStateError):
            (self.answer.set_exception if isinstance(drawn, RequestError) else self.answer.set_result)(drawn)


@dataclass(eq=False)
class Episode:
    """State of one running episode. Each call is put into `news`, and `None` at the end."""

    program: Program
    task: Task
    name: str
    agents: tuple[str, ...]
    max_calls: int
    timeout_s: float
    news: SimpleQueue
    rows: list[dict[str, Any]] = field(default_factory=list)
    key: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    result: EpisodeResult | None = None
    why: str = ""
    """Reason why the episode failed; empty if it did not."""
    refusal: str = ""
    """Why its first unanswered call got no answer."""
    issued: dict[str, Message] = field(default_factory=dict)
    """The messages with tool calls that it was answered, by the ids of their calls."""
    open: set[Call] = field(default_factory=set)
    """Calls that wait for an answer."""
    since: float = 0.0
    until: float = 0.0
    _calls: Counter = field(default_factory=Counter)
    _over: bool = False
    _lock: Lock = field(default_factory=Lock)

    def start(self, base_url: str) -> None:
        self.since = time.monotonic()
        endpoint = Endpoint(base_url, self.key, self.ask)
        Thread(target=copy_context().run, args=(self._work, endpoint), name=f"mas_lab {self.name}", daemon=True).start()

    @property
    def failure(self) -> str:
        """Return why the episode failed: its own reason, or that it left no row; an empty text if it did not fail."""
        if self.why or self.rows:
            return self.why
        return f"no call of it was answered{f' ({self.refusal})' if self.refusal else ' before it returned'}"

    @property
    def is_late(self) -> bool:
        return not self._over and time.monotonic() - self.since > self.timeout_s

    @property
    def seconds(self) -> float:
        return self.until - self.since

    def ask(self, body: Any) -> dict[str, Any]:
        """Wait for the answer to one request and return it, or raise `RequestError`."""
        try:
            chat = parse_request(body)
            chat.messages = [self._issued(message) for message in chat.messages]
            calls = self._make_calls(chat)
            for call in calls:
                self.news.put((self, call))
            answers = [self.take(call, *call.answer.result()) for call in calls]
        except RecursionError:
            raise RequestError(400, "invalid_value", "a part of the request nests too deep; make it flatter") from None
        except RequestError as refused:
            self.refusal = self.refusal or str(refused)
            raise
        return answer_to(chat, answers)

    def _issued(self, message: Message) -> Message:
        """Return the message with tool calls that this episode sent; clients write its arguments in their own way."""
        ids = [call["id"] for call in message.get("tool_calls", ())]
        return self.issued.get(ids[0], message) if ids else message

    def _make_calls(self, chat: ChatRequest) -> list[Call]:
        """Return a call for each of the `n` draws of a request."""
        with self._lock:
            if self._over:
                raise self._ended()
            if chat.agent not in self.agents:
                known = ", ".join(self.agents)
                self.why = f"it called agent {chat.agent!r:.80}, and the agents are {known}"
                raise RequestError(
                    404, "model_not_found", f"no agent is called {chat.agent!r:.80}; the agents are {known}"
                )
            if self._calls.total() + chat.n > self.max_calls:
                self.why = f"it made more than max_calls={self.max_calls} calls"
                raise RequestError(403, "too_many_calls", self.why)
            first, depth = self._calls[chat.agent], self._calls.total()
            calls = [Call(self, chat, first + draw, depth + draw) for draw in range(chat.n)]
            self._calls[chat.agent] += chat.n
            self.open.update(calls)
        return calls

    def _work(self, endpoint: Endpoint) -> None:
        try:
            returned = self.program(self.task, endpoint)
            returned = asyncio.run(returned) if inspect.iscoroutine(returned) else returned
            result, why = result_of(returned, self.agents, self._calls)
        except BaseException as error:  # any error fails this episode and no other
            result, why = None, _describe(error)
        self.end(result, why)

    def end(self, result: EpisodeResult | None, why: str) -> None:
        """End the episode; later calls of this method have no effect."""
        with self._lock:
            if self._over:
                return
            self._over, self.until = True, time.monotonic()
            self.why = self.why or why
            self.result = None if self.why else result
        for call in list(self.open):
            call.settle(self._ended())
        self.news.put((self, None))

    def _ended(self) -> RequestError:
        return RequestError(410, "episode_ended", f"episode {self.name!r} has ended: {self.why or 'it has returned'}")

    def take(self, call: Call, request: Request, policy: Policy, name: str, completion: Completion) -> ChatAnswer:
        """Keep the row of a call, which a completion of the policy called `name` answers, and return the answer.

        It runs in the thread of the call, because to compare arguments with a schema may take seconds.
        """
        chat, tools, ids = call.chat, call.chat.offered, list(completion.ids)
        message, status = {"role": "assistant", "content": completion.text}, "none"
        if tools:
            message, status = answer_of(policy, request.prompt_ids, completion, tools, call.depth)
        for one in request.stop if completion.finish == "stop" else ():
            message["content"] = message["content"].partition(one)[0]  # OpenAI's answers do not include the stop text
        demand = "" if chat.tool_choice in ("auto", "none") else f"\ntool_choice: {chat.tool_choice}"
        row = {
            "task": self.task.id, "episode": self.name, "depth": call.depth, "agent": chat.agent,
            "candidate": 0, "kept": True, "probe": False, "policy": name,
            "prompt": transcript(chat.messages, tools) + demand, "prompt_ids": list(request.prompt_ids),
            "temperature": request.temperature, "completion": completion.text, "completion_ids": ids,
            "logprobs": list(completion.logprobs), "finish": completion.finish,
            **({"call_status": status} if tools else {}), "valid": status in ("none", "ok"), "team_reward": 0.0,
            "local_reward": 0.0, "success": False, "done": False,
            "info": {} if chat.seed is None else {"ignored": ["seed"]},
        }  # fmt: skip
        with self._lock:
            if self._over:
                raise self._ended()
            self.issued |= {one["id"]: message for one in message.get("tool_calls", ())}
            self.rows.append(row)
        tokens = [read_token(policy.tokenizer, token) for token in ids] if chat.logprobs else ids
        prompted = len(request.prompt_ids)
        return ChatAnswer(message, completion.finish, tokens, completion.logprobs, prompted, call.depth)

    def closed_rows(self, max_return: float) -> list[dict[str, Any]]:
        """Return the rows of all answered calls as one path, in the order of the calls.

        The last row has the team's reward, and the last row of each agent has its local reward.
        """
        rows, turns = sorted(self.rows, key=lambda row: row["depth"]), Counter()
        for depth, row in enumerate(rows):
            node, before = f"{self.name}/{depth}", f"{self.name}/{depth - 1}.0" if depth else ""
            row |= {"depth": depth, "node": node, "parent": before, "action": f"{node}.0", "turn": turns[row["agent"]]}
            turns[row["agent"]] += 1
        last = {row["agent"]: row for row in rows}
        for agent, reward in self.result.agents.items():
            if agent in last:
                last[agent]["local_reward"] = float(reward)
        success = self.result.success
        won = self.result.team >= max_return - 1e-9 if success is None else success
        for row in rows[-1:]:
            row |= {"team_reward": float(self.result.team), "success": bool(won), "done": True,
                    "info": row["info"] | dict(self.result.info)}  # fmt: skip
        return rows


def result_of(returned: Any, agents: Sequence[str], calls: Counter) -> tuple[EpisodeResult, str]:
    """Return a program's return value as a result, and the reason why it is none (or an empty text).

    `calls` holds the number of calls of each agent.
    """
    if isinstance(returned, Mapping):
        returned = EpisodeResult(agents=returned)
    elif not isinstance(returned, EpisodeResult):
        returned = EpisodeResult(team=returned)
    for agent, reward in {"the team": returned.team, **returned.agents}.items():
        if not isinstance(reward, Real) or not abs(reward) < TALLEST:
            expected = f"a number below {TALLEST:g} or a lab.EpisodeResult of them"
            return returned, f"the reward of {agent} is {reward!r:.80}; return {expected}"
    if not calls:
        return returned, "it called nobody"
    for agent, reward in returned.agents.items():
        if agent not in agents or (reward and not calls[agent]):
            return returned, f"it pays agent {agent!r:.80}, which it never called"
    if returned.success not in (None, True, False):
        return returned, f"success is {returned.success!r:.80}; return True, False or None"
    if not isinstance(returned.info, Mapping):
        return returned, f"info is a {type(returned.info).__name__}; return a dict of plain data"
    return returned, not_plain(returned.info, "info")


def _describe(error: BaseException) -> str:
    """Describe the exception that a program raised, with file and line."""
    place = traceback.extract_tb(error.__traceback__)[1:2]
    where = f" ({place[0].filename.rpartition('/')[2]}, line {place[0].lineno})" if place else ""
    return f"its program raised {type(error).__name__}: {error}{where}"
