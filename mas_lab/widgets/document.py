"""One standalone HTML document, and an instrument that shows itself as one: offline, no widget, light and dark.

In a notebook the document stands in a sandboxed frame of its own, so that its styles and scripts, and whatever a model
wrote, cannot reach the notebook. Leaves out: what is in the document.
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
from mas_lab.widgets.text import for_script, visible

STATIC = Path(__file__).parent / "static"
FIGURES = ("plotly-cartesian.min.js", "figures.js")
"""The scripts of a page with figures. The first is plotly.js 4.1.1 (MIT), the file of that name in the npm package
plotly.js-cartesian-dist-min, the version that plotly 7.1 carries; it draws the figures of older ones too. This bundle
for Cartesian axes is a third of the size of the whole that plotly carries, and drawn in half the time."""
STYLES = ("instruments.css", "figures.css")
"""The styles of every page; the second is for notebooks too."""
OFFLINE = {
    "responsive": True,
    "displaylogo": False,
    "doubleClickDelay": 200,
    "modeBarButtonsToRemove": ["sendChartToCloud", "sendDataToCloud"],
}
"""plotly's settings in a page of ours: nothing in it offers to send the data away, and a click on a legend waits 200 ms
(not 300) to see whether it is the first of two."""
POLICY = (
    "default-src 'none'; script-src {}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
    "form-action 'none'"
)
"""What the browser lets a page of ours do: run the files of `static/`, and ask nobody for anything. plotly sets styles,
none of which may load anything, and its camera makes its picture in the page."""


def document(title: str, body: str, data: Any = None, scripts: Sequence[str] = (), styles: Sequence[str] = ()) -> str:
    """A whole page. `body` is HTML; `data` is plain data that `scripts` (files of `static/`) read from `#data`;
    `styles`: files of `static/` besides `STYLES`. `theme.js` is in every page."""
    style = "".join(_text(name) for name in (*STYLES, *styles))
    code = "".join(f"<script>{_text(name)}</script>" for name in scripts)
    held = f'<script type="application/json" id="data">{for_script(data)}</script>' if data is not None else ""
    return (
        f'<!doctype html><html lang="en" class="mas-lab"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy()}"><title>{escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{style}</style>'
        f"<script>{_text('theme.js')}</script></head>"
        f"<body><main><h1>{escape(title)}</h1>{body}</main>{held}{code}</body></html>"
    )


@functools.cache
def policy() -> str:
    """`POLICY` with the hash of every script of `static/`: a page within a page is held to the policies of both."""
    codes = (_text(path.name).encode() for path in sorted(STATIC.glob("*.js")))
    hashes = (base64.b64encode(hashlib.sha256(code).digest()).decode() for code in codes)
    return POLICY.format(" ".join(f"'sha256-{value}'" for value in hashes))


def _text(name: str) -> str:
    return (STATIC / name).read_text(encoding="utf-8")


def escape(text: Any) -> str:
    """Text for HTML, with what is invisible in it made visible."""
    return html.escape(visible(str(text)), quote=True)


def table_html(table: pd.DataFrame, caption: str) -> str:
    """A data table: numbers to three decimals, everything escaped. It can be read without the page's styles too, and
    scrolled by keyboard."""
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


def figure_html(figure: Any, described: str, data: pd.DataFrame | None = None, least: int = 0) -> str:
    """A plotly figure with its caption and, folded, the numbers behind it; `data=None` where `described` says which
    table of the page has them. On a screen narrower than `least` pixels it scrolls. The page draws it with the scripts
    `FIGURES`."""
    drawn = json.loads(figure.to_json())
    size = {name: f"{drawn['layout'][name]}px" if name in drawn["layout"] else "100%" for name in ("width", "height")}
    told, held = escape(described), ""
    if data is not None:
        held = f"<details><summary>The numbers behind this figure</summary>{table_html(data, described)}</details>"
    return (
        f'<figure aria-label="{told}"><div class="wide" tabindex="0" role="group" aria-label="{told}">'
        f'<div style="min-width:{least}px"><div class="drawing" style="width:{size["width"]};height:{size["height"]}">'
        f'</div><script type="application/json">{for_script(drawn | {"config": OFFLINE})}</script></div></div>'
        f'<figcaption class="described">{told}</figcaption>{held}</figure>'
    )


def beside(body: str) -> str:
    """HTML that stands in a notebook, outside of any frame: its MathJax, whichever it is, leaves the text as it is."""
    return f'<div class="tex2jax_ignore mathjax_ignore">{body}</div>'


def live_or_static(live: str, static: str) -> str:
    """Both forms of one thing. What takes away frames and scripts takes styles away too, and with them the one that
    hides the static form. A script tells the frame whether the notebook is dark; nothing depends on it."""
    name = f"static-{hashlib.sha256((live + static).encode(errors='replace')).hexdigest()[:12]}"
    told = f"<script>{_text('notebook.js')}</script>"
    return f'<style>#{name} {{ display: none }}</style><div id="{name}">{static}</div>{live}{told}'


def in_a_notebook() -> str:
    """A style for the figures of a notebook that says that it is dark: they stand on its paper, in its colours."""
    return f"<style>{_text('figures.css')}</style>"


def write(path: str | Path, page: str) -> Path:
    """The page in its place, as a whole."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, page.encode("utf-8", "backslashreplace"))
    return path


def frame(page: str, title: str, height: int, name: str = "") -> str:
    """The page inside a notebook: scripts run and may offer a file to keep, but see nothing of the notebook. `name`: by
    which a widget finds the frame."""
    named = f' name="{escape(name)}"' if name else ""
    return (
        f'<iframe class="mas-lab" sandbox="allow-scripts allow-downloads" title="{escape(title)}"{named} width="100%" '
        f'height="{height}" style="border:1px solid #8886" srcdoc="{html.escape(page, quote=True)}"></iframe>'
    )
