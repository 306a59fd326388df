"""What macOS and Windows would stumble over, by the letter of the code: how texts are coded, and what
only one system has. Leaves out: running there.
"""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "mas_lab").rglob("*.py"))
LINUX = ROOT / "mas_lab/backends/vllm"
"""vLLM has no build for Windows."""
ELSEWHERE = {"fcntl", "resource", "pwd", "grp", "termios", "msvcrt", "winreg", "_winapi"}
"""Modules that one system alone has."""
POSIX = {
    "os.fork", "os.forkpty", "os.killpg", "os.getpgid", "os.setsid", "os.getuid", "os.uname", "os.mkfifo",
    "os.register_at_fork", "signal.SIGKILL", "signal.SIGALRM", "signal.alarm", "signal.pause", "signal.SIGUSR1",
}  # fmt: skip
TEXT_MODES = {"", "r", "w", "a", "x", "rt", "wt", "r+", "w+"}


def complaints(source: str, linux: bool = False) -> list[str]:
    """What of this code would not do on every system."""
    found, tree = [], ast.parse(source)
    guarded = {part for node in ast.walk(tree) if _asks_first(node) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            found += [f"{node.lineno}: imports {name}" for name in names if name.split(".")[0] in ELSEWHERE]
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in POSIX and not linux and node not in guarded:
            found.append(f"{node.lineno}: {ast.unparse(node)} is not on Windows")
        elif isinstance(node, ast.Call):
            found += [f"{node.lineno}: {what}" for what in _of_call(node)]
    return found


def _asks_first(node: ast.AST) -> bool:
    """`if hasattr(os, "killpg"): ...`"""
    return isinstance(node, ast.If) and ast.unparse(node.test).startswith("hasattr(os, ")


def _of_call(call: ast.Call) -> list[str]:
    name = ast.unparse(call.func).rpartition(".")[2]
    given = {word.arg: word.value for word in call.keywords}
    if name in ("read_text", "write_text") and "encoding" not in given:
        return [f"{name} without encoding"]
    if name == "open" and "encoding" not in given and _mode(call, given) in TEXT_MODES and not _is_os_open(call):
        return ["open without encoding"]
    if name in ("run", "Popen", "check_output") and "text" in given and "encoding" not in given:
        return [f"{name} reads text without encoding"]
    return []


def _mode(call: ast.Call, given: dict) -> str:
    place = call.args[0 if isinstance(call.func, ast.Attribute) else 1 :]
    mode = given.get("mode", place[0] if place else ast.Constant(""))
    return mode.value if isinstance(mode, ast.Constant) else "unknown"  # or the name of a zip's member


def _is_os_open(call: ast.Call) -> bool:
    return ast.unparse(call.func) in ("os.open", "webbrowser.open", "Image.open")


def test_no_module_asks_for_what_one_system_lacks():
    found = [
        f"{path.relative_to(ROOT)}:{complaint}" for path in FILES
        for complaint in complaints(path.read_text(encoding="utf-8"), linux=path.is_relative_to(LINUX))
    ]  # fmt: skip
    assert len(FILES) > 100 and found == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("open(name, 'w')", "open without encoding"),
        ("subprocess.run(line, text=True)", "run reads text without encoding"),
        ("from fcntl import flock", "imports fcntl"),
        ("os.fork()", "os.fork is not on Windows"),
        ("path.read_text(encoding='utf-8'); open(name, 'rb'); os.open(path, os.O_RDONLY)", ""),
    ],
)
def test_what_would_fail_elsewhere_is_seen(line, said):
    assert complaints(line) == ([f"1: {said}"] if said else [])
