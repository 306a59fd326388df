"""Draw states as small SVG pictures: a grid with marks, whose cells are named as in `maze`, and a ladder.

A picture has its own light background, so it is readable on a dark page. It needs no script, link or font. Marks differ
in shape, not only in colour. Each task's `draw` decides what is drawn where.
"""

from collections.abc import Iterable, Mapping, Sequence
from xml.sax.saxutils import escape, quoteattr

from mas_lab.tasks.shared.maze import Cell, State, word

SIDE, EDGE = 26, 18
"""Pixels of a cell, and of the edge with the names."""
INK, FAINT, WALL = "#222222", "#767676", "#4d4d4d"
BLUE, GREEN, ORANGE, RED = "#0072B2", "#00795a", "#E69F00", "#b3261e"


def picture(width: int, height: int, parts: Iterable[str], description: str) -> str:
    """Return `parts` on a light background; `description` says in words what they show."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label={quoteattr(description)} font-family="system-ui, sans-serif" font-size="12" '
        f'fill="{INK}">'
        f'<rect width="{width}" height="{height}" rx="4" fill="#ffffff"/>{"".join(parts)}</svg>'
    )


def board(side: int, marks: Iterable[str], description: str, box: int = 1) -> str:
    """Return a grid of `side` by `side` cells with their names at the edge; every `box`-th line is strong."""
    width, far = EDGE + side * SIDE + 6, EDGE + side * SIDE
    lines = "".join(f"M{EDGE} {at}H{far}M{at} {EDGE}V{far}" for at in range(EDGE, far + 1, SIDE))
    strong = "".join(f"M{EDGE} {at}H{far}M{at} {EDGE}V{far}" for at in range(EDGE, far + 1, SIDE * box))
    names = [_text(_middle((at, 0))[0], 13, word((at, 0))[0]) for at in range(side)]
    names += [_text(EDGE / 2, _middle((0, at))[1] + 4, word((0, at))[1:]) for at in range(side)]
    frame = [f'<path d="{lines}" stroke="#bbbbbb"/>', f'<path d="{strong}" stroke="{FAINT}"/>' if box > 1 else ""]
    edge = f'<g fill="{FAINT}" font-size="11" text-anchor="middle">{"".join(names)}</g>'
    return picture(width, width, [edge, *marks, *frame], description)


def floor_plan(state: State, description: str) -> str:
    """Draw walls, boxes, a ring for each target, a disc for the player, and a dashed line for the last proposal."""
    floor, (at, boxes) = state.floor, state.place
    marks = [f'<path d="{_squares(floor.walls, 0)}" fill="{WALL}"/>']
    marks += [f'<path d="{_squares(boxes, 5)}" fill="{ORANGE}" stroke="{INK}" stroke-width="1.5"/>'] if boxes else []
    marks += [_circle(cell, 9, f'fill="none" stroke="{GREEN}" stroke-width="3"') for cell in sorted(floor.targets)]
    marks.append(_circle(at, 6, f'fill="{BLUE}"'))
    if state.hints and state.hints[-1]:
        path = [_middle(cell) for cell, _ in floor.walk(state.place, state.hints[-1])]
        points, dashes = " ".join(f"{x},{y}" for x, y in path), 'stroke-width="2" stroke-dasharray="3 3"'
        marks.append(f'<polyline points="{points}" fill="none" stroke="{BLUE}" {dashes}/>')
    return board(floor.size, marks, description)


def _squares(cells: Iterable[Cell], inset: int) -> str:
    at, side = [(EDGE + x * SIDE + inset, EDGE + y * SIDE + inset) for x, y in sorted(cells)], SIDE - 2 * inset
    return "".join(f"M{x} {y}h{side}v{side}h-{side}z" for x, y in at)


def letters(texts: Mapping[Cell, str], style: str = "") -> str:
    """Return a text in the middle of each cell; `style` holds attributes for all of them, such as `fill="..."`."""
    marks = "".join(_text(_middle(cell)[0], _middle(cell)[1] + 5, text) for cell, text in texts.items())
    return f'<g font-size="15" text-anchor="middle" {style}>{marks}</g>' if texts else ""


def ladder(rungs: Sequence[str], passed: int, description: str, fallen: bool = False) -> str:
    """Return a ladder with a text at each rung, the first at the bottom.

    The first `passed` rungs are thick, and a disc stands on the last of them. If `fallen`, the disc lies at the foot,
    and the next rung is broken.
    """
    foot = EDGE + len(rungs) * SIDE
    heights = [foot - (place + 1) * SIDE + SIDE // 2 for place in range(len(rungs))]
    parts = [f'<path d="M20 8V{foot}M60 8V{foot}" stroke="{FAINT}" stroke-width="3"/>']
    for place, (height, text) in enumerate(zip(heights, rungs, strict=True)):
        style = f'stroke="{GREEN}" stroke-width="5"' if place < passed else f'stroke="{FAINT}" stroke-width="2"'
        broken = fallen and place == passed
        line = f"M22 {height}l12 7M58 {height}l-12 7" if broken else f"M21 {height}H59"
        parts += [f'<path d="{line}" {style}/>', _text(72, height + 4, text)]
    stands = foot if fallen or not passed else heights[passed - 1] - 3
    parts.append(f'<circle cx="40" cy="{stands - 6}" r="6" fill="{BLUE}"/>')
    width = 84 + 7 * max(map(len, rungs))
    return picture(width, foot + 6, parts, description)


def _middle(cell: Cell) -> tuple[int, int]:
    return EDGE + cell[0] * SIDE + SIDE // 2, EDGE + cell[1] * SIDE + SIDE // 2


def _circle(cell: Cell, radius: int, style: str) -> str:
    x, y = _middle(cell)
    return f'<circle cx="{x}" cy="{y}" r="{radius}" {style}/>'


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:g}" y="{y:g}">{escape(text)}</text>'
