"""Answer requests in waves: the engine queues requests, and the first `ready` answers all of them.

A back end implements `complete`. Leaves out: engines that stream (`vllm`).
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from itertools import count

from mas_lab.policy import Completion, Policy, Request, check_fit

Asked = tuple[Policy, Request]


class WaveEngine(ABC):
    """An engine that queues the requests to the policies of one model and answers them together."""

    streams = False

    def __init__(self):
        self._queue: dict[int, Asked] = {}
        self._tickets = count()
        self._turn = threading.RLock()  # threads of an environment may sample during a rollout

    @abstractmethod
    def complete(self, asked: Sequence[Asked]) -> list[Completion]:
        """Return a completion per (policy, request), in order."""

    def submit(self, policy: Policy, requests: Sequence[Request]) -> list[int]:
        """Queue requests and return a ticket for each. Raises PolicyError if one does not fit the context."""
        for request in requests:
            check_fit(policy, request)
        tickets = [next(self._tickets) for _ in requests]
        self._queue |= {ticket: (policy, request) for ticket, request in zip(tickets, requests, strict=True)}
        return tickets

    def ready(self) -> list[tuple[int, Completion]]:
        """Answer all queued requests; return them as (ticket, completion)."""
        queue, self._queue = self._queue, {}
        with self._turn:
            return list(zip(queue, self.complete(list(queue.values())), strict=True)) if queue else []

    def cancel(self, tickets: Iterable[int]) -> None:
        """Forget queued requests."""
        for ticket in tickets:
            self._queue.pop(ticket, None)

    def sample(self, policy: Policy, requests: Sequence[Request]) -> list[Completion]:
        """Answer these requests now, in order; the queue does not change."""
        for request in requests:
            check_fit(policy, request)
        with self._turn:
            return self.complete([(policy, request) for request in requests])

    def sync_weights(self, policy: Policy) -> None:  # noqa: B027 - most engines sample from the trained weights
        """Sample from the policy's present weights; an engine that samples from the trained weights does nothing."""

    def release_memory(self) -> None:  # noqa: B027
        """Release memory before training; an engine without memory of its own does nothing."""
