"""How sure a team was of each token: the entropy of the distribution that it was drawn from.

Leaves out: how sure it was in the mean (`update` reports that), and pictures (`widgets`).
"""

import warnings

import numpy as np
import pandas as pd

from mas_lab.locks import locked
from mas_lab.policy import Policy, Sample
from mas_lab.table import TableError, require
from mas_lab.team import Team

READ = ["policy", "prompt_ids", "completion_ids", "logprobs", "temperature"]
ALIKE = 1e-2
"""Log-probabilities that differ by more were sampled from other weights, or by other arithmetic (a low precision)."""


def entropies(team: Team, turns: pd.DataFrame) -> pd.DataFrame:
    """The table with the column `entropies`: a list per row, nats per token of its completion.

    H_t = -sum_v p_v log p_v, of the distribution that token t was drawn from: at the row's temperature, under the
    *present* weights of the policy that the row names; 0 where it was drawn greedily. One forward pass, in batches.
    Before `update`, or with a run's step and the team that played it, that is what sampled; under later weights it is
    another number. A warning then names the policy, and by how much the log-probability of a token, as it was sampled,
    differs from the present one at most, where that is above 0.01.
    Rows without tokens (a person's turns) have an empty list. Raises TableError where a row's policy is not the team's.
    """
    require(turns, ["completion_ids"], "entropies")
    require(turns[turns["completion_ids"].map(len) > 0], READ, "entropies")
    found = pd.Series([[] for _ in range(len(turns))], index=range(len(turns)), dtype=object)
    rows = turns[READ].reset_index(drop=True)
    rows = rows[rows["completion_ids"].map(len) > 0]
    unknown = sorted(set(rows["policy"]) - set(team.policies))
    if unknown:
        raise TableError(
            f"entropies: policy {unknown[0]!r} is none of the team's ({', '.join(team.policies)}); give the team that "
            "sampled these rows"
        )
    with locked(team.policies.values()):
        for name, own in rows.groupby("policy", sort=False, observed=True):
            found.loc[own.index] = _of_policy(team.policies[name], str(name), own)
    return turns.assign(entropies=found.to_numpy())


def _of_policy(policy: Policy, name: str, rows: pd.DataFrame) -> pd.Series:
    lengths = rows["completion_ids"].map(len)
    greedy = rows["temperature"] <= 0
    lists = {row: [0.0] * length for row, length in lengths[greedy].items()}
    drawn = rows[~greedy]
    if len(drawn):
        samples = [Sample(*row, 0.0, 0.0) for row in drawn[READ[1:]].itertuples(index=False, name=None)]
        tokens = policy.forward(samples)
        logprobs_N, entropy_N = (values.double().cpu().numpy() for values in (tokens.logprobs_N, tokens.entropy_N))
        sampled_N = np.concatenate([np.asarray(one, float) for one in drawn["logprobs"]])
        if (off := np.abs(logprobs_N - sampled_N).max()) > ALIKE:
            warnings.warn(
                f"entropies: policy {name!r} gives a token a log-probability that differs by {off:.3g} from that at "
                "which it was sampled: other weights sampled it, or in another precision, and had other entropies",
                stacklevel=3,
            )
        parts = np.split(entropy_N, np.cumsum(lengths[~greedy])[:-1])
        lists |= {row: part.tolist() for row, part in zip(drawn.index, parts, strict=True)}
    return pd.Series(lists, dtype=object).reindex(rows.index)
