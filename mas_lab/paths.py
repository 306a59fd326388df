"""Where the package's own data lies: pocket models, task files, recorded results. Leaves out: where runs go (`run`)."""

from pathlib import Path


def data_dir() -> Path:
    """`data/` beside the package in a checkout, `mas_lab/_data` in an installed wheel."""
    packaged = Path(__file__).parent / "_data"
    return packaged if packaged.is_dir() else Path(__file__).parent.parent / "data"
