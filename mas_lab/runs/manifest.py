"""Record the sha256 of every file of a run in `manifest.txt`; a step counts as made once it names the step's tables.

It is one line: JSON, a tab, and the sha256 of that JSON. Other files never change: new content has a new name, and
counts from the moment at which a new manifest replaces the old one. Leaves out: the list of files (`recorder`).
"""

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mas_lab.runs.disk import Files, RunError, write_bytes

MANIFEST = "manifest.txt"
TABLES, SCORES = ("turns", "stats"), "scores"
"""Folders of the tables of training steps, and of held-out scores, see `scores.keep_scores`."""

NAME = re.compile(r"(?:turns|stats)/([0-9]{6,9})(?:-([0-9]{6,9}))?\.parquet|scores/([0-9]{6,9})-[0-9a-f]{8}\.parquet")
"""Names of tables: `turns/000007.parquet`, `turns/000000-000099.parquet`, and `scores/000002-1f2e3d4c.parquet`, where
the step is followed by the beginning of the sha256."""

OTHERS = ("run.json", "uphill.json", "watch.json", "tokens.json")
"""Names of the other files that a manifest may list."""
SHA256 = re.compile("[0-9a-f]{64}")


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class Part:
    """A recorded file of a run; reads are checked against its sha256."""

    root: Files
    name: str
    """Its path in the run: `turns/000007.parquet`, or `turns/000000-000099.parquet` for a hundred steps."""
    sha256: str
    steps: range | None = None
    """The steps that are read of a file of `TABLES`."""

    def __str__(self) -> str:
        return str(self.path)

    @property
    def path(self) -> Files:
        return self.root / self.name

    @property
    def step(self) -> int:
        """Return the first step that the file is about."""
        return steps_of(self.name).start

    def read_bytes(self) -> bytes:
        """Return the bytes; raise `RunError` naming the file if it is missing or changed."""
        try:
            data = self.path.read_bytes()
        except (FileNotFoundError, KeyError):
            raise RunError(f"{self} is missing; put it back, or start again in another folder") from None
        except MemoryError:
            raise
        except Exception as error:  # a damaged zip may raise anything
            raise RunError(f"{self} cannot be read ({error!s:.300}); the file was damaged or edited") from None
        if digest(data) != self.sha256:
            raise RunError(f"{self} is changed: {MANIFEST} has another sha256; put the file back as it was")
        return data


def steps_of(name: str) -> range:
    """Return the steps in the name of a table; ValueError if no table has such a name."""
    if not (found := NAME.fullmatch(name)):
        raise ValueError(f"a file named {name!r:.100}")
    first = int(found[1] or found[3])
    return range(first, int(found[2] or first) + 1)


def manifest_of(files: Mapping[str, str], continued: Sequence[Mapping[str, Any]] = ()) -> bytes:
    """Return the content of a manifest: the sha256 of each file by its name, and `Manifest.continued`."""
    text = json.dumps({"files": files, "continued": continued}).encode()
    return text + b"\t" + digest(text).encode() + b"\n"


class Manifest:
    """The recorded files of a run, as they are on disk now."""

    def __init__(self, root: Files):
        self.root, self.path = root, root / MANIFEST
        self._stamp: Any = None
        self._forget()

    def _forget(self) -> None:
        self._files: dict[str, str] = {}
        self._parts: dict[str, list[Part]] = {name: [] for name in (*TABLES, SCORES)}
        self._continued: list[dict[str, Any]] = []

    @property
    def files(self) -> Mapping[str, str]:
        """Return the sha256 of each file by its path in the run; empty without a manifest."""
        self._refresh()
        return self._files

    @property
    def continued(self) -> list[dict[str, Any]]:
        """Return from which steps on the run used other code, versions or devices than run.json names."""
        self._refresh()
        return self._continued

    def part(self, name: str) -> Part:
        if name not in self.files:
            raise RunError(f"{self.root / name} is not recorded in {self.path}; it was put there by hand")
        return Part(self.root, name, self.files[name])

    def parts(self, folder: str) -> list[Part]:
        """Return the files of one table, in the order of their steps."""
        self._refresh()
        return self._parts[folder]

    def add(
        self, new: Mapping[str, str], drop: Collection[str] = (), continued: list[dict[str, Any]] | None = None
    ) -> None:
        """Record files that are in their places and forget others, so that all of this counts or nothing."""
        files = {name: sha256 for name, sha256 in self.files.items() if name not in drop}
        write_bytes(self.path, manifest_of(files | dict(new), self.continued if continued is None else continued))

    def _refresh(self) -> None:
        """Read the file again if it changed."""
        try:
            there = self.path.stat() if isinstance(self.path, Path) else None
            stamp = (there.st_ino, there.st_size, there.st_mtime_ns) if there else 0
            if stamp != self._stamp:
                self._parse(self.path.read_bytes())
                self._stamp = stamp
        except (FileNotFoundError, NotADirectoryError, KeyError):
            self._stamp = None
            self._forget()

    def _parse(self, data: bytes) -> None:
        text, _, sha256 = data.partition(b"\t")
        if digest(text).encode() + b"\n" != sha256:
            raise RunError(f"{self.path} is changed; the file was damaged or edited, put it back as it was")
        try:
            data = json.loads(text)
            self._files, self._continued = dict(data["files"]), list(data["continued"])
            for name, sha256 in self._files.items():
                if not (name in OTHERS or NAME.fullmatch(name)) or not SHA256.fullmatch(sha256):
                    raise ValueError(f"a file named {name!r:.100} with the sha256 {sha256!r:.70}")
            self._parts = {folder: list(self._in(folder)) for folder in (*TABLES, SCORES)}
        except Exception as error:
            raise RunError(f"{self.path} was not written by mas_lab ({error!r:.300})") from None

    def _in(self, folder: str) -> Iterator[Part]:
        """Yield the files of a table; ValueError names a step that is missing."""
        end = 0
        for name in sorted(name for name in self._files if name.startswith(folder)):
            steps = steps_of(name)
            if folder in TABLES and steps.start != end:
                raise ValueError(f"step {end} of {folder} is missing")
            end = steps.stop
            yield Part(self.root, name, str(self._files[name]), steps if folder in TABLES else None)
