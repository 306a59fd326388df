"""Decoders for Unsloth's models, and a trial that shows which of them is exact.

Leaves out: the engine that draws tokens from their logits (`model`, `mas_lab.backends.torch.fast.engine`).
"""

import numpy as np
import torch

from mas_lab.backends.torch.fast.decoders import RowDecoder


class Kept:
    """Tensors that a decoder keeps between its steps; their first axis is the batch."""

    def __init__(self):
        self.tensors: list[torch.Tensor] = []

    def batch_select_indices(self, rows: torch.Tensor) -> None:
        self.tensors = [tensor.index_select(0, rows) for tensor in self.tensors]


class EmbeddingDecoder(RowDecoder):
    """Decoder for Unsloth's GPU forward pass, which takes and returns keys and values as plain pairs per layer.

    Given a single token id, the model would keep buffers of its own. These cannot follow a batch that branches and
    shrinks. Given an embedding, it takes the path on which it trains.
    """

    def new_cache(self) -> Kept:
        return Kept()

    def _forward(self, ids_ML: np.ndarray, at_ML: np.ndarray) -> torch.Tensor:
        ids, mask, at = self._put(ids_ML, self.mask_ML, at_ML)
        kept = self.cache.tensors
        answer = self.net(
            inputs_embeds=self.net.get_input_embeddings()(ids), attention_mask=mask, position_ids=at,
            past_key_values=list(zip(kept[::2], kept[1::2], strict=True)) or None, use_cache=True, logits_to_keep=1,
        )  # fmt: skip
        self.cache.tensors = [tensor for pair in answer.past_key_values for tensor in pair[:2]]
        return answer.logits[:, -1]


class WholeDecoder(RowDecoder):
    """Decoder that reads every row anew for each token: slow, and correct if the forward pass is."""

    def new_cache(self) -> Kept:
        return Kept()

    def _forward(self, ids_ML: np.ndarray, at_ML: np.ndarray) -> torch.Tensor:
        ids, mask, at = self._put(ids_ML, self.mask_ML, at_ML)
        if self.cache.tensors:
            ids, at = (torch.cat(pair, 1) for pair in zip(self.cache.tensors, (ids, at), strict=True))
        self.cache.tensors = [ids, at]
        return self.net(input_ids=ids, attention_mask=mask, position_ids=at, use_cache=False, logits_to_keep=1).logits[
            :, -1
        ]


@torch.inference_mode()
def decodes_exactly(model, decoder: type[RowDecoder]) -> bool:
    """Return True if the decoder gives the logits of plain forward passes.

    The trial has prompts of different lengths, a branch and the end of a row.
    """
    prompts, steps = ([1, 2, 3], [4, 5]), (((0, 0, 1), (3, 1, 2)), ((0, 2), (2, 4)), ((0, 1), (1, 1)))
    tolerance = 1e-4 if model.dtype == torch.float32 else 0.1
    rows = [list(prompt) for prompt in prompts]
    with model.computing():
        trial = decoder(model.net, prompts, ("", ""), None, 8)
        try:
            logits = trial.prefill()
            for parents, ids in ((None, None), *steps):
                if parents is not None:
                    logits = trial.extend(np.array(parents), np.array(ids))
                    rows = [rows[parent] + [token] for parent, token in zip(parents, ids, strict=True)]
                for row, found in zip(rows, logits, strict=True):
                    whole = model.net(input_ids=torch.tensor([row], device=model.device), use_cache=False).logits[0, -1]
                    if not (found - whole).abs().max() <= tolerance * whole.abs().max().clamp(min=1):
                        return False
        except (TypeError, AttributeError, IndexError, KeyError, NotImplementedError, RuntimeError, ValueError):
            return False
    return True
