"""Draw the state before each decision of an episode, by playing the episode's actions again.

An env is pure, so the replay is exact. If the replayed prompts differ from those of the table, or if a task is not
found again, there is no picture, and a sentence gives the reason. This module leaves out the pictures themselves (an
env's `draw`), and their place on a page (`rollouts`).
"""

import time
from collections.abc import Mapping, Sequence
from math import isclose
from typing import Any

from mas_lab.env import Env, Task, transcript, with_max_turns
from mas_lab.table import choices_of
from mas_lab.tasks import ENVS, make_env
from mas_lab.train.progress import step_seed
from mas_lab.widgets.source import Source

Row = Mapping[str, Any]
PATIENCE = 0.5
"""Seconds that a page spends on generating tasks again."""


class NoStates(Exception):
    """Error for an episode without pictures; its message is a sentence."""


def states(env: Env, task: Task, rows: Sequence[Row]) -> dict[str, str]:
    """Return the state before each node, as `env.draw` gives it: {node: SVG}.

    `rows`: those of one episode, or of a tree. Each has at least `node`, `parent`, `depth`, `agent`, `candidate`,
    `action` and `completion` (`table.column` adds what a table leaves out). Raise NoStates if env, task and rows do not
    belong together; the env may raise any other error.
    """
    nodes: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["depth"]):
        nodes.setdefault(row["node"], []).append(row)
    found: dict[str, Any] = {}
    for node, own in nodes.items():
        parent = own[0]["parent"]
        before, _ = choices_of(parent)
        if before not in found and (parent or own[0]["depth"]):
            raise NoStates(f"the table lacks the rows of {before!r}, which led to {node!r}")
        state = found[node] = _after(env, found[before], nodes[before], parent) if parent else env.start(task)
        prompts = {agent: transcript(env.observe(state, agent)) for agent in env.acting(state)}
        if any(row.get("prompt", prompts.get(row["agent"])) != prompts.get(row["agent"]) for row in own):
            raise NoStates(f"played again, {node!r} has another prompt than in the table: this is another env or task")
    return {node: env.draw(state) for node, state in found.items()}


def _after(env: Env, state: Any, rows: Sequence[Row], action: str) -> Any:
    """Return the state after a joint action, `node.i` or `node.i-j`."""
    texts = {(row["agent"], str(row["candidate"])): row["completion"] for row in rows}
    picks = list(zip(env.acting(state), choices_of(action)[1], strict=False))
    if len(picks) < len(env.acting(state)) or any(pick not in texts for pick in picks):
        raise NoStates(f"the table lacks a row of the action {action!r}")
    step = env.step(state, {agent: texts[agent, pick] for agent, pick in picks})
    for row in rows:
        if row["action"] == action and not isclose(row.get("team_reward", step.team_reward), step.team_reward):
            raise NoStates(f"played again, {action!r} earns {step.team_reward}, and not {row['team_reward']} as before")
    return step.state


class States:
    """Pictures of a source's episodes, if its env draws; `reason` says why some episodes have none.

    The env is `env`, that of a live training, or the kit's own env that a run describes. The tasks are `tasks`, or
    those that the env generates again: as the run says or, for a table in memory, by `env.tasks(n, split, seed=0)`.
    After `PATIENCE` seconds of generating tasks, no further steps are tried, so that a page opens soon.
    """

    def __init__(self, source: Source, env: Env | None = None, tasks: Sequence[Task] = ()):
        self.source, self.reason, self.spent = source, "", 0.0
        self._config = source.run.config if source.run else {}
        self._given, self._drawn = {task.id: task for task in tasks}, {}
        env = getattr(source.live, "env", None) if env is None else env
        if env is None and self._config.get("env", {}).get("name") in ENVS:
            env = make_env(**self._config["env"])
        self.env = env and with_max_turns(env, self._config.get("settings", {}).get("max_turns"))

    def __call__(self, step: int, rows: Sequence[Row]) -> dict[str, str]:
        """Return {node: SVG} of one episode of a step, or an empty dict if the states are not certain."""
        if not hasattr(self.env, "draw"):
            return {}
        try:
            return states(self.env, self._task(step, rows[0].get("task")), rows)
        except Exception as why:  # an env that was changed since may fail in any way
            failed = "" if isinstance(why, NoStates) else f"{type(self.env).__name__} failed: {type(why).__name__}: "
            self.reason = self.reason or f"Some episodes have no pictures of their states: {failed}{why}."
        return {}

    def _task(self, step: int, name: str) -> Task:
        if name in self._given:
            return self._given[name]
        if step not in self._drawn:
            if self.spent > PATIENCE:
                raise NoStates("drawing the tasks of more steps again would keep this page from opening")
            start = time.perf_counter()
            found = [task for arguments in self._task_arguments(step) for task in self.env.tasks(*arguments)]
            self._drawn[step] = {task.id: task for task in found}
            self.spent += time.perf_counter() - start
        if name not in self._drawn[step]:
            raise NoStates(f"task {name!r} is not among those that the env draws again for step {step}; pass tasks=")
        return self._drawn[step][name]

    def _task_arguments(self, step: int) -> list[tuple[int, str, int]]:
        """Return (n, split, seed) of the tasks of a step, as a run says it, or likely ones for a table in memory."""
        if not self._config:
            n, seed = self.source.turns(step, ["task"])["task"].nunique(), getattr(self.source.live, "seed", 0)
            return [(n, "train", 0), (n, "train", step_seed(seed, step)), (n, "test", 0)]
        if self._config.get("curriculum") is not None:
            raise NoStates("a curriculum drew the tasks, and it is not run again; pass tasks=")
        settings = self._config["settings"]
        return [(settings["tasks"], "train", step_seed(self._config["seed"], step))]
