"""The thread probe measures, honours the override, and leaves the setting alone."""

import time

import pytest
import torch

from mas_lab.backends import probe_threads, set_threads
from mas_lab.policy import PolicyError


def test_the_probe_picks_a_possible_number_in_time(monkeypatch):
    monkeypatch.delenv("MAS_LAB_THREADS", raising=False)
    before, start = torch.get_num_threads(), time.perf_counter()
    n = probe_threads(seconds=0.2)
    assert time.perf_counter() - start < 3
    assert n >= 1 and n & (n - 1) == 0
    assert torch.get_num_threads() == before


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
