"""Plans: how an environment instance is explored.

A plan is a small generator. It yields a list of requests that are answered together. Each request is a `Generate` (an
agent speaks), a `StepEnv` (the environment steps), a `Score` (a credit judges rows), or the generator of another plan
(a branch of its own). The plan receives the answers in the same order: a `Generation`, a `mas_lab.env.Step`, an array
of credits, or the return value of the generator. `driver.Runner` batches the requests of all running plans.
Leaves out: the requests and the rows (`episode`).

    @dataclass(frozen=True)
    class greedy_two:                                    # a plan of your own
        instances = 1                                    # number of environment instances per task
        def __call__(self, episode):
            at = episode.start()
            while at is not None:
                joint_action = yield [Generate(at, agent) for agent in episode.acting(at)]
                [step] = yield [StepEnv(at, joint_action)]
                episode.record(at, joint_action, step)
                at = episode.next(at, joint_action, step)
"""

import itertools
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from mas_lab.arguments import check_arguments
from mas_lab.cells.credits import Credit, mixed
from mas_lab.cells.episode import EpisodeState, Generate, Generation, Node, Score, StepEnv, silent
from mas_lab.env import Step, env_option
from mas_lab.table import action_name


@dataclass(frozen=True)
class episodes:
    """Plan of GRPO and Dr. MAS: `n` independent episodes per task, with one candidate per turn.

    Raises:
        ValueError: `n` is less than 1.
    """

    n: int
    """Number of episodes per task."""

    def __post_init__(self):
        check_arguments(episodes, vars(self), n=1)

    @property
    def instances(self) -> int:
        """Return the number of environment instances per task."""
        return self.n

    def __call__(self, episode: EpisodeState) -> Generator:
        """Play one episode and record its rows in `episode`.

        Args:
            episode: The episode, which is the environment instance.

        Yields:
            Lists of requests, see the module.
        """
        at = episode.start()
        while at is not None:
            joint_action = yield [Generate(at, agent) for agent in episode.acting(at)]
            [step] = yield [StepEnv(at, joint_action)]
            episode.record(at, joint_action, step)
            at = episode.next(at, joint_action, step)


@dataclass(frozen=True)
class tree:
    """Plan of AT-GRPO: `k` candidates at every turn; the best one moves the state on, and all of them are rows.

    AT-GRPO, arXiv 2510.11062, Algorithm 1. Ties go to the first candidate. If several agents act together, all of them
    sample without seeing each other. They are scored in acting order: against the kept candidates of earlier agents and
    the first candidates of later agents.

    Raises:
        ValueError: `k` is less than 1, or `follow` is negative.
    """

    k: int
    """Number of candidates of each agent at each turn."""
    pick: Credit = field(default_factory=mixed)
    """Credit that chooses the best candidate. It reads the rows that were recorded at the node so far, and the
    candidates of one agent."""
    follow: int = 0
    """Number of continuations: each candidate is also played on to the end so many times, for `counterfactual()`."""
    instances = 1

    def __post_init__(self):
        check_arguments(tree, vars(self), k=1, follow=0)

    def __call__(self, episode: EpisodeState) -> Generator:
        """Play one tree and record its rows in `episode`.

        Args:
            episode: The episode, which is the environment instance.

        Yields:
            Lists of requests, see the module.
        """
        at = episode.start()
        while at is not None:
            acting = episode.acting(at)
            drawn = yield [Generate(at, agent, candidate) for agent in acting for candidate in range(self.k)]
            chosen = [drawn[seat * self.k] for seat in range(len(acting))]
            recorded, followed = len(episode.rows), set()
            for seat in range(len(acting)):
                candidates = drawn[seat * self.k : (seat + 1) * self.k]
                joint = [[*chosen[:seat], one, *chosen[seat + 1 :]] for one in candidates]
                steps = yield [StepEnv(at, action) for action in joint]
                yield self._continuations(episode, at, joint, steps, followed)
                rows = [
                    episode.row(at, one, episode.action_name(at, action), [step])
                    for one, action, step in zip(candidates, joint, steps, strict=True)
                ]
                [credits] = yield [Score(episode.rows[recorded:] + rows, self.pick)]
                best = int(credits[-self.k :].argmax())
                episode.rows.extend({**row, "kept": candidate == best} for candidate, row in enumerate(rows))
                chosen[seat], step = candidates[best], steps[best]
            at = episode.next(at, chosen, step)

    def _continuations(
        self, episode: EpisodeState, at: Node, joint: Sequence, steps: Sequence[Step], followed: set[str]
    ) -> list:
        """Return the plays that value each joint action; an action that was followed before is not followed again."""
        plays = []
        for action, step in zip(joint, steps, strict=True):
            node = episode.next(at, action, step)
            if node is not None and node.parent not in followed:
                followed.add(node.parent)
                plays += [episodes(1)(episode.continuation(node, number)) for number in range(self.follow)]
        return plays


@dataclass(frozen=True)
class without:
    """Plan of CCPO: `n` episodes per task, each also played without every agent that acts in it.

    CCPO, arXiv 2603.21563. A replay starts where the agent first acts. What the others say at that moment stays; what
    they say later is drawn anew. At each of its turns the agent says the text `says`. `difference_return()` compares
    the two returns. The rows of a replay are not trained on (`probe`).

    Raises:
        ValueError: `n` is less than 1.
    """

    n: int
    """Number of episodes per task."""
    agents: tuple[str, ...] | None = None
    """Agents that are left out in turn. `None`: all of them."""
    says: str = ""
    """Text of the agent that is left out."""

    def __post_init__(self):
        check_arguments(without, vars(self), n=1)

    @property
    def instances(self) -> int:
        """Return the number of environment instances per task."""
        return self.n

    def __call__(self, episode: EpisodeState) -> Generator:
        """Play one episode and its replays, and record their rows in `episode`.

        Args:
            episode: The episode, which is the environment instance.

        Yields:
            Lists of requests, see the module.

        Raises:
            ValueError: `agents` names one that the environment does not have.
        """
        if unknown := set(self.agents or ()) - set(episode.env.agents):
            raise ValueError(f"without: no agent is named {sorted(unknown)[0]!r}; they are {episode.env.agents}")
        first = {}
        at = episode.start()
        while at is not None:
            joint_action = yield [Generate(at, agent) for agent in episode.acting(at)]
            first = {one.agent: (at, joint_action) for one in joint_action} | first
            [step] = yield [StepEnv(at, joint_action)]
            episode.record(at, joint_action, step)
            at = episode.next(at, joint_action, step)
        yield [
            self._replay(episode.replay(at, agent), agent, joint_action)
            for agent, (at, joint_action) in first.items()
            if self.agents is None or agent in self.agents
        ]

    def _replay(self, episode: EpisodeState, removed: str, joint_action: Sequence[Generation]) -> Generator:
        at, silence = episode.start(), silent(episode.env, removed, self.says)
        while at is not None:
            joint_action = [silence if one.agent == removed else one for one in joint_action]
            [step] = yield [StepEnv(at, joint_action)]
            episode.record(at, joint_action, step)
            at = episode.next(at, joint_action, step)
            if at is not None:
                acting = episode.acting(at)
                drawn = yield [Generate(at, agent) for agent in acting if agent != removed]
                by_agent = {one.agent: one for one in [*drawn, silence]}
                joint_action = [by_agent[agent] for agent in acting]


@dataclass(frozen=True)
class joint:
    """Plan of MAGRPO: `g` joint actions at every node, and every branch is followed.

    MAGRPO, arXiv 2508.04652, section 4. A branch ends where the environment says so. If the env has a reward that is
    `enough`, a branch also ends by the rule `stop`.

    Raises:
        ValueError: `g` is less than 1, `mode` or `stop` is unknown, or the tree could have more than `limit` joint
            actions.
    """

    g: int
    """Number of candidates of each agent at each node."""
    mode: str = "aligned"
    """ "aligned" joins the i-th candidates of all agents. "cross" joins every combination. A completion is then one
    row, with the means over the joint actions in which it took part."""
    limit: int = 256
    """Largest number of joint actions that a tree may have."""
    stop: str = "own"
    """Rule for an env with `enough`. "own": a branch ends if its own reward of this step reaches `enough`. "mean": all
    branches of a node end if the mean reward of its joint actions exceeds `enough` (CoMLRL's
    `early_termination_threshold`)."""
    instances = 1

    def __post_init__(self):
        check_arguments(joint, vars(self), g=1, limit=1)
        for name, known in {"mode": ("aligned", "cross"), "stop": ("own", "mean")}.items():
            if getattr(self, name) not in known:
                raise ValueError(f"joint: {name}={getattr(self, name)!r}; known are {known[0]!r} and {known[1]!r}")

    def __call__(self, episode: EpisodeState) -> Generator:
        """Play one tree of joint actions and record its rows in `episode`.

        Args:
            episode: The episode, which is the environment instance.

        Yields:
            Lists of requests, see the module.

        Raises:
            ValueError: The tree could have more than `limit` joint actions.
        """
        root = episode.start()
        self._refuse_if_too_big(episode, root)
        yield from self._grow(episode, root)

    def _refuse_if_too_big(self, episode: EpisodeState, root: Node) -> None:
        acting = len(episode.acting(root))
        branches = self.g**acting if self.mode == "cross" else self.g
        levels = episode.env.max_turns * (1 if acting > 1 else len(episode.env.agents))
        size = sum(branches**level for level in range(1, levels + 1))
        if size > self.limit:
            raise ValueError(
                f"joint({self.g}, mode={self.mode!r}): a tree of {levels} steps with {branches} branches each may "
                f"hold {size:,} joint actions, more than limit={self.limit}; lower g or max_turns, or raise the limit"
            )

    def _grow(self, episode: EpisodeState, at: Node) -> Generator:
        acting = episode.acting(at)
        drawn = yield [Generate(at, agent, candidate) for agent in acting for candidate in range(self.g)]
        by_agent = [drawn[seat * self.g : (seat + 1) * self.g] for seat in range(len(acting))]
        joint_actions = list(itertools.product(*by_agent) if self.mode == "cross" else zip(*by_agent, strict=True))
        steps = yield [StepEnv(at, action) for action in joint_actions]
        for seat, candidates in enumerate(by_agent):
            for i, one in enumerate(candidates):
                took_part = [n for n, action in enumerate(joint_actions) if action[seat] is one]
                choices = [i if other == seat or self.mode == "aligned" else "*" for other in range(len(acting))]
                name = action_name(at.name, choices)
                episode.rows.append(episode.row(at, one, name, [steps[n] for n in took_part]))
        yield [self._grow(episode, node) for node in self._followed(episode, at, joint_actions, steps)]

    def _followed(self, episode: EpisodeState, at: Node, joint_actions: Sequence, steps: Sequence[Step]) -> list[Node]:
        enough = env_option(episode.env, "enough")
        if self.stop == "mean" and sum(step.team_reward for step in steps) / len(steps) > enough:
            return []
        nodes = [
            episode.next(at, action, step, branch)
            for branch, (action, step) in enumerate(zip(joint_actions, steps, strict=True))
            if self.stop == "mean" or step.team_reward < enough
        ]
        return [node for node in nodes if node is not None]
