"""The numbered statements of docs/theory.md, each in numbers: exact sums over a small policy, or simulations."""

import numpy as np
import pandas as pd
import pytest

import mas_lab as lab
from mas_lab.explain.moments import pooled_inflation

WORDS = 6


@pytest.fixture(params=range(4))
def policy(request):
    """(p, z, R): a softmax over six answers, the score of each, and its credit."""
    rng = np.random.default_rng(request.param)
    p = np.exp(rng.normal(size=WORDS))
    p /= p.sum()
    return p, np.eye(WORDS) - p, rng.random(WORDS)


def noise(p, z, R, baseline):
    return p @ ((R - baseline) ** 2 * (z**2).sum(1))


def best(p, z, R):
    square = (z**2).sum(1)
    return (p * square) @ R / (p @ square)


def test_1_a_fixed_baseline_changes_only_the_variance(policy):
    p, z, R = policy
    assert p @ z == pytest.approx(0, abs=1e-12)
    expected = p @ (R[:, None] * z)
    for baseline in (-2.0, 0.3, 5.0):
        assert p @ ((R - baseline)[:, None] * z) == pytest.approx(expected)
        assert noise(p, z, R, baseline) != pytest.approx(noise(p, z, R, 0.0))


def test_2_the_noise_grows_with_the_squared_distance_from_the_best(policy):
    p, z, R = policy
    b, square = best(p, z, R), p @ (z**2).sum(1)
    for baseline in (-1.0, p @ R, 0.9):
        assert noise(p, z, R, baseline) == pytest.approx(noise(p, z, R, b) + (baseline - b) ** 2 * square)


def test_3_own_beats_global_exactly_if_it_is_nearer_to_the_best(policy):
    p, z, R = policy
    own, b, square = p @ R, best(p, z, R), (z**2).sum(1)
    assert b - own == pytest.approx((p @ (square * R) - p @ square * own) / (p @ square))
    for everyone in np.linspace(-0.5, 1.5, 41):
        assert (noise(p, z, R, own) < noise(p, z, R, everyone)) == (abs(own - b) < abs(everyone - b))


def groups_of(policy, n, groups, rng):
    """Credits (groups, n) and scores (groups, n, WORDS) of independent draws."""
    p, z, R = policy
    said = rng.choice(WORDS, size=(groups, n), p=p)
    return R[said], z[said]


def test_4_a_mean_with_the_row_itself_takes_away_signal(policy):
    p, z, R = policy
    credit, score = groups_of(policy, 4, 50_000, np.random.default_rng(0))
    found = ((credit - credit.mean(1, keepdims=True))[..., None] * score).mean((0, 1))
    assert found == pytest.approx((1 - 1 / 4) * (p @ (R[:, None] * z)), abs=4e-3)
    others = (credit.sum(1, keepdims=True) - credit) / 3
    found = ((credit - others)[..., None] * score).mean((0, 1))
    assert found == pytest.approx(p @ (R[:, None] * z), abs=4e-3), "the others' mean takes nothing"


def snr_square(g):
    """Of the mean gradient of a group, from its rows' gradients (groups, n, dimensions)."""
    G = g.mean(1)
    return (G.mean(0) ** 2).sum() / G.var(0).sum()


def test_5_the_gains_are_equal_without_correlation_and_the_weighted_one_is_right_with_it():
    """A policy of 40 words in a row, the first of which decides the credit. With `loud`, a word that leads to the lower
    credit is followed by words of a larger score."""
    rng, n, groups, everyone = np.random.default_rng(0), 6, 40_000, 0.2
    for loud in (1.0, 4.0):
        said = rng.random((groups, n, 41)) < 0.5
        credit = np.where(said[..., 0], 1.0, 0.4)
        score = said - np.float32(0.5)
        score[..., 1:] *= np.where(said[..., 0], 1.0, np.sqrt(loud))[..., None]
        square, own = (score**2).sum(2), credit.mean(1, keepdims=True)
        kept = (1 - 1 / n) ** 2
        plain = kept * ((credit - everyone) ** 2).mean() / ((credit - own) ** 2).mean()
        weighted = kept * ((credit - everyone) ** 2 * square).mean() / ((credit - own) ** 2 * square).mean()
        measured = [snr_square((credit - center)[..., None] * score) for center in (own, everyone)]
        assert weighted == pytest.approx(measured[0] / measured[1], rel=0.1)
        assert plain == pytest.approx(weighted, rel=0.02) if loud == 1 else plain > 1.5 * weighted
    sigma_square = 0.3**2
    assert (plain > 1) == ((0.7 - everyone) ** 2 / sigma_square > 1 / (n - 1))


def test_6_the_progress_of_a_step_is_that_of_the_bound_on_a_quadratic_loss():
    rng, L, start = np.random.default_rng(0), 3.0, np.array([1.0, -2.0, 0.5])
    gradient = L * start
    for snr in (0.1, 1.0, 10.0):
        spread = np.sqrt((gradient @ gradient) / snr / 3)
        estimates = gradient + spread * rng.normal(size=(200_000, 3))
        sizes = np.array([0.5, 1.0, 1.5]) * snr / (1 + snr) / L
        falls = [L / 2 * (start @ start - ((start - size * estimates) ** 2).sum(1).mean()) for size in sizes]
        assert falls[1] == pytest.approx(gradient @ gradient / (2 * L) * snr / (1 + snr), rel=0.05)
        assert np.argmax(falls) == 1


def test_6_products_of_different_rows_estimate_the_signal(policy):
    p, z, R = policy
    credit, score = groups_of(policy, 8, 40_000, np.random.default_rng(1))
    g = (credit - 0.3)[..., None] * score
    cross = (g.sum(1) ** 2).sum(1) - (g**2).sum((1, 2))
    signal = p @ ((R - 0.3)[:, None] * z)
    assert cross.mean() == pytest.approx(8 * 7 * signal @ signal, rel=0.1, abs=0.02)


def test_7_a_step_of_fixed_size_follows_a_weak_signal_like_its_root():
    """A sign, as Adam's step where noise is all: its mean is proportional to SNR, so that a hundredth of SNR^2 leaves a
    tenth of it, while SNR^2 / (1 + SNR^2) leaves a hundredth."""
    draws = np.random.default_rng(0).normal(size=2_000_000)
    strong, weak = (np.sign(draws + snr).mean() for snr in (0.2, 0.02))
    assert weak / strong == pytest.approx(0.1, rel=0.15)


def test_8_rows_of_one_episode_do_not_add_up_their_noise():
    """Two turns say a bit each, and earn 1 together if both are the same, else -1: the scores' product is the credit's
    sign, so that the rows' gradients agree always."""
    said = np.random.default_rng(0).random((50_000, 2)) < 0.5
    credit = np.where(said[:, 0] == said[:, 1], 1.0, -1.0)[:, None]
    g = (credit + 0.5) * (said - 0.5)
    apart, together = (g**2).sum(1).mean(), (g.sum(1) ** 2).mean()
    assert together == pytest.approx(apart + 2 * (1.5**2 - 0.5**2) / 2 / 4, rel=0.05) and together > 1.5 * apart


def test_9_a_lone_row_is_trained_on_by_a_global_mean_alone():
    """Twelve tasks: in each a helper speaks in one episode of four, and earns 0 or 0.5 there."""
    rows = [(t, f"{t}.{e}", "solver", 1.0) for t in range(12) for e in range(3)]
    rows += [(t, f"{t}.3", agent, t % 2 / 2) for t in range(12) for agent in ("solver", "helper")]
    turns = pd.DataFrame(rows, columns=["task", "episode", "agent", "credit"])
    assert pooled_inflation(lab.inflation(turns)).set_index("agent").loc["helper", "peerless"] == 1
    helper = turns["agent"] == "helper"
    for by, once, trained in ((["task"], "episode", 12), (["task", "agent"], None, 0)):
        judged = lab.normalize(turns.assign(group=turns[by].astype(str).agg(" ".join, axis=1)), once_per=once)
        assert (judged.loc[helper, "advantage"] != 0).sum() == trained
