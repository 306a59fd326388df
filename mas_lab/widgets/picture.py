"""Give plotly figures a static picture of themselves, and HTML that is live only where scripts run.

A stored notebook is also read where nothing runs: untrusted, in a viewer, or converted. Some viewers remove scripts,
frames and styles, or do not know plotly's output. They show the picture, an SVG that this module draws, because plotly
itself draws pictures only with a browser (kaleido). It holds what the figures of this kit hold: lines, marks, bars,
dots by name and maps of cells on Cartesian axes, with lines across, notes and a key. Anything else becomes a sentence.
"""

import base64
import html
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.io
from plotly.graph_objects import Figure

from mas_lab.display.progress import front_end
from mas_lab.widgets.document import beside, folded, in_a_notebook, live_or_static, table_html

WIDTH, HEIGHT = 760, 450
"""Pixels of a figure without a size of its own."""
MARGIN = {"l": 60, "r": 20, "t": 50, "b": 50}
LETTER, ROW, LINE, TITLE = 6.4, 18, 14, 34
"""Pixels of a letter's width, of a row of the key, of a line of text, and of a panel's title below the key."""
INK, GRID, BLUE = "#2a3f5f", "#e3e8f0", "#0072B2"
DASHES = {"dash": "7 5", "dot": "2 3", "dashdot": "7 3 2 3"}
Points = Iterable[tuple[float, float]]


def svg(figure: Figure) -> str:
    """Return the figure as the text of an SVG file."""
    traces, layout = plain(figure)
    width, height = layout.get("width", WIDTH), layout.get("height", HEIGHT)
    margin = MARGIN | layout.get("margin", {})
    key, top = _key(named(traces, layout), width)
    top += TITLE if key else margin["t"]
    names = [name for axis, own in layout.items() if axis[:5] == "yaxis" for name in own.get("ticktext", ())]
    left = max([margin["l"], *(20 + LETTER * len(line) for name in names for line in _lines(name))])
    box = [left, top, width - margin["r"], top + height - margin["t"] - margin["b"]]
    axes, height = axes_of(traces, layout, box), box[3] + margin["b"]
    parts = [part for axis in axes.values() for part in _axis(axis, axes)]
    for shape in layout.get("shapes", ()):
        ends = [[_at(letter, shape[letter + end], shape, axes, box) for letter in "xy"] for end in "01"]
        parts.append(_path(ends, shape.get("line", {})))
    for trace in traces:
        parts += _drawn(trace, axes[trace.get("xaxis", "x")], axes[trace.get("yaxis", "y")])
    for note in layout.get("annotations", ()):
        x, y = (_at(letter, note[letter], note, axes, box) for letter in "xy")
        y += {"bottom": -6, "top": 12}.get(note.get("yanchor"), 4) - note.get("yshift", 0)
        parts.append(_text(x, y, plain_text(note["text"]), more=' font-weight="600"'))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height:.0f}" font-size="12" fill="{INK}" '
        f'viewBox="0 0 {width} {height:.0f}" font-family="system-ui, sans-serif">'
        f'<rect width="100%" height="100%" fill="#ffffff"/>{"".join([*key, *parts])}</svg>'
    )


def plain(figure: Figure) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the traces and the layout with plain arrays, which plotly's own plain form may encode."""
    return [trace.to_plotly_json() for trace in figure.data], figure.layout.to_plotly_json()


def plain_text(text: Any) -> str:
    """Return a text of plotly's without its tags and entities."""
    return html.unescape(re.sub("<[^>]*>", " ", str(text))).strip()


def _lines(text: str) -> list[str]:
    return [plain_text(line) for line in re.split("<br */?>", text)]


def title_of(axis: Mapping[str, Any]) -> str:
    return (axis.get("title") or {}).get("text") or ""


# Axes


class Axis:
    """An axis from the pixel `start` to `end`, where its values are `low` and `high` (on a log axis, their log10)."""

    def __init__(self, name: str, layout: dict[str, Any], start: float, end: float, traces: Sequence[dict]):
        self.layout, self.start, self.end = layout, start, end
        self.is_x, self.is_log = name[0] == "x", layout.get("type") == "log"
        taken = [one for trace in traces for one in _taken(trace, name[0])]
        self.names = list(dict.fromkeys(one for one in taken if isinstance(one, str)))
        """Names along the axis in their order, if it shows names instead of numbers."""
        self.low, self.high = layout.get("range") or self._span(taken, traces)

    def _span(self, taken: Sequence[Any], traces: Sequence[dict]) -> tuple[float, float]:
        """Return the range from the smallest to the largest value of the traces."""
        if self.names:
            return -0.5, len(self.names) - 0.5
        found = self.values(taken)
        low, high = (np.nanmin(found), np.nanmax(found)) if np.isfinite(found).any() else (0.0, 1.0)
        kinds = {trace.get("type", "scatter") for trace in traces}
        pad = 0.0 if "heatmap" in kinds else 0.05 * (high - low) or 0.5
        is_from_0 = self.layout.get("rangemode") or (low == 0 and "bar" in kinds)
        span = 0.0 if is_from_0 else low - pad, high + pad
        return span[::-1] if self.layout.get("autorange") == "reversed" else span

    def values(self, values: Iterable[Any]) -> np.ndarray:
        """Return values along the axis as numbers, on a log axis as their log10; NaN for those that it cannot show."""
        numbers = np.array([self.names.index(one) if isinstance(one, str) else one for one in values], float)
        with np.errstate(divide="ignore", invalid="ignore"):
            numbers = np.log10(numbers) if self.is_log else numbers
        return np.where(np.isfinite(numbers), numbers, np.nan)

    def at(self, values: Iterable[Any]) -> np.ndarray:
        """Return the pixels of values; NaN for those that the axis cannot show."""
        return self.start + (self.values(values) - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> list[tuple[float, list[str]]]:
        """Return (pixel, lines of the label) of each tick."""
        labels = dict(self._labels(*sorted((self.low, self.high))))
        is_shown = self.layout.get("showticklabels") is not False
        return [
            (at, _lines(label) if is_shown else []) for at, label in zip(self.at(labels), labels.values(), strict=True)
            if min(self.start, self.end) - 0.01 <= at <= max(self.start, self.end) + 0.01
        ]  # fmt: skip

    def _labels(self, low: float, high: float) -> Iterable[tuple[Any, str]]:
        """Return (value, label) of ticks between two ends."""
        values = self.layout.get("tickvals", self.names)
        if len(values):
            texts = self.layout.get("ticktext")
            return zip(values, map("{}".format, values) if texts is None else texts, strict=True)
        if self.is_log:
            digits = range(1, 10) if high - low < 0.8 else (1, 2, 5) if high - low < 3 else (1,)
            values = [d * 10.0**power for power in range(math.floor(low), math.ceil(high) + 1) for d in digits]
            return [(value, f"{value:g}") for value in values]
        most = min(self.layout.get("nticks", 8), 8, max(2, int(abs(self.end - self.start) / 40)))
        least = max(high - low, 1e-12) / most
        power = math.floor(math.log10(least))
        step = next(digit * 10.0**power for digit in (1, 2, 5, 10) if digit * 10.0**power >= least)
        numbers = step * np.arange(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
        return [(number, f"{number:,.{max(0, -math.floor(math.log10(step)))}f}") for number in numbers]


def _taken(trace: Mapping[str, Any], letter: str) -> Sequence:
    """Return the values that a trace takes up along x or y."""
    kind, own = trace.get("type", "scatter"), trace.get(letter, ())
    if kind == "heatmap":
        return [-0.5, np.shape(trace["z"])[letter == "x"] - 0.5]
    if kind == "bar" and letter == "y":
        return [0.0, *own]
    half = 0.5 * (trace.get("width") or 0.8) if kind == "bar" else 0
    return [one if isinstance(one, str) else one + end for one in own for end in (-half, half)] if half else own


def axes_of(traces: Sequence[dict], layout: dict, box: Sequence[float]) -> dict[str, Axis]:
    """Return all axes of a figure that is drawn in `box` (left, top, right, bottom), by plotly's names."""
    named = [name.replace("axis", "") for name in layout if name[1:5] == "axis"]
    axes = {}
    for name in dict.fromkeys([*named, *(trace.get(f"{letter}axis", letter) for trace in traces for letter in "xy")]):
        letter, own = name[0], layout.get(f"{name[0]}axis{name[1:]}", {})
        if matched := own.get("matches"):
            own = {"range": layout.get(f"{letter}axis{matched[1:]}", {}).get("range")} | own
        start, end = box[::2] if letter == "x" else box[:0:-2]
        ends = [start + share * (end - start) for share in own.get("domain") or (0, 1)]
        held = [one for one in traces if one.get(f"{letter}axis", letter) in (name, matched)]
        axes[name] = Axis(name, own, *ends, held)
    return axes


# Marks


def _axis(axis: Axis, axes: Mapping[str, Axis]) -> Iterator[str]:
    """Yield the grid, the labels and the title of an axis."""
    other, middle = axes[axis.layout.get("anchor") or ("y" if axis.is_x else "x")], (axis.start + axis.end) / 2
    for at, lines in axis.ticks():
        if axis.layout.get("showgrid") is not False and not axis.names:
            ends = [(at, end) if axis.is_x else (end, at) for end in (other.start, other.end)]
            yield _path(ends, {"color": GRID, "width": 1})
        for number, line in enumerate(lines):
            if axis.is_x:
                yield _text(at, other.start + 16 + LINE * number, line)
            else:
                yield _text(other.start - 7, at + 4 + LINE * (number - (len(lines) - 1) / 2), line, "end")
    for number, line in enumerate(_lines(title_of(axis.layout))):
        if axis.is_x:
            yield _text(middle, other.start + 34 + LINE * number, line)
        else:
            x = other.start - 46 + LINE * number
            yield _text(x, middle, line, more=f' transform="rotate(-90 {x:.0f} {middle:.0f})"')


def named(traces: Sequence[dict], layout: dict) -> dict[str, dict]:
    """Return the traces and lines in the key by their names."""
    if layout.get("showlegend") is False:
        return {}
    entries = [one for one in traces if one.get("name") and one.get("showlegend", len(traces) > 1)]
    entries += [line for line in layout.get("shapes", ()) if line.get("showlegend")]
    return {one["name"]: one for one in entries}


def _key(named: Mapping[str, dict], width: float) -> tuple[list[str], float]:
    """Return names with their marks, in rows above the figure, and the height of these rows."""
    parts, x, y = [], 12.0, 14.0
    for name, one in named.items():
        label, marker = plain_text(name), one.get("marker", {})
        if x > 12 and x + 30 + LETTER * len(label) > width:
            x, y = 12.0, y + ROW
        if one.get("mode") == "markers" or one.get("type") in ("bar", "box"):
            color = marker.get("line", {}).get("color") or _shade(one)  # a hollow bar has only an outline
            parts += _marks([(x + 9, y - 4)], {"size": 10, "color": color})
        else:
            parts.append(_path([(x, y - 4), (x + 18, y - 4)], one.get("line", {}), one.get("opacity", 1)))
        parts.append(_text(x + 23, y, label, "start"))
        x += 40 + LETTER * len(label)
    return parts, y + 4 if named else 0.0


def _at(letter: str, value: Any, placed: dict, axes: Mapping[str, Axis], box: Sequence[float]) -> float:
    """Return the pixel of a line's end or a note: by an axis, or as a share of its panel or of the figure."""
    ref = placed.get(f"{letter}ref", letter)
    if ref != "paper" and not ref.endswith("domain"):
        return axes[ref].at([value])[0]
    axis = axes.get(ref.split()[0])
    start, end = (axis.start, axis.end) if axis else box[::2] if letter == "x" else box[:0:-2]
    return start + value * (end - start)


def _drawn(trace: dict, x: Axis, y: Axis) -> Iterator[str]:
    """Yield the SVG of a trace."""
    kind, opacity, shade = trace.get("type", "scatter"), trace.get("opacity", 1), _shade(trace)
    marker, line = {"color": shade} | trace.get("marker", {}), {"color": shade} | trace.get("line", {})
    if kind == "heatmap":
        for (row, column), value in np.ndenumerate(np.asarray(trace["z"], float)):
            color = trace["colorscale"][-1 if value > np.mean(trace["z"]) else 0][1]
            yield _rect(x.at([column - 0.48, column + 0.48]), y.at([row - 0.48, row + 0.48]), color)
        return
    if kind == "bar" and trace.get("orientation") != "h":
        half, edge = 0.5 * (trace.get("width") or 0.8), html.escape(marker.get("line", {}).get("color") or "none")
        for middle, height in zip(x.values(trace["x"]), trace["y"], strict=True):
            more = f' opacity="{marker.get("opacity", opacity):g}" stroke="{edge}"'
            yield _rect(x.at([middle - half, middle + half]), y.at([0, height]), shade, more)
        return
    if kind != "scatter" and trace.get("boxpoints") != "all":
        raise ValueError(f"svg: draws no trace of type {kind!r}")
    points = np.column_stack([x.at(trace["x"]), y.at(trace["y"])])
    if kind == "box":  # a strip of dots (`plotly.express.strip`), spread so that few hide others
        points[:, 0] += 0.5 * (np.arange(len(points)) * 0.618034 % 1 - 0.5) * np.diff(x.at([0, 1]))
    mode = trace.get("mode", "markers" if kind == "box" else "lines")
    if trace.get("fill"):
        color = html.escape(trace.get("fillcolor") or shade)
        yield f'<path d="{_d(points)}Z" fill="{color}" opacity="{opacity:g}" stroke="none"/>'
    if "lines" in mode and line.get("width", 2):
        yield _path(points, line, opacity)
    bars = trace.get("error_x") or {}
    for place, more in enumerate(bars.get("array", ())):
        ends = x.at([trace["x"][place] - bars["arrayminus"][place], trace["x"][place] + more])
        yield _path([(end, points[place, 1]) for end in ends], {"color": shade})
    if "markers" in mode:
        yield from _marks(points, marker, opacity)


def _rect(across: np.ndarray, up: np.ndarray, fill: str, more: str = "") -> str:
    size = f'width="{abs(np.diff(across))[0]:.1f}" height="{abs(np.diff(up))[0]:.1f}"'
    return f'<rect x="{min(across):.1f}" y="{min(up):.1f}" {size} fill="{html.escape(fill)}"{more}/>'


def _marks(points: Points, marker: Mapping[str, Any], opacity: float = 1) -> Iterator[str]:
    """Yield one path for all marks that look alike: dots and diamonds, filled or open."""
    points, symbols, size = list(points), marker.get("symbol", "circle"), marker.get("size", 6)
    symbols, r = [symbols] * len(points) if isinstance(symbols, str) else list(symbols), size / 2
    shade, edge = html.escape(marker.get("color", BLUE)), html.escape(marker.get("line", {}).get("color", "none"))
    diamond, ring = f"m0 {-r:g}l{r:g} {r:g}l{-r:g} {r:g}l{-r:g} {-r:g}z", f"m{-r:g} 0a{r:g} {r:g} 0 1 0 {size:g} 0"
    looks = {
        # A dot is a line of length 0 with round ends.
        "circle": ("h0", f'stroke="{shade}" stroke-width="{size:g}" stroke-linecap="round"'),
        "circle-open": (f"{ring}a{r:g} {r:g} 0 1 0 {-size:g} 0", f'fill="none" stroke="{shade}"'),
        "diamond": (diamond, f'fill="{shade}" stroke="{edge}"'),
        "diamond-open": (diamond, f'fill="none" stroke="{shade}" stroke-width="2"'),
    }
    for symbol in dict.fromkeys(symbols):
        outline, look = looks[symbol]
        own = [point for point, one in zip(points, symbols, strict=True) if one == symbol]
        path = "".join(f"M{x:.1f} {y:.1f}{outline}" for x, y in own if np.isfinite(x + y))
        yield f'<path d="{path}" {look} opacity="{opacity * marker.get("opacity", 1):g}"/>'


def _shade(trace: Mapping[str, Any]) -> str:
    """Return the one colour of a trace, or its first colour."""
    found = trace.get("marker", {}).get("color") or trace.get("line", {}).get("color") or BLUE
    return found if isinstance(found, str) else found[0]


def _d(points: Points) -> str:
    """Return the path through all points; it starts again after each missing point."""
    places = [f"{x:.1f} {y:.1f}" if np.isfinite(x + y) else "" for x, y in points]
    return "".join(f"{'L' if last else 'M'}{at}" for last, at in zip(["", *places], places, strict=False) if at)


def _path(points: Points, line: Mapping[str, Any], opacity: float = 1) -> str:
    dash = f' stroke-dasharray="{DASHES[line["dash"]]}"' if line.get("dash") in DASHES else ""
    return (
        f'<path d="{_d(points)}" fill="none" stroke="{html.escape(line.get("color", BLUE))}" '
        f'stroke-width="{line.get("width", 2):g}" opacity="{opacity:g}"{dash}/>'
    )


def _text(x: float, y: float, words: str, anchor: str = "middle", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{html.escape(words)}</text>'


def show(figure: Figure) -> None:
    """Show any plotly figure in a notebook, with its picture."""
    from IPython.display import display

    renders = plotly.io.renderers.render_on_display and plotly.io.renderers.default
    if bundle := with_picture(figure) if renders else {}:
        display({"text/html": in_a_notebook()}, raw=True)  # separate, because a front end shows one form of a bundle
        display(bundle, raw=True)
    else:
        figure._ipython_display_()


def with_picture(figure: Figure) -> dict[str, Any]:
    """Return the figure's output in a notebook as a MIME bundle with its picture; empty if plotly shows nothing."""
    if front_end() == "static" and "PLOTLY_RENDERER" not in os.environ:
        # plotly 5 would put a copy of plotly.js beside each figure
        bundle = plotly.io.renderers["plotly_mimetype"].to_mimebundle(figure.to_dict())
    elif not (bundle := figure._repr_mimebundle_()):
        return {}
    static, live = beside(picture(figure) + numbers(figure)), bundle.get("text/html")
    return bundle | {"text/html": static if live is None else live_or_static(live, static)}


def picture(figure: Figure) -> str:
    """Return the figure as an <img> that contains its SVG, or as a sentence if only plotly can draw it."""
    described = html.escape(description(figure), quote=True)
    try:
        data = base64.b64encode(svg(figure).encode()).decode()
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError):
        return f"<p>{described}</p>"
    return f'<img alt="{described}" style="max-width: 100%" src="data:image/svg+xml;base64,{data}">'


def description(figure: Figure) -> str:
    """Return a sentence on what a figure shows: its axes, its panels, and the names in its key."""
    traces, layout = plain(figure)
    titles = [(name[0], title_of(axis)) for name, axis in sorted(layout.items()) if name[1:5] == "axis"]
    across = [_listed(title for of, title in titles if of == letter) for letter in "yx"]
    notes = _listed(note["text"] for note in layout.get("annotations", ()))
    parts = (" over ".join(filter(None, across)), notes, _listed(named(traces, layout)))
    return ". ".join(filter(None, parts)) or "Figure"


def _listed(texts: Iterable[str]) -> str:
    return ", ".join(filter(None, dict.fromkeys(map(plain_text, texts))))


def numbers(figure: Figure) -> str:
    """Return a folded table with the lowest, mean and highest value of a figure's traces, or an empty text.

    It is for viewers that also remove images. A trace counts along its axis of numbers: y, unless that shows names.
    """
    (traces, layout), rows = plain(figure), []
    for trace in traces:
        place = trace.get("yaxis", "y")[1:]
        is_flat = trace.get("orientation") == "h" or "ticktext" in layout.get(f"yaxis{place}", {})
        letter = "x" if is_flat else "y"
        title = plain_text(title_of(layout.get(f"{letter}axis{place}", {})))
        rows += [(plain_text(trace.get("name", "")), title, value) for value in trace.get(letter, ())]
    table = pd.DataFrame(rows, columns=["name", "of", "value"])
    table["value"] = pd.to_numeric(table["value"], errors="coerce")
    by = table.dropna().groupby(["name", "of"], sort=False)["value"]
    table = by.agg(points="size", lowest="min", mean="mean", highest="max").reset_index()
    if table.empty:
        return ""
    return folded("The figure in numbers", table_html(table, "Its points, over all that has one name"))
