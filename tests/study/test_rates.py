"""The learning rate of each arm, chosen by one rule."""

import itertools

import numpy as np
import pandas as pd
import pytest

from mas_lab.study.runner import best_rate, chosen


def sweep(finals):
    """`{(task, arm): {lr: (a score per seed)}}` as a table."""
    rows = [(*cell, lr, seed, score) for cell, tried in finals.items() for lr, scores in tried.items()
            for seed, score in enumerate(scores)]  # fmt: skip
    return pd.DataFrame(rows, columns=["task", "arm", "lr", "seed", "final"])


TRIED = sweep({
    ("ladder", "mean"): {1e-3: (0.1, 0.2, 0.3), 3e-3: (0.5, 0.5, 0.8), 1e-2: (0.9, 0.1, 0.2)},
    ("ladder", "own"): {3e-3: (0.1, 0.2, 0.3), 1e-2: (0.3, 0.2, 0.1), 3e-2: (0.0, 0.0, 0.0)},
    ("search", "own"): {1e-3: (0.0, 0.0, 0.1), 1e-2: (0.2, 0.2, 0.2), 1e-1: (0.2, 0.2, 0.3)},
})  # fmt: skip


def test_the_highest_mean_is_chosen_and_of_two_the_smaller_rate():
    found = best_rate(TRIED)
    best = found[found["chosen"]].set_index(["task", "arm"])
    assert best["lr"].to_dict() == {("ladder", "mean"): 3e-3, ("ladder", "own"): 3e-3, ("search", "own"): 1e-1}
    assert chosen(found) == best["lr"].to_dict() and chosen(pd.DataFrame()) == {}
    assert best["edge"].tolist() == [False, True, True]  # the least, and the highest, of those tried
    assert best["mean"].tolist() == pytest.approx([0.6, 0.2, 0.7 / 3])
    assert len(found) == 9 and found["seeds"].tolist() == [3] * 9 and not found.loc[~found["chosen"], "edge"].any()
    [dropped] = found[(found["arm"] == "mean") & (found["lr"] == 1e-2)].itertuples()
    assert (dropped.mean, dropped.least, dropped.most) == (pytest.approx(0.4), 0.1, 0.9)


def test_a_failed_run_makes_its_rate_the_worst():
    found = best_rate(sweep({("t", "a"): {1e-3: (0.0, 0.1, 0.1), 1e-2: (0.9, 0.9, -np.inf)}}))
    assert found.set_index("lr")["mean"].to_dict() == pytest.approx({1e-3: 0.2 / 3, 1e-2: -np.inf})
    assert chosen(found) == {("t", "a"): 1e-3}


def test_the_order_of_the_runs_does_not_matter():
    """0.1 + 0.2 + 0.3 is another number than 0.3 + 0.2 + 0.1, and their mean must tie all the same."""
    for order in itertools.permutations((0.1, 0.2, 0.3)):
        assert chosen(best_rate(sweep({("t", "a"): {1e-3: order, 1e-2: (0.1, 0.2, 0.3)}}))) == {("t", "a"): 1e-3}
    mixed = best_rate(TRIED.sample(frac=1, random_state=0)).sort_values(["task", "arm", "lr"])
    pd.testing.assert_frame_equal(mixed.reset_index(drop=True), best_rate(TRIED))
