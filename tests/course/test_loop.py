"""The drawing of the loop: one cell is marked, in words too."""

import pytest

import mas_lab as lab


def test_one_cell_is_marked():
    assert repr(lab.course.loop("group")) == "rollout → [group] → normalize → update → rollout …"
    assert "[" not in repr(lab.course.loop())
    drawn = lab.course.loop("update")._repr_html_()
    assert drawn.count("you are here") == 1 and "<b>4 update</b> <small>(you are here)" in drawn
    with pytest.raises(ValueError, match="loop: no cell is named 'loss'; the cells are rollout, group"):
        lab.course.loop("loss")
