"""The record of a training in run.json: its arguments and the versions of the code.

Leaves out: the comparison of records when a run is resumed (`runs.recorder`).
"""

import ast
import platform
from dataclasses import asdict
from functools import lru_cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from mas_lab.describe import describe, sources
from mas_lab.env import Env, spec
from mas_lab.recipes import Recipe
from mas_lab.runs.run import FORMAT
from mas_lab.team import Team, describe_team
from mas_lab.train.drawing import Curriculum
from mas_lab.train.settings import Settings

PACKAGE = Path(__file__).parents[1]
DECIDE = ("table.py", "env.py", "policy.py", "team.py", "losses.py", "tool_calls.py", "child.py", "recipes.py", "cells",
          "tasks", "backends", "train")  # fmt: skip
"""Files and folders whose code decides the result of a training."""
LIBRARIES = ("mas-lab", "torch", "transformers", "peft", "pandas", "numpy")


def describe_parts(env: Env, recipe: Recipe, curriculum: Curriculum | None = None) -> dict[str, Any]:
    """Return env, recipe and curriculum as plain data; TypeError names a part that cannot be described."""
    return {
        "env": spec(env), "recipe": describe(recipe, "recipe"), "curriculum": describe(curriculum, "curriculum"),
    }  # fmt: skip


def describe_training(
    env: Env,
    team: Team,
    recipe: Recipe,
    seed: int,
    settings: Settings,
    curriculum: Curriculum | None = None,
    ranks: int = 1,
) -> dict[str, Any]:
    """Return the content of run.json."""
    import torch

    return {
        "format": FORMAT, **describe_parts(env, recipe, curriculum), "sources": sources(recipe),
        "team": describe_team(team), "seed": seed, "settings": asdict(settings), "threads": torch.get_num_threads(),
        "ranks": ranks, "device": _devices(team), "code": code(), "versions": versions(),
    }  # fmt: skip


def _devices(team: Team) -> str:
    """Return the devices on which the weights learn; for several ranks, those of the first."""
    import torch

    names = set()
    for policy in team.policies.values():
        kind = policy.capabilities.device.partition(":")[0] if policy.capabilities.gradients else "a server's"
        names.add(torch.cuda.get_device_name(policy.capabilities.device) if kind == "cuda" else kind)
    return "; ".join(sorted(names))


def versions() -> dict[str, str]:
    return {name: version_of(name) or "not installed" for name in LIBRARIES} | {"python": platform.python_version()}


@lru_cache(1)
def code() -> str:
    """Return a digest of the kit's code that decides results; comments and docstrings do not count."""
    digest = sha256()
    for part in DECIDE:
        place = PACKAGE / part
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for node in ast.walk(tree):
                if isinstance(body := getattr(node, "body", None), list):
                    node.body = [one for one in body if not _is_text(one)]
            digest.update(f"{path.relative_to(PACKAGE).as_posix()} {ast.unparse(tree)}".encode())
    return digest.hexdigest()[:12]


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def version_of(package: str) -> str | None:
    """Return the installed version of a package, or `None` if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
