"""Episodes of the kit whose tokens are sampled by another trainer's engine.

The env and the plan belong to the kit. Token ids go out, the sampled ids come back, and no text is encoded again.
Leaves out: the engines (`verl`) and the use of the rows (`export_reader`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from mas_lab.backends.runner import Runner
from mas_lab.cells.episode import EpisodeState, Plan
from mas_lab.env import Env, Message, Task
from mas_lab.locks import ModelLock
from mas_lab.policy import Completion, Policy, Request
from mas_lab.team import Sampling, Team

Speak = Callable[[Request], Awaitable[Completion]]
"""Async function that answers one request. An exception in it ends the episode."""
THREADS = ThreadPoolExecutor(max_workers=4096, thread_name_prefix="mas_lab episode")
"""A thread for each live episode, which mostly waits for the engine."""


class Speaker:
    """A policy that can only sample: `tokenizer` and `template` write prompts, `speak` answers them.

    `speak` runs in the event loop in which the speaker was made; the other methods are called in another thread.
    """

    streams = True

    def __init__(self, speak: Speak, tokenizer: Any, template: Mapping[str, Any], context: int):
        self.speak, self.tokenizer, self.template, self.context = speak, tokenizer, template, context
        self.name, self.engine, self.lock = "external", self, ModelLock()
        self.loop = asyncio.get_running_loop()
        self.asked: dict[int, Future[Completion]] = {}

    def encode(self, messages: Sequence[Message]) -> list[int]:
        return self.encode_all([messages])[0]

    def encode_all(self, chats: Sequence[Sequence[Message]]) -> list[list[int]]:
        from mas_lab.backends.torch.encoding import encode

        return encode(self.tokenizer, chats, self.template, self.name)

    def submit(self, policy: Policy, requests: Sequence[Request]) -> list[int]:
        answers = [asyncio.run_coroutine_threadsafe(self.speak(request), self.loop) for request in requests]
        self.asked |= {id(answer): answer for answer in answers}
        return [id(answer) for answer in answers]

    def ready(self) -> list[tuple[int, Completion]]:
        """Wait for the first answer, and return all that are there."""
        done = wait(self.asked.values(), return_when=FIRST_COMPLETED).done
        return [(id(answer), self.asked.pop(id(answer)).result()) for answer in done]

    def cancel(self, tickets: Iterable[int]) -> None:
        for ticket in tickets:
            if ticket in self.asked:
                self.asked.pop(ticket).cancel()


async def play(
    env: Env, task: Task, episode: str, plan: Plan, speaker: Speaker, sampling: Mapping[str, Sampling], seed: int = 0
) -> list[dict[str, Any]]:
    """Play one instance of `task`, named `episode`, by `plan`, and return its rows.

    `speaker` answers for all agents. The env steps in a thread, so the trainer's event loop goes on. The seed of a
    request equals the seed of the same call in `rollout` at step 0, for engines that take seeds. Raises the same errors
    as `rollout`.
    """
    state, team = EpisodeState(env, task, episode), Team.shared(speaker, env.agents, sampling=dict(sampling))
    try:
        await speaker.loop.run_in_executor(THREADS, Runner(env, team, seed, step=0).run, [state], plan)
    finally:  # the thread ends too where this task is cancelled
        for answer in list(speaker.asked.values()):
            answer.cancel()
    return state.rows


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
