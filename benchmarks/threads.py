"""Seconds of a training step with two torch threads, alone and beside a busy process, by how OpenMP's threads wait.

    .venv/bin/python benchmarks/threads.py     # writes data/results/benchmark_threads.json

The neighbour multiplies matrices with two threads. Leaves out: which number is best (`lab.probe_threads`).
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import mean, median

WAITS = {
    "two, as libgomp waits": {"MAS_LAB_THREADS": "2", "GOMP_SPINCOUNT": "300000"},
    "two, as mas_lab waits": {"MAS_LAB_THREADS": "2"},
    "two, asleep at once": {"MAS_LAB_THREADS": "2", "OMP_WAIT_POLICY": "PASSIVE"},
    "one": {"MAS_LAB_THREADS": "1"},
}
LEARN = """
import sys, time, mas_lab as lab
env, at = lab.make_env("math"), []
team = lab.Team.shared(lab.load_policy(env.pocket), env.agents)
for _ in lab.train(env, team, "dr_mas", int(sys.argv[1]) + 1, 0, tasks=32):
    at.append(time.perf_counter())
print([b - a for a, b in zip(at, at[1:])])
"""
NEIGHBOUR = "import torch; torch.set_num_threads(2); x = torch.ones(1024, 512)\nwhile True: x @ x.T"


def steps(wait: str, busy: bool, count: int) -> list[float]:
    """Seconds of each step but the first of a process that trains."""
    bare = {name: value for name, value in os.environ.items() if not name.startswith(("MAS_", "OMP_", "GOMP_"))}
    beside = subprocess.Popen([sys.executable, "-c", NEIGHBOUR], env=bare) if busy else None
    time.sleep(3 * busy)
    command = [sys.executable, "-P", "-c", LEARN, str(count)]
    done = subprocess.run(command, stdout=subprocess.PIPE, env=bare | WAITS[wait])
    if beside:
        beside.kill()
    return json.loads(done.stdout.splitlines()[-1])  # after the verdict of the training


def main() -> None:
    rounds, count, load = 3, 8, os.getloadavg()[0]
    found = {(wait, busy): [] for wait in WAITS for busy in (False, True)}
    for _ in range(rounds):
        for (wait, busy), seconds in found.items():
            seconds += steps(wait, busy, count)
    record = {"command": "python benchmarks/threads.py", "rounds": rounds, "steps": count, "load_before": load}
    for (wait, busy), seconds in found.items():
        told = {name: round(of(seconds), 2) for name, of in (("median", median), ("mean", mean), ("slowest", max))}
        record[name := f"{wait}, {'beside' if busy else 'alone'}"] = told
        print(f"{name:32} {told}")
    Path("data/results/benchmark_threads.json").write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
