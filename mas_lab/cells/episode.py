"""One episode in play, and the requests that a plan may make of it.

An episode is a tree of nodes (decision points) and the rows recorded so far. Leaves out: how it is explored (`plans`),
and who answers the requests (`backends.runner`).
"""

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from mas_lab.cells.credits import Credit
from mas_lab.env import Env, EnvError, Step, Task


class RolloutError(RuntimeError):
    """A rollout that broke: names the task, the agent and the turn."""


@dataclass(frozen=True)
class Node:
    """A decision point: the state, the action that led to it, and how far it is from the start."""

    state: Any
    name: str
    parent: str
    depth: int
    turns: Mapping[str, int]
    """Turns that each agent has made before it."""


@dataclass(frozen=True)
class Generate:
    """Request a completion of `agent` at a node. `candidate` numbers the agent's draws at this node."""

    at: Node
    agent: str
    candidate: int = 0


@dataclass(frozen=True)
class Generation:
    """Answer a `Generate`: the text, and the columns of its row that the policy knows."""

    agent: str
    candidate: int
    text: str
    columns: Mapping[str, Any]


@dataclass(frozen=True)
class StepEnv:
    """Request a step of the environment at a node, by the generations of the agents that act there."""

    at: Node
    said: Sequence[Generation]


@dataclass(frozen=True)
class Score:
    """Request the credits of some rows."""

    rows: Sequence[Mapping[str, Any]]
    credit: Credit


Plan = Callable[["EpisodeState"], Generator]


@dataclass
class EpisodeState:
    """One episode in play: its environment and task, and the rows recorded so far."""

    env: Env
    task: Task
    episode: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    probe: bool = False
    """True for a continuation, which only values the action that led to its root."""
    root: Node | None = None

    def start(self) -> Node:
        """Return the first node."""
        if self.root is not None:
            return self.root
        with error_context(self.env, "start", f"task {self.task.id!r}"):
            state = self.env.start(self.task)
        return Node(state, f"{self.episode}/0", "", 0, dict.fromkeys(self.env.agents, 0))

    def acting(self, at: Node) -> tuple[str, ...]:
        """Return the agents that act at a node."""
        with error_context(self.env, "acting", f"task {self.task.id!r} at {at.name!r}, after turns {dict(at.turns)}"):
            agents = tuple(self.env.acting(at.state))
        if not agents or not set(agents) <= set(self.env.agents):
            raise EnvError(
                f"{type(self.env).__name__}.acting returned {agents} in task {self.task.id!r} at {at.name!r}; "
                f"it must name one or more of {self.env.agents}"
            )
        return agents

    def action(self, at: Node, said: Sequence[Generation]) -> str:
        """Return the name of a joint action: `node.i-j`, the candidate of each agent."""
        return f"{at.name}.{'-'.join(str(one.candidate) for one in said)}"

    def next(self, at: Node, said: Sequence[Generation], step: Step, branch: int | None = None) -> Node | None:
        """Return the node that a joint action leads to, or None if the episode ends there.

        Args:
            at: The node at which the agents acted.
            said: Their generations.
            step: The environment's step.
            branch: The number of this joint action, if all joint actions of a node are followed.
        """
        if step.done:
            return None
        turns = {**at.turns, **{one.agent: at.turns[one.agent] + 1 for one in said}}
        path = at.name.partition("~")[2] if branch is not None else ""
        trail = "" if branch is None else f"~{path}{'.' if path else ''}{branch}"
        node = Node(step.state, f"{self.episode}/{at.depth + 1}{trail}", self.action(at, said), at.depth + 1, turns)
        over = any(turns[agent] >= self.env.max_turns for agent in self.acting(node))
        return None if over else node

    def record(self, at: Node, said: Sequence[Generation], step: Step) -> None:
        """Add the rows of a joint action; a reward for an agent that did not act goes to its last call before."""
        others = step.local_rewards.keys() - {one.agent for one in said}
        if self.probe and others:
            self._refuse_other_agents(at, others)
        self.rows += [self._row(at, one, self.action(at, said), [step]) for one in said]
        for agent in others:
            self._last_call(at, agent)["local_reward"] += step.local_rewards[agent]

    def row(self, at: Node, one: Generation, action: str, steps: Sequence[Step]) -> dict[str, Any]:
        """Return the row of one candidate; its rewards are means over `steps`, the joint actions it took part in.

        Raises:
            EnvError: A step pays an agent that did not act. All candidates share the calls before, so it is nobody's.
        """
        for step in steps:
            self._refuse_other_agents(at, step.local_rewards.keys() - step.valid.keys())
        return self._row(at, one, action, steps)

    def continuation(self, node: Node, number: int) -> "EpisodeState":
        """Return an episode from `node` to the end, which values the action that led there."""
        episode = f"{node.parent}+{number}"
        root = Node(node.state, f"{episode}/{node.depth}", node.parent, node.depth, node.turns)
        return EpisodeState(self.env, self.task, episode, self.rows, probe=True, root=root)

    def _refuse_other_agents(self, at: Node, agents: set[str]) -> None:
        for agent in agents:
            raise EnvError(
                f"{type(self.env).__name__}.step pays agent {agent!r}, which did not act, in task {self.task.id!r} at "
                f"{at.name!r}. Candidates are compared there, and its last call comes before all of them, so every "
                "candidate would earn this reward. Roll out whole episodes, episodes(n), in place of tree() and joint()"
            )

    def _last_call(self, at: Node, agent: str) -> dict[str, Any]:
        parents = {row["action"]: row["parent"] for row in self.rows}
        action = at.parent
        while action:
            for row in self.rows:
                if row["action"] == action and row["agent"] == agent:
                    return row
            action = parents[action]
        raise EnvError(
            f"{type(self.env).__name__}.step pays agent {agent!r} in task {self.task.id!r} at {at.name!r}, but the "
            "agent has not acted before. Pay it at a later step, or let it act first"
        )

    def _row(self, at: Node, one: Generation, action: str, steps: Sequence[Step]) -> dict[str, Any]:
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
            "kept": True,
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


@contextmanager
def error_context(env: Env, part: str, place: str) -> Iterator[None]:
    """Turn an error of the environment's `part` into a RolloutError that names the place."""
    try:
        yield
    except Exception as error:
        raise RolloutError(
            f"rollout: {type(env).__name__}.{part} failed for {place}: {type(error).__name__}: {error}"
        ) from error


def place_of(task: Task, at: Node, agent: str) -> str:
    """Return the place of a call in words, for errors."""
    return f"task {task.id!r}, agent {agent!r}, turn {at.turns[agent]}"
