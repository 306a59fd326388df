"""Notebook 11 with the real vLLM: in the environment of the other tests it says that vLLM is not there."""

import pytest

pytest.importorskip("vllm")

import execution
import nbformat
from notebooks.test_notebooks import printed

from mas_lab.paths import notebooks_dir

pytestmark = pytest.mark.engines


def test_the_notebook_runs_on_it():
    notebook = nbformat.read(notebooks_dir() / "11_many_gpus_vllm.ipynb", 4)
    said = printed(execution.execute(execution.with_parameters(notebook, {"SMOKE": True}), "the notebook"))
    assert "sampled by vllm\n" in said
