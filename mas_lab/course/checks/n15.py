"""Exercises of notebook 15: winnings of mixed throws, exploitability, and an answer to all past players."""

import numpy as np

from mas_lab.course import games
from mas_lab.course.compare import agrees, need, result_of
from mas_lab.course.exercises import exercise


def _players(count: int, seed: int) -> list[list[float]]:
    """Return random shares of the three throws; the first is a pure throw."""
    drawn = np.random.default_rng(seed).dirichlet(np.ones(3), count - 1)
    return [[0.0, 0.0, 1.0], *drawn.round(3).tolist()]


@exercise("15.1")
def winnings(answer):
    players = _players(6, 151)
    agrees(answer, games.winnings, [(p, q) for p in players for q in players])


@exercise("15.2")
def exploitability(answer):
    agrees(answer, games.exploitability, [(p,) for p in _players(12, 152)])


@exercise("15.3")
def answer_to(answer):
    for number in range(12):
        past = _players(number + 2, 300 + number)  # in four, what beats the commonest throw does not win most
        yours = result_of(answer, past)
        need(yours in games.THROWS, f"your answer is {yours!r}; choose from {', '.join(games.THROWS)}")
        wins = dict(zip(games.THROWS, games.PAYOFF @ np.mean(past, axis=0), strict=True))
        best = max(wins, key=wins.get)
        need(yours == best, f"against {past} {yours} wins {wins[yours]:.2f} on average, and {best} {wins[best]:.2f}")
