"""A watch that sets both baselines beside each other at every optimizer step, on the batch of that very step.

Leaves out: what the ratio of the norms should be by theory (`diagnostics`), and what is drawn (`widgets`).
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from mas_lab.cells.update import PolicyStep
from mas_lab.explain.diagnostics import norms_with
from mas_lab.explain.moments import both_baselines
from mas_lab.explain.spike_rule import SpikeWatch, spike_steps

COLUMNS = ["call", "policy", "agent", "rows", "F", "V", "norm_global", "norm_agent"]


class PairedWatch(SpikeWatch):
    """A `SpikeWatch` that also measures, at every step, each agent's gradient norm under both baselines.

    `pairs` holds a row per optimizer step and agent: `call`, the steps of its policy that were watched before; `rows`
    of the agent; their `F` and `V` (see `moments`); `norm_global` and `norm_agent`, the norm before clipping under
    either. The step itself is taken as the recipe says. Costs about two more passes a step.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._pairs: list[dict[str, Any]] = []

    @property
    def pairs(self) -> pd.DataFrame:
        return pd.DataFrame(self._pairs, columns=COLUMNS)

    def dated(self, stats: pd.DataFrame) -> pd.DataFrame:
        """`pairs` with the `step` and `optimizer_step` in which each was measured, by the statistics of the same run.

        `call` is not the step where a policy had no rows in some step: nobody called it then. ValueError where the
        statistics are of another run.
        """
        dated = pd.DataFrame(spike_steps(stats, self._pairs))
        return dated.reindex(columns=["step", "optimizer_step", *COLUMNS])

    def __call__(self, policy: str, norms: Mapping[str, float], attribute: PolicyStep) -> None:
        """Between backward and clipping; see `update`."""
        call = self._calls.get(policy, 0)
        super().__call__(policy, norms, attribute)
        advantages = both_baselines(attribute.table)
        found = {name: norms_with(attribute, values)[1] for name, values in advantages.items()}
        for agent, own in attribute.rows.groupby("agent", sort=False):
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
