"""Drive the plans of a rollout: write prompts, let policies answer, step the environment, and let credits judge rows.

Every plan runs until it waits for an answer. Then all requests to one policy go to its engine in one call, and
environment steps run here or in worker threads. Leaves out: the exploration of an episode (`plans`), and chat templates
(the policy).
"""

import hashlib
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial, singledispatch
from typing import Any, Generic, TypeVar

import numpy as np
import pandas as pd

from mas_lab.cells.episode import (
    EpisodeState,
    Generate,
    Generation,
    Plan,
    RolloutError,
    Score,
    StepEnv,
    error_context,
    place_of,
)
from mas_lab.env import Env, EnvError, Message, Step, Task, max_tokens, tools_of, transcript, unwritable, validate_step
from mas_lab.locks import locked
from mas_lab.policy import Completion, Policy, PolicyError, Request
from mas_lab.table import TableError, place
from mas_lab.team import Team
from mas_lab.tool_calls import answer_of

MOMENT = 0.001
"""Seconds to wait for quick environment steps. Without it, their episodes would wait for the engine's next answers."""
SLICE = 0.2
"""Seconds of one wait, because Windows cannot interrupt an endless one."""
Context = TypeVar("Context")


class PendingRequests(Generic[Context]):
    """Hold the requests in flight at the engines of a team, each with a context; true while an answer is missing.

    Args:
        team: The team whose engines answer.
        place: Function from the context of a request to its place in words, for an engine's error.
    """

    def __init__(self, team: Team, place: Callable[[Context], str]):
        self.engines = list({id(policy.engine): policy.engine for policy in team.policies.values()}.values())
        self.streams = all(engine.streams for engine in self.engines)
        self._place = place
        self._contexts: dict[tuple[int, int], Context] = {}  # by engine and ticket

    def __bool__(self) -> bool:
        return bool(self._contexts)

    def submit(self, policy: Policy, requests: Sequence[Request], contexts: Sequence[Context]) -> None:
        """Queue requests to one policy. Raises RolloutError, which names the first request."""
        try:
            tickets = policy.engine.submit(policy, requests)
        except PolicyError as error:
            raise RolloutError(f"rollout: {self._place(contexts[0])}: {error}") from error
        self._contexts |= {(id(policy.engine), ticket): one for ticket, one in zip(tickets, contexts, strict=True)}

    def answers(self) -> Iterator[tuple[Context, Completion]]:
        """Yield the context and completion of each answer. Raises RolloutError, which names the failed request."""
        for engine in self.engines:
            try:
                ready = engine.ready()
            except PolicyError as error:
                waiting = {ticket: one for (key, ticket), one in self._contexts.items() if key == id(engine)}
                failed = waiting.get(error.ticket, next(iter(waiting.values())))
                raise RolloutError(f"rollout: {self._place(failed)}: {error}") from error
            for ticket, completion in ready:
                yield self._contexts.pop((id(engine), ticket)), completion

    def cancel(self) -> None:
        """Drop the requests that are still in flight."""
        for engine in self.engines if self._contexts else ():
            engine.cancel([ticket for key, ticket in self._contexts if key == id(engine)])


@dataclass(eq=False)
class RunningPlan:
    """The generator of a plan, and the answers that it waits for."""

    episode: EpisodeState
    generator: Generator
    parent: "Slot | None" = None
    """The answer of another plan that is this plan's result."""
    answers: list[Any] | None = None
    missing: int = 0


@dataclass
class Slot:
    """One request of a plan: `plan.answers[index]` will be the answer."""

    plan: RunningPlan
    index: int
    request: Any
    columns: dict[str, Any] = field(default_factory=dict)
    """Columns of the row of a `Generate`, as far as they are known."""

    @property
    def node(self) -> tuple[str, str]:
        """Return node and agent of a `Generate`, which decide its prompt."""
        return self.request.at.name, self.request.agent

    @property
    def place(self) -> str:
        """Return the place of a `Generate` in words, for errors."""
        return place_of(self.plan.episode.task, self.request.at, self.request.agent)


class Runner:
    """Run plans until all have ended.

    `workers` steps the environment in threads; `None` steps it here. `finished` is called after each episode.
    """

    def __init__(self, env: Env, team: Team, seed: int, step: int, workers: Executor | None = None,
                 finished: Callable[[], Any] = lambda: None):  # fmt: skip
        self.env, self.team, self.workers, self.finished = env, team, workers, finished
        self.seed, self.step = int(seed), int(step)
        self.tools = {agent: tools_of(env, agent) for agent in env.agents}
        self.pending: PendingRequests[Slot] = PendingRequests(team, lambda slot: slot.place)
        self.ready: deque[RunningPlan] = deque()
        self.stepping: dict[Future, Slot] = {}
        self.scoring: list[Slot] = []

    def run(self, episodes: Sequence[EpisodeState] = (), plan: Plan | None = None) -> None:
        """Explore `episodes` by `plan`, and continue earlier plans, until no request is left to answer here."""
        self.ready.extend(RunningPlan(episode, plan(episode)) for episode in episodes)
        try:
            with locked(self.team.policies.values()):
                while self.ready or self.pending or self.stepping or self.scoring:
                    self._advance()
                    if self.stepping:
                        self._collect_steps()
                    if self.scoring and not self.ready:
                        self._score()
                    if self.pending and (self.pending.streams or not self.ready):
                        for slot, completion in self.pending.answers():
                            self.answer(slot, self._generation(slot, completion))
        finally:
            self.pending.cancel()

    def answer(self, slot: Slot, answer: Any) -> None:
        """Give a plan one answer; it is ready when it has all."""
        plan = slot.plan
        plan.answers[slot.index] = answer
        plan.missing -= 1
        if plan.missing == 0:
            self.ready.append(plan)

    def _advance(self) -> None:
        """Advance every plan that has all its answers, and submit its requests to the policies."""
        by_policy: dict[int, list[Slot]] = {}
        while self.ready:
            plan = self.ready.popleft()
            try:
                requests = plan.generator.send(plan.answers)
            except StopIteration as stop:
                self.answer(plan.parent, stop.value) if plan.parent else self.finished()
                continue
            plan.answers, plan.missing = [None] * len(requests), len(requests)
            if not requests:
                self.ready.append(plan)
            for index, request in enumerate(requests):
                slot = Slot(plan, index, request)
                if isinstance(request, Generate):
                    by_policy.setdefault(id(self.team[request.agent]), []).append(slot)
                elif isinstance(request, StepEnv):
                    self._step(slot)
                elif isinstance(request, Score):
                    self.scoring.append(slot)
                else:
                    self.ready.append(RunningPlan(plan.episode, request, slot))
        for slots in by_policy.values():
            self.submit(slots)

    # Prompts and completions

    def submit(self, slots: Sequence[Slot]) -> None:
        """Submit requests to one policy.

        All errors name task, agent and turn.

        Raises:
            EnvError: The environment returned no chat.
            RolloutError: The environment's `observe` failed, or the policy cannot encode the chat, or it is too long.
        """
        policy, requests = self.team[slots[0].request.agent], []
        for slot, (text, ids) in zip(slots, self._prompts(policy, slots), strict=True):
            one, sampling = slot.request, self.team.sampling[slot.request.agent]
            limit = sampling.max_tokens or max_tokens(self.env, one.agent)
            if len(ids) + limit > policy.context:
                raise RolloutError(
                    f"rollout: the prompt of {slot.place} has {len(ids)} tokens; "
                    f"with max_tokens={limit} it exceeds the context of its policy ({policy.context} tokens)"
                )
            seed = draw_seed(self.seed, self.step, one.at.name, one.agent, one.candidate)
            request = Request(ids, limit, sampling.temperature, seed, sampling.stop, sampling.top_p, sampling.top_k)
            requests.append(request)
            slot.columns = {"policy": self.team.name_of(one.agent), "prompt": text, "prompt_ids": list(ids)}
            slot.columns["temperature"] = sampling.temperature
        self.pending.submit(policy, requests, slots)

    def _prompts(self, policy: Policy, slots: Sequence[Slot]) -> list[tuple[str, tuple[int, ...]]]:
        """Return the text and the token ids of each prompt.

        Each (node, agent) is observed once, and each distinct chat of an agent is encoded once.
        """
        texts: dict[tuple[str, str], str] = {}
        keys: dict[tuple[str, str], str] = {}
        chats: dict[str, dict[str, tuple[Slot, list[Message]]]] = {}  # by agent, since each may have tools of its own
        for slot in slots:
            if slot.node not in texts:
                messages, texts[slot.node] = self._observe(slot)
                keys[slot.node] = f"{slot.request.agent} {messages}"
                chats.setdefault(slot.request.agent, {})[keys[slot.node]] = slot, messages
        ids: dict[str, tuple[int, ...]] = {}
        for own in chats.values():
            ids |= zip(own, map(tuple, self._encode(policy, list(own.values()))), strict=True)
        return [(texts[slot.node], ids[keys[slot.node]]) for slot in slots]

    def _observe(self, slot: Slot) -> tuple[list[Message], str]:
        """Return the chat that an agent observes, and its text."""
        agent, observe = slot.request.agent, f"{type(self.env).__name__}.observe"
        with error_context(self.env, "observe", slot.place):
            messages = self.env.observe(slot.request.at.state, agent)
        try:
            text = transcript(messages, self.tools[agent])
        except Exception as error:
            raise EnvError(
                f"{observe} gave {messages!r:.200} for {slot.place}; give a list of {{'role': ..., 'content': text}}"
            ) from error
        if problem := unwritable(text):
            raise EnvError(
                f"{observe} gave text with {problem} for {slot.place}; no tokenizer reads it and no file holds it: "
                "replace it, as text.encode(errors='replace').decode() does"
            )
        return messages, text

    def _encode(self, policy: Policy, chats: Sequence[tuple[Slot, list[Message]]]) -> list[Sequence[int]]:
        """Encode chats of one agent in one call. If that fails, encode each alone, to name the bad one."""
        slot = chats[0][0]
        offered = {"tools": tools} if (tools := self.tools[slot.request.agent]) else {}
        try:
            return policy.encode_all([messages for _, messages in chats], **offered)
        except Exception as error:
            if len(chats) > 1:
                return [self._encode(policy, [chat])[0] for chat in chats]
            problem = str(error)
            if not isinstance(error, PolicyError):
                problem = (
                    f"its policy's chat template cannot write the prompt: {type(error).__name__}: {error}; have "
                    "observe return what the template takes, or pass load_policy(..., template={'chat_template': ...})"
                )
            raise RolloutError(f"rollout: {slot.place}: {problem}") from error

    def _generation(self, slot: Slot, completion: Completion) -> Generation:
        """Return the answer to a `Generate`."""
        one, message = slot.request, None
        columns = slot.columns | {"completion": completion.text, "completion_ids": list(completion.ids),
                                  "logprobs": list(completion.logprobs), "finish": completion.finish}  # fmt: skip
        if tools := self.tools[one.agent]:
            message, columns["call_status"] = answer_of(
                self.team[one.agent], columns["prompt_ids"], completion, tools, one.at.depth
            )
        return Generation(one.agent, one.candidate, completion.text, columns, message)

    # Steps and scores

    def _step(self, slot: Slot) -> None:
        """Step the environment, in a worker thread if there are any."""
        work = partial(self._checked_step, slot.plan.episode.task, slot.request)
        if self.workers is None:
            self.answer(slot, work())
        else:
            self.stepping[self.workers.submit(work)] = slot

    def _checked_step(self, task: Task, request: StepEnv) -> Step:
        """Return the environment's step; raise an error if it breaks the contract of an environment."""
        actions = {one.agent: one.action for one in request.said}
        places = ", ".join(place_of(task, request.at, agent) for agent in actions)
        with error_context(self.env, "step", places):
            step = self.env.step(request.at.state, actions)
        return validate_step(self.env, step, list(actions), places)

    def _collect_steps(self) -> None:
        """Take all steps. With streaming engines, take those done after a moment, or the first if none generates."""
        first = FIRST_COMPLETED if self.pending.streams and not self.pending else ALL_COMPLETED
        patience = MOMENT if self.pending.streams and self.pending else SLICE
        running = wait(self.stepping, patience, first).not_done
        while running and not self.pending.streams:
            running = wait(self.stepping, SLICE).not_done
        for job in [job for job in self.stepping if job not in running]:
            self.answer(self.stepping.pop(job), job.result())

    def _score(self) -> None:
        """Judge the rows of each waiting `Score` request; one table serves a credit that compares no episodes."""
        by_credit: dict[Any, list[Slot]] = {}
        for slot in self.scoring:
            alone = not getattr(slot.request.credit, "within_episodes", False)
            by_credit.setdefault((slot.request.credit, id(slot) if alone else None), []).append(slot)
        self.scoring = []
        for (credit, _), slots in by_credit.items():
            rows = pd.DataFrame([{"step": self.step, **row} for slot in slots for row in slot.request.rows])
            values = np.asarray(credit(rows), float)
            if not np.isfinite(values).all():
                bad = int(np.flatnonzero(~np.isfinite(values))[0])
                raise TableError(f"rollout: the pick {credit} is {values[bad]} at {place(rows.iloc[bad])}")
            cuts = np.cumsum([len(slot.request.rows) for slot in slots])[:-1]
            for slot, part in zip(slots, np.split(values, cuts), strict=True):
                self.answer(slot, part)


@contextmanager
def step_threads(count: int | None) -> Iterator[Executor | None]:
    """Yield a pool of `count` threads, or `None` if there are none; steps that have not begun at the end never do."""
    pool = ThreadPoolExecutor(count, "mas_lab step") if count else None
    try:
        yield pool
    finally:
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)


@singledispatch
def runner_for(env: Env) -> type[Runner]:
    """Return the runner class of an environment; an env that plays whole episodes by itself registers its own."""
    return Runner


def draw_seed(*key: Any) -> int:
    """Return 64 bits that depend on the key alone: (seed, step, node, agent, candidate)."""
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=8).digest(), "big")


def require_policies(agents: Sequence[str], team: Mapping[str, Policy], tasks: Sequence[Task], cell: str) -> None:
    """Raise an error, naming the `cell`, if an agent has no policy, or two tasks have one id."""
    missing = [agent for agent in agents if agent not in team]
    if missing:
        raise ValueError(
            f"{cell}: agent {missing[0]!r} has no policy; the env plays {tuple(agents)}, the team has {list(team)}"
        )
    ids = [task.id for task in tasks]
    if len(set(ids)) < len(ids):
        twice = next(task_id for task_id in ids if ids.count(task_id) > 1)
        raise ValueError(f"{cell}: task {twice!r} occurs twice among the tasks; ask a plan for more instances instead")
