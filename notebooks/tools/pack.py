"""The course as one zip: for a teacher, for machines without a network, and as a data set of a hosted notebook.

    notebooks/      for students, with the wheel
    cheatsheet.html, figures/, environment/
    INSTRUCTOR.md, solutions/, executed/, parts/, tools/      not in the students' zip

Leaves out: the kit's own dependencies, which are gigabytes; `environment/` lists their versions.
"""

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import execution
import forms
import pages
from cheatsheet import cheatsheet

from mas_lab.course.exercises import of_notebook
from mas_lab.runs.disk import atomic
from mas_lab.widgets.document import escape

ROOT = "mas_lab_course"
"""Name of the folder in the zip."""
ROWS, CHECKOUT = "<!-- notebooks -->", forms.NOTEBOOKS.parent


class PackError(RuntimeError):
    """Error for a missing part of the zip, with the way to get it."""


def pack(
    out: Path,
    full: bool = False,
    students: bool = False,
    executed: Path | None = None,
    wheel: Path | None = None,
    say: Callable[[str], None] = print,
) -> Path:
    """Write the zip, and return its path.

    Solutions run in their short form, or at `full` length. Solutions in the folder `executed` with the same cells are
    reused, and new ones are stored there. `students`: only the files for students. `wheel`: a wheel file to use instead
    of building one. A notebook in which a cell fails has a page that says so. Raises PackError, also after the zip is
    written if a notebook failed.
    """
    failed: list[str] = []
    solutions = {} if students else {path.stem: _solution(path) for path in forms.masters()}
    files = dict(_for_students(wheel)) | (
        dict(_for_teachers(solutions, full, executed, say, failed)) if solutions else {}
    )
    out = Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    with atomic(out) as staged, zipfile.ZipFile(staged, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(f"{ROOT}/{name}", content)
    if failed:
        raise PackError(f"{out} is written, but {len(failed)} notebooks failed: {'; '.join(failed)}")
    return out


def _solution(master: Path) -> Any:
    return pages.read(json.dumps(forms.notebook(master, "solution")))


def _for_students(wheel: Path | None) -> Iterator[tuple[str, bytes]]:
    for master in forms.masters():
        yield f"notebooks/{master.stem}.ipynb", forms.text_of(master, "release").encode()
    with tempfile.TemporaryDirectory() as folder:
        built = wheel or _built_wheel(Path(folder))
        yield f"notebooks/{built.name}", built.read_bytes()
    yield "cheatsheet.html", cheatsheet().encode()
    for path in (*sorted((CHECKOUT / "docs").glob("*.png")), *sorted((CHECKOUT / "requirements").glob("cpu.lock"))):
        yield f"{'figures' if path.suffix == '.png' else 'environment'}/{path.name}", path.read_bytes()


def _built_wheel(folder: Path) -> Path:
    """Build a wheel of this checkout."""
    command = [sys.executable, "-m", "pip", "wheel", str(CHECKOUT), "--quiet", "--no-deps", "--no-build-isolation"]
    done = subprocess.run([*command, "--wheel-dir", str(folder)], capture_output=True, text=True, encoding="utf-8")
    if done.returncode:
        raise PackError(f"the wheel could not be built; `make wheel` says why: {done.stderr.strip()[-300:]}")
    return next(folder.glob("*.whl"))


def _for_teachers(
    solutions: dict[str, Any], full: bool, executed: Path | None, say: Callable[[str], None], failed: list[str]
) -> Iterator[tuple[str, bytes]]:
    import nbformat

    yield "INSTRUCTOR.md", instructor(solutions).encode()
    runs = {name: execution.with_parameters(held, {} if full else {"SMOKE": True}) for name, held in solutions.items()}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        running = {name: pool.submit(execution.executed, run, f"{name}-solution", executed, say)
                   for name, run in runs.items()}  # fmt: skip
    for name, notebook in solutions.items():
        yield f"solutions/{name}.ipynb", (json.dumps(notebook, indent=1, ensure_ascii=False) + "\n").encode()
        run = runs[name]
        try:
            done = running[name].result()
        except execution.NotebookError as error:
            say(str(error))
            failed.append(str(error))
            run.cells.insert(
                1, nbformat.v4.new_markdown_cell(f"**This notebook was not executed to its end: {error}**")
            )
            done = run
        yield f"executed/{name}.html", pages.page(done, title(notebook), scripts="../parts").encode()
    yield "executed/index.html", _index(solutions).encode()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        yield f"tools/{path.name}", path.read_bytes()
    for name, content in pages.parts().items():
        yield f"parts/{name}", content


def instructor(solutions: dict[str, Any]) -> str:
    """Return the teacher's page, with a table of notebooks from their first cells."""
    text = (forms.masters_dir() / "INSTRUCTOR.md").read_text(encoding="utf-8")
    rows = ["| notebook | what it asks for | exercises |", "|---|---|---|"]
    for name, notebook in solutions.items():
        called, asked = forms.headline(notebook.cells[0].source)
        rows.append(f"| {name[:2]} {called} | {asked} | {len(of_notebook(name[:2]))} |")
    return text.replace(ROWS, "\n".join(rows))


def title(notebook: Any) -> str:
    """Return a notebook's title, its first heading."""
    return forms.headline(notebook.cells[0].source)[0]


def _index(solutions: dict[str, Any]) -> str:
    items = (f'<li><a href="{name}.html">{name[:2]} {escape(title(held))}</a></li>' for name, held in solutions.items())
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>The notebooks, with solutions, as they ran</title><style>{pages.LOOK}</style></head><body>"
        f"<h1>The notebooks, with solutions, as they ran</h1><ul>{''.join(items)}</ul></body></html>"
    )
