"""Writes `data/results/<trial>/`: tasks of the kit, each trained on its pocket model as its row of `TRIALS` says.

    MAS_LAB_THREADS=1 .venv/bin/python benchmarks/tasks.py sokoban sudoku

A row is what the task wants where that is not the usual: options of `make_env`, recipe, learning rate, steps, weights
of its own for each agent, who is frozen, fields of `lab.train`'s settings. Its name names the folder: the task, or the
task and an arm (`sokoban outcome`). Of each are written `results.csv`, a row per seed: success and return on held-out
tasks before and after, seconds of training without scoring; `curves.csv`, the scores on the way by sampled tokens;
`malformed.csv`, where tools are called: the share of calls that cannot be made, at each step; `calls.csv`, where agents
are called on a condition: in how many turns of an episode each speaks, at each step; and `provenance.json`, the
command, the row and the versions. Leaves out: what they say (`data/results/README.md`).
"""

import argparse
import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

import mas_lab as lab
from mas_lab.demo import trials as demo
from mas_lab.runs.scores import mean_scores
from mas_lab.study.processes import side_by_side

SCORED = {"score_every": 10, "score_tasks": 128, "score_episodes": 4}


@dataclass(frozen=True)
class Trial:
    """How one task is trained."""

    env: Mapping[str, Any]
    """The arguments of `make_env`."""
    recipe: str = "at_grpo"
    lr: float = 1e-3
    steps: int = 40
    per_agent: bool = False
    frozen: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=lambda: {"tasks": 32, "minibatches": 2})
    calls: bool = False
    """Is `calls.csv` written?"""
    malformed: bool = False
    """Is `malformed.csv` written?"""


SEARCH = Trial({"name": "search"}, "dr_mas", lr=3e-4, steps=50, per_agent=True, calls=True)
LONG = replace(SEARCH, env={"name": "search", "size": 3})
CALLED = Trial({}, "dr_mas", lr=3e-4, steps=30, per_agent=True, settings={"tasks": 16})
TRIALS: dict[str, Trial] = {
    "plan_path": Trial({"name": "plan_path"}, steps=20),
    "math": Trial({"name": "math"}, "dr_mas", lr=3e-4, steps=40, per_agent=True, settings={"tasks": 32}),
    "math_tool": Trial({"name": "math_tool"}, lr=5e-4, steps=40),
    "tldr": Trial({"name": "tldr"}, "magrpo", steps=80, settings={"tasks": 32}),
    "arxiv_intro": Trial({"name": "arxiv_intro"}, "magrpo", steps=80, settings={"tasks": 32}),
    "arxiv_intro reviewed": Trial({"name": "arxiv_intro", "max_turns": 2}, "magrpo", steps=40, settings={"tasks": 8}),
    "code_pair": Trial({"name": "code_pair"}, "magrpo", steps=40, settings={"tasks": 16}),
    "code_pair reviewed": Trial(
        {"name": "code_pair", "max_turns": 2}, "magrpo", lr=3e-4, steps=30, settings={"tasks": 8}
    ),
    "search": SEARCH,
    "search grpo": replace(SEARCH, recipe="grpo"),
    "search long": LONG,
    "search grpo long": replace(LONG, recipe="grpo"),
    "sokoban": Trial({"name": "sokoban"}, lr=4e-4, steps=80),
    "sudoku": Trial({"name": "sudoku"}, lr=4e-4, steps=60),
    "code_tests": Trial({"name": "code_tests"}, steps=20, settings={"tasks": 16, "minibatches": 2}),
    "ladder": replace(CALLED, env={"name": "ladder", "n_agents": 8}),
    "paid_help": replace(CALLED, env={"name": "paid_help"}, frozen=("solver",)),
    "finisher": replace(CALLED, env={"name": "finisher"}, frozen=("solver",)),
    "cascade": replace(CALLED, env={"name": "cascade"}, recipe="own_pooled"),
    "calculator": Trial({"name": "calculator"}, "dr_mas", lr=5e-4, steps=60, settings={"tasks": 16}, malformed=True),
    "vote": replace(CALLED, env={"name": "vote"}),
    "orchestrator": replace(CALLED, env={"name": "orchestrator"}),
    "stakes": replace(CALLED, env={"name": "stakes"}, recipe="own_pooled", frozen=("solver", "clerk")),
}


def malformed_share(turns: pd.DataFrame) -> float:
    """Return the share of tool calls that cannot be made."""
    called = turns[turns["call_status"] != "none"]
    return float((called["call_status"] != "ok").mean())


def calls_of(turns: pd.DataFrame, agents: Sequence[str]) -> pd.DataFrame:
    """Return in how many turns of an episode each agent is called: columns `agent` and `calls`."""
    spoken = turns.drop_duplicates(["episode", "agent", "turn"])["agent"].value_counts()
    calls = spoken.reindex(list(agents), fill_value=0) / turns["episode"].nunique()
    return calls.rename_axis("agent").rename("calls").reset_index()


def learn(name: str, seed: int) -> tuple[str, dict[str, pd.DataFrame]]:
    """One training: the name of the trial, and its tables by the names of their files."""
    trial = TRIALS[name]
    env = lab.make_env(**trial.env)
    team = demo.make_team(env, trial.lr, trial.per_agent)
    team = lab.Team(team, frozen=trial.frozen)
    scores, calls, malformed, tokens, seconds = [], [], [], {0: 0}, 0.0
    for report in lab.train(env, team, trial.recipe, trial.steps, seed, **trial.settings, **SCORED):
        done, seconds = report.step + 1, seconds + sum(report.profile.values())
        tokens[done] = tokens[report.step] + report.tokens
        if trial.calls:
            calls.append(calls_of(report.turns, env.agents).assign(seed=seed, step=done))
        if trial.malformed:
            malformed.append({"seed": seed, "step": done, "malformed": malformed_share(report.turns)})
        if report.held_out is not None:
            scores.append(mean_scores(report.held_out))
    curve = pd.concat(scores, ignore_index=True)
    curve = curve.assign(tokens=curve["step"].map(tokens), seed=seed)[["seed", "step", "tokens", "success", "return"]]
    first, last = curve.iloc[0], curve.iloc[-1]
    row = {"seed": seed, "success_before": first["success"], "success": last["success"], "return_before":
           first["return"], "return": last["return"], "max_return": env.max_return, "seconds": seconds}  # fmt: skip
    tables = {"results": pd.DataFrame([row]), "curves": curve}
    if calls:
        tables["calls"] = pd.concat(calls)[["seed", "step", "agent", "calls"]]
    if malformed:
        tables["malformed"] = pd.DataFrame(malformed)
    return name, tables


def ship(out: Path, name: str, runs: list[dict[str, pd.DataFrame]]) -> None:
    folder = out / name.replace(" ", "_")
    folder.mkdir(parents=True, exist_ok=True)
    for table in runs[0]:
        rows = pd.concat([run[table] for run in runs]).sort_values("seed", kind="stable")
        rows.to_csv(folder / f"{table}.csv", index=False, float_format="%.5g")
    libraries = {library: version(library) for library in ("torch", "transformers", "pandas", "numpy")}
    provenance = {
        "command": f"MAS_LAB_THREADS=1 python benchmarks/tasks.py {json.dumps(name) if ' ' in name else name}",
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "trial": asdict(TRIALS[name]) | {"optimizer": "AdamW"},
        "held_out": SCORED,
        "versions": libraries | {"python": platform.python_version()},
    }
    (folder / "provenance.json").write_text(json.dumps(provenance, indent=1) + "\n")
    results = pd.concat([run["results"] for run in runs]).sort_values("seed")
    print(results.to_string(index=False), f"-> {folder}", sep="\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trials", nargs="+", choices=TRIALS, metavar="TRIAL", help=", ".join(TRIALS))
    parser.add_argument("--out", type=Path, default=Path("data/results"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--workers", type=int, default=None, help="processes at a time (default: one per core)")
    args = parser.parse_args()
    jobs = [(learn, name, seed) for name in args.trials for seed in args.seeds]
    runs = list(side_by_side(jobs, args.workers))
    for name in args.trials:
        ship(args.out, name, [tables for trial, tables in runs if trial == name])


if __name__ == "__main__":
    main()
