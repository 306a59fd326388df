"""The place of the package's own files, `data/` and `notebooks/`, in a checkout or in a wheel; the digest of a file.

Leaves out: the contents of these folders, and the folder of runs (`run.runs_dir`).
"""

import hashlib
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def data_dir() -> Path:
    """Return the folder of pocket models, task files and recorded results: `data/`, or `mas_lab/_data` in a wheel."""
    return _own("_data", "data")


def notebooks_dir() -> Path:
    """Return the folder of the notebooks: `notebooks/`, or `mas_lab/_notebooks` in a wheel."""
    return _own("_notebooks", "notebooks")


def digest_of(path: Path) -> str:
    """Return the sha256 of a file, reading in pieces, since weights may be larger than free memory."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _own(in_wheel: str, in_checkout: str) -> Path:
    for folder in (PACKAGE / in_wheel, PACKAGE.parent / in_checkout):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(
        f"mas_lab: neither {PACKAGE / in_wheel} nor {PACKAGE.parent / in_checkout} is there; reinstall the package"
    )
