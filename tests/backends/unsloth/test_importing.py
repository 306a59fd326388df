"""What is said where Unsloth is missing, refuses the machine, or would meet a GPU that fails."""

import importlib
import shutil
import sys
import warnings

import pytest
import torch

from mas_lab.backends.unsloth.importing import import_unsloth, refuse_broken_gpu
from mas_lab.policy import PolicyError


def test_why_it_cannot_be_used_is_told_and_a_late_import_where_it_costs(tmp_path, monkeypatch):
    def stand_in(source: str) -> None:
        """Make a package called unsloth that does no more than what the real one does on some machine."""
        (tmp_path / "unsloth.py").write_text(source)
        monkeypatch.setitem(sys.modules, "unsloth", None)  # so that what is there now comes back at the end
        del sys.modules["unsloth"]
        importlib.invalidate_caches()
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)

    monkeypatch.syspath_prepend(tmp_path)
    for source, answer in (
        ("raise ModuleNotFoundError('No module named triton')", "imported here: ModuleNotFoundError: No .*pip check"),
        ("DEVICE_TYPE = 'mlx'", "chose the device 'mlx'.*use backend=\"torch\""),
    ):
        stand_in(source)
        with pytest.raises(PolicyError, match=answer):
            import_unsloth()
    monkeypatch.setitem(sys.modules, "transformers", sys)
    stand_in("DEVICE_TYPE = 'cuda'")
    with pytest.warns(UserWarning, match=r"imported after .*transformers.*first cell"):
        import_unsloth()
    stand_in("DEVICE_TYPE = 'cpu'")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert import_unsloth().DEVICE_TYPE == "cpu"


def test_a_gpu_that_fails_at_its_first_product_is_refused(monkeypatch):
    """As under a P100: torch calls the GPU available, and the product, which is really tried, fails."""
    refuse_broken_gpu()
    if torch.cuda.is_available():
        pytest.skip("this GPU works")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    about = type("Properties", (), {"name": "Tesla P100", "major": 6, "minor": 0})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: about)
    with warnings.catch_warnings(), pytest.raises(PolicyError, match=r"Tesla P100.*6\.0.*FAILS.*T4 x2"):
        warnings.simplefilter("ignore")
        refuse_broken_gpu()
