"""Drive the plans of a rollout: policies answer their requests, the environment steps, credits judge their rows.

Every plan runs until it waits for an answer. Then all requests to one policy go to its engine together, and environment
steps run here or in worker threads. Leaves out: the exploration of an episode (`plans`), the writing of prompts
(`prompts`), the requests in flight (`requests`), and threads (`backends.threads`).
"""

import hashlib
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.backends.threads import Job, Workers, ended
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
from mas_lab.cells.prompts import Prompts
from mas_lab.cells.requests import PendingRequests
from mas_lab.env import Env, EnvError, Task, max_tokens, unwritable, validate_step
from mas_lab.locks import locked
from mas_lab.policy import Request
from mas_lab.table import TableError, place
from mas_lab.team import Team
from mas_lab.tool_calls import answer_of

MOMENT = 0.001
"""Seconds to wait for quick environment steps. Without it, their episodes would wait for the engine's next answers."""


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

    def __init__(self, env: Env, team: Team, seed: int, step: int, workers: Workers | None = None,
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


def draw_seed(*key: Any) -> int:
    """Return 64 bits that depend on the key alone: (seed, step, node, agent, candidate)."""
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=8).digest(), "big")


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
        raise ValueError(f"{cell}: task {twice!r} occurs twice among the tasks; ask a plan for more instances instead")
    for task_id in ids:
        if problem := unwritable(str(task_id)):
            raise EnvError(f"{cell}: the id of task {task_id!r} has {problem}, which no file holds; give another id")
