"""Several LoRA adapters in one batch: each adapter's rows are a slice, and the base runs once over all of them.

PEFT's `adapter_names` does the same by lists of row indices, built anew in every layer. Leaves out: training, where
one adapter at a time is active, and every adapter variant but plain LoRA, which is the only one made here.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from peft.tuners.lora import LoraLayer


class Slices:
    """Which rows of the coming forward pass belong to which adapter: rows are grouped, in any order of adapters."""

    def __init__(self, axis: int):
        self.axis = axis
        self._slices: list[tuple[str, slice]] = []

    def assign(self, adapters: Sequence[str], counts: Sequence[int]) -> None:
        """The next `counts[i]` rows belong to `adapters[i]`; neighbours of one adapter become one slice."""
        runs: list[list] = []
        for adapter, count in zip(adapters, counts, strict=True):
            if runs and runs[-1][0] == adapter:
                runs[-1][1] += count
            else:
                runs.append([adapter, count])
        self._slices, start = [], 0
        for adapter, count in runs:
            self._slices.append((adapter, slice(start, start + count)))
            start += count

    def forward(self, layer: LoraLayer, x: torch.Tensor) -> torch.Tensor:
        result = layer.base_layer(x)
        for adapter, rows in self._slices:
            down, up = layer.lora_A[adapter], layer.lora_B[adapter]
            index = (slice(None), rows) if self.axis == 1 else rows
            part = up(down(x[index].to(down.weight.dtype))) * layer.scaling[adapter]
            result[index] += part.to(result.dtype)
        return result


@contextmanager
def mixing(net: torch.nn.Module, slices: Slices) -> Iterator[None]:
    """Inside, each LoRA layer of `net` applies to each slice the adapter it belongs to."""
    layers = [module for module in net.modules() if isinstance(module, LoraLayer)]
    for layer in layers:
        layer.forward = partial(slices.forward, layer)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward
