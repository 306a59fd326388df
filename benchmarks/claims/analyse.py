"""Print what came of the predictions of `README.md`.

    python benchmarks/claims/analyse.py

Reads `data/results/claims/` and, for the first seeds, `data/results/carries/`. A part whose record is missing is left
out. Leaves out: the trainings (`run`).
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, "benchmarks/carries")
import analyse as carries

from mas_lab.study.intervals import t_test
from mas_lab.study.record import Recorded, is_record
from mas_lab.tasks.shared.pair_reward import MARKER, parts, total
from mas_lab.tasks.shared.wording import words

sys.path.insert(0, "benchmarks/claims")
from posts import Posts, copied, in_own_words

OUT = Path("data/results/claims")
PREDICTED = {
    ("10M", "paid_help", "grpo_masked"): (0.07, -0.03, 0.17), ("10M", "paid_help", "own_pooled"): (0.17, 0.07, 0.27),
    ("10M", "finisher", "grpo_masked"): (0.0, -0.05, 0.05), ("10M", "finisher", "own_pooled"): (0.20, 0.10, 0.30),
    ("10M", "ladder", "grpo_masked"): (0.14, 0.08, 0.20), ("10M", "ladder", "own_pooled"): (0.21, 0.12, 0.30),
    ("135M", "paid_help", "grpo_masked"): (0.0, -0.10, 0.10), ("135M", "paid_help", "own_pooled"): (0.10, 0.03, 0.17),
    ("135M", "finisher", "grpo_masked"): (0.03, -0.03, 0.09), ("135M", "finisher", "own_pooled"): (0.09, 0.03, 0.15),
    ("135M", "ladder", "grpo_masked"): (0.03, -0.03, 0.09), ("135M", "ladder", "own_pooled"): (0.05, -0.01, 0.11),
}  # fmt: skip
"""Right when asked, minus `grpo`: the prediction and its 80 % interval."""
REGISTERED = {"10M": (0.10, -0.01, 0.21), "135M": (0.10, 0.0, 0.20)}
HEAD = " | mean | 95 % interval | p | seeds above 0 | predicted (80 %) |\n" + "|---" * 6 + "|"
SOLO, WALKERS, SPLIT, TOOL, AT = "one_agent", "two_walkers", "split_view", "tool", "at_grpo"
SLOW = "one_agent_slow"
ROLES = "at_grpo, weights per role"
MAZE = {
    "one agent, `at_grpo` minus `grpo`": ((SOLO, AT), (SOLO, "grpo"), (0.06, 0.0, 0.12)),
    "one agent, `grpo`, 1e-4 minus 3e-4": ((SLOW, "grpo"), (SOLO, "grpo"), (-0.07, -0.17, 0.0)),
    "two walkers, `at_grpo` minus one agent, `grpo`": ((WALKERS, AT), (SOLO, "grpo"), (0.04, -0.02, 0.10)),
    "two walkers, `at_grpo` minus one agent, `at_grpo`": ((WALKERS, AT), (SOLO, AT), (-0.02, -0.07, 0.03)),
    "split view, `at_grpo` minus one agent, `at_grpo`": ((SPLIT, AT), (SOLO, AT), (-0.15, -0.30, -0.03)),
    "split view, `at_grpo` minus one agent, `grpo`": ((SPLIT, AT), (SOLO, "grpo"), None),
    "tool, `at_grpo` minus one agent, `grpo`": ((TOOL, AT), (SOLO, "grpo"), (0.08, 0.0, 0.15)),
    "tool, `at_grpo` minus one agent, `at_grpo`": ((TOOL, AT), (SOLO, AT), (0.03, -0.04, 0.09)),
    "two walkers, weights per role minus one set": ((WALKERS, ROLES), (WALKERS, AT), (0.0, -0.06, 0.06)),
    "split view, weights per role minus one set": ((SPLIT, ROLES), (SPLIT, AT), (0.03, -0.03, 0.09)),
    "tool, weights per role minus one set": ((TOOL, ROLES), (TOOL, AT), (0.02, -0.04, 0.08)),
    "tool, `at_grpo` minus `grpo`": ((TOOL, AT), (TOOL, "grpo"), (0.10, 0.02, 0.25)),
}  # fmt: skip


def row(said: str, differences: np.ndarray, predicted: tuple[float, float, float] | None) -> str:
    """Return a row of a table: the difference with its interval and p, and whether the prediction held.

    Fewer than five seeds have no interval; the differences stand in its place.
    """
    mean, above = differences.mean(), (differences > 0).sum()
    found = f"{', '.join(f'{one:+.2f}' for one in differences)} | "
    if len(differences) >= 5:
        p, low, high = t_test(differences)
        found = f"{low:+.2f} to {high:+.2f} | {p:.3f}"
    told = f"| {said} | {mean:+.3f} | {found} | {above} of {len(differences)} |"
    if predicted is None:
        return f"{told} |"
    value, least, most = predicted
    missed = "" if least <= mean <= most else ", missed"
    return f"{told} {value:+.2f} ({least:+.2f} to {most:+.2f}){missed} |"


def asked(folder: Path, setting: str) -> pd.DataFrame:
    """Return right when asked after training, averaged over the called agents: a row per seed, a column per arm."""
    agents = Recorded(folder).agents.query("window == 'end'")
    agents = agents[agents["agent"].isin(carries.CALLED[setting])]
    return agents.groupby(["seed", "arm"])["quiz_after"].mean().unstack()


def fresh() -> None:
    for size in ("10M", "135M"):
        for setting in ("paid_help", "finisher", "ladder"):
            if not is_record(folder := OUT / "fresh" / size / setting):
                continue
            new, old = asked(folder, setting), asked(carries.OUT / size / setting, setting)
            both = pd.concat([old, new])
            print(f"\n{size}, {setting}, right when asked; seeds {[*new.index]}\n")
            print(f"| contrast{HEAD}")
            for arm in ("grpo_masked", "own_pooled"):
                predicted = PREDICTED[size, setting, arm]
                print(row(f"`{arm}` minus `grpo`, fresh", (new[arm] - new["grpo"]).to_numpy(), predicted))
                print(row(f"`{arm}` minus `grpo`, all ten", (both[arm] - both["grpo"]).to_numpy(), None))
            told = REGISTERED[size] if setting == "paid_help" else None
            for name, table, predicted in (("fresh", new, told), ("all ten", both, None)):
                by_seed = (table["own_pooled"] - table["grpo_masked"]).to_numpy()
                print(row(f"`own_pooled` minus `grpo_masked`, {name}", by_seed, predicted))


def maze() -> None:
    folders = {name: OUT / "maze" / name for name in (SOLO, SLOW, WALKERS, SPLIT, TOOL)}
    records = {name: Recorded(folder) for name, folder in folders.items() if is_record(folder)}
    ends, at_steps, copies = {}, {}, []
    curves = {}
    for name, record in records.items():
        table = record.table[record.table["phase"] == "compare"]
        for arm, own in table.groupby("arm"):
            ends[name, arm] = own.set_index("seed")["final"]
        copies.append(pd.read_csv(OUT / "maze" / name / "copying.csv").assign(form=name))
        curves |= {(name, *key): own for key, own in record.curves.groupby(["arm", "seed"])}
    if not ends:
        return
    least = min(own["optimizer_steps"].max() for own in curves.values())
    for (name, arm, seed), own in curves.items():
        at_steps.setdefault((name, arm), {})[seed] = np.interp(least, own["optimizer_steps"], own["success"])
    measured = pd.concat(copies).groupby(["form", "arm"])[["copied", "flat", "distinct"]].mean()
    steps = {key[:2]: own["optimizer_steps"].max() for key, own in curves.items()}
    print(f"\nThe maze: success at equal tokens, and at {least} optimizer steps\n")
    print("| form | arm | at 60,000 tokens | at equal steps | steps | copied | flat | distinct |\n" + "|---" * 8 + "|")
    for key, own in ends.items():
        told = " | ".join("" if pd.isna(one) else f"{one:.2f}" for one in measured.loc[key])
        equal = np.mean([*at_steps[key].values()])
        print(f"| {key[0]} | {key[1]} | {own.mean():.3f} | {equal:.3f} | {steps[key]} | {told} |")
    for what, found in (
        ("equal tokens", ends),
        ("equal steps", {key: pd.Series(own) for key, own in at_steps.items()}),
    ):
        print(f"\n| at {what}{HEAD}")
        for said, (first, second, predicted) in MAZE.items():
            if first in found and second in found:
                by_seed = (found[first] - found[second]).to_numpy()
                print(row(said, by_seed, predicted if what == "equal tokens" else None))


MAZE_WORDS = {
    ("solo", "solo_grpo"): (0.08, -0.02, 0.18), ("walkers", "solo_grpo"): (-0.02, -0.14, 0.10),
    ("walkers", "solo"): (-0.10, -0.22, 0.0), ("walkers", "walkers_grpo"): (0.03, -0.08, 0.14),
    ("walkers_roles", "walkers"): (0.0, -0.08, 0.08), ("tool", "solo_grpo"): (0.35, 0.12, 0.55),
    ("tool", "solo"): (0.28, 0.05, 0.48), ("tool", "tool_grpo"): (0.05, -0.05, 0.15),
    ("tool_roles", "tool"): (0.0, -0.08, 0.08),
    ("tool", "alone_grpo"): (0.0, -0.02, 0.03), ("alone_grpo", "solo_grpo"): (0.58, 0.45, 0.7),
}  # fmt: skip
"""The success of an arm minus that of another at equal tokens: the prediction and its 80 % interval."""


def maze_words() -> None:
    if not is_record(folder := OUT / "maze_words"):
        return
    record = Recorded(folder)
    curves = dict([*record.curves.groupby(["arm", "seed"])])
    least = min(own["optimizer_steps"].max() for own in curves.values())
    found = pd.DataFrame({
        key: {"before": own["success"].iloc[0], "end": own["success"].iloc[-1],
              "equal steps": np.interp(least, own["optimizer_steps"], own["success"]), "steps": own["step"].max()}
        for key, own in curves.items()
    }).T.rename_axis(["arm", "seed"])  # fmt: skip
    copied = pd.read_csv(folder / "copying.csv").set_index(["arm", "seed"])
    print(f"\nThe maze in words, means over seeds; equal steps are {least} of the optimizer\n")
    print(found.join(copied).groupby("arm").mean().round(3).to_markdown())
    for column in ("end", "equal steps"):
        print(f"\n| {column}{HEAD}")
        by_arm = found[column].unstack("arm")
        for (arm, other), predicted in MAZE_WORDS.items():
            if {arm, other} <= set(by_arm):
                said = predicted if column == "end" else None
                print(row(f"{arm} minus {other}", (by_arm[arm] - by_arm[other]).to_numpy(), said))


FLAT = {
    "K 2": ((0.14, 0.05, 0.23), (-0.04, -0.09, 0.0)), "K 8": ((-0.10, -0.18, -0.03), (0.0, -0.04, 0.04)),
    "K 16": ((-0.18, -0.28, -0.08), (-0.04, -0.10, 0.02)),
    "temperature 0.7": ((0.08, 0.0, 0.16), (-0.02, -0.07, 0.02)),
    "temperature 1.5": ((-0.10, -0.20, 0.0), (0.01, -0.03, 0.05)),
    "temperature 2": ((-0.20, -0.35, -0.08), (-0.01, -0.10, 0.05)),
}  # fmt: skip
"""Flat groups and success, minus those of four candidates at temperature 1: each prediction and its 80 % interval."""


SAME_RATE = (("K 8", "K 4 at 0.0003"), ("K 16", "K 4 at 0.0003"), ("K 8 at 0.001", "K 4"), ("K 16 at 0.001", "K 4"))
"""Arms that differ in the candidates alone."""


def flat() -> None:
    folders = [folder for name in ("flat", "flat_other_rates") if is_record(folder := OUT / name)]
    if not folders:
        return
    found = pd.concat([pd.read_csv(folder / "groups.csv") for folder in folders])
    made = pd.concat([Recorded(folder).table.query("phase == 'compare'") for folder in folders])
    made = made.groupby("arm")[["lr", "steps"]].mean()
    table = found.groupby("arm")[["flat", "alike", "distinct", "copied", "success"]].mean().join(made)
    print(f"\nFlat groups, means over seeds\n\n{table.round(3).to_markdown()}")
    for number, measure in enumerate(("flat", "success")):
        by_arm = found.pivot(index="seed", columns="arm", values=measure)
        print(f"\n| {measure}{HEAD}")
        for arm, predicted in FLAT.items():
            print(row(f"{arm} minus K 4", (by_arm[arm] - by_arm["K 4"]).to_numpy(), predicted[number]))
        for arm, other in SAME_RATE:
            if {arm, other} <= set(by_arm):
                print(row(f"{arm} minus {other}", (by_arm[arm] - by_arm[other]).to_numpy(), None))


POSTS = {"one_agent": (0.15, -0.30, 0.60), "in_turn": (0.20, -0.10, 0.50), "own_rewards": (0.20, -0.20, 0.60)}
"""The return of `magrpo` minus that of an arm: the prediction and its 80 % interval."""


def read(first: str, second: str, source: str) -> dict[str, float]:
    """Return what two texts about a post earn by three formulas, and how much of them is copied."""
    goal, texts = Posts().goal, (first, second)
    ours, published = (total(parts(*texts, source, goal, formula)) for formula in (False, True))
    found = {"reward": ours * min(in_own_words(text, source) for text in texts), "ours": ours, "published": published}
    for name, text in zip(("short", "detailed"), texts, strict=True):
        found |= {f"{name} copied": copied(text, source), f"{name} words": len(words(text))}
    return found


def posts() -> None:
    """Print what the arms and their agents earn, what their texts are like, and what the lead of a post earns."""
    sources = {task.id: task.data["source"] for task in Posts().tasks(12, "test", 0)}
    tables, ends = [], {}
    for arm in ("magrpo", *POSTS):
        if not is_record(OUT / "posts" / arm):
            continue
        record = Recorded(OUT / "posts" / arm)
        ends[arm] = record.table.set_index("seed")["final"]
        agents = record.agents.query("window == 'end'").pivot(index="agent", columns="seed", values="own_after")
        steps = record.table.set_index("seed")["steps"]
        told = pd.concat([agents, pd.DataFrame({"return": ends[arm], "steps": steps}).T])
        print(
            f"\n{arm}, by seed: own measure of each agent, return and steps at the end\n{told.round(2).to_markdown()}\n"
        )
        written = pd.read_csv(OUT / "posts" / arm / "texts.csv", keep_default_na=False)
        for (seed, task, _), own in written.groupby(["seed", "task", "episode"]):
            texts = own.set_index("agent")["completion"].to_dict()
            if "solo" in texts:
                first, _, second = (text.strip() for text in texts["solo"].partition(MARKER))
            else:
                first, second = texts["short"], texts["detailed"]
            kind = f"{arm}, {'end' if seed != '' else 'start'}"
            tables.append(read(first, second, sources[task]) | {"texts": kind})
    if not tables:
        return
    for source in sources.values():
        listed = source.split()
        lead = [" ".join(listed[: len(listed) * part // 3]) for part in (1, 2)]
        tables.append(read(*lead, source) | {"texts": "lead: a third and two thirds"})
    print(pd.DataFrame(tables).groupby("texts").mean().round(2).to_markdown())
    print(f"\n| return{HEAD}")
    for arm, predicted in POSTS.items():
        if arm in ends:
            print(row(f"`magrpo` minus `{arm}`", (ends["magrpo"] - ends[arm]).dropna().to_numpy(), predicted))


DR_MAS = {
    "search": {"dr_mas": (0.02, -0.05, 0.09), "own_pooled": (0.02, -0.04, 0.08), "grpo_masked": (0.0, -0.05, 0.05)},
    "math": {"dr_mas": (0.01, -0.04, 0.06), "own_pooled": (0.01, -0.04, 0.06), "grpo_masked": (0.0, -0.04, 0.04)},
}
"""Success minus that of `grpo`: the prediction and its 80 % interval."""


def dr_mas() -> None:
    """Print success, and per agent the norms, the wrong answers that were reinforced and the right ones punished."""
    for task, predicted in DR_MAS.items():
        arms = [arm for arm in ("grpo", *predicted) if (OUT / task / arm / "measures.csv").is_file()]
        if not arms:
            continue
        made = pd.concat([Recorded(OUT / task / arm).table for arm in arms])
        agents = pd.concat([pd.read_csv(OUT / task / arm / "measures.csv") for arm in arms])
        ends = made.pivot(index="seed", columns="arm", values="final")
        print(f"\nDr. MAS, {task}\n\n{ends.T.round(3).to_markdown()}\n")
        columns = ["largest_norm", "mean_norm", "reinforced", "wrong", "punished"]
        print(agents.groupby(["arm", "agent"])[columns].mean().round(3).to_markdown())
        shifts = Recorded(OUT / task / "grpo").agents.query("window == 'start'")
        shifts = shifts.groupby("agent")[["b", "peerless"]].mean().round(3)
        print(f"\nin the first steps of `grpo`\n\n{shifts.to_markdown()}")
        curves = pd.concat([Recorded(OUT / task / arm).curves.query("step > 0") for arm in arms])
        along = curves.pivot_table(index="seed", columns="arm", values="success")
        norms = agents.groupby(["seed", "arm"])["largest_norm"].max().unstack()
        print(f"\n| success{HEAD}")
        for arm in arms[1:]:
            print(row(f"`{arm}` minus `grpo`", (ends[arm] - ends["grpo"]).dropna().to_numpy(), predicted[arm]))
            by_seed = (along[arm] - along["grpo"]).dropna().to_numpy()
            print(row("the same, mean of the four points after the start", by_seed, None))
        for arm in arms[1:]:
            ratios = ", ".join(f"{one:.2f}" for one in (norms[arm] / norms["grpo"]).dropna())
            print(f"largest norm of any agent, `{arm}` over `grpo`, by seed: {ratios}")


def pair() -> None:
    if (path := OUT / "pair" / "programs.csv").is_file():
        table = pd.read_csv(path).groupby(["model", "form"], sort=False)
        print(table[["right", "main_alone", "team_reward"]].mean().round(3).join(table.size().rename("problems")))
        print(table["fault"].value_counts().unstack(fill_value=0).to_string())


if __name__ == "__main__":
    fresh()
    maze()
    maze_words()
    flat()
    posts()
    pair()
    dr_mas()
