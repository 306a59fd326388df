"""Draw gradient norms over optimizer steps as curves, and prepare them as the data of a page.

This module leaves out the rule (`spike_rule`) and the page (`spikes`).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mas_lab.widgets.figures import LAYOUT, NEUTRAL, colors
from mas_lab.widgets.text import escape_control_chars, for_plotly

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

WHOLE = NEUTRAL
"""Colour of a policy's own norm, beside the colours of its agents."""
PROXY = "proxy, not a share of the gradient: part of the summed |advantage| x weight x (1 - p)"


def norm_curves(scored: pd.DataFrame, agents: Sequence[str]) -> "Figure":
    """Draw gradient norms before clipping over optimizer steps, with spikes marked.

    There is a line per agent, and a line per policy with several agents. `scored`: `spike_scores(stats)`.
    """
    from mas_lab.widgets.picture import Figure

    figure, shades = Figure(), colors(agents)
    scored = without_repeats(scored.assign(place=places(scored)))
    for (policy, agent), own in scored.groupby(["policy", "agent"], sort=False):
        shade, name = shades.get(agent, WHOLE), for_plotly(named(policy, agent))
        line = {"color": shade, "width": 2 if agent else 3}
        norm = own["norm"].where(own["norm"] > 0)
        figure.add_scatter(x=own["place"], y=norm, name=name, mode="lines", line=line, hovertemplate="%{y:.3g}")
        high = own[own["spike"]]
        marker = {"color": shade, "size": 12, "symbol": "diamond-open", "line": {"width": 2}}
        figure.add_scatter(x=high["place"], y=high["norm"], mode="markers", marker=marker, showlegend=False,
                           name=f"spike of {name}")  # fmt: skip
    figure.update_layout(**LAYOUT, xaxis_title="optimizer step", yaxis_title="gradient norm (log scale)")
    figure.update_yaxes(type="log")
    return figure


def places(stats: pd.DataFrame) -> pd.Series:
    """Return each row's place on the axis of the run's optimizer steps, from 0; a silent agent has no row there."""
    return stats.groupby([name for name in ("step", "optimizer_step") if name in stats.columns]).ngroup()


def without_repeats(scored: pd.DataFrame) -> pd.DataFrame:
    """Return `spike_scores` without the norm of a policy with one agent, because the agent's norm is the same."""
    agents = scored[scored["agent"] != ""].groupby("policy")["agent"].nunique()
    return scored[(scored["agent"] != "") | (scored["policy"].map(agents) != 1)]


def named(policy: str, agent: str) -> str:
    return f"{policy}, all" if not agent else agent if agent == policy else f"{policy}: {agent}"


def lines_of(scored: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the lines of the page's chart: the numbers and places of each norm, and which ones are `high`."""
    lines = []
    for key, own in scored.assign(place=places(scored)).groupby(["policy", "agent"], sort=False):
        policy, agent = map(escape_control_chars, key)
        lines.append({
            "policy": policy, "agent": agent, "name": named(policy, agent), "norms": short(own["norm"]),
            "usual": short(own["usual"], 3), "scores": short(own["score"], 3), "at": own["place"].tolist(),
            "when": own[["step", "optimizer_step"]].astype(int).to_numpy().tolist(),
            "high": np.flatnonzero(own["spike"]).tolist(),
        })  # fmt: skip
    return lines


def clipped_norms(stats: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the norms after clipping of the policies that it changed, with their `places` on the axis."""
    if "policy_norm_clipped" not in stats.columns:
        return []
    taken = stats.assign(place=places(stats))[~stats["skipped"].astype(bool)].drop_duplicates(["place", "policy"])
    return [
        {"policy": escape_control_chars(policy), "at": own["place"].tolist(),
         "norms": short(own["policy_norm_clipped"])}
        for policy, own in taken.groupby("policy", sort=False)
        if (own["policy_norm_clipped"] < own["policy_norm"] * (1 - 1e-6)).any()
    ]  # fmt: skip


def short(numbers: pd.Series, digits: int = 4) -> list[float | None]:
    """Return plain numbers with `digits` significant digits, and `None` for values that are not finite."""
    return [float(f"{number:.{digits}g}") if np.isfinite(number) else None for number in numbers.astype(float)]
