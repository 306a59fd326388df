"""Draw a figure as an SVG picture, for places where no script runs: viewers, untrusted notebooks, printed pages.

It draws the content of this kit's figures: lines, marks, bars, histograms and a map of cells on Cartesian axes. It also
draws shapes, notes and a key. This module leaves out everything else in plotly, and hover texts.
"""

import base64
import html
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mas_lab.widgets.axes import Axis, axes_of
from mas_lab.widgets.traces import NotDrawnError, draw, marks, path, shade_of, strips, text

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

WIDTH, HEIGHT = 760, 450
MARGIN = {"l": 60, "r": 20, "t": 50, "b": 50}
LETTER, ROW, LINE = 6.4, 18, 14
"""Pixels of a letter's width, of a row of the key, and of a line of text."""
TITLE, PANEL = 34, 130
"""Pixels for the title of a panel below the key, and the minimum width of a panel."""
UNKNOWN = (NotDrawnError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError)
INK, GRID = "#2a3f5f", "#e3e8f0"


def picture(figure: "Figure", described: str = "") -> str:
    """Return the figure as an <img> that contains its SVG, with `described` or `told(figure)` as alternative text."""
    described = html.escape(described or told(figure), quote=True)
    try:
        data = base64.b64encode(svg(figure).encode()).decode()
    except UNKNOWN:  # only plotly can draw this user's figure; show it as text
        return f"<p>{described}</p>"
    return f'<img alt="{described}" style="max-width: 100%" src="data:image/svg+xml;base64,{data}">'


def svg(figure: "Figure") -> str:
    """Return the figure as the text of an SVG file."""
    traces, layout = _plain(figure)
    columns = len({tuple(axis.get("domain") or ()) for name, axis in layout.items() if name.startswith("xaxis")})
    width, height = layout.get("width", max(WIDTH, PANEL * columns)), layout.get("height", HEIGHT)
    margin = MARGIN | layout.get("margin", {})
    key, top = _key(_named(traces, layout), width)
    top += TITLE if key else margin["t"]
    box = (margin["l"], top, width - margin["r"], top + height - margin["t"] - margin["b"])
    axes = axes_of(traces, layout, box)
    needed = max(axis.beside + 16 for axis in axes.values() if axis.letter == "y")
    if needed > margin["l"]:
        box = (needed, *box[1:])
        axes = axes_of(traces, layout, box)
    height = box[3] + max([margin["b"], *(_below(axis) for axis in axes.values() if axis.letter == "x")])
    parts = [part for axis in axes.values() for part in _axis(axis)]
    parts += [part for shape in layout.get("shapes", ()) for part in _shape(shape, axes, box)]
    before: list[tuple[float, float]] = []
    for trace in traces:
        pair = axes[trace.get("xaxis", "x")], axes[trace.get("yaxis", "y")]
        parts += draw(trace, *pair, before)
    parts += [part for note in layout.get("annotations", ()) for part in _note(note, axes, box)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height:.0f}" '
        f'viewBox="0 0 {width} {height:.0f}" font-family="system-ui, sans-serif" font-size="12" fill="{INK}">'
        f'<rect width="100%" height="100%" fill="#ffffff"/>{"".join(key)}{"".join(parts)}</svg>'
    )


def _plain(figure: "Figure") -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the traces and the layout with plain arrays, which plotly's own plain form may encode."""
    return strips([trace.to_plotly_json() for trace in figure.data]), figure.layout.to_plotly_json()


def told(figure: "Figure") -> str:
    """Return a sentence on what a figure shows: its axes and the names in its key."""
    traces, layout = _plain(figure)
    titles = {"x": [], "y": []}
    for name, axis in sorted(layout.items()):
        if (found := re.match("([xy])axis", name)) and (title := plain_text(_title(axis))) not in titles[found[1]]:
            titles[found[1]] += [title] if title else []
    names = [plain_text(name) for name, *_ in _named(traces, layout)]
    of = [plain_text(note["text"]) for note in layout.get("annotations", ())]
    across = " over ".join(", ".join(titles[letter]) for letter in "yx" if titles[letter])
    return ". ".join(part for part in (across, ", ".join(dict.fromkeys(of)), ", ".join(names)) if part) or "Figure"


def plain_text(text: Any) -> str:
    """Return a text of plotly's without its tags and entities."""
    return html.unescape(re.sub("<[^>]*>", " ", str(text))).strip()


def _title(axis: Mapping[str, Any]) -> str:
    return (axis.get("title") or {}).get("text") or ""


def _named(traces: Sequence[dict], layout: dict) -> list[tuple[str, dict]]:
    """Return the names in the key, each once with its trace or shape."""
    lines = [shape for shape in layout.get("shapes", ()) if shape.get("showlegend")]
    several = len(traces) > 1 and layout.get("showlegend") is not False
    shown = [one for one in traces if one.get("name") and one.get("showlegend", several)]
    return list({one["name"]: one for one in [*shown, *lines]}.items())


def _key(named: list[tuple[str, dict]], width: float) -> tuple[list[str], float]:
    """Return names with their marks, in rows above the figure, and the height of these rows."""
    parts, x, y = [], 12.0, 14.0
    for name, one in named:
        label = plain_text(name)
        if x > 12 and x + 30 + LETTER * len(label) > width:
            x, y = 12.0, y + ROW
        filled, mode = one.get("type") in ("bar", "histogram"), one.get("mode", "")
        look = {**one.get("marker", {}), "size": 10, "color": shade_of(one)} | ({"symbol": "square"} if filled else {})
        if (not filled and "markers" not in mode) or "lines" in mode:
            parts.append(path([(x, y - 4), (x + 18, y - 4)], one.get("line", {}), one.get("opacity", 1)))
        if filled or "markers" in mode:
            parts += marks([(x + 9, y - 4)], look, one.get("opacity", 1))
        parts.append(text(x + 23, y, label, "start"))
        x += 40 + LETTER * len(label)
    return parts, y + 4 if named else 0.0


def _axis(axis: Axis) -> Iterator[str]:
    """Yield the grid, the labels and the title of an axis."""
    left, top, right, bottom = axis.box
    is_x = axis.letter == "x"
    for place, label in axis.ticks():
        if axis.layout.get("showgrid") is not False and not axis.names:
            ends = [(place, top), (place, bottom)] if is_x else [(left, place), (right, place)]
            yield path(ends, {"color": GRID, "width": 1})
        for number, line in enumerate(_lines(label) if axis.has_labels else ()):
            if is_x:
                yield text(place, bottom + 16 + LINE * number, line)
            else:
                yield text(left - 7, place + 4 + LINE * (number - (len(_lines(label)) - 1) / 2), line, "end")
    size = ' font-size="13"'
    for number, line in enumerate(_lines(_title(axis.layout))):
        if is_x:
            yield text((left + right) / 2, bottom + 22 + LINE * (_rows(axis) + number), line, more=size)
        else:
            x, y = left - axis.beside + LINE * number, (top + bottom) / 2
            yield text(x, y, line, more=f'{size} transform="rotate(-90 {x:.0f} {y:.0f})"')


def _lines(label: str) -> list[str]:
    return [plain_text(line) for line in re.split("<br */?>", label)]


def _rows(axis: Axis) -> int:
    """Return the number of text lines in the labels below an axis."""
    return max((len(_lines(label)) for _, label in axis.ticks() if axis.has_labels), default=0)


def _below(axis: Axis) -> float:
    """Return the pixels that the text below an axis takes."""
    return 30 + LINE * (_rows(axis) + len(_lines(_title(axis.layout))) - 1)


def _shape(shape: dict, axes: Mapping[str, Axis], box: tuple) -> Iterator[str]:
    if shape.get("type") != "line":
        raise NotDrawnError(f"svg: draws no shape of type {shape.get('type')!r}")
    ends = [
        (_placed(shape[f"x{end}"], shape.get("xref", "x"), axes, box, "x"),
         _placed(shape[f"y{end}"], shape.get("yref", "y"), axes, box, "y")) for end in "01"
    ]  # fmt: skip
    yield path(ends, shape.get("line", {}))


def _placed(value: float, ref: str, axes: Mapping[str, Axis], box: tuple, letter: str) -> float:
    """Return the pixel of a shape or note: by an axis, or as a share of its panel or of the whole figure."""
    if ref == "paper" or ref.endswith("domain"):
        left, top, right, bottom = box if ref == "paper" else axes[ref.split()[0]].box
        return left + value * (right - left) if letter == "x" else bottom - value * (bottom - top)
    return axes[ref].at(value)


def _note(note: dict, axes: Mapping[str, Axis], box: tuple) -> Iterator[str]:
    x = _placed(note["x"], note.get("xref", "x"), axes, box, "x") + note.get("xshift", 0)
    y = _placed(note["y"], note.get("yref", "y"), axes, box, "y") - note.get("yshift", 0)
    up = {"bottom": -6, "top": 12}.get(note.get("yanchor"), 4)
    yield text(x, y + up, plain_text(note["text"]), more=' font-weight="600"')
