"""Writes `data/results/gradient_spikes/`, solver, verifier and fixer under two baselines on the same seeds, and
`data/results/ladder_spikes/`, the same of eight agents on a ladder.

    MAS_LAB_THREADS=1 .venv/bin/python benchmarks/gradient_spikes.py
    MAS_LAB_THREADS=1 .venv/bin/python benchmarks/gradient_spikes.py --forms ladder --out data/results/ladder_spikes

Each agent has weights of its own. For each form (`--forms`: `math` with a fixer, the `pair` without it, the `ladder`),
recipe and seed: a training run (kept under `runs_dir()`; called again, the command goes on with the runs that are
missing), held-out success on the way, each agent's gradient norm under both baselines on the very batch of each step,
and every so many steps what the theory predicts for a fresh batch. The texts that are shipped are those of the spikes
of one run: the first form, `grpo`, seed 0. Leaves out: what the records say (notebook 05).
"""

import argparse
import json
import platform
import shutil
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pandas as pd
from lemma import PairedWatch, baseline_ratio

import mas_lab as lab
from mas_lab.explain.spike_rule import SpikeRule, spike_steps


@dataclass(frozen=True)
class Form:
    """What is trained."""

    env: str = "math"
    options: dict = field(default_factory=dict)
    lr: float = 1e-4
    tasks: int = 32
    steps: int = 60
    every: int = 10
    """Steps from one score, and one fresh batch, to the next."""


FORMS = {
    "fixer": Form(options={"fixer": True}),
    "pair": Form(),
    "ladder": Form("ladder", lr=3e-4, tasks=16, steps=30, every=5),
}
RECIPES = ("grpo", "dr_mas")
HELD_OUT, REPEATS = 128, 4
"""Problems that training never shows, and episodes on each."""
ROWS = 64
"""Rows of each agent whose own gradient enters a prediction."""
OPENED = 4
"""Spikes whose step is shipped with its texts."""


def held_out(env, team) -> float:
    return lab.evaluate(env, team, env.tasks(HELD_OUT, "test", seed=0), k=REPEATS)["success"].mean()


def fresh_ratio(env, team, tasks: int, step: int) -> pd.DataFrame:
    """Prediction and measurement on a batch that no run trains on."""
    tasks = env.tasks(tasks, "train", seed=10_000 + step)
    turns = lab.rollout(env, team, tasks, lab.episodes(8), seed=10_000 + step)
    return baseline_ratio(team, lab.RECIPES["grpo"].advantages(turns), rows=ROWS).assign(step=step)


def learn(form: str, recipe: str, seed: int, steps: int | None) -> dict[str, pd.DataFrame]:
    """One run. Its tables are kept beside the run's own, so that a second call only reads them; what was cut short
    starts again."""
    folder = lab.runs_dir() / "gradient_spikes" / f"{form}-{recipe}-{seed}"
    kept = {name: folder / f"{name}.parquet" for name in ("scores", "ratios")}
    if not all(path.is_file() for path in kept.values()):
        shutil.rmtree(folder, ignore_errors=True)
        for name, table in _train(folder, FORMS[form], recipe, seed, steps).items():
            table.assign(form=form, recipe=recipe, seed=seed).to_parquet(kept[name], index=False)
    return {name: pd.read_parquet(path) for name, path in kept.items()}


def _train(folder: Path, form: Form, recipe: str, seed: int, steps: int | None) -> dict[str, pd.DataFrame]:
    env, steps = lab.make_env(form.env, **form.options), steps or form.steps
    team = lab.Team.per_agent(lambda agent: lab.load_policy(env.pocket, lr=form.lr), env.agents)
    watch, tokens = PairedWatch(), 0
    scores = [{"step": 0, "tokens": 0, "success": held_out(env, team)}]
    ratios = [fresh_ratio(env, team, form.tasks, 0)]
    kept = {"run": folder, "save_every": steps, "tasks": form.tasks}
    for report in lab.train(env, team, recipe, steps, seed=seed, watch=watch, **kept):
        tokens, done = tokens + report.tokens, report.step + 1
        if done % form.every == 0:
            scores.append({"step": done, "tokens": tokens, "success": held_out(env, team)})
            ratios.append(fresh_ratio(env, team, form.tasks, done))
            print(f"{folder.name}: {done} steps, held-out success {scores[-1]['success']:.3f}", flush=True)
    return {"scores": pd.DataFrame(scores), "ratios": pd.concat(ratios, ignore_index=True)}


def kept_run(form: str, recipe: str, seed: int):
    """A run that `learn` made."""
    return lab.load_run(lab.runs_dir() / "gradient_spikes" / f"{form}-{recipe}-{seed}")


def norm_list(form: str, recipe: str, seed: int) -> pd.DataFrame:
    """A row per step and agent of a run: its norms under both baselines."""
    run, watch = kept_run(form, recipe, seed), PairedWatch()
    watch.load_state(run.checkpoint().state["watch"])
    norms = watch.dated(run.stats).drop(columns=["optimizer_step", "call", "policy"])
    return norms.sort_values("step", kind="stable").assign(form=form, recipe=recipe, seed=seed)


def said_list(form: str, recipe: str, seed: int) -> pd.DataFrame:
    """A row per step and agent of a run: its `rows`, the share that was `right` (its local reward), and the share that
    was `guessed`, the word "answer" first and no working before it."""
    run, parts = kept_run(form, recipe, seed), []
    for step in range(run.steps):
        turns = run.step_turns(step)
        turns = turns.assign(guessed=turns["completion"].str.startswith("answer"))
        by = turns.groupby("agent", sort=False)
        told = by.agg(rows=("agent", "size"), right=("local_reward", "mean"), guessed=("guessed", "mean"))
        parts.append(told.reset_index().assign(step=step, form=form, recipe=recipe, seed=seed))
    return pd.concat(parts)


def spike_list(form: str, recipe: str, seed: int) -> pd.DataFrame:
    """A row per spike of a run, with the policy's norm under either baseline."""
    rows, run = [], kept_run(form, recipe, seed)
    for spike in spike_steps(run.stats, run.checkpoint().state["watch"]["spikes"]):
        told = {name: spike[name] for name in ("policy", "norm", "usual", "score")}
        norms = {f"norm_{name}": norms[""] for name, norms in spike["baselines"].items()}
        rows.append({"step": spike["step"], **told, **norms, "form": form, "recipe": recipe, "seed": seed})
    return pd.DataFrame(rows)


def ship_spikes(out: Path, form: str, recipe: str, seed: int) -> None:
    """The statistics of one run, what its watch took apart, and the turns of the steps in which that happened."""
    run = kept_run(form, recipe, seed)
    remembered = run.checkpoint().state["watch"]
    remembered["spikes"] = remembered["spikes"][:OPENED]
    remembered.pop("pairs")
    (out / "spikes.json").write_text(json.dumps(remembered) + "\n")
    run.stats.to_parquet(out / "spike_stats.parquet", index=False)
    steps = sorted({spike["step"] for spike in spike_steps(run.stats, remembered["spikes"])})
    turns = pd.concat([run.step_turns(step) for step in steps or [0]], ignore_index=True)
    turns.to_parquet(out / "spike_turns.parquet", index=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("data/results/gradient_spikes"))
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=["fixer", "pair"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="of a run; default: those of its form")
    args = parser.parse_args()
    asked = [(form, recipe, seed) for form in args.forms for seed in range(args.seeds) for recipe in RECIPES]
    runs = [learn(*one, args.steps) for one in asked]
    args.out.mkdir(parents=True, exist_ok=True)
    tables = {name: [run[name] for run in runs] for name in ("scores", "ratios")}
    tables |= {"norms": [norm_list(*one) for one in asked], "said": [said_list(*one) for one in asked]}
    for name, parts in tables.items():
        pd.concat(parts).to_csv(args.out / f"{name}.csv", index=False, float_format="%.5g")
    spikes = pd.concat([spike_list(*one) for one in asked])
    spikes.to_csv(args.out / "spikes.csv", index=False, float_format="%.5g")
    shown = dict(zip(("form", "recipe", "seed"), asked[0], strict=True))
    ship_spikes(args.out, **shown)
    libraries = {name: version(name) for name in ("torch", "transformers", "pandas", "numpy")}
    steps = f" --steps {args.steps}" if args.steps else ""
    asked_for = f"--forms {' '.join(args.forms)} --seeds {args.seeds}{steps} --out {args.out}"
    provenance = {
        "command": f"MAS_LAB_THREADS=1 python benchmarks/gradient_spikes.py {asked_for}",
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "settings": {form: asdict(FORMS[form]) for form in args.forms},
        "episodes": 8,
        "rule": asdict(SpikeRule()),
        "rows": ROWS,
        "held_out": {"problems": HELD_OUT, "episodes": REPEATS},
        "spikes_of": shown,
        "versions": libraries | {"python": platform.python_version()},
    }
    (args.out / "provenance.json").write_text(json.dumps(provenance, indent=1) + "\n")


if __name__ == "__main__":
    main()
