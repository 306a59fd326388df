"""Make one standalone HTML document, and show an instrument as one: offline, without widgets, light and dark.

In a notebook, the document stands in its own sandboxed frame. Its styles, its scripts and the text of models cannot
reach the notebook. This module leaves out the content of the document.
"""

import base64
import functools
import hashlib
import html
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from mas_lab.runs.disk import write_bytes
from mas_lab.widgets.text import escape_control_chars, for_script

STATIC = Path(__file__).parent / "static"
FIGURES = ("plotly-cartesian.min.js", "figures.js")
"""Scripts of a page with figures. The first is plotly.js 4.1.1 (MIT), the file of that name in the npm package
plotly.js-cartesian-dist-min. plotly 7.1 carries the same version; it also draws the figures of older ones. This bundle
for Cartesian axes has a third of the size of plotly's whole bundle, and draws in half the time."""
STYLES = ("instruments.css", "figures.css")
"""Styles of every page. The second is also used in notebooks."""
OFFLINE = {
    "responsive": True,
    "displaylogo": False,
    "doubleClickDelay": 200,
    "modeBarButtonsToRemove": ["sendChartToCloud", "sendDataToCloud"],
}
"""plotly's settings in our pages. No button offers to send the data away. A click on a legend waits 200 ms (not 300)
for a second click."""
HEIGHT = 760
"""Height of a page in a notebook, in pixels."""
POLICY = (
    "default-src 'none'; script-src {}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
    "form-action 'none'"
)
"""Content security policy of our pages: they run the files of `static/` and make no requests. plotly sets styles, but
none of them may load anything. Its camera makes its picture in the page."""


def document(title: str, body: str, data: Any = None, scripts: Sequence[str] = (), styles: Sequence[str] = ()) -> str:
    """Return a whole HTML page.

    `body` is HTML. `data` is plain data that `scripts` (files of `static/`) read from `#data`. `styles` are files of
    `static/` besides `STYLES`. Every page contains `theme.js`.
    """
    style = "".join(_text(name) for name in (*STYLES, *styles))
    code = "".join(f"<script>{_text(name)}</script>" for name in scripts)
    embedded = f'<script type="application/json" id="data">{for_script(data)}</script>' if data is not None else ""
    return (
        f'<!doctype html><html lang="en" class="mas-lab"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy()}"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{style}</style>'
        f"<script>{_text('theme.js')}</script></head>"
        f"<body><main><h1>{escape(title)}</h1>{body}</main>{embedded}{code}</body></html>"
    )


@functools.cache
def policy() -> str:
    """Return `POLICY` with the hashes of all scripts, because a page within a page must obey the policies of both."""
    codes = (_text(path.name).encode() for path in sorted(STATIC.glob("*.js")))
    hashes = (base64.b64encode(hashlib.sha256(code).digest()).decode() for code in codes)
    return POLICY.format(" ".join(f"'sha256-{value}'" for value in hashes))


def _text(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")


def escape(text: Any) -> str:
    """Return text escaped for HTML, with invisible characters made visible."""
    return html.escape(escape_control_chars(str(text)), quote=True)


def table_html(table: pd.DataFrame, caption: str) -> str:
    """Return a table as HTML that needs no styles and scrolls by keyboard: escaped, with three decimals."""
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in table.columns)
    rows = table.itertuples(index=False, name=None)
    lines = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return (
        f'<div class="table" tabindex="0" role="group" aria-label="{escape(caption)}">'
        f"<table><caption>{escape(caption)}</caption><thead><tr>{heads}</tr></thead>"
        f"<tbody>{lines}</tbody></table></div>"
    )


def _cell(value: Any) -> str:
    if isinstance(value, float):
        value = "–" if value != value else f"{value:.3f}"
    elif isinstance(value, str):
        return f'<td style="text-align: left; white-space: pre-wrap">{escape(value)}</td>'
    return f"<td>{escape(value)}</td>"


def folded(summary: str, body: str) -> str:
    return f"<details><summary>{summary}</summary>{body}</details>"


def figure_html(figure: Any, described: str, data: pd.DataFrame | None = None, least: int = 0) -> str:
    """Return a plotly figure as HTML with its caption and, folded, the numbers behind it.

    Pass `data=None` if another table of the page has these numbers, and name it in `described`. On a screen narrower
    than `least` pixels the figure scrolls. The page draws it with the scripts `FIGURES`.
    """
    drawn = json.loads(figure.to_json())
    size = {name: f"{drawn['layout'][name]}px" if name in drawn["layout"] else "100%" for name in ("width", "height")}
    label = escape(described)
    numbers = folded("The numbers behind this figure", table_html(data, described)) if data is not None else ""
    return (
        f'<figure aria-label="{label}"><div class="wide" tabindex="0" role="group" aria-label="{label}">'
        f'<div style="min-width:{least}px"><div class="drawing" style="width:{size["width"]};height:{size["height"]}">'
        f'</div><script type="application/json">{for_script(drawn | {"config": OFFLINE})}</script></div></div>'
        f'<figcaption class="described">{label}</figcaption>{numbers}</figure>'
    )


def beside(body: str) -> str:
    """Wrap HTML that stands outside any frame of a notebook, so that MathJax (any version) leaves its text alone."""
    return f'<div class="tex2jax_ignore mathjax_ignore">{body}</div>'


def live_or_static(live: str, static: str) -> str:
    """Return the live form and the static form of one thing; a style hides the static form.

    A viewer that removes frames and scripts also removes this style, so that the static form appears. A script reports
    to the frame whether the notebook is dark. Nothing depends on it.
    """
    name = f"static-{hashlib.sha256((live + static).encode(errors='replace')).hexdigest()[:12]}"
    script = f"<script>{_text('notebook.js')}</script>"
    return f'<style>#{name} {{ display: none }}</style><div id="{name}">{static}</div>{live}{script}'


def in_a_notebook() -> str:
    """Return a style that gives figures the background and colours of a dark notebook."""
    return f"<style>{_text('figures.css')}</style>"


def write(path: str | Path, page: str) -> Path:
    """Write a page to `path`, completely or not at all, and return the path."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, page.encode("utf-8", "backslashreplace"))
    return path


class Framed:
    """An instrument that is a page with scripts of its own; a subclass has `page()` and `static()`, both HTML."""

    def to_html(self, path: str | Path) -> Path:
        """Write one standalone HTML file that works offline.

        Args:
            path: The file to write. Missing parent folders are created.

        Returns:
            The path of the file.
        """
        return write(path, self.page())

    def _repr_html_(self) -> str:
        return live_or_static(frame(self.page(), repr(self), HEIGHT), beside(self.static()))


def frame(page: str, title: str, height: int) -> str:
    """Return a frame; its scripts run and may offer a download, but cannot read the notebook.

    The page stands in single quotes, because its data have many `"`, which would take six times the room.
    """
    inside = html.escape(page, quote=False).replace("'", "&#39;")
    return (
        f'<iframe class="mas-lab" sandbox="allow-scripts allow-downloads" title="{escape(title)}" width="100%" '
        f'height="{height}" style="border:1px solid #8886" srcdoc=\'{inside}\'></iframe>'
    )
