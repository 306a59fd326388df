"""The statistics are those of the package rliable: as recorded of it, and of the real one where it is installed."""

import numpy as np
import pytest

from mas_lab.study.intervals import (
    bootstrap_interval,
    improvement_interval,
    iqm,
    performance_profile,
    probability_of_improvement,
    profile_band,
)

X = np.array([[0.53, 0.47, 0.63], [0.52, 0.39, 0.57], [0.76, 0.69, 0.36], [0.25, 0.38, 0.51], [0.03, 0.46, 0.25],
              [0.35, 0.39, 0.44], [0.64, 0.11, 0.97]])  # fmt: skip
Y = np.array([[0.53, 0.66, 0.42], [0.72, 0.32, 0.52], [0.63, 0.47, 0.25], [0.27, 0.39, 0.49], [0.25, 0.41, 0.44]])
"""Two arms: a row per run, a column per task. Some runs of one score as a run of the other, and 21 and 15 are no
multiples of 4."""
HEIGHTS = [0.0, 0.25, 0.4, 0.53, 0.7, 1.0]

IQMS = {"X": 0.4563636363636364, "Y": 0.44333333333333336}
IMPROVEMENT = 0.519047619047619
PROFILES = {
    "X": [1.0, 0.8095238095238095, 0.5714285714285714, 0.2857142857142857, 0.09523809523809523, 0.0],
    "Y": [1.0, 0.8666666666666667, 0.6666666666666666, 0.2, 0.06666666666666667, 0.0],
}
IQM_INTERVAL = [0.37454545, 0.54363636]
IMPROVEMENT_INTERVAL = [0.32857143, 0.70952381]
BAND = [[1.0, 0.61904762, 0.38095238, 0.0952381, 0.0, 0.0], [1.0, 0.95238095, 0.76190476, 0.47619048, 0.23809524, 0.0]]
"""What rliable 1.2.0 gives (with arch 7.2.0 and scipy 1.17.1), of X or of X over Y where it does not say; the intervals
and the band are of 50,000 samples."""


def tasks(scores):
    """Runs by tasks, as the list of strata that they are here."""
    return list(scores.T)


def ours():
    """Return the three intervals, of as many samples as were recorded."""
    x, y = tasks(X), tasks(Y)
    band = np.stack(profile_band(x, HEIGHTS, samples=50_000))
    return bootstrap_interval(x, samples=50_000), improvement_interval(x, y, samples=50_000), band


def test_statistics_and_intervals_are_as_recorded():
    """Intervals are of other draws: up to a fiftieth of their width. A profile moves in steps of a run."""
    assert {"X": iqm(X.ravel()), "Y": iqm(Y.ravel())} == pytest.approx(IQMS)
    assert probability_of_improvement(tasks(X), tasks(Y)) == pytest.approx(IMPROVEMENT)
    for name, of in (("X", X), ("Y", Y)):
        assert performance_profile(tasks(of), HEIGHTS).tolist() == pytest.approx(PROFILES[name])
    of_x, better, band = ours()
    assert of_x == pytest.approx(IQM_INTERVAL, abs=0.003)
    assert better == pytest.approx(IMPROVEMENT_INTERVAL, abs=0.008)
    assert band == pytest.approx(np.array(BAND))


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
        assert performance_profile(tasks(y), HEIGHTS) == pytest.approx(library.score_distributions(y, HEIGHTS))

    def drawn(scores, statistic):
        return library.get_interval_estimates({"": scores}, statistic, reps=10_000)[1][""]

    of_x, better, band = ours()
    assert of_x == pytest.approx(drawn(X, lambda x: np.array([iqm(x.ravel())])).ravel(), abs=0.006)
    won = drawn([X, Y], lambda x, y: np.array([probability_of_improvement(tasks(x), tasks(y))]))
    assert better == pytest.approx(won.ravel(), abs=0.015)
    assert band == pytest.approx(drawn(X, lambda x: performance_profile(tasks(x), HEIGHTS)))
    np.random.set_state(state)
