"""What run.json records of a training: what was asked for, and with which versions.

Leaves out: which of it a resumed run must ask for again (`runs.recorder`).
"""

import platform
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from mas_lab.env import Env, spec
from mas_lab.holds import untold
from mas_lab.recipes import Recipe, to_data
from mas_lab.runs.run import FORMAT
from mas_lab.train.drawing import Curriculum
from mas_lab.train.settings import Settings

LIBRARIES = ("mas-lab", "torch", "transformers", "peft", "pandas", "numpy")


def describe(
    env: Env, recipe: Recipe, seed: int, settings: Settings, curriculum: Curriculum | None = None
) -> dict[str, Any]:
    """What run.json records."""
    import torch

    asked = {"env": spec(env), "recipe": to_data(recipe), "curriculum": to_data(curriculum)}
    return {
        "format": FORMAT,
        **asked,
        "untold": untold(asked),
        "seed": seed,
        "settings": asdict(settings),
        "threads": torch.get_num_threads(),
        "versions": {name: _version(name) for name in LIBRARIES} | {"python": platform.python_version()},
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
