"""Draw plotly figures as SVG, for places where no script runs: viewers, untrusted notebooks, printed pages.

The pictures hold what the figures of this kit hold: lines, marks, bars, dots by name and maps of cells on Cartesian
axes, with lines across, notes and a key. Anything else becomes a sentence. This module leaves out hover texts, and how
a figure carries its picture (`picture`).
"""

import base64
import html
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

WIDTH, HEIGHT, PANEL = 760, 450, 130
"""Pixels of a figure without a size of its own, and the minimum width of a panel."""
MARGIN = {"l": 60, "r": 20, "t": 50, "b": 50}
LETTER, ROW, LINE, TITLE = 6.4, 18, 14, 34
"""Pixels of a letter's width, of a row of the key, of a line of text, and of a panel's title below the key."""
INK, GRID, BLUE = "#2a3f5f", "#e3e8f0", "#0072B2"
DASHES = {"dash": "7 5", "dot": "2 3", "dashdot": "7 3 2 3"}
MARKS = {
    "circle-open": "m-{r:g} 0a{r:g} {r:g} 0 1 0 {d:g} 0a{r:g} {r:g} 0 1 0 -{d:g} 0",
    "x-thin": "m-{r:g} -{r:g}l{d:g} {d:g}m-{d:g} 0l{d:g} -{d:g}",
    "square": "m-{r:g} -{r:g}h{d:g}v{d:g}h-{d:g}z",
    "diamond": "m0 -{r:g}l{r:g} {r:g}l-{r:g} {r:g}l-{r:g} -{r:g}z",
    "diamond-open": "m0 -{r:g}l{r:g} {r:g}l-{r:g} {r:g}l-{r:g} -{r:g}z",
}
"""Outline of each mark but the dot, around the point where the path is; r is half of its size d."""
Box = tuple[float, float, float, float]


def picture(figure: "Figure") -> str:
    """Return the figure as an <img> that contains its SVG, or as a sentence if only plotly can draw it."""
    described = html.escape(told(figure), quote=True)
    try:
        data = base64.b64encode(svg(figure).encode()).decode()
    except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError):
        return f"<p>{described}</p>"
    return f'<img alt="{described}" style="max-width: 100%" src="data:image/svg+xml;base64,{data}">'


def told(figure: "Figure") -> str:
    """Return a sentence on what a figure shows: its axes, its panels, and the names in its key."""
    traces, layout = _plain(figure)
    across = []
    for letter in "yx":
        titles = [plain_text(title_of(axis)) for name, axis in sorted(layout.items()) if name[:5] == f"{letter}axis"]
        across += [", ".join(dict.fromkeys(filter(None, titles)))] if any(titles) else []
    notes = dict.fromkeys(plain_text(note["text"]) for note in layout.get("annotations", ()))
    names = map(plain_text, _named(traces, layout))
    return ". ".join(filter(None, (" over ".join(across), ", ".join(notes), ", ".join(names)))) or "Figure"


def svg(figure: "Figure") -> str:
    """Return the figure as the text of an SVG file."""
    traces, layout = _plain(figure)
    columns = len({tuple(axis.get("domain") or ()) for name, axis in layout.items() if name.startswith("xaxis")})
    width, height = layout.get("width", max(WIDTH, PANEL * columns)), layout.get("height", HEIGHT)
    margin = MARGIN | layout.get("margin", {})
    key, top = _key(_named(traces, layout), width)
    top += TITLE if key else margin["t"]
    bottom = top + height - margin["t"] - margin["b"]
    axes = axes_of(traces, layout, (margin["l"], top, width - margin["r"], bottom))
    left = max([margin["l"], *(axis.room + 16 for name, axis in axes.items() if name[0] == "y")])
    box = (left, top, width - margin["r"], bottom)
    axes = axes_of(traces, layout, box)
    height = bottom + max([margin["b"], *(axis.room for name, axis in axes.items() if name[0] == "x")])
    parts, before = [part for name in axes for part in _axis(name, axes)], []
    for shape in layout.get("shapes", ()):
        if shape.get("type") != "line":
            raise ValueError(f"svg: draws no shape of type {shape.get('type')!r}")
        parts.append(_path([_placed(shape, axes, box, end) for end in "01"], shape.get("line", {})))
    for trace in traces:
        parts += _drawn(trace, axes[trace.get("xaxis", "x")], axes[trace.get("yaxis", "y")], before)
    for note in layout.get("annotations", ()):
        x, y = _placed(note, axes, box)
        y += {"bottom": -6, "top": 12}.get(note.get("yanchor"), 4) - note.get("yshift", 0)
        parts.append(_text(x + note.get("xshift", 0), y, plain_text(note["text"]), more=' font-weight="600"'))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height:.0f}" font-size="12" fill="{INK}" '
        f'viewBox="0 0 {width} {height:.0f}" font-family="system-ui, sans-serif">'
        f'<rect width="100%" height="100%" fill="#ffffff"/>{"".join([*key, *parts])}</svg>'
    )


def _plain(figure: "Figure") -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the traces and the layout with plain arrays, which plotly's own plain form may encode."""
    return [trace.to_plotly_json() for trace in figure.data], figure.layout.to_plotly_json()


def plain_text(text: Any) -> str:
    """Return a text of plotly's without its tags and entities."""
    return html.unescape(re.sub("<[^>]*>", " ", str(text))).strip()


def _lines(text: str) -> list[str]:
    return [plain_text(line) for line in re.split("<br */?>", text)]


def title_of(axis: Mapping[str, Any]) -> str:
    return (axis.get("title") or {}).get("text") or ""


def axis_of(layout: dict, short: str) -> dict[str, Any]:
    """Return the layout of an axis by plotly's short name: of "yaxis2" for "y2"."""
    return layout.get(f"{short[0]}axis{short[1:]}", {})


# Axes


@dataclass
class Axis:
    """An axis from the pixel `start` to `end`, with the values `low` and `high` there; of a log axis, their log10."""

    layout: dict[str, Any]
    start: float
    end: float
    low: float = 0.0
    high: float = 1.0
    names: list[str] = field(default_factory=list)
    """Names along the axis in their order, if it shows names instead of numbers."""

    @property
    def is_log(self) -> bool:
        return self.layout.get("type") == "log"

    @property
    def is_x(self) -> bool:
        return self.start < self.end

    def at(self, value: Any) -> float | None:
        """Return the pixel of a value, or `None` if the axis cannot show it."""
        value = self.names.index(value) if isinstance(value, str) else value
        if not _is_number(value) or (self.is_log and value <= 0):
            return None
        share = ((math.log10(value) if self.is_log else float(value)) - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[tuple[float, str]]:
        """Return (pixel, label) of each tick."""
        ends = sorted((self.start, self.end))
        found = [(self.at(value), label) for value, label in self._ticks(*sorted((self.low, self.high)))]
        return [(place, label) for place, label in found if ends[0] - 0.01 <= place <= ends[1] + 0.01]

    def _ticks(self, low: float, high: float) -> Iterable[tuple[float, str]]:
        if (given := self.layout.get("tickvals")) is not None:
            texts = self.layout.get("ticktext")
            return zip(given, texts if texts is not None else [f"{value:g}" for value in given], strict=True)
        if self.names:
            return enumerate(self.names)
        if self.is_log:
            digits = range(1, 10) if high - low < 0.8 else (1, 2, 5) if high - low < 3 else (1,)
            powers = range(math.floor(low), math.ceil(high) + 1)
            return [(digit * 10.0**power, f"{digit * 10.0**power:g}") for power in powers for digit in digits]
        most = min(self.layout.get("nticks", 8), 8, max(2, int(abs(self.end - self.start) / (45 if self.is_x else 35))))
        power = 10.0 ** math.floor(math.log10(max(high - low, 1e-12) / most))
        step = next(digit * power for digit in (1, 2, 5, 10, 20) if (high - low) / (digit * power) <= most)
        decimals = max(0, -math.floor(math.log10(step)))
        numbers = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
        return [(number * step, f"{number * step:,.{decimals}f}") for number in numbers]

    def labels(self) -> list[tuple[float, list[str]]]:
        """Return (pixel, lines of the label) of each tick."""
        is_shown = self.layout.get("showticklabels") is not False
        return [(place, _lines(label) if is_shown else []) for place, label in self.ticks()]

    @property
    def room(self) -> float:
        """Return the pixels from the panel to the far side of the axis's title: its labels stand between."""
        lines = [lines for _, lines in self.labels()]
        if self.is_x:
            return 30 + LINE * (max(map(len, lines), default=0) + len(_lines(title_of(self.layout))) - 1)
        return 20 + LETTER * max((len(line) for own in lines for line in own), default=0)


def axes_of(traces: Sequence[dict], layout: dict, box: Box) -> dict[str, Axis]:
    """Return all axes of a figure that is drawn in `box`, by plotly's short names: x, y, x2, ..."""
    named = [name.replace("axis", "") for name in layout if name[1:5] == "axis"]
    used = [trace.get(f"{letter}axis", letter) for trace in traces for letter in "xy"]
    left, top, right, bottom = box
    axes = {}
    for name in dict.fromkeys([*named, *used]):
        own, (start, end) = axis_of(layout, name), (left, right) if name[0] == "x" else (bottom, top)
        axes[name] = Axis(own, *(start + share * (end - start) for share in own.get("domain") or (0, 1)))
    for name, axis in axes.items():
        matched = axis.layout.get("matches", name)
        alike = [one for one, other in axes.items() if other.layout.get("matches", one) == matched or one == matched]
        _span(axis, [trace for trace in traces if trace.get(f"{name[0]}axis", name[0]) in alike])
    for axis in axes.values():
        if (other := axes.get(axis.layout.get("scaleanchor"))) is not None:  # a unit is as long on both axes
            unit = min(abs(one.end - one.start) / abs(one.high - one.low) for one in (axis, other))
            for one in (axis, other):
                middle, half = (one.start + one.end) / 2, unit * abs(one.high - one.low) / 2
                one.start, one.end = (middle - half, middle + half) if one.is_x else (middle + half, middle - half)
    return axes


def _span(axis: Axis, traces: Sequence[dict]) -> None:
    """Set the range to the one in the layout, or else from the smallest to the largest value of the traces."""
    if (given := axis.layout.get("range")) is not None:
        axis.low, axis.high = map(float, given)
        return
    axis.names = list(axis.layout.get("categoryarray") or ())
    found = np.array([value for trace in traces for value in _values(trace, axis) if value is not None], float)
    found = found[np.isfinite(found) & ((found > 0) | (not axis.is_log))]
    found = np.log10(found) if axis.is_log else found
    low, high = (found.min(), found.max()) if len(found) else (0.0, 1.0)
    kinds = {trace.get("type", "scatter") for trace in traces}
    pad = 0.0 if "heatmap" in kinds or (axis.names and "box" in kinds) else 0.05 * (high - low) or 0.5
    is_from_0 = axis.layout.get("rangemode") in ("tozero", "nonnegative") and not axis.is_log
    axis.low = 0.0 if is_from_0 or (low == 0 and "bar" in kinds) else low - pad
    axis.high = high + pad
    if axis.layout.get("autorange") == "reversed":
        axis.low, axis.high = axis.high, axis.low


def _values(trace: dict, axis: Axis) -> list:
    """Return the values that a trace takes up along an axis, and add its names to those of the axis."""
    kind, letter = trace.get("type", "scatter"), "x" if axis.is_x else "y"
    if kind == "heatmap":
        return [-0.5, np.shape(trace["z"])[axis.is_x] - 0.5]
    held = list(trace.get(letter, ()))
    axis.names += [name for name in dict.fromkeys(held) if isinstance(name, str) and name not in axis.names]
    if kind == "bar":
        return [end for bar in bars_of(trace) for end in bar[letter == "y"]]
    if kind == "box" and axis.is_x:
        return [-0.5, len(axis.names) - 0.5]
    return [axis.names.index(value) if isinstance(value, str) else value for value in held]


def bars_of(trace: dict) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """Return the two ends of each bar of a trace along x, and along y."""
    is_flat, half = trace.get("orientation") == "h", 0.5 * (trace.get("width") or 0.8)
    names, heights = (trace["y"], trace["x"]) if is_flat else (trace["x"], trace["y"])
    middles = [place if isinstance(name, str) else name for place, name in enumerate(names)]
    bars = [((at - half, at + half), (0.0, height)) for at, height in zip(middles, heights, strict=True)]
    return [(up, across) for across, up in bars] if is_flat else bars


# Marks


def _axis(name: str, axes: Mapping[str, Axis]) -> Iterator[str]:
    """Yield the grid, the labels and the title of an axis."""
    axis, is_x, middle = axes[name], name[0] == "x", (axes[name].start + axes[name].end) / 2
    other = axes[axis.layout.get("anchor") or ("y" if is_x else "x")]
    for place, lines in axis.labels():
        if axis.layout.get("showgrid") is not False and not axis.names:
            ends = [(place, end) if is_x else (end, place) for end in (other.start, other.end)]
            yield _path(ends, {"color": GRID, "width": 1})
        for number, line in enumerate(lines):
            if is_x:
                yield _text(place, other.start + 16 + LINE * number, line)
            else:
                yield _text(other.start - 7, place + 4 + LINE * (number - (len(lines) - 1) / 2), line, "end")
    titles = _lines(title_of(axis.layout))
    for number, line in enumerate(titles):
        if is_x:
            yield _text(
                middle, other.start + axis.room + 6 - LINE * (len(titles) - number), line, more=' font-size="13"'
            )
        else:
            x = other.start - axis.room + LINE * number
            turned = f' font-size="13" transform="rotate(-90 {x:.0f} {middle:.0f})"'
            yield _text(x, middle, line, more=turned)


def _named(traces: Sequence[dict], layout: dict) -> dict[str, dict]:
    """Return the traces and lines in the key by their names."""
    lines = [shape for shape in layout.get("shapes", ()) if shape.get("showlegend")]
    several = len(traces) > 1 and layout.get("showlegend") is not False
    shown = [one for one in traces if one.get("name") and one.get("showlegend", several)]
    return {one["name"]: one for one in [*shown, *lines]}


def _key(named: Mapping[str, dict], width: float) -> tuple[list[str], float]:
    """Return names with their marks, in rows above the figure, and the height of these rows."""
    parts, x, y = [], 12.0, 14.0
    for name, one in named.items():
        label, opacity = plain_text(name), one.get("opacity", 1)
        if x > 12 and x + 30 + LETTER * len(label) > width:
            x, y = 12.0, y + ROW
        is_filled, mode = one.get("type") == "bar", one.get("mode", "")
        look = {**one.get("marker", {}), "size": 10, "color": _shade(one)} | ({"symbol": "square"} if is_filled else {})
        if "lines" in mode or not (is_filled or "markers" in mode):
            parts.append(_path([(x, y - 4), (x + 18, y - 4)], one.get("line", {}), opacity))
        if is_filled or "markers" in mode:
            parts += _marks([(x + 9, y - 4)], look, opacity)
        parts.append(_text(x + 23, y, label, "start"))
        x += 40 + LETTER * len(label)
    return parts, y + 4 if named else 0.0


def _placed(held: dict, axes: Mapping[str, Axis], box: Box, end: str = "") -> tuple[float, ...]:
    """Return the pixels of a note or of a line's end: by an axis, or as a share of its panel or of the whole figure."""
    left, top, right, bottom = box
    found = []
    for letter, start, stop in (("x", left, right), ("y", bottom, top)):
        value, ref = held[letter + end], held.get(f"{letter}ref", letter)
        if ref.endswith("domain"):
            start, stop = axes[ref.split()[0]].start, axes[ref.split()[0]].end
        is_share = ref == "paper" or ref.endswith("domain")
        found.append(start + value * (stop - start) if is_share else axes[ref].at(value))
    return tuple(found)


def _drawn(trace: dict, x: Axis, y: Axis, before: list[tuple]) -> Iterator[str]:
    """Yield the SVG of a trace; `before` holds the last line's corners, up to which the next may be filled."""
    kind, opacity, shade = trace.get("type", "scatter"), trace.get("opacity", 1), _shade(trace)
    if kind == "heatmap":
        yield from _cells(trace, x, y)
    elif kind == "bar":
        yield from _bars(trace, x, y)
    elif kind == "scatter" or trace.get("boxpoints") == "all":
        points = [(x.at(one), y.at(other)) for one, other in zip(trace["x"], trace["y"], strict=True)]
        if kind == "box":  # a strip of dots (`plotly.express.strip`), spread so that few hide others
            spread = [0.5 * (number * 0.618034 % 1 - 0.5) * (x.at(1) - x.at(0)) for number in range(len(points))]
            points = [(across + more, up) for (across, up), more in zip(points, spread, strict=True)]
        mode = trace.get("mode", "markers" if kind == "box" else "lines")
        line = {"color": shade} | trace.get("line", {})
        corners = list(_steps(points)) if line.get("shape") == "hv" else points
        if fill := trace.get("fill"):
            outline = corners + (before[::-1] if fill == "tonexty" else [])
            color = _quoted(trace.get("fillcolor") or line["color"])
            yield f'<path d="{_along(outline)}Z" fill="{color}" opacity="{opacity:g}" stroke="none"/>'
        if "lines" in mode and line.get("width", 2):
            yield _path(corners, line, opacity)
        if "markers" in mode:
            yield from _errors(trace, x, y)
            yield from _marks(points, {"color": shade} | trace.get("marker", {}), opacity)
        before[:] = corners
    else:
        raise ValueError(f"svg: draws no trace of type {kind!r}")


def _steps(points: Sequence[tuple]) -> Iterator[tuple]:
    """Yield the corners of a line that goes level first, then up or down."""
    for (x, y), (right, _) in zip(points, [*points[1:], points[-1]], strict=True):
        yield from ((x, y), (right, y))


def _errors(trace: dict, x: Axis, y: Axis) -> Iterator[str]:
    bars = trace.get("error_x") or {}
    for place, more in enumerate(bars.get("array", ())):
        middle, height = trace["x"][place], y.at(trace["y"][place])
        ends = x.at(middle - bars.get("arrayminus", bars["array"])[place]), x.at(middle + more)
        for line in ([(end, height) for end in ends], *([(end, height - 4), (end, height + 4)] for end in ends)):
            yield _path(line, {"color": _shade(trace), "width": bars.get("thickness", 2)})


def _bars(trace: dict, x: Axis, y: Axis) -> Iterator[str]:
    marker = trace.get("marker", {})
    line, shades = marker.get("line", {}), marker.get("color") or BLUE
    edge = f' stroke="{_quoted(line["color"])}" stroke-width="{line.get("width", 1):g}"' if line.get("color") else ""
    more = f' opacity="{marker.get("opacity", trace.get("opacity", 1)):g}"{edge}'
    for place, (across, up) in enumerate(bars_of(trace)):
        yield _rect(x, y, across, up, shades if isinstance(shades, str) else shades[place], more)


def _cells(trace: dict, x: Axis, y: Axis) -> Iterator[str]:
    values, scale, half = np.asarray(trace["z"], float), trace["colorscale"], 0.48 if trace.get("xgap") else 0.5
    low, span = np.nanmin(values), np.ptp(values) or 1.0
    for (row, column), value in np.ndenumerate(values):
        shade = min(scale, key=lambda stop: abs(stop[0] - (value - low) / span))[1]
        yield _rect(x, y, (column - half, column + half), (row - half, row + half), shade)


def _rect(x: Axis, y: Axis, across: Sequence[float], up: Sequence[float], fill: str, more: str = "") -> str:
    (left, right), (top, bottom) = sorted(map(x.at, across)), sorted(map(y.at, up))
    size = f'width="{right - left:.1f}" height="{bottom - top:.1f}"'
    return f'<rect x="{left:.1f}" y="{top:.1f}" {size} fill="{_quoted(fill)}"{more}/>'


def _marks(points: Sequence[tuple], marker: Mapping[str, Any], opacity: float) -> Iterator[str]:
    """Yield one path for all marks that look alike."""
    symbols, size, line = marker.get("symbol", "circle"), marker.get("size", 6), marker.get("line", {})
    symbols = [symbols] * len(points) if isinstance(symbols, str) else list(symbols)
    look, shade = f'opacity="{opacity * marker.get("opacity", 1):g}"', _quoted(marker.get("color", BLUE))
    for symbol in dict.fromkeys(symbols):
        own = [
            point for point, one in zip(points, symbols, strict=False) if one == symbol and all(map(_is_number, point))
        ]
        if symbol == "circle":  # a dot is a line of length 0 with round ends
            dots = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in own)
            yield f'<path d="{dots}" stroke="{shade}" stroke-width="{size:g}" stroke-linecap="round" {look}/>'
            continue
        outline = "".join(f"M{x:.1f} {y:.1f}{MARKS[symbol].format(r=size / 2, d=size)}" for x, y in own)
        is_full = symbol in ("diamond", "square")
        fill, edge = (shade, _quoted(line.get("color", "none"))) if is_full else ("none", shade)
        yield f'<path d="{outline}" fill="{fill}" stroke="{edge}" stroke-width="{line.get("width", 1):g}" {look}/>'


def _shade(trace: Mapping[str, Any]) -> str:
    """Return the one colour of a trace, or its first colour."""
    found = trace.get("marker", {}).get("color") or trace.get("line", {}).get("color") or BLUE
    return found if isinstance(found, str) else found[0]


def _along(points: Sequence[tuple]) -> str:
    """Return the path through all points; it starts again after each missing point."""
    parts, draws = [], False
    for x, y in points:
        is_known = _is_number(x) and _is_number(y)
        parts.append(f"{'L' if draws else 'M'}{x:.1f} {y:.1f}" if is_known else "")
        draws = is_known
    return "".join(parts)


def _path(points: Sequence[tuple], line: Mapping[str, Any], opacity: float = 1) -> str:
    """Return a line through points, with gaps at missing points."""
    dash = f' stroke-dasharray="{DASHES[line["dash"]]}"' if line.get("dash") in DASHES else ""
    return (
        f'<path d="{_along(points)}" fill="none" stroke="{_quoted(line.get("color", BLUE))}" '
        f'stroke-width="{line.get("width", 2):g}" opacity="{opacity:g}"{dash}/>'
    )


def _text(x: float, y: float, words: str, anchor: str = "middle", more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{html.escape(words)}</text>'


def _quoted(value: Any) -> str:
    return html.escape(str(value), quote=True)


def _is_number(value: Any) -> bool:
    return value is not None and bool(np.isfinite(value))
