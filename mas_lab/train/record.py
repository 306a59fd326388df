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
from mas_lab.env import spec
from mas_lab.runs.run import FORMAT
from mas_lab.team import describe_team
from mas_lab.train.progress import Progress

PACKAGE = Path(__file__).parents[1]
DECIDE = ("table.py", "env.py", "policy.py", "team.py", "losses.py", "tool_calls.py", "child.py", "recipes.py", "cells",
          "tasks", "backends", "train")  # fmt: skip
"""Files and folders whose code decides the result of a training."""
LIBRARIES = ("mas-lab", "torch", "transformers", "peft", "pandas", "numpy")


def describe_parts(now: Progress) -> dict[str, Any]:
    """Return env, recipe and curriculum as plain data; TypeError names a part that cannot be described."""
    parts = {"recipe": now.recipe, "curriculum": now.curriculum}
    return {"env": spec(now.env)} | {name: describe(part, name) for name, part in parts.items()}


def describe_training(now: Progress, ranks: int = 1) -> dict[str, Any]:
    """Return the content of run.json. `device` names where weights learn; for several ranks, those of the first."""
    import torch

    devices, settings = set(), asdict(now.settings) | {"schedule": describe(now.settings.schedule, "schedule")}
    for policy in now.team.policies.values():
        kind = policy.capabilities.device.partition(":")[0] if policy.capabilities.gradients else "a server's"
        devices.add(torch.cuda.get_device_name(policy.capabilities.device) if kind == "cuda" else kind)
    return {
        "format": FORMAT, **describe_parts(now), "sources": sources(now.recipe), "team": describe_team(now.team),
        "seed": now.seed, "settings": settings, "threads": torch.get_num_threads(), "ranks": ranks,
        "device": "; ".join(sorted(devices)), "code": code(), "versions": versions(),
    }  # fmt: skip


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
                    texts = [one for one in body if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)]
                    node.body = [one for one in body if one not in texts]
            digest.update(f"{path.relative_to(PACKAGE).as_posix()} {ast.unparse(tree)}".encode())
    return digest.hexdigest()[:12]


def version_of(package: str) -> str | None:
    """Return the installed version of a package, or `None` if it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
