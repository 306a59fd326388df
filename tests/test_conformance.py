"""The golden batches: they are what their script works out, mas_lab gives their numbers, and the page is up to date."""

import importlib
import json
import math
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "benchmarks" / "conformance"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="benchmarks/ is part of the checkout alone")
FILES = sorted((FOLDER / "cases").glob("*.json"))
PARTS = ("answers", "make", "page", "run", "table_model", "with_mas_lab")


@pytest.fixture(scope="module")
def parts():
    """The modules of the folder, by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        yield {name: importlib.import_module(name) for name in PARTS}
    for name in PARTS:
        sys.modules.pop(name, None)


def test_the_script_works_out_the_recorded_files(parts):
    assert parts["make"].stale() == []
    assert len(FILES) >= 30


def test_a_changed_number_is_seen(parts):
    case = json.loads(FILES[0].read_text())
    other = json.loads(FILES[0].read_text())
    other["expected"]["advantages"][1] += 1e-6
    assert parts["make"].differences(case, other) == ["/expected/advantages/1"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_mas_lab_gives_the_expected_numbers(parts, path):
    case = json.loads(path.read_text())
    answer = parts["run"].judge(case, parts["with_mas_lab"])
    assert answer["verdict"] == "pass", answer
    wanted = set(case["expected"]) - {"refused"}
    assert answer["compared"] == ["refused"] or wanted - set(answer["compared"]) <= {"logprobs", "token_losses"}


@pytest.mark.parametrize("found, verdict", [
    ([1.0, -0.9], "pass"),
    ([1.0, -0.5], "fail: -0.5 against -1 (advantages)"),
    ([1.0, math.nan], "fail: nan against -1 (advantages)"),
])  # fmt: skip
def test_a_number_beyond_the_tolerance_fails(parts, found, verdict):
    case = {"name": "one", "kind": "advantages", "expected": {"advantages": [1.0, -1.0]},
            "tolerance": {"absolute": 0.2}}  # fmt: skip
    trainer = SimpleNamespace(DESIGN={}, NOTES={}, advantages=lambda case: {"advantages": found})
    assert parts["run"].judge(case, trainer)["verdict"] == verdict


def test_the_page_holds_the_recorded_answers(parts, tmp_path):
    run, page = parts["run"], tmp_path / "conformance.md"
    parts["page"].write_page(page, run.cases(), run.RESULTS, run.TRAINERS)
    assert page.read_text() == (ROOT / "docs" / "conformance.md").read_text()
