"""Sampling on a Tinker server: all pending requests at once, each from the weights that were published last.

Leaves out: training (`policy`).
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

from mas_lab.policy import Asked, Completion, PolicyError, Request, WaveEngine


class TinkerEngine(WaveEngine):
    """An engine that answers in waves.

    A draw follows its request's seed only if the server does, which Tinker does not promise.
    """

    def __init__(self, service: Any, eos: frozenset[int]):
        super().__init__()
        self.service, self.eos = service, eos

    def complete(self, asked: Sequence[Asked]) -> list[Completion]:
        """Return a completion per (policy, request), in order."""
        calls = [partial(self._sample, policy.sampler(), request) for policy, request in asked]
        for policy, request in asked:
            policy.last_request = request
        found = self.service.ask("sample", *calls)
        return [self._completion(*one, answer.sequences[0]) for one, answer in zip(asked, found, strict=True)]

    def sync_weights(self, policy: Any) -> None:
        policy.sync_weights()

    def _sample(self, sampler: Any, request: Request) -> Any:
        from tinker import types

        how = types.SamplingParams(
            max_tokens=request.max_tokens, temperature=request.temperature, seed=request.seed & 0x7FFFFFFF,
            stop=sorted(self.eos), top_p=request.top_p, top_k=-1 if request.top_k is None else request.top_k,
        )  # fmt: skip
        prompt = types.ModelInput.from_ints(list(map(int, request.prompt_ids)))
        return sampler.sample(prompt=prompt, num_samples=1, sampling_params=how)

    def _completion(self, policy: Any, request: Request, found: Any) -> Completion:
        """Return the sampled tokens, up to the token that completes a stop text."""
        ids, logprobs = list(found.tokens), found.logprobs
        if not ids or logprobs is None or len(logprobs) != len(ids):
            raise PolicyError(
                f"policy {policy.name!r}: the server gave {len(ids)} tokens and {len(logprobs or ())} "
                "log-probabilities; there is nothing to learn from"
            )
        finish = "eos" if ids[-1] in self.eos else "length"
        for end in range(1, len(ids) + 1) if request.stop else ():
            if any(one in policy.decode(ids[:end]) for one in request.stop):
                ids, logprobs, finish = ids[:end], logprobs[:end], "stop"
                break
        return Completion(tuple(ids), tuple(map(float, logprobs)), policy.decode(ids), finish)
