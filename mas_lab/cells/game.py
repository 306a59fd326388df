"""What a plan may ask for, and the environment instance that it plays: its nodes and the rows recorded so far.

Leaves out: how an instance is explored (`plans`), and who answers (`driver`).
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mas_lab.cells.credits import Credit
from mas_lab.cells.steps import naming
from mas_lab.env import Env, EnvError, Step, Task


@dataclass(frozen=True)
class Node:
    """A decision point: the state, its name, the action that led to it, and how far it is from the start."""

    state: Any
    name: str
    parent: str
    depth: int
    turns: Mapping[str, int]


@dataclass(frozen=True)
class Say:
    """Ask `agent` for a completion at a node; `candidate` tells its draws at this node apart."""

    at: Node
    agent: str
    candidate: int = 0


@dataclass(frozen=True)
class Said:
    """The answer to a `Say`, with what the table needs of it in `columns`."""

    agent: str
    candidate: int
    text: str
    columns: Mapping[str, Any]


@dataclass(frozen=True)
class Act:
    """Step the world at a node by what the acting agents said."""

    at: Node
    said: Sequence[Said]


@dataclass(frozen=True)
class Score:
    """The credits of some rows; all plans' rows are judged as one table, which is pure in them."""

    rows: Sequence[Mapping[str, Any]]
    credit: Credit


Plan = Callable[["Game"], Generator]


@dataclass
class Game:
    """One environment instance in play: its tree of nodes and the rows recorded so far."""

    env: Env
    task: Task
    episode: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    probe: bool = False
    root: Node | None = None

    def start(self) -> Node:
        if self.root is not None:
            return self.root
        with naming(self.env, "start", lambda: f"task {self.task.id!r}"):
            state = self.env.start(self.task)
        return Node(state, f"{self.episode}/0", "", 0, dict.fromkeys(self.env.agents, 0))

    def acting(self, at: Node) -> tuple[str, ...]:
        def place() -> str:
            return f"task {self.task.id!r} at {at.name!r}, after turns {dict(at.turns)}"

        with naming(self.env, "acting", place):
            agents = tuple(self.env.acting(at.state))
        strangers = [agent for agent in agents if agent not in self.env.agents]
        if strangers or not agents:
            raise EnvError(
                f"{type(self.env).__name__}.acting returned {agents} in task {self.task.id!r} at {at.name!r}; "
                f"it must name one or more of {self.env.agents}"
            )
        return agents

    def action(self, at: Node, said: Sequence[Said]) -> str:
        return f"{at.name}.{'-'.join(str(one.candidate) for one in said)}"

    def next(self, at: Node, said: Sequence[Said], step: Step, branch: int | None = None) -> Node | None:
        """The node that a joint action leads to, or None where the episode ends.

        `branch` numbers the joint actions of a node whose branches are all followed.
        """
        if step.done:
            return None
        turns = {**at.turns, **{one.agent: at.turns[one.agent] + 1 for one in said}}
        path = at.name.partition("~")[2] if branch is not None else ""
        trail = "" if branch is None else f"~{path}{'.' if path else ''}{branch}"
        node = Node(step.state, f"{self.episode}/{at.depth + 1}{trail}", self.action(at, said), at.depth + 1, turns)
        over = any(turns[agent] >= self.env.max_turns for agent in self.acting(node))
        return None if over else node

    def record(self, at: Node, said: Sequence[Said], step: Step) -> None:
        """Add the rows of a joint action that the state moved on through; a reward for an agent that did not act in it
        is added to that agent's last call on the path."""
        if self.probe:
            self._refuse_bystanders(at, step)
        self.rows.extend(self._row(at, one, self.action(at, said), [step], kept=True) for one in said)
        for agent in step.local_rewards.keys() - {one.agent for one in said}:
            self._last_call(at, agent)["local_reward"] += step.local_rewards[agent]

    def row(self, at: Node, one: Said, action: str, steps: Sequence[Step], kept: bool) -> dict[str, Any]:
        """One model call; `steps` are those of the joint actions that it took part in.

        Raises EnvError where a step pays an agent that did not act: what came before is the same for all candidates.
        """
        for step in steps:
            self._refuse_bystanders(at, step)
        return self._row(at, one, action, steps, kept)

    def _refuse_bystanders(self, at: Node, step: Step) -> None:
        for agent in step.local_rewards.keys() - step.valid.keys():
            raise EnvError(
                f"{type(self.env).__name__}.step pays agent {agent!r}, which did not act, in task {self.task.id!r} at "
                f"{at.name!r}: candidates are compared there, and its last call stands before all of them, so that it "
                "would be paid for every one; roll out whole episodes, episodes(n), in place of tree() and joint()"
            )

    def _last_call(self, at: Node, agent: str) -> dict[str, Any]:
        """The row of `agent`'s last call before this node on its path."""
        parents = {row["action"]: row["parent"] for row in self.rows}
        action = at.parent
        while action:
            for row in self.rows:
                if row["action"] == action and row["agent"] == agent:
                    return row
            action = parents[action]
        raise EnvError(
            f"{type(self.env).__name__}.step pays agent {agent!r} in task {self.task.id!r} at {at.name!r}, but it has "
            "not spoken there yet: there is no call that earned it; pay it at a later step, or let it act first"
        )

    def _row(self, at: Node, one: Said, action: str, steps: Sequence[Step], kept: bool) -> dict[str, Any]:
        infos = [dict(step.info) for step in steps]
        mean = 1.0 / len(steps)
        return {
            "task": self.task.id,
            "episode": self.episode,
            "node": at.name,
            "parent": at.parent,
            "turn": at.turns[one.agent],
            "depth": at.depth,
            "agent": one.agent,
            "candidate": one.candidate,
            "kept": kept,
            "action": action,
            "probe": self.probe,
            **one.columns,
            "valid": all(step.valid[one.agent] for step in steps),
            "team_reward": mean * sum(step.team_reward for step in steps),
            "local_reward": mean * sum(step.local_rewards[one.agent] for step in steps),
            "success": any(step.success for step in steps),
            "done": all(step.done for step in steps),
            "info": infos[0] if len(infos) == 1 else infos,
        }

    def continuation(self, node: Node, number: int) -> "Game":
        """A game of its own, from `node` to the end, that only values the action that led there."""
        episode = f"{node.parent}+{number}"
        root = Node(node.state, f"{episode}/{node.depth}", node.parent, node.depth, node.turns)
        return Game(self.env, self.task, episode, self.rows, probe=True, root=root)
