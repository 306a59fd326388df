"""Running notebooks from top to bottom in a separate kernel, in short form or at full length.

A notebook defines its parameters in a cell tagged `parameters`; `SMOKE = True` is its short form. Leaves out: showing
the results.
"""

import os
import re
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mas_lab.paths import PACKAGE

Ask = Callable[[str], str]
LIMIT = 1200
"""Time limit of one cell in seconds."""


class NotebookError(RuntimeError):
    """Error for a cell that failed, with the notebook, the place and the last line of the error."""


def with_parameters(notebook: Any, values: Mapping[str, Any]) -> Any:
    """Return a copy with these values in the cell tagged `parameters`; unknown names are ignored."""
    notebook = notebook.copy()
    notebook.cells = [cell.copy() for cell in notebook.cells]
    for cell in notebook.cells:
        if "parameters" in cell.metadata.get("tags", []):
            for name, value in values.items():
                cell.source = re.sub(rf"^{name} = \w+", f"{name} = {value!r}", cell.source, flags=re.MULTILINE)
    return notebook


def execute(
    notebook: Any, name: str, go_on: bool = False, limit: int = LIMIT, then: Callable[[Ask], None] | None = None
) -> Any:
    """Run a notebook in a new, empty folder, and return it with its outputs.

    `then` is called at the end with a function that runs more source in the kernel and returns what that prints. Raises
    NotebookError at the first cell that fails. With `go_on`, that error is part of the outputs instead.
    """
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    with tempfile.TemporaryDirectory() as folder:
        # The kernel would warn about its loopback connection, which cannot be avoided here.
        quietly = ["--log-level=ERROR"]
        client = NotebookClient(
            notebook, timeout=limit, kernel_name="python3", allow_errors=go_on, extra_arguments=quietly
        )
        client.resources = {"metadata": {"path": folder}}
        try:
            with client.setup_kernel(env=environment()):
                done = client.execute(cleanup_kc=False)
                if then:
                    then(lambda source: _printed(client, source))
                return done
        except CellExecutionError as error:
            place = next((i for i, cell in enumerate(notebook.cells) if _failed(cell)), None)
            raise NotebookError(f"{name}, cell {place}: {error.ename}: {error.evalue}") from None
        except (CellTimeoutError, DeadKernelError) as error:
            raise NotebookError(f"{name}: {str(error).strip().splitlines()[0]}") from None


def _printed(client: Any, source: str) -> str:
    """Run source in the kernel of a notebook, and return what it prints."""
    from nbformat.v4 import new_code_cell

    cell = new_code_cell(source)
    client.nb.cells.append(cell)
    client.execute_cell(cell, len(client.nb.cells) - 1)
    return "".join(output.text for output in client.nb.cells.pop().outputs if output.get("name") == "stdout")


def _failed(cell: Any) -> bool:
    return any(output.output_type == "error" for output in cell.get("outputs", ()))


def environment() -> dict[str, str]:
    """Return the kernel's environment variables: those of this process, with this `mas_lab` first."""
    paths = [str(PACKAGE.parent), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths))}


def same_cells(one: Any, other: Any) -> bool:
    """Return whether both have the same cells, whatever their outputs are."""
    return [(c.cell_type, c.source) for c in one.cells] == [(c.cell_type, c.source) for c in other.cells]


def executed(notebook: Any, name: str, kept: Path | None, say: Callable[[str], None] = print) -> Any:
    """Return the notebook with its outputs: the copy in folder `kept` if that has the same cells.

    Otherwise the notebook is run, and stored there.
    """
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
