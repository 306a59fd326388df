"""The requests of a rollout that are in flight at the engines of a team.

Leaves out: what is requested, and what becomes of an answer (`driver`).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from mas_lab.cells.episode import RolloutError
from mas_lab.policy import Completion, Policy, PolicyError, Request
from mas_lab.team import Team

Kept = TypeVar("Kept")


class PendingRequests(Generic[Kept]):
    """Hold the requests in flight at the engines of a team, each with a kept value; true while an answer is missing.

    Args:
        team: The team whose engines answer.
        named: Function from the kept value of a request to its place in words, for an engine's error.
    """

    def __init__(self, team: Team, named: Callable[[Kept], str]):
        self.engines = list({id(policy.engine): policy.engine for policy in team.policies.values()}.values())
        self.streams = all(engine.streams for engine in self.engines)
        self._named = named
        self._kept: dict[tuple[int, int], Kept] = {}  # by engine and ticket

    def __bool__(self) -> bool:
        return bool(self._kept)

    def submit(self, policy: Policy, requests: Sequence[Request], kept: Sequence[Kept]) -> None:
        """Queue requests to one policy. Raises RolloutError, which names the first request."""
        try:
            tickets = policy.engine.submit(policy, requests)
        except PolicyError as error:
            raise RolloutError(f"rollout: {self._named(kept[0])}: {error}") from error
        self._kept |= {(id(policy.engine), ticket): one for ticket, one in zip(tickets, kept, strict=True)}

    def answers(self) -> Iterator[tuple[Kept, Completion]]:
        """Yield the kept value and completion of each answer. Raises RolloutError, which names the failed request."""
        for engine in self.engines:
            try:
                ready = engine.ready()
            except PolicyError as error:
                waiting = {ticket: one for (key, ticket), one in self._kept.items() if key == id(engine)}
                failed = waiting.get(error.ticket, next(iter(waiting.values())))
                raise RolloutError(f"rollout: {self._named(failed)}: {error}") from error
            for ticket, completion in ready:
                yield self._kept.pop((id(engine), ticket)), completion

    def cancel(self) -> None:
        """Drop the requests that are still in flight."""
        for engine in self.engines if self._kept else ():
            engine.cancel([ticket for key, ticket in self._kept if key == id(engine)])
