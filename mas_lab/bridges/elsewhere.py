"""Episodes of the kit whose tokens are sampled by another trainer's engine.

The env and the plan belong to the kit. Token ids go out, the sampled ids come back, and no text is encoded again.
Leaves out: the engines (`slime`, `verl`) and the use of the rows (`handed`).
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
"""Async function that answers one request. An exception in it ends the episode."""


class Speaker:
    """A policy that can only sample: `tokenizer` and `template` write prompts, `speak` answers them."""

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
    """Driver that plays one instance in an event loop; other coroutines run while it waits."""

    def __init__(self, env: Env, team: Team, seed: int):
        with no_bars():
            super().__init__(env, team, None, seed, 0, progress_bar(1, "play", "episode"))
        [self.speaker] = team.policies.values()
        self.stepping: dict[asyncio.Future, tuple[_Play, int, Act]] = {}

    async def played(self, game: Game, plan: Plan) -> list[dict[str, Any]]:
        """Return the rows of `game`, with all columns of `mas_lab.table.ROLLOUT` except `step`."""
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
        """Submit everything that can be submitted, and return whether an answer is pending."""
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
        """Step the env in a thread: it may run a program, which would block the trainer's event loop."""
        actions = {one.agent: one.text for one in act.said}
        job = asyncio.ensure_future(asyncio.to_thread(self.env.step, act.at.state, actions))
        self.stepping[job] = play, slot, act


async def play(
    env: Env, task: Task, episode: str, plan: Plan, speaker: Speaker, sampling: Mapping[str, Sampling], seed: int = 0
) -> list[dict[str, Any]]:
    """Play one instance of `task`, named `episode`, by `plan`, and return its rows.

    `speaker` answers for all agents. The seed of a request equals the seed of the same call in `rollout` at step 0, for
    engines that take seeds. Raises the same errors as `rollout`.
    """
    team = Team.shared(speaker, env.agents, sampling=dict(sampling))
    return await Episode(env, team, seed).played(Game(env, task, episode), plan)


def completion(ids: Sequence[int], logprobs: Sequence[float], request: Request, tokenizer: Any) -> Completion:
    """Return an engine's sample as a `Completion`.

    The text has no special tokens, but keeps the stop text. `finish` is "eos" after an end token of the model, "stop"
    after a stop text of the request, and "length" at the token limit. Raises ValueError if there are no tokens, or not
    one log-probability for each.
    """
    if not ids or len(ids) != len(logprobs):
        raise ValueError(f"the engine gave {len(ids)} tokens with {len(logprobs)} log-probabilities; one for each")
    text = tokenizer.decode(list(ids), skip_special_tokens=True)
    early = len(ids) < request.max_tokens  # ended before the limit: a model may have several end tokens
    ended = ids[-1] == tokenizer.eos_token_id or (early and ids[-1] in tokenizer.all_special_ids)
    finish = "eos" if ended else "stop" if any(one in text for one in request.stop) else "length"
    return Completion(tuple(map(int, ids)), tuple(map(float, logprobs)), text, finish)
