"""Fills the tables of the pages about studies from the records: `python docs/findings.py`.

The pages are `docs/findings.md` and each `README.md` below `data/results`. A block `<!-- study NAME: TASK; TASK -->`,
until `<!-- /study -->`, becomes the table of these tasks of a study, or of all. A block `<!-- NAME -->`, until
`<!-- /NAME -->`, becomes what `MADE` has. Leaves out: the pictures (`pictures.py`) and what the numbers say.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
from findings_of_size import TABLES as OF_SIZE
from findings_of_studies import TABLES as OF_STUDIES
from findings_of_studies import record as read

import mas_lab as lab
from mas_lab.paths import data_dir
from mas_lab.study.record import Recorded

HERE, RESULTS = Path(__file__).parent, data_dir() / "results"
BLOCK = re.compile(r"<!-- study (\w+)(?:: ([^>]*?))? -->\n.*?<!-- /study -->", re.DOTALL)
HEAD = (
    "| task | variant | learning rate | {} at the end | minus {}, seed by seed | pairs won | p |\n" + "|---" * 7 + "|"
)
MADE = OF_STUDIES | OF_SIZE
"""Name of a block -> the function that makes its table."""


def pages() -> Iterator[Path]:
    """Yield every page that has a block."""
    for page in (HERE / "findings.md", *sorted(RESULTS.rglob("README.md"))):
        if "<!-- /" in page.read_text(encoding="utf-8"):
            yield page


def table(name: str, tasks: list[str]) -> str:
    """A row per task and arm: interquartile means with their intervals from five seeds on, else every run."""
    record = read(name)
    board = lab.AblationBoard(record)
    runs = record.table[record.table["phase"] == "compare"]
    lines, shown = [HEAD.format(board.score, board.baseline)], tasks or list(dict.fromkeys(runs["task"]))
    for task in shown:
        first = True
        for row in board.table[board.table["env"] == task].itertuples():
            own = board.runs[(board.runs["env"] == task) & (board.runs["recipe"] == row.recipe)]
            rate = rate_of(record, task, row.recipe)
            cells = [task if first else "", row.recipe, rate, told(row, own["final"])]
            cells += against(board, task, row.recipe)
            lines.append(f"| {' | '.join(cells)} |")
            first = False
    return "\n".join(lines)


def rate_of(record: Recorded, task: str, arm: str) -> str:
    """Return the rate of an arm, the task whose sweep chose it if that is another, and whether it is an edge."""
    runs = record.table[(record.table["phase"] == "compare") & (record.table["task"] == task)]
    [rate] = runs.loc[runs["arm"] == arm, "lr"].unique()
    if pd.isna(rate):
        return ""
    said = (record.provenance["design"].get("tasks") or {}).get(task) or {}
    source = said.get("rates", task)
    rates = record.rates
    swept = rates[(rates["task"] == source) & (rates["arm"] == arm) & rates["chosen"]]
    notes = [f"of {source}"] * (source != task) + ["edge"] * bool(swept["edge"].any())
    return f"{rate:g}" + (f" ({', '.join(notes)})" if notes else "")


def told(row, finals: pd.Series) -> str:
    """`0.46 (0.41 to 0.50), 10 seeds`, or the runs one by one."""
    if pd.isna(row.final_low):
        return ", ".join(f"{one:.2f}" for one in finals)
    return f"{row.final:.2f} ({row.final_low:.2f} to {row.final_high:.2f}), {row.seeds} seeds"


def against(board: lab.AblationBoard, task: str, arm: str) -> list[str]:
    """Return the paired difference to the baseline, the share of pairs won, and Holm's p over the study's table."""
    if board.differences.empty:  # one variant alone
        return ["", "", ""]
    own = board.differences[(board.differences["env"] == task) & (board.differences["recipe"] == arm)]
    if own.empty:
        return ["", "", ""]
    row = own.iloc[0]
    if pd.isna(row["final_low"]):
        pairs = board.pairs[(board.pairs["env"] == task) & (board.pairs["recipe"] == arm)]
        return [", ".join(f"{one:+.2f}" for one in pairs["final"]), "", ""]
    decided = row["higher"] + row["lower"]
    won = f"{row['higher']} of {decided} ({row['won_low']:.2f} to {row['won_high']:.2f})"
    return [
        f"{row['final']:+.2f} ({row['final_low']:+.2f} to {row['final_high']:+.2f})",
        won if decided else "all pairs equal",
        "< 0.001" if row["p_holm"] < 0.001 else f"{row['p_holm']:.3f}",
    ]


def filled(page: str) -> str:
    """Return a page with the tables of all its blocks."""
    for name in re.findall(r"<!-- /(\w+) -->", page):
        if name != "study":
            block = re.compile(rf"<!-- {name} -->\n.*?<!-- /{name} -->", re.DOTALL)
            page = block.sub(lambda _, name=name: f"<!-- {name} -->\n{MADE[name]()}\n<!-- /{name} -->", page)

    def block(found: re.Match) -> str:
        name, tasks = found.group(1), found.group(2)
        listed = [one.strip() for one in tasks.split(";")] if tasks else []
        return f"{found.group(0).splitlines()[0]}\n{table(name, listed)}\n<!-- /study -->"

    return BLOCK.sub(block, page)


def main() -> None:
    for page in pages():
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
