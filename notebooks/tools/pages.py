"""An executed notebook as a page to read: static outputs, formulas without a script, no network.

Leaves out: running it (`execution`). Outputs are shown as they are, so those of strangers must not come here
(`grading`).
"""

import re
from collections.abc import Mapping
from typing import Any

import formulas

from mas_lab.widgets.document import FIGURES, OFFLINE, STATIC, escape
from mas_lab.widgets.text import for_script

WIDGET = "application/vnd.jupyter.widget-view+json"
FIGURE = "application/vnd.plotly.v1+json"
DRAWN = 'class="drawing"'
"""Text in every page with figures, which needs `FIGURES` of `widgets.document`."""
ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
OVERWRITTEN = re.compile(r"[^\n]*\r(?!\n)")
"""Text of a progress bar before its last line."""
FORMULA = '<div class="formula">{}</div>'
LOOK = """
:root { --ink: light-dark(#1c1c1c, #dcdfe3); --soft: light-dark(#f3f3f3, #22252a); }
:root { color-scheme: light dark; --grid: light-dark(#e4e7ec, #353a41); }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 60rem; margin: 0 auto; padding: 1rem; }
pre, code { font: 13px/1.45 ui-monospace, Menlo, Consolas, monospace; }
pre { overflow-x: auto; margin: 0.3rem 0; overflow-wrap: normal; }
.prompt, .anchor-link { display: none; }
.highlight pre { padding: 0.6rem 0.8rem; background: #8881; border-radius: 0.3rem; }
.output { overflow-x: auto; margin: 0.3rem 0 1rem; }
.output_stream pre, .output_text pre { padding: 0.1rem 0.8rem; border-left: 3px solid #8886; }
table { border-collapse: collapse; font-size: 14px; }
table { display: block; overflow-x: auto; width: fit-content; max-width: 100%; }
table, td, th { border: 0; }
td, th { padding: 0.2rem 0.6rem; border-bottom: 1px solid #8884; text-align: left !important; }
figure { margin: 0.5rem 0; overflow-x: auto; }
.formula { overflow-x: auto; }
code { overflow-wrap: anywhere; }
iframe { max-width: 100%; }
img { max-width: 100%; }
@media (prefers-color-scheme: dark) { body { background: #16181b; color: #dcdfe3; } a { color: #8ab8e6; } }
"""


def static(notebook: Any) -> Any:
    """Return the notebook with outputs that need no kernel and no other host.

    A live widget without such a form is removed. A progress bar becomes its last line.
    """
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [kept for output in cell.outputs if (kept := _static(output)) is not None]
    return notebook


def _static(output: Any) -> Any | None:
    if output.output_type == "stream":
        output.text = ANSI.sub("", OVERWRITTEN.sub("", output.text))
        return output if output.text.strip() else None
    data = output.get("data", {})
    live, figure = data.pop(WIDGET, None), data.pop(FIGURE, None)
    if figure is not None:  # scripts run in this page, so the figure is drawn instead of its stored picture
        data["text/html"] = figure_html(figure)
    return None if live is not None and not set(data) - {"text/plain"} else output


def figure_html(figure: Mapping[str, Any]) -> str:
    """Return a plotly figure as HTML, for a page with the scripts `FIGURES`."""
    layout = figure.get("layout", {})
    described = _text(layout.get("title")) or " over ".join(
        filter(None, (_text(layout.get(axis, {}).get("title")) for axis in ("yaxis", "xaxis")))
    )
    height, width = layout.get("height", 420), layout.get("width")
    drawn = {"data": figure.get("data", []), "layout": dict(layout), "config": OFFLINE}
    size = f"height:{height}px;{f'width:{width}px' if width else 'min-width:30rem'}"
    return (
        f'<figure tabindex="0" aria-label="{escape(described or "a figure")}"><div {DRAWN} style="{size}"></div>'
        f'<script type="application/json">{for_script(drawn)}</script></figure>'
    )


def _text(title: Any) -> str:
    text = title.get("text", "") if isinstance(title, Mapping) else title or ""
    return re.sub(r"<[^>]*>", " ", text)


def page(notebook: Any, title: str, scripts: str = "../scripts") -> str:
    """Return the page of an executed notebook, without its install cell.

    `scripts`: the path of the folder with the files of `parts`, relative to the page.
    """
    from nbconvert import HTMLExporter
    from pygments.formatters import HtmlFormatter

    notebook = static(notebook)
    notebook.cells = [cell for cell in notebook.cells if "install" not in cell.metadata.get("tags", [])]
    exporter = HTMLExporter(template_name="basic", filters={"markdown2html": markdown})
    body, _ = exporter.from_notebook_node(notebook)
    light = HtmlFormatter(style="default").get_style_defs(".highlight")
    dark = HtmlFormatter(style="github-dark").get_style_defs(".highlight")
    figures = (STATIC / "figures.css").read_text(encoding="utf-8")
    code = "".join(f'<script src="{scripts}/{name}"></script>' for name in FIGURES) if DRAWN in body else ""
    return (
        f'<!doctype html><html lang="en" class="mas-lab"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="{scripts}/formulas.css">'
        f"<style>{LOOK}{figures}{light}@media (prefers-color-scheme: dark) {{ {dark} }}</style></head>"
        f"<body>{body}{code}</body></html>"
    )


def parts() -> dict[str, bytes]:
    """Return the files that pages share: name -> content."""
    held = {name: (STATIC / name).read_bytes() for name in (*FIGURES, "plotly-cartesian.LICENSE")}
    return {**held, "formulas.css": formulas.STYLE.encode(), formulas.FONT: formulas.font()}


def markdown(text: str) -> str:
    """Convert a cell's text to HTML, with formulas as MathML."""
    from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

    class Renderer(IPythonRenderer):
        def block_math(self, body: str) -> str:
            return FORMULA.format(formulas.mathml(body, block=True))

        def inline_math(self, body: str) -> str:
            return formulas.mathml(body)

        def latex_environment(self, name: str, body: str) -> str:
            return FORMULA.format(formulas.mathml(f"\\begin{{{name}}}{body}\\end{{{name}}}", block=True))

    return MarkdownWithMath(renderer=Renderer(escape=False)).render(text)


def read(text: str | bytes) -> Any:
    """Read a notebook from the text of its file."""
    import nbformat

    return nbformat.reads(text if isinstance(text, str) else text.decode("utf-8"), 4)
