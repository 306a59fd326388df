"""What every notebook of the course keeps to, read from the masters; and that what students open follows from them."""

import json
import re

import forms
import nbformat
import pytest

from mas_lab.course import exercises
from mas_lab.paths import notebooks_dir

MASTERS = forms.masters()
each = pytest.mark.parametrize("master", MASTERS, ids=lambda path: path.stem)


def cells(master, form="solution"):
    held = forms.notebook(master, form)["cells"]
    return [(cell["cell_type"], cell["metadata"].get("tags", []), "".join(cell["source"])) for cell in held]


def test_every_notebook_has_a_master():
    assert {path.stem for path in notebooks_dir().glob("*.ipynb")} == {path.stem for path in MASTERS}


@each
@pytest.mark.parametrize("form", ["release", "solution"])
def test_both_forms_are_valid_and_hold_no_marks(master, form):
    made = forms.notebook(master, form)
    nbformat.validate(nbformat.reads(json.dumps(made), as_version=4))
    text = "\n".join(source for _, _, source in cells(master, form))
    assert "###" not in re.sub(r"^#{3} (?!BEGIN|END|STARTER)", "", text, flags=re.M)
    for kind, _, source in cells(master, form):
        if kind == "code" and not re.search(r"^[!%]", source, flags=re.M):
            compile(source, f"{master.stem}, {form}", "exec")
    assert sum("install" in tags for _, tags, _ in cells(master, form)) == 1
    assert sum("parameters" in tags for _, tags, _ in cells(master, form)) == 1


@each
def test_what_students_open_follows_from_the_master_and_holds_no_solution(master):
    stored = (notebooks_dir() / f"{master.stem}.ipynb").read_text(encoding="utf-8")
    assert stored == forms.text_of(master, "release"), "run `make notebooks`"
    text = master.read_text(encoding="utf-8")
    solutions = re.findall(r"### BEGIN SOLUTION\n(.*?)(?:\s*### STARTER.*?)?\s*### END SOLUTION", text, flags=re.S)
    release = "\n".join(source for kind, _, source in cells(master, "release") if kind == "code")
    assert solutions
    for solution in solutions:
        assert solution.strip() not in release
    asked = re.findall(r'lab\.course\.check\("(\d\d\.\d+)"', text)
    assert asked == [one.name for one in exercises.of_notebook(master.stem[:2])]


@each
def test_it_says_level_reading_compute_and_where_to_go_next(master):
    texts = [source for kind, _, source in cells(master) if kind == "markdown"]
    assert texts[0].startswith("# ") and cells(master)[0][2] == texts[0]
    assert re.search(r"^\*Level: .+\. Reading: \d+ minutes\. Compute: .+\.\*$", texts[0], flags=re.M)
    assert master == MASTERS[-1] or re.search(r"^Next: ", "\n".join(texts), flags=re.M)


@pytest.mark.parametrize("text, told", [
    ("# %%\n### BEGIN SOLUTION\nx = 1\n", "END SOLUTION is missing at the end"),
    ("# %%\n### BEGIN SOLUTION\n# %%\n### END SOLUTION\n", "line 3: a cell ends before its ### END SOLUTION"),
])  # fmt: skip
def test_a_master_whose_marks_do_not_match_is_refused(tmp_path, text, told):
    path = tmp_path / "00_broken.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(forms.MasterError, match=re.escape(told)):
        forms.notebook(path, "release")


def test_the_two_forms_of_a_cell(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text('[project.urls]\nRepository = "https://github.com/me/kit"')
    monkeypatch.setattr(forms, "NOTEBOOKS", tmp_path / "notebooks")
    path = tmp_path / "00_small.py"
    path.write_text(
        '# %% [markdown]\n# # Title\n\n# %% tags=["install"]\n\n# %%\ndef f(x):\n    ### BEGIN SOLUTION\n    return x\n'
        "    ### END SOLUTION\n\n\n### BEGIN SOLUTION\nby = 1\n### STARTER\n# by = 2  # <- change\n### END SOLUTION\n",
        encoding="utf-8",
    )
    release, solution = (forms.notebook(path, form)["cells"] for form in ("release", "solution"))
    assert "".join(release[2]["source"]) == "def f(x):\n    ...  # your code here\n\n\nby = 2  # <- change"
    assert "".join(solution[2]["source"]) == "def f(x):\n    return x\n\n\nby = 1"
    title = "".join(release[0]["source"])
    assert "placeholder" not in title and title.endswith("\n\n# Title")
    assert "colab.research.google.com/github/me/kit/blob/main/notebooks/00_small.ipynb" in title
    assert "kaggle.com/kernels/welcome?src=https://github.com/me/kit/blob/main/notebooks/00_small.ipynb" in title
    assert 'SOURCE = "git+https://github.com/me/kit"' in "".join(release[1]["source"])
    monkeypatch.setattr(forms, "masters", lambda: [path])
    readme = forms.filled("<!-- badges --><!-- /badges -->\ngit clone ADDRESS mas_lab && cd mas_lab")
    assert readme.endswith("\ngit clone https://github.com/me/kit mas_lab && cd mas_lab")
    assert readme.startswith(f"<!-- badges -->{forms.badges('notebooks/00_small.ipynb', 'me/kit')}<!-- /badges -->")
