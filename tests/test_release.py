"""The version is the same everywhere, a release's checklist names commands that exist, pictures are small and sharp."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
PNGS = sorted((ROOT / "docs").glob("*.png"))
pytestmark = pytest.mark.skipif(not (ROOT / "CITATION.cff").is_file(), reason="part of the checkout alone")


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_version_and_license_are_the_same_everywhere():
    project = tomllib.loads(text("pyproject.toml"))["project"]
    cited = yaml.safe_load(text("CITATION.cff"))
    newest = re.search(r"^## ([\d.]+), (unreleased|\d{4}-\d\d-\d\d)$", text("CHANGELOG.md"), re.MULTILINE)
    assert str(cited["version"]) == newest[1] == project["version"]
    assert ("date-released" in cited) == (newest[2] != "unreleased")
    assert cited["license"] in project["license"]
    assert {"cff-version", "message", "title", "authors"} <= set(cited), "what every citation file must have"


def test_the_address_stands_in_one_place_until_it_is_known_and_then_in_both():
    """The placeholder would send readers nowhere, so that only the setting holds it."""
    cited = yaml.safe_load(text("CITATION.cff")).get("repository-code")
    address = tomllib.loads(text("pyproject.toml"))["project"]["urls"]["Repository"]
    if "/OWNER/" in address:
        search = ["git", "grep", "--name-only", "OWNER/" + "mas_lab"]
        found = subprocess.run(search, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        assert cited is None and found.split() == ["pyproject.toml"]
    else:
        assert cited == address


def test_the_checklist_names_targets_that_there_are():
    targets = set(re.findall(r"^([a-z -]+):(?!=)", text("Makefile"), re.MULTILINE))
    targets = {name for line in targets for name in line.split()}
    named = re.findall(r"`make ([a-z-]+)", text("docs/releasing.md"))
    assert len(named) > 4 and set(named) <= targets
    for path in re.findall(r"`((?:docs/|\.ci/)?\w+(?:\.(?:md|cff|toml))?)`", text("docs/releasing.md")):
        assert "." not in path or (ROOT / path).exists(), path


@pytest.mark.parametrize("path", PNGS, ids=lambda path: path.stem)
def test_a_picture_is_small_and_sharp(path):
    image = pytest.importorskip("PIL.Image")
    assert path.stat().st_size < 150_000
    with image.open(path) as picture:
        assert 1200 <= picture.width <= 2200 and picture.height <= 2200


def test_every_picture_is_drawn_by_the_script():
    drawn = set(re.findall(r'"(\w+\.png)"', text("docs/pictures.py"))) - {"page.png", "shot.png", "maze.png"}
    assert drawn == {path.name for path in PNGS}
