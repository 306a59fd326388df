"""Show what each agent earned in a step, with the advice about it, as HTML that is readable without styles.

This module leaves out the figures, and the page around them (`rewards`).
"""

from collections.abc import Mapping

import pandas as pd

from mas_lab.table import trained
from mas_lab.widgets.address import address
from mas_lab.widgets.document import escape, table_html

HEADS = ("agent", "earned", "spoke", "calls", "lone, flat", "signal", "F, own", "its own baseline")
CAPTION = "Who earned what, and would a baseline of its own pay?"
KEY = (
    "Earned: mean ± standard deviation of its credits. Spoke: in which share of the episodes; calls: turns an episode, "
    "and rows in all. Lone, flat: the share of its rows that are compared with nothing, and those compared with equals "
    "alone. Signal: how much of its squared advantages under the global baseline is information. F, own: the mean of "
    "its squared advantages under the global baseline, and under its own. Below, the advice of lab.advise."
)
TURN_KEY = (
    "Each turn taken for an agent of its own. gain: what a mean over (task, agent, turn) in the place of the global "
    "one would make of the squared signal-to-noise ratio of that turn's part of the gradient; policy_gain: of all that "
    "the same weights learn from, by which the advice in own goes."
)


def agents_html(
    table: pd.DataFrame, advice: pd.DataFrame, calls: Mapping[str, float], shades: Mapping[str, str],
    links: Mapping[str, str],
) -> str:  # fmt: skip
    """Return a table with a row per agent and, below each, the advice and the reason for it.

    `table`: from `reward_table`. `advice`: from `advise`. `calls`: turns per episode. `links`: HTML beside an agent.
    """
    rows, lines = {row["agent"]: row for row in table.to_dict("records")}, []
    for told in advice.to_dict("records"):
        agent, row, cells = told["agent"], rows.get(told["agent"]), ["–"] * 6
        if row:
            often = f"{calls[agent]:.2f} ({row['rows']})" if agent in calls else str(row["rows"])
            cells = [
                f"{row['mean']:.3f} ± {row['std']:.3f}", _percent(row["spoke"]), often,
                f"{_percent(row['lone'])}, {_percent(row['flat'])}", _bar(row["signal"], shades[agent]),
                f"{row['F']:.2f}, {1 - told['lone'] - told['flat']:.2f}",
            ]  # fmt: skip
        gain = told["policy_gain"]
        cells.append(f"<b>{escape(told['own'])}</b>" + (f" (× {gain:.2g})" if gain == gain else ""))
        box = f"display: inline-block; width: .8em; height: .8em; border-radius: 2px; background: {shades[agent]}"
        held = "".join(f'<td style="white-space: nowrap">{cell}</td>' for cell in cells)
        lines.append(
            f'<tr><th scope="row" style="white-space: nowrap"><span aria-hidden="true" style="{box}"></span> '
            f'{escape(agent)}</th>{held}</tr><tr><td colspan="{len(HEADS)}"><div style="position: sticky; left: 0; '
            'max-width: min(64rem, 80vw); text-align: left; white-space: normal">'
            f"{escape(told['why'])}{links.get(agent, '')}</div></td></tr>"
        )
    named = "".join(f'<th scope="col">{name}</th>' for name in HEADS)
    return (
        f'<div class="table" tabindex="0" role="group" aria-label="{CAPTION}" style="max-height: none"><table>'
        f"<caption>{CAPTION}</caption><thead><tr>{named}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
        f"<p><small>{KEY}</small></p>"
    )


def turns_html(table: pd.DataFrame, advice: pd.DataFrame) -> str:
    """Return a table per agent and turn; `table` is from `reward_table` and `advice` from `advise`, both by turn."""
    told = table[["agent", "turn", "rows", "spoke", "mean", "std"]].merge(
        advice[["agent", "turn", "signal", "gain", "policy_gain", "own"]], on=["agent", "turn"]
    )
    return table_html(told, "The same per agent and turn") + f"<p><small>{TURN_KEY}</small></p>"


def _bar(share: float, shade: str) -> str:
    """Return a share as a number, and as a bar in its agent's colour."""
    if share != share:
        return "unknown"
    fill = f"linear-gradient(90deg, {shade} {100 * share:.0f}%, #8883 0)"
    box = f"display: inline-block; width: 4em; height: .6em; background: {fill}"
    return f'<span aria-hidden="true" style="{box}"></span> {_percent(share)}'


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.095 or share == 0 else f"{100 * share:.1g} %"


def links_to(turns: pd.DataFrame, page: str, step: int) -> dict[str, str]:
    """Return HTML per agent with links to its lowest and highest row in a RolloutViewer's `page`, if there is one."""
    rows, links = turns[trained(turns)].reset_index(drop=True), {}
    for agent, own in rows.groupby("agent", sort=False) if page else ():
        told = []
        for name, place in (("lowest", own["credit"].idxmin()), ("highest", own["credit"].idxmax())):
            row = own.loc[place]
            to = escape(page + address(step=step, episode=row["episode"], node=row.get("node")))
            told.append(f'<a href="{to}">{name} row, {row["credit"]:.3g}</a>')
        links[agent] = f"<br>Read its {' · '.join(told)}."
    return links
