"""Compare the study of asynchronous teams with its predictions, one line per prediction, task and recipe.

    python benchmarks/asynchronous/analyse.py

Reads data/results/studies/asynchronous, and for `punished` the pocket models of the study. README.md has the
predictions and the rules. What is printed after the predictions was looked for after the trainings. Leaves out:
training.
"""

from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from mas_lab.study.intervals import t_test

RECORD = Path("data/results/studies/asynchronous")
SECONDS = 0.17498, 0.12216
"""Simulated seconds of a step of the ladder at staleness 0 and 1, an engine per agent, computed at commit 7a1c8bda from
the constants in data/results/benchmark_asynchronous.json."""
LADDER, HELP, PATH = "ladder of 4", "paid help 0.2", "plan_path"
RECIPES, SAME = ("grpo", "own_robust", "at_grpo"), 0.03


def judged(differences: np.ndarray, says: str, bound: float = SAME) -> dict:
    """Return what became of a prediction about the mean of paired differences.

    `says`: "same" (within the bound), "above" or "below" (by the bound or more), or "not lower" (than minus the bound).
    """
    n, mean = len(differences), float(np.mean(differences))
    error = float(np.std(differences, ddof=1)) / n**0.5
    low, high = mean + error * stats.t.ppf([0.025, 0.975], n - 1)
    least, most = mean + error * stats.t.ppf([0.05, 0.95], n - 1)
    holds, fails = {
        "same": (least > -bound and most < bound, low > bound or high < -bound),
        "not lower": (least > -bound, high < -bound),
        "above": (mean >= bound and low > 0, high < bound),
        "below": (mean <= -bound and high < 0, low > -bound),
    }[says]
    verdict = "holds" if holds else "fails" if fails else "not sure"
    return {"says": says, "bound": bound, "mean": mean, "low": low, "high": high, "pairs": n, "verdict": verdict}


def arm(recipe: str, staleness: int, correction: str = "tis") -> str:
    return f"{recipe} {staleness} {correction}" if staleness else f"{recipe} 0"


class Outcomes:
    """Final success by (task, arm) and seed, and own rewards by (task, arm, agent) and seed."""

    def __init__(self, finals: pd.DataFrame, agents: pd.DataFrame, curves: pd.DataFrame):
        self.final = finals.pivot_table(index="seed", columns=["task", "arm"], values="final")
        self.start = finals.pivot_table(index="seed", columns=["task", "arm"], values="start")
        after = agents[agents["window"] == "end"]
        self.own = after.pivot_table(index="seed", columns=["task", "arm", "agent"], values="quiz_after")
        self.curves = curves

    def loss(self, task: str, recipe: str, staleness: int, correction: str = "tis") -> np.ndarray:
        """Return final success minus that of staleness 0, by seed."""
        return (self.final[task, arm(recipe, staleness, correction)] - self.final[task, arm(recipe, 0)]).to_numpy()

    def own_loss(self, task: str, agent: str, recipe: str = "grpo", correction: str = "tis") -> np.ndarray:
        """Return the own reward after staleness 8 minus that after staleness 0, by seed."""
        old, fresh = (self.own[task, arm(recipe, staleness, correction), agent] for staleness in (8, 0))
        return (old - fresh).to_numpy()

    def at(self, task: str, name: str, steps: float) -> np.ndarray:
        """Return success after a number of steps, by seed, between the scored steps by a straight line."""
        own = self.curves.query("task == @task and arm == @name")
        return np.array([np.interp(steps, one["step"], one["success"]) for _, one in own.groupby("seed")])


def predictions(found: Outcomes, ratio: float) -> pd.DataFrame:
    """Return a row per prediction and case. `ratio`: seconds of a step of staleness 0 over those of staleness 1."""
    rows, tasks = [], list(dict.fromkeys(found.final.columns.get_level_values("task")))

    def add(number: int, case: str, differences: np.ndarray, *says: str | float) -> None:
        rows.append({"prediction": number, "case": case, **judged(differences, *says)})

    for task in tasks:
        for recipe in RECIPES:
            for staleness in (1, 2):
                add(1, f"{task}, {recipe}, staleness {staleness}", found.loss(task, recipe, staleness), "same")
            none, tis = (found.final[task, arm(recipe, 8, name)].to_numpy() for name in ("none", "tis"))
            add(4, f"{task}, {recipe}, none - tis", none - tis, "same")
            untrained = found.start[task, arm(recipe, 8, "none")].to_numpy()
            add(4, f"{task}, {recipe}, none - untrained", none - untrained, "not lower", 0.0)
        add(7, f"{task}, own_robust - grpo", found.loss(task, "own_robust", 8) - found.loss(task, "grpo", 8), "same")
    add(2, LADDER, found.loss(LADDER, "grpo", 8), "below")
    add(
        3, f"{LADDER}, clip - tis", found.loss(LADDER, "grpo", 8, "clip") - found.loss(LADDER, "grpo", 8), "below", 0.02
    )
    stages = found.own_loss(LADDER, "stage_4") - found.own_loss(LADDER, "stage_1")
    add(5, f"{LADDER}, stage_4 - stage_1", stages, "below", 0.02)
    add(6, f"{HELP}, helper - solver", found.own_loss(HELP, "helper") - found.own_loss(HELP, "solver"), "not lower")
    add(8, f"{PATH}, at_grpo - grpo", found.loss(PATH, "at_grpo", 8) - found.loss(PATH, "grpo", 8), "not lower")
    ahead = found.at(LADDER, arm("grpo", 1), min(30.0, 20 * ratio)) - found.at(LADDER, arm("grpo", 0), 20)
    add(9, f"{LADDER}, {ratio:.2f} times as many steps", ahead, "above", 0.02)
    return pd.DataFrame(rows).sort_values("prediction", kind="stable", ignore_index=True)


def besides(found: Outcomes) -> pd.DataFrame:
    """Return what was looked for after the trainings: a mean over seeds with its 95 % interval per row."""
    rows = []

    def add(case: str, *by_recipe: np.ndarray) -> None:
        by_seed = np.mean(by_recipe, axis=0)
        _, low, high = t_test(by_seed)
        rows.append({"case": case, "mean": by_seed.mean(), "low": low, "high": high})

    for task, correction in product((LADDER, HELP), ("clip", "tis", "none")):
        for staleness in (1, 2, 4, 8):
            case = f"{task}, {correction}, staleness {staleness} - 0, mean of the recipes"
            add(case, *(found.loss(task, recipe, staleness, correction) for recipe in RECIPES))
        for recipe in RECIPES:
            low, high = ("stage_1", "stage_4") if task == LADDER else ("solver", "helper")
            own = [found.own_loss(task, agent, recipe, correction) for agent in (high, low)]
            add(f"{task}, {recipe}, {correction}, own reward, staleness 8 - 0, {high} - {low}", own[0] - own[1])
    for task, correction in ((LADDER, "tis"), (HELP, "tis"), (PATH, "tis"), (LADDER, "none")):
        ends = [found.final[task, arm(recipe, 8, correction)].to_numpy() for recipe in RECIPES]
        early = [found.at(task, arm(recipe, 0), 22) for recipe in RECIPES]
        case = f"{task}, {correction}, staleness 8 - staleness 0 after 22 steps, mean of the recipes"
        add(case, *(end - before for end, before in zip(ends, early, strict=True)))
    for task, staleness in product((LADDER, HELP), (0, 8)):
        own, common = (found.final[task, arm(recipe, staleness)].to_numpy() for recipe in ("own_robust", "grpo"))
        add(f"{task}, staleness {staleness}, tis, own_robust - grpo", own - common)
    return pd.DataFrame(rows)


def punished(seeds: list[int]) -> pd.Series:
    """Return the shares of the helper's rows, and of its right answers, with an advantage below 0 under `grpo`.

    Means over the seeds, before training, from 64 tasks with 8 episodes each.
    """
    import mas_lab as lab

    env, shares = lab.make_env("paid_help", pay=0.2), []
    for seed in seeds:
        team = lab.Team.per_agent(lambda agent, seed=seed: lab.load_policy(f"runs/pockets/math-{seed}"), env.agents)
        turns = lab.rollout(env, team, env.tasks(64, "train", seed=seed), lab.episodes(8), seed=seed)
        helper = lab.RECIPES["grpo"].advantages(turns).query("agent == 'helper'")
        below, right = helper["advantage"] < 0, helper["local_reward"] > 0
        shares.append({"rows": below.mean(), "right answers": below[right].mean()})
    return pd.DataFrame(shares).mean()


def main() -> None:
    from mas_lab.study.record import Recorded

    record = Recorded(RECORD)
    found = Outcomes(record.table, record.agents, record.curves)
    print(predictions(found, SECONDS[0] / SECONDS[1]).to_string(float_format="{:.3f}".format))
    print("\nLooked for after the trainings:\n" + besides(found).to_string(float_format="{:.3f}".format))
    print("\nRight when asked, mean over seeds:\n" + found.own[HELP].mean().unstack().round(2).to_string())
    print("\nThe helper's share below 0:\n" + punished(found.final.index.tolist()).round(3).to_string())


if __name__ == "__main__":
    main()
