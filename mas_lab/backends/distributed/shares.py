"""One rank's share of a policy's passes: some of the packed rows, with gradients that are summed over the ranks.

`Share` keeps whole weights on every rank (torch's DDP). `Sharded` keeps a part of weights, gradients and AdamW's state
on each rank (torch's FSDP2). Accelerate sets up both. Leaves out: the messages between ranks (`ranks`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import distribute_tensor

from mas_lab.backends.torch.fast.packing import MicroBatch, Tree, micro_batches, pack_prefix_trees, tensor_batches
from mas_lab.backends.torch.policy import Passes
from mas_lab.policy import PolicyError, Sample


class Share(Passes):
    """The share of one rank in one policy's passes, with whole weights on every rank."""

    def __init__(self, ranks: Any, policy):
        super().__init__(policy)
        self.ranks = ranks
        policy.activate()  # DDP joins the gradients of the parameters that are trainable now, those of this policy
        self.module = self._prepared(Within(policy.shared.net))

    def _prepared(self, module: "Within") -> torch.nn.Module:
        return self.ranks.accelerator.prepare(module, device_placement=[False])

    def batches(self, samples: Sequence[Sample]) -> Iterator[tuple[MicroBatch, float]]:
        """Yield this rank's micro-batches, and what their weights are multiplied by.

        All ranks make equally many passes; the shorter ones add passes of weight 0. The gradients come out averaged
        over the ranks, and the weights refer to the whole table, so a sum is needed: hence the factor.
        """
        model, accelerator = self.policy.shared, self.ranks.accelerator
        self.ranks.require_all(self.policy.name)
        trees = pack_prefix_trees(samples, model.options.packing if model.by_tree else "padded", model.cost)
        mine, padding = self._deal(trees, model.options.train_tokens)
        batches = list(tensor_batches(mine + padding, samples, model))
        for number, batch in enumerate(batches, 1):
            with nullcontext() if number == len(batches) else accelerator.no_sync(self.module):
                yield batch, float(self.ranks.size) if number <= len(mine) else 0.0

    def trained(self, batch: MicroBatch, entropy_grad: bool):
        """Return log-probability and entropy of each token, in a pass that joins the gradients of all ranks."""
        return self.module(partial(batch.token_logprobs, self.policy.shared.net, entropy_grad))

    def forward(self, batch: MicroBatch, entropy_grad: bool):
        """Return the same without gradients, for a batch that every rank computes."""
        return batch.token_logprobs(self.policy.shared.net, entropy_grad)

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


class Sharded(Share):
    """The same with weights that are sharded over the ranks.

    They are whole while this rank samples, and layer by layer while it trains. It takes full weights only: adapters are
    small, and several adapters over one base are several models to FSDP.
    """

    forward = Share.trained

    def __init__(self, ranks: Any, policy):
        if policy.adapter is not None:
            raise PolicyError(
                f"policy {policy.name!r}: FSDP cuts full weights; adapters are trained without it: launch with "
                "--multi_gpu in the place of --use_fsdp"
            )
        super().__init__(ranks, policy)

    def _prepared(self, module: "Within") -> torch.nn.Module:
        policy, plugin = self.policy, self.ranks.accelerator.state.fsdp_plugin
        plugin.cpu_ram_efficient_loading = False  # every rank has read the weights
        kept = {name: policy.optimizer.state.pop(p, {}) for name, p in policy.parameters.items()}
        module, _ = self.ranks.accelerator.prepare(module, policy.optimizer)
        policy.parameters = dict(policy.shared.net.named_parameters())
        for name, parameter in policy.parameters.items():
            for key, value in kept[name].items():
                cut = value.shape == parameter.shape
                place = parameter.device_mesh, parameter.placements
                policy.optimizer.state[parameter][key] = distribute_tensor(value, *place) if cut else value
        with torch.no_grad():
            module(lambda: None)  # FSDP makes the module that is called first the root
        return module

    def sampling(self, work: Callable[[], Any]) -> Any:
        """Return the result of `work`, with whole weights; every rank must call this.

        Ranks sample different numbers of tokens. The weights are gathered before, because no rank may wait for another
        inside.
        """
        cut = [part for part in self.module.modules() if isinstance(part, FSDPModule)]
        for part in cut:
            part.unshard()
            part.set_reshard_after_forward(False, recurse=False)
        try:
            return self.module(work)
        finally:
            for part in cut:
                part.set_reshard_after_forward(True, recurse=False)
                part.reshard()

    def before_saving(self) -> None:
        """Ask the other ranks for their part of a checkpoint (on rank 0)."""
        self.ranks.require_team(self.policy.name)
        self.ranks.tell("save", list(self.ranks.team.policies.values()).index(self.policy))


class Within(torch.nn.Module):
    """A module whose forward pass is any computation with `net`.

    DDP and FSDP only see what goes through a module's own `forward`. Log-probabilities come from parts of `net` and
    from code outside it.
    """

    def __init__(self, net):
        super().__init__()
        self.net = net
        self._no_split_modules = net._no_split_modules  # the layers that FSDP gathers one after the other

    def forward(self, work: Callable[[], Any]) -> Any:
        return work()
