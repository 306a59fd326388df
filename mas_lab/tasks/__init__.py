"""Make the tasks by name.

Each env is one file of this folder. `ENVS["mine"] = MyEnv` adds your own.
"""

import importlib
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from mas_lab.arguments import check_arguments, did_you_mean
from mas_lab.describe import part_name
from mas_lab.env import NAMES, Env, EnvError
from mas_lab.lazy import Entry, Registry

CLASSES = (
    "plan_path:PlanPath", "sokoban:Sokoban", "sudoku:Sudoku", "math:Math", "math_tool:MathTool", "search:Search",
    "tldr:TLDR", "arxiv_intro:ArxivIntro", "code_tests:CodeTests", "code_pair:CodePair", "ladder:Ladder",
    "paid_help:PaidHelp", "finisher:Finisher", "cascade:Cascade", "stakes:Stakes", "calculator:Calculator", "vote:Vote",
    "orchestrator:Orchestrator",
)  # fmt: skip
"""Module of this folder, which is the name of the env, and its class."""
NAMES |= {f"mas_lab.tasks.{place}": place.split(":")[0] for place in CLASSES}


class Catalog(Registry):
    """Mapping from name to env class that is displayed as a table; a class is imported at its first use.

    Each class is a frozen dataclass, and its init fields are the options of `make_env`. The columns show the agents
    (class attribute `order`: `→` one after the other, `+` at once, `?` called on a condition) and the origin (`paper`).
    Results of the pocket models are in `docs/tasks.md`.
    """

    def table(self) -> pd.DataFrame:
        """Return one row per task."""
        found = [(name, getattr(env, "order", ""), getattr(env, "paper", "")) for name, env in self.items()]
        return pd.DataFrame(found, columns=["task", "agents", "from"])

    def __repr__(self) -> str:
        return self.table().to_string(index=False)

    def _repr_html_(self) -> str:
        return self.table().to_html(index=False)


ENVS = Catalog({place.partition(":")[0]: Entry(f"mas_lab.tasks.{place}") for place in CLASSES})
"""Env classes by name. Each is a frozen dataclass, and its init fields are the options of `make_env`."""

STANDARD = {"size": "pocket", "rewards": "ours", "single_agent": False, "n_agents": None}
"""Options that `make_env` names for every env. An env without such an option accepts only the value given here."""


def make_env(
    name: str,
    size: str | int = "pocket",
    rewards: str = "ours",
    single_agent: bool = False,
    n_agents: int | None = None,
    **task_options: Any,
) -> Env:
    """Return the env called `name`, made with the given options.

    Args:
        name: A key of `ENVS`, for example "plan_path", or `module:Class` of an env in `ENVS`.
        size: "pocket" (default) for a pocket model, "words" for a small real model, or "full" for an instruction model
            that reads text. The attribute `sizes` of an env lists its sizes. Some tasks also take a number, for example
            the side of a grid.
        rewards: "ours" (default), or "published" for the rewards of the paper with their known defects.
        single_agent: Whether one agent does all the work. The default is False.
        n_agents: Number of agents, if the task has this option. `None` (default) means the task's own number.
        **task_options: Further options of this task: the init fields of its class.

    Returns:
        The env, an instance of its class in `ENVS`.

    Raises:
        ValueError: If no env has this name, or if it does not know an option or accept a value. The message lists the
            known names or options.
    """
    known_as = {part_name(env, ":"): env for env in ENVS.values()} if ":" in name else ENVS
    if name not in known_as:
        meant = did_you_mean(name, ENVS)
        raise ValueError(
            f"no env is named {name!r}; {meant}known are: {', '.join(ENVS)}; pass your own env as an object"
        )
    env = known_as[name]
    known = {f.name for f in fields(env) if f.init}
    standard = {"size": size, "rewards": rewards, "single_agent": single_agent, "n_agents": n_agents}
    options = {key: value for key, value in standard.items() if key in known or value != STANDARD[key]} | task_options
    for kind in env.__mro__[:-1]:
        check_arguments(kind, options, name)
    return made(env, name, options)


def made(env: type, name: str, options: dict[str, Any]) -> Env:
    """Return `env(**options)`; for an unknown option raise ValueError with the env's known options."""
    known = {f.name for f in fields(env) if f.init} if is_dataclass(env) else set(options)
    if unknown := ", ".join(sorted(set(options) - known)):
        listed = ", ".join(sorted(known)) or "none"
        raise ValueError(f"env {name!r} has no option {unknown}; its options are: {listed}")
    return env(**options)


def own_env(name: str, folder: Path, **options: Any) -> Env:
    """Return the env `file:Class` or `package.module:Class`, made with `options`; files are searched from `folder`.

    Use it only for names from users themselves, in a config or on the command line. Names from the description of a run
    must never come here, because a run may come from anybody. A file is imported under its own name, as `import` would
    do in its folder. Raises EnvError if the file, module or
    class does not exist, or if importing it fails.
    """
    where, _, kind = name.rpartition(":")
    file = (folder / f"{where.removesuffix('.py')}.py").resolve()
    sys.path.insert(0, str(file.parent))
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(file.stem if file.is_file() else where)
    except (Exception, SystemExit) as error:
        tried = f"importing {file}" if file.is_file() else f"there is no file {file}, and importing {where}"
        raise EnvError(f"env {name!r}: {tried} failed: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(str(file.parent))
    if file.is_file() and Path(getattr(module, "__file__", None) or "").resolve() != file:
        raise EnvError(f"env {name!r}: another module is called {file.stem!r} already; rename {file.name}")
    found = getattr(module, kind, None)
    if not isinstance(found, type):
        classes = [key for key, one in vars(module).items() if isinstance(one, type) and hasattr(one, "step")]
        raise EnvError(f"env {name!r}: {where} has no class {kind!r}; its envs are: {', '.join(classes) or 'none'}")
    return made(found, name, options)
