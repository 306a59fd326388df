"""Sampling over several ranks: rank 0 asks, and every rank answers a share of the prompts with its own engine.

Leaves out: the group of ranks and their messages (`ranks`).
"""

from collections.abc import Sequence
from typing import Any

from mas_lab.backends.torch.policy import Passes
from mas_lab.locks import locked
from mas_lab.policy import Asked, Completion, PolicyError, Request, WaveEngine


class RankError(PolicyError):
    """Error of ranks that cannot go on together; it names the rank and what ended."""


class RankedEngine(WaveEngine):
    """One model's sampler over all ranks: rank 0 asks, and every rank answers a share of the prompts."""

    def __init__(self, ranks: Any, number: int, model):
        super().__init__()
        self.ranks, self.number, self.model, self.inner = ranks, number, model, model.engine
        self.policies = [policy for policy in ranks.team.policies.values() if policy.shared is model]

    def complete(self, asked: Sequence[Asked]) -> list[Completion]:
        """Return a completion per (policy, request), in order; called on rank 0."""
        numbered = [(self.policies.index(policy), request) for policy, request in asked]
        with locked(self.policies):  # the other ranks receive one message at a time
            self.ranks.require_team(self.policies[numbered[0][0]].name)
            self.ranks.tell("sample", self.number, numbered)
            return self.answer(numbered)

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
            return self.inner.complete([(self.policies[own], request) for own, request in asked]) if asked else []

        shares = [policy.passes for policy in self.policies if type(policy.passes) is not Passes]
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


class RemoteEngine:
    """A stand-in for an engine that streams, on every rank but 0: only rank 0 sends requests and weights to servers."""

    streams = True

    def __init__(self, model):
        self.model, self.inner = model, model.engine

    def sync_weights(self, policy) -> None: ...
    def release_memory(self) -> None: ...
