"""Writes the tables of the fields of `Recipe` and `Settings` in `docs/extending.md`: `python docs/extending.py`.

A field is told by the first sentence of its docstring.
"""

import ast
import inspect
import re
from itertools import pairwise
from pathlib import Path

from mas_lab.recipes import Recipe
from mas_lab.train.settings import Settings

PAGE = Path(__file__).with_suffix(".md")


def table(kind: type) -> str:
    """Return the fields of a dataclass as Markdown: name, default, first sentence."""
    body = ast.parse(Path(inspect.getfile(kind)).read_text(encoding="utf-8")).body
    own = next(node.body for node in body if isinstance(node, ast.ClassDef) and node.name == kind.__name__)
    lines = ["| field | default | meaning |", "|---|---|---|"]
    for field, doc in pairwise(own):
        if isinstance(field, ast.AnnAssign):
            meaning = re.split(r"(?<=\.)\s", " ".join(doc.value.value.split()))[0]
            default = f"`{ast.unparse(field.value)}`".replace("'", '"') if field.value else ""
            lines.append(f"| `{field.target.id}` | {default} | {meaning} |")
    return "\n".join(lines)


def filled(text: str) -> str:
    """Return the page with its tables made anew."""
    for kind in (Recipe, Settings):
        mark = kind.__name__.lower()
        block = f"<!-- {mark} -->\n\n{table(kind)}\n\n<!-- /{mark} -->"
        text = re.sub(rf"<!-- {mark} -->.*?<!-- /{mark} -->", lambda _, block=block: block, text, flags=re.DOTALL)
    return text


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
