"""Pack a run into one zip to hand in: its tables and its description, without weights.

Leaves out: how a zip is read (`run`).
"""

import zipfile
from pathlib import Path

from mas_lab.arguments import check_arguments
from mas_lab.runs.disk import RunError, Unwritten, atomic, dumps, remedy, writing
from mas_lab.runs.manifest import MANIFEST, Part, digest, manifest_of
from mas_lab.runs.run import TOKENS, WATCH, Run, load_run


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
    try:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        with atomic(path) as staged, zipfile.ZipFile(staged, "w", zipfile.ZIP_DEFLATED) as archive:
            _write_zip(run, archive)
    except Unwritten as error:
        raise RunError(f"{error}; the run is as it was: {remedy(error)}, or choose another place") from error
    return path


def _write_zip(run: Run, archive: zipfile.ZipFile) -> None:
    files, continued = dict(run.manifest.files), run.manifest.continued
    own = {WATCH: run.watched(), TOKENS: run.token_texts()}
    replaced = {name: dumps(data, run.folder / name).encode() for name, data in own.items() if data}
    for name, sha256 in files.items():
        if name not in replaced:
            archive.writestr(name, Part(run.folder, name, sha256).read_bytes())
    for name, data in replaced.items():
        archive.writestr(name, data)
        files[name] = digest(data)
    archive.writestr(MANIFEST, manifest_of(files, continued))
