"""Writes the page of words, `docs/glossary.md`, from `mas_lab/course/glossary.csv`: `python docs/glossary.py`."""

from pathlib import Path

from mas_lab.course.glossary import page

if __name__ == "__main__":
    Path(__file__).with_name("glossary.md").write_text(page(), encoding="utf-8")
