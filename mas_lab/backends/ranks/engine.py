"""Sampling over several ranks: rank 0 asks, and every rank answers a share of the prompts with its own engine.

Leaves out: the group of ranks and their messages (`ranks`).
"""

from collections.abc import Iterable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any

from mas_lab.backends.torch.engine import Pending
from mas_lab.locks import alone
from mas_lab.policy import Completion, PolicyError, Request

if TYPE_CHECKING:
    from mas_lab.backends.ranks.ranks import Ranks


class RankError(PolicyError):
    """Error of ranks that cannot go on together; it names the rank and what ended."""


class RankedEngine:
    """One model's sampler over all ranks: rank 0 asks, and every rank answers the requests of some of the prompts."""

    streams = False

    def __init__(self, ranks: "Ranks", number: int, model):
        self.ranks, self.number, self.model, self.inner = ranks, number, model, model.engine
        self.policies = [policy for policy in ranks.team.policies.values() if policy.shared is model]
        self._pending, self._tickets = Pending(), count()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def submit(self, policy, requests: Sequence[Request]) -> list[int]:
        """Queue requests on rank 0, and return a ticket for each."""
        tickets = [next(self._tickets) for _ in requests]
        own = self.policies.index(policy)
        self._pending.asked += [(ticket, own, request) for ticket, request in zip(tickets, requests, strict=True)]
        return tickets

    def cancel(self, tickets: Iterable[int]) -> None:
        """Drop requests that have no answer yet."""
        forgotten = set(tickets)
        self._pending.asked = [entry for entry in self._pending.asked if entry[0] not in forgotten]

    def ready(self) -> list[tuple[int, Completion]]:
        """Answer all requests of this thread, as (ticket, completion)."""
        pending, self._pending.asked = self._pending.asked, []
        asked = [(own, request) for _, own, request in pending]
        return list(zip([ticket for ticket, _, _ in pending], self._ask(asked), strict=True))

    def sample(self, policy, requests: Sequence[Request]) -> list[Completion]:
        """Answer these requests now, in order."""
        return self._ask([(self.policies.index(policy), request) for request in requests])

    def _ask(self, asked: list[tuple[int, Request]]) -> list[Completion]:
        if not asked:
            return []
        with alone(self.policies):  # the other ranks receive one message at a time
            self.ranks.require_team(self.policies[asked[0][0]].name)
            self.ranks.tell("sample", self.number, asked)
            return self.answer(asked)

    def answer(self, asked: list[tuple[int, Request]]) -> list[Completion]:
        """Return all completions in order, on every rank; raise RankError if a rank could not answer its share."""
        mine = self._deal(asked)[self.ranks.number]
        try:
            found, error = self._sample([asked[i] for i in mine]), None
        except (PolicyError, RuntimeError) as failed:
            found, error = [], f"{type(failed).__name__}: {failed}"
        answers: list[Any] = [None] * len(asked)
        for number, (places, completions, failed) in enumerate(self.ranks.gather((mine, found, error))):
            if failed is not None:
                raise RankError(f"rank {number} of {self.ranks.size} could not sample: {failed}")
            for place, completion in zip(places, completions, strict=True):
                answers[place] = completion
        return answers

    def _sample(self, asked: list[tuple[int, Request]]) -> list[Completion]:
        def work() -> list[Completion]:
            tickets = [self.inner.submit(self.policies[own], [request])[0] for own, request in asked]
            answers = dict(self.inner.ready()) if tickets else {}
            return [answers[ticket] for ticket in tickets]

        shares = [policy.ranks for policy in self.policies if policy.ranks is not None]
        return shares[0].sampling(work) if shares else work()

    def _deal(self, asked: list[tuple[int, Request]]) -> list[list[int]]:
        """Return the places in `asked` by rank; a prompt's candidates stay together, the longest work goes first."""
        prompts: dict[tuple, list[int]] = {}
        for place, (own, request) in enumerate(asked):
            prompts.setdefault((own, request.prompt_ids), []).append(place)
        load = {key: len(key[1]) + sum(asked[i][1].max_tokens for i in places) for key, places in prompts.items()}
        dealt, work = [[] for _ in range(self.ranks.size)], [0] * self.ranks.size
        for key in sorted(prompts, key=load.get, reverse=True):
            least = work.index(min(work))
            dealt[least] += prompts[key]
            work[least] += load[key]
        return dealt


class Elsewhere:
    """A stand-in for an engine that streams, on every rank but 0: only rank 0 sends requests and weights to servers."""

    streams = True

    def __init__(self, model):
        self.model, self.inner = model, model.engine

    def publish(self, policy) -> None: ...
    def rest(self) -> None: ...
