"""Exercises of notebook 06: AT-GRPO's group key, a pick, a tie, the cost of a tree, and shares of a gain."""

import numpy as np
import pandas as pd

from mas_lab.cells.credits import mixed
from mas_lab.cells.grouping import group
from mas_lab.course.compare import asked, close
from mas_lab.course.exercises import NotYet, exercise
from mas_lab.table import TableError

KEY = ["episode", "agent", "turn"]
CASES = [(2, 2, 1), (8, 2, 4), (4, 3, 2), (8, 1, 4), (3, 5, 3)]
"""Numbers of candidates, agents and turns."""


def trees() -> pd.DataFrame:
    """Return the rows of two mazes as `tree(3)` leaves them, the first maze drawn twice.

    There are two agents and two turns, and each row has its prompt.
    """
    return pd.DataFrame(
        {"task": task, "episode": f"{task}-{draw}", "turn": turn, "agent": agent, "candidate": candidate}
        | {"prompt": f"{task}{' moved' * turn} {agent}", "team_reward": 0.0, "local_reward": candidate / 2}
        for task, draw in (("a", 0), ("a", 1), ("b", 0))
        for turn in (0, 1)
        for agent in ("planner", "executor")
        for candidate in (0, 1, 2)
    )


@exercise(
    "06.1",
    "Two rows may be compared if they answer the same question: whose question is it, when, and in which episode?",
    "Of one maze that was drawn twice each draw is an episode of its own, and has trees of its own.",
)
def key(by):
    names = [by] if isinstance(by, str) else by
    if not isinstance(names, tuple | list) or not all(isinstance(name, str) for name in names):
        raise NotYet('the names of columns are asked for, as in ("task",)')
    table = trees()
    try:
        groups = group(table, names, mixed())["group"]
    except TableError as refused:
        raise NotYet(f"the cell refuses it: {refused}") from None
    for name, why in (
        ("episode", "rows of different draws of a maze stand in one group: each is an instance with a tree of its own"),
        ("agent", "a planner and an executor are compared with each other, who answer different prompts"),
        ("turn", "an agent's turns are compared with each other, in which it stood in different places"),
    ):
        if (table.groupby(groups)[name].nunique() > 1).any():
            raise NotYet(why)
    if (table.groupby(KEY)["candidate"].size().mean()) != groups.value_counts().mean():
        raise NotYet("the candidates of one prompt stand in several groups, and are not compared with each other")
    return "every group holds the K candidates of one prompt"


def nodes(count: int = 40):
    """Yield random candidates of one node; sometimes the best by credit is invalid, and sometimes all are."""
    for number in range(count):
        rng = np.random.default_rng([6, number])
        size = int(rng.integers(2, 7))
        yield pd.DataFrame(
            {
                "candidate": range(size),
                "team_reward": rng.integers(0, 3, size) / 4,
                "local_reward": rng.integers(-4, 5, size) / 4,
                "valid": rng.random(size) > (0.9 if number % 8 == 0 else 0.3),
            },
            index=rng.permutation(size),
        )


@exercise(
    "06.2",
    "Begin with the mixed credit, a Series: `team_reward + local_reward`. What must it be where `valid` is False?",
    "`credit.where(candidates['valid'], low)` keeps it where valid is True and puts `low` elsewhere. How low is safe? "
    "A local reward may be negative, too.",
)
def leads(pick):
    for table in nodes():
        found = asked(pick, table)
        scores = np.asarray(found, dtype=float) if not isinstance(found, pd.Series) else found.to_numpy(dtype=float)
        if scores.shape != (len(table),):
            raise NotYet(f"a number for each of {len(table)} candidates is asked for, not the shape {scores.shape}")
        if not np.isfinite(scores).all():
            raise NotYet("a credit is a finite number: the cell refuses NaN and infinity")
        valid, credit = table["valid"].to_numpy(), (table["team_reward"] + table["local_reward"]).to_numpy()
        if not valid.any():  # no valid candidate: any pick is accepted
            continue
        led, best = int(scores.argmax()), int(np.where(valid, credit, -np.inf).argmax())
        if not valid[led]:
            raise NotYet(f"candidate {led} leads, which could not be read, and another one could:\n{table.to_string()}")
        if credit[led] != credit[best]:
            raise NotYet(f"candidate {led} leads, though {best} earned more:\n{table.to_string()}")
        if led != best:
            raise NotYet(f"of equals the first leads, here {best} and not {led}:\n{table.to_string()}")
    return "on 40 nodes the same candidate leads"


@exercise(
    "06.3",
    "Write both credits down, alpha * team + local, and set them equal.",
    "alpha * (team_1 - team_2) = local_2 - local_1",
)
def tie(alpha_of_a_tie):
    for number in range(20):
        rng = np.random.default_rng([63, number])
        team = rng.permutation(9)[:2] / 4
        local = rng.integers(0, 5, 2) / 4
        given = (float(team[0]), float(local[0]), float(team[1]), float(local[1]))
        rewards = pd.DataFrame({"team_reward": team, "local_reward": local})
        alpha = asked(alpha_of_a_tie, *given)
        close(
            alpha,
            (local[1] - local[0]) / (team[0] - team[1]),
            "alpha for team {}, local {} and team {}, local {}".format(*given),
            1e-6,
        )
        worth = mixed(alpha=float(alpha))(rewards)
        close(worth[0], worth[1], "the first candidate's credit beside the second's", 1e-6)
    return "below it the local reward decides, above it the team's; where it is negative they never change places"


@exercise(
    "06.4",
    "One node for each call on the path that is followed: how many calls is that?",
    "In episodes only the very first prompt is the same for all k; each later call may be another in each episode.",
)
def cost(counts):
    names = ("completions", "prompts of a tree", "prompts of episodes")
    for k, agents, turns in CASES:
        found = asked(counts, k, agents, turns)
        if not isinstance(found, tuple | list) or len(found) != 3:
            raise NotYet("three counts are asked for: completions, prompts of tree(k), prompts of episodes(k)")
        for yours, ours, name in zip(found, enumerate_calls(k, agents, turns), names, strict=True):
            close(yours, ours, f"{name} for k = {k}, {agents} agents, {turns} turns", tolerance=1e-9)
    return "as many completions, and fewer prompts in which they are read"


def enumerate_calls(k: int, agents: int, turns: int) -> tuple[int, int, int]:
    """Count completions, prompts of a tree and prompts of episodes, each different history as one prompt."""
    path = [(turn, agent) for turn in range(turns) for agent in range(agents)]
    tree = {depth for depth, _ in enumerate(path)}
    episodes = {(depth, episode if depth else None) for episode in range(k) for depth, _ in enumerate(path)}
    return k * len(path), len(tree), len(episodes)


@exercise(
    "06.5",
    "The whole gain is final['tree'] - final['team return']. Of that, how much does an arm have?",
    "A share is 0 for an arm that ends where 'team return' does, and 1 where 'tree' does; these two are not asked for.",
)
def kept(share, finals):
    for number in range(6):
        rng = np.random.default_rng([65, number])
        final = dict(finals) if number == 0 else {arm: float(rng.uniform(0.3, 0.95)) for arm in finals}
        low, high = final["team return"], final["tree"]
        found = asked(share, dict(final))
        if not isinstance(found, dict | pd.Series):
            raise NotYet("a dict is asked for: arm -> share")
        found = dict(found)
        wanted = [arm for arm in final if arm not in ("team return", "tree")]
        if set(found) != set(wanted):
            raise NotYet(f"shares of these arms are asked for: {', '.join(wanted)}")
        for arm in wanted:
            close(found[arm], (final[arm] - low) / (high - low), f"the share of {arm!r} where finals are {final}", 1e-6)
        if number == 0:
            most = max(wanted, key=found.get)
            told = f"{most!r} alone keeps {found[most]:.0%} of it"
    return told
