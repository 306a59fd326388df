"""The package grows no further, its imports run downwards only and in no circle, and it has all it needs on macOS or
Windows."""

import ast
import re
import tomllib
from collections.abc import Iterator
from graphlib import TopologicalSorter
from importlib.util import find_spec
from pathlib import Path

import pytest

import mas_lab

ROOT = Path(mas_lab.__file__).parent
FLOORS = (
    ("paths", "plain", "display", "arguments", "lazy"),
    ("table", "describe", "env", "policy", "locks", "losses", "child", "tool_calls", "check"),
    ("backends",),
    ("team",),
    ("cells",),
    ("recipes",),
    ("explain",),
    ("runs",),
    ("tasks",),
    ("train",),
    ("study",),
    ("widgets", "course"),
    ("pocket", "demo", "doctor", "hosted"),
    ("contrib",),
    ("__main__", "__init__"),
)
"""From the ground up. Files may use files of their floor; a room (a folder) only uses floors below its own."""
ROOMS = {path.parent.name for path in ROOT.glob("*/__init__.py") if not path.parent.name.startswith("_data")}
FLOOR_OF = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
LINUX = ROOT / "backends/vllm"
"""vLLM has no build for Windows."""
ELSEWHERE = {"fcntl", "resource", "pwd", "grp", "termios", "msvcrt", "winreg", "_winapi"}
"""Modules that one system alone has."""
POSIX = {
    "os.fork", "os.forkpty", "os.killpg", "os.getpgid", "os.setsid", "os.getuid", "os.uname", "os.mkfifo",
    "os.register_at_fork", "signal.SIGKILL", "signal.SIGALRM", "signal.alarm", "signal.pause", "signal.SIGUSR1",
}  # fmt: skip


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


def code_lines(*paths: Path) -> int:
    """Count the lines of code: no blank ones, no comments, no docstrings."""
    total = 0
    for path in paths:
        text, skipped = path.read_text(encoding="utf-8"), set()
        for node in ast.walk(ast.parse(text)):
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                skipped |= {*range(node.lineno, node.end_lineno + 1)}
        lines = enumerate(text.splitlines(), 1)
        total += sum(bool(line.strip()) and number not in skipped and line.strip()[0] != "#" for number, line in lines)
    return total


def words(*paths: Path) -> int:
    return sum(len(path.read_text(encoding="utf-8").split()) for path in paths)


@pytest.mark.skipif(not (ROOT.parent / "docs").is_dir(), reason="no checkout")
def test_the_house_does_not_grow():
    """tests/house.toml has the most of each. Who makes something smaller lowers its number."""
    top, package = ROOT.parent, [path for path in ROOT.rglob("*.py") if "_data" not in path.parts]
    size = {
        "mas_lab": code_lines(*package),
        "core": code_lines(*(one for one in package if one.relative_to(ROOT).parts[0] not in ("contrib", "course"))),
        "tests": code_lines(*(top / "tests").rglob("*.py")),
        "names": len(mas_lab.__all__),
        "docs": words(*(top / "docs").rglob("*.md")),
        "readme": words(top / "README.md"),
    }
    most = tomllib.loads((top / "tests" / "house.toml").read_text(encoding="utf-8"))
    grown = {name: f"{size[name]}, at most {most[name]}" for name in most if size[name] > most[name]}
    assert not grown, "take as much away as you add (CONTRIBUTING, 'Less is better')"
    assert size.keys() == most.keys()


def test_imports_run_downwards_only():
    known, wrong = modules(), []
    assert {name.partition(".")[0] for name in known} == set(FLOOR_OF)
    for name, path in known.items():
        room = name.partition(".")[0]
        for line, other in used(path, known):
            above = other.partition(".")[0]
            sideways = FLOOR_OF[above] == FLOOR_OF[room] and {room, above} & ROOMS
            if above != room and (sideways or FLOOR_OF[above] > FLOOR_OF[room]):
                wrong.append(f"{path.relative_to(ROOT.parent)}, line {line}: {room} imports {other}, not below it")
    assert not wrong, "\n".join(wrong)


def tree_of(page: str) -> list[str]:
    """Return the rooms and files below `mas_lab/` in the tree of a page, from top to bottom."""
    text = (ROOT.parent / page).read_text(encoding="utf-8")
    block = next(part for part in text.split("```")[1::2] if part.startswith("\nmas_lab/"))
    lines = re.findall(r"^ {4}(.*)$", block, re.MULTILINE)
    return [
        name.removesuffix(".py").rstrip("/") for line in lines for name in re.findall(r"\w+/(?=\s)|\w+\.py|\w+/$", line)
    ]


def test_the_tree_for_contributors_has_every_room_and_runs_down_the_floors():
    assert {*ROOMS} <= {*tree_of("CONTRIBUTING.md")} <= {*FLOOR_OF}
    floors = [FLOOR_OF[name] for name in tree_of("CONTRIBUTING.md")]
    assert floors == sorted(floors, reverse=True)


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


def complaints(source: str, linux: bool = False) -> list[str]:
    """What of this code would not do on every system."""
    found, tree = [], ast.parse(source)
    guards = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "hasattr(os, " in ast.unparse(node.test)]
    guarded = {part for guard in guards for part in ast.walk(guard)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            found += [f"{node.lineno}: imports {name}" for name in names if name.split(".")[0] in ELSEWHERE]
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in POSIX and not linux and node not in guarded:
            found.append(f"{node.lineno}: {ast.unparse(node)} is not on Windows")
        elif isinstance(node, ast.Call) and "encoding" not in (given := [word.arg for word in node.keywords]):
            name = ast.unparse(node.func)
            modes = [one.value for one in node.args if isinstance(one, ast.Constant)]
            text = name.endswith((".read_text", ".write_text")) or (name == "open" and "b" not in "".join(modes[-1:]))
            if text or (name.startswith("subprocess.") and "text" in given):
                found.append(f"{node.lineno}: {name} without encoding")
    return found


def test_no_module_asks_for_what_one_system_lacks():
    files = modules().values()
    found = [
        f"{path}:{complaint}" for path in files
        for complaint in complaints(path.read_text(encoding="utf-8"), linux=path.is_relative_to(LINUX))
    ]  # fmt: skip
    assert len(files) > 100 and found == []


@pytest.mark.parametrize(("line", "said"), [
    ("open(name, 'w')", "open without encoding"),
    ("subprocess.run(line, text=True)", "subprocess.run without encoding"),
    ("from fcntl import flock", "imports fcntl"), ("os.fork()", "os.fork is not on Windows"),
    ("path.read_text(encoding='utf-8'); open(name, 'rb'); os.open(path, os.O_RDONLY)", ""),
])  # fmt: skip
def test_what_would_fail_elsewhere_is_seen(line, said):
    assert complaints(line) == ([f"1: {said}"] if said else [])
