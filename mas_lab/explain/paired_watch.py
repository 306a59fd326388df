"""Watch both baselines side by side at every optimizer step, on the batch of that step.

Leaves out: the ratio of norms that theory predicts (`diagnostics`), and pictures (`widgets`).
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from mas_lab.cells.update import PolicyBatch
from mas_lab.explain.diagnostics import norms_with
from mas_lab.explain.moments import both_baselines
from mas_lab.explain.spike_rule import SpikeWatch, spike_steps

COLUMNS = ["call", "policy", "agent", "rows", "F", "V", "norm_global", "norm_agent"]


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

    def __call__(self, policy: str, norms: Mapping[str, float], batch: PolicyBatch) -> None:
        """Measure the norms of both baselines, between backward and clipping, see `update`.

        Args:
            policy: Name of the policy.
            norms: Gradient norm of each agent, before clipping.
            batch: The batch of the step.
        """
        call = self._calls.get(policy, 0)
        super().__call__(policy, norms, batch)
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
