"""Record the sha256 of a run's files in `manifest.txt`; a step counts as made once a line names it.

A line is JSON, a tab, and the sha256 of that JSON. The first line holds all files at the time the manifest was last
written anew. Each step appends a line. An incomplete line, left by a kill, does not count. Leaves out: the list of
files (`recorder`).
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mas_lab.runs.disk import Files, RunError, append, write_bytes
from mas_lab.table import TableError

MANIFEST = "manifest.txt"
DIGITS = 64
"""Hexadecimal digits of a sha256."""


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class Part:
    """A file of a run as it was written, alone or inside a larger file; reads are checked against its sha256."""

    root: Files
    name: str
    """Its path in the run: `turns/000007.parquet`."""
    sha256: tuple[str, ...] = ()
    """Accepted digests of its bytes: two while it is rewritten, none if it was not recorded."""
    file: str = ""
    """The file with other steps that it moved into; empty if it lies at its own path."""
    start: int = 0
    size: int = -1

    def __str__(self) -> str:
        return str(self.path) + (f" ({self.name})" if self.file else "")

    @property
    def path(self) -> Files:
        return self.root / (self.file or self.name)

    @property
    def step(self) -> int:
        return int(Path(self.name).stem)

    def read_bytes(self) -> bytes:
        """Return the bytes; raise `RunError` naming the file if it is missing or changed."""
        data = self.stored()
        if self.sha256 and digest(data) not in self.sha256:
            raise RunError(
                f"{self} is changed: its sha256 is not the one in {self.root / MANIFEST}; the file was damaged or "
                "edited, put it back as it was"
            )
        return data

    def stored(self) -> bytes:
        """Return the bytes as they are on disk, changed or not."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.start)
                return file.read(self.size)
        except FileNotFoundError:
            moved = Manifest(self.root).parts.get(self.name)  # a training may have moved it just now
            if moved and moved.file != self.file:
                return moved.stored()
            raise RunError(f"{self} is missing; put it back, or start again in another folder") from None
        except (RunError, TableError):
            raise
        except Exception as error:  # a damaged zip may raise anything
            raise RunError(f"{self} cannot be read ({error}); the file was damaged or edited") from None

    def entry(self) -> Any:
        """Return its entry in the manifest."""
        if not self.file:
            return list(self.sha256)
        return {"sha256": list(self.sha256), "file": self.file, "start": self.start, "size": self.size}


class Manifest:
    """The recorded files of a run by their names, as they are on disk now."""

    def __init__(self, root: Files):
        self.root, self.path = root, root / MANIFEST
        self._parts: dict[str, Part] = {}
        self._whole, self._stamp = True, None

    @property
    def parts(self) -> Mapping[str, Part]:
        """Return the recorded files by name; empty without a manifest, as in runs of format 2 and before."""
        stamp = self._now()
        if stamp != self._stamp:
            self._parts, self._whole = self._read() if stamp else ({}, True)
            self._stamp = stamp
        return self._parts

    def add(self, digests: Mapping[str, Iterable[str]]) -> None:
        """Record files that are in their places, all in one line, so that all of them count or none."""
        new = {name: Part(self.root, name, tuple(sha256)) for name, sha256 in digests.items()}
        parts = {**self.parts, **new}
        if self._stamp is None or not self._whole:
            return self.write_anew(parts)
        line = _line(new.values())
        append(self.path, line)
        before, self._stamp = self._stamp, self._now()
        self._parts = parts
        if self._stamp[1] != before[1] + len(line):  # another process added to it: read it again
            self._stamp = None

    def replace(self, name: str, data: bytes, before: Iterable[str] = ()) -> None:
        """Rewrite a recorded file; until it is complete, the digests `before` count as well."""
        self.add({name: (*before, digest(data))})
        write_bytes(self.root / name, data)
        self.add({name: (digest(data),)})

    def write_anew(self, parts: Mapping[str, Part]) -> None:
        """Record these files and no others."""
        write_bytes(self.path, _line(parts.values()))
        self._parts, self._whole, self._stamp = dict(parts), True, self._now()

    def _now(self) -> tuple[int, ...] | None:
        """Return a stamp that changes with the file, or `None` if there is no file."""
        if not isinstance(self.path, Path):
            return (0, 0, 0) if self.path.is_file() else None
        try:
            there = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return (there.st_ino, there.st_size, there.st_mtime_ns)

    def _read(self) -> tuple[dict[str, Part], bool]:
        """Return the parts, and whether the last line is complete."""
        *lines, last = Part(self.root, MANIFEST).stored().split(b"\n")
        parts: dict[str, Part] = {}
        for number, line in enumerate(lines, start=1):
            parts |= self._parsed(number, line)
        written = last.rstrip(b"\0")  # a file system may append zero bytes
        if len(written.partition(b"\t")[2]) >= DIGITS:  # only the end of the line is missing
            parts |= self._parsed(len(lines) + 1, written)
        return parts, not last

    def _parsed(self, number: int, line: bytes) -> dict[str, Part]:
        text, _, sha256 = line.partition(b"\t")
        if digest(text).encode() != sha256:
            raise RunError(f"{self.path}: line {number} is changed; the file was damaged or edited, put it back")
        try:
            return {name: _part(self.root, name, entry) for name, entry in json.loads(text).items()}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise RunError(f"{self.path}: line {number} was not written by mas_lab ({error!r})") from None


def manifest_of(digests: Mapping[str, str]) -> bytes:
    """Return the content of a manifest of files by their names."""
    return _line(Part(Path(), name, (sha256,)) for name, sha256 in digests.items())


def _line(parts: Iterable[Part]) -> bytes:
    text = json.dumps({part.name: part.entry() for part in parts}).encode()
    return text + b"\t" + digest(text).encode() + b"\n"


def _part(root: Files, name: str, entry: Any) -> Part:
    if isinstance(entry, list):
        return Part(root, name, tuple(map(str, entry)))
    where = str(entry["file"]), int(entry["start"]), int(entry["size"])
    return Part(root, name, tuple(map(str, entry["sha256"])), *where)
