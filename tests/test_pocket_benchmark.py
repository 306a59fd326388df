"""benchmarks/pocket.py: one step of its smallest task, and what it counts of it."""

import importlib.util
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "pocket.py"
if not SCRIPT.is_file():
    pytest.skip("no checkout", allow_module_level=True)
SPEC = importlib.util.spec_from_file_location("benchmark_pocket", SCRIPT)
pocket = sys.modules["benchmark_pocket"] = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(pocket)


def test_a_clock_counts_calls_within_calls_once(monkeypatch):
    ticks = iter(range(100))
    monkeypatch.setattr(pocket.time, "process_time", lambda: float(next(ticks)))
    clock = pocket.Clock()
    inner = clock.wrap(lambda: None)
    clock.wrap(lambda: [inner(), inner()])()
    assert clock.seconds == 3.0  # readings 0 (outer), 1 and 2 (inner calls begin), 3 (outer ends)


def test_summary_by_hand():
    steps = [{"seconds": 1.0, "model": 0.5}, {"seconds": 2.0, "model": 1.6}, {"seconds": 4.0, "model": 3.0}]
    assert pocket.summary(steps) == {"cpu_seconds": 2.0, "range": [1.0, 4.0], "model_share": 0.75, "steps": 3}


def test_the_model_takes_a_part_of_a_step():
    [step] = pocket.learn_apart("paid_help, dr_mas", 1, SCRIPT.parents[1])
    assert 0 < step["model"] < step["seconds"]
