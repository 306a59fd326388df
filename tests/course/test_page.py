"""The page of the course says what the masters say."""

import runpy
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "course.md"


@pytest.mark.skipif(not PAGE.is_file(), reason="the checkout has the page, the wheel does not")
def test_the_page_of_the_course_is_written_from_the_masters():
    made = runpy.run_path(str(PAGE.with_suffix(".py")))
    assert PAGE.read_text(encoding="utf-8") == made["page"](), "python docs/course.py"
