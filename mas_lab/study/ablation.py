"""Runs side by side: what each scored within a budget that all of them reached, and recipes compared over seeds.

Pure tables. Leaves out: how sure one can be (`intervals`) and pictures (`widgets.ablation`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.recipes import completed
from mas_lab.runs.disk import RunError
from mas_lab.runs.run import KEEPING, Run, load_run
from mas_lab.runs.scores import kept_scores, run_curve
from mas_lab.study.intervals import bootstrap_interval, iqm
from mas_lab.table import TableError

METRICS = ("final", "area")
FEW = 5
"""Runs below which an interval made of them is not to be trusted."""


@dataclass(frozen=True)
class Entry:
    """One run: `curve` has a row per scored step, with `step`, `tokens` sampled until then, `success` and `return`."""

    file: str
    env: str
    recipe: str
    seed: int
    curve: pd.DataFrame
    held_out: pd.DataFrame = field(default_factory=pd.DataFrame)
    """The same of held-out tasks, where they were kept."""
    asked: Mapping[str, Any] = field(default_factory=dict)
    """Env, recipe and settings, as run.json has them."""


def entries(x: Any) -> list[Entry]:
    """A folder of runs or exported zips, one run, a list of either, `{label: runs}`, or a table of curves.

    A table has a row per run and scored step: `recipe`, `seed`, `step` or `tokens`, scores, and maybe `env`, `file`.
    """
    return _told_apart(list(_read(x)))


def _read(x: Any) -> Iterator[Entry]:
    if isinstance(x, pd.DataFrame):
        yield from _of_table(x)
    elif isinstance(x, Mapping) and x:
        for label, runs in x.items():
            for entry in _read(runs):
                asked = {key: value for key, value in entry.asked.items() if key != "recipe"}
                yield replace(entry, recipe=str(label), asked=asked)
    elif isinstance(x, Run):
        yield _of_run(x)
    elif isinstance(x, str | Path):
        yield from (_of_run(load_run(path)) for path in _paths(Path(x)))
    elif isinstance(x, Sequence) and x:
        for one in x:
            yield from _read(one)
    else:
        raise TypeError(f"AblationBoard: wants a folder, runs, zips or a table of curves; got {x!r:.200}")


def _paths(path: Path) -> list[Path]:
    """The runs of a folder; anything else in it is refused by name, but for hidden files."""
    if not path.is_dir() or (path / "run.json").is_file():
        return [path]
    found = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
    for entry in found:
        if not (entry / "run.json").is_file() and entry.suffix != ".zip":
            raise RunError(
                f"{entry} is neither a run's folder nor a zip made by export(); move it out of {path}, or pass a list "
                "of the runs to compare"
            )
    if not found:
        raise RunError(f"{path} is empty; put the folders or exported zips of runs there")
    return found


def _of_run(run: Run) -> Entry:
    config, curve = run.config, run_curve(run)
    missing = [name for name in ("env", "recipe", "seed") if name not in config]
    if missing or not isinstance(config["recipe"], dict) or "name" not in config["recipe"]:
        raise RunError(
            f"{run.folder}: run.json does not say {missing[0] if missing else 'the recipe'}; export it again"
        )
    if len(curve) != run.steps:
        raise RunError(f"{run.folder}: {run.steps} steps of statistics, {len(curve)} of turns; export it again")
    path = Path(str(run.folder).rstrip("/"))
    asked = {"env": config["env"], "recipe": completed(config["recipe"]), "settings": config.get("settings", {})}
    name = str((config["env"] or {}).get("name", "env"))
    scores = kept_scores(run, curve)
    return Entry(path.name, name, str(config["recipe"]["name"]), int(config["seed"]), curve, scores, asked)


def _of_table(table: pd.DataFrame) -> Iterator[Entry]:
    missing = [name for name in ("recipe", "seed") if name not in table.columns]
    if missing or not {"step", "tokens"} & set(table.columns):
        raise TableError(
            f"AblationBoard: column '{missing[0] if missing else 'tokens'}' is missing; a table of curves has recipe, "
            "seed, step or tokens, and scores such as success, a row per run and scored step"
        )
    told = table.assign(**{name: "" for name in ("env", "file") if name not in table.columns})
    for (env, recipe, seed, file), curve in told.groupby(["env", "recipe", "seed", "file"], sort=False):
        order = "tokens" if "tokens" in curve else "step"
        if curve[order].duplicated().any():
            raise TableError(
                f"AblationBoard: two rows of {recipe!r}, seed {seed} have the same {order}; a column 'file' tells runs "
                "of one seed apart"
            )
        yield Entry(file or f"{recipe}, seed {seed}", str(env), str(recipe), int(seed), curve.sort_values(order))


def _told_apart(found: list[Entry]) -> list[Entry]:
    """Envs and recipes that share a name and differ in an option get it into their names."""
    labels = {kind: _labels([(getattr(e, kind), e.asked.get(kind, {})) for e in found]) for kind in ("env", "recipe")}
    told = zip(found, labels["env"], labels["recipe"], strict=True)
    return [replace(entry, env=env, recipe=recipe) for entry, env, recipe in told]


def _labels(named: list[tuple[str, Mapping[str, Any]]]) -> list[str]:
    labels = []
    for name, options in named:
        others = [other for its_name, other in named if its_name == name]
        differ = [key for key in options if any(other.get(key) != options[key] for other in others)]
        told = ", ".join(f"{key}={_told(options[key])}" for key in differ)
        labels.append(f"{name} ({told})" if differ else name)
    return labels


def _told(option: Any) -> str:
    """An option as one would type it."""
    if isinstance(option, Mapping) and "is" in option:
        arguments = ", ".join(f"{name}={_told(value)}" for name, value in option.items() if name != "is")
        return f"{option['is']}({arguments})"
    return repr(option)


def run_scores(found: Sequence[Entry], score: str, over: str, held_out: bool, last: float) -> pd.DataFrame:
    """A row per run: `final`, the mean score over the last share `last` of the budget, and `area`, its mean height.

    The budget of an env is the least `over` ("tokens" or "step") that any of its runs reached; nothing counts beyond.
    """
    curves = [_points(entry, score, over, held_out) for entry in found]
    rows = [(entry.env, entry.recipe, entry.seed, entry.file) for entry in found]
    runs = pd.DataFrame(rows, columns=["env", "recipe", "seed", "file"])
    runs["reached"] = [curve.index[-1] for curve in curves]
    runs["budget"] = runs.groupby("env")["reached"].transform("min")
    starts = pd.Series([curve.index[0] for curve in curves]).groupby(runs["env"]).transform("max")
    ends = zip(curves, starts.clip(upper=runs["budget"]), runs["budget"], strict=True)
    return runs.join(pd.DataFrame([_within(*one, last) for one in ends], columns=list(METRICS)))


def _points(entry: Entry, score: str, over: str, held_out: bool) -> pd.Series:
    """The scores of one run, indexed by tokens or steps."""
    curve = entry.held_out if held_out else entry.curve
    for name in (score, over):
        if name not in curve.columns:
            raise TableError(f"AblationBoard: {entry.file} has no column {name!r}; it has {', '.join(curve.columns)}")
    if curve.empty or curve[[score, over]].isna().any(axis=None):
        raise TableError(f"AblationBoard: {entry.file} has no {score} at some step, or no scored step at all")
    return curve.set_index(over)[score].astype(float)


def _within(curve: pd.Series, start: float, budget: float, last: float) -> tuple[float, float]:
    """(mean of the points in the last share of [start, budget], mean height of the curve there), both ends included."""
    x, y = curve.index.to_numpy(float), curve.to_numpy()
    inner, ends = (x > start) & (x < budget), np.interp([start, budget], x, y)
    if budget <= start:
        return float(ends[1]), float(ends[1])
    x, y = np.array([start, *x[inner], budget]), np.array([ends[0], *y[inner], ends[1]])
    final = y[1:][x[1:] >= budget - last * (budget - start)].mean()
    return float(final), float(np.trapezoid(y, x) / (budget - start))


def compared(runs: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    """A row per env and recipe: its `runs` and `seeds`, and per metric its IQM with a 95 % interval (`low`, `high`)."""
    rows = []
    for (env, recipe), own in runs.groupby(["env", "recipe"], sort=False):
        row: dict[str, Any] = {"env": env, "recipe": recipe, "runs": len(own), "seeds": own["seed"].nunique()}
        rows.append(row | _measured({metric: own[metric] for metric in METRICS}, seed))
    return pd.DataFrame(rows)


def over_envs(runs: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    """A row per recipe that was run on every env: the IQM over all its runs, envs being the strata."""
    rows = []
    for recipe, own in runs.groupby("recipe", sort=False):
        if own["env"].nunique() == runs["env"].nunique():
            row = {"recipe": recipe, "runs": len(own), "envs": own["env"].nunique()}
            strata = {metric: [part for _, part in own.groupby("env")[metric]] for metric in METRICS}
            rows.append(row | _measured(strata, seed))
    return pd.DataFrame(rows)


def paired(runs: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """A row per env, recipe and seed that was also run under `baseline`: the differences of their scores.

    Runs of one seed share tasks and first weights, so they are averaged first: a seed is one pair.
    """
    by_seed = runs.groupby(["env", "recipe", "seed"], sort=False)[list(METRICS)].mean().reset_index()
    base = by_seed[by_seed["recipe"] == baseline].drop(columns="recipe")
    both = by_seed[by_seed["recipe"] != baseline].merge(base, on=["env", "seed"], suffixes=("", "_base"))
    differences = {metric: both[metric] - both[f"{metric}_base"] for metric in METRICS}
    return both[["env", "recipe", "seed"]].assign(**differences)


def compared_pairs(pairs: pd.DataFrame, seed: int = 0) -> pd.DataFrame:
    """A row per env and recipe: how many pairs, and the IQM of their differences with a 95 % interval over pairs."""
    columns = ["env", "recipe", "pairs", *(f"{m}{end}" for m in METRICS for end in ("", "_low", "_high"))]
    rows = [
        {"env": env, "recipe": recipe, "pairs": len(own)} | _measured({metric: own[metric] for metric in METRICS}, seed)
        for (env, recipe), own in pairs.groupby(["env", "recipe"], sort=False)
    ]
    return pd.DataFrame(rows, columns=columns)


def _measured(values: Mapping[str, Any], seed: int) -> dict[str, float]:
    """`values`: per metric the scores of the runs, or a list of them, one per stratum."""
    row = {}
    for metric, scores in values.items():
        strata = scores if isinstance(scores, list) else [scores]
        low, high = bootstrap_interval(strata, seed=seed)
        row |= {metric: float(iqm(np.concatenate(strata))), f"{metric}_low": low, f"{metric}_high": high}
    return row


def cautions(found: Sequence[Entry], runs: pd.DataFrame, pairs: pd.DataFrame, baseline: str) -> list[str]:
    """What these runs cannot say, in sentences."""
    told = []
    smallest = runs.groupby(["env", "recipe"]).size().min()
    if smallest < FEW:
        told.append(f"Fewest runs of a recipe: {smallest}. With fewer than {FEW}, an interval is too narrow (it cannot "
                    "reach beyond the runs that were seen): look at the dots.")  # fmt: skip
    for row in compared_pairs(pairs).itertuples():
        if not (row.final_low > 0 or row.final_high < 0):
            told.append(f"{row.env or 'Here'}: these {row.pairs} seeds do not tell {row.recipe} from {baseline} "
                        "by the final score.")  # fmt: skip
    for env, own in runs.groupby("env", sort=False):
        unpaired = sorted(set(own["recipe"]) - {baseline} - set(pairs.loc[pairs["env"] == env, "recipe"]))
        if unpaired and len(set(own["recipe"])) > 1:
            told.append(f"{env or 'Here'}: no seed was run under both {baseline} and {', '.join(unpaired)}.")
    for (_, recipe, seed), own in runs.groupby(["env", "recipe", "seed"], sort=False):
        if len(own) > 1:
            files = ", ".join(own["file"])
            same = " They hold the same numbers." if len(own[list(METRICS)].drop_duplicates()) == 1 else ""
            told.append(f"Seed {seed} of {recipe} stands for {len(own)} runs ({files}): every one is a dot, but they "
                        f"share their tasks, and count as one pair.{same}")  # fmt: skip
    return told + _unlike_settings(found)


def _unlike_settings(found: Sequence[Entry]) -> list[str]:
    told = []
    for env in dict.fromkeys(entry.env for entry in found):
        settings = [dict(entry.asked.get("settings", {})) for entry in found if entry.env == env]
        decisive = {name for one in settings for name in one} - set(KEEPING)
        unlike = sorted(name for name in decisive if len({repr(one.get(name)) for one in settings}) > 1)
        if unlike:
            told.append(f"The runs of {env} differ in more than the recipe: {', '.join(unlike)}.")
    return told
