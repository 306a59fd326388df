"""Compute how certain a team was of each token: the entropy of the distribution that it was drawn from.

Leaves out: mean entropies (`update` reports them), and pictures (`widgets`).
"""

import warnings

import numpy as np
import pandas as pd

from mas_lab.locks import locked
from mas_lab.policy import SAMPLED, Policy, PolicyError, samples_of
from mas_lab.table import TableError, require
from mas_lab.team import Team

READ = ["policy", *SAMPLED]
TOLERANCE = 1e-2
"""A larger difference of log-probabilities means other weights, or other arithmetic (a low precision)."""


def entropies(team: Team, turns: pd.DataFrame) -> pd.DataFrame:
    """Return the table with the column `entropies`, a list of nats per token for each row.

    H_t = -sum_v p_v log p_v of the distribution that token t was drawn from: at the row's temperature, under the
    *present* weights of the policy that the row names. It is 0 for tokens that were drawn greedily. It costs one
    forward pass, in batches.

    Before `update`, or with the step of a run and the team that played it, these weights are the ones that sampled.
    Under later weights the numbers differ. A warning then names the policy and the largest difference between a token's
    log-probability when it was sampled and now, if it is above 0.01.

    Args:
        team: The team that sampled the rows.
        turns: Table with the columns `policy`, `prompt_ids`, `completion_ids`, `logprobs` and `temperature`.

    Returns:
        The table with `entropies`. Rows without tokens (the turns of a person) have an empty list.

    Raises:
        TableError: A column is missing, or the policy of a row is not one of the team's.
    """
    require(turns, ["completion_ids"], "entropies")
    require(turns[turns["completion_ids"].map(len) > 0], READ, "entropies")
    rows = turns[READ].reset_index(drop=True)
    found = rows["completion_ids"].map(lambda ids: [0.0] * len(ids))
    rows = rows[found.map(len) > 0]
    unknown = sorted(set(rows["policy"]) - set(team.policies))
    if unknown:
        raise TableError(
            f"entropies: policy {unknown[0]!r} is none of the team's ({', '.join(team.policies)}); pass the team that "
            "sampled these rows"
        )
    with locked(team.policies.values()):
        for name, own in rows[rows["temperature"] > 0].groupby("policy", sort=False, observed=True):
            found[own.index] = _of_policy(team.policies[name], str(name), own)
    return turns.assign(entropies=found.to_numpy())


def _of_policy(policy: Policy, name: str, rows: pd.DataFrame) -> list[list[float]]:
    if not policy.capabilities.entropies:
        raise PolicyError(f"policy {policy.name!r}: its back end does not give entropies")
    tokens = policy.forward(samples_of(rows, advantage=0.0, weight=0.0))
    logprobs_N, entropy_N = (values.double().cpu().numpy() for values in (tokens.logprobs_N, tokens.entropy_N))
    if (off := np.abs(logprobs_N - np.concatenate(rows["logprobs"].tolist())).max()) > TOLERANCE:
        warnings.warn(
            f"entropies: policy {name!r} gives a token a log-probability that differs by {off:.3g} from that at "
            "which it was sampled: other weights sampled it, or in another precision, and had other entropies",
            stacklevel=3,
        )
    ends = np.cumsum(rows["completion_ids"].map(len))[:-1]
    return [part_T.tolist() for part_T in np.split(entropy_N, ends)]
