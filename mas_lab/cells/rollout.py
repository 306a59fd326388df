"""Cell 1, `rollout`: a team plays tasks, and every model call becomes a row of the table.

Leaves out: how an episode is explored (`plans`), who answers its requests (`driver`), and how tokens are drawn
(the back end).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from mas_lab.arguments import check_arguments
from mas_lab.cells.driver import require_policies, runner_for, step_threads
from mas_lab.cells.episode import EpisodeState, Plan
from mas_lab.cells.plans import episodes
from mas_lab.display.progress import progress_bar
from mas_lab.env import Env, Task, with_max_turns
from mas_lab.table import ROLLOUT
from mas_lab.team import Team


def rollout(
    env: Env,
    team: Team,
    tasks: Sequence[Task],
    plan: Plan = episodes(1),  # noqa: B008 - a frozen value
    seed: int = 0,
    max_turns: int | None = None,
    workers: int | None = None,
    step: int = 0,
) -> pd.DataFrame:
    """Play tasks with a team and return a table with a row per model call.

    A completion depends on (seed, step, node, agent, candidate) alone, not on the other requests of its batch. No
    weights change during a rollout: an update in another thread waits.

    Args:
        env: The environment.
        team: The policies that play its agents.
        tasks: The tasks, each with its own id.
        plan: How a task is explored: `episodes(n)`, `tree(k)`, `joint(g)`, or your own.
        seed: Decides all draws, with `step`.
        max_turns: Overrides the environment's bound on the turns of one agent.
        workers: Number of threads that call `env.step`. None: the caller's thread.
        step: Number of the training step, the first column of the table.

    Returns:
        A table with the columns `mas_lab.table.ROLLOUT`; `info`, `call_status`, `removed` and `policy_version` only if
        a row has them.

    Raises:
        ValueError: An agent has no policy or samples with `top_p` or `top_k`, or two tasks have one id.
        EnvError: The environment breaks its contract.
        RolloutError: The environment or a policy fails. Both name task, agent and turn.
    """
    check_arguments(rollout, locals(), max_turns=1, workers=1)
    env = with_max_turns(env, max_turns)
    _refuse_truncated_sampling(env, team)
    return play_tasks(env, team, tasks, plan, seed, workers, step)


def play_tasks(
    env: Env, team: Team, tasks: Sequence[Task], plan: Plan, seed: int, workers: int | None, step: int
) -> pd.DataFrame:
    """Return the table of `rollout`; agents may sample with `top_p` and `top_k`, and nobody can train on such rows."""
    require_policies(env.agents, team, tasks, "rollout")
    states = [EpisodeState(env, task, name) for task, name in instances(tasks, plan)]
    with step_threads(workers) as threads, progress_bar(len(states), "rollout", "episode") as bar:
        runner_for(env)(env, team, seed, step, threads, bar.update).run(states, plan)
    return as_table([row for state in states for row in state.rows], step)


def instances(tasks: Sequence[Task], plan: Plan) -> Iterator[tuple[Task, str]]:
    """Yield each task as often as the plan plays it, with the name of that episode."""
    for task in tasks:
        for number in range(plan.instances):
            yield task, f"{task.id}#{number}" if plan.instances > 1 else task.id


def as_table(rows: Sequence[Mapping[str, Any]], step: int) -> pd.DataFrame:
    """Return recorded rows with the columns `mas_lab.table.ROLLOUT`; an optional one only if a row has it."""
    present = {name for name, column in ROLLOUT.items() if column.required or any(row.get(name) for row in rows)}
    columns = [name for name in ROLLOUT if name in present]
    return pd.DataFrame([{"step": step, "call_status": "none", "removed": "", **row} for row in rows], columns=columns)


def _refuse_truncated_sampling(env: Env, team: Team) -> None:
    for agent in env.agents:
        sampling = team.sampling.get(agent)
        if sampling is not None and (sampling.top_p < 1 or sampling.top_k is not None):
            raise ValueError(
                f"rollout: agent {agent!r} samples with top_p={sampling.top_p}, top_k={sampling.top_k}: its "
                "log-probabilities would not be those of the full distribution, which training moves; leave both out, "
                "or score with evaluate(..., sampling=...)"
            )
