"""Dispatcher for the calls of live programs: it serves all engines from one thread, in waves or as streams.

Leaves out: the programs (`episode`), and how their calls arrive (`gateway`).
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

from mas_lab.cells.driver import PendingRequests, draw_seed
from mas_lab.contrib.programs.chat import RequestError
from mas_lab.contrib.programs.episode import Call, Episode
from mas_lab.contrib.programs.gateway import Gateway
from mas_lab.locks import locked
from mas_lab.policy import Request
from mas_lab.team import Team

SLICE = 0.05
"""Seconds between two checks for late episodes and for waves that have waited long enough."""

CHARACTERS = 64
"""Characters per token of the context beyond which a prompt is refused before it is tokenized."""


class Dispatcher:
    """Dispatcher that plays episodes, at most `at_once` of them at a time.

    A draw depends only on (seed, step, episode, agent, number of that agent's call). An engine that answers in waves
    gets its requests when all live episodes wait. So the same calls are computed together each time. After `patience_s`
    seconds without news it gets them anyway.
    """

    def __init__(
        self, team: Team, seed: int, step: int, max_tokens: int, patience_s: float, finished: Callable[[], Any]
    ):
        self.team, self.seed, self.step, self.max_tokens, self.finished = team, seed, step, max_tokens, finished
        self.patience_s, self._news_at = patience_s, time.monotonic()
        self.news: SimpleQueue[tuple[Episode, Call | None]] = SimpleQueue()
        """Calls of episodes, and `None` for the end of one; any thread may put them here."""
        self.waiting: list[Call] = []
        self.pending: PendingRequests[tuple[Call, Request]] = PendingRequests(team, lambda accepted: accepted[0].place)

    def play(self, episodes: Sequence[Episode], at_once: int) -> None:
        coming, live = deque(episodes), set()
        try:
            with Gateway() as gateway, locked(self.team.policies.values()):
                while coming or live:
                    while coming and len(live) < at_once:
                        live.add(episode := coming.popleft())
                        gateway.episodes[episode.key] = episode.ask
                        episode.start(gateway.address)
                    self._turn(gateway, live)
        finally:
            for episode in live:
                episode.end(None, "playing was broken off")
            self.pending.cancel()

    def _turn(self, gateway: Gateway, live: set[Episode]) -> None:
        """Take in news, then send requests to the engines."""
        ended = self._hear(0.0 if self.pending else SLICE)
        for episode in live:
            if episode.is_late:
                episode.end(None, f"it took more than timeout_s={episode.timeout_s:g} seconds")
        for episode in ended:
            live.discard(episode)
            gateway.episodes.pop(episode.key, None)
            self.finished()
        if ended:
            return  # the next wave includes the episodes that replace them
        callers = {call.episode for call in self.waiting}
        silent = time.monotonic() - self._news_at > self.patience_s
        if self.waiting and (self.pending.streams or silent or callers >= live):
            calls, self.waiting = sorted(self.waiting, key=lambda call: (call.episode.name, call.depth)), []
            for agent in sorted({call.chat.agent for call in calls}):
                self._submit(agent, [call for call in calls if call.chat.agent == agent and not call.answer.done()])
        for (call, request), completion in self.pending.answers() if self.pending else ():
            agent = call.chat.agent
            call.settle((request, self.team[agent], self.team.name_of(agent), completion))

    def _hear(self, seconds: float) -> list[Episode]:
        """Take in calls, wait up to `seconds` for the first, and return the episodes that have ended."""
        ended = []
        try:
            while True:
                episode, call = self.news.get(timeout=seconds) if seconds else self.news.get_nowait()
                seconds, self._news_at = 0.0, time.monotonic()
                self.waiting.append(call) if call is not None else ended.append(episode)
        except Empty:
            return ended

    def _submit(self, agent: str, calls: Sequence[Call]) -> None:
        accepted = []
        for call in calls:
            try:
                accepted.append((call, self._request(call)))
            except RequestError as refused:
                call.settle(refused)
        if accepted:
            self.pending.submit(self.team[agent], [request for _, request in accepted], accepted)

    def _request(self, call: Call) -> Request:
        """Return the request for the engine, or raise `RequestError`."""
        chat, policy, sampling = call.chat, self.team[call.chat.agent], self.team.sampling[call.chat.agent]
        length = sum(len(message["content"] or "") for message in chat.messages) + len(repr(chat.offered))
        if length > CHARACTERS * policy.context:
            message = f"{length:,} characters are more than agent {chat.agent!r} reads ({policy.context} tokens)"
            raise RequestError(400, "context_length_exceeded", message)
        try:
            offered = {"tools": chat.offered, "choice": chat.tool_choice} if chat.offered else {}
            ids = tuple(policy.encode(chat.messages, **offered))
        except Exception as error:  # from the chat template, which may not take a role, for example
            message = f"the chat template of agent {chat.agent!r} cannot write it: {error}"
            raise RequestError(400, "messages", message) from error
        limit = min(chat.max_tokens or self.max_tokens, sampling.max_tokens or self.max_tokens)
        if chat.max_tokens is None:
            limit = max(1, min(limit, policy.context - len(ids)))
        if len(ids) + limit > policy.context:
            raise RequestError(
                400, "context_length_exceeded",
                f"the prompt has {len(ids)} tokens; with max_tokens={limit} it exceeds the context of agent "
                f"{chat.agent!r} ({policy.context} tokens)",
            )  # fmt: skip
        drawn = draw_seed(self.seed, self.step, call.episode.name, chat.agent, call.number)
        temperature = chat.temperature or sampling.temperature
        return Request(ids, limit, temperature, drawn, (*sampling.stop, *chat.stop), sampling.top_p, sampling.top_k)
