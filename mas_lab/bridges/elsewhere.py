"""An episode of ours in somebody else's training: the env and the plan are the kit's, another trainer's engine samples.

Token ids go out, the ids that were sampled come back, and nothing is encoded twice. Leaves out: whose engine it is
(`slime`, `verl`) and what the rows are for (`handed`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from mas_lab.cells.driver import Driver, _Play
from mas_lab.cells.game import Act, Game, Plan
from mas_lab.cells.steps import checked
from mas_lab.env import Env, Message, Task
from mas_lab.policy import Completion, Policy, Request
from mas_lab.progress import no_bars, progress_bar
from mas_lab.team import Sampling, Team

Speak = Callable[[Request], Awaitable[Completion]]
"""Answers one request with what was sampled; what it raises ends the episode."""


class Speaker:
    """A policy that can only speak: `tokenizer` and `template` write prompts, `speak` answers them."""

    streams = True
    lock = None

    def __init__(self, speak: Speak, tokenizer: Any, template: Mapping[str, Any], context: int):
        self.speak, self.tokenizer, self.template, self.context = speak, tokenizer, template, context
        self.name, self.engine, self.asked = "elsewhere", self, {}
        self._tickets = 0

    def encode(self, messages: Sequence[Message]) -> list[int]:
        return self.encode_all([messages])[0]

    def encode_all(self, chats: Sequence[Sequence[Message]]) -> list[list[int]]:
        from mas_lab.backends.torch.encoding import encode

        return encode(self.tokenizer, chats, self.template, self.name)

    def submit(self, policy: Policy, requests: Sequence[Request]) -> list[int]:
        tickets = list(range(self._tickets, self._tickets + len(requests)))
        self._tickets += len(requests)
        self.asked |= {t: asyncio.ensure_future(self.speak(r)) for t, r in zip(tickets, requests, strict=True)}
        return tickets

    def ready(self) -> list[tuple[int, Completion]]:
        done = [ticket for ticket, answer in self.asked.items() if answer.done()]
        return [(ticket, self.asked.pop(ticket).result()) for ticket in done]

    def cancel(self, tickets: Iterable[int]) -> None:
        for ticket in tickets:
            self.asked.pop(ticket).cancel()


class Episode(Driver):
    """Plays one instance within an event loop: while it waits for tokens or for the env, others go on."""

    def __init__(self, env: Env, team: Team, seed: int):
        with no_bars():
            super().__init__(env, team, None, seed, 0, progress_bar(1, "play", "episode"))
        [self.speaker] = team.policies.values()
        self.stepping: dict[asyncio.Future, tuple[_Play, int, Act]] = {}

    async def played(self, game: Game, plan: Plan) -> list[dict[str, Any]]:
        """The rows of `game`, each of the columns `mas_lab.table.ROLLOUT` but for `step`."""
        self.ready.append(_Play(game, plan(game)))
        try:
            while self._go_on():
                await asyncio.wait([*self.speaker.asked.values(), *self.stepping], return_when=asyncio.FIRST_COMPLETED)
                self._collect_completions()
                for job in [job for job in self.stepping if job.done()]:
                    play, slot, act = self.stepping.pop(job)
                    self._answer(play, slot, checked(self.env, game.task, act, job.result))
        finally:
            self.speaker.cancel(list(self.speaker.asked))
            for job in self.stepping:
                job.cancel()
        return game.rows

    def _go_on(self) -> bool:
        """Ask for all that can be asked for; is anything waited for?"""
        while self.ready or self.scoring:
            asked: dict[int, list] = {}
            while self.ready:
                self._advance(self.ready.popleft(), asked)
            for says in asked.values():
                self._submit(says)
            if self.scoring:
                self._score()
        return bool(self.speaker.asked or self.stepping)

    def _act(self, play: _Play, slot: int, act: Act) -> None:
        """In a thread: a program that a step runs must not stop the trainer's event loop."""
        actions = {one.agent: one.text for one in act.said}
        job = asyncio.ensure_future(asyncio.to_thread(self.env.step, act.at.state, actions))
        self.stepping[job] = play, slot, act


async def play(
    env: Env, task: Task, episode: str, plan: Plan, speaker: Speaker, sampling: Mapping[str, Sampling], seed: int = 0
) -> list[dict[str, Any]]:
    """One instance of `task`, called `episode`, explored by `plan`, in which `speaker` speaks for all agents.

    A request's seed is the one that `rollout` gives the same call at step 0, for engines that take one. Raises what
    `rollout` raises.
    """
    team = Team.shared(speaker, env.agents, sampling=dict(sampling))
    return await Episode(env, team, seed).played(Game(env, task, episode), plan)


def completion(ids: Sequence[int], logprobs: Sequence[float], request: Request, tokenizer: Any) -> Completion:
    """What an engine sampled, with the text that the kit reads: special tokens left out, the stop text in it.

    It ended by the model's own token ("eos"), by one of the request's texts ("stop"), or at its limit ("length").
    """
    if not ids or len(ids) != len(logprobs):
        raise ValueError(f"the engine gave {len(ids)} tokens with {len(logprobs)} log-probabilities; one for each")
    text = tokenizer.decode(list(ids), skip_special_tokens=True)
    early = len(ids) < request.max_tokens  # then by a mark of the model's, which may have several
    ended = ids[-1] == tokenizer.eos_token_id or (early and ids[-1] in tokenizer.all_special_ids)
    finish = "eos" if ended else "stop" if any(one in text for one in request.stop) else "length"
    return Completion(tuple(map(int, ids)), tuple(map(float, logprobs)), text, finish)
