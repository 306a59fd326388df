"""The README's pictures: small files, sharp at twice the README's width, and one function for each."""

import re
import sys
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PNGS = sorted(DOCS.glob("*.png"))
pytestmark = pytest.mark.skipif(not DOCS.is_dir(), reason="docs/ is part of the checkout alone")


@pytest.fixture(scope="module")
def pictures():
    pytest.importorskip("PIL")
    sys.path.insert(0, str(DOCS))
    import pictures

    yield pictures
    sys.path.remove(str(DOCS))


@pytest.mark.parametrize("path", PNGS, ids=lambda path: path.stem)
def test_a_picture_is_small_and_sharp(path):
    image = pytest.importorskip("PIL.Image")
    assert path.stat().st_size < 150_000
    with image.open(path) as picture:
        assert 1200 <= picture.width <= 2200 and picture.height <= 2200


def test_every_picture_is_drawn_by_the_script():
    drawn = set(re.findall(r'"(\w+\.png)"', (DOCS / "pictures.py").read_text())) - {"page.png", "shot.png", "maze.png"}
    assert drawn == {path.name for path in PNGS}


def test_model_text_in_a_picture_is_escaped(pictures):
    rows = pd.DataFrame({"agent": ["planner"], "completion": ["<script>b4</script>"], "credit": [0.5]})
    adds = {"1 rollout": ["agent", "completion"], "2 group": ["credit"]}
    page = pictures.table(rows, adds, {"planner": "#123456"})
    assert "&lt;script&gt;" in page and "<script>" not in page
    assert page.count("class=tint1") == 3 and "#123456" in page and "0.50" in page
