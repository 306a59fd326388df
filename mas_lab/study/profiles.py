"""Compute performance profiles: the share of runs that score above each height.

These are the run-score distributions of Agarwal et al. 2021 (arXiv 2108.13264, section 4.2). Leaves out: single numbers
(`intervals`) and pictures (`widgets.board`).
"""

import numpy as np

from mas_lab.study.intervals import Strata, percentiles, shares_drawn


def performance_profile(strata: Strata, heights: np.ndarray) -> np.ndarray:
    """Return the share of runs above each height, averaged over tasks.

    F(tau) = 1/M sum_m 1/N_m sum_n [x_mn > tau] for each tau of `heights`, for M tasks with N_m runs each. An arm whose
    curve lies above another everywhere is better in distribution. The area between two curves is the difference of
    their means.
    """
    return np.mean([above.mean(axis=0) for above in _above(strata, heights)], axis=0)


def profile_band(
    strata: Strata, heights: np.ndarray, level: float = 0.95, samples: int = 2000, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return the bootstrap band (low, high) of `performance_profile` at each height.

    The runs of each stratum are resampled within the stratum. The band is pointwise: it covers the profile at one
    height in about `level` of cases, and at all heights at once in fewer. It is NaN if a stratum has a single run.
    """
    above = _above(strata, heights)
    if min(map(len, above)) < 2:
        nothing = np.full(len(heights), np.nan)
        return nothing, nothing.copy()
    rng = np.random.default_rng(seed)
    drawn = np.mean([shares_drawn(len(own), samples, rng) @ own for own in above], axis=0)
    low, high = percentiles(drawn, level)
    return low, high


def _above(strata: Strata, heights: np.ndarray) -> list[np.ndarray]:
    """Return an array (runs, heights) per stratum: 1 if the run scored above the height, else 0."""
    runs = [np.asarray(stratum, float) for stratum in strata]
    if not runs or min(map(len, runs)) < 1 or any(np.isnan(own).any() for own in runs):
        raise ValueError("performance_profile: wants a score, and no NaN, of at least one run in each task; leave out "
                         "or repeat what has none")  # fmt: skip
    return [(own[:, None] > np.asarray(heights, float)).astype(float) for own in runs]
