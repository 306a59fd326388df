"""Train twenty-one small teams, eleven of them ill in different ways, and compare each verdict with what it should say.

    MAS_LAB_THREADS=1 python benchmarks/verdicts.py --seeds 0 1

Writes `data/results/verdicts.csv`: a row per run and seed with held-out success before and after, what the verdict
should say, and what it says. The column `should` was first written before the rules of the verdict. A draft of the
rules was tried on seed 0. Then four expectations were worded anew, the rate of five trainings that were meant to be
healthy and were not was lowered from 1e-3, and two bounds of the rules were set. Seed 1 was looked at after that.
The rules on held-out scores, on the return and on the last steps came later, when other failures had been called fine;
one word of an expectation was changed for them ("credit"), and all forty verdicts stayed right. The rules on agents
that cease to speak and on success that did not rise came last, with `tiny_rate`.
Leaves out: the rules (`mas_lab.train.verdict`).
"""

import argparse
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

import mas_lab as lab
from mas_lab.env import Step
from mas_lab.recipes import Recipe
from mas_lab.runs.run import SCORES
from mas_lab.tasks import ENVS
from mas_lab.tasks.paid_help import PaidHelp

sys.path.insert(0, "benchmarks/studies")
from settings import SpotCheck

RUNS = Path("runs/verdicts")
NOTHING = "Nothing stands out."


@dataclass(frozen=True)
class Escalate(PaidHelp):
    """The helper earns `high` for a right answer, and `low` for a wrong one."""

    high: float = 0.6
    low: float = -0.4

    name = "escalate"

    def step(self, state: Any, actions: Mapping[str, str]) -> Step:
        step = super().step(state, actions)
        helped = state.place == 1
        return replace(step, team_reward=(self.high if step.success else self.low)) if helped else step


def flat(turns: pd.DataFrame) -> pd.Series:
    """Give every row the same credit."""
    return turns["team_reward"] * 0


def short(turns: pd.DataFrame) -> pd.Series:
    """Pay for short answers alone."""
    return -turns["completion_ids"].map(len).astype(float)


@dataclass(frozen=True)
class Trial:
    """One training, and what the verdict on it should say."""

    env: str
    should: str
    """Text that the verdict has."""
    recipe: str | Recipe = "grpo"
    options: dict[str, Any] = field(default_factory=dict)
    lr: float = 3e-4
    frozen: tuple[str, ...] = ()
    steps: int = 24


GRPO = lab.RECIPES["grpo"]
FALL, DEAD, WRONG, PAID = "Success fell", "hardly an answer was valid", "mostly learned the wrong thing", "credit pays"
ILL = {
    "absurd_rate": Trial("ladder", DEAD, lr=1e3),
    "high_rate": Trial("ladder", DEAD, lr=1e-2),
    "early_fall": Trial("math", FALL, lr=5e-3),
    "tiny_rate": Trial("math", "did not clearly rise", lr=1e-6),
    "flat_credit": Trial("ladder", "Nothing was learned", GRPO.replace(credit=flat)),
    "short_credit": Trial("math", FALL, GRPO.replace(credit=short), lr=1e-3),
    "paid_for_wrong": Trial("escalate", PAID, options={"high": 0.1, "low": 0.9}, lr=1e-3, frozen=("solver",)),
    "paid_for_wrong_own": Trial("escalate", PAID, "dr_mas", {"high": 0.1, "low": 0.9}, 1e-3, ("solver",)),
    "late_stages": Trial("ladder", WRONG, lr=1e-3),
    "finisher": Trial("finisher", WRONG, lr=1e-3, frozen=("solver",)),
    "own_deviation": Trial("stakes", "own reward of helper fell", "dr_mas", lr=1e-3, frozen=("solver", "clerk")),
}
HEALTHY = {
    "ladder_own": Trial("ladder", NOTHING, "dr_mas"),
    "ladder_pooled": Trial("ladder", NOTHING, "own_pooled"),
    "stakes_pooled": Trial("stakes", NOTHING, "own_pooled", frozen=("solver", "clerk")),
    "math": Trial("math", NOTHING),
    "vote": Trial("vote", NOTHING),
    "maze": Trial("plan_path", NOTHING, "at_grpo"),
    "full_pay": Trial("paid_help", NOTHING, options={"pay": 1.0}),
    "escalate": Trial("escalate", NOTHING, frozen=("solver",)),
    "escalate_own": Trial("escalate", NOTHING, "dr_mas", frozen=("solver",)),
    "spot_check": Trial("spot_check", NOTHING),
}


def played(name: str, trial: Trial, seed: int) -> dict[str, Any]:
    """Train one team, unless its run is there, and return its row."""
    env = lab.make_env(trial.env, **trial.options)
    team = lab.Team.per_agent(lambda agent: lab.load_policy(env.pocket, lr=trial.lr), env.agents, frozen=trial.frozen)
    folder, score = RUNS / f"{name}-{seed}", {"score_every": trial.steps, "score_tasks": 64}
    if not (folder / "done").is_file():
        shutil.rmtree(folder, ignore_errors=True)
        for _ in lab.train(env, team, trial.recipe, trial.steps, seed, run=folder, tasks=16, **score):
            pass
        (folder / "done").touch()
    scores = lab.load_run(folder).read(SCORES).groupby("step")["success"].mean()
    said = lab.verdict(folder)
    good = said == NOTHING if trial.should == NOTHING else trial.should in said
    return {
        "run": name, "seed": seed, "ill": name in ILL, "success_before": scores.iloc[0],
        "success_after": scores.iloc[-1], "should": trial.should, "says": said, "right": good,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--only", nargs="*", help="names of runs; nothing is written")
    args = parser.parse_args()
    ENVS.update(escalate=Escalate, spot_check=SpotCheck)
    rows = []
    for seed in args.seeds:
        for name, trial in (ILL | HEALTHY).items():
            if args.only and name not in args.only:
                continue
            rows.append(played(name, trial, seed))
            print({True: "right", False: "WRONG"}[rows[-1]["right"]], *list(rows[-1].values())[:5], rows[-1]["says"])
    table = pd.DataFrame(rows)
    print(f"{table['right'].sum()} of {len(table)} right")
    if not args.only:
        table.round(3).to_csv("data/results/verdicts.csv", index=False)


if __name__ == "__main__":
    main()
