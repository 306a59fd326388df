"""Pack a run into one zip to hand in: its tables and its description, without weights.

Leaves out: how a zip is read (`run`).
"""

import zipfile
from pathlib import Path

from mas_lab.arguments import check_arguments
from mas_lab.runs.disk import atomic, hashed, read_bytes
from mas_lab.runs.run import EXPORTED, SCORES, TABLES, Run, load_run


def export(run: Run | str | Path, path: str | Path) -> Path:
    """Write a run as one zip to hand in.

    It holds the run's tables and description, without weights. It also holds the records of a `SpikeWatch` and the text
    of every sampled token, for the instruments.

    Args:
        run: A `Run`, or the path of a run's folder or zip.
        path: The zip to write.

    Returns:
        The path of the zip.

    Raises:
        RunError: The run cannot be read, or the disk cannot be written.
        ValueError: `path` does not end in .zip.
    """
    check_arguments(export, locals())
    if Path(path).suffix != ".zip":
        raise ValueError(f"export: path={str(path)!r}; a run becomes a zip, so give a name that ends in .zip")
    run, path = run if isinstance(run, Run) else load_run(run), Path(path)
    tables = {f"{name}/{part.name}": part for name in (*TABLES, SCORES) for part in run.parts(name)}
    exported = {"files": list(tables), "watch": run.watched(), "tokens": run.token_texts()}
    with atomic(path) as staged, zipfile.ZipFile(staged, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {"run.json": run.config, EXPORTED: exported}.items():
            archive.writestr(name, hashed(data, run.folder / name))
        for name, part in tables.items():
            archive.writestr(name, read_bytes(part))
    return path
