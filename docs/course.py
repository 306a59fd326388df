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

**A short route.** Five notebooks, about {minutes} minutes of reading; each needs only those before it:

{route}

| notebook | reading | compute, two CPU cores | exercises |
|---|---|---|---|
"""
ROUTE = {
    "00": "a whole training, and what each of the four cells does",
    "01": "what one row of the table holds, and why the best of K is not success",
    "02": "who is compared with whom, by hand and as one argument",
    "03": "whose mean is subtracted: what helps a late agent, and what ruins it",
    "05": "why a gradient norm spikes, down to the tokens",
}
"""The short route: what a reader of these notebooks learns."""
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


def told(master: Path) -> tuple[str, str, str]:
    """Return a notebook's link, minutes of reading and time of computing, as its master says them."""
    first = "".join(forms.notebook(master, "release")["cells"][0]["source"])
    title, about = forms.headline(first)
    reading, compute = re.search(r"Reading: (\d+) minutes\. Compute: (.+?)\.$", about).groups()
    compute = compute.replace(" on two CPU cores", "").replace("about ", "")
    return f"{master.stem[:2]} [{title}](../notebooks/{master.stem}.ipynb)", reading, compute


def page() -> str:
    notebooks = {master.stem[:2]: told(master) for master in forms.masters()}
    rows = [f"| {link} | {reading} min | {compute} | {len(exercises.of_notebook(number))} |"
            for number, (link, reading, compute) in notebooks.items()]  # fmt: skip
    minutes = sum(int(notebooks[number][1]) for number in ROUTE)
    route = "\n".join(f"- {notebooks[number][0]}: {what}" for number, what in ROUTE.items())
    return INTRO.format(minutes=minutes, route=route) + "\n".join(rows) + "\n" + TEACHING


if __name__ == "__main__":
    Path(__file__).with_name("course.md").write_text(page(), encoding="utf-8")
