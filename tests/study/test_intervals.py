"""The interquartile mean and its interval, by the definitions of Agarwal et al. 2021 written out again."""

import itertools

import numpy as np
import pytest

from mas_lab.study.intervals import bootstrap_interval, iqm


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
