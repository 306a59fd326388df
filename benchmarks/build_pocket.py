"""Rebuild shipped pocket models from the designs in their folders and their fixed seeds.

    .venv/bin/python benchmarks/build_pocket.py                       # all of them, into data/pocket/
    .venv/bin/python benchmarks/build_pocket.py math --seed 3 --out runs/pockets/math-3

The same seed on the same machine and library versions gives the same weights. Another seed, or a changed design, is
built from `recipe` in `data/pocket/<family>/provenance.json`. Leaves out: models of your own (`lab.make_pocket`).
"""

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mas_lab.paths import data_dir
from mas_lab.pocket.build import Order, make
from mas_lab.pocket.design import Design, Stage
from mas_lab.tasks import make_env


@dataclass(frozen=True, kw_only=True)
class Family(Design):
    """The design of a shipped pocket model."""

    env: str
    forms: tuple[tuple[float, Mapping[str, Any]], ...]
    """(share of the demonstrations, options of `make_env`) for each form of the env that the model should play."""


def families() -> dict[str, Family]:
    """Return the designs of the shipped models by name."""
    found = {}
    for file in sorted((data_dir() / "pocket").glob("*/provenance.json")):
        recipe = json.loads(file.read_text(encoding="utf-8"))["recipe"]
        recipe |= {"stages": tuple(Stage(**one) for one in recipe["stages"]), "marks": tuple(recipe["marks"])}
        found[file.parent.name] = Family(**recipe)
    return found


def build(family: str, recipe: Family, out: Path, seed: int = 0) -> Path:
    """Build the pocket model `family` into `out`, and return the folder."""
    forms = {json.dumps(options): (share, make_env(recipe.env, **options)) for share, options in recipe.forms}
    command = f"python benchmarks/build_pocket.py {family}" + (f" --seed {seed}" if seed else "")
    order = Order(family, recipe, forms, make_env(recipe.env).words, seed, command)
    return make(order, order.demonstrated(), out)


def main() -> None:
    known = families()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=f"of {', '.join(known)} (default: all of them)")
    parser.add_argument("--out", type=Path, default=None, help="folder, for one (default: data/pocket/FAMILY)")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    if unknown := {*args.families} - known.keys() or (args.out is not None and len(args.families) != 1):
        parser.error(f"one FAMILY goes with --out FOLDER; known are {', '.join(known)}, not {unknown}")
    for family in args.families or known:
        build(family, known[family], args.out or data_dir() / "pocket" / family, args.seed)


if __name__ == "__main__":
    main()
