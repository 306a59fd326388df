"""Tables of single studies on pocket models, for `findings.py`. Leaves out: the study on size (`findings_of_size`)."""

import importlib.util
import json
import sys
from functools import cache, partial
from pathlib import Path
from types import ModuleType

import pandas as pd

import mas_lab as lab
from mas_lab.paths import data_dir
from mas_lab.study.comparison import FEW
from mas_lab.study.intervals import bootstrap_interval, holm, iqm, t_test
from mas_lab.study.record import Recorded

RESULTS = data_dir() / "results"
STUDIES, BENCHMARKS = RESULTS / "studies", Path(__file__).resolve().parents[1] / "benchmarks"


@cache
def record(name: str) -> Recorded:
    """Return a study's record, whose tables are read once."""
    return Recorded(STUDIES / name)


BASELINES = {
    "baselines": ("dr_mas", "grpo", None),
    "paid_help": ("own", "global", "pay 1.0"),
    "finisher": ("own", "global", "low 0.0"),
    "math": ("own", "global", "without one"),
}
"""For each study: the arm with the agent's own mean and scale, the arm with those of the task, and the task to read.

None reads all tasks. The other studies share their remaining tasks with `baselines`."""


def peaks(name: str) -> str:
    """A row per task: of each arm the highest held-out score of each run, the mean over seeds, and its distance to the
    last score."""
    curves = record(name).curves
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
    shared, wide = (record(name).table for name in ("sharing", "sharing_data"))
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
    agents = record(name).agents
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
    found = once(record(name).agents).dropna(subset="quiz_after")
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
        agents = record(name).agents
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


TEST = RESULTS / "foretold"
PREDICTORS = {
    "progress": "progress, gone since", "weighted_gain": "weighted gain", "gain": "gain from credits",
    "signal": "signal", "spoke": "rarely called", "F": "F of Dr. MAS", "norm_ratio": "ratio of squared norms",
    "constant": 'always "hardly matters"',
}  # fmt: skip


def fixed_test() -> str:
    """Return a row per predictor: hits, misses, undecided, share of hits and rank correlation with intervals."""
    found = pd.read_csv(TEST / "hits.csv")
    lines = ["| agents | said by | hits, misses, undecided | share of hits | rank correlation |", "|---" * 5 + "|"]
    for which in ("all agents", "called on a condition"):
        rows = found[found["agents"] == which].set_index("predictor")
        for place, (name, called) in enumerate(PREDICTORS.items()):
            row = rows.loc[name]
            counts = f"{row['hit']:.0f}, {row['miss']:.0f}, {row['untold']:.0f}"
            numbers = [with_interval(row, "share", ""), with_interval(row, "rank", "+")]
            lines.append(f"| {which if not place else ''} | {called} | {counts} | {' | '.join(numbers)} |")
    return "\n".join(lines)


def with_interval(row: pd.Series, of: str, sign: str) -> str:
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
    found = pd.read_csv(RESULTS / "uphill" / "ranks.csv")
    names = {"cos_own": "`cos_own`", "cos_team": "`cos_team`", "gain": "gain", "early": "a short training"}
    lines = ["| contrast | foretold by | own reward | above the gain | team's return |", "|---" * 5 + "|"]
    for _, row in found.iterrows():
        apart = row.rename({"above gain": "above", "above_low": "above_low", "above_high": "above_high"})
        own = with_interval(row.rename({"low": "rank_low", "high": "rank_high"}), "rank", "+")
        numbers = [own, with_interval(apart, "above", "+"), f"{row['rank with the return']:+.2f}"]
        lines.append(f"| {row['contrast']} | {names[row['predictor']]} | {' | '.join(numbers)} |")
    return "\n".join(lines)


def robust() -> str:
    """Return a row per task: `own_robust` and `own_pooled` minus the better of `grpo` and `dr_mas`, seed by seed."""
    board = lab.AblationBoard(record("robust"))
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
    runs = record("robust_trials").table
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


def sizes() -> str:
    """What an episode costs each agent after training: turns, tokens, and multiplications by weights, in millions."""
    pockets, weights = data_dir() / "pocket", {}
    for name in ("math", "math_small"):
        weights[name] = json.loads((pockets / name / "provenance.json").read_text(encoding="utf-8"))["parameters"]
    agents = record("sizes").agents
    by_agent = agents[agents["window"] == "end"].groupby(["arm", "agent"], sort=False)
    lines = ["| team | agent | weights | turns | tokens read and said | million multiplications |"]
    lines.append("|---|---|---|---|---|---|")
    for (arm, agent), row in by_agent[["turns", "tokens", "prompt_tokens"]].mean().iterrows():
        own = weights["math_small" if arm in ("both small", f"small {agent}") else "math"]
        moved = row["tokens"] + row["prompt_tokens"]
        numbers = f"{row['turns']:.2f} | {moved:.1f} | {moved * own / 1e6:.1f}"
        lines.append(f"| {arm} | {agent} | {own:,} | {numbers} |")
    return "\n".join(lines)


@cache
def analysis(of: str) -> ModuleType:
    """Return `benchmarks/OF/analyse.py`, which has the analysis that was fixed beforehand."""
    folder = BENCHMARKS / of
    sys.path.insert(0, str(folder))
    found = importlib.util.spec_from_file_location(f"analyse_{of}", folder / "analyse.py")
    module = importlib.util.module_from_spec(found)
    sys.modules.pop("run", None)  # each folder has its own
    found.loader.exec_module(module)
    sys.modules.pop("run", None)
    sys.path.remove(str(folder))
    module.OUT = RESULTS / of
    return module


def interval(differences: pd.Series) -> str:
    """Return `+0.12 (+0.01 to +0.26)`: the mean with the 95 % interval of a paired t test."""
    _, low, high = t_test(differences.dropna().to_numpy())
    return f"{differences.mean():+.2f} ({low:+.2f} to {high:+.2f})"


STEPS = (("grpo_masked", "grpo"), ("own mean", "grpo_masked"), ("dr_mas", "own mean"), ("own_pooled", "own mean"))
"""Neighbours: leaving out rows without a peer, the own mean, the own deviation per task, one deviation per agent."""


def parts() -> str:
    """Return a row per agent that a condition calls: what each part of a recipe changes in its right answers."""
    right = once(record("baselines").agents)["quiz_after"].sort_index()
    lines = [f"| right when asked | {' | '.join(f'{one} minus {other}' for one, other in STEPS)} |", "|---" * 5 + "|"]
    agents = {
        "paid help 0.2": "helper", "stakes": "helper", "finisher 0.8": "finisher", "spot check": "checker",
        "cascade": "tier_4", "ladder of 8": "stage_8",
    }  # fmt: skip
    for task, agent in agents.items():
        by_arm = right.loc[task, agent].unstack("arm")
        lines.append(f"| {task}, {agent} | {' | '.join(interval(by_arm[a] - by_arm[b]) for a, b in STEPS)} |")
    return "\n".join(lines)


def lone_rows() -> str:
    """Return a row per contrast of the study of the released code, in success, with the pairs that differ."""
    runs = record("released").table.pivot(index="seed", columns="arm", values="final")
    lines = ["| minus | success | higher in, of the seeds that differ |", "|---|---|---|"]
    for arm, other in (("lone rows kept", "dr_mas"), ("released", "dr_mas"), ("released", "grpo_masked"),
                       ("dr_mas", "grpo_masked")):  # fmt: skip
        apart = runs[arm] - runs[other]
        lines.append(f"| {arm} minus {other} | {interval(apart)} | {(apart > 0).sum()} of {(apart != 0).sum()} |")
    agents = record("released").agents.query("window == 'end'")
    late = agents[agents["agent"].isin(["stage_6", "stage_7", "stage_8"])].groupby("arm")["largest_norm"].median()
    lines += ["", "| largest norm of stages 6 to 8, median | |", "|---|---|"]
    return "\n".join([*lines, *(f"| {arm} | {late[arm]:.1f} |" for arm in runs.columns)])


def spent(name: str) -> str:
    """Return a row per task and variant: score before training, and what a training took."""
    runs = record(name).table
    runs = runs[runs["phase"] == "compare"]
    lines = ["| task | variant | before | optimizer steps | tokens an episode | seconds |", "|---" * 6 + "|"]
    for (task, arm), own in runs.groupby(["task", "arm"], sort=False):
        steps, tokens = own["optimizer_steps"], own["tokens"].sum() / own["episodes"].sum()
        span = f"{steps.min():.0f} to {steps.max():.0f}" if steps.min() < steps.max() else f"{steps.min():.0f}"
        numbers = f"{own['start'].mean():.2f} | {span} | {tokens:.0f} | {own['seconds'].median():.0f}"
        lines.append(f"| {task} | {arm} | {numbers} |")
    return "\n".join(lines)


def tried(name: str, task: str) -> str:
    """Return a row per variant of a task: the mean score at each learning rate that was tried on other seeds."""
    rates = pd.read_csv(STUDIES / name / "rates.csv").query("task == @task")
    means = rates.pivot(index="arm", columns="lr", values="mean")
    lines = [f"| {task} | {' | '.join(f'{one:g}' for one in means)} |", "|---" * (len(means.columns) + 1) + "|"]
    return "\n".join([*lines, *(f"| {arm} | {' | '.join('' if pd.isna(x) else f'{x:.2f}' for x in row)} |"
                                for arm, row in zip(means.index, means.to_numpy(), strict=True))])  # fmt: skip


def ladder_norms() -> str:
    """Return a row per stage of the ladder of eight: its largest norm under either baseline, median and range."""
    agents = record("ladder").agents.query("window == 'end' and task == '8 agents' and phase == 'compare'")
    lines = ["| largest norm | global | own |", "|---|---|---|"]
    for agent, own in agents.groupby("agent"):
        by = own.groupby("arm")["largest_norm"].agg(["median", "min", "max"])
        cells = [f"{by['median'][arm]:.1f} ({by['min'][arm]:.1f} to {by['max'][arm]:.1f})" for arm in ("global", "own")]
        lines.append(f"| {agent} | {' | '.join(cells)} |")
    return "\n".join(lines)


def returns() -> str:
    """Return a row per setting of the fixed test: the team's return under each recipe, and what was concluded."""
    found = pd.read_csv(TEST / "returns.csv")
    arms = ["grpo", "grpo_masked", "dr_mas", "own_pooled", "own_robust"]
    lines = [f"| team's return | {' | '.join(arms)} | dr_mas - grpo | own_pooled - grpo |", "|---" * 8 + "|"]
    for row in found.to_dict("records"):
        scores = " | ".join(f"{row[arm]:.3f}" for arm in arms)
        lines.append(f"| {row['setting']} | {scores} | {row['dr_mas - grpo']} | {row['own_pooled - grpo']} |")
    below = " | ".join(f"{(found['best'] - found[arm]).max():.3f}" for arm in arms)
    return "\n".join([*lines, f"| most below the best | {below} | | |"])


def came() -> str:
    """Return a row per contrast of the fixed test: how many agents came out better, worse, the same or not sure."""
    agents = pd.read_csv(TEST / "agents.csv")
    words = ("better", "worse", "the same", "not sure")
    lines = [f"| agents | {' | '.join(words)} |", "|---" * 5 + "|"]
    for contrast in (name[: -len(", came")] for name in agents if name.endswith(", came")):
        counts = agents[f"{contrast}, came"].value_counts().reindex(words, fill_value=0)
        lines.append(f"| {contrast} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines)


def halves() -> str:
    """Return a row per pay: the cosine between the untrained helper's gradients of two halves of a batch."""
    found = pd.read_csv(RESULTS / "whose_mean" / "halves.csv")
    cosine = found.pivot_table(index="pay", columns="recipe", values="cosine")
    lines = [f"| pay | {' | '.join(cosine)} |", "|---" * (len(cosine.columns) + 1) + "|"]
    return "\n".join([*lines, *(f"| {pay} | {' | '.join(f'{x:.2f}' for x in row)} |"
                                for pay, row in zip(cosine.index, cosine.to_numpy(), strict=True))])  # fmt: skip


def spoken() -> str:
    """Return a row per contrast: of how many agents `lab.uphill` spoke, and how often its sign was right."""
    agents, lines = pd.read_csv(RESULTS / "uphill" / "agents.csv"), []
    for contrast, own in agents.groupby("contrast", sort=False):
        said = own[own["cos_own"].abs() >= analysis("uphill").SPEAKS]
        sure = said[said["p"] < 0.05]
        hits = [f"{(one['cos_own'] * one['own'] > 0).sum()} of {len(one)}" for one in (said, sure)]
        lines.append(f"| {contrast} | {len(own)} | {' | '.join(hits)} | {sure['team'].nunique()} |")
    head = "| contrast | agents | right sign where it spoke | of these, differences that are sure | teams of the sure |"
    return "\n".join([head, "|---" * 5 + "|", *lines])


def regrets() -> str:
    """Return a row per recipe: how far it ends below the best of the three in teams with five seeds or more."""
    below = {}
    for score in ("return", "success"):
        means = {}
        for team in sorted((RESULTS / "uphill").glob("1*")):
            curves = Recorded(team).curves.sort_values("step").groupby(["arm", "seed"]).tail(1)
            ends = curves.pivot(index="seed", columns="arm", values=score).dropna()
            if len(ends) >= FEW:
                means[team.name] = ends.mean()
        table = pd.DataFrame(means).T
        below[score] = table.rsub(table.max(axis=1), axis=0)
    lines = [
        f"| {len(table)} teams | largest, return | largest, success | more than 0.02 below by return | by success |"
    ]
    lines.append("|---" * 5 + "|")
    for arm in table:
        most = " | ".join(f"{one[arm].max():.3f}" for one in below.values())
        lines.append(f"| {arm} | {most} | {' | '.join(str((one[arm] > 0.02).sum()) for one in below.values())} |")
    return "\n".join(lines)


def looks() -> str:
    """Return a row per look that was taken beside the test or afterwards: what it had to do with own reward."""
    test, agents = analysis("uphill"), pd.read_csv(RESULTS / "uphill" / "agents.csv")
    lines = ["| looked at | rank correlation with own reward |", "|---|---|"]
    lines.append(f"| {test.halfway().replace(': rank correlation ', ' | ').replace('), ', ') ')} |")
    shares = agents.merge(pd.read_csv(RESULTS / "uphill" / "wrong_way.csv"), on=["team", "agent"])
    shares = shares[shares["contrast"] == test.TESTED]
    for measure in ("wrong_way", "reinforced"):
        shares["apart"] = shares[f"{measure} grpo"] - shares[f"{measure} own_robust"]
        rank, low, high = test.over_teams(shares, test.correlation("apart", "own"))
        lines.append(f"| `{measure}`, `grpo` minus `own_robust` | {rank:.2f} ({low:.2f} to {high:.2f}) |")
        if measure == "wrong_way":
            far = shares["apart"] > 0.2
            gains = shares["own"].groupby(far).mean()
            lines.append(f"| gain of the {far.sum()} agents with more than 0.2 apart, and of the others | "
                         f"{gains[True]:+.2f}, {gains[False]:+.2f} |")  # fmt: skip
    return "\n".join(lines)


def ages() -> str:
    """Return a row per task and correction: success minus that of fresh rows, by staleness, means of three recipes."""
    runs = record("asynchronous").table
    runs[["recipe", "age", "correction"]] = runs["arm"].str.extract(r"(\w+) (\d) ?(\w*)")
    lines = ["| success, minus that at staleness 0 | 1 | 2 | 4 | 8 |", "|---" * 5 + "|"]
    for task in ("ladder of 4", "paid help 0.2"):
        own = runs[runs["task"] == task]
        ends = own.groupby(["correction", "age", "seed"])["final"].mean()
        for correction in ("clip", "tis", "none"):
            cells = []
            for age in "1248":
                apart = (ends[correction, age] - ends["", "0"]).to_numpy()
                _, low, high = t_test(apart)
                cells.append(f"{apart.mean():+.3f} ({low:+.3f} to {high:+.3f})")
            lines.append(f"| {task}, {correction} | {' | '.join(cells)} |")
    return "\n".join(lines)


TABLES = {
    "roles": roles, "foretold": told_beforehand, "sizes": sizes, "fixed_test": fixed_test, "moved": moved,
    "uphill": uphill, "robust": robust, "trials": trials, "rows_as_shared": rows_as_shared, "parts": parts,
    "sharing_norms": lambda: norm_shares("sharing"), "sharing_peaks": lambda: peaks("sharing"),
    "sharing_long_peaks": lambda: peaks("sharing_long"), "peaks": lambda: peaks("baselines"),
    "asked": lambda: asked("baselines"), "lone_rows": lone_rows, "ladder_norms": ladder_norms, "returns": returns,
    "came": came, "halves": halves, "spoken": spoken, "regrets": regrets, "looks": looks, "ages": ages,
    "pays_tried": lambda: tried("paid_help", "pay 0.2"),
}  # fmt: skip
TABLES |= {
    f"spent_{name}": partial(spent, name) for name in ("at_grpo", "single_agent", "critics", "follow", "sokoban")
}
"""Name of a block -> the function that makes its table."""
