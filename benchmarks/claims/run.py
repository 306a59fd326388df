"""Train the parts of `benchmarks/claims/README.md` and record them.

    python benchmarks/claims/run.py fresh 135M paid_help finisher ladder

Writes `data/results/claims/PART/`. A record is written as each setting ends, so a study that stops goes on with the
next one. Leaves out: the predictions (`README.md`) and the analysis (`analyse`).
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import mas_lab as lab
from mas_lab.study.record import PROVENANCE, is_record, ship

sys.path.insert(0, "benchmarks/carries")
import run as carries

OUT = Path("data/results/claims")
FRESH = {"10M": (5, 6, 7, 8, 9), "135M": (5, 6, 7, 8, 10)}
"""Seed 9 chose the rates at 135 M."""


def commit() -> dict[str, Any]:
    """Return the commit of this checkout, and whether its code was changed since."""
    asked = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    changed = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", "mas_lab", "benchmarks"]).returncode
    return {"commit": asked.stdout.strip(), "dirty": bool(changed)}


def record(data: dict[str, Any], command: str, workers: int, keep: str = "tables") -> Any:
    """Make the trainings of a study, write its record with the commit, and return the study."""
    made = lab.study(data, f"runs/{data['name']}", workers=workers, keep=keep)
    path = ship(made, OUT.parent / data["name"], command) / PROVENANCE
    path.write_text(json.dumps(json.loads(path.read_text()) | commit(), indent=1) + "\n")
    return made


def fresh(size: str, settings: list[str], workers: int) -> None:
    """Train three arms of `benchmarks/carries` on seeds that it did not have."""
    for seed in FRESH[size]:
        carries.first_weights(size, seed)
    for setting in settings or ["paid_help", "finisher", "ladder"]:
        name = f"claims/fresh/{size}/{setting}"
        if is_record(OUT.parent / name):
            continue
        arms = {recipe: carries.arm(recipe, 1e-4) for recipe in ("grpo", "grpo_masked", "own_pooled")}
        data = carries.design(size, setting, arms, list(FRESH[size])) | {"name": name}
        made = record(data, f"python benchmarks/claims/run.py fresh {size} {setting}", workers)
        carries.measures(made).to_csv(OUT.parent / name / "measures.csv", index=False, float_format="%.4g")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=["fresh"])
    parser.add_argument("size", choices=FRESH)
    parser.add_argument("settings", nargs="*")
    parser.add_argument("--workers", type=int, default=1, help="trainings at a time")
    args = parser.parse_args()
    fresh(args.size, args.settings, args.workers)


if __name__ == "__main__":
    main()
