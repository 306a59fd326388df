"""Reading the notebooks and zips of runs that a student handed in, without trusting them.

Nothing from a zip is executed. Code of a notebook is executed only with `run`. A file that cannot be read is reported
in its own entry. Leaves out: the page about a class (`grading`).
"""

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import answers
import execution
import forms

from mas_lab.course.exercises import Exercise, of_notebook
from mas_lab.paths import PACKAGE
from mas_lab.runs.disk import is_litter
from mas_lab.runs.run import load_run
from mas_lab.study.entries import Entry, entries

BYTES = 64 * 2**20
"""Maximal size of a notebook in bytes; larger ones are not read."""
CELL = 300
"""Time limit of a student's cell in seconds."""
VERDICT = re.compile(r"^([●○]) (\d\d\.\d{1,2}) (?:right|not yet)(.*)", re.MULTILINE)
CHECK = re.compile(r"""course\.check\(\s*["'](\d\d\.\d{1,2})""")
"""Text of a cell that checks an exercise."""
TOOLS = str(Path(__file__).resolve().parent)
KEEP = f"import sys\nsys.path.append({TOOLS!r})\nimport answers as _answers\n_answers.keep("
READY = "import json, answers as _answers\n"
TOLD = "json.dumps(_answers.GIVEN)"


Verdict = bool | str | None
RAISED = "raised"
"""Verdict of an exercise that ended in an error; others are True, False, and `None` for an untouched one."""


class HandInError(ValueError):
    """Error for a student's file without usable content, with the reason."""


@dataclass(frozen=True)
class Notebook:
    """One notebook. `right` maps its exercises, in order, to verdicts; `errors` maps those that raised to the error."""

    file: str
    number: str = ""
    right: Mapping[str, Verdict] = field(default_factory=dict)
    how: str = ""
    trouble: str = ""
    errors: Mapping[str, str] = field(default_factory=dict)
    own: tuple[str, ...] = ()
    """Exercises that were judged in a process in which the student's own classes ran."""

    @property
    def count(self) -> int:
        return sum(verdict is True for verdict in self.right.values())


@dataclass(frozen=True)
class HandedRun:
    """One zip, with its `entry` for the board and the digests of its tables."""

    file: str
    entry: Entry | None = None
    digests: tuple[str, ...] = ()
    trouble: str = ""


@dataclass(frozen=True)
class Student:
    name: str
    notebooks: tuple[Notebook, ...]
    runs: tuple[HandedRun, ...]


def students(folder: Path, run: bool = False) -> Iterator[Student]:
    """Yield a `Student` for each folder in `folder`, and for each notebook or zip directly in it.

    `run`: run notebooks again, in their short form. Raises FileNotFoundError if there is nothing.
    """
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}; it holds a folder for each student")
    found = sorted(path for path in folder.iterdir() if _is_theirs(path) and (path.is_dir() or _is_read(path)))
    if not found:
        raise FileNotFoundError(f"{folder} holds neither folders of students nor notebooks and zips")
    for place in found:
        files = sorted(_files(place)) if place.is_dir() else [place]
        named = [(file, file.relative_to(place).as_posix() if place.is_dir() else file.name) for file in files]
        notebooks = tuple(notebook(file, name, run) for file, name in named if file.suffix.lower() == ".ipynb")
        runs = tuple(handed_run(file, name, place.name) for file, name in named if file.suffix.lower() == ".zip")
        yield Student(place.name, notebooks, runs)


def _files(place: Path) -> Iterator[Path]:
    """Yield notebooks and zips at any depth; links are not followed, since they lead elsewhere."""
    for path in place.iterdir():
        if _is_theirs(path) and path.is_dir():
            yield from _files(path)
        elif _is_theirs(path) and _is_read(path):
            yield path


def _is_theirs(path: Path) -> bool:
    return not (path.is_symlink() or path.name.startswith(".") or is_litter(path.name))


def _is_read(path: Path) -> bool:
    return path.is_file() and path.suffix.lower() in (".ipynb", ".zip")


def handed_run(path: Path, name: str, student: str) -> HandedRun:
    """Read a zip that `export` made, or report the reason why it cannot be read."""
    try:
        run = load_run(path)
        [entry] = entries(run)
        digests = tuple(part.name for part in run.parts("turns"))
    except Exception as error:  # any error in a student's file is reported in its own entry
        return HandedRun(name, trouble=_told(error))
    return HandedRun(name, replace(entry, file=name if name == student else f"{student}: {name}"), digests)


def notebook(path: Path, name: str, run: bool = False) -> Notebook:
    """Read the verdicts in a notebook, as they were stored or, with `run`, as they are now."""
    try:
        cells = _cells(path)
        number = _number(path, cells)
        asked = [one.name for one in of_notebook(number)]
        if run:
            _refuse_changed("so it was not run")
            found, cells = _run_again(path, number)
            _refuse_changed("while it ran, so its verdicts do not count")
        else:
            found = _verdicts(cells)
        errors = _raised(cells, found)
        found |= dict.fromkeys(_untouched(cells, number, found)) | dict.fromkeys(errors, RAISED)
        how, own = ("run again", _own(number)) if run else ("stored outputs", ())
    except Exception as error:  # as in `handed_run`
        return Notebook(name, trouble=_told(error))
    return Notebook(name, number, {one: found.get(one) for one in asked}, how, errors=errors, own=own)


def changed_files() -> list[str]:
    """Return the files of the kit that differ from what they were at the first call, before any hand-in was run."""
    return sorted({path for path, _ in _originals().items() ^ _digests().items()})


@cache
def _originals() -> dict[str, str]:
    for number in {path.name[:2] for path in forms.NOTEBOOKS.rglob("*.ipynb")}:
        of_notebook(number)  # imports its checks before the code of a student runs
    return _digests()


def _digests() -> dict[str, str]:
    """Return the digest of each file of the package and of the notebooks."""
    files = (path for root in (PACKAGE, forms.NOTEBOOKS) for path in root.rglob("*") if path.is_file())
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files if path.suffix != ".pyc"}


def _refuse_changed(when: str) -> None:
    if changed := changed_files():
        raise HandInError(f"files of the kit changed ({changed[0]}), {when}; restore them, and grade again")


def _told(error: Exception) -> str:
    text = " ".join(str(error).split())[:500]
    known = isinstance(error, HandInError) or type(error).__module__.startswith("mas_lab.")
    return text if known and text else f"{type(error).__name__}: {text}"


def _cells(path: Path) -> list[dict[str, Any]]:
    """Return the code cells of a notebook's file, without entries that are no cells."""
    if path.stat().st_size == 0:
        raise HandInError("there is nothing in it: the file is empty")
    if path.stat().st_size > BYTES:
        raise HandInError(f"it has {path.stat().st_size / 2**20:.0f} MiB, and at most {BYTES // 2**20} are read")
    try:
        held = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise HandInError(f"it is no notebook: {type(error).__name__}: {error}") from None
    cells = held.get("cells") if isinstance(held, dict) else None
    if not isinstance(cells, list):
        raise HandInError("it is no notebook: there are no cells in it")
    code = [cell for cell in cells if isinstance(cell, dict) and cell.get("cell_type") == "code"]
    if not any(_text(cell.get("source")).strip() for cell in code):
        raise HandInError("there is nothing in it: no cell has code")
    return code


def _number(path: Path, cells: list[dict[str, Any]]) -> str:
    """Return the notebook's number, from the exercises that its cells check or from the file's name."""
    asked = [name[:2] for name in CHECK.findall("\n".join(_text(cell.get("source")) for cell in cells))]
    named = re.match(r"(\d\d)(?!\d)", path.name)
    if not asked and not named:
        raise HandInError("no exercise is checked in it, and its name begins with no notebook's number")
    return max(asked, key=asked.count) if asked else named[1]


def _verdicts(cells: list[dict[str, Any]]) -> dict[str, bool | None]:
    """Return the last verdict of each exercise in the outputs; `None` where the answer is still the placeholder."""
    outputs = [output for cell in cells for output in _list(cell.get("outputs")) if isinstance(output, dict)]
    printed = "\n".join(_text(output.get("text")) for output in outputs if output.get("name") == "stdout")
    return {name: mark == "●" or (None if answers.UNTOUCHED.search(told) else False)
            for mark, name, told in VERDICT.findall(printed)}  # fmt: skip


def _raised(cells: list[dict[str, Any]], found: Mapping[str, Verdict]) -> dict[str, str]:
    """Return the name of the error for each exercise without a verdict that raised one.

    The error is that of the exercise's cell, or of a cell between the exercise before and this one.
    """
    raised: dict[str, str] = {}
    error = ""
    for cell in cells:
        outputs = [one for one in _list(cell.get("outputs")) if isinstance(one, dict)]
        errors = [_text(one.get("ename")) or "an error" for one in outputs if one.get("output_type") == "error"]
        error = errors[0] if errors else error
        if names := CHECK.findall(_text(cell.get("source"))):
            raised |= {name: error for name in names if error and name not in found}
            error = ""
    return raised


def _untouched(cells: list[dict[str, Any]], number: str, found: Mapping[str, bool | None]) -> list[str]:
    """Return the exercises that are not right, and whose cell is still the one that students open."""
    shipped = {_bare(source) for source in _shipped(number)}
    own = [source for cell in cells if _bare(source := _text(cell.get("source"))) in shipped]
    asked = {name for source in own for name in CHECK.findall(source)}
    return [name for name in asked if not found.get(name)]


@cache
def _shipped(number: str) -> tuple[str, ...]:
    """Return the sources of the code cells that students open; the teacher's zip has them in a folder `notebooks`."""
    [path, *_] = [one for folder in (forms.NOTEBOOKS, forms.NOTEBOOKS / "notebooks")
                  for one in folder.glob(f"{number}_*.ipynb")]  # fmt: skip
    return tuple(_text(cell.get("source")) for cell in _cells(path))


def _bare(source: str) -> str:
    """Return a source without the spaces at the ends of its lines, and without empty lines."""
    return "\n".join(line.rstrip() for line in source.splitlines() if line.strip())


def _own(number: str) -> tuple[str, ...]:
    return tuple(one.name for one in of_notebook(number) if answers.StudentCode in answers.sorts(one))


def _run_again(path: Path, number: str) -> tuple[dict[str, Verdict], list[dict[str, Any]]]:
    """Run a notebook again, and judge what it gave to `check` where its code cannot change the judge.

    Returns the verdicts, and the cells with their outputs.
    """
    import nbformat

    held = nbformat.read(path, 4)
    for cell in held.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    data, found = _data(number), {}

    def judge(ask: execution.Ask) -> None:
        given = _asked(ask, TOLD)
        found.update({one.name: _verdict(one, given[one.name], data.get(one.name, ()), ask)
                      for one in of_notebook(number) if one.name in given})  # fmt: skip

    done = _kept(held, path.name, False, judge)
    return dict.fromkeys(_verdicts(done.cells), False) | found, done.cells[1:]  # without the cell that kept the answers


def _kept(held: Any, name: str, data: bool, then: Callable[[execution.Ask], None]) -> Any:
    """Run a notebook in its short form, in a kernel that keeps the answers, or else the data."""
    from nbformat.v4 import new_code_cell

    held = execution.with_parameters(held, {"SMOKE": True})
    held.cells.insert(0, new_code_cell(f"{KEEP}{data})"))
    return execution.execute(held, name, go_on=not data, limit=CELL, then=then)


@cache
def _data(number: str) -> dict[str, list[Any]]:
    """Return the data on which a notebook's exercises ask something, from a run of the shipped notebook."""
    import nbformat

    if not any(answers.NotebookData in answers.sorts(one) for one in of_notebook(number)):
        return {}
    folder = forms.NOTEBOOKS / "solutions"  # of the teacher's zip; a checkout has masters
    [path, *_] = [one for one in (*folder.glob("*.ipynb"), *forms.masters()) if one.name.startswith(number)]
    text = forms.text_of(path, "solution") if path.suffix == ".py" else path.read_text(encoding="utf-8")
    told: dict[str, str] = {}
    _kept(nbformat.reads(text, 4), path.stem, True, lambda ask: told.update(_asked(ask, TOLD)))
    return {name: answers.unpickled(data) for name, data in told.items()}


def _asked(ask: execution.Ask, expression: str) -> Any:
    """Return the value of an expression that is JSON in a kernel; it is printed after a mark of its own."""
    mark = secrets.token_hex(8)
    told = re.search(rf"^{mark} (.*)$", ask(f"{READY}print({mark!r}, {expression})"), re.MULTILINE)
    if told is None:
        raise HandInError("its kernel could not say at the end what its answers are")
    return json.loads(told[1])


def _verdict(one: Exercise, given: Any, data: Sequence[Any], ask: execution.Ask) -> bool | None:
    """Return the verdict of a judge that the notebook cannot reach; an answer that cannot leave its kernel is wrong."""
    if given is None:
        return False
    if answers.StudentCode in answers.sorts(one):
        return answers.judged_apart(one, str(given), data, execution.environment(), CELL)

    def call(number: int, arguments: Sequence[Any]) -> Any:
        right, result, slopes = _asked(ask, f"_answers.reply({number}, {answers.pickled(list(arguments))!r})")
        if not right:
            raise (ValueError if result.startswith("ValueError") else RuntimeError)(result)
        return answers.sloped(answers.decoded(result), slopes, arguments)

    try:
        return answers.verdict(one, answers.decoded(given, call), data)
    except Exception:  # no answer that `encoded` made
        return False


def _list(held: Any) -> list[Any]:
    return held if isinstance(held, list) else []


def _text(held: Any) -> str:
    """Return a text of a notebook's file, which is stored as a string or as a list of lines."""
    if isinstance(held, list):
        return "".join(part for part in held if isinstance(part, str))
    return held if isinstance(held, str) else ""
