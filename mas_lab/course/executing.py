"""Notebooks run from top to bottom in a kernel of their own, short or at full length.

A notebook names its parameters in a cell tagged `parameters`: `SMOKE = True` is its short form. Leaves out: showing
what came of it.
"""

import os
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mas_lab.paths import PACKAGE

LIMIT = 1200
"""Seconds that one cell may take."""


class NotebookError(RuntimeError):
    """A cell that failed, by notebook, place and the last line of its error."""


def with_parameters(notebook: Any, values: Mapping[str, Any]) -> Any:
    """A copy in which the cell tagged `parameters` gives those names these values; names that it lacks stay out."""
    notebook = notebook.copy()
    notebook.cells = [cell.copy() for cell in notebook.cells]
    for cell in notebook.cells:
        if "parameters" in cell.metadata.get("tags", []):
            for name, value in values.items():
                cell.source = re.sub(rf"^{name} = \w+", f"{name} = {value!r}", cell.source, flags=re.MULTILINE)
    return notebook


def execute(notebook: Any, name: str, go_on: bool = False, limit: int = LIMIT) -> Any:
    """The notebook with its outputs, run in an empty folder of its own. NotebookError at the first cell that fails,
    which with `go_on` is part of the outputs instead."""
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    with tempfile.TemporaryDirectory() as folder:
        # A kernel would warn that it is reached over loopback, about which nobody here can do anything.
        quietly = ["--log-level=ERROR"]
        client = NotebookClient(
            notebook, timeout=limit, kernel_name="python3", allow_errors=go_on, extra_arguments=quietly
        )
        client.resources = {"metadata": {"path": folder}}
        try:
            return client.execute(env=_environment())
        except CellExecutionError as error:
            place = next((i for i, cell in enumerate(notebook.cells) if _failed(cell)), None)
            raise NotebookError(f"{name}, cell {place}: {error.ename}: {error.evalue}") from None
        except (CellTimeoutError, DeadKernelError) as error:
            raise NotebookError(f"{name}: {str(error).strip().splitlines()[0]}") from None


def _failed(cell: Any) -> bool:
    return any(output.output_type == "error" for output in cell.get("outputs", ()))


def _environment() -> dict[str, str]:
    """What a kernel starts with: this process's, and this `mas_lab` before any other."""
    paths = [str(PACKAGE.parent), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}


def same_cells(one: Any, other: Any) -> bool:
    """Do both have the same cells, whatever came of them?"""
    return [(c.cell_type, c.source) for c in one.cells] == [(c.cell_type, c.source) for c in other.cells]


def executed(notebook: Any, name: str, kept: Path | None, say: Callable[[str], None] = print) -> Any:
    """The notebook with its outputs: the copy in folder `kept` if that has the same cells, else run, and put there."""
    import nbformat

    copy = kept / f"{name}.ipynb" if kept else None
    if copy and copy.is_file():
        before = nbformat.read(copy, 4)
        if same_cells(before, notebook):
            say(f"{name}: taken from {kept}")
            return before
        say(f"{name}: the copy in {kept} has other cells")
    say(f"{name}: running")
    done = execute(notebook, name)
    if copy:
        copy.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(done, copy)
    return done
