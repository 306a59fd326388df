"""Notebook 11 with the real vLLM: in the environment of the other tests it says that vLLM is not there."""

import pytest

pytest.importorskip("vllm")

from notebooks.test_notebooks import prepared, printed, run

from mas_lab.paths import notebooks_dir

pytestmark = pytest.mark.engines


def test_the_notebook_runs_on_it():
    said = printed(run(prepared(notebooks_dir() / "11_many_gpus_vllm.ipynb", smoke=True)))
    assert "sampled by vllm\n" in said
