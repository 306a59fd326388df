"""Exercises of notebook 06: AT-GRPO's group key, a pick, a tie, the cost of a tree, and shares of a gain."""

import numpy as np
import pandas as pd

from mas_lab.course.compare import agrees, close_by, need, result_of, same_groups
from mas_lab.course.exercises import NotebookData, exercise


@exercise("06.1")
def key(by):
    same_groups(by, ("episode", "agent", "turn"), "your key")


@exercise("06.2")
def leads(pick):
    for number in range(40):
        rng = np.random.default_rng([6, number])
        size = int(rng.integers(2, 7))
        team, local = rng.integers(0, 3, size) / 4, rng.integers(-8, 5, size) / 4
        valid = rng.random(size) > (0.9 if number % 8 == 0 else 0.3)
        node = {"candidate": range(size), "team_reward": team, "local_reward": local, "valid": valid}
        table = pd.DataFrame(node, index=rng.permutation(size))
        scores = np.asarray(result_of(pick, table), dtype=float)
        need(scores.shape == (size,), f"return a number for each of {size} candidates; the shape is {scores.shape}")
        need(np.isfinite(scores).all(), "a credit is a finite number: the cell refuses NaN and infinity")
        led, best = int(scores.argmax()), int(np.where(valid, team + local, -np.inf).argmax())
        message = f"your pick keeps candidate {led}; of the valid ones, {best} earned most (the first wins a tie)"
        need(led == best or not valid.any(), f"{message}:\n{table.to_string()}")


@exercise("06.3")
def tie(alpha_of_a_tie):
    rng = np.random.default_rng(63)
    drawn = [(rng.permutation(9)[:2] / 4, rng.integers(0, 5, 2) / 4) for _ in range(20)]
    cases = [(float(team[0]), float(local[0]), float(team[1]), float(local[1])) for team, local in drawn]
    agrees(alpha_of_a_tie, lambda team_1, local_1, team_2, local_2: (local_2 - local_1) / (team_1 - team_2), cases)


@exercise("06.4")
def cost(counts):
    def right(k, agents, turns):
        return k * agents * turns, agents * turns, 1 + k * (agents * turns - 1)

    agrees(counts, right, ((2, 2, 1), (8, 2, 4), (4, 3, 2), (8, 1, 4), (3, 5, 3)))


@exercise("06.5")
def share_of_gain(share, finals: NotebookData):
    def right(final):
        low, high = final["team return"], final["tree"]
        return {arm: (one - low) / (high - low) for arm, one in final.items() if arm not in ("team return", "tree")}

    rng = np.random.default_rng(65)
    for final in (finals, *({arm: float(rng.uniform(0.3, 0.95)) for arm in finals} for _ in range(5))):
        close_by(result_of(share, final), right(final), f"shares where finals are {final}")
    most, largest = max(right(finals).items(), key=lambda one: one[1])
    return f"{most!r} alone keeps {largest:.0%} of the gain"
