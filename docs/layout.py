"""Write the layout in CONTRIBUTING.md, a line per module from its docstring: `python docs/layout.py`."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE, PACKAGE = ROOT / "CONTRIBUTING.md", ROOT / "mas_lab"
START, END = "\nmas_lab/\n", "```"
WIDTH = 118


def layout(folder: Path = PACKAGE, depth: int = 1) -> list[str]:
    """Return the lines of a folder: its modules in alphabetical order, then its folders."""
    modules = [path for path in sorted(folder.glob("*.py")) if path.name != "__init__.py"]
    lines = [_line(path.name, path, depth) for path in modules]
    for inner in sorted(path.parent for path in folder.glob("*/__init__.py")):
        lines += [_line(f"{inner.name}/", inner / "__init__.py", depth), *layout(inner, depth + 1)]
    return lines


def _line(name: str, path: Path, depth: int) -> str:
    """Return name and first sentence, cut at the width of the page."""
    told = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n")[0]
    line = f"{'    ' * depth}{name:<24} {told}".rstrip()
    return line if len(line) <= WIDTH else f"{line[: WIDTH - 1].rstrip()}…"


def filled(text: str) -> str:
    """Return the page with the layout of the package as it is now."""
    before, _, rest = text.partition(START)
    return before + START + "\n".join(layout()) + "\n" + rest[rest.index(END) :]


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
