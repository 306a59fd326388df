"""From a master to the forms of a notebook: the release for students, the solution, and the page to read.

A master is `notebooks/masters/NAME.py`, with cells in the percent format. In a code cell,

    ### BEGIN SOLUTION
    by = ("task",)
    ### STARTER
    # by = ("episode", "agent", "turn")  # <- change this line
    ### END SOLUTION

the lines above `### STARTER` belong to the solution. The lines below it belong to the release, without their comment
sign. If there is no `### STARTER`, the release has `...` there. A cell tagged "solution" is in the solution only.

In the release, a field for a guess follows each text cell that begins with `*Predict:*`. The cells after it that begin
with `*Explain` are shown, up to their first heading, once the field is filled; their cells hold them sealed. The page
is the release without these fields.

The cell tagged "install" is the same in all notebooks (`INSTALL`). One line of pyproject.toml has the address of the
repository (`repository`): the badges in the first cells and in the README lead there, and once it is no placeholder,
the install cell takes the kit from there. Leaves out: running notebooks (`execution`).
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import ascii_lowercase
from typing import Any, Literal

from mas_lab.course.guesses import sealed

NOTEBOOKS = Path(__file__).resolve().parents[1]
"""Folder of what students open; its folder `masters` has the masters."""
Form = Literal["release", "solution", "page"]
BEGIN, STARTER, END = "### BEGIN SOLUTION", "### STARTER", "### END SOLUTION"
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
FOLDED = {"tags": ["install", "hide-input"], "jupyter": {"source_hidden": True}, "cellView": "form"}
"""Metadata that folds the install cell: for JupyterLab, for Colab, and with its tag for the site."""
EXPLAIN = """
# @title Explain: run this cell {{ display-mode: "form" }}
lab.course.explain("{name}", \"\"\"
{text}
\"\"\")
""".strip()
INSTALL = """
# @title The kit, where it is missing. Nothing that is installed is replaced.
SOURCE = ""  # if no wheel lies beside this notebook or in a data set: "git+https://...", or a path in your Drive

import importlib.util
import runpy
import subprocess
import sys
from pathlib import Path

if importlib.util.find_spec("mas_lab") is None:
    found = [*Path().glob("mas_lab-*.whl"), *Path("/kaggle/input").rglob("mas_lab-*.whl"), *filter(None, [SOURCE])]
    if not found:
        raise SystemExit("mas_lab-*.whl is not here: upload it (Colab: Files; Kaggle: Add Input), or set SOURCE")
    if str(found[0]).startswith("/content/drive/") and not Path("/content/drive").is_dir():
        from google.colab import drive

        drive.mount("/content/drive")
    got = subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", str(found[0])])
    if got.returncode:
        raise SystemExit(f"pip cannot install {found[0]}. On Kaggle: Settings > Internet > On, or attach the wheel")
    importlib.invalidate_caches()
hosted = runpy.run_path(str(Path(importlib.util.find_spec("mas_lab").origin).with_name("hosted.py")))
host = hosted["prepare"](NEEDS)  # adds what is missing beside it
""".strip()


PLACEHOLDER = "OWNER"
"""Owner of the repository in pyproject.toml as long as its public address is not known."""
UNKNOWN = f" *({PLACEHOLDER} is a placeholder: these links work once the repository has an address.)*"


def repository() -> str:
    """Return "owner/name" of the repository on GitHub, or "" if there is no pyproject.toml."""
    path = NOTEBOOKS.parent / "pyproject.toml"
    urls = tomllib.loads(path.read_text(encoding="utf-8"))["project"]["urls"] if path.is_file() else {}
    return urls.get("Repository", "").removeprefix("https://github.com/")


class MasterError(ValueError):
    """Error for a master that breaks the rules, with the file, the line and a remedy."""


def masters_dir() -> Path:
    """Return the folder of the masters."""
    return NOTEBOOKS / "masters"


def masters() -> list[Path]:
    """Return the masters in the order of the course."""
    return sorted(masters_dir().glob("[0-9][0-9]_*.py"))


def notebook(master: Path, form: Form) -> dict:
    """Return a master's notebook as plain data (nbformat 4.5), without outputs.

    Requires jupytext (the extra `test` or `course`).
    """
    import jupytext

    text, home = master.read_text(encoding="utf-8"), repository()
    _refuse_unbalanced(text, master)
    cells = []
    for number, cell in enumerate(jupytext.reads(text, fmt="py:percent").cells):
        tags, source = cell.metadata.get("tags", []), cell.source
        if "solution" in tags and form != "solution":
            continue
        if "install" in tags:
            source = INSTALL.replace("NEEDS", source.strip() or "()")
            if home and not home.startswith(f"{PLACEHOLDER}/"):
                source = source.replace('SOURCE = ""', f'SOURCE = "git+https://github.com/{home}"')
        elif cell.cell_type == "code":
            source = "\n".join(_lines(source.splitlines(), form))
        if number == 0 and home and form == "release":  # the site asks no other place for pictures
            source = (
                badges(f"notebooks/{master.stem}.ipynb", home) + f"{UNKNOWN * home.startswith(PLACEHOLDER)}\n\n{source}"
            )
        metadata = FOLDED if "install" in tags else {"tags": tags} if tags else {}
        cells.append(_cell(f"cell-{number:02d}", cell.cell_type, source, metadata))
    if form == "release":
        cells = list(_with_guesses(cells, master.stem[:2]))
    return {"cells": cells, "metadata": METADATA, "nbformat": 4, "nbformat_minor": 5}


def _cell(name: str, kind: str, source: str, metadata: Mapping[str, Any]) -> dict[str, Any]:
    made = {"cell_type": kind, "id": name, "metadata": dict(metadata)}
    made |= {"execution_count": None, "outputs": []} if kind == "code" else {}
    return made | {"source": source.splitlines(keepends=True)}


def _with_guesses(cells: list[dict[str, Any]], number: str) -> Iterator[dict[str, Any]]:
    """Yield the cells, with a field after each prediction, and explanations that wait for what is written there."""
    names, open_guess = iter(f"{number}.{letter}" for letter in ascii_lowercase), None
    for cell in cells:
        source = "".join(cell["source"])
        if open_guess and source.startswith("*Explain"):
            told, heading, rest = re.match(r"(.*?)(^#+ |\Z)(.*)", source, re.DOTALL | re.MULTILINE).groups()
            folded = {"tags": ["explain", "hide-input"], "jupyter": {"source_hidden": True}, "cellView": "form"}
            text = EXPLAIN.format(name=open_guess, text=sealed(told.strip()))
            yield _cell(f"{cell['id']}-explain", "code", text, folded)
            if heading:
                yield cell | {"source": (heading + rest).splitlines(keepends=True)}
            continue
        yield cell
        if source.startswith("*Predict:*"):
            open_guess = next(names)
            yield _cell(f"{cell['id']}-guess", "code", f'lab.course.guess("{open_guess}")', {"tags": ["guess"]})


def _lines(lines: list[str], form: Form) -> Iterator[str]:
    """Yield a cell's lines in one of the forms."""
    part, starter, indent = None, False, ""
    for line in lines:
        mark = line.strip()
        if mark == BEGIN:
            part, starter, indent = "solution", False, line[: len(line) - len(line.lstrip())]
        elif mark == STARTER:
            part, starter = "starter", True
        elif mark == END:
            if form != "solution" and not starter:
                yield f"{indent}...  # your code here"
            part = None
        elif part is None or (part == form == "solution"):
            yield line
        elif part == "starter" and form != "solution":
            yield indent + re.sub(r"^# ?", "", line[len(indent) :])


def _refuse_unbalanced(text: str, master: Path) -> None:
    expected = BEGIN
    for number, line in enumerate(text.splitlines(), start=1):
        mark = line.strip()
        if line.startswith("# %%") and expected != BEGIN:
            raise MasterError(f"{master.name}, line {number}: a cell ends before its {END}")
        if mark in (BEGIN, STARTER, END):
            if (mark == BEGIN) != (expected == BEGIN):
                raise MasterError(f"{master.name}, line {number}: {mark} where {expected} was expected")
            expected = BEGIN if mark == END else END
    if expected != BEGIN:
        raise MasterError(f"{master.name}: {END} is missing at the end")


def headline(source: str) -> tuple[str, str]:
    """Return a notebook's title, and its line of level, reading and compute, from its first cell."""
    title, told = (re.search(rule, source, flags=re.MULTILINE) for rule in (r"^# (.+)$", r"^\*(Level: .+)\*$"))
    return title[1], told[1]


def badges(path: str, home: str) -> str:
    """Return Markdown that opens `path` of a GitHub repository ("owner/name") on Colab and on Kaggle."""
    file = f"github.com/{home}/blob/main/{path}"
    return (
        f"[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]"
        f"(https://colab.research.google.com/{file.replace('github.com', 'github', 1)}) "
        f"[![Open in Kaggle](https://kaggle.com/static/images/open-in-kaggle.svg)]"
        f"(https://kaggle.com/kernels/welcome?src=https://{file})"
    )


def text_of(master: Path, form: Form) -> str:
    """Return the text of a notebook's file."""
    return json.dumps(notebook(master, form), indent=1, ensure_ascii=False) + "\n"


def write(folder: Path, form: Form = "release") -> list[Path]:
    """Write one form of all notebooks into `folder`, and return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for master in masters():
        written.append(folder / f"{master.stem}.ipynb")
        written[-1].write_text(text_of(master, form), encoding="utf-8")
    return written


def filled(readme: str) -> str:
    """Return the text of the README with the address to clone and the first notebook's badges."""
    if not (home := repository()):
        return readme
    told = badges(f"notebooks/{masters()[0].stem}.ipynb", home)
    readme = re.sub(r"(<!-- badges -->).*?(<!-- /badges -->)", rf"\1{told}\2", readme, flags=re.DOTALL)
    return re.sub(r"git clone \S+ mas_lab", f"git clone https://github.com/{home} mas_lab", readme)
