"""Writes the page of the course, `docs/course.md`, from the masters of its notebooks: `python docs/course.py`."""

import re
import sys
from pathlib import Path

from mas_lab.course import exercises

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "notebooks" / "tools"))

import forms

INTRO = """# The course

The course has seventeen notebooks, for readers who know PyTorch and no reinforcement learning. `make lab` opens
JupyterLab on a copy of them. In each notebook you write down a guess, run a cell, and read an explanation beside your
guess; it appears once you have guessed. You compute every quantity by hand before you use code. The exercises have
checks: `lab.course.check` says right, or which row differs. `lab.course.hint` helps, and `lab.course.progress` counts
and lists your guesses. The [glossary](glossary.md), or `lab.course.glossary()`, explains the words.
`python docs/course.py` writes this page.

| notebook | reading | compute, two CPU cores | exercises |
|---|---|---|---|
"""
TEACHING = """
## Teaching it

- `make course` makes one zip. It has the notebooks, solutions, executed pages, the wheel, a cheat sheet, and a page for
  the teacher with routes of 50 minutes, 3 hours and 6 weeks. It is also the offline kit, and the data set to attach on
  Kaggle.
- Students hand in runs, `lab.export("runs/mine", "alice.zip")`, and their notebooks. `make grade ARGS=FOLDER` makes a
  page about a class, with a board over everybody's runs: a class of twenty is twenty seeds.
- `make site` turns the pages of this folder, the executed notebooks and the reference into a site that opens from a
  folder.
- A notebook is written as text with its solutions, `notebooks/masters/NAME.py`. `make notebooks` writes the files that
  students open. Change a master to fit your class, and both forms follow.
"""


def row(master: Path) -> str:
    """One notebook: title, minutes and exercises as its master says them."""
    first = "".join(forms.notebook(master, "release")["cells"][0]["source"])
    title, told = forms.headline(first)
    reading, compute = re.search(r"Reading: (\d+) minutes\. Compute: (.+?)\.$", told).groups()
    compute = compute.replace(" on two CPU cores", "").replace("about ", "")
    count = len(exercises.of_notebook(master.stem[:2]))
    return f"| {master.stem[:2]} [{title}](../notebooks/{master.stem}.ipynb) | {reading} min | {compute} | {count} |"


def page() -> str:
    return INTRO + "\n".join(map(row, forms.masters())) + "\n" + TEACHING


if __name__ == "__main__":
    Path(__file__).with_name("course.md").write_text(page(), encoding="utf-8")
