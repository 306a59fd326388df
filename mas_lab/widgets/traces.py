"""Draw the content of a figure's picture within its axes as SVG: lines, marks, bars and cells.

This module leaves out the axes (`axes`) and everything around them (`svg`).
"""

import html
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mas_lab.widgets.axes import Axis, bars_of

DASHES = {"dash": "7 5", "dot": "2 3", "dashdot": "7 3 2 3"}
UNSEEN = "rgba(255,255,255,0)"
GOLDEN = 0.618034
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")


class NotDrawnError(ValueError):
    """Error for a part of a figure that its picture cannot show."""


def draw(trace: dict, x: Axis, y: Axis, before: list[tuple[float, float]]) -> Iterator[str]:
    """Yield the SVG of a trace; `before` holds the last line's corners, up to which the next may be filled."""
    kind, opacity = trace.get("type", "scatter"), trace.get("opacity", 1)
    if kind == "heatmap":
        yield from _cells(trace, x, y)
    elif kind in ("bar", "histogram"):
        yield from _bars(trace, x, y)
    elif kind == "strip":
        beside = x.at(1) - x.at(0)
        points = [(x.at(one) + beside * by, y.at(other)) for one, other, by in zip(*_of_strip(trace), strict=True)]
        yield from marks(points, {"color": shade_of(trace)} | trace.get("marker", {}), opacity)
    elif kind == "scatter":
        points = [(x.at(one), y.at(other)) for one, other in zip(trace["x"], trace["y"], strict=True)]
        mode = trace.get("mode", "lines")
        line = {"color": shade_of(trace)} | trace.get("line", {})
        corners = list(_steps(points)) if line.get("shape") == "hv" else points
        if fill := trace.get("fill"):
            outline = corners + (before[::-1] if fill == "tonexty" else [])
            shade = _quoted(trace.get("fillcolor") or line["color"])
            yield f'<path d="{_along(outline)}Z" fill="{shade}" opacity="{opacity:g}" stroke="none"/>'
        if "lines" in mode and line.get("width", 2):
            yield path(corners, line, opacity)
        if "markers" in mode:
            yield from _errors(trace, x, y)
            yield from marks(points, {"color": shade_of(trace)} | trace.get("marker", {}), opacity)
        before[:] = corners
    else:
        raise NotDrawnError(f"svg: draws no trace of type {kind!r}")


def strips(traces: Sequence[dict]) -> list[dict]:
    """Return the traces with each box that shows only points (`plotly.express.strip`) as a strip with its `room`."""
    told = {"boxpoints": "all", "fillcolor": UNSEEN, "type": "box", "orientation": "v"}
    alone = [all(one.get(name) == value for name, value in told.items()) for one in traces]
    groups = [one.get("offsetgroup", one.get("name", "")) for one in traces]
    apart = list(dict.fromkeys(group for group, is_strip in zip(groups, alone, strict=True) if is_strip))
    return [
        one | {"type": "strip", "mode": "markers", "room": (apart.index(group), len(apart))} if is_strip else one
        for one, group, is_strip in zip(traces, groups, alone, strict=True)
    ]


def _of_strip(trace: dict) -> tuple[Sequence, Sequence, list[float]]:
    """Return (names, values, distance of each point from the middle of its name).

    Points of one name are spread evenly, so that none hides another. Their order separates neighbours.
    """
    place, count = trace["room"]
    width = 0.7 / count
    middle = (place - (count - 1) / 2) * width
    spread = [((number * GOLDEN) % 1 - 0.5) * 0.6 * width for number in range(len(trace["x"]))]
    return trace["x"], trace["y"], [middle + by for by in spread]


def _steps(points: Sequence[tuple]) -> Iterator[tuple]:
    """Yield the corners of a line that goes level first, then up or down."""
    for (x, y), (right, _) in zip(points, [*points[1:], points[-1]], strict=True):
        yield from ((x, y), (right, y))


def _errors(trace: dict, x: Axis, y: Axis) -> Iterator[str]:
    bars = trace.get("error_x") or {}
    for place, more in enumerate(bars.get("array", ())):
        middle, height = trace["x"][place], y.at(trace["y"][place])
        ends = x.at(middle - bars.get("arrayminus", bars["array"])[place]), x.at(middle + more)
        style = {"color": shade_of(trace), "width": bars.get("thickness", 2)}
        yield path([(end, height) for end in ends], style)
        for end in ends:
            yield path([(end, height - 4), (end, height + 4)], style)


def _bars(trace: dict, x: Axis, y: Axis) -> Iterator[str]:
    marker = trace.get("marker", {})
    line, shades = marker.get("line", {}), marker.get("color") or PALETTE[0]
    edge = f' stroke="{_quoted(line["color"])}" stroke-width="{line.get("width", 1):g}"' if line.get("color") else ""
    for place, (low, high, along, start, end) in enumerate(bars_of(trace)):
        over, up = (x, y) if along == "x" else (y, x)
        (a, b), (c, d) = sorted((over.at(low), over.at(high))), sorted((up.at(start), up.at(end)))
        left, top, wide, tall = (a, c, b - a, d - c) if along == "x" else (c, a, d - c, b - a)
        shade = shades if isinstance(shades, str) else shades[place]
        yield (
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{tall:.1f}" fill="{_quoted(shade)}" '
            f'opacity="{marker.get("opacity", trace.get("opacity", 1)):g}"{edge}/>'
        )


def _cells(trace: dict, x: Axis, y: Axis) -> Iterator[str]:
    values, scale = np.asarray(trace["z"], float), trace["colorscale"]
    low, span = np.nanmin(values), np.ptp(values) or 1.0
    for (row, column), value in np.ndenumerate(values):
        shade = min(scale, key=lambda stop: abs(stop[0] - (value - low) / span))[1]
        left, right = sorted((x.at(column - 0.5), x.at(column + 0.5)))
        top, bottom = sorted((y.at(row - 0.5), y.at(row + 0.5)))
        gap = trace.get("xgap", 0) / 2
        size = f'width="{right - left - 2 * gap:.1f}" height="{bottom - top - 2 * gap:.1f}"'
        yield f'<rect x="{left + gap:.1f}" y="{top + gap:.1f}" {size} fill="{_quoted(shade)}"/>'


def marks(points: Sequence[tuple], marker: Mapping[str, Any], opacity: float) -> Iterator[str]:
    """Yield one path for all marks that look alike."""
    symbols, size, line = marker.get("symbol", "circle"), marker.get("size", 6), marker.get("line", {})
    several = not isinstance(symbols, str)
    look = f'opacity="{opacity * marker.get("opacity", 1):g}"'
    for symbol in dict.fromkeys(symbols) if several else (symbols,):
        own = [point for place, point in enumerate(points) if not several or symbols[place] == symbol]
        own = [(x, y) for x, y in own if _is_number(x) and _is_number(y)]
        shade, width = _quoted(marker.get("color", PALETTE[0])), line.get("width", 1)
        if symbol == "circle":  # a dot is a line of length 0 with round ends
            dots = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in own)
            yield f'<path d="{dots}" stroke="{shade}" stroke-width="{size:g}" stroke-linecap="round" {look}/>'
            continue
        outline = "".join(f"M{x:.1f} {y:.1f}{_outline(symbol, size)}" for x, y in own)
        if symbol in ("diamond", "square"):
            paint = f'fill="{shade}" stroke="{_quoted(line.get("color", "none"))}"'
        else:
            paint = f'fill="none" stroke="{shade}"'
        yield f'<path d="{outline}" {paint} stroke-width="{width:g}" {look}/>'


def _outline(symbol: str, size: float) -> str:
    """Return the outline of a mark, around the point where the path is."""
    r = size / 2
    if symbol == "circle-open":
        return f"m{-r:g} 0a{r:g} {r:g} 0 1 0 {size:g} 0a{r:g} {r:g} 0 1 0 {-size:g} 0"
    if symbol == "x-thin":
        return f"m{-r:g} {-r:g}l{size:g} {size:g}m{-size:g} 0l{size:g} {-size:g}"
    if symbol == "square":
        return f"m{-r:g} {-r:g}h{size:g}v{size:g}h{-size:g}z"
    if symbol in ("diamond", "diamond-open"):
        return f"m0 {-r:g}l{r:g} {r:g}l{-r:g} {r:g}l{-r:g} {-r:g}z"
    raise NotDrawnError(f"svg: draws no mark {symbol!r}")


def shade_of(trace: Mapping[str, Any]) -> str:
    """Return the one colour of a trace, or its first colour."""
    found = trace.get("marker", {}).get("color") or trace.get("line", {}).get("color") or PALETTE[0]
    return found if isinstance(found, str) else found[0]


def _along(points: Sequence[tuple]) -> str:
    """Return the path through all points; it starts again after each missing point."""
    told, draws = [], False
    for x, y in points:
        if not (_is_number(x) and _is_number(y)):
            draws = False
            continue
        told.append(f"{'L' if draws else 'M'}{x:.1f} {y:.1f}")
        draws = True
    return "".join(told)


def path(points: Sequence[tuple], line: Mapping[str, Any], opacity: float = 1) -> str:
    """Return a line through points, with gaps at missing points."""
    dash = f' stroke-dasharray="{DASHES[line["dash"]]}"' if line.get("dash") in DASHES else ""
    return (
        f'<path d="{_along(points)}" fill="none" stroke="{_quoted(line.get("color", PALETTE[0]))}" '
        f'stroke-width="{line.get("width", 2):g}" opacity="{opacity:g}"{dash}/>'
    )


def text(x: float, y: float, words: str, anchor: str = "middle", more: str = "") -> str:
    """Return a text element; `more` holds further attributes."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{html.escape(words)}</text>'


def _quoted(value: Any) -> str:
    return html.escape(str(value), quote=True)


def _is_number(value: Any) -> bool:
    return value is not None and bool(np.isfinite(value))
