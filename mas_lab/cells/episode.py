"""Hold one episode in play, and define the requests that a plan may yield.

An episode is a tree of nodes (decision points) and the rows recorded so far. Leaves out: the exploration (`plans`) and
the answers to the requests (`driver`).
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from mas_lab.cells.credits import Credit, replay_name
from mas_lab.env import Env, EnvError, Message, Step, Task, tools_of
from mas_lab.table import action_name


class RolloutError(RuntimeError):
    """An error that ended a rollout; the message names the place, usually task, agent and turn."""


@dataclass(frozen=True)
class Node:
    """A decision point of an episode."""

    state: Any
    """State of the environment."""
    name: str
    """Name of the node, unique in a rollout."""
    parent: str
    """Name of the joint action that led to it. "": the first node."""
    depth: int
    """Number of joint actions since the start."""
    turns: Mapping[str, int]
    """Number of turns that each agent has made before."""


@dataclass(frozen=True)
class Generate:
    """Request of a plan for one completion; the answer is a `Generation`."""

    at: Node
    """The node at which the agent speaks."""
    agent: str
    """Name of the agent."""
    candidate: int = 0
    """Number of the draw among the agent's draws at this node, from 0. Each number gives another draw."""


@dataclass(frozen=True)
class Generation:
    """Answer to a `Generate`."""

    agent: str
    """Name of the agent."""
    candidate: int
    """Number of the draw, as in the request."""
    text: str
    """Text of the completion."""
    columns: Mapping[str, Any]
    """Columns of the row that come from the policy: prompt, completion, token ids, log-probabilities and others."""
    message: Message | None = None
    """The answer as a message, for an agent with tools."""

    @property
    def action(self) -> str | Message:
        """Return what the environment gets: the text, or the message of an agent with tools."""
        return self.text if self.message is None else self.message


@dataclass(frozen=True)
class StepEnv:
    """Request of a plan for one step of the environment; the answer is a `mas_lab.env.Step`."""

    at: Node
    """The node at which the agents act."""
    said: Sequence[Generation]
    """A generation of each agent that acts there: the joint action."""


@dataclass(frozen=True)
class Score:
    """Request of a plan for the credits of some rows; the answer is an array with one number per row."""

    rows: Sequence[Mapping[str, Any]]
    """The rows, in the form of `EpisodeState.rows`."""
    credit: Credit
    """The credit that judges the rows."""


class Plan(Protocol):
    """How an environment instance is explored, such as `episodes(8)`; `plans` shows how to write one."""

    instances: int
    """Number of environment instances per task."""

    def __call__(self, episode: "EpisodeState") -> Generator:
        """Play one instance and record its rows in `episode`; yield lists of requests."""


@dataclass
class EpisodeState:
    """One episode in play, with its environment, its task and the rows recorded so far."""

    env: Env
    task: Task
    episode: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    probe: bool = False
    """True for a continuation, which only values the action that led to its root."""
    root: Node | None = None
    """First node of a continuation or a replay. `None`: the environment starts the episode."""
    removed: str = ""
    """Agent that is left out of a replay."""

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

    def action_name(self, at: Node, joint_action: Sequence[Generation]) -> str:
        """Return the name of a joint action, `node.i-j` with the candidate of each agent."""
        return action_name(at.name, [one.candidate for one in joint_action])

    def next(self, at: Node, joint_action: Sequence[Generation], step: Step, branch: int | None = None) -> Node | None:
        """Return the node that a joint action leads to, or `None` if the episode ends there.

        Args:
            at: The node at which the agents acted.
            joint_action: Their generations.
            step: The environment's step.
            branch: The number of this joint action, if all joint actions of a node are followed. `None`: only one is.
        """
        if step.done:
            return None
        turns = {**at.turns, **{one.agent: at.turns[one.agent] + 1 for one in joint_action}}
        path = at.name.partition("~")[2] if branch is not None else ""
        trail = "" if branch is None else f"~{path}{'.' if path else ''}{branch}"
        name, parent = f"{self.episode}/{at.depth + 1}{trail}", self.action_name(at, joint_action)
        node = Node(step.state, name, parent, at.depth + 1, turns)
        over = any(turns[agent] >= self.env.max_turns for agent in self.acting(node))
        return None if over else node

    def record(self, at: Node, joint_action: Sequence[Generation], step: Step) -> None:
        """Add the rows of a joint action; the reward of an agent that did not act is added to its last row before."""
        others = step.local_rewards.keys() - {one.agent for one in joint_action}
        if self.probe:
            self._refuse_other_agents(at, others)
        self.rows += [self._row(at, one, self.action_name(at, joint_action), [step]) for one in joint_action]
        for agent in others:
            self._last_call(at, agent)["local_reward"] += step.local_rewards[agent]

    def row(self, at: Node, one: Generation, action: str, steps: Sequence[Step]) -> dict[str, Any]:
        """Return the row of one candidate, with rewards averaged over `steps`, the joint actions that contain it.

        Raises:
            EnvError: A step pays an agent that did not act. All candidates share its last call before, so the reward
                belongs to none of them.
        """
        acting = set(self.acting(at))
        for step in steps:
            self._refuse_other_agents(at, step.local_rewards.keys() - acting)
        return self._row(at, one, action, steps)

    def continuation(self, node: Node, number: int) -> "EpisodeState":
        """Return an episode from `node` to the end, which values the action that led to `node`."""
        return self._branch(node, f"{node.parent}+{number}")

    def replay(self, node: Node, removed: str) -> "EpisodeState":
        """Return an episode that is played again from `node` without the agent `removed`."""
        return self._branch(node, replay_name(self.episode, removed), removed)

    def _branch(self, node: Node, episode: str, removed: str = "") -> "EpisodeState":
        root = replace(node, name=f"{episode}/{node.depth}")
        return EpisodeState(self.env, self.task, episode, self.rows, probe=True, root=root, removed=removed)

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
            "task": self.task.id, "episode": self.episode, "node": at.name, "parent": at.parent, "depth": at.depth,
            "turn": at.turns[one.agent], "agent": one.agent, "candidate": one.candidate, "action": action,
            "kept": True, "probe": self.probe, "removed": self.removed,
            **one.columns,
            "team_reward": mean * sum(step.team_reward for step in steps),
            "local_reward": mean * sum(step.local_rewards[one.agent] for step in steps),
            "valid": all(step.valid[one.agent] for step in steps),
            "success": any(step.success for step in steps),
            "done": all(step.done for step in steps),
            "info": infos[0] if len(infos) == 1 else infos,
        }  # fmt: skip


def silent(env: Env, agent: str, text: str) -> Generation:
    """Return a generation of no policy, in which `agent` says a fixed text."""
    message = {"role": "assistant", "content": text} if tools_of(env, agent) else None
    columns = {"policy": "", "prompt": "", "prompt_ids": [], "temperature": 1.0, "completion": text,
               "completion_ids": [], "logprobs": [], "finish": "stop"}  # fmt: skip
    return Generation(agent, 0, text, columns, message)


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
