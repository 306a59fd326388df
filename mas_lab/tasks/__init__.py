"""The tasks by name. An env is one file here; `ENVS["mine"] = MyEnv` adds one of your own."""

from dataclasses import fields
from typing import Any

from mas_lab.env import Env, class_name
from mas_lab.tasks.arxiv_intro import ArxivIntro
from mas_lab.tasks.cascade import Cascade
from mas_lab.tasks.catalog import Catalog
from mas_lab.tasks.code_pair import CodePair
from mas_lab.tasks.code_tests import CodeTests
from mas_lab.tasks.finisher import Finisher
from mas_lab.tasks.ladder import Ladder
from mas_lab.tasks.math import Math
from mas_lab.tasks.math_tool import MathTool
from mas_lab.tasks.own import made
from mas_lab.tasks.paid_help import PaidHelp
from mas_lab.tasks.plan_path import PlanPath
from mas_lab.tasks.reasoning_gym import ReasoningGym
from mas_lab.tasks.search import Search
from mas_lab.tasks.sokoban import Sokoban
from mas_lab.tasks.stakes import Stakes
from mas_lab.tasks.sudoku import Sudoku
from mas_lab.tasks.tldr import TLDR

ALL = (
    PlanPath,
    Sokoban,
    Sudoku,
    Math,
    MathTool,
    Search,
    TLDR,
    ArxivIntro,
    CodeTests,
    CodePair,
    Ladder,
    PaidHelp,
    Finisher,
    Cascade,
    Stakes,
    ReasoningGym,
)
ENVS = Catalog({env.name: env for env in ALL})
"""Name -> env class, a frozen dataclass whose init fields are the options of `make_env`."""

STANDARD = {"size": "pocket", "rewards": "ours", "single_agent": False, "n_agents": None}
"""Options that `make_env` names for every env; one that lacks an option only accepts the value given here."""


def make_env(
    name: str,
    size: str | int = "pocket",
    rewards: str = "ours",
    single_agent: bool = False,
    n_agents: int | None = None,
    **task_options: Any,
) -> Env:
    """The env `name`, with its own `task_options` besides the standard ones.

    `size`: "pocket" (a pocket model plays it), "full" (text for an instruction model), or a number where the task
    has one. `rewards`: "ours", or "published" with its known defects. `single_agent`: one agent does it all.
    Raises `ValueError` with the known names or the env's options.
    """
    classes = ENVS | {class_name(env): env for env in ENVS.values()}
    if name not in classes:
        raise ValueError(
            f"no env is named {name!r}; known are: {', '.join(ENVS)}; pass one of your own as the object that it is"
        )
    known = {f.name for f in fields(classes[name]) if f.init}
    standard = {"size": size, "rewards": rewards, "single_agent": single_agent, "n_agents": n_agents}
    options = {key: value for key, value in standard.items() if key in known or value != STANDARD[key]} | task_options
    return made(classes[name], name, options)
