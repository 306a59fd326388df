"""Show whom each recipe compares an agent with, on eight made-up episodes and on a run's own wrong answers.

The agent is the one that the verdict names. This module leaves out the page around it (`report`).
"""

from typing import Any

import pandas as pd

from mas_lab.recipes import RECIPES
from mas_lab.tasks.shared.chains import answer_text, values_of
from mas_lab.train.verdict import harmed_agent, shares, verdict_of_table
from mas_lab.widgets.document import escape, folded, table_html
from mas_lab.widgets.figures import NEUTRAL, PALETTE, dialogue

COMPARES = {
    "grpo": "Each answer is compared with all episodes of its task: one mean for all agents.",
    "own_robust": "Each answer is compared with its own agent's answers. One that stands alone is left out.",
}
PASSED = (0, 1, 1, 2, 3, 5, 5, 7)
"""Stages passed in each of the made-up episodes. The next stage was wrong."""
LEGEND = {1: ("▲", PALETTE[2], "reinforced"), -1: ("▼", PALETTE[1], "made less likely"), 0: ("○", NEUTRAL, "left out")}
"""Mark, colour and meaning of a row by the sign of its advantage."""


def wrong_answers(turns: pd.DataFrame) -> pd.DataFrame:
    """Return the wrong answers of a training with `grpo`, with a column per recipe that holds the advantage under it.

    The largest advantage under `grpo` comes first. Each step is compared by itself.
    """
    table = turns.assign(**{name: RECIPES[name].advantages(turns)["advantage"] for name in COMPARES})
    return table[table["local_reward"] == 0].sort_values("grpo", ascending=False, kind="stable", ignore_index=True)


def one_agent(turns: pd.DataFrame) -> dict[str, Any]:
    """Return what `ladder.html` says about one agent, and about its wrong answer that `grpo` reinforced most.

    It is the agent that the verdict names, or else the one with the most reinforced wrong answer.
    """
    wrong, harmed = wrong_answers(turns), harmed_agent(turns, (), shares(turns))
    agent = wrong["agent"].iloc[0] if harmed is None else harmed.name
    wrong = wrong[wrong["agent"] == agent]
    row = wrong.iloc[0]
    task = turns[(turns["step"] == row["step"]) & (turns["task"] == row["task"])]
    talk = dialogue(task, row["episode"])
    prompt, answer = talk[["hears", "says"]][talk["agent"] == agent].iloc[0]
    return {
        "row": row, "agent": escape(agent), "prompt": escape(prompt), "answer": escape(answer),
        "right": answer_text(values_of(prompt.removeprefix("solve "))[1:], True),
        "spoke": task.loc[task["agent"] == agent, "episode"].nunique(), "played": task["episode"].nunique(),
        "wrong": len(wrong), "verdict": escape(verdict_of_table(turns)),
        "share": {name: 100 * (wrong[name] > 0).mean() for name in COMPARES},
        "episode": folded(f"The whole episode, step {row['step']}", table_html(talk, "The episode, turn by turn")),
    }  # fmt: skip


def made_up() -> pd.DataFrame:
    """Return the episodes `PASSED` of one task of a ladder of 8 as a table of turns."""
    rows = [
        {"task": "a", "episode": number, "agent": f"stage_{stage + 1}", "team_reward": (stage == passed) * passed / 8}
        for number, passed in enumerate(PASSED) for stage in range(passed + 1)
    ]  # fmt: skip
    return pd.DataFrame(rows)


def boxes() -> str:
    """Return a box per recipe as HTML: who is compared with whom in the made-up episodes; and what the marks mean."""
    drawn = "".join(
        f"<div><h3><code>{name}</code></h3><p>{text}</p>{drawing(RECIPES[name].advantages(made_up()))}</div>"
        for name, text in COMPARES.items()
    )
    legend = ", ".join(f"{mark} {meaning}" for mark, _, meaning in LEGEND.values())
    return f'<div class="boxes">{drawn}</div><p class="quiet">{legend}</p>'


def drawing(turns: pd.DataFrame) -> str:
    """Return the made-up episodes under one recipe as SVG: a strip of all rewards, and one for each late agent."""
    parts, labels, one_mean = [], [], turns["center"].nunique() == 1
    for place, agent in enumerate(("stage_1", "stage_6", "stage_8")):
        own, foot, name = turns[turns["agent"] == agent], 44 * place + 40, agent.replace("_", " ")
        marks = [LEGEND[(value > 0) - (value < 0)][:2] if place else ("●", NEUTRAL) for value in own["advantage"]]
        if place or one_mean:
            x = 85 + 190 * own["center"].mean()
            parts.append(f'<path d="M{x:.0f} {foot - 34}v44" stroke="currentColor" stroke-dasharray="4 3"/>')
        parts.append(f'<text x="0" y="{foot}">{name if place else "8 episodes"}</text>')
        heights = foot - 13 * own.groupby("credit").cumcount()
        for reward, y, (mark, color) in zip(own["credit"], heights, marks, strict=True):
            parts.append(f'<text x="{80 + 190 * reward:.0f}" y="{y}" fill="{color}">{mark}</text>')
        labels.append(f"{name} {' '.join(mark for mark, _ in marks)}" * bool(place))
    parts.append('<text x="80" y="158">0</text><text x="150" y="158">reward</text><text x="270" y="158">1</text>')
    return (
        f'<svg viewBox="0 0 290 162" role="img" aria-label="{" ".join(labels)}" font-size="12" fill="currentColor">'
        f"{''.join(parts)}</svg>"
    )
