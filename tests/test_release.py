"""The version is the same everywhere, a release's checklist names commands that exist, pictures are small and sharp."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
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
    address = project["urls"]["Repository"]  # a placeholder would send readers nowhere
    assert cited.get("repository-code") == (None if "/OWNER/" in address else address)


def test_the_checklist_names_targets_that_there_are():
    targets = set(re.findall(r"^([a-z -]+):(?!=)", text("Makefile"), re.MULTILINE))
    targets = {name for line in targets for name in line.split()}
    named = re.findall(r"`make ([a-z-]+)", text("docs/releasing.md"))
    assert len(named) > 4 and set(named) <= targets
    for path in re.findall(r"`((?:docs/|\.ci/)?\w+(?:\.(?:md|cff|toml))?)`", text("docs/releasing.md")):
        assert "." not in path or (ROOT / path).exists(), path


def test_every_picture_is_drawn_by_the_script_small_and_sharp():
    image, pictures = pytest.importorskip("PIL.Image"), sorted((ROOT / "docs").glob("*.png"))
    drawn = set(re.findall(r'"(\w+\.png)"', text("docs/pictures.py"))) - {"page.png", "shot.png", "maze.png"}
    assert drawn == {path.name for path in pictures}
    for path in pictures:
        assert path.stat().st_size < 150_000
        with image.open(path) as picture:
            assert 1200 <= picture.width <= 2200 and picture.height <= 2200
