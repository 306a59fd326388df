"""Answer the requests of the plans of a rollout: policies generate, the environment steps, credits judge rows.

Every plan runs until it waits for an answer. Then all requests to one policy go to its engine together, and environment
steps run here or in worker threads. Leaves out: the exploration of an episode (`cells.plans`).
"""

import hashlib
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial, singledispatch
from math import inf
from numbers import Real
from queue import SimpleQueue
from threading import Thread
from typing import Any, Generic, TypeVar

import numpy as np
import pandas as pd

from mas_lab.backends.tool_calls import answer_of
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
from mas_lab.env import Env, EnvError, Task, Tools, tools_of, transcript, unwritable, validate_step
from mas_lab.locks import locked
from mas_lab.policy import Completion, Policy, PolicyError, Request
from mas_lab.table import TableError, place
from mas_lab.team import Team

SLICE = 0.2
"""Seconds of one wait. Windows cannot interrupt an endless wait, and late steps are looked for after each wait."""
MOMENT = 0.001
"""Seconds to wait for quick environment steps. Without it, their episodes would wait for the engine's next answers."""
Kept = TypeVar("Kept")


class PendingRequests(Generic[Kept]):
    """Hold the requests in flight at the engines of a team, each with a kept value; true while an answer is missing.

    Args:
        team: The team whose engines answer.
        named: Function from the kept value of a request to its place in words, for an engine's error.
    """

    def __init__(self, team: Team, named: Callable[[Kept], str]):
        self.engines = list({id(policy.engine): policy.engine for policy in team.policies.values()}.values())
        self.streams = all(engine.streams for engine in self.engines)
        self._named = named
        self._kept: dict[tuple[int, int], Kept] = {}  # by engine and ticket

    def __bool__(self) -> bool:
        return bool(self._kept)

    def submit(self, policy: Policy, requests: Sequence[Request], kept: Sequence[Kept]) -> None:
        """Queue requests to one policy. Raises RolloutError, which names the first request."""
        try:
            tickets = policy.engine.submit(policy, requests)
        except PolicyError as error:
            raise RolloutError(f"rollout: {self._named(kept[0])}: {error}") from error
        self._kept |= {(id(policy.engine), ticket): one for ticket, one in zip(tickets, kept, strict=True)}

    def answers(self) -> Iterator[tuple[Kept, Completion]]:
        """Yield the kept value and completion of each answer. Raises RolloutError, which names the failed request."""
        for engine in self.engines:
            try:
                ready = engine.ready()
            except PolicyError as error:
                waiting = {ticket: one for (key, ticket), one in self._kept.items() if key == id(engine)}
                failed = waiting.get(error.ticket, next(iter(waiting.values())))
                raise RolloutError(f"rollout: {self._named(failed)}: {error}") from error
            for ticket, completion in ready:
                yield self._kept.pop((id(engine), ticket)), completion

    def cancel(self) -> None:
        """Drop the requests that are still in flight."""
        for engine in self.engines if self._kept else ():
            engine.cancel([ticket for key, ticket in self._kept if key == id(engine)])


@dataclass(eq=False)
class RunningPlan:
    """The generator of a plan, and the answers that it waits for."""

    episode: EpisodeState
    generator: Generator
    parent: "RunningPlan | None" = None
    slot: int = 0
    """Index of this plan's result among the answers of its parent."""
    answers: Sequence[Any] = ()
    missing: int = 0
    started: bool = False


class Runner:
    """Run plans until all have ended.

    `workers` steps the environment in threads; `None` steps it here. `finished` is called after each episode.
    """

    def __init__(self, env: Env, team: Team, seed: int, step: int, workers: "Workers | None" = None,
                 finished: Callable[[], Any] = lambda: None):  # fmt: skip
        self.env, self.team, self.seed, self.step = env, team, seed, step
        self.workers, self.finished, self.prompts = workers, finished, Prompts(env)
        self.pending = PendingRequests(team, lambda kept: place_of(kept[0].episode.task, kept[2].at, kept[2].agent))
        self.stepping: dict[Job, tuple[RunningPlan, int, StepEnv]] = {}
        self.scoring: list[tuple[RunningPlan, int, Score]] = []
        self.ready: deque[RunningPlan] = deque()

    def run(self, episodes: Sequence[EpisodeState] = (), plan: Plan | None = None) -> None:
        """Explore `episodes` by `plan`, and continue earlier plans, until no request is left to answer here."""
        self.ready.extend(RunningPlan(episode, plan(episode)) for episode in episodes)
        try:
            with locked(self.team.policies.values()):
                while self.ready or self.pending or self.stepping or self.scoring:
                    self.submit_ready()
                    if self.stepping:
                        self._collect_steps()
                    if self.scoring and not self.ready:
                        self.score()
                    if self.pending and (self.pending.streams or not self.ready):
                        self.collect_generations()
        finally:
            self.pending.cancel()

    def submit_ready(self) -> None:
        """Advance every plan that has all its answers, and submit its requests to the policies."""
        wanted: dict[int, list[tuple[RunningPlan, int, Generate]]] = {}
        while self.ready:
            plan = self.ready.popleft()
            try:
                requests = plan.generator.send(list(plan.answers) if plan.started else None)
            except StopIteration as stop:
                self.answer((plan.parent, plan.slot), stop.value) if plan.parent else self.finished()
                continue
            plan.started, plan.answers, plan.missing = True, [None] * len(requests), len(requests)
            if not requests:
                self.ready.append(plan)
            for slot, request in enumerate(requests):
                if isinstance(request, Generate):
                    wanted.setdefault(self.speaker(request.agent), []).append((plan, slot, request))
                elif isinstance(request, StepEnv):
                    self.step_env(plan, slot, request)
                elif isinstance(request, Score):
                    self.scoring.append((plan, slot, request))
                else:
                    self.ready.append(RunningPlan(plan.episode, request, plan, slot))
        for requests in wanted.values():
            self.submit(requests)

    def answer(self, slot: tuple[RunningPlan, int], answer: Any) -> None:
        """Give the plan of a slot (plan, index) the answer there; the plan is ready when it has all."""
        plan, index = slot
        plan.answers[index] = answer
        plan.missing -= 1
        if plan.missing == 0:
            self.ready.append(plan)

    def speaker(self, agent: str) -> int:
        """Return a key: requests with equal keys are submitted together."""
        return id(self.team[agent])

    def submit(self, requests: Sequence[tuple[RunningPlan, int, Generate]]) -> None:
        """Submit requests to one policy."""
        policy = self.team[requests[0][2].agent]
        prompts = self.prompts(policy, [(plan.episode.task, one) for plan, _, one in requests])
        asked, kept = [], []
        for (plan, slot, one), (text, ids) in zip(requests, prompts, strict=True):
            sampling = self.team.sampling[one.agent]
            limit = sampling.max_tokens or max_tokens(self.env, one.agent)
            if len(ids) + limit > policy.context:
                raise RolloutError(
                    f"rollout: the prompt of {place_of(plan.episode.task, one.at, one.agent)} has {len(ids)} tokens; "
                    f"with max_tokens={limit} it exceeds the context of its policy ({policy.context} tokens)"
                )
            seed = draw_seed(self.seed, self.step, one.at.name, one.agent, one.candidate)
            asked.append(Request(ids, limit, sampling.temperature, seed, sampling.stop, sampling.top_p, sampling.top_k))
            columns = {"policy": self.team.name_of(one.agent), "prompt": text, "prompt_ids": list(ids)}
            kept.append((plan, slot, one, columns | {"temperature": sampling.temperature}))
        self.pending.submit(policy, asked, kept)

    def collect_generations(self) -> None:
        """Take the completions that the engines have ready."""
        for (plan, slot, one, columns), completion in self.pending.answers():
            if problem := unwritable(completion.text):
                raise RolloutError(
                    f"rollout: the completion of {place_of(plan.episode.task, one.at, one.agent)} has {problem}, which "
                    "no file holds; its policy's engine must decode tokens to text that has a UTF-8 form"
                )
            said = {"completion": completion.text, "completion_ids": list(completion.ids),
                    "logprobs": list(completion.logprobs), "finish": completion.finish}  # fmt: skip
            message = None
            if tools := self.prompts.tools[one.agent]:
                message, said["call_status"] = answer_of(
                    self.team[one.agent], columns["prompt_ids"], completion, tools, one.at.depth
                )
            self.answer((plan, slot), Generation(one.agent, one.candidate, completion.text, columns | said, message))

    def step_env(self, plan: RunningPlan, slot: int, request: StepEnv) -> None:
        """Step the environment, in a worker thread if there are any."""
        actions = {one.agent: one.action for one in request.said}
        if self.workers is None:
            step = self.checked_step(plan.episode, request, lambda: self.env.step(request.at.state, actions))
            self.answer((plan, slot), step)
        else:
            self.stepping[self.workers.submit(lambda: self.env.step(request.at.state, actions))] = plan, slot, request

    def checked_step(self, episode: EpisodeState, request: StepEnv, take: Callable[[], Any]) -> Any:
        """Return the step that `take` returns; raise an error if it breaks the contract of an environment."""
        agents = [one.agent for one in request.said]
        places = ", ".join(place_of(episode.task, request.at, agent) for agent in agents)
        with error_context(self.env, "step", places):
            step = take()
        return validate_step(self.env, step, agents, places)

    def _collect_steps(self) -> None:
        """Take all steps. With streaming engines, take those done after a moment, or the first if none generates."""
        if self.pending.streams and self.pending:
            jobs = ended(self.stepping, patience=MOMENT)
        else:
            jobs = ended(self.stepping, first=self.pending.streams)
        for job in jobs:
            plan, slot, request = self.stepping.pop(job)
            self.answer((plan, slot), self.checked_step(plan.episode, request, job.answer))

    def score(self) -> None:
        """Judge the rows of all waiting `Score` requests of one credit as one table."""
        scores, self.scoring = self.scoring, []
        for credit in dict.fromkeys(score.credit for *_, score in scores):
            own = [one for one in scores if one[2].credit == credit]
            rows = pd.DataFrame([{"step": self.step, **row} for _, _, score in own for row in score.rows])
            values = np.asarray(credit(rows), float)
            if not np.isfinite(values).all():
                bad = int(np.flatnonzero(~np.isfinite(values))[0])
                raise TableError(f"rollout: the pick {credit} is {values[bad]} at {place(rows.iloc[bad])}")
            cuts = np.cumsum([len(score.rows) for _, _, score in own])[:-1]
            for (plan, slot, _), part in zip(own, np.split(values, cuts), strict=True):
                self.answer((plan, slot), part)


@singledispatch
def runner_for(env: Env) -> type[Runner]:
    """Return the runner class of an environment; an env that plays whole episodes by itself registers its own."""
    return Runner


class Prompts:
    """Write the prompts of one rollout. Each (node, agent) is observed once; each distinct chat is encoded once."""

    def __init__(self, env: Env):
        self.env, self.tools = env, {agent: tools_of(env, agent) for agent in env.agents}
        self._chats: dict[tuple[str, str], tuple[list, Tools, str, str, str]] = {}  # with a key, a text and a place
        self._ids: dict[tuple[int, str], tuple[int, ...]] = {}

    def __call__(self, policy: Policy, requests: Sequence[tuple[Any, Generate]]) -> list[tuple[str, tuple[int, ...]]]:
        """Return the text and the token ids of each prompt.

        Raises:
            EnvError: The environment returned no chat.
            RolloutError: The environment's `observe` failed, or the policy cannot encode the chat.

        Both errors name task, agent and turn.
        """
        chats = [self._chat(task, one) for task, one in requests]
        by_tools: dict[str, dict[str, tuple[list, Tools, str]]] = {}
        for messages, tools, key, _, where in chats:
            if (id(policy), key) not in self._ids:
                by_tools.setdefault(repr(tools), {})[key] = messages, tools, where
        for new in by_tools.values():
            for key, ids in zip(new, self._encode(policy, list(new.values())), strict=True):
                self._ids[id(policy), key] = tuple(ids)
        return [(text, self._ids[id(policy), key]) for _, _, key, text, _ in chats]

    def _chat(self, task: Any, one: Generate) -> tuple[list, Tools, str, str, str]:
        key, tools = (one.at.name, one.agent), self.tools[one.agent]
        if key not in self._chats:
            where = place_of(task, one.at, one.agent)
            with error_context(self.env, "observe", where):
                messages = self.env.observe(one.at.state, one.agent)
            self._chats[key] = messages, tools, repr((messages, tools)), self._text(messages, tools, where), where
        return self._chats[key]

    def _text(self, messages: Any, tools: Tools, where: str) -> str:
        observe = f"{type(self.env).__name__}.observe"
        try:
            text = transcript(messages, tools)
        except Exception as error:
            raise EnvError(
                f"{observe} gave {messages!r:.200} for {where}; give a list of {{'role': ..., 'content': text}}"
            ) from error
        if problem := unwritable(text):
            raise EnvError(
                f"{observe} gave text with {problem} for {where}; no tokenizer reads it and no file holds it: replace "
                "it, as text.encode(errors='replace').decode() does"
            )
        return text

    def _encode(self, policy: Policy, chats: Sequence[tuple[list, Tools, str]]) -> list[Sequence[int]]:
        """Encode chats with the same tools in one call. If that fails, encode each alone, to name the bad one."""
        offered = {"tools": chats[0][1]} if chats[0][1] else {}
        try:
            return policy.encode_all([messages for messages, _, _ in chats], **offered)
        except Exception as error:
            if len(chats) > 1:
                return [self._encode(policy, [chat])[0] for chat in chats]
            problem = str(error)
            if not isinstance(error, PolicyError):
                problem = (
                    f"its policy's chat template cannot write the prompt: {type(error).__name__}: {error}; have "
                    "observe return what the template takes, or pass load_policy(..., template={'chat_template': ...})"
                )
            raise RolloutError(f"rollout: {chats[0][2]}: {problem}") from error


def max_tokens(env: Env, agent: str) -> int:
    """Return the bound on the tokens of one completion of `agent`."""
    return env.max_tokens[agent] if isinstance(env.max_tokens, Mapping) else env.max_tokens


def draw_seed(*key: Any) -> int:
    """Return 64 bits that depend on the key alone: (seed, step, node, agent, candidate)."""
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=8).digest(), "big")


def with_max_turns(env: Env, max_turns: int | None) -> Env:
    """Return the env with another bound on the turns of one agent; `None` keeps the present bound."""
    if max_turns is None:
        return env
    if is_dataclass(env) and any(f.name == "max_turns" and f.init for f in fields(env)):
        return replace(env, max_turns=max_turns)
    try:
        env = copy(env)
        env.max_turns = max_turns
    except AttributeError:
        raise ValueError(
            f"rollout: {type(env).__name__} has a fixed max_turns={env.max_turns}; make it a dataclass field"
        ) from None
    return env


def require_policies(agents: Sequence[str], team: Team, tasks: Sequence[Task], cell: str) -> None:
    """Raise an error, naming the `cell`, if an agent has no policy, two tasks have one id, or an id is unwritable."""
    missing = [agent for agent in agents if agent not in team]
    if missing:
        raise ValueError(
            f"{cell}: agent {missing[0]!r} has no policy; the env plays {tuple(agents)}, the team has {list(team)}"
        )
    ids = [task.id for task in tasks]
    if len(set(ids)) < len(ids):
        twice = next(task_id for task_id in ids if ids.count(task_id) > 1)
        raise ValueError(f"{cell}: task {twice!r} stands twice among the tasks; ask a plan for more instances instead")
    for task_id in ids:
        if problem := unwritable(str(task_id)):
            raise EnvError(f"{cell}: the id of task {task_id!r} has {problem}, which no file holds; give another id")


# Threads


def require_limit(step_timeout: Any, workers: int | None, cell: str) -> None:
    """Raise ValueError, naming the `cell`, for a limit that is not a number of seconds above 0 or lacks workers."""
    if step_timeout is None:
        return
    if isinstance(step_timeout, bool) or not isinstance(step_timeout, Real) or not 0 < step_timeout < inf:
        raise ValueError(f"{cell}: step_timeout={step_timeout!r}; give seconds above 0, or None for no limit")
    if not workers:
        raise ValueError(
            f"{cell}: step_timeout={step_timeout} needs workers: a step in the caller's own thread cannot be left "
            "behind; pass workers=1 or more"
        )


class Job(Future):
    """One step, and its times from the moment when a worker began it. Without a `limit` it is never late."""

    def __init__(self, work: Callable[[], Any], limit: float | None):
        super().__init__()
        self.work, self.limit = work, inf if limit is None else limit
        self.since = self.until = inf

    @property
    def late(self) -> bool:
        """Return True if the step takes, or took, longer than its limit."""
        return min(self.until, time.monotonic()) - self.since > self.limit

    def answer(self) -> Any:
        """Return the result of `work`, or raise its error; raise TimeoutError if it is late, even if it has ended."""
        if self.late:
            raise TimeoutError(
                f"no answer within step_timeout={self.limit} seconds; its thread is left to itself, and a late answer "
                "is not taken. Raise the limit, or give step one of its own that ends what hangs in it"
            )
        return self.result()

    def run(self) -> None:
        if self.set_running_or_notify_cancel():
            self.since = time.monotonic()
            try:
                answer, error = self.work(), None
            except BaseException as raised:
                answer, error = None, raised
            self.until = time.monotonic()
            self.set_result(answer) if error is None else self.set_exception(error)


class Workers:
    """A pool of `count` daemon threads that step an environment, each step within `limit` seconds if there is one.

    Python cannot end a thread from outside. So a thread that hangs is abandoned: unlike with an executor, neither a
    rollout nor the interpreter waits for it at the end, and a late answer is dropped.
    """

    def __init__(self, count: int, limit: float | None = None):
        self.count, self.limit = count, limit
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._started = 0

    def close(self) -> None:
        """Cancel the steps that have not begun; idle threads end now, and a busy thread ends after its step."""
        while not self._jobs.empty():
            self._jobs.get().cancel()
        for _ in range(self._started):
            self._jobs.put(None)

    def submit(self, work: Callable[[], Any]) -> Job:
        job = Job(work, self.limit)
        self._jobs.put(job)
        if self._started < self.count:
            self._started += 1
            Thread(target=self._work, name=f"mas_lab step {self._started}", daemon=True).start()
        return job

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run()


def ended(jobs: Collection[Job], first: bool = False, patience: float = inf) -> list[Job]:
    """Wait, then return the jobs that have ended or are late, in their order.

    The wait ends when all jobs have ended (or one, with `first`), when a job is late, or after `patience` seconds.
    """
    until = time.monotonic() + patience
    while True:
        seconds = max(0.0, min(SLICE, until - time.monotonic()))
        running = wait(jobs, seconds, FIRST_COMPLETED if first else ALL_COMPLETED).not_done
        late = [job for job in running if job.late]
        if late or not running or (first and len(running) < len(jobs)) or time.monotonic() >= until:
            return [job for job in jobs if job not in running or job in late]


def worker_threads(count: int | None, limit: float | None = None) -> AbstractContextManager[Workers | None]:
    """Return a context with `count` workers, or a context with `None` if `count` is `None` or 0."""
    return closing(Workers(count, limit)) if count else nullcontext()


@contextmanager
def training(policies: Sequence[Policy]) -> Iterator[Callable[[Callable, Iterable[Any]], Iterable[None]]]:
    """Keep other threads off the models of `policies`, and yield a map over the steps that train them.

    It is `map` if all policies are on one device. Else it uses a thread per device, in which the steps of that device
    are done one after the other. A step is anything with a `policy`.
    """
    with locked(policies, training=True):
        devices = {policy.capabilities.device for policy in policies}
        if len(devices) < 2:
            yield map
            return
        with ThreadPoolExecutor(len(devices)) as pool:
            yield partial(_side_by_side, pool)


def _side_by_side(pool: ThreadPoolExecutor, function: Callable[[Any], None], steps: Iterable[Any]) -> list[Any]:
    by_device: dict[str, list[Any]] = {}
    for step in steps:
        by_device.setdefault(step.policy.capabilities.device, []).append(step)
    return list(pool.map(lambda own: list(map(function, own)), by_device.values()))
