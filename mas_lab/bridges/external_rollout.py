"""Episodes of the kit whose tokens are sampled by another trainer's engine.

The env and the plan belong to the kit. Token ids go out, the sampled ids come back, and no text is encoded again.
Leaves out: the engines (`verl`) and the use of the rows (`export_reader`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from mas_lab.backends.runner import Runner, RunningPlan
from mas_lab.cells.episode import EpisodeState, Plan, StepEnv
from mas_lab.env import Env, Message, Task
from mas_lab.policy import Completion, Policy, Request
from mas_lab.team import Sampling, Team

Speak = Callable[[Request], Awaitable[Completion]]
"""Async function that answers one request. An exception in it ends the episode."""


class Speaker:
    """A policy that can only sample: `tokenizer` and `template` write prompts, `speak` answers them."""

    streams = True
    lock = None

    def __init__(self, speak: Speak, tokenizer: Any, template: Mapping[str, Any], context: int):
        self.speak, self.tokenizer, self.template, self.context = speak, tokenizer, template, context
        self.name, self.engine, self.asked = "external", self, {}
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


class ExternalRunner(Runner):
    """Run one episode within an event loop: while it waits for tokens or for the environment, others go on."""

    def __init__(self, env: Env, team: Team, seed: int):
        super().__init__(env, team, seed, step=0)
        [self.source] = team.policies.values()
        self.external: dict[asyncio.Future, tuple[RunningPlan, int, StepEnv]] = {}

    async def rows(self, episode: EpisodeState, plan: Plan) -> list[dict[str, Any]]:
        """Play `episode` and return its rows, with all columns of `mas_lab.table.ROLLOUT` except `step`."""
        self.ready.append(RunningPlan(episode, plan(episode)))
        try:
            while self._advance():
                waiting = [*self.source.asked.values(), *self.external]
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                self.collect_generations()
                for job in [job for job in self.external if job.done()]:
                    running, slot, request = self.external.pop(job)
                    self.answer((running, slot), self.checked_step(episode, request, job.result))
        finally:
            self.source.cancel(list(self.source.asked))
            for job in self.external:
                job.cancel()
        return episode.rows

    def _advance(self) -> bool:
        """Submit all that can be submitted, and return whether an answer is missing."""
        while self.ready or self.scoring:
            self.submit_ready()
            if self.scoring:
                self.score()
        return bool(self.source.asked or self.external)

    def step_env(self, plan: RunningPlan, slot: int, request: StepEnv) -> None:
        """Step in a thread: a program that a step runs must not stop the trainer's event loop."""
        actions = {one.agent: one.text for one in request.said}
        job = asyncio.ensure_future(asyncio.to_thread(self.env.step, request.at.state, actions))
        self.external[job] = plan, slot, request


async def play(
    env: Env, task: Task, episode: str, plan: Plan, speaker: Speaker, sampling: Mapping[str, Sampling], seed: int = 0
) -> list[dict[str, Any]]:
    """Play one instance of `task`, named `episode`, by `plan`, and return its rows.

    `speaker` answers for all agents. The seed of a request equals the seed of the same call in `rollout` at step 0, for
    engines that take seeds. Raises the same errors as `rollout`.
    """
    team = Team.shared(speaker, env.agents, sampling=dict(sampling))
    return await ExternalRunner(env, team, seed).rows(EpisodeState(env, task, episode), plan)


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
