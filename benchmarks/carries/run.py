"""Train the same settings from 0.3 to 135 million weights, one of them also with 0.5 billion, and record them.

    python benchmarks/carries/run.py 135M              # first weights, rates, then four settings; stops and goes on
    python benchmarks/carries/run.py 135M --only finisher    # the fifth, which was added
    python benchmarks/carries/run.py 135M --only ladder paid_help
    python benchmarks/carries/run.py 135M --shared     # one adapter for all agents
    python benchmarks/carries/run.py 135M --times 4 --only ladder    # a larger budget
    python benchmarks/carries/run.py 0.5B --only paid_help

Writes `data/results/carries/SIZE/`: `starts.csv`, the first weights; `rates/`, the record of the rates that were tried;
a record per setting; and `measures.csv`, what is computed from the tables of each run. `README.md` has the predictions
and the protocol. Leaves out: the analysis (`analyse`).
"""

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

import mas_lab as lab
from mas_lab.policy import Policy
from mas_lab.study.record import Recorded, is_record, ship

sys.path.insert(0, str(Path(__file__).parents[1] / "studies"))
from settings import Quiz

OUT, RUNS = Path("data/results/carries"), Path("runs/carries")
ARMS = ("grpo", "grpo_masked", "dr_mas", "own_pooled")
BASE, RANK = "smollm2-135m", 8
LOW, HIGH, ASKED = 0.42, 0.48, 256
"""First weights answer between these shares of `ASKED` plain questions and as many after a wrong answer."""


@dataclass(frozen=True)
class Size:
    """A model; pocket models have a shape, a real one is an adapter of its base."""

    seeds: int
    rates: tuple[float, ...] = (1e-4, 3e-4, 1e-3)
    """Rates that are tried; one rate is taken as it is."""
    rate_seed: int = 19
    rated: tuple[str, ...] = ("grpo", "dr_mas")
    """Arms that the rates are tried with."""
    arms: tuple[str, ...] = ARMS
    base: str = BASE
    shape: tuple[int, int, int] | None = None
    """Layers, width and heads."""
    warm: tuple[float, int, int] = (1e-3, 32, 2)
    """Learning rate, batch and steps between two checks of the warm start."""

    @property
    def questions(self) -> str:
        return "pocket" if self.shape else "words"


SIZES = {
    "0.3M": Size(10, shape=(3, 96, 4), warm=(3e-3, 64, 25)),
    "3M": Size(10, shape=(4, 256, 4), warm=(1e-3, 64, 25)),
    "10M": Size(5, shape=(6, 384, 6), warm=(6e-4, 64, 25)),
    "135M": Size(5, (1e-4, 3e-4, 1e-3, 3e-3), 9, ARMS),
    "0.5B": Size(3, (1e-4,), arms=("grpo", "grpo_masked", "dr_mas_mean", "own_pooled"), warm=(2e-4, 16, 1),
                 base="runs/carries/base/qwen2.5-coder-0.5b-instruct.Q4_K_M.gguf"),
}  # fmt: skip
STAGES = tuple(f"stage_{i + 1}" for i in range(6))
SPOT_CHECK, QUIZ = "benchmarks/studies/settings:SpotCheck", "benchmarks/studies/settings:Quiz"
SETTINGS: dict[str, tuple[dict[str, Any], tuple[str, ...], tuple[str, ...]]] = {
    "ladder": ({"name": "ladder", "n_agents": 6}, STAGES, ()),
    "paid_help": ({"name": "paid_help", "pay": 0.2}, ("solver", "helper"), ("solver",)),
    "stakes": ({"name": "stakes"}, ("solver", "clerk", "helper"), ("solver", "clerk")),
    "spot_check": ({"name": SPOT_CHECK}, ("solver", "checker"), ("solver",)),
    "finisher": ({"name": "finisher"}, ("solver", "finisher"), ("solver",)),
}
"""Setting -> env, agents, and those who do not learn."""
RATED, ADDED = ("ladder", "paid_help"), ("finisher",)


def fresh(name: str, seed: int) -> Path:
    """Return the folder of a pocket model that has learned nothing."""
    from mas_lab.pocket.build import Order, make
    from mas_lab.pocket.design import Design

    (layers, width, heads), env = SIZES[name].shape, lab.make_env("paid_help")
    design = Design(stages=(), layers=layers, hidden=width, heads=heads, spread=0.08 * (96 / width) ** 0.5, held_out=8)
    order = Order("paid_help", design, {"paid_help": (1.0, env)}, env.words, seed, f"{__file__} {name}")
    return make(order, [], RUNS / "fresh" / f"{name}-{seed}")


def right_when_asked(policy: Policy, questions: str, seed: int) -> dict[str, float]:
    """Return the shares of right answers to plain questions and to questions after a wrong answer."""
    quiz = Quiz(size=questions, agents=("plain", "after"), helpers=("after",))
    tasks = quiz.tasks(ASKED, "val", seed)
    scores = lab.evaluate(quiz, lab.Team.shared(policy, quiz.agents), tasks, k=1, seed=seed)
    return scores.groupby("agent")["own_return"].mean().to_dict()


def first_weights(name: str, seed: int, slower: int = 2) -> dict[str, Any]:
    """Make the warm start of a seed, unless it is there, and return what it can.

    Near the end the rate is `slower` times lower. A start that jumps over the range is made anew with half of that.
    """
    folder = RUNS / "warm" / f"{name}-{seed}"
    if (folder / "start.json").is_file():
        return json.loads((folder / "start.json").read_text())
    size = SIZES[name]
    lr, batch, every = size.warm
    if size.shape:
        policy = lab.load_policy(fresh(name, seed), lr=lr)
    else:
        policy = lab.load_policy(size.base, lora=RANK, lr=lr, dtype="bfloat16", seed=seed)
    env, steps, right = lab.make_env("paid_help", size=size.questions), 0, 0.0
    while right < LOW:
        near = right > LOW - 0.12
        for agent in env.agents:
            block = max(1, every // 5) if near else every
            rate = lr / slower if near else lr
            lab.imitate(lab.Team({agent: policy}), env, batch, block, batch=batch, lr=rate, seed=1000 * seed + steps)
            steps += block
        found = right_when_asked(policy, size.questions, seed)
        right = sum(found.values()) / 2
        print(f"{name}, seed {seed}: {steps} steps, right {right:.3f} {found}", flush=True)
    if right > HIGH:
        return first_weights(name, seed, 2 * slower)
    policy.save(folder)
    start = {"seed": seed, "steps": steps, "slower": slower, "right": right, **found}
    (folder / "start.json").write_text(json.dumps(start))
    return start


def record_starts(name: str, seeds: list[int]) -> None:
    """Make the warm starts of `seeds` and list what they can. A row that is listed already stays as it is."""
    path = OUT / name / "starts.csv"
    found = pd.DataFrame([first_weights(name, seed) for seed in seeds]).round(3)
    if path.is_file():
        found = pd.concat([pd.read_csv(path), found]).drop_duplicates("seed")
    path.parent.mkdir(parents=True, exist_ok=True)
    found.sort_values("seed").to_csv(path, index=False)


def design(
    name: str, setting: str, arms: dict[str, Any], seeds: list[int], shared: bool = False, times: int = 1
) -> dict[str, Any]:
    """Return a study, with one set of weights for all agents or a budget `times` as large if asked."""
    form = "-shared" * shared + f"-{times}x" * (times > 1)
    size, (env, agents, frozen) = SIZES[name], SETTINGS[setting]
    start, helpers = f"runs/carries/warm/{name}-{{seed}}", [agent for agent in agents if agent == "helper"]
    team: dict[str, Any] = {"weights": "shared" if shared else "per_agent"}
    team |= {"model": start} if size.shape else {
        "model": size.base, "lora": RANK, "options": {"start": start, "dtype": "bfloat16"}}  # fmt: skip
    team |= {"agents": {agent: {"frozen": True} for agent in frozen}}
    return {
        "name": f"carries/{name}/{setting}{form}", "env": env | {"size": size.questions},
        "team": team, "settings": {"tasks": 16, "save_every": 30, "score_tasks": 64, "score_episodes": 4},
        "budget": {"episodes": 3840 * times}, "seeds": seeds, "differ": ["recipe", "team.lr"], "arms": arms,
        "quiz": {"name": QUIZ, "size": size.questions, "agents": list(agents), "helpers": helpers},
    }  # fmt: skip


def arm(recipe: str, lr: float) -> dict[str, Any]:
    return {"recipe": recipe, "team": {"lr": lr}}


def played(data: dict[str, Any], workers: int | None, command: str, keep: str = "tables") -> Any:
    """Make the trainings of a study that are neither here nor in its record, write the record, and return the study."""
    record = OUT.parent / data["name"]
    sources = [record] if is_record(record) else []
    made = lab.study(data, f"runs/{data['name']}", sources, workers=workers, keep=keep)
    ship(made, record, command)
    return made


def learned(made: Any, frozen: tuple[str, ...]) -> pd.DataFrame:
    """Return a row per training: the right rate when asked at the end, averaged over the agents that learn."""
    agents = made.agents.query("window == 'end'")
    agents = agents[~agents["agent"].isin(frozen)]
    return agents.groupby(["arm", "seed"])["quiz_after"].mean().reset_index()


def rates(name: str, workers: int | None) -> dict[str, float]:
    """Try the rates, record all of them, and return the rate of each arm."""
    size, found = SIZES[name], []
    if len(size.rates) == 1:
        return dict.fromkeys(size.arms, size.rates[0])
    for setting in RATED:
        arms = {f"{recipe} at {lr:g}": arm(recipe, lr) for recipe in size.rated for lr in size.rates}
        data = design(name, setting, arms, [size.rate_seed])
        data["name"] = f"carries/{name}/rates_{setting}"
        record = OUT.parent / data["name"]
        command = f"python benchmarks/carries/run.py {name}"
        made = Recorded(record) if is_record(record) else played(data, workers, command)
        found.append(learned(made, SETTINGS[setting][2]))
    table = pd.concat(found).groupby("arm")["quiz_after"].mean()
    table.index = pd.MultiIndex.from_tuples([one.split(" at ") for one in table.index], names=["recipe", "lr"])
    table = table.unstack("lr")[[f"{lr:g}" for lr in size.rates]]
    print(table.round(3).to_string(), flush=True)
    if size.shape:  # one rate for all arms
        return dict.fromkeys(ARMS, float(table.sum().idxmax()))
    return {recipe: float(table.loc[recipe].idxmax()) for recipe in ARMS}


def measures(made: Any) -> pd.DataFrame:
    """Return norms over all steps and the shares of wrong answers that were reinforced and of right ones punished.

    A row per training and agent.
    """
    rows = []
    for cell in made.table[made.table["state"] == "made"].itertuples():
        run = lab.load_run(cell.run)
        turns = pd.concat([run.step_turns(step) for step in range(run.steps)])
        wrong, right = turns[turns["local_reward"] < 1], turns[turns["local_reward"] >= 1]
        norms = run.stats.groupby("agent")["grad_norm"].agg(largest_norm="max", mean_norm="mean")
        reinforced = (wrong["advantage"] > 0).groupby(wrong["agent"]).mean().rename("reinforced")
        punished = (right["advantage"] < 0).groupby(right["agent"]).mean().rename("punished")
        table = norms.join(reinforced).join(wrong.groupby("agent").size().rename("wrong")).join(punished)
        rows.append(table.reset_index().assign(arm=cell.arm, seed=cell.seed))
    return pd.concat(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("size", choices=SIZES)
    first = [setting for setting in SETTINGS if setting not in ADDED]
    parser.add_argument("--only", nargs="*", default=first, choices=SETTINGS, metavar="SETTING")
    parser.add_argument("--shared", action="store_true", help="one set of weights for all agents, three seeds")
    parser.add_argument("--times", type=int, default=1, help="a larger budget: three arms, three seeds")
    parser.add_argument("--starts", action="store_true", help="make the first weights alone")
    parser.add_argument("--workers", type=int, help="trainings at a time; default: one per core")
    args = parser.parse_args()
    size, out = SIZES[args.size], OUT / args.size
    recipes, seeds, command = size.arms, size.seeds, f"python benchmarks/carries/run.py {args.size}"
    if args.shared:
        recipes, seeds, command = ("grpo", "dr_mas", "own_pooled"), 3, command + " --shared"
    elif args.times > 1:  # the arms that share a rate
        recipes, seeds, command = ("grpo", "grpo_masked", "own_pooled"), 3, f"{command} --times {args.times}"
    rated = len(size.rates) == 1 or all(is_record(out / f"rates_{setting}") for setting in RATED)
    record_starts(args.size, [*range(seeds)] if rated else [*range(seeds), size.rate_seed])
    if args.starts:
        return
    chosen = rates(args.size, args.workers)
    for setting in args.only:
        arms = {recipe: arm(recipe, chosen[recipe]) for recipe in recipes}
        data = design(args.size, setting, arms, list(range(seeds)), args.shared, args.times)
        last = OUT.parent / data["name"] / "measures.csv"
        if not last.is_file():
            made = played(data, args.workers, command + f" --only {setting}" * (setting in ADDED))
            measures(made).to_csv(last, index=False, float_format="%.4g")


if __name__ == "__main__":
    main()
