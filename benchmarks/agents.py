"""What more agents cost: rollouts of `plan_path` and of `math` with 2, 4, 8 and 16 of them, on pocket weights.

    MAS_LAB_THREADS=1 .venv/bin/python benchmarks/agents.py     # writes data/results/benchmark_agents.json

A row is a model call. Seconds are the processor's, which a busy neighbour disturbs less than the wall clock: those in
the environment, those in the engine that samples, and those of the rollout around both. Medians over the rounds, in
which the numbers of agents take turns, after one that is not counted. Leaves out updates: they pay for rows and tokens.
"""

import argparse
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
AGENTS = (2, 4, 8, 16)


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


def measure(game: str, agents: int, tasks: int, episodes: int, seed: int = 0) -> dict[str, Any]:
    """One rollout in numbers: rows, prompt and completion tokens, calls of `observe`, and seconds of each part."""
    inner = lab.make_env(game, n_agents=agents)
    env = Timed(inner, "start", "acting", "observe", "step")
    policy = lab.load_policy(inner.pocket)
    engine = Timed(policy.engine, "ready")
    policy.engine.ready = engine.ready
    team = lab.Team.shared(policy, inner.agents)
    drawn = inner.tasks(tasks, "test", seed)
    begin = time.process_time()
    table = lab.rollout(env, team, drawn, plan=lab.episodes(episodes), seed=seed, workers=0)
    seconds = time.process_time() - begin
    prompts = table["prompt_ids"].map(len)
    return {
        "rows": len(table),
        "prompt tokens": int(prompts.sum()),
        "longest prompt": int(prompts.max()),
        "completion tokens": int(table["completion_ids"].map(len).sum()),
        "observe": env.calls["observe"],
        "seconds of the env": env.seconds,
        "seconds of the model": engine.seconds,
        "seconds around them": seconds - env.seconds - engine.seconds,
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
    results: dict[str, dict[str, Any]] = {}
    for game in GAMES:
        found = defaultdict(list)
        for number in range(given.rounds + 1):
            for agents in AGENTS:
                measured = measure(game, agents, given.tasks, given.episodes)
                found[agents] += [measured] if number else []
        for agents in AGENTS:
            one = results[f"{game}, {agents} agents"] = middle(found[agents])
            parts = ("env", "model")
            told = [f"{one[f'seconds of the {part}'] / one['rows'] * 1e3:6.2f} ms {part}" for part in parts]
            around = f"{one['seconds around them'] / one['rows'] * 1e3:6.2f} ms around"
            tokens = f"{one['prompt tokens'] / one['rows']:6.1f} prompt tokens a row (longest {one['longest prompt']})"
            print(
                f"{game:10} {agents:3} agents {one['rows']:6} rows, {tokens},", ", ".join([*told, around]), flush=True
            )
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    machine = {"platform": platform.platform(), "cores": os.cpu_count(), "load": load}
    command = f"python benchmarks/agents.py --rounds {given.rounds} --tasks {given.tasks} --episodes {given.episodes}"
    told = {"command": command, "settings": settings, "machine": machine, "results": results}
    given.out.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
