"""The thread probe measures and leaves the setting alone; the first policy on a CPU settles it, once, for a process."""

import os
from types import SimpleNamespace

import pytest
import torch

import mas_lab as lab
from mas_lab.backends.loading import restore_policies
from mas_lab.backends.torch import threads
from mas_lab.backends.torch.threads import probe_threads, set_threads


@pytest.mark.parametrize("costs, best", [({1: 1.0, 2: 0.5, 4: 0.7}, 2), ({1: 1.0, 2: 0.95, 4: 2.0}, 1)])
def test_the_probe_takes_the_fastest_count_and_ends(monkeypatch, costs, best):
    """Turns of 2.2 s (3.95 s) until 10 s are over; two threads must win by a tenth."""
    monkeypatch.delenv("MAS_LAB_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda of: range(4), raising=False)
    passes, before = [], torch.get_num_threads()

    def timer(statement, globals, num_threads):
        def timeit(number):
            passes.append(num_threads)
            return SimpleNamespace(mean=costs[num_threads])

        return SimpleNamespace(timeit=timeit)

    with monkeypatch.context() as patch:
        patch.setattr(threads, "Timer", timer)
        patch.setattr(threads, "time", SimpleNamespace(perf_counter=lambda: sum(costs[n] for n in passes)))
        assert probe_threads(seconds=10) == best
    assert passes == [1, 2, 4] * (5 if best == 2 else 3)
    monkeypatch.undo()
    monkeypatch.delenv("MAS_LAB_THREADS", raising=False)
    assert probe_threads(seconds=0.01) in [2**i for i in range(12)]  # real passes on this machine
    assert 0 < threads.probe_bfloat16(rounds=2) < 1000 and torch.get_num_threads() == before
    monkeypatch.setenv("MAS_LAB_THREADS", "3")
    assert probe_threads() == 3


@pytest.fixture
def fresh(monkeypatch):
    """A process in which nobody has decided: eight cores, of which torch takes all, and a probe that finds 3."""
    before = torch.get_num_threads()
    for name in (threads.VARIABLE, *threads.OTHERS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(threads, "_settled", False)
    monkeypatch.setattr(threads, "usable_cores", lambda: 8)
    monkeypatch.setattr(threads, "probe_threads", lambda: int(os.environ.get(threads.VARIABLE, 3)))
    torch.set_num_threads(8)
    yield monkeypatch
    torch.set_num_threads(before)


def test_the_first_policy_settles_the_threads_and_says_so_once(fresh, models, capfd):
    lab.load_policy(models / "a")
    assert torch.get_num_threads() == 3
    told = "mas_lab: torch uses 3 threads of 8 cores (measured); lab.set_threads(n) sets another number\n"
    assert capfd.readouterr().err.endswith(told)
    torch.set_num_threads(5)
    lab.load_base(models / "a", adapters=1, rank=2)
    assert torch.get_num_threads() == 5 and "cores" not in capfd.readouterr().err


@pytest.mark.parametrize(("speedup", "dtype"), [(1.6, "bfloat16"), (1.4, "float32")])
def test_a_large_model_computes_in_bfloat16_where_that_is_faster(speedup, dtype, models, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(threads, "_speedup", None)
    monkeypatch.setattr(threads, "probe_bfloat16", lambda: speedup)
    assert lab.load_policy(models / "a").shared.dtype == torch.float32 and "large" not in capfd.readouterr().err
    monkeypatch.setattr(threads, "LARGE", 1000)
    policies = [lab.load_policy(models / "a"), lab.load_base(models / "a", adapters=1, rank=2).adapter("b")]
    line = f"large models compute in bfloat16 if it is 1.5 times as fast (here {speedup}); see dtype=\n"
    assert capfd.readouterr().err.count(line) == 1
    assert {policy.shared.dtype for policy in policies} == {getattr(torch, dtype)}
    assert lab.load_policy(models / "a", dtype="float32").shared.dtype == torch.float32
    policies[1].save(tmp_path / "saved")
    monkeypatch.setattr(threads, "_speedup", 3.0 - speedup)  # another machine
    restored = restore_policies({"b": tmp_path / "saved"})["b"]
    assert restored.shared.dtype == getattr(torch, dtype) and restored.describe() == policies[1].describe()


@pytest.mark.parametrize(("decide", "left"), [
    (lambda patch: set_threads(6), 6), (lambda patch: torch.set_num_threads(6), 6),
    (lambda patch: patch.setenv(threads.OTHERS[0], "2"), 8),
])  # fmt: skip
def test_who_has_decided_keeps_what_he_has(fresh, decide, left, capfd):
    decide(fresh)
    threads.settle_threads()
    assert torch.get_num_threads() == left and capfd.readouterr().err == ""
