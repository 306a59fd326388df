"""Tables of the study on size, `data/results/carries`, for `findings.py`. Leaves out: the other studies
(`findings_of_studies`)."""

import json
import sys
from collections.abc import Iterator
from functools import cache, partial

import numpy as np
import pandas as pd
from findings_of_studies import BENCHMARKS, RESULTS, analysis, interval
from scipy.optimize import brentq
from scipy.stats import nct
from scipy.stats import t as student

import mas_lab as lab
from mas_lab.study.record import Recorded

OUT = RESULTS / "carries"
NAMES = {
    "ladder": "ladder of 6, stages 4 to 6", "paid_help": "paid help, helper", "stakes": "stakes, helper",
    "spot_check": "spot check, checker", "finisher": "finisher",
}  # fmt: skip
FAMILY = {"finisher": 3}
"""Contrasts that are corrected together: twelve, and those of the finisher by themselves."""


@cache
def found(measure: str) -> pd.DataFrame:
    """Return the contrasts to `grpo` of one measure, as `benchmarks/carries/analyse.py` wrote them."""
    return pd.read_csv(OUT / "contrasts.csv").query("measure == @measure")


@cache
def scores(size: str, setting: str, called: tuple[str, ...] = ()) -> pd.DataFrame:
    return analysis("carries").scores(size, setting, called)


def rows(measure: str) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield setting, recipe and their rows by size."""
    table = found(measure)
    for setting in NAMES:
        for arm in table["arm"].unique():
            yield setting, arm, table[(table["setting"] == setting) & (table["arm"] == arm)].set_index("size")


def contrasts(measure: str) -> str:
    """Return a row per setting and recipe: its difference to `grpo` at each size, or its ratio for norms.

    Bold is significant after the correction, ° before it alone; = means equal within the margin.
    """
    sizes = list(dict.fromkeys(found(measure)["size"]))
    lines = [f"| minus `grpo` | recipe | {' | '.join(sizes)} |", "|---" * (len(sizes) + 2) + "|"]
    if measure == "largest_norm":
        lines[0] = lines[0].replace("minus `grpo`", "over that of `grpo`")
    for setting, arm, own in rows(measure):
        cells = []
        for _, row in own.iterrows():
            ends = row[["difference", "low", "high"]].astype(float)
            said = [f"{one:.2f}" for one in 10**ends] if measure == "largest_norm" else [f"{one:+.2f}" for one in ends]
            middle = f"**{said[0]}**" if row["p_holm"] < 0.05 else said[0] + "°" * bool(row["p"] < 0.05)
            cells.append(f"{middle} ({said[1]} to {said[2]}){' =' * (row['told'] == 'equal')}")
        lines.append(f"| {NAMES[setting]} | `{arm}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def predicted() -> pd.DataFrame:
    """Return the predictions of the study on size, a row per setting and arm and a column per size."""
    blocks = (BENCHMARKS / "carries" / "README.md").read_text(encoding="utf-8").split("\n\n")
    tables = [block.splitlines() for block in blocks if block.startswith("| setting | arm |")]
    head, *lines = ([cell.strip(" `") for cell in line.strip("|").split("|")]
                    for line in [tables[0][0], *(line for table in tables for line in table[2:])])  # fmt: skip
    table = pd.DataFrame(lines, columns=head).rename(columns=lambda name: name.split(",")[0].replace(" M", "M"))
    table["setting"] = table["setting"].replace("", None).ffill()
    return table


@cache
def judged() -> pd.DataFrame:
    """Return a row per predicted contrast: setting, arm, size, what was predicted, and in, more or less.

    With two digits, as both are printed.
    """
    said = predicted()
    lines = []
    for setting, arm, own in rows("asked"):
        place = (said["setting"] == NAMES[setting]) & said["arm"].isin([arm, "all"])
        for size, row in own.iterrows():
            text = said.loc[place, size].item()
            low, high = row[["low", "high"]].astype(float).round(2)
            came = "more" if low > float(text) else "less" if high < float(text) else "in"
            lines.append({"setting": setting, "arm": arm, "size": size, "said": text, "came": came})
    return pd.DataFrame(lines)


def foreseen() -> str:
    """Return a row per setting and recipe: what was predicted, and whether the interval found holds it."""
    table = judged()
    sizes = list(dict.fromkeys(table["size"]))
    lines = [f"| predicted, and found | recipe | {' | '.join(sizes)} |", "|---" * (len(sizes) + 2) + "|"]
    for (setting, arm), own in table.groupby(["setting", "arm"], sort=False):
        cells = [f"{one.said}: {one.came}" for one in own.itertuples()]
        lines.append(f"| {NAMES[setting]} | `{arm}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def score() -> str:
    """Return in how many of the intervals found the predicted value lies."""
    counts = judged()["came"].value_counts()
    total = counts.sum()
    return (
        f"{counts['in']} of {total} contain the predicted value; {counts['more']} lie above it, {counts['less']} below."
    )


def stated() -> str:
    """Return a row per statement: what was predicted, and what was found at each size."""
    table = pd.read_csv(OUT / "statements.csv", dtype=str).fillna("")
    lines = [table.columns, ["---"] * len(table.columns), *table.to_numpy()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def levels() -> str:
    """Return a row per setting and size: right when asked before training, and after it under each recipe."""
    arms = ["grpo", "grpo_masked", "dr_mas_mean", "dr_mas", "own_pooled"]
    lines = [f"| right when asked | size | before | {' | '.join(arms)} |", "|---" * (len(arms) + 3) + "|"]
    for setting in NAMES:
        for size in [*dict.fromkeys(found("asked")["size"]), *["0.5B"] * (setting == "paid_help")]:
            table = scores(size, setting)
            means = table.groupby("arm")["asked"].mean().reindex(arms)
            cells = [f"{table['before'].mean():.2f}", *("" if pd.isna(x) else f"{x:.2f}" for x in means)]
            lines.append(f"| {NAMES[setting]} | {size} | {' | '.join(cells)} |")
    return "\n".join(lines)


def mean_alone() -> str:
    """Return a row per setting: `own_pooled` minus `grpo_masked`, both without rows that have no peer."""
    sizes = [*dict.fromkeys(found("asked")["size"]), "0.5B"]
    lines = [f"| right when asked, minus `grpo_masked` | recipe | {' | '.join(sizes)} |", "|---" * 7 + "|"]
    for setting, arm in (*((one, "own_pooled") for one in NAMES), ("paid_help", "dr_mas_mean")):
        cells = []
        for size in sizes:
            table = scores(size, setting).pivot(index="seed", columns="arm", values="asked") if (
                setting == "paid_help" or size != "0.5B") else {}  # fmt: skip
            cells.append(interval(table[arm] - table["grpo_masked"]) if arm in table else "")
        lines.append(f"| {NAMES[setting]} | `{arm}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def shares() -> str:
    """Return a row per setting and size: of all wrong answers those reinforced, of all right ones those punished."""
    arms = ["grpo", "grpo_masked", "dr_mas_mean", "dr_mas", "own_pooled"]
    lines = [f"| share | size | {' | '.join(arms)} |", "|---" * (len(arms) + 2) + "|"]
    for row in answers().itertuples():
        cells = ["" if pd.isna(x := getattr(row, arm)) else f"{x:.2f}" for arm in arms]
        lines.append(f"| {row.said} | {row.size} | {' | '.join(cells)} |")
    return "\n".join(lines)


@cache
def answers() -> pd.DataFrame:
    """Return a row per setting, size and kind of answer, and a column per recipe: shares over all seeds."""
    late = {"ladder": ("stage_5", "stage_6"), "paid_help": ("helper",), "finisher": ("finisher",)}
    lines = []
    for setting, agents in late.items():
        for size in ("0.3M", "3M", "10M", "135M", *["0.5B"] * (setting == "paid_help")):
            table = pd.read_csv(OUT / size / setting / "measures.csv")
            table = table[table["agent"].isin(agents)]
            wrong = table["wrong"].groupby(table["arm"])
            name = "ladder, stages 5 and 6" if setting == "ladder" else setting.replace("_", " ")
            share = (table["reinforced"] * table["wrong"]).groupby(table["arm"]).sum() / wrong.sum()
            lines.append({"said": f"{name}: wrong answers reinforced", "size": size, **share})
            if "punished" in table and setting == "paid_help":
                punished = table.groupby("arm")["punished"].mean()
                lines.append({"said": f"{name}: right answers punished", "size": size, **punished})
    return pd.DataFrame(lines)


def detectable() -> str:
    """Return a row per setting: the difference to `grpo` that this study would find significant four times in five."""
    sizes = list(dict.fromkeys(found("asked")["size"]))
    lines = [f"| detectable | recipe | {' | '.join(sizes)} |", "|---" * 6 + "|"]
    for setting in NAMES:
        for arm in ("dr_mas", "own_pooled"):
            cells = []
            for size in sizes:
                table = scores(size, setting).pivot(index="seed", columns="arm", values="asked")
                apart = (table[arm] - table["grpo"]).dropna()
                many, level = len(apart), 0.05 / FAMILY.get(setting, 12)
                bound = student.ppf(1 - level / 2, many - 1)
                shift = brentq(lambda one, many=many, bound=bound: nct.sf(bound, many - 1, one) - 0.8, 0, 50)
                cells.append(f"{shift * apart.std() / np.sqrt(many):.2f}")
            lines.append(f"| {NAMES[setting]} | `{arm}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def rates(sizes: tuple[str, ...]) -> str:
    """Return a row per size and recipe: right when asked at each rate, the mean over ladder and paid help, one seed."""
    tables = {}
    for size in sizes:
        means = []
        for setting in ("ladder", "paid_help"):
            agents = Recorded(OUT / size / f"rates_{setting}").agents.query("window == 'end' and agent != 'solver'")
            means.append(agents.groupby("arm")["quiz_after"].mean())
        both = ((means[0] + means[1]) / 2).rename(size).reset_index()
        both[["recipe", "rate"]] = both["arm"].str.split(" at ", expand=True)
        tables[size] = both.pivot(index="recipe", columns="rate", values=size)
    every = pd.concat(tables, names=["size"])
    every = every[sorted(every, key=float)]
    lines = [f"| right when asked | recipe | {' | '.join(f'{float(x):g}' for x in every)} |"]
    lines.append("|---" * (len(every.columns) + 2) + "|")
    for (size, recipe), row in every.iterrows():
        lines.append(f"| {size} | `{recipe}` | {' | '.join('' if pd.isna(x) else f'{x:.2f}' for x in row)} |")
    return "\n".join(lines)


def listed(values: pd.Series, digits: int = 2) -> str:
    return ", ".join(f"{x:.{digits}f}" for x in values)


def one_by_one(size: str, setting: str) -> str:
    """Return a row per recipe of a record with three seeds: each seed before and after."""
    table = scores(size, setting).set_index("seed")
    lines = [
        "| recipe | right when asked | minus `grpo`; mean and interval | success | largest norm |",
        "|---" * 5 + "|",
    ]
    base = table[table["arm"] == "grpo"]
    lines.append(f"| before training | {listed(base['before'])} | | | |")
    for arm, own in table.groupby("arm", sort=False):
        less = own["asked"] - base["asked"]
        apart = "" if arm == "grpo" else f"{', '.join(f'{x:+.2f}' for x in less)}; {interval(less)}"
        lines.append(f"| `{arm}` | {listed(own['asked'])} | {apart} | {listed(own['success'])} | "
                     f"{listed(own['largest_norm'], 1)} |")  # fmt: skip
    return "\n".join(lines)


WORDS = {
    "plan_path": ("plan_path", "plan_path_slow"),
    "tldr": ("tldr", "tldr_taught"),
    "math": ("math",),
}


def claimed(name: str) -> str:
    """Return a row per variant of a task in words: its score before and after training, and the steps it made."""
    lines = ["| variant | before | after | steps |", "|---|---|---|---|"]
    for record in WORDS[name]:
        for arm, own in Recorded(OUT / "135M" / record).table.sort_values("seed").groupby("arm", sort=False):
            lines.append(f"| {arm} | {listed(own['start'])} | {listed(own['final'])} | {listed(own['steps'], 0)} |")
    return "\n".join(lines)


def walked() -> str:
    """Return a row per variant and agent of the maze in words: how it answered at the start and at the end."""
    lines = ["| variant, agent | | copies the hint | advantage 0 | prompts a step | nats a token |", "|---" * 6 + "|"]
    for record in WORDS["plan_path"]:
        table = pd.read_csv(OUT / "135M" / record / "measures.csv")
        for (arm, agent, window), own in table.groupby(["arm", "agent", "window"], sort=False):
            cells = [f"{own[x].min():.2f} to {own[x].max():.2f}" for x in ("copied", "zero")]
            cells += [f"{own['prompts'].mean():.0f}", f"{own['entropy'].mean():.2f}"]
            lines.append(f"| {arm}, {agent} | {window} | {' | '.join(cells)} |")
    return "\n".join(lines)


def copied() -> str:
    """Return a row per variant and writer of `tldr`: the share of words in runs of six that the post has too."""
    sys.path.insert(0, str(BENCHMARKS))
    from real_tldr import copied as share

    posts = lab.make_env("tldr", size="full", data=str(RESULTS.parent / "tldr" / "posts.jsonl"))
    source = {task.id: task.data["source"] for task in posts.tasks(12, "test", 0)}
    lines = ["| variant | writer | copied, by seed |", "|---|---|---|"]
    for record in WORDS["tldr"]:
        told = pd.DataFrame(json.loads((OUT / "135M" / record / "texts.json").read_text(encoding="utf-8")))
        told["copied"] = [share(row.completion, source[row.task]) for row in told.itertuples()]
        by_seed = told.groupby(["arm", "agent", "seed"], sort=False, dropna=False)["copied"].mean()
        for (arm, agent), own in by_seed.groupby(["arm", "agent"], sort=False):
            lines.append(f"| {arm} | {agent} | {listed(own)} |")
    return "\n".join(lines)


def fixer() -> str:
    """Return a row per recipe for the fixer of `math` in words, each seed by itself."""
    agents = Recorded(OUT / "135M" / "math").agents.query("agent == 'fixer'")
    lines = ["| recipe | own return before | after | called, first steps | no peer, first steps | largest norm |"]
    lines.append("|---" * 6 + "|")
    for arm, own in agents.groupby("arm", sort=False):
        start, end = (own[own["window"] == window] for window in ("start", "end"))
        cells = [listed(end[x]) for x in ("own_before", "own_after")]
        cells += [listed(start[x]) for x in ("spoke", "peerless")] + [listed(end["largest_norm"], 1)]
        lines.append(f"| `{arm}` | {' | '.join(cells)} |")
    return "\n".join(lines)


TABLES = {
    "carried": partial(contrasts, "asked"), "carried_success": partial(contrasts, "success"),
    "carried_norms": partial(contrasts, "largest_norm"), "foreseen": foreseen, "score": score, "stated": stated,
    "levels": levels, "mean_alone": mean_alone, "shares": shares, "detectable": detectable,
    "rates_pocket": partial(rates, ("0.3M", "3M", "10M")), "rates_words": partial(rates, ("135M",)),
    "half_billion": partial(one_by_one, "0.5B", "paid_help"), "longer": partial(one_by_one, "135M", "ladder-4x"),
    "shared_ladder": partial(one_by_one, "135M", "ladder-shared"),
    "shared_help": partial(one_by_one, "135M", "paid_help-shared"), "maze_in_words": partial(claimed, "plan_path"),
    "walked": walked, "posts_in_words": partial(claimed, "tldr"), "copied": copied,
    "math_in_words": partial(claimed, "math"), "fixer": fixer,
}  # fmt: skip
"""Name of a block -> the function that makes its table."""
