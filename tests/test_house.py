"""Imports of the package run downwards only, and in no circle."""

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from importlib.util import find_spec
from pathlib import Path

import mas_lab

ROOT = Path(mas_lab.__file__).parent
FLOORS = (
    ("paths", "plain", "display", "arguments"),
    ("table", "fingerprint", "env", "policy", "team", "locks"),
    ("cells", "backends", "check"),
    ("explain", "recipes"),
    ("runs",),
    ("tasks",),
    ("train",),
    ("study",),
    ("widgets", "course", "bridges"),
    ("pocket", "__main__", "demo", "doctor", "hosted", "__init__"),
)
"""From the ground up. Rooms of one floor may use each other; what stands in a room is free within it."""
FLOOR_OF = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}


def modules() -> dict[str, Path]:
    """Dotted name below `mas_lab` -> file; a package by its folder's name."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if not parts[0].startswith("_data"):
            found[".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)] = path
    return found


def imports(tree: ast.AST) -> Iterator[tuple[int, str, list[str]]]:
    """(line, module, names) of every import, within functions and for types alone too."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ImportFrom):
            yield node.lineno, node.module or "", [alias.name for alias in node.names]
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, []) for alias in node.names)
        yield from imports(node)


def used(path: Path, known: dict[str, Path]) -> Iterator[tuple[int, str]]:
    """(line, dotted name below `mas_lab`) of what a file imports of the package."""
    for line, module, names in imports(ast.parse(path.read_text(encoding="utf-8"))):
        if module.partition(".")[0] != "mas_lab":
            continue
        within = module.partition(".")[2]
        inner = [f"{within}.{name}".strip(".") for name in names]
        parts = [name for name in inner if name in known]
        yield from ((line, part) for part in parts)
        if len(parts) < max(1, len(names)):
            yield line, within or "__init__"


def test_imports_run_downwards_only():
    known, wrong = modules(), []
    assert {name.partition(".")[0] for name in known} == set(FLOOR_OF)
    for name, path in known.items():
        room = name.partition(".")[0]
        for line, other in used(path, known):
            above = other.partition(".")[0]
            if above != room and FLOOR_OF[above] > FLOOR_OF[room]:
                wrong.append(f"{path.relative_to(ROOT.parent)}, line {line}: {room} imports {other}, a floor above it")
    assert not wrong, "\n".join(wrong)


def test_what_is_imported_is_there():
    """Also where a function imports."""
    for path in modules().values():
        for line, module, names in imports(ast.parse(path.read_text(encoding="utf-8"))):
            if module.partition(".")[0] == "mas_lab" and find_spec(module).origin:
                text = Path(find_spec(module).origin).read_text(encoding="utf-8")
                missing = [name for name in names if not re.search(rf"\b{name}\b", text)
                           and not find_spec(f"{module}.{name}")]  # fmt: skip
                assert not missing, f"{path}, line {line}: {module} has no {missing}"


def test_no_circle_of_imports():
    """Lazy imports count: two files that need each other are one file, or want a third."""
    known = modules()
    below = {name: {other for _, other in used(path, known)} - {name} for name, path in known.items()}
    TopologicalSorter(below).prepare()  # a CycleError names the modules
