"""Foretell, setting by setting, which agents an own baseline helps, then train and record what came of it.

    MAS_LAB_THREADS=1 python benchmarks/foretold/run.py --only foretell            # all settings; commit the result
    MAS_LAB_THREADS=1 python benchmarks/foretold/run.py tldr sudoku                # trains these; stops and goes on
    python benchmarks/foretold/analyse.py                                          # what came of it

Writes `data/results/foretold/predictions/SETTING.csv` and the record of a study, `data/results/foretold/SETTING/`.
`README.md` has the protocol. The recorded predictions also hold `gain`, `policy_gain`, `weighted_gain`, `snr`,
`progress` and `sigma_ratio`, which the kit had until they failed. The analysis needs them, so keep the recorded files.
`--check` builds a setting and plays a few episodes; it trains nothing. Leaves out: the analysis.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import yaml
from drawn import Drawn

import mas_lab as lab
from mas_lab.study.record import is_record, ship

sys.path.append(str(Path(__file__).parents[1]))
from lemma import baseline_ratio

HERE, OUT = Path(__file__).parent, Path("data/results/foretold")
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
RUNS = Path("runs/foretold")
SETTINGS: dict[str, dict[str, Any]] = yaml.safe_load((HERE / "settings.yaml").read_text(encoding="utf-8"))
ARMS = ("grpo", "grpo_masked", "dr_mas", "own_robust", "own_pooled")
CODES = ["6cb2ca8a2d88"]
"""Code that made the recorded arms; two settings and arms were made again with this one: the same but for rounding."""
TASKS, EPISODES, STEPS = 16, 8, 20
RATES, RATE_SEEDS, SEEDS = (1e-4, 3e-4), (8, 9), tuple(range(8))
POCKET_STEPS = 1500
LOOKS = (100, 101, 102)
"""Seeds of the untrained rollouts behind a prediction, which is their median."""
HELD_OUT, REPEATS = 64, 4
EQUAL = 1e-9
UNTRAINED = "grpo and dr_mas give the same advantages, so both are the same training"
SEEN = ["signal", "spoke", "peerless"]


def slug(name: str) -> str:
    return name.replace(" ", "_")


def env_of(name: str) -> lab.Env:
    options = dict(SETTINGS[name]["env"])
    if options.get("name") == "reasoning_gym":
        sys.path.append(str(EXAMPLES))
        from reasoning_gym_env import ReasoningGym

        return ReasoningGym(**{key: value for key, value in options.items() if key != "name"})
    return lab.make_env(**options) if "name" in options else Drawn(**options)


def model_of(name: str) -> str:
    """Return the first weights of a setting; make them if the kit ships none."""
    env = env_of(name)
    if not SETTINGS[name].get("pocket"):
        return env.pocket
    folder = RUNS / "pockets" / slug(name)
    if not (folder / "provenance.json").is_file():
        lab.make_pocket(env, folder, steps=POCKET_STEPS)
    return str(folder)


def design(name: str, model: str) -> dict[str, Any]:
    """Return the study of one setting: five arms, each at its best rate, eight seeds."""
    setting = SETTINGS[name]
    score = {"own": "success", "team": "return"}[setting["outcome"]]
    return {
        "name": f"foretold/{slug(name)}", "env": env_of(name), "team": {"weights": "per_agent", "model": model},
        "settings": {"tasks": TASKS, "save_every": 100, "score_tasks": HELD_OUT, "score_episodes": REPEATS},
        "budget": {"episodes": TASKS * EPISODES * STEPS}, "score": score,
        "seeds": list(SEEDS), "sweep": {"lr": list(RATES), "seeds": list(RATE_SEEDS)},
        "arms": {arm: {"recipe": arm} for arm in ARMS}, "differ": ["recipe"], "codes": CODES,
    }  # fmt: skip


def looked_at(name: str, model: str, seed: int, tasks: int = TASKS) -> pd.DataFrame:
    """Return what can be known of each agent from one untrained rollout of the size of a training step.

    `apart` is the largest difference between the advantages of `grpo` and of `dr_mas`.
    """
    env = env_of(name)
    team = lab.Team.per_agent(lambda agent: lab.load_policy(model), env.agents)
    turns = lab.rollout(env, team, env.tasks(tasks, "train", seed), lab.episodes(EPISODES), seed=seed)
    own = lab.RECIPES["dr_mas"].advantages(turns)["advantage"]
    turns = lab.RECIPES["grpo"].advantages(turns)
    apart = (turns["advantage"] - own).abs().max()
    said = lab.RewardInspector(turns, agents=env.agents).table[["agent", "rows", *SEEN, "F"]]
    norms = baseline_ratio(team, turns, rows=1)[["agent", "measured"]].rename(columns={"measured": "norm_ratio"})
    return said.merge(norms, on="agent", how="left").assign(seed=seed, apart=apart)


def foretell(name: str) -> Path:
    """Write the predictors of a setting, a row per agent and look; an existing file stays as it is."""
    path = OUT / "predictions" / f"{slug(name)}.csv"
    if not path.is_file():
        model = model_of(name)
        looks = pd.concat([looked_at(name, model, seed) for seed in LOOKS])
        path.parent.mkdir(parents=True, exist_ok=True)
        looks.assign(setting=name).to_csv(path, index=False, float_format="%.6g")
    return path


def train(name: str, workers: int | None) -> None:
    """Make the missing trainings of a setting, and write its record; a prediction must be there."""
    if not (path := OUT / "predictions" / f"{slug(name)}.csv").is_file():
        raise SystemExit(f"{name}: nothing is foretold yet; run with --only foretell, and commit the file")
    if pd.read_csv(path)["apart"].max() < EQUAL:
        print(f"{name}: not trained; {UNTRAINED}")
        return
    record = OUT / slug(name)
    sources = [record] if is_record(record) else []
    made = lab.study(design(name, model_of(name)), RUNS / slug(name), sources, workers)
    if made.records:
        ship(made, record, f"python benchmarks/foretold/run.py {name!r}")


def check(name: str) -> None:
    """Build a setting, its study and a small rollout; weights that the kit does not ship get two steps of making."""
    with tempfile.TemporaryDirectory() as folder:
        env = env_of(name)
        for split, count in (("test", HELD_OUT), ("train", TASKS)):
            env.tasks(count, split, seed=0)
        model = env.pocket or str(lab.make_pocket(env, Path(folder) / "model", steps=2))
        lab.study(design(name, model), folder=Path(folder) / "study", play=False)
        found = looked_at(name, model, LOOKS[0], tasks=4)
    print(f"{name}: {', '.join(f'{row.agent} {row.rows} rows, signal {row.signal:.2f}' for row in found.itertuples())}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("settings", nargs="*", metavar="SETTING", help="names of settings.yaml; default: all")
    parser.add_argument("--only", choices=["foretell"], help="write the predictions, and train nothing")
    parser.add_argument("--check", action="store_true", help="build and play a few episodes, write nothing")
    parser.add_argument("--workers", type=int, default=None, help="processes at a time")
    args = parser.parse_args()
    names = args.settings or list(SETTINGS)
    if unknown := set(names) - set(SETTINGS):
        parser.error(f"unknown settings {sorted(unknown)}; known are {', '.join(SETTINGS)}")
    for name in names:
        if args.check:
            check(name)
            continue
        print(f"{name}: foretold in {foretell(name)}")
        if not args.only:
            train(name, args.workers)


if __name__ == "__main__":
    main()
