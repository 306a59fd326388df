"""One rank's share of a policy's passes: some of the packed rows, with gradients that are summed over the ranks.

Every rank has whole weights (torch's DDP, which Accelerate sets up). Leaves out: the messages between ranks (`ranks`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch

from mas_lab.backends.torch.fast.packing import MicroBatch, Tree, micro_batches, tensor_batches, trees_of
from mas_lab.backends.torch.policy import Passes
from mas_lab.policy import Sample


class Share(Passes):
    """The share of one rank in one policy's passes, with whole weights on every rank."""

    def __init__(self, ranks: Any, policy):
        super().__init__(policy)
        self.ranks = ranks
        policy.activate()  # DDP joins the gradients of the parameters that are trainable now, those of this policy
        self.module = ranks.accelerator.prepare(Within(policy.shared.net), device_placement=[False])

    def batches(self, samples: Sequence[Sample]) -> Iterator[tuple[MicroBatch, float]]:
        """Yield this rank's micro-batches, and what their weights are multiplied by.

        All ranks make equally many passes; the shorter ones add passes of weight 0. The gradients come out averaged
        over the ranks, and the weights refer to the whole table, so a sum is needed: hence the factor.
        """
        model, accelerator = self.policy.shared, self.ranks.accelerator
        self.ranks.require_all(self.policy.name)
        mine, padding = self._deal(trees_of(samples, model), model.options.train_tokens)
        batches = list(tensor_batches(mine + padding, samples, model))
        for number, batch in enumerate(batches, 1):
            with nullcontext() if number == len(batches) else accelerator.no_sync(self.module):
                yield batch, float(self.ranks.size) if number <= len(mine) else 0.0

    def trained(self, batch: MicroBatch, entropy_grad: bool):
        """Return log-probability and entropy of each token, in a pass that joins the gradients of all ranks."""
        return self.module(partial(batch.token_logprobs, self.policy.shared.net, entropy_grad))

    def total(self, found_4N: torch.Tensor) -> torch.Tensor:
        """Return the results of all ranks."""
        return self.ranks.accelerator.reduce(found_4N, "sum")

    def _deal(self, trees: list[Tree], budget: int) -> tuple[list[list[Tree]], list[list[Tree]]]:
        """Return this rank's micro-batches, and micro-batches that pad them to the number of the rank with the most."""
        trees = sorted(trees, key=len, reverse=True)
        size = self.ranks.size
        dealt = [list(micro_batches(trees[number::size], budget)) for number in range(size)]
        mine = dealt[self.ranks.number]
        return mine, [trees[-1:]] * (max(map(len, dealt)) - len(mine))


class Within(torch.nn.Module):
    """A module whose forward pass is any computation with `net`.

    DDP only sees what goes through a module's own `forward`. Log-probabilities come from parts of `net` and from code
    outside it.
    """

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, work: Callable[[], Any]) -> Any:
        return work()
