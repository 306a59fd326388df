"""The state before each decision of an episode, as its env draws it: found by playing the episode's actions again.

An env is pure, so that this is exact; it is checked all the same, by what the agents were told and what the actions
earned. Where anything differs, or a task is not found again, there is no picture, and a sentence says why. Leaves out:
the pictures themselves (an env's `draw`), and where they stand on a page (`rollouts`).
"""

import time
from collections.abc import Mapping, Sequence
from math import isclose
from typing import Any

from mas_lab.cells.rollout import with_max_turns
from mas_lab.drawn import no_picture
from mas_lab.env import Env, Step, Task, transcript
from mas_lab.runs.zips import Zipped
from mas_lab.tasks import ENVS, make_env
from mas_lab.train.drawing import step_seed
from mas_lab.widgets.source import Source

Row = Mapping[str, Any]

PATIENCE = 0.5
"""Seconds that a page spends on drawing tasks again."""
MOST_TASKS = 512
"""Tasks of a step that are drawn again: a run's description may come from anybody."""
LOST = 8
"""Steps whose tasks were drawn again and were others, after which no more are drawn if none was right."""
LONGEST = 20_000
"""Characters of an action that is played again from a zip."""


class NoStates(Exception):
    """Why an episode has no pictures, in a sentence."""


def states(env: Env, task: Task, rows: Sequence[Row]) -> dict[str, str]:
    """Node -> the state before it, as `env.draw` gives it.

    `rows`: those of one episode, or of a tree, each with at least `node`, `parent`, `depth`, `agent`, `candidate`,
    `action` and `completion` (`table.column` makes what a table leaves out). Raises NoStates where env, task and rows
    do not belong together.
    """
    if not hasattr(env, "draw"):
        raise NoStates(f"{type(env).__name__} has no draw(state)")
    found = {}
    for node, state in replayed(env, task, rows).items():
        found[node] = _called(env, "draw", lambda state=state: env.draw(state))
        if problem := no_picture(found[node]):
            raise NoStates(f"what {type(env).__name__}.draw gave {problem}")
    return found


def replayed(env: Env, task: Task, rows: Sequence[Row]) -> dict[str, Any]:
    """Node -> its state: the start, or what the action that led there made of the state before."""
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
    """The state that a joint action, `node.i` or `node.i-j`, leads to."""
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
    """In what a step and a row of its action differ, in words. A local reward may count what later steps paid."""
    again = {"team_reward": step.team_reward, "success": step.success, "done": step.done,
             "valid": step.valid.get(row["agent"])}  # fmt: skip
    for name, value in again.items():
        if name in row and (value is None or not isclose(float(value), float(row[name]), rel_tol=1e-6, abs_tol=1e-9)):
            return f"has {name}={value!r}, and the table says {row[name]!r}"
    return ""


def _compare_told(env: Env, state: Any, rows: Sequence[Row]) -> None:
    """Do those act who acted, and are they told what they were told?"""
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
    except Exception as error:  # an env of anybody's, or an action that no env was ever told
        raise NoStates(f"{type(env).__name__}.{part} failed: {type(error).__name__}: {error}") from error


class States:
    """The pictures of a source's episodes, where its env draws; `why` holds the reasons for those that have none.

    The env: `env`, or that of a live training, or, of a run of the kit's own env, the one that its run.json describes;
    what a run's folder says of an env of one's own is never imported. The tasks: `tasks`, or those that the env draws
    again as the run says, or as `env.tasks(n, split, seed=0)` gave them for a table in memory. They are found by their
    ids.
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
        """Seconds that drawing tasks again has taken, and after which no further steps' are: a page opens soon."""
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
        """Node -> SVG, of one episode of a step; none where they are not sure."""
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
        """Why some episodes have no pictures, in a sentence; empty where all have them, or none was to be had."""
        if not self.draws or not self.why:
            return ""
        reason = max(self.why, key=self.why.get)
        return f"Some episodes have no pictures of their states: {reason}."

    def _tell(self, why: NoStates) -> None:
        self.why[str(why)] = self.why.get(str(why), 0) + 1

    def _refuse_what_takes_long(self, rows: Sequence[Row]) -> None:
        is_zip = self.source.run is not None and isinstance(self.source.run.folder, Zipped)
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
        """Of a table in memory: as it is most often asked for, by hand or by train()."""
        n = self.source.turns(step, ["task"])["task"].nunique()
        return [(n, "train", 0), (n, "train", step_seed(self.source.trains[1], step)), (n, "test", 0)]


def kept_env(config: Mapping[str, Any]) -> Env:
    """The env of a run's description, if it is one of the kit's that draws: made anew, its options checked."""
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
    """The env as it was played where a training bounded the turns."""
    return _called(env, "max_turns", lambda: with_max_turns(env, config.get("settings", {}).get("max_turns")))


def _asked(config: Mapping[str, Any], step: int) -> list[tuple[int, str, int]]:
    """(n, split, seed) of the tasks that a step of a run drew first."""
    settings = config.get("settings", {})
    n, split = settings.get("tasks"), settings.get("split")
    if config.get("curriculum") is not None:
        raise NoStates("a curriculum drew the tasks, which is not asked again; pass tasks=")
    if type(n) is not int or not isinstance(split, str) or not 0 < n <= MOST_TASKS or config["seed"] < 0:
        raise NoStates(f"run.json says tasks={n!r}, split={split!r}: not drawn again; pass tasks=")
    return [(n, split, step_seed(config["seed"], step))]
