"""The install cell's logic, with the real pip in a real environment and wheels made here: no index is asked."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import nbformat
import pytest

from mas_lab import hosted
from mas_lab.hosted import Host, detect, plan_install
from mas_lab.paths import notebooks_dir

ROOT = Path(__file__).resolve().parents[1]
PYTHON = "Scripts/python.exe" if sys.platform == "win32" else "bin/python"


def test_services_are_told_by_what_they_leave_and_the_switch_that_is_off_is_named(monkeypatch):
    assert detect() == "local"
    monkeypatch.setitem(sys.modules, "google.colab", sys)
    assert detect() == "colab"
    monkeypatch.setenv("KAGGLE_KERNEL_RUN_TYPE", "Batch")
    assert detect() == "kaggle"
    assert "Accelerator > GPU T4 x2" in Host("kaggle", ()).why_no_gpu()
    assert "Change runtime type" in Host("colab", ()).why_no_gpu()
    assert Host("kaggle", ("Tesla T4", "Tesla T4")).why_no_gpu() is None
    old = Host("kaggle", ("Tesla P100-PCIE-16GB",))
    assert old.usable_gpus == () and "P100 fails" in old.why_no_gpu()


def test_gpus_are_asked_of_the_driver(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert hosted.gpus() == ()
    tool = tmp_path / "nvidia-smi"
    for source, found in (("echo Tesla T4; echo Tesla T4", ("Tesla T4",) * 2), ("exit 9", ())):
        tool.write_text(f"#!/bin/sh\n{source}\n")
        tool.chmod(0o755)
        assert hosted.gpus() == found or sys.platform == "win32"


def test_everything_installed_is_a_constraint(tmp_path):
    have = {"torch": "2.11.0+cu128", "pandas": "2.2.3", "python-apt": "2.4.0+ubuntu4", "old": "1.0-unstable-2"}
    command = plan_install(["a", "b>=1"], have, tmp_path / "held.txt")
    assert command[-2:] == ["a", "b>=1"] and command[-4:-2] == ["--constraint", str(tmp_path / "held.txt")]
    assert (tmp_path / "held.txt").read_text() == "pandas==2.2.3\npython-apt==2.4.0+ubuntu4\ntorch==2.11.0+cu128\n"
    assert {"torch", "pandas", "ipywidgets"} <= set(hosted.installed())


def wheel(folder: Path, name: str, version: str, *requires: str) -> Path:
    about = f"{name}-{version}.dist-info"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", f"version = {version!r}\n")
        needs = "".join(f"Requires-Dist: {one}\n" for one in requires)
        archive.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}")
        archive.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{about}/RECORD", "")
    return path


CALL = """
import json, runpy, sys
hosted = runpy.run_path(sys.argv[1])
import importlib.util
try:
    print(json.dumps(hosted["add"](sys.argv[3:], sys.argv[2])))
finally:
    print(*(name for name in ("alpha", "beta", "gamma") if importlib.util.find_spec(name)))
"""


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    """An environment that holds alpha 1.0, wheels of alpha 1.0 and 2.0, beta and gamma, and a call of `add` in it."""
    root = tmp_path_factory.mktemp("hosted")
    ours = "pip" in hosted.installed()
    venv.create(root / "venv", with_pip=not ours)
    python = root / "venv" / PYTHON
    if ours:  # a copy of it is made faster than an installation
        site = sysconfig.get_path("purelib", "venv", vars={"base": str(root / "venv")})
        shutil.copytree(metadata.distribution("pip").locate_file("pip"), Path(site) / "pip")
    wheels = root / "wheels"
    wheels.mkdir()
    listed = (("alpha", "1.0"), ("alpha", "2.0"), ("beta", "1.0", "alpha"), ("gamma", "1.0", "alpha>=2"))
    first, *_ = (wheel(wheels, *one) for one in listed)
    offline = {k: v for k, v in os.environ.items() if not k.startswith("PIP_")}
    offline |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "PIP_CONFIG_FILE": os.devnull}
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", first], check=True, env=offline)

    def call(*needs: str, **changes: str):
        here = shutil.copy(hosted.__file__, root / "hosted.py")  # the file works without the package around it
        command = [python, "-I", "-c", CALL, here, "kaggle", *needs]
        return subprocess.run(command, capture_output=True, text=True, env=offline | changes)

    return call


@pytest.mark.slow
def test_what_is_missing_is_added_and_nothing_replaced(notebook):
    added, importable = notebook("beta").stdout.splitlines()
    assert json.loads(added) == {"beta": "1.0"} and importable == "alpha beta"  # alpha 2.0 was there to be had


def test_a_conflict_is_told_and_changes_nothing_and_no_network_names_the_switch(notebook):
    done = notebook("gamma")
    assert done.returncode and "Nothing was installed: pip cannot add gamma beside what is here" in done.stderr
    assert "gamma 1.0 depends on alpha>=2" in done.stderr and "alpha==1.0" in done.stderr
    assert done.stderr.endswith("  %pip install --upgrade gamma\n")
    assert "gamma" not in done.stdout
    nowhere = {"PIP_NO_INDEX": "0", "PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "1"}
    assert "Settings > Internet > On" in notebook("delta", **nowhere).stderr


@pytest.mark.slow
def test_the_install_cell_works_before_the_kit_is_there(tmp_path):
    """In an environment that holds pip alone, beside the built wheel, or without it; there is no index."""
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path / "dist")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    venv.create(tmp_path / "venv", with_pip=True)
    notebook = nbformat.read(notebooks_dir() / "10_one_gpu_unsloth.ipynb", as_version=4)
    cell = next(c for c in notebook.cells if c.cell_type == "code").source

    def first_cell(folder: Path, cell: str = cell, **environment: str):
        offline = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "PYTHON"))}
        offline |= {"PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull} | environment
        command = [tmp_path / "venv" / PYTHON, "-c", cell]
        return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=offline)

    none = first_cell(tmp_path)
    assert none.returncode and "mas_lab-*.whl is not here: upload it" in none.stderr
    wrong = first_cell(tmp_path, cell.replace('SOURCE = ""', 'SOURCE = "absent.whl"'))
    assert wrong.returncode and "pip cannot install absent.whl" in wrong.stderr
    asked = first_cell(tmp_path / "dist", KAGGLE_KERNEL_RUN_TYPE="Interactive")
    assert "kaggle: " in asked.stdout and "Nothing was installed: pip cannot add mas-lab" in asked.stderr


def test_only_what_is_missing_is_added_locally(monkeypatch):
    for required, needs, there, asked in (
        (["numpy>=2.1", "trl==1.16; extra == 'cpu'"], ("trl>=1.15",), {"numpy": "1.0", "trl": "1"}, []),
        (["Plotly!=7.0.0,>=5.24"], ("trl>=1.15",), {"numpy": "2.1"}, [["mas-lab", "trl>=1.15"]]),
    ):
        added = []
        monkeypatch.setattr(hosted, "add", lambda needs, host, added=added: added.append(needs) or {})
        monkeypatch.setattr(hosted.metadata, "requires", lambda name, required=required: required)
        monkeypatch.setattr(hosted, "installed", lambda there=there: there)
        hosted.prepare(hosted.UNSLOTH, needs)
        assert added == asked
