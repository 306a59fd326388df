"""Draw the state before each decision of an episode, by playing the episode's actions again.

An env is pure, so the replay is exact. It is still checked against the prompts and the rewards of the table. If
anything differs, or a task is not found again, there is no picture, and a sentence gives the reason. This module leaves
out the pictures themselves (an env's `draw`), and their place on a page (`rollouts`).
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from math import isclose
from typing import Any

from mas_lab.display.svg_rules import validate_svg
from mas_lab.env import Env, Task, transcript, with_max_turns
from mas_lab.train.drawing import step_seed
from mas_lab.widgets.source import Source

Row = Mapping[str, Any]

PATIENCE = 0.5
"""Seconds that a page spends on generating tasks again."""
MOST_TASKS, LONGEST = 512, 20_000
"""Maximum number of a step's tasks that are generated again, and of characters of an action from a zip that is played
again: both may come from anybody."""


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
        before = parent.rpartition(".")[0]
        if before not in found and (parent or own[0]["depth"]):
            raise NoStates(f"the table lacks the rows of {before!r}, which led to {node!r}")
        found[node] = _after(env, found[before], nodes[before], parent) if parent else env.start(task)
        _compare_prompts(env, found[node], own)
    pictures = {node: env.draw(state) for node, state in found.items()}
    for picture in pictures.values():
        if problem := validate_svg(picture):
            raise NoStates(f"what {type(env).__name__}.draw gave {problem}")
    return pictures


def _after(env: Env, state: Any, rows: Sequence[Row], action: str) -> Any:
    """Return the state after a joint action, `node.i` or `node.i-j`."""
    texts = {(row["agent"], str(row["candidate"])): row["completion"] for row in rows}
    picks = list(zip(env.acting(state), action.rpartition(".")[2].split("-"), strict=False))
    if len(picks) < len(env.acting(state)) or any(pick not in texts for pick in picks):
        raise NoStates(f"the table lacks a row of the action {action!r}")
    step = env.step(state, {agent: texts[agent, pick] for agent, pick in picks})
    for row in (row for row in rows if row["action"] == action):
        # Local rewards are not compared, because they may grow later.
        again = {"team_reward": step.team_reward, "success": step.success, "done": step.done,
                 "valid": step.valid.get(row["agent"])}  # fmt: skip
        for name in again.keys() & row.keys():
            value = again[name]
            if value is None or not isclose(float(value), float(row[name]), rel_tol=1e-6, abs_tol=1e-9):
                raise NoStates(
                    f"played again, {action!r} has {name}={value!r}, and the table says {row[name]!r}: this is another "
                    "env than the one that was played"
                )
    return step.state


def _compare_prompts(env: Env, state: Any, rows: Sequence[Row]) -> None:
    """Raise NoStates if other agents act than in the table, or if they get other prompts."""
    acting, node = tuple(env.acting(state)), rows[0]["node"]
    agents = {row["agent"] for row in rows}
    if set(acting) != agents:
        raise NoStates(f"played again, {acting} act at {node!r}, and in the table {sorted(agents)}")
    prompts = {agent: transcript(env.observe(state, agent)) for agent in acting}
    if any(row.get("prompt", prompts[row["agent"]]) != prompts[row["agent"]] for row in rows):
        raise NoStates(
            f"played again, the agent gets another prompt at {node!r} than in the table: this is another env, "
            "or another task, than the one that was played"
        )


class States:
    """Pictures of a source's episodes, if its env draws; `why` counts the reasons for episodes without pictures.

    The env is `env`, or the env of a live training. For a run of the kit's own env, it is the env that run.json
    describes. Other code that a run's folder names is never imported. The tasks are `tasks`, or those that the env
    generates again as the run says. For a table in memory, they are what `env.tasks(n, split, seed=0)` gave. Tasks are
    found by their ids. After `patience` seconds of generating tasks, no further steps are tried, so that a page opens
    soon.
    """

    def __init__(
        self, source: Source, env: Env | None = None, tasks: Sequence[Task] = (), patience: float = float("inf")
    ):
        self.source, self.why, self.spent, self.patience = source, Counter(), 0.0, patience
        self._config = source.run.config if source.run else {}
        self._given, self._drawn = {task.id: task for task in tasks}, {}
        env = getattr(source.live, "env", None) if env is None else env
        self.env = None
        try:
            env = env_of_run(self._config) if env is None else env
            self.env = with_max_turns(env, self._config.get("settings", {}).get("max_turns"))
        except (NoStates, TypeError, ValueError) as why:
            self.why[str(why)] += 1

    @property
    def draws(self) -> bool:
        return hasattr(self.env, "draw")

    def __call__(self, step: int, rows: Sequence[Row]) -> dict[str, str]:
        """Return {node: SVG} of one episode of a step, or an empty dict if the states are not certain."""
        if not self.draws:
            return {}
        try:
            if getattr(self.source.run, "is_exported", False) and any(len(row["completion"]) > LONGEST for row in rows):
                raise NoStates(f"an action of more than {LONGEST:,} characters is not played again from a zip")
            return states(self.env, self._task(step, rows[0].get("task")), rows)
        except NoStates as why:
            self.why[str(why)] += 1
        except Exception as error:  # the env may come from anybody, and so may the action
            self.why[f"{type(self.env).__name__} failed: {type(error).__name__}: {error}"] += 1
        return {}

    @property
    def reason(self) -> str:
        """Return why some episodes have no pictures; empty if all have one or the env does not draw."""
        if not self.draws or not self.why:
            return ""
        return f"Some episodes have no pictures of their states: {self.why.most_common(1)[0][0]}."

    def _task(self, step: int, name: str) -> Task:
        if name in self._given:
            return self._given[name]
        if step not in self._drawn:
            if self.spent > self.patience:
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
        settings, seed = self._config.get("settings", {}), self._config["seed"]
        n, split = settings.get("tasks"), settings.get("split")
        if self._config.get("curriculum") is not None:
            raise NoStates("a curriculum drew the tasks, and it is not run again; pass tasks=")
        if type(n) is not int or not isinstance(split, str) or not 0 < n <= MOST_TASKS or seed < 0:
            raise NoStates(f"run.json says tasks={n!r}, split={split!r}: not drawn again; pass tasks=")
        return [(n, split, step_seed(seed, step))]


def env_of_run(config: Mapping[str, Any]) -> Env:
    """Return a new env by a run's description, with checked options, if it is one of the kit's that draws."""
    from mas_lab.tasks import ENVS, make_env

    if not config:
        raise NoStates("a table does not say which env was played; pass env=")
    described = config.get("env", {})
    kind = ENVS.get(described.get("name"))
    if kind is None or not kind.__module__.startswith("mas_lab."):
        raise NoStates(f"env {described.get('name')!r} is none of the kit's; pass env=")
    try:
        return make_env(**described)
    except Exception as error:
        raise NoStates(f"run.json describes no env of this kit: {type(error).__name__}: {error}") from error
