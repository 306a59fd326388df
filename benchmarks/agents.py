"""What more agents and more rows a prompt cost: steps of `plan_path` and of `math`, on pocket weights.

    MAS_LAB_THREADS=1 .venv/bin/python benchmarks/agents.py     # writes data/results/benchmark_agents.json

A row is a model call. Seconds are the processor's, which a busy neighbour disturbs less than the wall clock: those in
the environment, those in the engine that samples, and those of the rollout around both, of the credits and advantages,
and of the update. Tokens are counted as the model reads them: a prompt that many rows share is read once. Medians over
the rounds, in which the cases take turns, after one that is not counted.
"""

import argparse
import itertools
import json
import os
import platform
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("MAS_LAB_THREADS", "1")

import mas_lab as lab

HERE = Path(__file__).resolve().parent
GAMES = ("plan_path", "math")
AGENTS, CANDIDATES = (2, 4, 8, 16), (4, 16, 64)
COLUMNS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "rows": lambda one: one["rows"],
    "tokens of prompts and completions": lambda one: one["prompt tokens"] + one["completion tokens"],
    "computed in the rollout": lambda one: one["computed in the rollout"],
    "in the update": lambda one: one["computed in the update"],
    **{f"{what}, ms a row": lambda one, parts=parts: f"{1e3 * sum(one[part] for part in parts) / one['rows']:.2f}"
       for what, parts in {"rollout": ("seconds of the env", "seconds of the model", "seconds around them"),
                           "credits": ("seconds of credits",), "update": ("seconds of the update",)}.items()},
}  # fmt: skip


class Timed:
    """Another object, whose calls are counted and timed: `calls[name]`, and `seconds` of them all."""

    def __init__(self, inner: Any, *names: str):
        self.inner, self.names = inner, names
        self.calls: dict[str, int] = defaultdict(int)
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.inner, name)
        return self._timed(name, value) if name in self.names else value

    def _timed(self, name: str, function: Callable) -> Callable:
        def call(*given, **named):
            begin = time.process_time()
            try:
                return function(*given, **named)
            finally:
                self.seconds += time.process_time() - begin
                self.calls[name] += 1

        return call


def measure(game: str, agents: int, tasks: int, plan: Any, seed: int = 0) -> dict[str, Any]:
    """One step in numbers: rows, tokens, those that went through the model, and seconds of each part."""
    inner = lab.make_env(game, n_agents=agents)
    env = Timed(inner, "start", "acting", "observe", "step")
    policy = lab.load_policy(inner.pocket, lr=1e-6)
    engine, read = Timed(policy.engine, "ready"), []
    policy.engine.ready = engine.ready
    policy.shared.net.get_input_embeddings().register_forward_hook(lambda _, ids, __: read.append(ids[0].numel()))
    team = lab.Team.shared(policy, inner.agents)
    drawn, times = inner.tasks(tasks, "test", seed), [time.process_time()]
    table = lab.rollout(env, team, drawn, plan=plan, seed=seed, workers=1)
    times.append(time.process_time())
    sampled = sum(read)
    recipe = lab.RECIPES["at_grpo" if isinstance(plan, lab.tree) else "dr_mas"]
    judged = recipe.advantages(table)
    times.append(time.process_time())
    lab.update(team, judged, loss=recipe.loss)
    times.append(time.process_time())
    rollout, credits, update = (after - before for before, after in itertools.pairwise(times))
    prompts = table["prompt_ids"].map(len)
    return {
        "rows": len(table),
        "prompt tokens": int(prompts.sum()),
        "longest prompt": int(prompts.max()),
        "completion tokens": int(table["completion_ids"].map(len).sum()),
        "computed in the rollout": sampled,
        "computed in the update": sum(read) - sampled,
        "observe": env.calls["observe"],
        "seconds of the env": env.seconds,
        "seconds of the model": engine.seconds,
        "seconds around them": rollout - env.seconds - engine.seconds,
        "seconds of credits": credits,
        "seconds of the update": update,
    }


def middle(found: list[dict[str, Any]]) -> dict[str, Any]:
    """Rollouts of the same draws as one: their counts, and the medians of their seconds."""
    counts = {name for name in found[0] if not name.startswith("seconds")}
    if any(one[name] != found[0][name] for one in found for name in counts):
        raise SystemExit("two rounds drew differently: nothing that they count can be compared")
    return {
        name: value if name in counts else round(statistics.median(one[name] for one in found), 3)
        for name, value in found[0].items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=16)
    parser.add_argument("--episodes", type=int, default=4)
    parser.add_argument("--out", type=Path, default=HERE.parent / "data" / "results" / "benchmark_agents.json")
    given = parser.parse_args()
    settings = {"rounds": given.rounds, "tasks": given.tasks, "episodes": given.episodes}
    cases = {f"{game}, {agents} agents": (game, agents, lab.episodes(given.episodes))
             for game in GAMES for agents in AGENTS}  # fmt: skip
    cases |= {f"plan_path, {k} rows a prompt": ("plan_path", 2, lab.tree(k)) for k in CANDIDATES}
    found = defaultdict(list)
    for number in range(given.rounds + 1):
        for name, (game, agents, plan) in cases.items():
            measured = measure(game, agents, given.tasks, plan)
            found[name] += [measured] if number else []
    results = {name: middle(own) for name, own in found.items()}
    print("| | " + " | ".join(COLUMNS) + " |\n|---" + "|---" * len(COLUMNS) + "|")
    for name, one in results.items():
        print(f"| {name} | " + " | ".join(str(told(one)) for told in COLUMNS.values()) + " |")
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    machine = {"platform": platform.platform(), "cores": os.cpu_count(), "load": load}
    command = f"python benchmarks/agents.py --rounds {given.rounds} --tasks {given.tasks} --episodes {given.episodes}"
    told = {"command": command, "settings": settings, "machine": machine, "results": results}
    given.out.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
