"""The driver of a rollout: advances every live plan until it waits, and lets engines and environment answer.

What plans ask to be said goes to their policies' engines, which batch what is pending; what they ask to be done goes
to the environment, in threads if asked. Leaves out: how an instance is explored (`plans`).
"""

import hashlib
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.cells.game import Act, Game, Said, Say, Score
from mas_lab.cells.prompts import Prompts
from mas_lab.cells.speaking import Speaking
from mas_lab.cells.steps import RolloutError, checked, where
from mas_lab.cells.workers import Job, Workers, ended
from mas_lab.env import Env, Task, unwritable
from mas_lab.locks import playing
from mas_lab.policy import Completion, Request
from mas_lab.table import TableError, place
from mas_lab.team import Team

MOMENT = 0.001
"""Seconds in which a quick step of an environment ends, so that its episode need not sit out the engine's next step."""


@dataclass(eq=False)
class _Play:
    """A plan's generator in flight, and the answers it waits for."""

    game: Game
    generator: Generator
    parent: "_Play | None" = None
    slot: int = 0
    answers: Sequence[Any] = ()
    missing: int = 0
    started: bool = False


class Driver:
    """Advances every plan until it waits, then lets engines and environment answer, until nothing is left."""

    def __init__(self, env: Env, team: Team, workers: Workers | None, seed: int, step: int, bar):
        self.env, self.team, self.workers, self.seed, self.step, self.bar = env, team, workers, seed, step, bar
        self.prompts = Prompts(env)
        self.speaking: Speaking[tuple[_Play, int, Say, dict[str, Any]]] = Speaking(team, _whose)
        self.acting: dict[Job, tuple[_Play, int, Act]] = {}
        self.scoring: list[tuple[_Play, int, Score]] = []
        self.ready: deque[_Play] = deque()

    def play(self, plans: Sequence[tuple[Game, Generator]]) -> None:
        self.ready.extend(_Play(game, generator) for game, generator in plans)
        try:
            with playing(self.team.policies.values()):
                self._play()
        finally:
            self.speaking.cancel()

    def _play(self) -> None:
        streams = self.speaking.streams
        while self.ready or self.speaking or self.acting or self.scoring:
            asked: dict[int, list[tuple[_Play, int, Say]]] = {}
            while self.ready:
                self._advance(self.ready.popleft(), asked)
            for says in asked.values():
                self._submit(says)
            if self.acting:
                self._collect_steps(in_waves=not streams)
            if self.scoring and not self.ready:
                self._score()
            if self.speaking and (streams or not self.ready):
                self._collect_completions()

    def _advance(self, play: _Play, asked: dict[int, list]) -> None:
        try:
            wants = play.generator.send(list(play.answers) if play.started else None)
        except StopIteration as stop:
            if play.parent is not None:
                self._answer(play.parent, play.slot, stop.value)
            else:
                self.bar.update()
            return
        play.started, play.answers, play.missing = True, [None] * len(wants), len(wants)
        if not wants:
            self.ready.append(play)
        for slot, want in enumerate(wants):
            if isinstance(want, Say):
                asked.setdefault(self._speaker(want.agent), []).append((play, slot, want))
            elif isinstance(want, Act):
                self._act(play, slot, want)
            elif isinstance(want, Score):
                self.scoring.append((play, slot, want))
            else:
                self.ready.append(_Play(play.game, want, play, slot))

    def _speaker(self, agent: str) -> int:
        """What is asked of one speaker is submitted together."""
        return id(self.team[agent])

    def _answer(self, play: _Play, slot: int, answer: Any) -> None:
        play.answers[slot] = answer
        play.missing -= 1
        if play.missing == 0:
            self.ready.append(play)

    def _act(self, play: _Play, slot: int, act: Act) -> None:
        actions = {one.agent: one.text for one in act.said}

        def take_step():
            return self.env.step(act.at.state, actions)

        if self.workers is None:
            self._answer(play, slot, checked(self.env, play.game.task, act, take_step))
        else:
            self.acting[self.workers.submit(take_step)] = (play, slot, act)

    def _collect_steps(self, in_waves: bool) -> None:
        """All steps, for engines that answer in waves; else those that are done after a moment, or, if nobody speaks,
        as soon as there is one."""
        if in_waves:
            jobs = ended(self.acting)
        else:
            jobs = ended(self.acting, patience=MOMENT) if self.speaking else ended(self.acting, first=True)
        for job in jobs:
            play, slot, act = self.acting.pop(job)
            self._answer(play, slot, checked(self.env, play.game.task, act, job.answer))

    def _score(self) -> None:
        scores, self.scoring = self.scoring, []
        for credit in dict.fromkeys(score.credit for _, _, score in scores):
            own = [one for one in scores if one[2].credit == credit]
            rows = pd.DataFrame([{"step": self.step, **row} for _, _, score in own for row in score.rows])
            values = np.asarray(credit(rows), float)
            if not np.isfinite(values).all():
                bad = int(np.flatnonzero(~np.isfinite(values))[0])
                raise TableError(f"rollout: the pick {credit} is {values[bad]} at {place(rows.iloc[bad])}")
            cuts = np.cumsum([len(score.rows) for _, _, score in own])[:-1]
            for (play, slot, _), part in zip(own, np.split(values, cuts), strict=True):
                self._answer(play, slot, part)

    def _submit(self, says: Sequence[tuple[_Play, int, Say]]) -> None:
        policy = self.team[says[0][2].agent]
        prompts = self.prompts(policy, [(play.game.task, say) for play, _, say in says])
        requests, kept = [], []
        for (play, slot, say), (text, ids) in zip(says, prompts, strict=True):
            sampling = self.team.sampling[say.agent]
            limit = sampling.max_tokens or max_tokens(self.env, say.agent)
            if len(ids) + limit > policy.context:
                raise RolloutError(
                    f"rollout: the prompt of {where(play.game.task, say.at, say.agent)} has {len(ids)} tokens; with "
                    f"max_tokens={limit} it exceeds the context of its policy ({policy.context} tokens)"
                )
            drawn = draw_seed(self.seed, self.step, say.at.name, say.agent, say.candidate)
            requests.append(
                Request(ids, limit, sampling.temperature, drawn, sampling.stop, sampling.top_p, sampling.top_k)
            )
            said_to = {"policy": self.team.name_of(say.agent), "prompt": text, "prompt_ids": list(ids)}
            kept.append((play, slot, say, {**said_to, "temperature": sampling.temperature}))
        self.speaking.submit(policy, requests, kept)

    def _collect_completions(self) -> None:
        for (play, slot, say, columns), completion in self.speaking.answers():
            self._answer(play, slot, _said(play.game.task, say, columns, completion))


def _whose(kept: tuple[_Play, int, Say, dict[str, Any]]) -> str:
    play, _, say, _ = kept
    return where(play.game.task, say.at, say.agent)


def _said(task: Task, say: Say, columns: Mapping[str, Any], completion: Completion) -> Said:
    if problem := unwritable(completion.text):
        raise RolloutError(
            f"rollout: the completion of {where(task, say.at, say.agent)} has {problem}, which no file holds; its "
            "policy's engine must decode tokens to text that has a UTF-8 form"
        )
    spoken = {
        **columns,
        "completion": completion.text,
        "completion_ids": list(completion.ids),
        "logprobs": list(completion.logprobs),
        "finish": completion.finish,
    }
    return Said(say.agent, say.candidate, completion.text, spoken)


def max_tokens(env: Env, agent: str) -> int:
    return env.max_tokens[agent] if isinstance(env.max_tokens, Mapping) else env.max_tokens


def draw_seed(*key: Any) -> int:
    """64 bits from (seed, step, node, agent, candidate)."""
    return int.from_bytes(hashlib.blake2b(repr(key).encode(), digest_size=8).digest(), "big")
