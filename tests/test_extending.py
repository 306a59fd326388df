"""docs/extending.md: every block of code runs as it stands, in order."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[1] / "docs" / "extending.md"


@pytest.mark.skipif(not PAGE.is_file(), reason="docs/ is part of the checkout alone")
def test_blocks_of_the_page_run_in_order():
    names = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(block, PAGE.name, "exec"), names)
    assert names["stats"]["grad_norm"].gt(0).all() and names["norms"], "the cells learned with these parts"
    assert names["reports"][-1].turns["advantage"].any()
