"""Interquartile means, probabilities of improvement and their intervals, by the definitions of Agarwal et al. 2021
written out again, and as the package rliable gives them: recorded, and the real one where it is installed.
"""

import itertools

import numpy as np
import pytest

from mas_lab.study.intervals import (
    bootstrap_interval,
    holm,
    improvement_interval,
    iqm,
    probability_of_improvement,
    share_won,
    t_test,
)


def test_the_interquartile_mean_drops_a_quarter_at_either_end():
    assert iqm([3.0, 1.0, 2.0]) == 2.0  # up to three values: the mean
    assert iqm([9.0, 0.0, 2.0, 3.0, 4.0, 5.0, 6.0, 100.0]) == (3 + 4 + 5 + 6) / 4
    assert iqm([[0.0, 1.0, 3.0, 100.0], [5.0, 5.0, 5.0, 5.0]]).tolist() == [2.0, 5.0]


def test_intervals_are_those_of_all_resamples():
    """Three runs have 27 ordered resamples and two have 4: the bootstrap draws from exactly these."""
    x, y = [0.1, 0.5, 0.6], [0.2, 0.55]
    means = sorted(np.mean(draw) for draw in itertools.product(x, repeat=3))
    low_and_high = bootstrap_interval([x], level=0.8, samples=20_000)
    assert low_and_high == pytest.approx(np.quantile(means, [0.1, 0.9]), abs=0.02)
    draws = itertools.product(itertools.product(x, repeat=3), itertools.product(y, repeat=2))
    every = [probability_of_improvement([a], [b]) for a, b in draws]
    told = improvement_interval([x], [y], level=0.6, samples=20_000)
    assert told == pytest.approx(np.quantile(every, [0.2, 0.8]))
    assert 0 < told[0] < probability_of_improvement([x], [y]) < told[1] < 1


def test_a_single_run_has_no_interval():
    assert (t_test([0.0, 0.0]), t_test([0.5, 0.5])) == ((1.0, 0.0, 0.0), (0.0, 0.5, 0.5)), "equal differences: no doubt"
    for strata in ([[0.5]], [], [[0.5, 0.6], [0.5]]):
        assert np.isnan(bootstrap_interval(strata)).all()
    assert np.isnan(improvement_interval([[0.5]], [[0.1, 0.2]])).all()


def test_holm_multiplies_by_the_number_of_values_left():
    """The smallest of three times 3, the next times 2, and none below one that was smaller."""
    assert holm([0.04, 0.01, np.nan, 0.03]) == pytest.approx([0.06, 0.03, np.nan, 0.06], nan_ok=True)
    assert holm([0.6, 0.7]).tolist() == [1.0, 1.0] and holm([]).tolist() == []


def test_the_share_of_pairs_won_has_an_exact_interval():
    """Clopper and Pearson: of 8 won of 10, 0.444 to 0.975; of 5 of 5, the lower end is 0.025^(1/5)."""
    assert share_won(8, 2) == pytest.approx((0.8, 0.4439, 0.9748), abs=1e-4)
    assert share_won(5, 0) == pytest.approx((1.0, 0.025 ** (1 / 5), 1.0))
    assert np.isnan(share_won(0, 0)).all()


def test_the_probability_of_improvement_counts_ties_half_and_tasks_alike():
    assert probability_of_improvement([[3.0, 1.0]], [[2.0, 0.0, 0.0]]) == 5 / 6
    assert probability_of_improvement([[1.0, 1.0]], [[1.0, 0.0]]) == 3 / 4
    both = probability_of_improvement([[1.0, 1.0], [0.0]], [[1.0, 0.0], [1.0, 2.0, 3.0]])
    assert both == (3 / 4 + 0) / 2


X = np.array([[0.53, 0.47, 0.63], [0.52, 0.39, 0.57], [0.76, 0.69, 0.36], [0.25, 0.38, 0.51], [0.03, 0.46, 0.25],
              [0.35, 0.39, 0.44], [0.64, 0.11, 0.97]])  # fmt: skip
Y = np.array([[0.53, 0.66, 0.42], [0.72, 0.32, 0.52], [0.63, 0.47, 0.25], [0.27, 0.39, 0.49], [0.25, 0.41, 0.44]])
"""Two arms: a row per run, a column per task. Some runs of one score as a run of the other, and 21 and 15 are no
multiples of 4."""

IQMS = {"X": 0.4563636363636364, "Y": 0.44333333333333336}
IMPROVEMENT = 0.519047619047619
IQM_INTERVAL = [0.37454545, 0.54363636]
IMPROVEMENT_INTERVAL = [0.32857143, 0.70952381]
"""What rliable 1.2.0 gives (with arch 7.2.0 and scipy 1.17.1), of X or of X over Y where it does not say; the intervals
are of 50,000 samples."""


def tasks(scores):
    """Runs by tasks, as the list of strata that they are here."""
    return list(scores.T)


def ours():
    """Return both intervals, of as many samples as were recorded."""
    x, y = tasks(X), tasks(Y)
    return bootstrap_interval(x, samples=50_000), improvement_interval(x, y, samples=50_000)


def test_statistics_and_intervals_are_as_recorded():
    """Intervals are of other draws: up to a fiftieth of their width."""
    assert {"X": iqm(X.ravel()), "Y": iqm(Y.ravel())} == pytest.approx(IQMS)
    assert probability_of_improvement(tasks(X), tasks(Y)) == pytest.approx(IMPROVEMENT)
    of_x, better = ours()
    assert of_x == pytest.approx(IQM_INTERVAL, abs=0.003)
    assert better == pytest.approx(IMPROVEMENT_INTERVAL, abs=0.008)


def test_the_library_gives_the_same_on_each_resample():
    """Its bootstrap draws 10,000 samples, of which our statistics are taken: the loop holds them to be its own."""
    library = pytest.importorskip("rliable.library", reason="rliable is not installed: make test-floor")
    from rliable.metrics import aggregate_iqm
    from rliable.metrics import probability_of_improvement as theirs

    state = np.random.get_state()  # where it draws from
    np.random.seed(0)
    for (x, y), _ in library.StratifiedIndependentBootstrap(X, Y).bootstrap(100):
        assert iqm(x.ravel()) == pytest.approx(aggregate_iqm(x))
        assert probability_of_improvement(tasks(x), tasks(y)) == pytest.approx(theirs(x, y))

    def drawn(scores, statistic):
        return library.get_interval_estimates({"": scores}, statistic, reps=10_000)[1][""]

    of_x, better = ours()
    assert of_x == pytest.approx(drawn(X, lambda x: np.array([iqm(x.ravel())])).ravel(), abs=0.006)
    won = drawn([X, Y], lambda x, y: np.array([probability_of_improvement(tasks(x), tasks(y))]))
    assert better == pytest.approx(won.ravel(), abs=0.015)
    np.random.set_state(state)
