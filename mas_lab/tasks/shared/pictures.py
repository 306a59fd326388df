"""States as small SVG pictures: a grid whose cells are named as `maze` names them, with marks in it, and a ladder.

A picture brings its own light ground, so that it reads on dark paper too, and asks for nothing: no script, no link, no
font of its own. Marks differ in shape, not by colour alone. Leaves out: what is drawn where (each task's `draw`).
"""

from collections.abc import Iterable, Mapping, Sequence
from xml.sax.saxutils import escape, quoteattr

from mas_lab.tasks.shared.maze import Cell, word

SIDE, EDGE = 26, 18
"""Pixels of a cell, and of the edge with its name."""
INK, FAINT, WALL = "#222222", "#767676", "#4d4d4d"
BLUE, GREEN, ORANGE, RED = "#0072B2", "#00795a", "#E69F00", "#b3261e"


def picture(width: int, height: int, parts: Iterable[str], told: str) -> str:
    """`parts` on a light ground; `told` says in words what they show."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label={quoteattr(told)} font-family="system-ui, sans-serif" font-size="12" fill="{INK}">'
        f'<rect width="{width}" height="{height}" rx="4" fill="#ffffff"/>{"".join(parts)}</svg>'
    )


def board(side: int, marks: Iterable[str], told: str, box: int = 1) -> str:
    """A grid of `side` by `side` cells with their names at its edge; every `box`-th line is a strong one."""
    whole, far = EDGE + side * SIDE + 6, EDGE + side * SIDE
    lines = "".join(f"M{EDGE} {at}H{far}M{at} {EDGE}V{far}" for at in range(EDGE, far + 1, SIDE))
    strong = "".join(f"M{EDGE} {at}H{far}M{at} {EDGE}V{far}" for at in range(EDGE, far + 1, SIDE * box))
    names = [_text(_middle((at, 0))[0], 13, word((at, 0))[0]) for at in range(side)]
    names += [_text(EDGE / 2, _middle((0, at))[1] + 4, word((0, at))[1:]) for at in range(side)]
    frame = [f'<path d="{lines}" stroke="#bbbbbb"/><path d="{strong}" stroke="{FAINT}"/>' if box > 1
             else f'<path d="{lines}" stroke="#bbbbbb"/>']  # fmt: skip
    edge = f'<g fill="{FAINT}" font-size="11" text-anchor="middle">{"".join(names)}</g>'
    return picture(whole, whole, [edge, *marks, *frame], told)


def walls(cells: Iterable[Cell]) -> str:
    """Whole cells, dark."""
    corners = (f"M{EDGE + column * SIDE} {EDGE + row * SIDE}h{SIDE}v{SIDE}h-{SIDE}z" for column, row in sorted(cells))
    return f'<path d="{"".join(corners)}" fill="{WALL}"/>'


def crates(cells: Iterable[Cell]) -> str:
    """Squares with a rim."""
    at = ((EDGE + column * SIDE + 5, EDGE + row * SIDE + 5) for column, row in sorted(cells))
    squares = "".join(f"M{x} {y}h{SIDE - 10}v{SIDE - 10}h-{SIDE - 10}z" for x, y in at)
    return f'<path d="{squares}" fill="{ORANGE}" stroke="{INK}" stroke-width="1.5"/>'


def rings(cells: Iterable[Cell]) -> str:
    """Green rings around the middle of cells: where something is to go."""
    return "".join(_circle(cell, 9, f'fill="none" stroke="{GREEN}" stroke-width="3"') for cell in sorted(cells))


def disc(cell: Cell) -> str:
    """Who moves."""
    return _circle(cell, 6, f'fill="{BLUE}"')


def way(cells: Sequence[Cell]) -> str:
    """A dashed line from cell to cell."""
    points = " ".join(f"{x},{y}" for x, y in map(_middle, cells))
    return f'<polyline points="{points}" fill="none" stroke="{BLUE}" stroke-width="2" stroke-dasharray="3 3"/>'


def letters(texts: Mapping[Cell, str], style: str = "") -> str:
    """A text in the middle of each cell; `style` holds attributes for all of them, `fill="..."`."""
    told = "".join(_text(_middle(cell)[0], _middle(cell)[1] + 5, text) for cell, text in texts.items())
    return f'<g font-size="15" text-anchor="middle" {style}>{told}</g>' if texts else ""


def ladder(rungs: Sequence[str], passed: int, told: str, fallen: bool = False) -> str:
    """A text at each rung, the first at the bottom; the first `passed` of them are thick, and who climbs stands there,
    or, where they have `fallen`, lies below all with a cross at the rung that broke."""
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
    return picture(width, foot + 6, parts, told)


def _middle(cell: Cell) -> tuple[int, int]:
    return EDGE + cell[0] * SIDE + SIDE // 2, EDGE + cell[1] * SIDE + SIDE // 2


def _circle(cell: Cell, radius: int, style: str) -> str:
    x, y = _middle(cell)
    return f'<circle cx="{x}" cy="{y}" r="{radius}" {style}/>'


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:g}" y="{y:g}">{escape(text)}</text>'
