"""Registry whose entries are imported at their first use, so that to name many modules costs no import."""

from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any

from mas_lab.arguments import did_you_mean


class Registry(MutableMapping[str, Any]):
    """Dictionary by name; a value `Entry("module:attribute")` is imported when it is first read."""

    def __init__(self, entries: Mapping[str, Any]):
        self._entries = dict(entries)

    def __getitem__(self, name: str) -> Any:
        if name not in self._entries:
            meant = did_you_mean(name, self._entries)
            raise KeyError(f"{name!r} is not known; {meant}known are {', '.join(self._entries)}")
        value = self._entries[name]
        if isinstance(value, Entry):
            self._entries[name] = value = value.load()
        return value

    def __setitem__(self, name: str, value: Any) -> None:
        self._entries[name] = value

    def __delitem__(self, name: str) -> None:
        del self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return repr(dict(self))


class Entry(str):
    """The place of an object, `module:attribute`."""

    def load(self) -> Any:
        """Import and return the object."""
        module, _, attribute = self.partition(":")
        return getattr(import_module(module), attribute)
