"""Builds the site: `make site`, or `python docs/site/build.py`; opens from `_build/site/index.html`, without a network.

Gathers the pages where they stand, makes a live page of each instrument, runs the notebooks at full length (`--short`:
a few steps each, which the page then says), writes the reference from the docstrings, and walks over every link.
`--executed FOLDER` takes notebooks that were run before, if their cells are still the same, and puts there what it
runs. Leaves out: publishing it.
"""

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "notebooks" / "tools")]

import diagrams  # noqa: E402
import execution  # noqa: E402
import forms  # noqa: E402
import links  # noqa: E402
import nbformat  # noqa: E402
import pages as notebook_pages  # noqa: E402
import public_names  # noqa: E402

PAGES = ("docs/*.md", "CONTRIBUTING.md", "CHANGELOG.md", "data/results/**/README.md", "data/foreign/README.md",
         "benchmarks/README.md", "benchmarks/*/README.md")  # fmt: skip
FILES = ("docs/*.png", "LICENSE", "CITATION.cff")
INTRO = """
What students open, as it runs from top to bottom; exercises say "not yet". Live instruments stand here in their static
form.
"""
BROWSER = """
The two middle cells, `group` and `normalize`, need no torch, and a page on which they run in the browser itself was
tried with JupyterLite 0.8.6 and Pyodide 314.0.7, whose core comes from npm. It stops at NumPy, pandas, pyarrow: their
builds for WebAssembly are on Pyodide's content network alone, neither on PyPI nor on npm, so that a site that works
without a network cannot bring them.
"""
FRAME = '<iframe src="../_static/live/{name}.html" title="{name}, live" loading="lazy" class="live"></iframe>'
LAST = "reference/index"
LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")


def gather(pages: Path) -> None:
    """The written pages and their pictures, in the folders in which they link to each other."""
    for pattern in (*PAGES, *FILES):
        for path in sorted(ROOT.glob(pattern)):
            copy = pages / path.relative_to(ROOT)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
            if path.suffix == ".md":
                copy.write_text(diagrams.drawn(path.read_text(encoding="utf-8")), encoding="utf-8")
    names = [f"docs/{path.stem}" for path in sorted((ROOT / "docs").glob("*.md"))]
    index = with_menu((HERE / "index.md").read_text(encoding="utf-8"), names)
    (pages / "index.md").write_text(index, encoding="utf-8")
    shutil.copytree(HERE / "static", pages / "static")
    for name, content in notebook_pages.parts().items():
        (pages / "static" / name).write_bytes(content)
    for page in pages.rglob("*.md"):
        for target in linked(page.read_text(encoding="utf-8")):
            bring(pages, page, target)


def with_menu(index: str, names: list[str]) -> str:
    """The landing page, its menu with every page that it does not place itself: before the reference."""
    rest = "".join(f"{name}\n" for name in names if f"\n{name}\n" not in index)
    return index.replace(f"\n{LAST}\n", f"\n{rest}{LAST}\n", 1)


def linked(markdown: str) -> Iterator[str]:
    """What a page links to within the repository."""
    yield from (target for target, _ in LINK.findall(markdown) if "://" not in target)


def bring(pages: Path, page: Path, target: str) -> None:
    """A file that a page links to and that is none of the pages, such as a script: it is there to be read."""
    there = (page.parent / target).resolve()
    source = ROOT / there.relative_to(pages.resolve())
    if not there.exists() and source.is_file():
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, there)


def notebooks(pages: Path, asked: list[str] | None, short: bool, kept: Path | None) -> None:
    """The notebooks with their outputs, and as they are stored, for download. `asked`: run these alone."""
    folder = pages / "notebooks"
    folder.mkdir(exist_ok=True)  # pages link to them as they are stored
    for master in forms.masters():
        path = ROOT / "notebooks" / f"{master.stem}.ipynb"
        shutil.copy(path, pages / "static" / path.name)
        page = notebook_pages.read(forms.text_of(master, "page"))
        notebook = execution.with_parameters(page, {"SMOKE": True} if short else {})
        if asked is None or path.stem in asked:
            notebook = execution.executed(notebook, path.stem, kept)
        nbformat.write(shown(notebook, path.name, short), folder / path.name)
    listed(folder)


def listed(folder: Path) -> None:
    """The page that names the notebooks, each with the line below its title."""
    rows = ["# Notebooks\n", INTRO, "| | |\n|---|---|"]
    for path in sorted(folder.glob("*.ipynb")):
        title, told = forms.headline(nbformat.read(path, 4).cells[0].source)
        rows.append(f"| {path.stem[:2]} [{title}]({path.name}) | {told} |")
    names = "\n".join(path.stem for path in sorted(folder.glob("*.ipynb")))
    rows.append(BROWSER)
    rows.append(f"\n```{{toctree}}\n:hidden:\n\n{names}\n```")
    (folder / "index.md").write_text("\n".join(rows), encoding="utf-8")


def shown(notebook: nbformat.NotebookNode, file: str, short: bool) -> nbformat.NotebookNode:
    """The notebook as a page: no live widgets, no colours of a terminal, and a line that offers the file."""
    notebook = notebook_pages.static(notebook)
    notebook.metadata["language_info"] = {"name": "python", "pygments_lexer": "ipython3"}
    for cell in notebook.cells:
        if "install" in cell.metadata.get("tags", []):
            cell.metadata["tags"] = [*dict.fromkeys([*cell.metadata["tags"], "hide-input"])]
    offer = f'*Open it yourself: `make lab`, or download <a href="../_static/{file}" download>{file}</a>.*'
    if short:
        offer += "\n\n**The outputs are those of a short run; the text tells numbers of full ones.**"
    notebook.cells.insert(1, nbformat.v4.new_markdown_cell(offer))
    return notebook


def live(pages: Path) -> None:
    """Write a live page of each instrument, from a short training and a recorded study, and frame it on their page."""
    import mas_lab as lab

    env = lab.make_env("ladder", n_agents=4)
    team = lab.Team.per_agent(lambda agent: lab.load_policy(env.pocket), env.agents)
    run = pages.parent / "live_run"
    shutil.rmtree(run, ignore_errors=True)
    watch = lab.SpikeWatch(warmup=2, window=8, threshold=1.2)
    for _ in lab.train(env, team, "grpo", 6, run=run, watch=watch, tasks=8):
        pass
    study = ROOT / "data" / "results" / "studies" / "math"
    made = {"RewardInspector": run, "RolloutViewer": run, "SpikeInspector": run, "AblationBoard": study}
    page = pages / "docs" / "instruments.md"
    text = page.read_text(encoding="utf-8")
    (pages / "static" / "live").mkdir()
    for name, shown_run in made.items():
        getattr(lab, name)(shown_run).to_html(pages / "static" / "live" / f"{name}.html")
        frame = FRAME.format(name=name)
        text = re.sub(
            rf"^(## {name}.*)$", lambda found, frame=frame: f"{found[1]}\n\n{frame}", text, flags=re.MULTILINE
        )
    page.write_text(text, encoding="utf-8")


def sphinx(pages: Path, html: Path) -> None:
    """Every warning is a failure."""
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-W", "--keep-going", "-q", "-E", "-c", str(HERE)]
    command += ["-D", f"html_static_path={pages / 'static'}"]
    subprocess.run([*command, "-d", str(pages.parent / "doctrees"), str(pages), str(html)], check=True)
    for stray in (".buildinfo", "objects.inv"):
        (html / stray).unlink(missing_ok=True)


def build(out: Path, asked: list[str] | None = None, short: bool = False, kept: Path | None = None) -> Path:
    """Everything, into the empty folder `out`/site; what it is made from stands beside it."""
    pages, html = out / "pages", out / "site"
    for folder in (pages, html, out / "doctrees"):
        shutil.rmtree(folder, ignore_errors=True)
    pages.mkdir(parents=True)
    gather(pages)
    public_names.write(pages / "reference")
    notebooks(pages, asked, short, kept)
    live(pages)
    sphinx(pages, html)
    return html


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "_build", help="folder; the site is OUT/site")
    parser.add_argument("--short", action="store_true", help="notebooks in their short form")
    parser.add_argument("--executed", type=Path, default=None, help="folder of notebooks that were run before")
    parser.add_argument("--run", nargs="*", metavar="NOTEBOOK", default=None, help="only these; none: no notebook")
    args = parser.parse_args()
    html = build(args.out, args.run, args.short, args.executed)
    status = links.main(html)
    print(html / "index.html")
    return status


if __name__ == "__main__":
    sys.exit(main())
