"""Our losses in the form of a Tinker server, with row weights folded into the factor of a token's loss.

A server sums over tokens. weight * loss(advantage) equals loss(weight * advantage), because both of these losses are
homogeneous in the advantage. Leaves out: sending them (`policy`).
"""

from collections.abc import Sequence
from typing import Any

from mas_lab.losses import Loss, clipped, reinforce
from mas_lab.policy import PolicyError, Sample

WHY_NOT = {
    "kl": "a server has no frozen reference beside the weights that learn",
    "entropy": "a server gives log-probabilities of the sampled tokens, not the distributions that they came from",
    "tis": "a server samples and trains with one set of weights, and what differs there it does not tell apart",
    "dual": "the server's ppo has no dual clip",
}
"""Features of a loss that a server lacks, with the reason."""


def server_loss(loss: Loss, who: str) -> tuple[str, dict[str, float]]:
    """Return (loss_fn, loss_fn_config) of a server; raise PolicyError with a remedy if the server lacks the loss."""
    for name, why in WHY_NOT.items():
        if getattr(loss, name, None):
            raise PolicyError(f"{who}: {name}={getattr(loss, name)} is not possible: {why}; leave it out")
    if type(loss) is reinforce:
        return "cross_entropy", {}
    if type(loss) is not clipped:
        own = f"{type(loss).__name__} is a loss of your own, and a server has only clipped and reinforce"
        raise PolicyError(f"{who}: {own}; take one of them, or another back end")
    if loss.is_sequence_level:
        raise PolicyError(f"{who}: ratio={loss.ratio!r} is not possible: the server's ppo has one per token")
    high = loss.low if loss.high is None else loss.high
    return "ppo", {"clip_low_threshold": 1 - loss.low, "clip_high_threshold": 1 + high}


def data(samples: Sequence[Sample], name: str, factor: float) -> list[Any]:
    """Return rows as the SDK's `Datum`s: token ids, and the inputs of the loss `name` at each position.

    The ids are the prompt and the completion without its last token. The inputs are 0 over the prompt. `factor`
    multiplies every row's weight; 0 makes it a plain forward pass.
    """
    from tinker import types

    rows = []
    for one in samples:
        completion, before = list(map(int, one.completion_ids)), [0.0] * (len(one.prompt_ids) - 1)
        known = {"target_tokens": [*map(int, before), *completion]}
        counts = [*before, *(one.advantages_T * one.weight * factor).tolist()]
        if name == "cross_entropy":
            known["weights"] = counts
        else:
            known |= {"logprobs": [*before, *map(float, one.logprobs)], "advantages": counts}
        ids = types.ModelInput.from_ints([*map(int, one.prompt_ids), *completion][:-1])
        rows.append(types.Datum(model_input=ids, loss_fn_inputs=known))
    return rows
