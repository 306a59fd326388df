"""Plans: how an episode is explored. A plan is a small generator that makes requests and records rows.

It yields a list of requests, each a `Generate` (an agent speaks), a `StepEnv` (the environment steps), a `Score` (a
credit judges rows) or another plan's generator (a branch of its own). It receives their answers in the same order: a
`Generation`, a `mas_lab.env.Step`, an array of credits, or what the generator returned. The runner of `rollout` batches
the requests of all live plans. Leaves out: the requests and rows themselves (`episode`).

    @dataclass(frozen=True)
    class greedy_two:                                    # your own plan
        instances = 1                                    # episodes per task
        def __call__(self, episode):
            at = episode.start()
            while at is not None:
                said = yield [Generate(at, agent) for agent in episode.acting(at)]
                [step] = yield [StepEnv(at, said)]
                episode.record(at, said, step)
                at = episode.next(at, said, step)
"""

import itertools
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from mas_lab.cells.credits import Credit, mixed
from mas_lab.cells.episode import EpisodeState, Generate, Node, Score, StepEnv
from mas_lab.env import Step, env_option


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

    def __call__(self, episode: EpisodeState) -> Generator:
        at = episode.start()
        while at is not None:
            said = yield [Generate(at, agent) for agent in episode.acting(at)]
            [step] = yield [StepEnv(at, said)]
            episode.record(at, said, step)
            at = episode.next(at, said, step)


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

    def __call__(self, episode: EpisodeState) -> Generator:
        at = episode.start()
        while at is not None:
            acting = episode.acting(at)
            said = yield [Generate(at, agent, candidate) for agent in acting for candidate in range(self.k)]
            chosen = [said[seat * self.k] for seat in range(len(acting))]
            recorded, followed = len(episode.rows), set()
            for seat in range(len(acting)):
                candidates = said[seat * self.k : (seat + 1) * self.k]
                joint = [[*chosen[:seat], one, *chosen[seat + 1 :]] for one in candidates]
                steps = yield [StepEnv(at, action) for action in joint]
                yield self._continuations(episode, at, joint, steps, followed)
                rows = [
                    episode.row(at, one, episode.action(at, action), [step])
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
        """The plays that value each joint action; an action that was followed before is not followed again."""
        plays = []
        for action, step in zip(joint, steps, strict=True):
            node = episode.next(at, action, step)
            if node is not None and node.parent not in followed:
                followed.add(node.parent)
                plays += [episodes(1)(episode.continuation(node, number)) for number in range(self.follow)]
        return plays


@dataclass(frozen=True)
class joint:
    """`g` joint actions at every node, every branch followed (MAGRPO, arXiv 2508.04652, section 4).

    `mode="aligned"` joins the i-th candidates of all agents; `mode="cross"` joins every combination, and a completion
    then stands once, with the means over the joint actions that it took part in. A tree that could exceed `limit` joint
    actions is refused. A branch ends where the environment says so, and, where the env has a reward that is `enough`:
    with `stop="own"` a branch whose own reward of this step reaches it; with `stop="mean"` all branches of a node at
    once, if the mean reward of its joint actions exceeds it (CoMLRL's `early_termination_threshold`).
    """

    g: int
    mode: str = "aligned"
    limit: int = 256
    stop: str = "own"
    instances = 1

    def __post_init__(self):
        _at_least(self.g, 1, "joint(g)")
        for name, known in {"mode": ("aligned", "cross"), "stop": ("own", "mean")}.items():
            if getattr(self, name) not in known:
                raise ValueError(f"joint: {name}={getattr(self, name)!r}; known are {known[0]!r} and {known[1]!r}")

    @property
    def siblings(self) -> int:
        return self.g

    def __call__(self, episode: EpisodeState) -> Generator:
        root = episode.start()
        self._refuse_if_too_big(episode, root)
        yield from self._grow(episode, root)

    def _refuse_if_too_big(self, episode: EpisodeState, root: Node) -> None:
        together = len(episode.acting(root))
        branches = self.g**together if self.mode == "cross" else self.g
        levels = episode.env.max_turns * (1 if together > 1 else len(episode.env.agents))
        size = sum(branches**level for level in range(1, levels + 1))
        if size > self.limit:
            raise ValueError(
                f"joint({self.g}, mode={self.mode!r}): a tree of {levels} steps with {branches} branches each may "
                f"hold {size:,} joint actions, more than limit={self.limit}; lower g or max_turns, or raise the limit"
            )

    def _grow(self, episode: EpisodeState, at: Node) -> Generator:
        acting = episode.acting(at)
        said = yield [Generate(at, agent, candidate) for agent in acting for candidate in range(self.g)]
        by_agent = [said[seat * self.g : (seat + 1) * self.g] for seat in range(len(acting))]
        together = list(itertools.product(*by_agent) if self.mode == "cross" else zip(*by_agent, strict=True))
        steps = yield [StepEnv(at, action) for action in together]
        for seat, candidates in enumerate(by_agent):
            for i, one in enumerate(candidates):
                took_part = [n for n, action in enumerate(together) if action[seat] is one]
                places = [str(i) if other == seat or self.mode == "aligned" else "*" for other in range(len(acting))]
                name = f"{at.name}.{'-'.join(places)}"
                episode.rows.append(episode.row(at, one, name, [steps[n] for n in took_part]))
        yield [self._grow(episode, node) for node in self._followed(episode, at, together, steps)]

    def _followed(self, episode: EpisodeState, at: Node, together: Sequence, steps: Sequence[Step]) -> list[Node]:
        enough = env_option(episode.env, "enough")
        if self.stop == "mean" and sum(step.team_reward for step in steps) / len(steps) > enough:
            return []
        nodes = [
            episode.next(at, action, step, branch)
            for branch, (action, step) in enumerate(zip(together, steps, strict=True))
            if self.stop == "mean" or step.team_reward < enough
        ]
        return [node for node in nodes if node is not None]


def _at_least(value: int, low: int, what: str) -> None:
    if value < low:
        raise ValueError(f"{what}: {value} is less than {low}")
