"""A class leaderboard on one page: handed-in runs at an equal number of sampled tokens.

Nothing from a zip is executed. `rerun` trains the best runs again from what their run.json says, and marks those that
come out the same. Leaves out: grades, and runs on weights that the kit does not ship.
"""

import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from mas_lab.backends.loading import load_policy
from mas_lab.backends.torch.source import Source
from mas_lab.contrib.foreign.child import GIB, in_child, size_limit
from mas_lab.runs.run import Run, RunError, load_run, open_run
from mas_lab.runs.scores import score_curve
from mas_lab.study.budget import run_scores
from mas_lab.study.entries import Entry, entries
from mas_lab.tasks import make_env
from mas_lab.team import Sampling, Team
from mas_lab.train import train
from mas_lab.widgets.document import document, escape, table_html, write

LAST = 0.1
"""Share of the budget whose scores are averaged, as AblationBoard does."""
STEPS, SECONDS = 1000, 1800
"""Limits of one rerun."""
CHILD = (
    "import torch, transformers; from mas_lab.contrib.foreign.child import limited; "
    "from mas_lab.contrib.leaderboard import _train; limited(_train, Exception)"
)
OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
FORM = ("max_turns", "score_tasks", "score_episodes")
"""Settings that make a task easier, or its score a matter of luck."""
COLUMNS = ["run", "recipe", "seed", "score", "rerun", "same tables as"]
NOTE = (
    "Success on held-out tasks at the budget: the tokens that every run of the task sampled. It is the `final` of "
    "AblationBoard: the mean of the scores in the last tenth of the budget. "
    "Runs are ranked with those of the same form of a task: the same options and the same number of held-out episodes. "
    "Runs with the same tables have the same recipe, seed and settings, or are copies. "
    "Scores are those in the zips, which a student can forge. A rerun trains again from the recorded recipe."
)


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
        say: Function that gets a line about each training.

    Returns:
        Path of the page.

    Raises:
        RunError: No run can be ranked.
    """
    runs, left_out, paths = [], [], list(map(Path, paths))
    for path, name in zip(paths, names_of(paths), strict=True):
        try:
            run = load_run(path)
            [entry] = entries(run)
            if not len(entry.held_out):
                raise RunError("it has no held-out scores; train with score_every=10")
            if not entry.held_out["success"].between(0, 1).all():
                raise RunError("a held-out success is not a number from 0 to 1; export the run again")
            runs.append((run, replace(entry, file=name)))
        except Exception as error:  # the page shows any error in a student's file
            left_out.append(f"{name}: {error}")
    if not runs:
        raise RunError("; ".join(left_out) or "no run was given")
    found = in_forms([entry for _, entry in runs])
    scores = run_scores(found, "success", "tokens", held_out=True, last=LAST)
    body = f'<p class="quiet">{escape(NOTE)}</p>'
    for form, own in scores.groupby("env", sort=False):
        body += _ranked([runs[number] for number in own.index], own, form, rerun, say)
    if left_out:
        body += f"<h2>Not ranked</h2><ul>{''.join(f'<li>{escape(one)}</li>' for one in left_out)}</ul>"
    return write(out, document("Leaderboard", body))


def names_of(paths: Sequence[Path]) -> list[str]:
    """Return a name for each file: `ada: mine.zip` for `class/ada/mine.zip`, `ada.zip` for `class/ada.zip`."""
    common = Path(os.path.commonpath([path.resolve().parent for path in paths])) if paths else Path()
    parts = [path.resolve().relative_to(common).parts for path in paths]
    return [": ".join(filter(None, (own[0] if own[1:] else "", "/".join(own[1:] or own)))) for own in parts]


def in_forms(found: Sequence[Entry]) -> list[Entry]:
    """Return the runs with the form of their task as its name, so that only runs of one form are compared."""
    return [replace(entry, env=_form(entry)) for entry in entries(list(found))]


def same_tables(run: Run) -> tuple[str, ...]:
    """Return the digests of a run's tables, which a copy has too."""
    return tuple(part.sha256 for part in run.parts("turns"))


def _form(entry: Entry) -> str:
    """Return the form of the task that a run was scored on; another size, bound or number of tasks is another form."""
    settings = entry.config["settings"]
    changed = (f"{name}={settings[name]}" for name in FORM if settings.get(name) is not None)
    return ", ".join((entry.env, *changed))


def _ranked(
    runs: list[tuple[Run, Entry]], scores: pd.DataFrame, form: str, rerun: int, say: Callable[[str], None]
) -> str:
    """Return the table of one form of a task, the best run first."""
    digests, rows = [same_tables(run) for run, _ in runs], []
    for (_, entry), final, own in zip(runs, scores["final"], digests, strict=True):
        alike = [
            other.file for (_, other), held in zip(runs, digests, strict=True) if held == own and other is not entry
        ]
        rows.append([entry.file, entry.recipe, entry.seed, final, "", ", ".join(alike)])
    table = pd.DataFrame(rows, columns=COLUMNS).sort_values("score", ascending=False, kind="stable")
    table = table.drop(columns=[] if table["same tables as"].any() else "same tables as")
    for number in table.index[:rerun]:
        run, entry = runs[number]
        say(f"{run.folder}: training again")
        table.loc[number, "rerun"] = confirmed(run, entry)
    table.insert(0, "place", range(1, len(table) + 1))
    return f"<h2>{escape(form)}</h2>" + table_html(table, f"At most {scores['budget'].iloc[0]:,} tokens")


def confirmed(run: Run, entry: Entry) -> str:
    """Train a run again, and return whether its held-out scores are the same."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            [again] = entries(trained_again(run, Path(folder) / "again"))
        ours, theirs = again.held_out, entry.held_out
        if not len(ours):
            raise RunError("its settings keep no held-out scores")
    except Exception as error:  # such as an env of the student's own
        return f"cannot be made: {error}"
    if ours.equals(theirs):
        return "confirmed"
    gap = max((one - other for one, other in zip(ours["success"], theirs["success"], strict=False)), key=abs)
    return f"differs: {ours['success'].iloc[-1]:.3f} at the end (gap {gap:+.3f})"


def trained_again(run: Run, folder: Path) -> Run:
    """Train from the env, team, recipe, seed and settings of run.json, and return the new run.

    A child process trains. It has the memory that `load_run` may take, half an hour, and no hub.

    Raises:
        RunError: The run is a fork, has more than 1,000 steps, its weights are not shipped with the kit, or the
            training failed or reached a limit.
    """
    config = run.config
    if config.get("forked"):
        raise RunError("it begins with the steps of another run")
    if run.steps > STEPS:
        raise RunError(f"it has {run.steps:,} steps, and at most {STEPS:,} are trained again")
    for name, policy in config["team"]["policies"].items():
        if policy["source"].get("kind") != "pocket" or policy["backend"] != "torch" or policy["lora"] is not None:
            raise RunError(f"the weights of {name!r} are not shipped with the kit")
        Source(**policy["source"]).check()
    path = run.folder if isinstance(run.folder, Path) else Path(run.folder.root.filename)
    threads = min(config["threads"], os.cpu_count() or 1)
    if in_child(CHILD, path.resolve(), folder, seconds=SECONDS, **OFFLINE, MAS_LAB_THREADS=str(threads))[0]:
        raise RunError(f"its training takes more than {size_limit() / GIB:.3g} GiB, or {SECONDS // 60} minutes")
    return load_run(folder)


def _train(path: str, folder: str, say: Callable[[str], None]) -> None:
    """Train the run at `path` again, into `folder`, as the child."""
    run, policies = open_run(Path(path)), {}
    config = run.config
    for name, policy in config["team"]["policies"].items():
        shipped = Source(**policy["source"]).location()
        policies[name] = load_policy(shipped, lr=policy["lr"], template=policy["template"], **policy["options"])
    env = make_env(**config["env"])
    sampling = {agent: Sampling(**one) for agent, one in config["team"]["sampling"].items()}
    speaks = {agent: policies[name] for agent, name in config["team"]["agents"].items()}
    team = Team(speaks, sampling, config["team"]["frozen"])
    settings = dict(config["settings"])
    if (settings.get("score_every") or 1) < 1:  # a share of a budget, which run.json does not have
        settings |= {"score_every": None, "score_at": [int(count) for count in score_curve(run)["tokens"] if count]}
    for _ in train(env, team, run.recipe, run.steps, seed=config["seed"], run=Path(folder), **settings):
        pass
