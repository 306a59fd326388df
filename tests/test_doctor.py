"""The doctor's block: every section is there, and a broken machine is reported instead of ending the report."""

import importlib
import sys

import pandas
import pytest

from mas_lab.backends import placement
from mas_lab.tasks import sandbox

# `mas_lab.doctor` is the function; the module is found by its full name.
doctor = importlib.import_module("mas_lab.doctor")


def test_the_block_has_every_section_and_is_returned_as_printed(capsys):
    block = doctor.doctor()
    assert capsys.readouterr().out == block + "\n"
    starts = [line.split(maxsplit=1)[0] for line in block.splitlines() if not line.startswith(" ")]
    assert starts == ["mas_lab", "platform", "python", "packages", "device", "threads", "sandbox", "widgets", "runs"]
    assert "cpu: works" in block and " cores usable" in block and f"pandas {pandas.__version__}," in block
    assert max(map(len, block.splitlines())) <= 110


def test_a_device_that_fails_at_its_first_operation_is_named_as_failing():
    assert placement.probe("cpu") == "works"
    assert placement.probe("no_such_device").startswith("FAILS at the first operation (RuntimeError")


def test_a_torch_that_cannot_be_imported_does_not_end_the_report(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    assert placement.devices().startswith("torch cannot be imported: ModuleNotFoundError")


@pytest.mark.parametrize("tier", ["monty", "pyeryx"])
def test_the_sandbox_is_named_with_its_version(monkeypatch, tier):
    pytest.importorskip(sandbox.TIERS[tier])
    monkeypatch.setattr(sandbox, "tier", lambda: tier)
    text = doctor.sandbox()
    assert text.startswith(f"{tier} ({doctor.LIBRARIES[tier]} ") and text.endswith("): works")


def test_a_sandbox_that_is_missing_or_broken_is_told(monkeypatch):
    def none():
        raise ModuleNotFoundError(f"none is installed: {sandbox.HOW}")

    monkeypatch.setattr(sandbox, "run", lambda *arguments: sandbox.Outcome("killed", (None,)))
    monkeypatch.setattr(sandbox, "tier", lambda: "monty")
    assert doctor.sandbox().endswith(": FAILS at 1 + 1")
    monkeypatch.setattr(sandbox, "tier", none)
    assert doctor.sandbox() == f"ModuleNotFoundError: none is installed: {sandbox.HOW}"
