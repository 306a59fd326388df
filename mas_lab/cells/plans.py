"""Plans: how an environment instance is explored. A plan is a small generator that asks and records.

It yields a list of things to be done together, each a `Say` (an agent speaks), an `Act` (the world steps), a `Score`
(a credit judges rows) or another plan's generator (a branch that goes its own way), and gets back their answers in the
same order: a `Said`, a `mas_lab.env.Step`, an array of credits, or what the generator returned. The driver in `rollout`
batches what all live plans ask for.

    @dataclass(frozen=True)
    class greedy_two:                                    # a plan of your own
        instances = 1                                    # how many environment instances per task
        def __call__(self, game):
            at = game.start()
            while at is not None:
                said = yield [Say(at, agent) for agent in game.acting(at)]
                [step] = yield [Act(at, said)]
                game.record(at, said, step)
                at = game.next(at, said, step)
"""

import itertools
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mas_lab.cells.credits import Credit, mixed
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
        return Node(self.env.start(self.task), f"{self.episode}/0", "", 0, dict.fromkeys(self.env.agents, 0))

    def acting(self, at: Node) -> tuple[str, ...]:
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
        """Add the rows of a joint action that the state moved on through."""
        self.rows.extend(self.row(at, one, self.action(at, said), [step], kept=True) for one in said)

    def row(self, at: Node, one: Said, action: str, steps: Sequence[Step], kept: bool) -> dict[str, Any]:
        """One model call; `steps` are those of the joint actions that it took part in."""
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
        }

    def continuation(self, node: Node, number: int) -> "Game":
        """A game of its own, from `node` to the end, that only values the action that led there."""
        episode = f"{node.parent}+{number}"
        root = Node(node.state, f"{episode}/{node.depth}", node.parent, node.depth, node.turns)
        return Game(self.env, self.task, episode, self.rows, probe=True, root=root)


@dataclass(frozen=True)
class episodes:
    """`n` independent episodes per task, one candidate per turn (GRPO's and Dr. MAS's trajectories)."""

    n: int

    def __post_init__(self):
        _at_least(self.n, 1, "episodes(n)")

    @property
    def instances(self) -> int:
        return self.n

    @property
    def siblings(self) -> int:
        """How many rows are meant to be compared with each other."""
        return self.n

    def __call__(self, game: Game) -> Generator:
        at = game.start()
        while at is not None:
            said = yield [Say(at, agent) for agent in game.acting(at)]
            [step] = yield [Act(at, said)]
            game.record(at, said, step)
            at = game.next(at, said, step)


@dataclass(frozen=True)
class tree:
    """`k` candidates at every turn; the best by `pick` moves the state on, all of them are rows (AT-GRPO, Algorithm 1).

    Ties go to the first. `pick` reads a table of one agent's candidates at one node. When several agents act together
    all sample unseen, and are scored in acting order against the earlier agents' kept candidates and the later agents'
    first ones. `follow=m` also plays each candidate on, `m` times to the end, for `counterfactual()`.
    """

    k: int
    pick: Credit = field(default_factory=mixed)
    follow: int = 0
    instances = 1

    def __post_init__(self):
        _at_least(self.k, 1, "tree(k)")
        _at_least(self.follow, 0, "tree(follow)")

    @property
    def siblings(self) -> int:
        return self.k

    def __call__(self, game: Game) -> Generator:
        at = game.start()
        while at is not None:
            acting = game.acting(at)
            said = yield [Say(at, agent, candidate) for agent in acting for candidate in range(self.k)]
            chosen = [said[seat * self.k] for seat in range(len(acting))]
            recorded, followed = len(game.rows), set()
            for seat in range(len(acting)):
                candidates = said[seat * self.k : (seat + 1) * self.k]
                joint = [[*chosen[:seat], one, *chosen[seat + 1 :]] for one in candidates]
                steps = yield [Act(at, action) for action in joint]
                yield self._continuations(game, at, joint, steps, followed)
                rows = [
                    game.row(at, one, game.action(at, action), [step], kept=True)
                    for one, action, step in zip(candidates, joint, steps, strict=True)
                ]
                [credits] = yield [Score(game.rows[recorded:] + rows, self.pick)]
                best = int(credits[-self.k :].argmax())
                game.rows.extend({**row, "kept": candidate == best} for candidate, row in enumerate(rows))
                chosen[seat], step = candidates[best], steps[best]
            at = game.next(at, chosen, step)

    def _continuations(self, game: Game, at: Node, joint: Sequence, steps: Sequence[Step], followed: set[str]) -> list:
        """The plays that value each joint action; an action that was followed before is not followed again."""
        plays = []
        for action, step in zip(joint, steps, strict=True):
            node = game.next(at, action, step)
            if node is not None and node.parent not in followed:
                followed.add(node.parent)
                plays += [episodes(1)(game.continuation(node, number)) for number in range(self.follow)]
        return plays


@dataclass(frozen=True)
class joint:
    """`g` joint actions at every node, every branch followed (MAGRPO, arXiv 2508.04652, section 4).

    `mode="aligned"` joins the i-th candidates of all agents; `mode="cross"` joins every combination, and a completion
    then stands once, with the means over the joint actions that it took part in. A branch ends where the environment
    says so, or where its reward reaches `env.enough`. A tree that could exceed `limit` joint actions is refused.
    """

    g: int
    mode: str = "aligned"
    limit: int = 256
    instances = 1

    def __post_init__(self):
        _at_least(self.g, 1, "joint(g)")
        if self.mode not in ("aligned", "cross"):
            raise ValueError(f"joint: mode={self.mode!r}; known are 'aligned' and 'cross'")

    @property
    def siblings(self) -> int:
        return self.g

    def __call__(self, game: Game) -> Generator:
        root = game.start()
        self._refuse_if_too_big(game, root)
        yield from self._grow(game, root)

    def _refuse_if_too_big(self, game: Game, root: Node) -> None:
        together = len(game.acting(root))
        branches = self.g**together if self.mode == "cross" else self.g
        levels = game.env.max_turns * (1 if together > 1 else len(game.env.agents))
        size = sum(branches**level for level in range(1, levels + 1))
        if size > self.limit:
            raise ValueError(
                f"joint({self.g}, mode={self.mode!r}): a tree of {levels} steps with {branches} branches each may "
                f"hold {size:,} joint actions, more than limit={self.limit}; lower g or max_turns, or raise the limit"
            )

    def _grow(self, game: Game, at: Node) -> Generator:
        acting = game.acting(at)
        said = yield [Say(at, agent, candidate) for agent in acting for candidate in range(self.g)]
        by_agent = [said[seat * self.g : (seat + 1) * self.g] for seat in range(len(acting))]
        together = list(itertools.product(*by_agent) if self.mode == "cross" else zip(*by_agent, strict=True))
        steps = yield [Act(at, action) for action in together]
        for seat, candidates in enumerate(by_agent):
            for i, one in enumerate(candidates):
                took_part = [n for n, action in enumerate(together) if action[seat] is one]
                places = [str(i) if other == seat or self.mode == "aligned" else "*" for other in range(len(acting))]
                name = f"{at.name}.{'-'.join(places)}"
                game.rows.append(game.row(at, one, name, [steps[n] for n in took_part], kept=True))
        yield [self._grow(game, node) for node in self._followed(game, at, together, steps)]

    def _followed(self, game: Game, at: Node, together: Sequence, steps: Sequence[Step]) -> list[Node]:
        enough = getattr(game.env, "enough", float("inf"))
        nodes = [
            game.next(at, action, step, branch)
            for branch, (action, step) in enumerate(zip(together, steps, strict=True))
            if step.team_reward < enough
        ]
        return [node for node in nodes if node is not None]


def _at_least(value: int, low: int, what: str) -> None:
    if value < low:
        raise ValueError(f"{what}: {value} is less than {low}")
