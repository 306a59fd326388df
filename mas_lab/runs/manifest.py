"""What a run's files hold, by their sha256: `manifest.txt`, where a step counts as made from the line that names it.

A line is JSON, a tab, and the sha256 of that JSON. The first holds all that was there when the file was last written
anew, each step appends one; what a kill left of a line does not count. Leaves out: which files there are (`recorder`).
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
"""Of a sha256."""


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class Part:
    """A file of a run as it was written, by itself or inside a larger one; read like a path, and checked where it was
    recorded."""

    root: Files
    name: str
    """Its place in the run: `turns/000007.parquet`."""
    sha256: tuple[str, ...] = ()
    """Of its bytes: one of these (two while it is written anew), none if nobody recorded it."""
    file: str = ""
    """The file with other steps that it moved into; empty: it stands in its place."""
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
        """Raises `RunError` naming the file where it is missing or changed."""
        data = self.stored()
        if self.sha256 and digest(data) not in self.sha256:
            raise RunError(
                f"{self} is changed: its sha256 is not the one in {self.root / MANIFEST}; the file was damaged or "
                "edited, put it back as it was"
            )
        return data

    def stored(self) -> bytes:
        """Its bytes as they are, changed or not."""
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
        except Exception as error:  # a damaged zip raises anything
            raise RunError(f"{self} cannot be read ({error}); the file was damaged or edited") from None

    def entry(self) -> Any:
        """What the manifest says of it."""
        if not self.file:
            return list(self.sha256)
        return {"sha256": list(self.sha256), "file": self.file, "start": self.start, "size": self.size}


class Manifest:
    """The recorded files of a run by their names, as they stand on disk now."""

    def __init__(self, root: Files):
        self.root, self.path = root, root / MANIFEST
        self._parts: dict[str, Part] = {}
        self._whole, self._stamp = True, None

    @property
    def parts(self) -> Mapping[str, Part]:
        """Empty where there is no manifest, as in runs of format 2 and before."""
        stamp = self._now()
        if stamp != self._stamp:
            self._parts, self._whole = self._read() if stamp else ({}, True)
            self._stamp = stamp
        return self._parts

    def add(self, digests: Mapping[str, Iterable[str]]) -> None:
        """Record files that stand in their places, in one line: all of them, or none."""
        new = {name: Part(self.root, name, tuple(sha256)) for name, sha256 in digests.items()}
        parts = {**self.parts, **new}
        if self._stamp is None or not self._whole:
            return self.write_anew(parts)
        line = _line(new.values())
        append(self.path, line)
        before, self._stamp = self._stamp, self._now()
        self._parts = parts
        if self._stamp[1] != before[1] + len(line):  # somebody else added to it: read it again
            self._stamp = None

    def replace(self, name: str, data: bytes, before: Iterable[str] = ()) -> None:
        """Write a recorded file anew. Until it stands, what stood there `before` counts as well."""
        self.add({name: (*before, digest(data))})
        write_bytes(self.root / name, data)
        self.add({name: (digest(data),)})

    def write_anew(self, parts: Mapping[str, Part]) -> None:
        """Record these files and no others."""
        write_bytes(self.path, _line(parts.values()))
        self._parts, self._whole, self._stamp = dict(parts), True, self._now()

    def _now(self) -> tuple[int, ...] | None:
        """Another one where the file is another one; None where there is none."""
        if not isinstance(self.path, Path):
            return (0, 0, 0) if self.path.is_file() else None
        try:
            there = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return (there.st_ino, there.st_size, there.st_mtime_ns)

    def _read(self) -> tuple[dict[str, Part], bool]:
        """The parts, and whether the last line is whole."""
        *lines, last = Part(self.root, MANIFEST).stored().split(b"\n")
        parts: dict[str, Part] = {}
        for number, line in enumerate(lines, start=1):
            parts |= self._parsed(number, line)
        written = last.rstrip(b"\0")  # a file system may have made room for more than it wrote
        if len(written.partition(b"\t")[2]) >= DIGITS:  # nothing is missing but the end of the line
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
    """A manifest of files by their names."""
    return _line(Part(Path(), name, (sha256,)) for name, sha256 in digests.items())


def _line(parts: Iterable[Part]) -> bytes:
    text = json.dumps({part.name: part.entry() for part in parts}).encode()
    return text + b"\t" + digest(text).encode() + b"\n"


def _part(root: Files, name: str, entry: Any) -> Part:
    if isinstance(entry, list):
        return Part(root, name, tuple(map(str, entry)))
    where = str(entry["file"]), int(entry["start"]), int(entry["size"])
    return Part(root, name, tuple(map(str, entry["sha256"])), *where)
