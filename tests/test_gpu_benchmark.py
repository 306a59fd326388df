"""benchmarks/gpu.py on a toy shape: all ways to update do the same work."""

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).resolve().parents[1] / "benchmarks" / "gpu.py"
if not SCRIPT.is_file():
    pytest.skip("no checkout", allow_module_level=True)
SPEC = importlib.util.spec_from_file_location("benchmark_gpu", SCRIPT)
gpu = sys.modules["benchmark_gpu"] = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(gpu)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("tiny")
    gpu.make_model(gpu.shapes(tiny=True)["tiny"], folder)
    return folder


@pytest.mark.slow
def test_every_update_makes_the_gradient_of_the_bare_passes(folder):
    for what in ("all weights", "LoRA"):
        names = [f"update, {what}, {how}" for how in ("bare passes", "padded", "packed", "auto")]
        found = [gpu.measure(name, folder, gpu.TINY) for name in names]
        assert len({one["tokens"] for one in found}) == 1
        if what == "all weights":  # adapters start at random
            assert [one["gradient"] for one in found[1:]] == pytest.approx([found[0]["gradient"]] * 3, rel=0.02)
        assert all(one["gradient"] > 0 and len(one["all_seconds"]) == gpu.TINY.steps for one in found)
