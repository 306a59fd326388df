"""The smallest form of benchmarks/gpu.py on the real engine, so that it works where a GPU is."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("vllm")
pytestmark = pytest.mark.engines
SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "gpu.py"


@pytest.mark.skipif(not SCRIPT.is_file(), reason="no checkout")
def test_a_whole_step_is_timed_by_its_phases_and_joins_the_record(tmp_path):
    out = tmp_path / "gpu.json"
    for part in ("step, vllm", "step, torch"):
        subprocess.run([sys.executable, SCRIPT, "--tiny", "--steps=1", f"--out={out}", "--only", part], check=True)
    found = json.loads(out.read_text())["results"]["tiny"]
    assert set(found) == {"step, vllm", "step, torch"}
    for step in found.values():
        assert set(step["phases"]) == {"rollout", "advantages", "update"}
        assert 0 < sum(step["phases"].values()) <= step["seconds"] and step["tokens_per_second"] > 0
