"""The sampler for Unsloth's forward pass on a GPU, and a trial that shows whether it is exact.

Leaves out: the draw of tokens (`mas_lab.backends.torch.padded`).
"""

from collections.abc import Sequence
from typing import Any

import torch

from mas_lab.backends.torch.padded import PaddedEngine
from mas_lab.policy import Completion, PolicyError, PolicyRequest


class UnslothEngine(PaddedEngine):
    """An engine that feeds embeddings, and keeps keys and values as plain pairs per layer.

    Given token ids and a cache, the model would take a path with buffers of its own. Given embeddings, it takes the
    path on which it trains.
    """

    _is_tried = False

    def complete(self, requests: Sequence[PolicyRequest]) -> list[Completion]:
        """Return a completion per (policy, request), in order; raise PolicyError if a trial of the sampler fails."""
        if not self._is_tried and not decodes_exactly(self):
            raise PolicyError(
                f"{self.model.source.name}: Unsloth {self.model.fast.__version__} gives other logits when it decodes "
                'than when it reads whole rows; use backend="torch"'
            )
        self._is_tried = True
        return super().complete(requests)

    def inputs(self, ids_RL: torch.Tensor, cache: Any) -> dict[str, Any]:
        """Return the newest tokens, embedded, and the cache of those before as arguments of the model."""
        embedded_RLh = self.model.net.get_input_embeddings()(ids_RL)
        pairs = None if cache is None else [pair[:2] for pair in cache]
        return {"inputs_embeds": embedded_RLh, "past_key_values": pairs, "use_cache": True, "logits_to_keep": 1}


@torch.inference_mode()
def decodes_exactly(engine: PaddedEngine) -> bool:
    """Return True if a step after a cached prompt has the logits of whole rows; one of two rows is padded."""
    model = engine.model
    ids_RL = torch.tensor([[1, 2, 3, 4], [0, 5, 6, 7]], device=model.device)
    mask_RL = (ids_RL > 0).long()
    at_RL = (mask_RL.cumsum(1) - 1).clamp(min=0)
    tolerance = 1e-4 if model.dtype == torch.float32 else 0.1
    with model.computing():
        try:
            prompt = model.net(
                attention_mask=mask_RL[:, :3], position_ids=at_RL[:, :3], **engine.inputs(ids_RL[:, :3], None)
            )
            step = model.net(
                attention_mask=mask_RL, position_ids=at_RL[:, 3:],
                **engine.inputs(ids_RL[:, 3:], prompt.past_key_values),
            )  # fmt: skip
            prompt_RV, step_RV = prompt.logits[:, -1], step.logits[:, -1]
        except (TypeError, AttributeError, IndexError, KeyError, NotImplementedError, RuntimeError, ValueError):
            return False
        for length, found_RV in ((3, prompt_RV), (4, step_RV)):
            for row_L, found_V in zip(ids_RL[:, :length], found_RV, strict=True):
                expected_V = model.net(input_ids=row_L[row_L > 0][None], use_cache=False).logits[0, -1]
                if not (found_V - expected_V).abs().max() <= tolerance * expected_V.abs().max().clamp(min=1):
                    return False
    return True
