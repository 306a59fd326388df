"""Sampling on a Tinker server: all pending requests at once, each from the weights that were published last.

Leaves out: training (`policy`).
"""

import threading
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from mas_lab.policy import Completion, PolicyError, Request, check_fit


class TinkerEngine:
    """An engine that answers in waves.

    A draw follows its request's seed only if the server does, which Tinker does not promise.
    """

    streams = False

    def __init__(self, service: Any, eos: frozenset[int]):
        self.service, self.eos = service, eos
        self._asked: dict[int, tuple[int, Any, Request, Any]] = {}
        self._next = 0
        self._counting = threading.Lock()
        self._last: dict[int, Request] = {}

    def submit(self, policy: Any, requests: Sequence[Request]) -> list[int]:
        for request in requests:
            check_fit(policy, request)
        sampler = policy.sampler()
        tickets = []
        for request in requests:
            answer = self.service.begun("sample", partial(self._sampled, sampler, request))
            with self._counting:
                self._next += 1
                self._asked[self._next] = (threading.get_ident(), policy, request, answer)
                tickets.append(self._next)
            self._last[id(policy)] = request
        return tickets

    def ready(self) -> list[tuple[int, Completion]]:
        own = [ticket for ticket, (thread, *_) in self._asked.items() if thread == threading.get_ident()]
        answered = []
        for ticket in own:
            _, policy, request, future = self._asked.pop(ticket)
            try:
                found = self.service.waited("sample", future)
            except PolicyError as error:
                error.ticket = ticket
                raise
            answered.append((ticket, self._completion(policy, request, found.sequences[0])))
        return answered

    def cancel(self, tickets: Iterable[int]) -> None:
        for ticket in tickets:
            self._asked.pop(ticket, None)

    def sample(self, policy: Any, requests: Sequence[Request]) -> list[Completion]:
        """Return one completion per request, in order."""
        tickets = self.submit(policy, requests)
        answered = dict(self.ready())
        return [answered[ticket] for ticket in tickets]

    def sync_weights(self, policy: Any) -> None:
        policy.sync_weights()

    def release_memory(self) -> None:
        """Change nothing: the server manages its own memory."""

    def last(self, policy: Any) -> Request | None:
        """Return the last request to a policy."""
        return self._last.get(id(policy))

    def _sampled(self, sampler: Any, request: Request) -> Any:
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
