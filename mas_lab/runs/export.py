"""Export a run as one file: a zip that a student hands in, or a log for the viewer of Inspect.

Leaves out: reading such a zip (`zips`), and the format of such a log (`inspect_log`).
"""

import zipfile
from collections.abc import Iterator
from pathlib import Path

from mas_lab.runs.disk import RunError, Unwritten, dumps, whole, writing
from mas_lab.runs.inspect_log import write_log
from mas_lab.runs.manifest import MANIFEST, digest, manifest_of
from mas_lab.runs.run import TABLES, TOKENS, WATCH, Run, load_run
from mas_lab.runs.scores import SCORES


def export(run: Run | str | Path, path: str | Path, traces: int | None = None) -> Path:
    """Write a run to one file, and return its path.

    A zip holds the run's tables and description, without weights: students hand it in. It also holds what a
    `SpikeWatch` recorded and the text of every sampled token, for the instruments. A log of Inspect holds a sample per
    episode and a model event per call; `inspect view` opens it.

    Args:
        run: A run, its folder, or its name under `runs_dir()`.
        path: The file to write. A name that ends in `.eval` gives a log of Inspect, any other a zip.
        traces: For a log, the number of episodes of each step, the most informative ones. Default: all.

    Returns:
        The path of the file.

    Raises:
        ValueError: `traces` is given for a zip, or is not a count from 1.
        RunError: The run cannot be read, or the file cannot be written.
    """
    run = run if isinstance(run, Run) else load_run(run)
    target = Path(path)
    is_log = target.suffix == ".eval"
    if traces is not None and not is_log:
        raise ValueError(f"export: traces={traces!r} is for a log, whose name ends in .eval; {target} is a zip of all")
    if traces is not None and (not isinstance(traces, int) or isinstance(traces, bool) or traces < 1):
        raise ValueError(f"export: traces={traces!r}; say how many episodes of each step, 1 or more, or None for all")
    try:
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
        with whole(target) as staged, zipfile.ZipFile(staged, "w", zipfile.ZIP_DEFLATED) as archive:
            if is_log:
                write_log(run, archive, traces)
            else:
                _write_zip(run, archive)
    except Unwritten as error:
        raise RunError(f"{error}; the run is as it was: free space, or choose another place") from error
    return target


def _write_zip(run: Run, archive: zipfile.ZipFile) -> None:
    digests = {}
    for name, data in _exported(run):
        archive.writestr(name, data)
        digests[name] = digest(data)
    archive.writestr(MANIFEST, manifest_of(digests))


def _exported(run: Run) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of each file of a zip, where each step is a file of its own."""
    yield "run.json", run._file("run.json").read_bytes()
    for name, held in ((WATCH, run.watched()), (TOKENS, run.token_texts())):
        if held:
            yield name, dumps(held, run.folder / name).encode()
    for name in (*TABLES, SCORES):
        for part in run.parts(name):
            yield part.name, part.read_bytes()
