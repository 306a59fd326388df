"""Apply several LoRA adapters in one batch: each adapter has a slice of the rows, and the base runs once over all.

PEFT's `adapter_names` does the same with lists of row indices, which it builds again in every layer. Leaves out:
training, which has one active adapter at a time, and adapter variants other than plain LoRA, which we never create.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch
from peft.tuners.lora import LoraLayer


class Slices:
    """The flat tokens of the next forward pass by adapter. Tokens of one are adjacent; adapters have any order."""

    def __init__(self):
        self._slices: list[tuple[str, slice]] = []

    def assign(self, adapters: Sequence[str], counts: Sequence[int]) -> None:
        """Assign the next `counts[i]` rows to `adapters[i]`; neighbours with the same adapter become one slice."""
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
            part = up(down(x[:, rows].to(down.weight.dtype))) * layer.scaling[adapter]
            result[:, rows] += part.to(result.dtype)
        return result


@contextmanager
def mixing(net: torch.nn.Module, slices: Slices) -> Iterator[None]:
    """Make each LoRA layer of `net` apply the adapter of each slice to it, inside the `with` block."""
    layers = [module for module in net.modules() if isinstance(module, LoraLayer)]
    for layer in layers:
        layer.forward = partial(slices.forward, layer)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward
