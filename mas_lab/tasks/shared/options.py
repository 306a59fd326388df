"""Check the options that several tasks have, and name the agents of a role.

Options of a single task are checked in that task.
"""

from typing import Any

MOST_AGENTS = 16


def check_options(env: Any, numbers: range, unit: str = "", fewest: int = 2) -> None:
    """Raise ValueError for a bad `size`, `rewards`, `n_agents`, `max_turns` or `mistakes`, as far as the env has them.

    `numbers` are the sizes besides "pocket" and "full", counted in `unit`. A team has at least `fewest` agents.
    """
    name, counted = env.name, f"{numbers[0]} to {numbers[-1]} {unit}".strip()
    if env.size not in ("pocket", "full") and not (type(env.size) is int and env.size in numbers):
        raise ValueError(f"{name}: size={env.size!r}; use 'pocket', 'full', or {counted}")
    if env.rewards not in ("ours", "published"):
        raise ValueError(f"{name}: rewards={env.rewards!r}; use 'ours' or 'published'")
    n_agents = getattr(env, "n_agents", None)
    if n_agents is not None and (env.single_agent or not fewest <= n_agents <= MOST_AGENTS):
        raise ValueError(f"{name}: n_agents={n_agents}; use {fewest} to {MOST_AGENTS}, or single_agent=True alone")
    if env.max_turns < 1:
        raise ValueError(f"{name}: max_turns={env.max_turns}; an agent needs at least one turn")
    if not 0 <= env.mistakes <= 1:
        raise ValueError(f"{name}: mistakes={env.mistakes}; use a share from 0 to 1")


def numbered(role: str, count: int) -> tuple[str, ...]:
    """Return `("solver",)`, or `("solver_1", "solver_2", ...)` if several agents play the role."""
    return (role,) if count == 1 else tuple(f"{role}_{number + 1}" for number in range(count))


def role_of(agent: str) -> str:
    """Return the role of an agent: `solver` for `solver_2`."""
    return agent.split("_")[0]
