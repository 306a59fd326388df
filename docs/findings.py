"""Writes the numbers into `docs/findings.md` from the recorded studies: `python docs/findings.py`.

A block between `<!-- study NAME: TASK; TASK -->` and `<!-- /study -->` becomes the table of these tasks, or of all.
Leaves out: the pictures (`pictures.py`) and what the numbers say.
"""

import json
import re
from pathlib import Path

import pandas as pd

import mas_lab as lab
from mas_lab.explain.advice import COSTS, PAYS
from mas_lab.paths import data_dir
from mas_lab.study.comparison import FEW
from mas_lab.study.intervals import bootstrap_interval
from mas_lab.study.record import Recorded, is_record

PAGE, STUDIES = Path(__file__).parent / "findings.md", data_dir() / "results" / "studies"
BASELINES = ("ladder", "paid_help", "finisher", "math", "search")
"""Studies with the arms "global" and "own"."""
BLOCK = re.compile(r"<!-- study (\w+)(?:: ([^>]*?))? -->\n.*?<!-- /study -->", re.DOTALL)
HEAD = "| task | arm | learning rate | {} at the end | against {}, seed by seed |\n|---|---|---|---|---|"


def table(name: str, tasks: list[str]) -> str:
    """A row per task and arm: interquartile means with their intervals from five seeds on, else every run."""
    record = Recorded(STUDIES / name)
    board = lab.AblationBoard(record)
    runs = record.table[record.table["phase"] == "compare"]
    lines, shown = [HEAD.format(board.score, board.baseline)], tasks or list(dict.fromkeys(runs["task"]))
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


def foretold(window: str = "start") -> pd.DataFrame:
    """A row per task and agent of the studies of two baselines: what was told of the agent's first (or last) steps
    under the global baseline, and what its own came to.

    `gain`, `F`: medians over seeds, the first of those whose table was large enough to tell. `ratio`: of its median
    norms, global over own. `difference`: how much more often it was right in the end under its own baseline, the mean
    over seeds on which it was reached under both; `sure`: all of at least three seeds are on one side, or, from five
    on, the 95 % interval is.
    """
    rows = []
    for name in filter(lambda name: is_record(STUDIES / name), BASELINES):
        agents = Recorded(STUDIES / name).agents.set_index(["task", "agent", "seed"])
        end = agents[agents["window"] == "end"]
        own, other = (end[end["arm"] == arm] for arm in ("own", "global"))
        for (task, agent), said in agents[(agents["window"] == window) & (agents["arm"] == "global")].groupby(
            level=["task", "agent"], sort=False
        ):
            pairs = (own["own_after"] - other["own_after"]).reindex(said.index).dropna()
            if len(pairs) < 3 or pairs.eq(0).all():  # hardly ever reached, or frozen
                continue
            ends = bootstrap_interval([pairs]) if len(pairs) >= FEW else (pairs.min(), pairs.max())
            norms = (other["median_norm"] / own["median_norm"].where(own["median_norm"] > 0)).reindex(said.index)
            rows.append({
                "study": name, "task": task, "agent": agent, "seeds": len(pairs),
                "gain": said.loc[said["own"] != "cannot be told", "gain"].median(), "F": said["F"].median(),
                "ratio": norms.median(), "difference": pairs.mean(), "low": ends[0], "high": ends[1],
                "sure": ends[0] > 0 or ends[1] < 0, "shared": bool(said["shared"].any()),
            })  # fmt: skip
    return pd.DataFrame(rows)


def right(points: pd.DataFrame, name: str) -> tuple[int, int]:
    """(how often a number above 1 told the side of the difference, of how many that are sure and were told)."""
    known = points[points["sure"] & points[name].notna()]
    return int(((known[name] > 1) == (known["difference"] > 0)).sum()), len(known)


def roles() -> str:
    """Success of each team, in its roles and in each other's, seed by seed."""
    runs = pd.read_csv(STUDIES.parent / "roles" / "results.csv")
    lines = ["| trained | success | in each other's role |", "|---|---|---|"]
    for team, own in runs.groupby("team", sort=False):
        told = [", ".join(f"{one:.2f}" for one in own.loc[own["swapped"] == swapped, "success"])
                for swapped in (False, True)]  # fmt: skip
        lines.append(f"| {team} | {' | '.join(told)} |")
    return "\n".join(lines)


NUMBERS = {"gain": "gain of `lab.advise`", "F": "F of Dr. MAS", "ratio": "ratio of median norms, global over own"}
WORDS = ("costs", "hardly matters", "pays")


def told_beforehand() -> str:
    """How often each number was on the right side of 1, and what came where `lab.advise` said what: of the agents with
    weights of their own that five seeds or more stand for, and of all."""
    points = foretold()
    own = points[~points["shared"]]
    parts = [own[own["seeds"] >= FEW], own]
    lines = [
        f"| told by | right side, rank correlation: {len(parts[0])} agents of {FEW} seeds or more | all {len(own)} |"
    ]
    lines.append("|---|---|---|")
    for name, called in NUMBERS.items():
        lines.append(f"| {called} | {' | '.join(rightly(part, name) for part in parts)} |")
    lines += [
        "",
        f"| `lab.advise` said | surely better, not sure, surely worse: {FEW} seeds or more | all |",
        "|---|---|---|",
    ]
    for word in WORDS:
        lines.append(f"| {word} | {' | '.join(came_of(part, word) for part in parts)} |")
    sure, known = right(points[points["shared"]], "gain")
    return "\n".join([*lines, "", f"With shared weights, three seeds each, the gain was right in {sure} of {known}."])


def rightly(points: pd.DataFrame, name: str) -> str:
    hits, known = right(points, name)
    return f"{hits} of {known}, {points[[name, 'difference']].corr('spearman').iloc[0, 1]:+.2f}"


def came_of(points: pd.DataFrame, word: str) -> str:
    """How those came out of whom it said so, and within what differences."""
    words = pd.cut(points["gain"], [0, COSTS, PAYS, float("inf")], labels=WORDS)
    one = points[words == word]
    if one.empty:
        return "none"
    counts = [(one["sure"] & (one["difference"] > 0)).sum(), (~one["sure"]).sum(),
              (one["sure"] & (one["difference"] < 0)).sum()]  # fmt: skip
    return f"{', '.join(map(str, counts))}; {one['difference'].min():+.2f} to {one['difference'].max():+.2f}"


def sizes() -> str:
    """What an episode costs each agent after training: turns, tokens, and multiplications by weights, in millions."""
    pockets, weights = data_dir() / "pocket", {}
    for name in ("math", "math_small"):
        weights[name] = json.loads((pockets / name / "provenance.json").read_text(encoding="utf-8"))["parameters"]
    agents = Recorded(STUDIES / "sizes").agents
    by_agent = agents[agents["window"] == "end"].groupby(["arm", "agent"], sort=False)
    lines = ["| team | agent | weights | turns | tokens read and said | million multiplications |"]
    lines.append("|---|---|---|---|---|---|")
    for (arm, agent), row in by_agent[["turns", "tokens", "prompt_tokens"]].mean().iterrows():
        own = weights["math_small" if arm in ("both small", f"small {agent}") else "math"]
        moved = row["tokens"] + row["prompt_tokens"]
        numbers = f"{row['turns']:.2f} | {moved:.1f} | {moved * own / 1e6:.1f}"
        lines.append(f"| {arm} | {agent} | {own:,} | {numbers} |")
    return "\n".join(lines)


MADE = {"roles": roles, "foretold": told_beforehand, "sizes": sizes}
"""Blocks that are no study's: `<!-- NAME -->` to `<!-- /NAME -->`."""


def filled(page: str) -> str:
    """The page with the tables of all its blocks."""
    for name, make in MADE.items():
        block = re.compile(rf"<!-- {name} -->\n.*?<!-- /{name} -->", re.DOTALL)
        page = block.sub(lambda _, name=name, make=make: f"<!-- {name} -->\n{make()}\n<!-- /{name} -->", page)

    def block(found: re.Match) -> str:
        name, tasks = found.group(1), found.group(2)
        listed = [one.strip() for one in tasks.split(";")] if tasks else []
        return f"{found.group(0).splitlines()[0]}\n{table(name, listed)}\n<!-- /study -->"

    return BLOCK.sub(block, page)


def main() -> None:
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
