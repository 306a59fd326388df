"""The plain forward pass: log-probabilities of sampled tokens, one padded row per sample.

`fast.packing` computes the same numbers from trees of prompts and completions. Leaves out: what is done with the
log-probabilities (`policy`).

Shapes: B samples; L tokens of the longest, padded on the right; N sampled tokens; V vocabulary.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from mas_lab.policy import PolicyError, Sample


class PaddedBatch:
    """Hold samples as tensors.

    `token_N` is the place of each token among the tokens of all samples, `row_N` the row of its sample in this batch.
    """

    def __init__(self, samples: Sequence[Sample], first_token: int, device: torch.device):
        rows = [[*sample.prompt_ids, *sample.completion_ids] for sample in samples]
        longest = max(map(len, rows))
        self.ids_BL = torch.tensor([row + [0] * (longest - len(row)) for row in rows], device=device)
        self.mask_BL = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows], device=device)
        lengths = [len(sample.completion_ids) for sample in samples]
        self.token_N = first_token + np.arange(sum(lengths))
        self.row_N = torch.repeat_interleave(torch.arange(len(samples)), torch.tensor(lengths)).to(device)
        # Position t predicts the token at t + 1.
        at = [len(s.prompt_ids) - 1 + t for s in samples for t in range(len(s.completion_ids))]
        self.at_N = torch.tensor(at, device=device)
        self.temperature_B = torch.tensor([sample.temperature for sample in samples], device=device)

    def token_logprobs(self, net, entropy_grad: bool) -> tuple[torch.Tensor, torch.Tensor]:
        """Return log-probability and entropy (N,) of each token, in float32, at the temperature it was sampled at."""
        logits_BLV = net(input_ids=self.ids_BL, attention_mask=self.mask_BL, use_cache=False).logits
        logits_NV = logits_BLV[self.row_N, self.at_N].float() / self.temperature_B[self.row_N, None]
        logprobs_NV = logits_NV.log_softmax(-1)
        known_NV = logprobs_NV if entropy_grad else logprobs_NV.detach()
        entropy_N = -(known_NV.exp() * known_NV).sum(-1)
        return logprobs_NV.gather(1, self.ids_BL[self.row_N, self.at_N + 1][:, None])[:, 0], entropy_N


def padded_batches(samples: Sequence[Sample], budget: int, device: torch.device) -> Iterator[PaddedBatch]:
    """Yield the samples in their order, in batches of at most `budget` tokens, padding counted."""
    batch: list[Sample] = []
    longest = first_token = 0
    for i, sample in enumerate(samples):
        if sample.temperature <= 0 or not len(sample.prompt_ids) or not len(sample.completion_ids):
            raise PolicyError(f"sample {i} has no tokens, or was drawn at temperature 0: there is nothing to train on")
        longest = max(longest, len(sample.prompt_ids) + len(sample.completion_ids))
        if batch and longest * (len(batch) + 1) > budget:
            yield PaddedBatch(batch, first_token, device)
            first_token += sum(len(one.completion_ids) for one in batch)
            batch, longest = [], len(sample.prompt_ids) + len(sample.completion_ids)
        batch.append(sample)
    if batch:
        yield PaddedBatch(batch, first_token, device)
