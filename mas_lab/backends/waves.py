"""An engine that answers in waves: it queues requests, and the first `ready` answers all of them.

A back end writes `complete`. Leaves out: engines that stream (`vllm`).
"""

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from itertools import count

from mas_lab.policy import Completion, Policy, Request, check_fit

Asked = tuple[Policy, Request]


class WaveEngine(ABC):
    """Queue requests of the policies of one model, and answer them together."""

    streams = False

    def __init__(self):
        self._queue: dict[int, Asked] = {}
        self._tickets = count()
        self._turn = threading.RLock()  # an environment's own threads may sample beside a rollout

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
        """Answer all that is queued, as (ticket, completion)."""
        queue, self._queue = self._queue, {}
        with self._turn:
            return list(zip(queue, self.complete(list(queue.values())), strict=True)) if queue else []

    def cancel(self, tickets: Iterable[int]) -> None:
        """Forget queued requests."""
        for ticket in tickets:
            self._queue.pop(ticket, None)

    def sample(self, policy: Policy, requests: Sequence[Request]) -> list[Completion]:
        """Answer these requests now, in order; the queue stays."""
        for request in requests:
            check_fit(policy, request)
        with self._turn:
            return self.complete([(policy, request) for request in requests])

    def sync_weights(self, policy: Policy) -> None:  # noqa: B027 - most engines sample from the trained weights
        """Sample from the policy's present weights; nothing to do if these are the ones that are trained."""

    def release_memory(self) -> None:  # noqa: B027
        """Hand back memory before training; nothing to do for an engine that has none of its own."""
