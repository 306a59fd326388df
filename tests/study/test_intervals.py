"""The interquartile mean, the probability of improvement and their intervals, by the definitions of Agarwal et al. 2021
written out again."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mas_lab.study.intervals import (
    bootstrap_interval,
    holm,
    improvement_interval,
    iqm,
    probability_of_improvement,
    share_won,
    t_interval,
    t_test,
)


def test_the_middle_half_by_hand():
    assert iqm([3.0, 1.0, 2.0]) == 2.0  # up to three values: the mean
    assert iqm([0.0, 1.0, 3.0, 100.0]) == 2.0
    assert iqm([9.0, 0.0, 2.0, 3.0, 4.0, 5.0, 6.0, 100.0]) == (3 + 4 + 5 + 6) / 4
    assert iqm([[0.0, 1.0, 3.0, 100.0], [5.0, 5.0, 5.0, 5.0]]).tolist() == [2.0, 5.0]


def test_the_interval_is_that_of_all_resamples():
    """Three runs have 27 ordered resamples: the bootstrap draws from exactly these."""
    runs = [0.1, 0.5, 0.6]
    every = sorted(np.mean(draw) for draw in itertools.product(runs, repeat=3))
    low, high = bootstrap_interval([runs], level=0.8, samples=20_000)
    assert low == pytest.approx(np.quantile(every, 0.1), abs=0.02)
    assert high == pytest.approx(np.quantile(every, 0.9), abs=0.02)


def test_strata_are_drawn_within_themselves():
    """Two tasks without any spread of their own have none together, however far they lie apart."""
    assert bootstrap_interval([[0.2, 0.2, 0.2], [0.8, 0.8, 0.8]]) == (0.5, 0.5)
    pooled = bootstrap_interval([[0.2, 0.2, 0.2, 0.8, 0.8, 0.8]])
    assert pooled[1] - pooled[0] > 0.3


def test_it_holds_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(0)
    held = [
        low <= 0 <= high for low, high in (bootstrap_interval([rng.normal(size=20)], samples=400) for _ in range(300))
    ]
    assert 0.88 <= np.mean(held) <= 0.99


def test_a_single_run_says_nothing_of_others():
    assert np.isnan(bootstrap_interval([[0.5]])).all() and np.isnan(bootstrap_interval([])).all()
    assert np.isnan(bootstrap_interval([[0.5, 0.6], [0.5]])).all()
    assert bootstrap_interval([[0.5, 0.9]]) == bootstrap_interval([[0.5, 0.9]])


def test_the_t_interval_holds_the_truth_of_five_normal_differences_as_often_as_it_says():
    rng = np.random.default_rng(0)
    held = [low <= 0 <= high for low, high in (t_interval(rng.normal(size=5)) for _ in range(2000))]
    assert np.mean(held) == pytest.approx(0.95, abs=0.015)
    assert t_interval([0.5, 0.5, 0.5]) == (0.5, 0.5)
    assert (t_test([0.0, 0.0]), t_test([0.5, 0.5])) == (1.0, 0.0)


def test_holm_by_hand():
    """Three p-values: the smallest times 3, the next times 2, and none below one that was smaller."""
    assert holm([0.04, 0.01, np.nan, 0.03]) == pytest.approx([0.06, 0.03, np.nan, 0.06], nan_ok=True)
    assert holm([0.6, 0.7]).tolist() == [1.0, 1.0] and holm([]).tolist() == []


def test_the_share_of_pairs_won_by_hand():
    """Clopper and Pearson: of 8 won of 10, 0.444 to 0.975; of 5 of 5, the lower end is 0.025^(1/5)."""
    assert share_won(8, 2) == pytest.approx((0.8, 0.4439, 0.9748), abs=1e-4)
    assert share_won(5, 0) == pytest.approx((1.0, 0.025 ** (1 / 5), 1.0))
    assert np.isnan(share_won(0, 0)).all()


def test_the_probability_of_improvement_by_hand():
    assert probability_of_improvement([[3.0, 1.0]], [[2.0, 0.0, 0.0]]) == 5 / 6
    assert probability_of_improvement([[1.0, 1.0]], [[1.0, 0.0]]) == 3 / 4  # of two that are the same, each is half
    both = probability_of_improvement([[1.0, 1.0], [0.0]], [[1.0, 0.0], [1.0, 2.0, 3.0]])
    assert both == (3 / 4 + 0) / 2  # a task is a task, of however many runs


FEW_SCORES = st.lists(st.sampled_from([0.0, 0.25, 0.5, np.inf]), min_size=1, max_size=5)


@given(st.lists(st.tuples(FEW_SCORES, FEW_SCORES), min_size=1, max_size=3))
def test_the_probabilities_of_two_arms_add_up(tasks):
    x, y = zip(*tasks, strict=True)
    assert probability_of_improvement(x, y) + probability_of_improvement(y, x) == pytest.approx(1)
    assert probability_of_improvement(x, x) == pytest.approx(1 / 2)


def test_its_interval_is_that_of_all_resamples():
    """Three runs and two have 27 and 4 ordered resamples, drawn apart from each other."""
    x, y = [0.1, 0.5, 0.6], [0.2, 0.55]
    draws = itertools.product(itertools.product(x, repeat=3), itertools.product(y, repeat=2))
    every = [probability_of_improvement([a], [b]) for a, b in draws]
    told = improvement_interval([x], [y], level=0.6, samples=20_000)
    assert told == pytest.approx(np.quantile(every, [0.2, 0.8]))
    assert 0 < told[0] < probability_of_improvement([x], [y]) < told[1] < 1


def test_both_arms_are_drawn_again_within_each_task():
    assert improvement_interval([[0.2, 0.2], [0.8, 0.8]], [[0.1, 0.1], [0.9, 0.9]]) == (0.5, 0.5)
    of_x, of_y = improvement_interval([[0.1, 0.9]], [[0.5, 0.5]]), improvement_interval([[0.5, 0.5]], [[0.1, 0.9]])
    assert of_x == of_y == (0, 1)


def test_what_no_probability_is_made_of():
    assert np.isnan(improvement_interval([[0.5]], [[0.1, 0.2]])).all()
    for x, y in ([], []), ([[0.1]], [[0.1], [0.2]]), ([[0.1]], [[]]):
        with pytest.raises(ValueError, match="wants runs of x and of y in each task; got runs per task"):
            probability_of_improvement(x, y)
    with pytest.raises(ValueError, match="a score is NaN"):
        probability_of_improvement([[0.1, np.nan]], [[0.1]])
