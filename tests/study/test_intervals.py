"""The interquartile mean, the probability of improvement and their intervals, by the definitions of Agarwal et al. 2021
written out again."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mas_lab.study.intervals import bootstrap_interval, improvement_interval, iqm, probability_of_improvement


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
