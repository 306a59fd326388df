"""Writes the numbers into `docs/findings.md` from the recorded studies: `python docs/findings.py`.

A block between `<!-- study NAME: TASK; TASK -->` and `<!-- /study -->` becomes the table of these tasks, or of all.
Leaves out: the pictures (`pictures.py`) and what the numbers say.
"""

import re
from pathlib import Path

import pandas as pd

import mas_lab as lab
from mas_lab.paths import data_dir
from mas_lab.study.record import Recorded

PAGE, STUDIES = Path(__file__).parent / "findings.md", data_dir() / "results" / "studies"
BLOCK = re.compile(r"<!-- study (\w+)(?:: ([^>]*?))? -->\n.*?<!-- /study -->", re.DOTALL)
HEAD = "| task | arm | learning rate | {} at the end | against {}, seed by seed |\n|---|---|---|---|---|"


def table(name: str, tasks: list[str]) -> str:
    """A row per task and arm: interquartile means with their intervals from five seeds on, else every run."""
    record = Recorded(STUDIES / name)
    board = lab.AblationBoard(record)
    runs = record.table[record.table["phase"] == "compare"]
    score = "share of the best return" if board.score == "return" else "success"
    lines, shown = [HEAD.format(score, board.baseline)], tasks or list(dict.fromkeys(runs["task"]))
    for task in shown:
        first = True
        for row in board.table[board.table["env"] == task].itertuples():
            own = board.runs[(board.runs["env"] == task) & (board.runs["recipe"] == row.recipe)]
            rates = runs.loc[(runs["task"] == task) & (runs["arm"] == row.recipe), "lr"].unique()
            rate = "" if pd.isna(rates).all() else f"{rates[0]:g}"
            cells = [task if first else "", row.recipe, rate, told(row, own["final"]), against(board, task, row.recipe)]
            lines.append(f"| {' | '.join(cells)} |")
            first = False
    return "\n".join(lines)


def told(row, finals: pd.Series) -> str:
    """`0.46 (0.41 to 0.50), 10 seeds`, or the runs one by one."""
    if pd.isna(row.final_low):
        return ", ".join(f"{one:.2f}" for one in finals)
    return f"{row.final:.2f} ({row.final_low:.2f} to {row.final_high:.2f}), {row.seeds} seeds"


def against(board: lab.AblationBoard, task: str, arm: str) -> str:
    """The paired difference to the baseline, and how probably a run of the arm is the better one."""
    own = board.differences[(board.differences["env"] == task) & (board.differences["recipe"] == arm)]
    if own.empty:
        return ""
    row = own.iloc[0]
    if pd.isna(row["final_low"]):
        pairs = board.pairs[(board.pairs["env"] == task) & (board.pairs["recipe"] == arm)]
        return ", ".join(f"{one:+.2f}" for one in pairs["final"])
    better = board.improvements[(board.improvements["env"] == task) & (board.improvements["recipe"] == arm)].iloc[0]
    return (
        f"{row['final']:+.2f} ({row['final_low']:+.2f} to {row['final_high']:+.2f}); "
        f"better with probability {better['final']:.2f}"
    )


def filled(page: str) -> str:
    """The page with the tables of all its blocks."""

    def block(found: re.Match) -> str:
        name, tasks = found.group(1), found.group(2)
        listed = [one.strip() for one in tasks.split(";")] if tasks else []
        return f"{found.group(0).splitlines()[0]}\n{table(name, listed)}\n<!-- /study -->"

    return BLOCK.sub(block, page)


def main() -> None:
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
