"""Draw the state before each decision of an episode, by playing the episode's actions again.

An env is pure, so the replay is exact. It is still checked against the prompts and the rewards of the table. If
anything differs, or a task is not found again, there is no picture, and a sentence gives the reason. This module leaves
out the pictures themselves (an env's `draw`), and their place on a page (`rollouts`).
"""

import time
from collections.abc import Mapping, Sequence
from math import isclose
from typing import Any

from mas_lab.backends.runner import with_max_turns
from mas_lab.display.svg_rules import validate_svg
from mas_lab.env import Env, Step, Task, transcript
from mas_lab.tasks import ENVS, make_env
from mas_lab.train.drawing import step_seed
from mas_lab.widgets.source import Source

Row = Mapping[str, Any]

PATIENCE = 0.5
"""Seconds that a page spends on generating tasks again."""
MOST_TASKS = 512
"""Maximum number of a step's tasks that are generated again: a run's description may come from anybody."""
LOST = 8
"""Number of steps whose tasks were generated again and were different. After so many, no more are generated if none was
right."""
LONGEST = 20_000
"""Maximum characters of an action from a zip that is played again."""


class NoStates(Exception):
    """Error for an episode without pictures; its message is a sentence."""


def states(env: Env, task: Task, rows: Sequence[Row]) -> dict[str, str]:
    """Return the state before each node, as `env.draw` gives it: {node: SVG}.

    `rows`: those of one episode, or of a tree. Each has at least `node`, `parent`, `depth`, `agent`, `candidate`,
    `action` and `completion` (`table.column` adds what a table leaves out). Raise NoStates if env, task and rows do not
    belong together.
    """
    if not hasattr(env, "draw"):
        raise NoStates(f"{type(env).__name__} has no draw(state)")
    found = {}
    for node, state in replayed(env, task, rows).items():
        found[node] = _called(env, "draw", lambda state=state: env.draw(state))
        if problem := validate_svg(found[node]):
            raise NoStates(f"what {type(env).__name__}.draw gave {problem}")
    return found


def replayed(env: Env, task: Task, rows: Sequence[Row]) -> dict[str, Any]:
    """Return {node: state}: the start, or the state that the action before led to."""
    nodes: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["depth"]):
        nodes.setdefault(row["node"], []).append(row)
    found: dict[str, Any] = {}
    for node, own in nodes.items():
        parent = own[0]["parent"]
        if not parent and own[0]["depth"]:
            raise NoStates(f"the table does not say which action led to {node!r}")
        if not parent:
            state = _called(env, "start", lambda: env.start(task))
        else:
            before = parent.rpartition(".")[0]
            if before not in found:
                raise NoStates(f"the table lacks the rows of {before!r}, which led to {node!r}")
            state = _after(env, found[before], nodes[before], parent)
        _compare_told(env, state, own)
        found[node] = state
    return found


def _after(env: Env, state: Any, rows: Sequence[Row], action: str) -> Any:
    """Return the state after a joint action, `node.i` or `node.i-j`."""
    acting = _called(env, "acting", lambda: tuple(env.acting(state)))
    said = {(row["agent"], str(row["candidate"])): row for row in rows}
    picks = list(zip(acting, action.rpartition(".")[2].split("-"), strict=False))
    if len(picks) < len(acting) or any(pick not in said for pick in picks):
        raise NoStates(f"the table lacks a row of the action {action!r}")
    actions = {agent: said[agent, pick]["completion"] for agent, pick in picks}
    step = _called(env, "step", lambda: env.step(state, actions))
    for row in rows:
        if row["action"] == action and (differs := _difference(step, row)):
            raise NoStates(f"played again, {action!r} {differs}: this is another env than the one that was played")
    return step.state


def _difference(step: Step, row: Row) -> str:
    """Return the first difference of a step and its row in words, but for local rewards, which may grow later."""
    again = {"team_reward": step.team_reward, "success": step.success, "done": step.done,
             "valid": step.valid.get(row["agent"])}  # fmt: skip
    for name, value in again.items():
        if name in row and (value is None or not isclose(float(value), float(row[name]), rel_tol=1e-6, abs_tol=1e-9)):
            return f"has {name}={value!r}, and the table says {row[name]!r}"
    return ""


def _compare_told(env: Env, state: Any, rows: Sequence[Row]) -> None:
    """Raise NoStates if other agents act than in the table, or if they get other prompts."""
    acting = _called(env, "acting", lambda: tuple(env.acting(state)))
    agents = dict.fromkeys(row["agent"] for row in rows)
    if set(acting) != set(agents):
        raise NoStates(f"played again, {acting} act at {rows[0]['node']!r}, and in the table {tuple(agents)}")
    for agent in agents:
        told = _called(env, "observe", lambda agent=agent: transcript(env.observe(state, agent)))
        if any(row["agent"] == agent and row.get("prompt", told) != told for row in rows):
            raise NoStates(
                f"played again, {agent!r} is told something else at {rows[0]['node']!r} than in the table: this is "
                "another env, or another task, than the one that was played"
            )


def _called(env: Env, part: str, call: Any) -> Any:
    try:
        return call()
    except Exception as error:  # the env may come from anybody, and so may the action
        raise NoStates(f"{type(env).__name__}.{part} failed: {type(error).__name__}: {error}") from error


class States:
    """Pictures of a source's episodes, if its env draws; `why` counts the reasons for episodes without pictures.

    The env is `env`, or the env of a live training. For a run of the kit's own env, it is the env that run.json
    describes. Other code that a run's folder names is never imported. The tasks are `tasks`, or those that the env
    generates again as the run says. For a table in memory, they are what `env.tasks(n, split, seed=0)` gave. Tasks are
    found by their ids.
    """

    def __init__(
        self, source: Source, env: Env | None = None, tasks: Sequence[Task] = (), patience: float = float("inf")
    ):
        self.source, self.why = source, {}
        self._config = source.run.config if source.run else {}
        self._given = {task.id: task for task in tasks}
        self._drawn: dict[int, dict[str, Task]] = {}
        self._lost: set[int] = set()
        self.spent, self.patience = 0.0, patience
        """Seconds spent so far on generating tasks, and the limit for them. After the limit no further steps are tried,
        so that a page opens soon."""
        try:
            env = source.trains[0] if env is None else env
            self.env = _with_settings(kept_env(self._config) if env is None else env, self._config)
        except NoStates as why:
            self.env = None
            self._tell(why)

    @property
    def draws(self) -> bool:
        return hasattr(self.env, "draw")

    def __call__(self, step: int, rows: Sequence[Row]) -> dict[str, str]:
        """Return {node: SVG} of one episode of a step, or an empty dict if the states are not certain."""
        if not self.draws:
            return {}
        try:
            self._refuse_what_takes_long(rows)
            return states(self.env, self._task(step, rows), rows)
        except NoStates as why:
            self._tell(why)
            return {}

    @property
    def told(self) -> str:
        """Return why some episodes have no pictures; empty if all have one or the env does not draw."""
        if not self.draws or not self.why:
            return ""
        reason = max(self.why, key=self.why.get)
        return f"Some episodes have no pictures of their states: {reason}."

    def _tell(self, why: NoStates) -> None:
        self.why[str(why)] = self.why.get(str(why), 0) + 1

    def _refuse_what_takes_long(self, rows: Sequence[Row]) -> None:
        is_zip = self.source.run is not None and self.source.run.is_exported
        if is_zip and any(len(row["completion"]) > LONGEST for row in rows):
            raise NoStates(f"an action of more than {LONGEST:,} characters is not played again from a zip")

    def _task(self, step: int, rows: Sequence[Row]) -> Task:
        name = rows[0].get("task")
        if name in self._given:
            return self._given[name]
        if step not in self._drawn:
            if self.spent > self.patience:
                raise NoStates("drawing the tasks of more steps again would keep this page from opening")
            if len(self._lost) == len(self._drawn) >= LOST:
                raise NoStates(f"the tasks of {LOST} steps are not those that the env draws again; pass tasks=")
            start = time.perf_counter()
            self._drawn[step] = self._tasks(step)
            self.spent += time.perf_counter() - start
        if name not in self._drawn[step]:
            self._lost.add(step)
            raise NoStates(f"task {name!r} is not among those that the env draws again for step {step}; pass tasks=")
        return self._drawn[step][name]

    def _tasks(self, step: int) -> dict[str, Task]:
        draws = _asked(self._config, step) if self._config else self._guessed(step)
        return {
            task.id: task
            for n, split, seed in draws
            for task in _called(self.env, "tasks", lambda n=n, split=split, seed=seed: self.env.tasks(n, split, seed))
        }

    def _guessed(self, step: int) -> list[tuple[int, str, int]]:
        """Return likely (n, split, seed) for a table in memory: the usual requests by hand or by train()."""
        n = self.source.turns(step, ["task"])["task"].nunique()
        return [(n, "train", 0), (n, "train", step_seed(self.source.trains[1], step)), (n, "test", 0)]


def kept_env(config: Mapping[str, Any]) -> Env:
    """Return a new env by a run's description, with checked options, if it is one of the kit's that draws."""
    if not config:
        raise NoStates("a table does not say which env was played; pass env=")
    told = config.get("env", {})
    kind = ENVS.get(told.get("name"))
    if kind is None or not kind.__module__.startswith("mas_lab."):
        raise NoStates(f"env {told.get('name')!r} is none of the kit's; pass env=")
    if not hasattr(kind, "draw"):
        raise NoStates(f"{kind.__name__} has no draw(state)")
    try:
        return make_env(**told)
    except Exception as error:
        raise NoStates(f"run.json describes no env of this kit: {type(error).__name__}: {error}") from error


def _with_settings(env: Env, config: Mapping[str, Any]) -> Env:
    """Return the env with the bound on turns under which the training played it."""
    return _called(env, "max_turns", lambda: with_max_turns(env, config.get("settings", {}).get("max_turns")))


def _asked(config: Mapping[str, Any], step: int) -> list[tuple[int, str, int]]:
    """Return (n, split, seed) of the tasks that a step of a run drew first."""
    settings = config.get("settings", {})
    n, split = settings.get("tasks"), settings.get("split")
    if config.get("curriculum") is not None:
        raise NoStates("a curriculum drew the tasks, which is not asked again; pass tasks=")
    if type(n) is not int or not isinstance(split, str) or not 0 < n <= MOST_TASKS or config["seed"] < 0:
        raise NoStates(f"run.json says tasks={n!r}, split={split!r}: not drawn again; pass tasks=")
    return [(n, split, step_seed(config["seed"], step))]
