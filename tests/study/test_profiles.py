"""Performance profiles: the share of runs above a height, by hand and by all resamples."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mas_lab.study.profiles import performance_profile, profile_band

SCORES = st.lists(st.lists(st.integers(0, 8).map(lambda n: n / 8), min_size=1, max_size=6), min_size=1, max_size=4)


def test_the_share_above_by_hand():
    """Each task counts as much as any other, of however many runs it is; a run at the height is not above it."""
    tasks = [[0.2, 0.4], [0.1, 0.4, 0.9]]
    assert performance_profile(tasks, [0.0, 0.2, 0.4, 0.9]).tolist() == pytest.approx(
        [1.0, (1 / 2 + 2 / 3) / 2, (0 + 1 / 3) / 2, 0.0]
    )


@given(SCORES)
def test_the_area_under_a_profile_is_the_mean_of_the_tasks_means(tasks):
    heights = np.arange(8) / 8  # scores are eighths: between two heights the profile is level
    assert performance_profile(tasks, heights).sum() / 8 == pytest.approx(np.mean([np.mean(own) for own in tasks]))


def test_the_band_is_that_of_all_resamples():
    """Of three runs, 27 ordered resamples; the other task's two runs are alike and draw no doubt."""
    runs = [0.1, 0.5, 0.6]
    every = [(np.mean(np.array(draw) > 0.3) + 1) / 2 for draw in itertools.product(runs, repeat=3)]
    low, high = profile_band([runs, [0.9, 0.9]], [0.3], level=0.6, samples=20_000)
    assert low[0] == pytest.approx(np.quantile(every, 0.2)) and high[0] == pytest.approx(np.quantile(every, 0.8))
    assert low[0] < performance_profile([runs, [0.9, 0.9]], [0.3])[0] < high[0]


def test_what_no_profile_is_made_of():
    assert np.isnan(profile_band([[0.5, 0.6], [0.5]], [0.0, 0.5])).all()
    for tasks in ([], [[]], [[0.1], [np.nan]]):
        with pytest.raises(ValueError, match="wants a score, and no NaN, of at least one run in each task"):
            performance_profile(tasks, [0.0])
