"""What is being said: requests in flight at the engines of a team, and what is kept beside each until its answer comes.

Leaves out: who asks (`driver`; programs in `bridges.switchboard`), and how an engine answers (`policy`).
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from mas_lab.cells.steps import RolloutError
from mas_lab.policy import Completion, Policy, PolicyError, Request
from mas_lab.team import Team

Kept = TypeVar("Kept")


class Speaking(Generic[Kept]):
    """True while an answer is missing. `named(kept)`: whose request it was, in words, for an engine's error."""

    def __init__(self, team: Team, named: Callable[[Kept], str]):
        self.engines = list({id(policy.engine): policy.engine for policy in team.policies.values()}.values())
        self._named = named
        self._kept: dict[tuple[int, int], Kept] = {}  # by engine and ticket

    def __bool__(self) -> bool:
        return bool(self._kept)

    @property
    def streams(self) -> bool:
        """Does no engine let the others wait?"""
        return all(engine.streams for engine in self.engines)

    def submit(self, policy: Policy, requests: Sequence[Request], kept: Sequence[Kept]) -> None:
        """Ask for what one speaker is to say, `kept` beside each. Raises RolloutError, which names the first."""
        try:
            tickets = policy.engine.submit(policy, requests)
        except PolicyError as error:
            raise RolloutError(f"rollout: {self._named(kept[0])}: {error}") from error
        for ticket, one in zip(tickets, kept, strict=True):
            self._kept[id(policy.engine), ticket] = one

    def answers(self) -> Iterator[tuple[Kept, Completion]]:
        """What the engines have answered by now. Raises RolloutError, which names whose answer failed: the one with the
        error's `ticket`, or the first that waits for this engine."""
        for engine in self.engines:
            try:
                ready = engine.ready()
            except PolicyError as error:
                waiting = {ticket: one for (key, ticket), one in self._kept.items() if key == id(engine)}
                ticket = getattr(error, "ticket", None)
                failed = waiting[ticket] if ticket in waiting else next(iter(waiting.values()))
                raise RolloutError(f"rollout: {self._named(failed)}: {error}") from error
            for ticket, completion in ready:
                yield self._kept.pop((id(engine), ticket)), completion

    def cancel(self) -> None:
        """Where something broke, nobody waits for what is still being said."""
        for engine in self.engines if self._kept else ():
            engine.cancel([ticket for key, ticket in self._kept if key == id(engine)])
