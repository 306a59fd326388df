"""The lemma of Dr. MAS on gradient norms, measured: what one study needed, and the package does not.

`baseline_ratio` compares theory and measurement on one batch, `PairedWatch` measures both baselines at every step.
`gradient_spikes.py` and `foretold/run.py` use them. Leaves out: pictures.
"""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.cells.update import PolicyBatch, learners, policy_batches
from mas_lab.explain.diagnostics import norms_with, restored_gradients
from mas_lab.explain.moments import both_baselines
from mas_lab.explain.spike_rule import SpikeWatch, spike_steps
from mas_lab.locks import locked
from mas_lab.losses import Loss, clipped, reinforce
from mas_lab.policy import Policy, samples_of
from mas_lab.table import require
from mas_lab.team import Team

COLUMNS = ["call", "policy", "agent", "rows", "F", "V", "norm_global", "norm_agent"]


def baseline_ratio(
    team: Team,
    turns: pd.DataFrame,
    loss: Loss = clipped(0.2),  # noqa: B008 - a frozen value
    aggregate: str = "token",
    rows: int = 64,
    seed: int = 0,
) -> pd.DataFrame:
    """Return for each agent the ratio of squared gradient norms, global over agent-wise baseline.

    The ratio is measured on one batch and predicted from moments. The measurement costs two `update`s. |z|^2 costs one
    pass per row, so it is taken from a sample of rows. No step is made.

    Args:
        team: The team whose gradients are measured.
        turns: Table with the columns `task`, `episode`, `agent` and `credit`.
        loss: Loss of the cell `update`. Default: `clipped(0.2)`.
        aggregate: How `update` averages the token losses. Default: "token".
        rows: The most rows per agent for |z|^2. Default: 64.
        seed: Seed for the draw of these rows.

    Returns:
        A table with a row per policy and agent. `n` and `sampled` count all rows of the agent and those drawn.
        `norm_global` and `norm_agent` are the norms of the agent's whole batch gradient G. `z_square`, `F`, `V`,
        `delta_global` and `delta_agent` are the terms of the prediction.
        `measured` = |G_global|^2 / |G_agent|^2.
        `predicted` = (E|z|^2 F + delta_global) / (E|z|^2 V + delta_agent).
        F and V are over all rows of the agent (see `moments`). E|z|^2 and its covariances with the squared advantages,
        the deltas, are over the sampled rows.

    Raises:
        TableError: A column is missing or holds no number.
    """
    require(turns, ["task", "episode", "agent", "credit"], "baseline_ratio")
    found = []
    with locked(learners(team)):
        for batch in chain(*policy_batches(team, turns, loss, aggregate)):
            advantages = both_baselines(batch.table)
            measured = {name: norms_with(batch, values)[1] for name, values in advantages.items()}
            for agent, own in batch.rows.groupby("agent", sort=False):
                chosen = own.index if len(own) <= rows else own.sample(rows, random_state=seed).index.sort_values()
                squared = pd.DataFrame({name: values.loc[own.index] ** 2 for name, values in advantages.items()})
                moments = _prediction(pd.Series(squared_scores(batch, chosen), index=chosen), squared)
                norms = {f"norm_{name}": norm[agent] for name, norm in measured.items()}
                ratio = (norms["norm_global"] / norms["norm_agent"]) ** 2 if norms["norm_agent"] else np.nan
                found.append({"policy": batch.name, "agent": agent, "n": len(own), "sampled": len(chosen), **moments,
                              **norms, "measured": ratio})  # fmt: skip
    return pd.DataFrame(found)


def squared_scores(batch: PolicyBatch, rows: pd.Index) -> np.ndarray:
    """Return |z|^2 of each row, where z, its weighted score, is the gradient of -log pi at advantage 1."""
    squares = [square for _, square in row_scores(batch.policy, batch.rows.loc[rows])]
    return np.array(squares) * batch.rows.loc[rows, "weight"].to_numpy() ** 2


def _prediction(square_R: pd.Series, squared: pd.DataFrame) -> dict[str, Any]:
    """Return the terms of the lemma from |z|^2 of some rows and both squared advantages of all rows."""
    mean = square_R.mean()
    terms: dict[str, Any] = {"z_square": mean}
    for name, letter in (("global", "F"), ("agent", "V")):
        terms[letter] = squared[name].mean()
        drawn_R = squared.loc[square_R.index, name]
        terms[f"delta_{name}"] = ((square_R - mean) * (drawn_R - drawn_R.mean())).mean()
    below = mean * terms["V"] + terms["delta_agent"]
    above = mean * terms["F"] + terms["delta_global"]
    return terms | {"predicted": above / below if below > 0 else np.nan}


def row_scores(policy: Policy, rows: pd.DataFrame) -> Iterator[tuple[Any, float]]:
    """Yield the label and |z|^2 of each row. Its score z is the gradient of its summed log-probability.

    Until the next row, the policy's gradient is -z. |z|^2 says how much the row moves the weights. It is exact, over
    all parameters that the policy trains, and costs a forward and a backward pass.
    """
    with restored_gradients(policy):
        for label, sample in zip(rows.index, samples_of(rows, advantage=1.0, weight=1.0), strict=True):
            policy.forward_backward([sample], reinforce())
            yield label, policy.gradient_norm() ** 2
            policy.set_gradients(None)


class PairedWatch(SpikeWatch):
    """A `SpikeWatch` that also measures, at every step, each agent's gradient norm under both baselines.

    The step itself follows the recipe. The watch costs about two more passes per step.

    Args:
        *args: Arguments of `SpikeWatch`.
        **kwargs: Arguments of `SpikeWatch`.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._pairs: list[dict[str, Any]] = []

    @property
    def pairs(self) -> pd.DataFrame:
        """Return a row per optimizer step and agent.

        Columns: `call`, the number of watched steps of its policy before this one; `policy`; `agent`; `rows`, the
        number of the agent's rows; their `F` and `V` (see `moments`); `norm_global` and `norm_agent`, the norm before
        clipping under either baseline.
        """
        return pd.DataFrame(self._pairs, columns=COLUMNS)

    def dated(self, stats: pd.DataFrame) -> pd.DataFrame:
        """Return `pairs` with the `step` and `optimizer_step` in which each row was measured.

        `call` is not the step if a policy had no rows in some step because nobody called it.

        Args:
            stats: Statistics of the same run, such as `run.stats`.

        Returns:
            A table with `step`, `optimizer_step` and the columns of `pairs`.

        Raises:
            ValueError: The statistics belong to another run.
        """
        dated = pd.DataFrame(spike_steps(stats, self._pairs))
        return dated.reindex(columns=["step", "optimizer_step", *COLUMNS])

    def __call__(self, batch: PolicyBatch) -> None:
        """Measure the norms of both baselines, between backward and clipping, see `update`.

        Args:
            batch: The batch of the step.
        """
        policy = batch.name
        call = self._calls.get(policy, 0)
        super().__call__(batch)
        advantages = both_baselines(batch.table)
        found = {name: norms_with(batch, values)[1] for name, values in advantages.items()}
        for agent, own in batch.rows.groupby("agent", sort=False):
            squared = {name: float((values[own.index] ** 2).mean()) for name, values in advantages.items()}
            self._pairs.append({
                "call": call, "policy": policy, "agent": agent, "rows": len(own), "F": squared["global"],
                "V": squared["agent"], "norm_global": found["global"][agent], "norm_agent": found["agent"][agent],
            })  # fmt: skip

    def state(self) -> dict[str, Any]:
        return super().state() | {"pairs": self._pairs}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self._pairs = [dict(pair) for pair in state["pairs"]]
