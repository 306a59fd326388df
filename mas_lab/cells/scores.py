"""Measure the score z of a row, the gradient of its summed log-probability: |z|^2 says how much it moves the weights.

A baseline b has the least noise at b* = E[|z|^2 R] / E[|z|^2]. The norms are exact, over all parameters that the row's
policy trains; for LoRA these are the adapter's. Each row costs a forward and a backward pass. Leaves out: the baselines
that use the norms (`centers`), and what they predict (`explain.advice`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd

from mas_lab.cells.update import learners
from mas_lab.locks import locked
from mas_lab.losses import reinforce
from mas_lab.policy import Policy, Sample
from mas_lab.table import require, trained
from mas_lab.team import Team

SAID = ["prompt_ids", "completion_ids", "logprobs", "temperature"]


@contextmanager
def clean_gradients(policy: Policy) -> Iterator[None]:
    """Start without gradients, and put the policy's own back afterwards."""
    before = [gradient.clone() for _, gradient in policy.gradients()]
    policy.set_gradients(None)
    try:
        yield
    finally:
        policy.set_gradients(before if any(gradient.any() for gradient in before) else None)


def each_score(policy: Policy, rows: pd.DataFrame) -> Iterator[tuple[Any, float]]:
    """Yield the label and |z|^2 of each row; until the next one, the policy's gradient is -z."""
    with clean_gradients(policy):
        for label, *said in rows[SAID].itertuples(name=None):
            policy.forward_backward([Sample(*said, advantage=1.0, weight=1.0)], reinforce())
            yield label, policy.gradient_norm() ** 2
            policy.set_gradients(None)


def rows_to_measure(
    team: Team, turns: pd.DataFrame, most: int | None, seed: int
) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield policy name, agent, and at most `most` of its rows, for each agent that learns from a visible gradient."""
    for name, policy in team.policies.items():
        for agent in team.learners(name) if policy.capabilities.gradients else ():
            own = turns[(turns["agent"] == agent) & trained(turns)]
            drawn = own if most is None or len(own) <= most else own.sample(most, random_state=seed).sort_index()
            yield name, agent, drawn


def squared_scores(team: Team, turns: pd.DataFrame, most: int | None = None, seed: int = 0) -> pd.Series:
    """Return |z|^2 of each row.

    Args:
        team: The team that plays the agents.
        turns: Table of turns, as `rollout` returns it.
        most: The most rows that are measured per agent, drawn at random. `None`: all.
        seed: Seed of the draw.

    Returns:
        A number per row, on the index of `turns`. It is NaN for a row that was not measured: one that was not drawn,
        that only values a candidate (`probe`), or whose agent is frozen or has a back end that keeps its gradients.

    Raises:
        TableError: A column is missing.
    """
    require(turns, ["agent", *SAID], "squared_scores")
    rows, found = turns.reset_index(drop=True), np.full(len(turns), np.nan)
    with locked(learners(team)):
        for name, _, drawn in rows_to_measure(team, rows, most, seed):
            for place, square in each_score(team.policies[name], drawn):
                found[place] = square
    return pd.Series(found, turns.index)
