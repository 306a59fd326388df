"""mas_lab: one table flows through four cells, and each cell only adds columns.

The names of `lab.*` stand in `__init__.pyi`. Each is imported at its first use, so `import mas_lab` loads no back end,
task or widget.
"""

import ast
import os
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

if "OMP_WAIT_POLICY" not in os.environ:  # before torch loads libgomp; benchmarks/threads.py measures it
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_HOMES = {one.name: node.module for node in _STUB.body if isinstance(node, ast.ImportFrom) for one in node.names}
__all__ = sorted(_HOMES)


class _Lab(ModuleType):
    """Keep `lab.train` and `lab.study` the functions, although rooms are called so too."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (isinstance(value, ModuleType) and _HOMES.get(name, __name__) != __name__):
            super().__setattr__(name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        """Let a part that a notebook defines go to another process: it holds `lab`, by its name."""
        return import_module, (__name__,)


sys.modules[__name__].__class__ = _Lab


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = import_module(_HOMES[name])
    is_attribute = home.__name__ != __name__ and hasattr(home, name)  # else it is a module that is not imported yet
    globals()[name] = getattr(home, name) if is_attribute else import_module(f"{home.__name__}.{name}")
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
