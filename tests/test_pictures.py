"""The README's pictures: small files, sharp at twice the README's width, and one function for each."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PNGS = sorted(DOCS.glob("*.png"))
pytestmark = pytest.mark.skipif(not DOCS.is_dir(), reason="docs/ is part of the checkout alone")


@pytest.mark.parametrize("path", PNGS, ids=lambda path: path.stem)
def test_a_picture_is_small_and_sharp(path):
    image = pytest.importorskip("PIL.Image")
    assert path.stat().st_size < 150_000
    with image.open(path) as picture:
        assert 1200 <= picture.width <= 2200 and picture.height <= 2200


def test_every_picture_is_drawn_by_the_script():
    drawn = set(re.findall(r'"(\w+\.png)"', (DOCS / "pictures.py").read_text())) - {"page.png", "shot.png", "maze.png"}
    assert drawn == {path.name for path in PNGS}
