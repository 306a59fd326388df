"""How long the first model takes, from a cold process to the first completion, and `import mas_lab`.

    MAS_LAB_THREADS=1 .venv/bin/python benchmarks/importing.py

Median wall and processor seconds of fresh processes, which take turns. The libraries that a model needs are also
imported alone: they are the limit. Processor seconds include the start of Python; a busy neighbour disturbs them less
than the wall clock. Which modules an import pulls in is a test's matter (`tests/test_api.py`).
"""

import argparse
import os
import statistics
import subprocess
import sys
import time

CODE = {
    "import mas_lab": "import mas_lab",
    "its libraries alone": "import torch, pandas; from transformers import AutoTokenizer, Qwen3ForCausalLM",
    "to the first completion": """
import mas_lab as lab
env = lab.make_env("plan_path")
team = lab.Team.shared(lab.load_policy(env.pocket), env.agents)
lab.rollout(env, team, env.tasks(1, "train", seed=0), lab.episodes(1))
""",
}


def measure(code: str) -> tuple[float, float]:
    """(wall, processor) seconds of a process that runs the code and ends."""
    start, ends = time.perf_counter(), f"{code}\nimport time; print(time.process_time())"
    told = subprocess.run([sys.executable, "-P", "-c", ends], check=True, capture_output=True, text=True).stdout
    return time.perf_counter() - start, float(told.split()[-1])


def heaviest(count: int) -> list[tuple[float, str]]:
    """(milliseconds with all that it imports, module) of the packages of others that take longest."""
    told = subprocess.run([sys.executable, "-P", "-X", "importtime", "-c", "import mas_lab"], check=True, text=True,
                          capture_output=True).stderr  # fmt: skip
    lines = [line.split("|") for line in told.splitlines()[1:] if line.count("|") == 2]
    whole = {name.strip(): int(total) / 1000 for _, total, name in lines}
    others = {name: total for name, total in whole.items() if "." not in name and name != "mas_lab"}
    return sorted(((total, name) for name, total in others.items()), reverse=True)[:count]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    found = {what: [] for what in CODE}
    for _ in range(rounds):
        for what, code in CODE.items():
            found[what].append(measure(code))
    load = f", load average {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    print(f"medians of {rounds} processes each{load}")
    for what, seconds in found.items():
        wall, own = map(statistics.median, zip(*seconds, strict=True))
        print(f"{what}: {wall:.2f} s, of the processor {own:.2f} s")
    for milliseconds, name in heaviest(8):
        print(f"{milliseconds:8.0f} ms  {name}")


if __name__ == "__main__":
    main()
