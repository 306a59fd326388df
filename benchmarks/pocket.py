"""Processor seconds of a training step on pocket models, and the share of them that is the model's own arithmetic.

    .venv/bin/python benchmarks/pocket.py
    .venv/bin/python benchmarks/pocket.py --against ../another_checkout

A process per task, checkout and round, on one thread; with `--against` the checkouts take turns. The model's own
arithmetic is what runs within the network's forward pass, `backward` and the optimizer's step; drawing tokens from the
logits is not. Leaves out: what is learned, and starting up (the first step of a process is not counted).
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CASES = {
    "plan_path, grpo": ({"name": "plan_path"}, "grpo", {"lr": 1e-3}, {"tasks": 32, "minibatches": 2}),
    "plan_path, at_grpo": ({"name": "plan_path"}, "at_grpo", {"lr": 1e-3}, {"tasks": 32, "minibatches": 2}),
    "math, dr_mas": ({"name": "math"}, "dr_mas", {"lr": 3e-4, "per_agent": True}, {"tasks": 32}),
    "paid_help, dr_mas": (
        {"name": "paid_help", "pay": 0.2},
        "dr_mas",
        {"lr": 3e-4, "per_agent": True},
        {"tasks": 16},
    ),
    "ladder, dr_mas": ({"name": "ladder"}, "dr_mas", {"lr": 3e-4, "per_agent": True}, {"tasks": 16}),
}


class Clock:
    """Processor seconds within the functions that it has wrapped, each counted once where they call each other."""

    def __init__(self):
        self.seconds, self._depth = 0.0, 0

    def wrap(self, work):
        def timed(*args, **kwargs):
            began, self._depth = time.process_time(), self._depth + 1
            try:
                return work(*args, **kwargs)
            finally:
                self._depth -= 1
                self.seconds += 0.0 if self._depth else time.process_time() - began

        return timed


def learn(case: str, steps: int) -> list[dict[str, float]]:
    """Each step but the first: its processor `seconds`, and those of the `model`."""
    import torch

    import mas_lab as lab
    from mas_lab.demo import trials as demo

    env, recipe, team, settings = CASES[case]
    env, clock = lab.make_env(**env), Clock()
    team = demo.make_team(env, **team)
    if env.name == "paid_help":
        team = lab.Team(dict(team), frozen=("solver",))
    for policy in team.policies.values():
        policy.shared.net.forward = clock.wrap(policy.shared.net.forward)
        policy.optimizer.step = clock.wrap(policy.optimizer.step)
    torch.Tensor.backward = clock.wrap(torch.Tensor.backward)
    with suppress(ImportError):  # older checkouts sample through `net.forward`
        from mas_lab.backends.torch.fast.fused import FusedForward

        FusedForward.__call__ = clock.wrap(FusedForward.__call__)
    found, before, model = [], time.process_time(), 0.0
    for _ in lab.train(env, team, recipe, steps + 1, 0, **settings):
        now = time.process_time()
        found.append({"seconds": now - before, "model": clock.seconds - model})
        before, model = time.process_time(), clock.seconds
    return found[1:]


def learn_apart(case: str, steps: int, checkout: Path) -> list[dict[str, float]]:
    """`learn` in a process of its own, on the package of a checkout."""
    command = [sys.executable, "-P", str(Path(__file__).resolve()), "--case", case, "--steps", str(steps)]
    environment = {**os.environ, "PYTHONPATH": str(checkout), "MAS_LAB_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise RuntimeError(f"{case} in {checkout} failed (status {done.returncode}):\n{done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def summary(steps: list[dict[str, float]]) -> dict[str, float]:
    """Medians over steps: processor seconds, and the model's share of them."""
    seconds = [step["seconds"] for step in steps]
    return {
        "cpu_seconds": round(statistics.median(seconds), 4),
        "range": [round(min(seconds), 4), round(max(seconds), 4)],
        "model_share": round(statistics.median(step["model"] / step["seconds"] for step in steps), 3),
        "steps": len(steps),
    }


def revision(checkout: Path) -> str:
    asked = subprocess.run(["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return asked.stdout.strip()


def measure(cases: list[str], checkouts: dict[str, Path], rounds: int, steps: int) -> dict[str, dict]:
    """Of each case and checkout what `summary` says; the first checkout's with how many times faster it is."""
    found: dict[tuple[str, str], list] = {(case, name): [] for case in cases for name in checkouts}
    for number in range(rounds):
        for case in cases:
            for name in list(checkouts)[:: 1 if number % 2 else -1]:
                found[case, name] += learn_apart(case, steps, checkouts[name])
                print(f"round {number}: {case}, {name}", flush=True)
    results = {case: {name: summary(found[case, name]) for name in checkouts} for case in cases}
    for result in results.values():
        if "against" in result:
            result["times_faster"] = round(result["against"]["cpu_seconds"] / result["this"]["cpu_seconds"], 2)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", type=Path, help="another checkout, which takes turns with this one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4, help="measured steps per process")
    parser.add_argument("--only", nargs="*", default=list(CASES), metavar="NAME", help="names, or parts of them")
    parser.add_argument("--case", choices=CASES, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=ROOT / "data" / "results" / "benchmark_pocket.json")
    args = parser.parse_args()
    if args.case:
        print(json.dumps(learn(args.case, args.steps)))
        return
    checkouts = {"this": ROOT} | ({"against": args.against.resolve()} if args.against else {})
    load = os.getloadavg()[0]
    cases = [case for case in CASES if any(part in case for part in args.only)]
    results = measure(cases, checkouts, args.rounds, args.steps)
    against = " --against CHECKOUT" if args.against else ""
    record = {
        "command": f"python benchmarks/pocket.py --rounds {args.rounds} --steps {args.steps}{against}",
        "revisions": {name: revision(checkout) for name, checkout in checkouts.items()},
        "machine": {"platform": platform.platform(), "cores": os.cpu_count(), "load": load},
        "results": results,
    }
    args.out.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
