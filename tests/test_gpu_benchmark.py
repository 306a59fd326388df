"""benchmarks/gpu.py on a toy shape: every part that can run here does, and all of them do the same work."""

import importlib.util
import json
import subprocess
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


@pytest.mark.slow
@pytest.mark.full
def test_the_script_runs_each_part_apart_and_says_why_one_cannot(tmp_path):
    out = tmp_path / "gpu.json"
    command = [sys.executable, SCRIPT, "--tiny", "--steps=1", f"--out={out}", "--only", "raw vLLM", "LoRA, padded"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(out.read_text())
    seeded = "rollout, raw vLLM, seeded"
    assert set(found["results"]["tiny"]) == {"rollout, raw vLLM", seeded, "update, LoRA, padded"}
    if importlib.util.find_spec("vllm") is None:
        assert found["results"]["tiny"]["rollout, raw vLLM"] == {"skipped": "vllm is not installed"}
    assert found["results"]["tiny"]["update, LoRA, padded"]["seconds"] > 0
    assert "nothing about speed" in done.stdout
    assert torch.cuda.is_available() or found["machine"]["device"] == "cpu, no GPU"
