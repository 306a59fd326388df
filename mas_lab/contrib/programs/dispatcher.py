"""Dispatcher for the calls of live programs: it serves all engines from one thread, in waves or as streams.

Leaves out: the programs (`episode`), and how their calls arrive (`gateway`).
"""

import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from mas_lab.cells.driver import PendingRequests, draw_seed
from mas_lab.cells.episode import EpisodeState, Plan, RolloutError
from mas_lab.cells.plans import episodes
from mas_lab.contrib.programs.chat import RequestError
from mas_lab.contrib.programs.episode import Call, Episode
from mas_lab.contrib.programs.gateway import Gateway
from mas_lab.locks import locked
from mas_lab.policy import Request
from mas_lab.team import Team
from mas_lab.train.evaluate import TimedPlan

SLICE = 0.05
"""Seconds between two checks for late episodes and for waves that have waited long enough."""


class ProgramWarning(UserWarning):
    """Warning about a failed episode, with its name, its task and the reason."""


class Dispatcher:
    """Run the episodes of a program; the arguments are those of `mas_lab.cells.driver.Runner`.

    A draw depends only on (seed, step, episode, agent, number of that agent's call). An engine that answers in waves
    gets its requests when all live episodes wait. So the same calls are computed together each time. After
    `env.patience_s` seconds without news it gets them anyway.
    """

    def __init__(self, env: Any, team: Team, seed: int, step: int, workers: Any, finished: Callable[[], Any]):
        self.env, self.team, self.seed, self.step, self.finished = env, team, seed, step, finished
        self.news: SimpleQueue[Call | Episode] = SimpleQueue()
        """Calls, and episodes that have ended; any thread may put them here."""
        self.heard_at = time.monotonic()
        self.waiting: list[Call] = []
        self.pending: PendingRequests[tuple[Call, Request]] = PendingRequests(team, lambda accepted: accepted[0].place)

    def run(self, states: Sequence[EpisodeState], plan: Plan) -> None:
        """Play all episodes. Raises RolloutError if the plan is not `episodes(n)`, or if every episode failed."""
        if not isinstance(plan.plan if isinstance(plan, TimedPlan) else plan, episodes):
            raise RolloutError(f"rollout: {plan} explores, and a program cannot be set back; take episodes(n)")
        found = [Episode(self.env, self.team, state, self.news) for state in states]
        self._play(found)
        for episode in found:
            if isinstance(plan, TimedPlan):
                plan.seconds.setdefault(episode.state.task.id, []).append(episode.seconds)
            if episode.failure:
                paid = f"earns {self.env.failed}" if episode.result else "is left out"
                warnings.warn(f"{episode.place} {paid}: {episode.failure}", ProgramWarning, stacklevel=2)
            episode.record()
        if not any(state.rows for state in states):
            raise RolloutError(f"rollout: every episode failed; the first, {states[0].episode!r}: {found[0].failure}")

    def _play(self, episodes: Sequence[Episode]) -> None:
        coming, live = deque(episodes), set()
        try:
            with Gateway() as gateway, locked(self.team.policies.values()):
                while coming or live:
                    while coming and len(live) < self.env.at_once:
                        live.add(episode := coming.popleft())
                        gateway.episodes[episode.key] = episode.ask
                        episode.start(gateway.address)
                    for episode in self._turn(live):
                        live.remove(episode)
                        del gateway.episodes[episode.key]
                        self.finished()
        finally:
            for episode in live:
                episode.end(None, "playing was broken off")
            self.pending.cancel()

    def _turn(self, live: set[Episode]) -> list[Episode]:
        """Take in news, and return the episodes that have ended; if there are none, let the engines answer."""
        ended, seconds = [], 0.0 if self.pending else SLICE
        with suppress(Empty):
            while True:
                one = self.news.get(timeout=seconds)
                seconds, self.heard_at = 0.0, time.monotonic()
                (self.waiting if isinstance(one, Call) else ended).append(one)
        for episode in live:
            if time.monotonic() - episode.since > self.env.timeout_s:
                episode.end(None, f"it took more than timeout_s={self.env.timeout_s:g} seconds")
        if ended:
            return ended  # the next wave includes the episodes that replace them
        silent = time.monotonic() - self.heard_at > self.env.patience_s
        if self.pending.streams or silent or {call.episode for call in self.waiting} >= live:
            self.waiting.sort(key=lambda call: (call.chat.agent, call.episode.state.episode, call.depth))
            for call in self.waiting:
                if call.episode in live:
                    self._submit(call)
            self.waiting.clear()
        for (call, request), completion in self.pending.answers() if self.pending else ():
            call.answer.put((request, completion))
        return []

    def _submit(self, call: Call) -> None:
        """Queue the request of a call, or refuse it."""
        chat, policy, sampling = call.chat, self.team[call.chat.agent], self.team.sampling[call.chat.agent]
        offered = {"tools": chat.offered, "choice": chat.tool_choice} if chat.offered else {}
        try:
            ids = tuple(policy.encode(chat.messages, **offered))
        except Exception as error:  # from the chat template, which may not take a role, for example
            message = f"the chat template of agent {chat.agent!r} cannot write it: {error}"
            return call.answer.put(RequestError(400, message))
        limit = min(chat.max_tokens or self.env.max_tokens, sampling.max_tokens or self.env.max_tokens)
        if chat.max_tokens is None:
            limit = max(1, min(limit, policy.context - len(ids)))
        if len(ids) + limit > policy.context:
            message = f"the prompt has {len(ids)} tokens; with max_tokens={limit} it exceeds the context of agent"
            return call.answer.put(RequestError(400, f"{message} {chat.agent!r} ({policy.context} tokens)"))
        drawn = draw_seed(self.seed, self.step, call.episode.state.episode, chat.agent, call.number)
        temperature, stop = chat.temperature or sampling.temperature, (*sampling.stop, *chat.stop)
        request = Request(ids, limit, temperature, drawn, stop, sampling.top_p, sampling.top_k)
        self.pending.submit(policy, [request], [(call, request)])
