"""Writes the numbers into `docs/findings.md` from the recorded studies: `python docs/findings.py`.

A block between `<!-- study NAME: TASK; TASK -->` and `<!-- /study -->` becomes the table of these tasks, or of all; the
blocks of `MADE` become theirs. Leaves out: the pictures (`pictures.py`) and what the numbers say.
"""

import json
import re
from pathlib import Path

import pandas as pd

import mas_lab as lab
from mas_lab.paths import data_dir
from mas_lab.study.comparison import FEW
from mas_lab.study.intervals import bootstrap_interval, holm, iqm, t_test
from mas_lab.study.record import Recorded

PAGE, STUDIES = Path(__file__).parent / "findings.md", data_dir() / "results" / "studies"
BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
BASELINES = {
    "baselines": ("dr_mas", "grpo", None),
    "paid_help": ("own", "global", "pay 1.0"),
    "finisher": ("own", "global", "low 0.0"),
    "math": ("own", "global", "without one"),
}
"""For each study: the arm with the agent's own mean and scale, the arm with those of the task, and the task to read.

None reads all tasks. The other studies share their remaining tasks with `baselines`."""
BLOCK = re.compile(r"<!-- study (\w+)(?:: ([^>]*?))? -->\n.*?<!-- /study -->", re.DOTALL)
HEAD = "| task | arm | learning rate | {} at the end | minus {}, seed by seed | pairs won | p |\n" + "|---" * 7 + "|"


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


def peaks(name: str) -> str:
    """A row per task: of each arm the highest held-out score of each run, the mean over seeds, and its distance to the
    last score."""
    curves = Recorded(STUDIES / name).curves
    runs = curves.groupby(["task", "arm", "seed"], sort=False)["success"].agg(["max", "last"])
    means = runs.groupby(level=["task", "arm"], sort=False).mean()
    arms = list(dict.fromkeys(means.index.get_level_values("arm")))
    lines = [f"| peak, and what is lost of it | {' | '.join(arms)} |", "|---" * (len(arms) + 1) + "|"]
    for task, own in means.groupby(level="task", sort=False):
        own = own.droplevel("task").reindex(arms)
        cells = ["" if pd.isna(row["max"]) else f"{row['max']:.2f}, {row['last'] - row['max']:+.2f}"
                 for _, row in own.iterrows()]  # fmt: skip
        lines.append(f"| {task} | {' | '.join(cells)} |")
    return "\n".join(lines)


def rows_as_shared() -> str:
    """Return a row per task: separate weights minus shared ones, at equal episodes and at equal rows per weights."""
    shared, wide = (Recorded(STUDIES / name).table for name in ("sharing", "sharing_data"))
    shared = shared[shared["phase"] == "compare"]
    lines = [
        "| separate minus shared, own baseline | at equal episodes | at equal rows per weights |",
        "|---" * 3 + "|",
    ]
    for task, runs in wide.groupby("task", sort=False):
        by = shared[shared["task"] == task].pivot(index="seed", columns="arm", values="final")
        cells = []
        for other in (by["separate, own"], runs.set_index("seed")["final"]):
            differences = (other - by["shared, own"]).to_numpy()
            low, high = bootstrap_interval([differences])
            cells.append(f"{float(iqm(differences)):+.3f} ({low:+.3f} to {high:+.3f})")
        lines.append(f"| {task} | {' | '.join(cells)} |")
    return "\n".join(lines)


def norm_shares(name: str) -> str:
    """Return a row per agent: its share of its team's tokens, and of the sum of gradient norms under each arm."""
    agents = Recorded(STUDIES / name).agents
    last = agents[(agents["window"] == "end") & (agents["phase"] == "compare")]
    means = last.groupby(["task", "arm", "agent"], sort=False)[["median_norm", "tokens"]].mean()
    shares = means / means.groupby(["task", "arm"], sort=False).transform("sum")
    arms = list(dict.fromkeys(shares.index.get_level_values("arm")))
    lines = [f"| share of the norms | of the tokens | {' | '.join(arms)} |", "|---" * (len(arms) + 2) + "|"]
    for (task, agent), own in shares.groupby(["task", "agent"], sort=False):
        own = own.droplevel(["task", "agent"])
        cells = [f"{own['tokens'].mean():.2f}", *(f"{own.loc[arm, 'median_norm']:.2f}" for arm in arms)]
        lines.append(f"| {task}, {agent} | {' | '.join(cells)} |")
    return "\n".join(lines)


def asked(name: str) -> str:
    """A row per agent that learns: how often it is right when asked outside of any episode, before training and after
    it under each arm, the mean over seeds."""
    found = once(Recorded(STUDIES / name).agents).dropna(subset="quiz_after")
    learns = (found["quiz_before"] != found["quiz_after"]).groupby(["task", "agent"]).transform("any")
    means = found[learns].groupby(["task", "agent", "arm"], sort=False)[["quiz_before", "quiz_after"]].mean()
    arms, agents = means.index.unique("arm"), means.index.droplevel("arm").unique()
    after = means["quiz_after"].unstack("arm").reindex(index=agents, columns=arms)
    before = means["quiz_before"].groupby(["task", "agent"]).mean()
    lines = [f"| right when asked | before | {' | '.join(arms)} |", "|---" * (len(arms) + 2) + "|"]
    for (task, agent), row in after.iterrows():
        cells = [f"{before[task, agent]:.2f}", *("" if pd.isna(one) else f"{one:.2f}" for one in row)]
        lines.append(f"| {task}, {agent} | {' | '.join(cells)} |")
    return "\n".join(lines)


def once(agents: pd.DataFrame) -> pd.DataFrame:
    """Return a row per task, agent, seed and arm: norms, quiz, and `right`, how often it is right after training."""
    by = agents.groupby(["task", "agent", "seed", "arm"], sort=False)
    columns = [name for name in ("quiz_before", "quiz_after", "own_after", "median_norm") if name in agents]
    found = by[columns].first()
    right = found["quiz_after"].fillna(found["own_after"]) if "quiz_after" in found else found["own_after"]
    return found.assign(right=right)


def foretold() -> pd.DataFrame:
    """Return a row per task and agent with weights of its own: what was known at the start, and what came of it.

    Of five seeds or more. `gain`, `F`: of the first five training steps under the global baseline, medians over seeds
    (`gain` as an earlier version recorded it, where it gave one). `ratio`: of its median norms, global over own.
    `difference`: how much more often it is right after training with its own mean and scale, the mean over seeds; asked
    outside of episodes where the study has a quiz, else in the episodes of the last score. `low`, `high`: its 95 %
    interval. `p`: of a paired t test.
    """
    rows = []
    for name, (own_arm, global_arm, task) in BASELINES.items():
        agents = Recorded(STUDIES / name).agents
        agents = agents if task is None else agents[agents["task"] == task]
        ends = once(agents)
        own, other = (ends.xs(arm, level="arm") for arm in (own_arm, global_arm))
        start = agents[(agents["window"] == "start") & (agents["arm"] == global_arm) & (agents["shared"] == False)]  # noqa: E712
        for (task, agent), said in start.groupby(["task", "agent"], sort=False):
            here = (task, agent)
            pairs = (own["right"] - other["right"]).xs(here, level=["task", "agent"]).dropna()
            if len(pairs) < FEW or pairs.eq(0).all():  # explored with few seeds, hardly ever reached, or frozen
                continue
            low, high = bootstrap_interval([pairs]) if len(pairs) >= 10 else t_test(pairs)[1:]
            norms = (other["median_norm"] / own["median_norm"].where(own["median_norm"] > 0)).xs(
                here, level=["task", "agent"]
            )
            gain = said.loc[said["own"] != "cannot be told", "gain"].median()
            rows.append({
                "study": name, "task": task, "agent": agent, "seeds": len(pairs), "gain": gain,
                "F": said["F"].median(), "ratio": norms.median(), "difference": pairs.mean(), "low": low, "high": high,
                "sure": low > 0 or high < 0, "p": t_test(pairs)[0],
            })  # fmt: skip
    return pd.DataFrame(rows)


def right(points: pd.DataFrame, name: str) -> tuple[int, int]:
    """Return how often a number above 1 has the sign of the difference, and of how many that are sure and known."""
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


COSTS, PAYS = 0.8, 1.25
"""The earlier rule said "may cost" of a gain below the first, "may pay" above the second."""
NUMBERS = {"gain": "gain from credits", "F": "F of Dr. MAS", "ratio": "ratio of median norms, global over own"}
WORDS = ("may cost", "hardly matters", "may pay")


def told_beforehand() -> str:
    """Return how often each number was on the right side of 1, what came after each verdict, and each agent."""
    points = foretold()
    lines = [
        f"| said by | right side | rank correlation, {len(points)} agents | without the ladder |",
        "|---|---|---|---|",
    ]
    others = points[points["task"] != "ladder of 8"]
    for name, called in NUMBERS.items():
        hits, known = right(points, name)
        every, rest = (part[[name, "difference"]].corr("spearman").iloc[0, 1] for part in (points, others))
        lines.append(f"| {called} | {hits} of {known} | {every:+.2f} | {rest:+.2f} |")
    lines += ["", "| the earlier rule said | better, not sure, worse | differences |", "|---|---|---|"]
    words = (
        pd.cut(points["gain"], [-1, COSTS, PAYS, float("inf")], labels=WORDS).astype(object).fillna("cannot be told")
    )
    for word in (*WORDS, "cannot be told"):
        own = points[words == word]
        counts = [int((own["sure"] & (own["difference"] > 0)).sum()), int((~own["sure"]).sum()),
                  int((own["sure"] & (own["difference"] < 0)).sum())]  # fmt: skip
        span = f"{own['difference'].min():+.2f} to {own['difference'].max():+.2f}" if len(own) else ""
        lines.append(f"| {word} | {', '.join(map(str, counts))} | {span} |")
    many = int((holm(points["p"]) < 0.05).sum())
    lines += ["", f"After Holm's correction for {len(points)} agents, {many} differences are below p = 0.05.", ""]
    lines += ["| setting, agent | gain | F | norms, global over own | own minus global |", "|---|---|---|---|---|"]
    for row in points.itertuples():
        gain = "cannot be told" if pd.isna(row.gain) else f"{row.gain:.2f}"
        ends = f"{row.difference:+.2f} ({row.low:+.2f} to {row.high:+.2f}), {row.seeds} seeds"
        lines.append(f"| {row.task}, {row.agent} | {gain} | {row.F:.2f} | {row.ratio:.2f} | {ends} |")
    return "\n".join(lines)


TEST = data_dir() / "results" / "foretold"
PREDICTORS = {
    "progress": "progress, gone since", "weighted_gain": "weighted gain", "gain": "gain from credits",
    "signal": "signal", "spoke": "rarely called", "F": "F of Dr. MAS", "norm_ratio": "ratio of squared norms",
    "constant": 'always "hardly matters"',
}  # fmt: skip


def fixed_test() -> str:
    """Return a row per predictor: hits, misses, untold, and its share of hits and rank correlation with intervals."""
    found = pd.read_csv(TEST / "hits.csv")
    lines = ["| agents | said by | hits, misses, untold | share of hits | rank correlation |", "|---" * 5 + "|"]
    for which in ("all agents", "called on a condition"):
        rows = found[found["agents"] == which].set_index("predictor")
        for place, (name, called) in enumerate(PREDICTORS.items()):
            row = rows.loc[name]
            counts = f"{row['hit']:.0f}, {row['miss']:.0f}, {row['untold']:.0f}"
            numbers = [_with_interval(row, "share", ""), _with_interval(row, "rank", "+")]
            lines.append(f"| {which if not place else ''} | {called} | {counts} | {' | '.join(numbers)} |")
    return "\n".join(lines)


def _with_interval(row: pd.Series, of: str, sign: str) -> str:
    """Return `0.60 (0.23 to 1.00)`, or an empty text."""
    told = [f"{row[name]:{sign}.2f}" for name in (of, f"{of}_low", f"{of}_high")]
    return "" if pd.isna(row[of]) else f"{told[0]} ({told[1]} to {told[2]})"


def moved() -> str:
    """Return a row per agent that came out better or worse in the test, with what was said of it."""
    agents = pd.read_csv(TEST / "agents.csv")
    contrast = "dr_mas - grpo"
    lines = ["| setting, agent | spoke | gain | weighted gain | progress | dr_mas minus grpo |", "|---" * 6 + "|"]
    for _, row in agents[agents[f"{contrast}, came"].isin(["better", "worse"])].iterrows():
        numbers = row[["gain", "weighted_gain", "progress"]]
        said = " | ".join("cannot be told" if pd.isna(one) else f"{one:.2f}" for one in numbers)
        spoke = "few rows" if pd.isna(row["spoke"]) else f"{row['spoke']:.2f}"
        lines.append(f"| {row['setting']}, {row['agent']} | {spoke} | {said} | {row[contrast]:+.2f} |")
    return "\n".join(lines)


def uphill() -> str:
    """Return a row per contrast and predictor of the test of `lab.uphill`: rank correlations with intervals."""
    found = pd.read_csv(data_dir() / "results" / "uphill" / "ranks.csv")
    names = {"cos_own": "`cos_own`", "cos_team": "`cos_team`", "gain": "gain", "early": "a short training"}
    lines = ["| contrast | foretold by | own reward | above the gain | team's return |", "|---" * 5 + "|"]
    for _, row in found.iterrows():
        apart = row.rename({"above gain": "above", "above_low": "above_low", "above_high": "above_high"})
        own = _with_interval(row.rename({"low": "rank_low", "high": "rank_high"}), "rank", "+")
        numbers = [own, _with_interval(apart, "above", "+"), f"{row['rank with the return']:+.2f}"]
        lines.append(f"| {row['contrast']} | {names[row['predictor']]} | {' | '.join(numbers)} |")
    return "\n".join(lines)


def robust() -> str:
    """Return a row per task: `own_robust` and `own_pooled` minus the better of `grpo` and `dr_mas`, seed by seed."""
    board = lab.AblationBoard(Recorded(STUDIES / "robust"))
    forms = ("own_robust", "own_pooled")
    heads = " | ".join(f"{form} minus it" for form in forms)
    lines = [f"| task | better of grpo and dr_mas | {heads} |", "|---" * 4 + "|"]
    for task, runs in board.runs.groupby("env", sort=False):
        finals = runs.pivot(index="seed", columns="recipe", values="final")
        better = finals[["grpo", "dr_mas"]].mean().idxmax()
        cells = []
        for form in forms:
            differences = (finals[form] - finals[better]).to_numpy()
            low, high = bootstrap_interval([differences])
            cells.append(f"{float(iqm(differences)):+.3f} ({low:+.3f} to {high:+.3f})")
        lines.append(f"| {task} | {better} | {' | '.join(cells)} |")
    return "\n".join(lines)


def trials() -> str:
    """Return a row per task and rate of the trials: the mean success of each form over two seeds, and a training's
    seconds."""
    runs = Recorded(STUDIES / "robust_trials").table
    runs["seconds"], runs["final"] = (pd.to_numeric(runs[name], errors="coerce") for name in ("seconds", "final"))
    runs[["form", "rate"]] = runs["arm"].str.rsplit(" at ", n=1, expand=True)
    forms = list(dict.fromkeys(runs["form"]))
    means = runs.groupby(["task", "rate", "form"], sort=False)["final"].mean().unstack()[forms]
    lines = [f"| task, learning rate | {' | '.join(forms)} |", "|---" * (len(forms) + 1) + "|"]
    for (task, rate), row in means.iterrows():
        lines.append(f"| {task}, {rate} | {' | '.join('failed' if pd.isna(one) else f'{one:.2f}' for one in row)} |")
    seconds = runs.groupby("form", sort=False)["seconds"].mean()[forms]
    lines.append(f"| seconds a training | {' | '.join(f'{one:.0f}' for one in seconds)} |")
    return "\n".join(lines)


def predicted() -> pd.DataFrame:
    """Return the predictions of the study on size, a row per setting and arm and a column per size."""
    blocks = (BENCHMARKS / "carries" / "README.md").read_text(encoding="utf-8").split("\n\n")
    tables = [block.splitlines() for block in blocks if block.startswith("| setting | arm |")]
    head, *rows = ([cell.strip(" `") for cell in line.strip("|").split("|")]
                   for line in [tables[0][0], *(line for table in tables for line in table[2:])])  # fmt: skip
    table = pd.DataFrame(rows, columns=head).rename(columns=lambda name: name.split(",")[0].replace(" M", "M"))
    table["setting"] = table["setting"].replace("", None).ffill()
    return table


def carried() -> str:
    """Return a row per setting and arm of the study on size: at each size what was predicted, and what was found."""
    found = pd.read_csv(data_dir() / "results" / "carries" / "contrasts.csv").query("measure == 'asked'")
    found = found.rename(columns={"low": "difference_low", "high": "difference_high"})
    sizes = list(dict.fromkeys(found["size"]))
    lines = [f"| right when asked, minus `grpo` | arm | {' | '.join(sizes)} |", "|---" * (len(sizes) + 2) + "|"]
    for row in predicted().to_dict("records"):
        named = row["setting"].split(",")[0].replace(" of 6", "").replace(" ", "_")
        for arm in found["arm"].unique() if row["arm"] == "all" else [row["arm"]]:
            own = found[(found["setting"] == named) & (found["arm"] == arm)].set_index("size")
            made = {size: f"{row[size]}: {_with_interval(one, 'difference', '+')}, {one['told']}"
                    for size, one in own.iterrows()}  # fmt: skip
            cells = [made.get(size, "") for size in sizes]
            if any(cells):
                lines.append(f"| {row['setting']} | `{arm}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def stated() -> str:
    """Return a row per statement of the study on size: what was predicted, and what was found at each size."""
    found = pd.read_csv(data_dir() / "results" / "carries" / "statements.csv", dtype=str).fillna("")
    rows = [found.columns, ["---"] * len(found.columns), *found.to_numpy()]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


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


MADE = {
    "roles": roles, "foretold": told_beforehand, "sizes": sizes, "fixed_test": fixed_test, "moved": moved,
    "uphill": uphill,
    "robust": robust, "trials": trials, "rows_as_shared": rows_as_shared,
    "sharing_norms": lambda: norm_shares("sharing"), "sharing_peaks": lambda: peaks("sharing"),
    "sharing_long_peaks": lambda: peaks("sharing_long"),
    "carried": carried, "stated": stated, "peaks": lambda: peaks("baselines"), "asked": lambda: asked("baselines"),
}  # fmt: skip
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
