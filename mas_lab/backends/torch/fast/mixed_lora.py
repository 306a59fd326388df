"""Apply several LoRA adapters in one batch: each adapter has a slice of the rows, and the base runs once over all.

PEFT's `adapter_names` does the same with lists of row indices, which it builds again in every layer. Leaves out:
training, which has one active adapter at a time, and adapter variants other than plain LoRA, which we never create.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from operator import itemgetter

import torch
from peft.tuners.lora import LoraLayer


class Slices:
    """The flat tokens of the next forward pass by adapter. Tokens of one are adjacent; adapters have any order."""

    def __init__(self):
        self._slices: list[tuple[str, slice]] = []

    def assign(self, adapters: Sequence[str], counts: Sequence[int]) -> None:
        """Assign the next `counts[i]` rows to `adapters[i]`; neighbours with the same adapter become one slice."""
        self._slices, start = [], 0
        for adapter, run in groupby(zip(adapters, counts, strict=True), key=itemgetter(0)):
            end = start + sum(count for _, count in run)
            self._slices.append((adapter, slice(start, end)))
            start = end

    def forward(self, layer: LoraLayer, x: torch.Tensor) -> torch.Tensor:
        result = layer.base_layer(x)
        for adapter, rows in self._slices:
            down, up = layer.lora_A[adapter], layer.lora_B[adapter]
            part = up(down(x[..., rows, :])) * layer.scaling[adapter]  # a layer may get (1, M, h) or (M, h)
            result[..., rows, :] += part.to(result.dtype)
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
