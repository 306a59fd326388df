"""The thread probe measures, honours the override, and leaves the setting alone."""

import os

import pytest
import torch

from mas_lab.backends import probe_threads, set_threads
from mas_lab.backends.torch import threads
from mas_lab.policy import PolicyError


class Clock:
    """Seconds that pass only where work is done: one for a pass, times `costs` of the threads that are set."""

    def __init__(self, costs: dict[int, float]):
        self.now, self.costs, self.passes = 0.0, costs, []

    def perf_counter(self) -> float:
        return self.now

    def work(self) -> None:
        self.passes.append(torch.get_num_threads())
        self.now += self.costs[self.passes[-1]]


@pytest.mark.parametrize("costs, best", [({1: 1.0, 2: 0.5, 4: 0.7}, 2), ({1: 1.0, 2: 0.95, 4: 2.0}, 1)])
def test_the_probe_takes_the_fastest_count_and_ends(monkeypatch, costs, best):
    """Turns of 2.2 s (3.95 s) until 10 s are over; two threads must win by a tenth."""
    monkeypatch.delenv("MAS_LAB_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda of: range(4), raising=False)
    clock, before = Clock(costs), torch.get_num_threads()
    monkeypatch.setattr(threads, "time", clock)
    monkeypatch.setattr(threads, "_work", lambda: clock.work)
    assert probe_threads(seconds=10) == best
    assert clock.passes == [1, 2, 4] * (5 if best == 2 else 3)
    assert torch.get_num_threads() == before


def test_the_probe_runs_real_passes(monkeypatch):
    monkeypatch.delenv("MAS_LAB_THREADS", raising=False)
    n = probe_threads(seconds=0.01)
    assert n >= 1 and n & (n - 1) == 0


def test_the_environment_decides(monkeypatch):
    monkeypatch.setenv("MAS_LAB_THREADS", "3")
    assert probe_threads() == 3
    for text in ("0", "two", "-1"):
        monkeypatch.setenv("MAS_LAB_THREADS", text)
        with pytest.raises(PolicyError, match="MAS_LAB_THREADS"):
            probe_threads()


def test_set_threads_sets_them():
    before = torch.get_num_threads()
    try:
        assert set_threads(2) == 2
        assert torch.get_num_threads() == 2
    finally:
        set_threads(before)
    with pytest.raises(PolicyError, match="at least 1"):
        set_threads(0)
