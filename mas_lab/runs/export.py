"""Export a run as a zip, which a student hands in.

Leaves out: reading such a zip (`run`).
"""

import zipfile
from pathlib import Path

from mas_lab.runs.disk import RunError, Unwritten, dumps, whole, writing
from mas_lab.runs.manifest import MANIFEST, Part, digest, manifest_of
from mas_lab.runs.run import TOKENS, WATCH, Run, load_run


def export(run: Run | str | Path, path: str | Path) -> Path:
    """Write a run to one zip, and return its path.

    It holds the run's tables and description, without weights. It also holds what a `SpikeWatch` recorded and the text
    of every sampled token, for the instruments.

    Args:
        run: A run, its folder, or its name under `runs_dir()`.
        path: The file to write.

    Returns:
        The path of the file.

    Raises:
        RunError: The run cannot be read, or the file cannot be written.
    """
    run = run if isinstance(run, Run) else load_run(run)
    target = Path(path)
    try:
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
        with whole(target) as staged, zipfile.ZipFile(staged, "w", zipfile.ZIP_DEFLATED) as archive:
            _write(run, archive)
    except Unwritten as error:
        raise RunError(f"{error}; the run is as it was: free space, or choose another place") from error
    return target


def _write(run: Run, archive: zipfile.ZipFile) -> None:
    files, continued = dict(run.manifest.files), run.manifest.continued
    own = {WATCH: run.watched(), TOKENS: run.token_texts()}
    held = {name: dumps(data, run.folder / name).encode() for name, data in own.items() if data}
    for name, sha256 in files.items():
        if name not in held:
            archive.writestr(name, Part(run.folder, name, sha256).read_bytes())
    for name, data in held.items():
        archive.writestr(name, data)
        files[name] = digest(data)
    archive.writestr(MANIFEST, manifest_of(files, continued))
