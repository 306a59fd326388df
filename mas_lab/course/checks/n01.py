"""Exercises of notebook 01: numbers of calls, a log-probability, an episode's return, a pick without rewards."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from mas_lab.course.compare import asked, close, same_rows
from mas_lab.course.exercises import NotYet, exercise

ASKED = ("episodes(8)", "tree(8)", "joint(2)", "joint(8), all three together")
COUNTS = (8 * 6, 8 * 6, sum(2**level for level in range(1, 7)), 8 * 3)


@exercise(
    "01.1",
    "Three agents, two rounds: how many decisions lie one behind the other?",
    "episodes and tree: candidates times decisions. joint, one after the other: 2 + 4 + 8 + ..., a term per decision.",
    "Agents who act together: a joint action takes one call of each of them.",
)
def calls(counts):
    if not isinstance(counts, list | tuple) or len(counts) != len(ASKED):
        raise NotYet(f"a list of {len(ASKED)} numbers is asked for: {', '.join(ASKED)}")
    if any(count is ... for count in counts):
        raise NotYet("put a number in place of each `...`")
    for name, yours, ours in zip(ASKED, counts, COUNTS, strict=True):
        close(yours, ours, name, tolerance=1e-9)


@exercise(
    "01.2",
    "Divide the logits by the temperature first; then it is a log-softmax.",
    "log-softmax: the token's own scaled logit, minus the log of the sum of exp over all of them.",
    "exp(800) overflows. Subtracting the largest scaled logit from all of them changes nothing but that.",
)
def logprob(answer):
    rng = np.random.default_rng(1)
    for size, temperature, spread in ((5, 1.0, 1), (5, 2.0, 1), (40, 0.5, 3), (40, 3.0, 5), (8, 0.7, 2000)):
        logits, token = rng.normal(size=size) * spread, int(rng.integers(size))
        scaled = logits / temperature
        ours = float(scaled[token] - np.logaddexp.reduce(scaled))
        yours = asked(answer, logits, token, temperature)
        where = f"{size} logits from {logits.min():.1f} to {logits.max():.1f}, token {token}, T = {temperature}"
        if np.ndim(yours) == 0 and not np.isfinite(yours):
            raise NotYet(f"{where}: {float(yours)} came back; does an exp overflow?")
        close(yours, ours, where, tolerance=1e-6)


@exercise(
    "01.3",
    "Which rows belong to steps that were really taken? The column `kept` says so.",
    "`drop_duplicates` of episode and depth leaves one row of each step.",
)
def returns(answer):
    for number, (table, ours) in enumerate(explored()):
        yours = asked(answer, table)
        if not isinstance(yours, pd.Series):
            raise NotYet(f"a Series indexed by episode is asked for, and this is {type(yours).__name__}")
        if set(yours.index) != set(ours.index):
            raise NotYet(f"the episodes are {', '.join(ours.index)}; your Series is indexed by {list(yours.index)[:4]}")
        for episode, earned in ours.items():
            close(yours[episode], earned, f"table {number}, {episode}, which earned {earned:.2f}", tolerance=1e-6)


@exercise(
    "01.4",
    "The column `logprobs` holds a list per row: a number for each sampled token.",
    "`turns['logprobs'].map(...)` with a function that takes the mean of a list.",
)
def surest(answer):
    rng = np.random.default_rng(4)
    for _ in range(4):
        said = [(-rng.exponential(size=int(rng.integers(1, 9)))).tolist() for _ in range(8)]
        reward = rng.random(8).round(2)
        table = pd.DataFrame({"agent": "planner", "candidate": range(8), "logprobs": said, "local_reward": reward})
        table = table.assign(team_reward=0.0, valid=True, temperature=1.0)
        same_rows(asked(answer, table), table["logprobs"].map(np.mean), table, what="number")
    return "and no reward was looked at"


def explored() -> Iterator[tuple[pd.DataFrame, pd.Series]]:
    """Yield random tables as after `rollout`, with the return of each episode.

    Candidates that were not kept have rewards, too. Two agents that act together share one reward. Rows are shuffled.
    """
    for number in range(6):
        rng = np.random.default_rng([1, 3, number])
        rows, earned = [], {}
        for episode in (f"t{place}" for place in range(3)):
            earned[episode] = 0.0
            for depth in range(int(rng.integers(1, 4))):
                together = ("left", "right") if rng.random() < 0.5 else ("planner",)
                kept, candidates = int(rng.integers(3)), rng.integers(0, 5, size=3) / 4
                earned[episode] += candidates[kept]
                rows += [
                    {"task": episode, "episode": episode, "depth": depth, "agent": agent, "candidate": candidate,
                     "kept": candidate == kept, "team_reward": float(reward), "local_reward": float(rng.random())}
                    for candidate, reward in enumerate(candidates)
                    for agent in together
                ]  # fmt: skip
        shuffled = pd.DataFrame(rows).sample(frac=1, random_state=number).reset_index(drop=True)
        yield shuffled, pd.Series(earned)
