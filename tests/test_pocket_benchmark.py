"""benchmarks/pocket.py: one step of its smallest task."""

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


def test_the_model_takes_a_part_of_a_step():
    [step] = pocket.learn_apart("paid_help, dr_mas", 1, SCRIPT.parents[1])
    assert 0 < step["model"] < step["seconds"]
