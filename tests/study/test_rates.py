"""The learning rate of each arm by one rule, and the sweeps that it refuses."""

import itertools

import numpy as np
import pandas as pd
import pytest

from mas_lab.study.rates import best_rate
from mas_lab.table import TableError


def sweep(finals, seeds=3):
    """`{(task, arm): {lr: (a score per seed)}}` as a table."""
    rows = [
        (task, arm, lr, seed, score)
        for (task, arm), tried in finals.items()
        for lr, scores in tried.items()
        for seed, score in zip(range(seeds), scores, strict=True)
    ]
    return pd.DataFrame(rows, columns=["task", "arm", "lr", "seed", "final"])


TRIED = sweep({
    ("ladder", "mean"): {1e-3: (0.1, 0.2, 0.3), 3e-3: (0.5, 0.5, 0.8), 1e-2: (0.9, 0.1, 0.2)},
    ("ladder", "own"): {3e-3: (0.1, 0.2, 0.3), 1e-2: (0.3, 0.2, 0.1), 3e-2: (0.0, 0.0, 0.0)},
    ("search", "own"): {1e-3: (0.0, 0.0, 0.1), 1e-2: (0.2, 0.2, 0.2), 1e-1: (0.2, 0.2, 0.3)},
})  # fmt: skip


def test_the_highest_mean_and_of_two_the_smaller_rate():
    found = best_rate(TRIED)
    chosen = found[found["chosen"]].set_index(["task", "arm"])
    assert chosen["lr"].to_dict() == {("ladder", "mean"): 3e-3, ("ladder", "own"): 3e-3, ("search", "own"): 1e-1}
    assert chosen["edge"].tolist() == [False, True, True]  # the least, and the highest, of those tried
    assert not found.loc[~found["chosen"], "edge"].any()
    assert chosen["mean"].tolist() == pytest.approx([0.6, 0.2, 0.7 / 3])


def test_a_failed_run_makes_its_rate_the_worst():
    found = best_rate(sweep({("t", "a"): {1e-3: (0.0, 0.1, 0.1), 1e-2: (0.9, 0.9, -np.inf)}}))
    assert found.set_index("lr")["mean"].to_dict() == pytest.approx({1e-3: 0.2 / 3, 1e-2: -np.inf})
    assert found.loc[found["chosen"], "lr"].tolist() == [1e-3]


def test_what_was_dropped_stands_in_the_result():
    found = best_rate(TRIED)
    assert len(found) == 9 and found["seeds"].tolist() == [3] * 9
    [dropped] = found[(found["arm"] == "mean") & (found["lr"] == 1e-2)].itertuples()
    assert (dropped.mean, dropped.least, dropped.most) == (pytest.approx(0.4), 0.1, 0.9) and not dropped.chosen


def test_the_order_of_the_runs_does_not_matter():
    """0.1 + 0.2 + 0.3 is another number than 0.3 + 0.2 + 0.1, and their mean must tie all the same."""
    for order in itertools.permutations((0.1, 0.2, 0.3)):
        found = best_rate(sweep({("t", "a"): {1e-3: order, 1e-2: (0.1, 0.2, 0.3)}}))
        assert found.loc[found["chosen"], "lr"].tolist() == [1e-3]
    mixed = best_rate(TRIED.sample(frac=1, random_state=0)).sort_values(["task", "arm", "lr"])
    pd.testing.assert_frame_equal(mixed.reset_index(drop=True), best_rate(TRIED))


def test_the_score_is_asked_for():
    returns = best_rate(TRIED.assign(**{"return": -TRIED["final"]}), score="return")
    assert returns.loc[returns["chosen"], "lr"].tolist() == [1e-3, 3e-2, 1e-3]
    with pytest.raises(TableError, match="column 'success' is missing; a sweep has task, arm, lr, seed and success"):
        best_rate(TRIED, score="success")


def refused(table, match):
    with pytest.raises(TableError, match=match):
        best_rate(table)


def test_arms_get_the_same_chance_or_are_named():
    first, no_rate = TRIED.iloc[0], TRIED[(TRIED["arm"] != "mean") | (TRIED["lr"] != 1e-3)]
    refused(no_rate, "others tried 3 rates, these fewer: mean on ladder: 2; run the missing ones")
    refused(TRIED.drop(index=0), r"unlike seeds on ladder: mean at 0\.001 lacks seed 0; run these too")
    other = TRIED.assign(seed=TRIED["seed"].where(TRIED["arm"] == "mean", TRIED["seed"] + 3))
    refused(other, r"unlike seeds on ladder: mean at 0\.001 lacks seeds 3, 4, 5; mean at 0\.003 lacks .*own at 0\.003")
    refused(pd.concat([TRIED, first.to_frame().T]), r"two runs at task ladder, arm mean, lr 0\.001, seed 0; keep one")


@pytest.mark.parametrize("column, value, told", [
    ("final", np.nan, "final is nan at task ladder, arm mean, lr 0.001, seed 0; repeat or leave out that run"),
    ("final", "0.5", "final is '0.5' at task ladder"),
    ("lr", np.inf, "lr is inf at task ladder"),
    ("lr", 0.0, "lr must be above 0, and is not at task ladder"),
    ("arm", None, "arm is None at task ladder"),
])  # fmt: skip
def test_what_is_no_number_or_no_name_is_named(column, value, told):
    table = TRIED.astype(object)
    table.loc[0, column] = value
    with pytest.raises(TableError) as error:
        best_rate(table)
    assert told in str(error.value)


def test_a_sweep_without_runs():
    refused(TRIED.iloc[:0], "the sweep has no runs")
