"""Writes `data/results/gradient_spikes/`: solver, verifier and fixer under two baselines, on the same seeds.

    MAS_LAB_THREADS=1 .venv/bin/python benchmarks/gradient_spikes.py

Each agent has weights of its own. For each form of the task (`--forms`: with a fixer, or the `pair` without it), recipe
and seed: a training run (kept under `runs_dir()`; called again, the command goes on with the runs that are missing),
held-out success on the way, each agent's gradient norm under both baselines on the very batch of each step, and every
`--every` steps what the theory predicts for a fresh batch. Leaves out: what the records say (notebook 05).
"""

import argparse
import json
import platform
import shutil
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pandas as pd

import mas_lab as lab
from mas_lab.explain.paired_watch import PairedWatch

FORMS = {"fixer": {"fixer": True}, "pair": {}}
RECIPES = ("grpo", "dr_mas")
LR, SETTINGS = 1e-4, {"tasks": 32}
HELD_OUT, REPEATS = 128, 4
"""Problems that training never shows, and episodes on each."""
ROWS = 64
"""Rows of each agent whose own gradient enters a prediction."""
OPENED = 4
"""Spikes whose step is shipped with its texts."""
THRESHOLD = 2.5
"""Of the spike rule: lower than usual, since the norms of an agent that is seldom called vary much at all times."""
SHOWN = {"form": "fixer", "recipe": "grpo", "seed": 0}
"""The run whose spikes are shipped."""


def held_out(env, team) -> float:
    return lab.evaluate(env, team, env.tasks(HELD_OUT, "test", seed=0), k=REPEATS)["success"].mean()


def fresh_ratio(env, team, step: int) -> pd.DataFrame:
    """Prediction and measurement on a batch that no run trains on."""
    tasks = env.tasks(SETTINGS["tasks"], "train", seed=10_000 + step)
    turns = lab.rollout(env, team, tasks, lab.episodes(8), seed=10_000 + step)
    return lab.baseline_ratio(team, lab.RECIPES["grpo"].advantages(turns), rows=ROWS).assign(step=step)


def learn(form: str, recipe: str, seed: int, steps: int, every: int) -> dict[str, pd.DataFrame]:
    """One run. Its tables are kept beside the run's own, so that a second call only reads them; what was cut short
    starts again."""
    folder = lab.runs_dir() / "gradient_spikes" / f"{form}-{recipe}-{seed}"
    kept = {name: folder / f"{name}.parquet" for name in ("scores", "norms", "ratios")}
    if not all(path.is_file() for path in kept.values()):
        shutil.rmtree(folder, ignore_errors=True)
        for name, table in _train(folder, form, recipe, seed, steps, every).items():
            table.assign(form=form, recipe=recipe, seed=seed).to_parquet(kept[name], index=False)
    return {name: pd.read_parquet(path) for name, path in kept.items()}


def _train(folder: Path, form: str, recipe: str, seed: int, steps: int, every: int) -> dict[str, pd.DataFrame]:
    env = lab.make_env("math", **FORMS[form])
    team = lab.Team.per_agent(lambda agent: lab.load_policy(env.pocket, lr=LR), env.agents)
    watch, tokens = PairedWatch(threshold=THRESHOLD), 0
    scores, ratios = [{"step": 0, "tokens": 0, "success": held_out(env, team)}], [fresh_ratio(env, team, 0)]
    for report in lab.train(env, team, recipe, steps, seed=seed, run=folder, watch=watch, save_every=steps, **SETTINGS):
        tokens, done = tokens + report.tokens, report.step + 1
        if done % every == 0:
            scores.append({"step": done, "tokens": tokens, "success": held_out(env, team)})
            ratios.append(fresh_ratio(env, team, done))
            print(f"{folder.name}: {done} steps, held-out success {scores[-1]['success']:.3f}", flush=True)
    norms = watch.pairs.drop(columns="policy").rename(columns={"call": "step"})
    return {"scores": pd.DataFrame(scores), "norms": norms, "ratios": pd.concat(ratios, ignore_index=True)}


def kept_run(form: str, recipe: str, seed: int):
    """A run that `learn` made."""
    return lab.load_run(lab.runs_dir() / "gradient_spikes" / f"{form}-{recipe}-{seed}")


def spike_list(form: str, recipe: str, seed: int) -> pd.DataFrame:
    """A row per spike of a run, with the policy's norm under either baseline."""
    rows = []
    for spike in kept_run(form, recipe, seed).checkpoint().state["watch"]["spikes"]:
        told = {name: spike[name] for name in ("policy", "norm", "usual", "score")}
        norms = {f"norm_{name}": norms[""] for name, norms in spike["baselines"].items()}
        rows.append({"step": spike["call"], **told, **norms, "form": form, "recipe": recipe, "seed": seed})
    return pd.DataFrame(rows)


def ship_spikes(out: Path) -> None:
    """The statistics of one run, what its watch took apart, and the turns of the steps in which that happened."""
    run, remembered = kept_run(**SHOWN), kept_run(**SHOWN).checkpoint().state["watch"]
    remembered["spikes"] = remembered["spikes"][:OPENED]
    remembered.pop("pairs")
    (out / "spikes.json").write_text(json.dumps(remembered) + "\n")
    run.stats.to_parquet(out / "spike_stats.parquet", index=False)
    steps = sorted({spike["call"] for spike in remembered["spikes"]})  # one optimizer step a training step
    turns = pd.concat([run.step_turns(step) for step in steps or [0]], ignore_index=True)
    turns.to_parquet(out / "spike_turns.parquet", index=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("data/results/gradient_spikes"))
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--every", type=int, default=10)
    args = parser.parse_args()
    asked = [(form, recipe, seed) for form in args.forms for seed in range(args.seeds) for recipe in RECIPES]
    runs = [learn(*one, args.steps, args.every) for one in asked]
    args.out.mkdir(parents=True, exist_ok=True)
    for name in ("scores", "norms", "ratios"):
        pd.concat([run[name] for run in runs]).to_csv(args.out / f"{name}.csv", index=False, float_format="%.5g")
    spikes = pd.concat([spike_list(*one) for one in asked])
    spikes.to_csv(args.out / "spikes.csv", index=False, float_format="%.5g")
    ship_spikes(args.out)
    libraries = {name: version(name) for name in ("torch", "transformers", "pandas", "numpy")}
    provenance = {
        "command": "MAS_LAB_THREADS=1 python benchmarks/gradient_spikes.py "
        f"--forms {' '.join(args.forms)} --seeds {args.seeds} --steps {args.steps}",
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "settings": {**SETTINGS, "lr": LR, "episodes": 8, "threshold": THRESHOLD, "rows": ROWS},
        "held_out": {"problems": HELD_OUT, "episodes": REPEATS},
        "spikes_of": SHOWN,
        "versions": libraries | {"python": platform.python_version()},
    }
    (args.out / "provenance.json").write_text(json.dumps(provenance, indent=1) + "\n")


if __name__ == "__main__":
    main()
