"""A class leaderboard on one page: handed-in runs at an equal number of sampled tokens.

Nothing from a zip is executed. `rerun` trains the best runs again from what their run.json says, and marks those that
come out the same. Leaves out: grades, and runs on weights that the kit does not ship.
"""

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from mas_lab.backends.loading import load_policy
from mas_lab.runs.run import Run, RunError, load_run
from mas_lab.study.entries import Entry, entries
from mas_lab.tasks import make_env
from mas_lab.team import Sampling, Team
from mas_lab.train import train
from mas_lab.widgets.document import document, escape, table_html, write

HEADS = ("place", "run", "recipe", "seed", "score", "tokens", "rerun")
TOLD = (
    "Success on held-out tasks at the last score within the budget: the tokens that every run of the task sampled. "
    "Scores are those in the zips, which a student can forge. A rerun trains again from the recorded recipe."
)


@dataclass
class Row:
    """One run: what it is called, its entry, and what its rerun came to."""

    run: Run
    entry: Entry
    rerun: str = ""


def leaderboard(
    paths: Iterable[str | Path],
    out: str | Path,
    rerun: int = 0,
    say: Callable[[str], None] = lambda text: None,
) -> Path:
    """Write the page, and return its path.

    Args:
        paths: Zips made by `export`, or folders of runs.
        out: File to write.
        rerun: Number of best runs per task that are trained again.
        say: Function that is told what is trained.

    Returns:
        Path of the page.

    Raises:
        RunError: No run can be ranked.
    """
    rows, left_out = [], []
    for path in map(Path, paths):
        try:
            run = load_run(path)
            [entry] = entries(run)
            if not len(entry.held_out):
                raise RunError("it has no held-out scores; train with score_every=10")
            rows.append(Row(run, entry))
        except Exception as error:  # any error in a student's file is told in the page
            left_out.append(f"{path.name}: {error}")
    if not rows:
        raise RunError("; ".join(left_out) or "no run was given")
    body = f'<p class="quiet">{escape(TOLD)}</p>'
    for task in dict.fromkeys(row.entry.env for row in rows):
        body += _ranked([row for row in rows if row.entry.env == task], task, rerun, say)
    if left_out:
        body += f"<h2>Not ranked</h2><ul>{''.join(f'<li>{escape(one)}</li>' for one in left_out)}</ul>"
    return write(out, document("Leaderboard", body))


def _ranked(rows: list[Row], task: str, rerun: int, say: Callable[[str], None]) -> str:
    """Return the table of one task, the best run first."""
    budget = min(int(row.entry.held_out["tokens"].iloc[-1]) for row in rows)

    def within(row: Row) -> pd.Series:
        scores = row.entry.held_out
        return scores[scores["tokens"] <= budget].iloc[-1]

    rows = sorted(rows, key=lambda row: -within(row)["success"])
    for row in rows[:rerun]:
        say(f"{row.run.folder}: training again")
        row.rerun = confirmed(row)
    lines = [(place, Path(str(row.run.folder)).name, row.entry.recipe, row.entry.seed, round(within(row)["success"], 3),
              int(within(row)["tokens"]), row.rerun) for place, row in enumerate(rows, start=1)]  # fmt: skip
    return f"<h2>{escape(task)}</h2>" + table_html(pd.DataFrame(lines, columns=HEADS), f"At most {budget:,} tokens")


def confirmed(row: Row) -> str:
    """Train a run again, and say whether its held-out scores come out the same."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            again = trained_again(row.run, Path(folder) / "again")
        except Exception as error:  # such as an env of the student's own
            return f"cannot be made: {error}"
        [entry] = entries(again)
    gap = (entry.held_out["success"].to_numpy() - row.entry.held_out["success"].to_numpy()[: len(entry.held_out)]).max()
    same = len(entry.held_out) == len(row.entry.held_out) and entry.held_out.equals(row.entry.held_out)
    return "confirmed" if same else f"differs: {entry.held_out['success'].iloc[-1]:.3f} at the end (gap {gap:+.3f})"


def trained_again(run: Run, folder: Path) -> Run:
    """Train from the env, team, recipe, seed and settings of run.json, and return the new run.

    Raises:
        RunError: The run is a fork, or its weights are not shipped with the kit.
    """
    config = run.config
    if config.get("forked"):
        raise RunError("it begins with the steps of another run")
    policies = {}
    for name, told in config["team"]["policies"].items():
        if told["source"].get("kind") != "pocket" or told["backend"] != "torch":
            raise RunError(f"the weights of {name!r} are not shipped with the kit")
        policies[name] = load_policy(told["source"]["name"], lora=told["lora"], lr=told["lr"], seed=config["seed"])
    env = make_env(**config["env"])
    sampling = {agent: Sampling(**told) for agent, told in config["team"]["sampling"].items()}
    speaks = {agent: policies[name] for agent, name in config["team"]["agents"].items()}
    team = Team(speaks, sampling, config["team"]["frozen"])
    for _ in train(env, team, run.recipe, run.steps, seed=config["seed"], run=folder, **config["settings"]):
        pass
    return load_run(folder)
