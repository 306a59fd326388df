"""The pages of the API reference: every name of `lab.__all__`, by the room in which it is made.

The file of a name is read from the package's `__init__.pyi`, so a new name has its place by itself.
Leaves out: signatures and texts, which Sphinx takes from the code.
"""

import ast
import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import mas_lab as lab

PAGES = (
    ("nouns", "The nouns", ("table", "env", "check", "policy", "team")),
    ("cells", "The four cells", ("cells", "losses")),
    ("recipes", "Recipes and training", ("recipes", "train")),
    ("tasks", "Tasks", ("tasks",)),
    ("models", "Models and where they run", ("backends", "pocket")),
    ("instruments", "Instruments", ("widgets",)),
    ("explain", "What a baseline did", ("explain",)),
    ("study", "Studies", ("study",)),
    ("runs", "Runs", ("runs",)),
    ("contrib", "Programs, teams and other trainers", ("contrib",)),
    ("around", "Around them", ("doctor", "course")),
)
"""File, title, rooms."""
EXAMPLE = """```python
import mas_lab as lab

env = lab.make_env("math")
team = lab.Team.per_agent(lambda agent: lab.load_policy(env.pocket), env.agents)
for report in lab.train(env, team, "dr_mas", steps=10, run="runs/mine"):
    print(report)                        # a step: its turns, statistics and scores
lab.RewardInspector("runs/mine")         # who earned what
```
"""
ORDER = ("rollout", "plans", "episode", "grouping", "credits", "normalization", "centers", "selection", "update",
         "losses")  # fmt: skip


def origins() -> dict[str, str]:
    """Public name -> the module that it is imported from, in the order of the imports."""
    tree = ast.parse(Path(lab.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    made = (node for node in tree.body if isinstance(node, ast.ImportFrom))
    found = {
        alias.asname or alias.name: f"mas_lab.{alias.name}" if node.module == "mas_lab" else node.module or ""
        for node in made
        for alias in node.names
    }
    if missing := set(lab.__all__) - set(found):
        raise LookupError(f"mas_lab/__init__.py lists {sorted(missing)}, and its stub does not")
    return {name: module for name, module in found.items() if name in lab.__all__}


def pages() -> dict[str, tuple[str, dict[str, list[str]]]]:
    """File -> (title, {module: its public names})."""
    found: dict[str, tuple[str, dict[str, list[str]]]] = {file: (title, {}) for file, title, _ in PAGES}
    file_of = {room: file for file, _, rooms in PAGES for room in rooms}
    for name, module in origins().items():
        room = module.split(".")[1]
        if room not in file_of:
            raise LookupError(f"mas_lab.{name}: give the room {room!r} a page in {Path(__file__).name}")
        found[file_of[room]][1].setdefault(module, []).append(name)
    for file, (title, modules) in found.items():
        found[file] = title, dict(sorted(modules.items(), key=lambda held: _rank(held[0].split(".")[-1])))
    return {file: page for file, page in found.items() if page[1]}


def _rank(module: str) -> tuple[int, str]:
    """Order the cells as they follow each other, and other modules by name."""
    return (ORDER.index(module) if module in ORDER else len(ORDER)), module


def kind(name: str) -> str:
    """How Sphinx documents it."""
    held = getattr(lab, name)
    if inspect.ismodule(held):
        return "module"
    if inspect.isclass(held):
        return "exception" if issubclass(held, Exception) else "class"
    return "function" if callable(held) and hasattr(held, "__name__") else "data"


def about(module: str) -> str:
    """The first paragraph of a module's docstring, in Markdown as it is."""
    return inspect.cleandoc(import_module(module).__doc__ or "").split("\n\n")[0].replace("\n", " ")


def write(folder: Path) -> list[Path]:
    """Every page and an index of them, in Markdown."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for file, (title, modules) in pages().items():
        body = "\n".join(_page(title, modules))
        written.append(folder / f"{file}.md")
        written[-1].write_text(body, encoding="utf-8")
    (folder / "index.md").write_text("\n".join(_index()), encoding="utf-8")
    return written


def _index() -> Iterator[str]:
    yield "# API reference\n"
    yield EXAMPLE
    yield "Everything below is `lab.…` after `import mas_lab as lab`. What is not here may move.\n"
    yield "| | |\n|---|---|"
    for file, (title, modules) in pages().items():
        names = ", ".join(f"{{py:obj}}`~mas_lab.{name}`" for held in modules.values() for name in held)
        yield f"| [{title}]({file}.md) | {names} |"
    yield "\n```{toctree}\n:hidden:\n"
    yield from pages()
    yield "```\n"


def _page(title: str, modules: dict[str, list[str]]) -> Iterator[str]:
    yield f"# {title}\n"
    for module, names in modules.items():
        if len(modules) > 1:
            yield f"## {module.split('.')[-1].replace('_', ' ')}\n"
        if [kind(name) for name in names] != ["module"]:
            yield f"{about(module)}\n"
        for name in names:
            yield f"```{{eval-rst}}\n.. auto{kind(name)}:: mas_lab.{name}"
            yield f"{'   :members:' if kind(name) in ('class', 'module') else ''}\n```\n"
