"""What `update` reports of an agent's rows in one optimizer step: the columns that need no gradient.

Leaves out: gradient norms and what became of the step (`batch`).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.cells.advantages import mean_squares, per_token
from mas_lab.cells.contract import one_per_token
from mas_lab.cells.losses import Loss, k3
from mas_lab.policy import Sample, Tokens


def described(rows: pd.DataFrame) -> dict[str, Any]:
    """What an agent's rows hold, whether or not they reached the model.

    `advantage_rms`: the root of the mean over rows of the squared advantage; of a list, of its tokens' mean square.
    """
    tokens = rows["completion_ids"].map(len).sum()
    credit = rows["credit"] if "credit" in rows.columns else pd.Series(np.nan, index=rows.index)
    finish = rows["finish"] if "finish" in rows.columns else pd.Series("", index=rows.index)
    return {
        "turns": len(rows),
        "tokens": int(tokens),
        "reward_mean": credit.mean(),
        "reward_std": credit.std(ddof=0),
        "advantage_rms": np.sqrt(mean_squares(rows["advantage"]).mean()),
        "entropy": -sum(map(sum, rows["logprobs"])) / tokens,
        "truncated": (finish == "length").mean(),
    }


UNSEEN = {"kl": np.nan, "clip_fraction": 0.0, "max_ratio": np.nan, "mismatch": np.nan}
"""`compared` of an agent none of whose rows reached the model."""


def compared(
    loss: Loss, tokens: Tokens, samples: Sequence[Sample], sampled: pd.Series, of_tokens: int
) -> dict[str, float]:
    """What the weights now say of an agent's tokens: `tokens` of its `samples`.

    `sampled`: per sample, the log-probabilities that were recorded, of which the samples' own may differ (`tis`).
    `of_tokens`: how many tokens the agent said, those that did not reach the model included.
    """
    new_N, lengths = tokens.logprobs_N, [len(sample.completion_ids) for sample in samples]
    old_N = new_N.new_tensor([logprob for sample in samples for logprob in sample.logprobs])
    sampled_N = new_N.new_tensor([logprob for row in sampled for logprob in row])
    advantages = [per_token(sample.advantage, length) for sample, length in zip(samples, lengths, strict=True)]
    advantages_N = new_N.new_tensor(np.concatenate(advantages))
    row_N = new_N.new_tensor(np.repeat(np.arange(len(samples)), lengths)).long()
    clips_N = one_per_token(loss.clips(new_N, old_N, advantages_N, row_N), new_N, f"clips of loss {loss!r}")
    ratios_N = one_per_token(loss.ratios(new_N, old_N, row_N), new_N, f"ratios of loss {loss!r}")
    return {
        "kl": k3(new_N, tokens.reference_N).mean().item() if tokens.reference_N is not None else np.nan,
        "clip_fraction": clips_N.sum().item() / of_tokens,
        "max_ratio": ratios_N.max().item(),
        "mismatch": ((new_N - sampled_N).exp() - 1).abs().max().item(),
    }
