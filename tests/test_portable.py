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
    found = [
        f"{path.relative_to(ROOT)}:{complaint}" for path in FILES
        for complaint in complaints(path.read_text(encoding="utf-8"), linux=path.is_relative_to(LINUX))
    ]  # fmt: skip
    assert len(FILES) > 100 and found == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("open(name, 'w')", "open without encoding"),
        ("subprocess.run(line, text=True)", "subprocess.run without encoding"),
        ("from fcntl import flock", "imports fcntl"),
        ("os.fork()", "os.fork is not on Windows"),
        ("path.read_text(encoding='utf-8'); open(name, 'rb'); os.open(path, os.O_RDONLY)", ""),
    ],
)
def test_what_would_fail_elsewhere_is_seen(line, said):
    assert complaints(line) == ([f"1: {said}"] if said else [])
