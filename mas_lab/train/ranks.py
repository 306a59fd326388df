"""Several processes train one team, one per device, as `accelerate launch` or torchrun starts them.

Rank 0 drives: it alone plays the environment, keeps tables and checkpoints, and yields reports. The other ranks wait
for its messages. On *sample*, each rank answers a share of the requests. On *update*, rank 0 broadcasts the table, and
each rank makes the passes of a share of the packed rows. Every rank has all weights, and the gradients are summed
over the ranks. Accelerate makes the process group and carries every message. Leaves out: the loop (`mas_lab.train`).
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from typing import Any

import pandas as pd
import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType, InitProcessGroupKwargs, broadcast, broadcast_object_list, gather_object

from mas_lab.cells.update import update
from mas_lab.locks import locked
from mas_lab.policy import Completion, PolicyError, PolicyRequest, Request, WaveEngine
from mas_lab.team import Team
from mas_lab.train.hooks import Hook
from mas_lab.train.progress import Progress
from mas_lab.train.report import Report

PATIENCE = timedelta(hours=12)
"""Time that a rank waits for the others: rank 0 may play long, or stand in a notebook between two steps."""
LOST = ("gloo", "nccl", "connection", "closed by peer", "socket")
"""Words in the plain RuntimeErrors of Gloo when the process group failed, and not the work."""


class RankError(PolicyError):
    """Error of ranks that cannot go on together; it names the rank and what ended."""


class Ranks(Hook):
    """This process among those that train together."""

    def __init__(self, team: Team):
        """Join the ranks that a launcher started; raise RankError if they are not one group."""
        on_cpu = all(policy.shared.device.type == "cpu" for policy in team.policies.values())
        handlers = [InitProcessGroupKwargs(timeout=PATIENCE)]
        self.accelerator = Accelerator(cpu=on_cpu, mixed_precision="no", kwargs_handlers=handlers)
        self.number, self.size = self.accelerator.process_index, self.accelerator.num_processes
        kind, size = self.accelerator.distributed_type, os.environ["WORLD_SIZE"]
        if kind not in (DistributedType.MULTI_GPU, DistributedType.MULTI_CPU) or self.size != int(size):
            raise RankError(
                f"accelerate found {self.size} processes of kind {kind}, and WORLD_SIZE is {size}; launch with "
                "--multi_gpu, and call train() before making an Accelerator of your own"
            )
        self.drives = self.number == 0
        self.part = slice(self.number, None, self.size)
        """This rank's share of the packed rows: every n-th tree, by length."""
        self.team: Team | None = None
        self.engines: list[RankedEngine | RemoteEngine] = []
        self.listening = True
        """True while the other ranks wait for a message of rank 0; False while all of them update."""

    # Messages

    def tell(self, word: str, *rest: Any) -> None:
        """Send a message from rank 0 to all ranks."""
        with self.connected():
            broadcast_object_list([(word, *rest)])

    @contextmanager
    def connected(self) -> Iterator[None]:
        """Turn an error of the process group into a RankError, because it means that another rank ended."""
        try:
            yield
        except RuntimeError as error:
            if not isinstance(error, torch.distributed.DistError) and not any(w in str(error).lower() for w in LOST):
                raise
            raise RankError(
                f"rank {self.number} of {self.size}: another rank ended or lost its connection. If the run is kept, "
                f"the same command goes on from its newest checkpoint: {error}"
            ) from error

    # Rank 0

    def driving(self, loop: Iterator[Report]) -> Iterator[Report]:
        """Yield the reports of a whole training, and end the other ranks when it ends or fails (on rank 0)."""
        try:
            with self.connected(), suppress(GeneratorExit):
                yield from loop
        finally:
            self._part()
            if self.listening:
                self.tell("end")

    def begin(self, now: Progress) -> None:
        """Give the team one engine and one optimizer over all ranks (on rank 0)."""
        self.tell("assemble")
        self._assemble(now.team, now.watch)

    def update(self, team: Team, turns: pd.DataFrame, *options: Any, watch: Any, seed: int) -> pd.DataFrame:
        """Update on all ranks (on rank 0). No thread of this process asks them for anything else in the meantime."""
        with locked(team.policies.values(), training=True):
            self.tell("update", turns, options, seed)
            self.listening = False
            stats = update(team, turns, *options, watch=watch, seed=seed)
            self.listening = True
        return stats

    # The other ranks

    def serve(self, team: Team, watch: Any) -> Iterator[Any]:
        """Obey rank 0 until the training ends (on every rank but 0).

        Yields nothing. Raises RankError if another rank ended.
        """
        try:
            with self.connected():
                while (message := broadcast_object_list([None])[0])[0] != "end":
                    self._obey(message, team, watch)
        finally:
            self._part()
        yield from ()

    def _obey(self, message: tuple[Any, ...], team: Team, watch: Any) -> None:
        word, *rest = message
        if word == "assemble":
            self._assemble(team, watch)
        elif word == "sample":
            self.engines[rest[0]].answer(rest[1])
        elif word == "update":
            update(team, rest[0], *rest[1], watch=watch, seed=rest[2])

    # All ranks

    def _assemble(self, team: Team, watch: Any) -> None:
        self.team = team
        for policy in team.policies.values():
            self._share_state(policy)
        for name, policy in team.policies.items():
            if team.learners(name):
                policy.ranks = self
        models = {id(policy.shared): policy.shared for policy in team.policies.values()}
        for number, model in enumerate(models.values()):
            self.engines.append(RemoteEngine(model) if model.engine.streams else RankedEngine(self, number, model))
            if not (model.engine.streams and self.drives):
                model.engine = self.engines[-1]
        if hasattr(watch, "load_state"):
            watch.load_state(broadcast_object_list([watch.state() if self.drives else None])[0])

    def _share_state(self, policy) -> None:
        """Copy weights, AdamW's state and the learning rate from rank 0, which may have read a checkpoint."""
        known = [{key: (value.shape, value.dtype) for key, value in policy.optimizer.state.get(p, {}).items()}
                 for p in policy.parameters.values()]  # fmt: skip
        (policy.lr, known), device = broadcast_object_list([(policy.lr, known)])[0], self.accelerator.device
        for parameter, fields in zip(policy.parameters.values(), known, strict=True):
            parameter.data.copy_(broadcast(parameter.data.to(device)))
            for key, (shape, dtype) in fields.items():
                mine = policy.optimizer.state[parameter].get(key)
                value = torch.zeros(shape, dtype=dtype, device=device) if mine is None else mine.to(device)
                value = broadcast(value)
                policy.optimizer.state[parameter][key] = value.to(parameter.device)

    def total(self, policy, found_4N: torch.Tensor) -> torch.Tensor:
        """Sum the gradients over the ranks, and return the sum of their results.

        Raises RankError if rank 0 would wait for passes that the other, listening ranks will not make.
        """
        if self.drives and self.listening:
            raise RankError(
                f"policy {policy.name!r}: only train() computes gradients over several ranks, not the body of its "
                "loop; use a watch, or a process of its own on a saved run"
            )
        add = partial(self.accelerator.reduce, reduction="sum")
        for parameter in policy.parameters.values():
            parameter.grad = add(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)
        return add(found_4N)

    def _part(self) -> None:
        """Separate the policies from the ranks."""
        for policy in self.team.policies.values() if self.team else ():
            policy.ranks = None
        for engine in self.engines:
            engine.model.engine = engine.inner
        self.engines, self.team = [], None


class RankedEngine(WaveEngine):
    """One model's sampler over all ranks: rank 0 asks, and every rank answers a share of the prompts."""

    def __init__(self, ranks: Any, number: int, model):
        super().__init__()
        self.ranks, self.number, self.model, self.inner = ranks, number, model, model.engine
        self.policies = [policy for policy in ranks.team.policies.values() if policy.shared is model]

    def complete(self, requests: Sequence[PolicyRequest]) -> list[Completion]:
        """Return a completion per (policy, request), in order; called on rank 0."""
        numbered = [(self.policies.index(policy), request) for policy, request in requests]
        with locked(self.policies):  # the other ranks receive one message at a time
            self.ranks.tell("sample", self.number, numbered)
            with self.ranks.connected():
                return self.answer(numbered)

    def answer(self, numbered: list[tuple[int, Request]]) -> list[Completion]:
        """Return all completions in order, on every rank; raise RankError if a rank could not answer its share."""
        # The candidates of a prompt stay together, and the ranks get prompts of similar lengths.
        prompts = sorted({(own, request.prompt_ids) for own, request in numbered}, key=lambda one: (len(one[1]), one))
        dealt = {prompt: place % self.ranks.size for place, prompt in enumerate(prompts)}
        mine = [i for i, (own, one) in enumerate(numbered) if dealt[own, one.prompt_ids] == self.ranks.number]
        try:
            share = [(self.policies[numbered[i][0]], numbered[i][1]) for i in mine]
            found, error = self.inner.complete(share) if share else [], None
        except (PolicyError, RuntimeError) as failed:
            found, error = [], f"{type(failed).__name__}: {failed}"
        answers: list[Any] = [None] * len(numbered)
        for number, (places, completions, failed) in enumerate(gather_object([(mine, found, error)])):
            if failed is not None:
                raise RankError(f"rank {number} of {self.ranks.size} could not sample: {failed}")
            for place, completion in zip(places, completions, strict=True):
                answers[place] = completion
        return answers


class RemoteEngine:
    """The place of an engine that streams, on every rank but 0: only rank 0 sends requests and weights to servers."""

    streams, snapshots = True, False

    def __init__(self, model):
        self.model, self.inner = model, model.engine

    def sync_weights(self, policy) -> None: ...
    def release_memory(self) -> None: ...
