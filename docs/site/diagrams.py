"""The diagrams of `docs/tasks.md` as pictures in the page, which need no script.

Draws what `docs/tasks.py` writes: boxes in columns, and arrows from one column to a later one, dashed where an agent is
called on a condition. Leaves out: every other kind of Mermaid diagram, which it refuses.
"""

import html
import re

BLOCK = re.compile(r"```mermaid\n(.*?)```", re.DOTALL)
NODE = re.compile(r'(n(\d)(\d))\["([^"]+)"\]')
EDGE = re.compile(r"(n\d\d) (-->|-\.->) (n\d\d)")
WIDE, HIGH, GAP, BETWEEN, LETTER = 26, 34, 56, 12, 8.2
"""Pixels: beside a box's text, a box's height, between columns, between boxes of one column, a letter."""


def drawn(markdown: str) -> str:
    """The text with every diagram as a picture."""
    return BLOCK.sub(lambda found: svg(found[1]), markdown)


def svg(diagram: str) -> str:
    """One diagram; ValueError for a line that is none of a box, an arrow and `flowchart LR`."""
    nodes, edges = {}, []
    for line in filter(None, map(str.strip, diagram.splitlines())):
        if node := NODE.fullmatch(line):
            nodes[node[1]] = (int(node[2]), int(node[3]), node[4])
        elif edge := EDGE.fullmatch(line):
            edges.append(edge.groups())
        elif line != "flowchart LR":
            raise ValueError(f"diagrams: cannot draw {line!r}")
    return _picture(_places(nodes), edges, {name: text for name, (_, _, text) in nodes.items()})


def _places(nodes: dict[str, tuple[int, int, str]]) -> dict[str, tuple[float, float, float]]:
    """Node -> (left, middle, width); columns are centred on each other."""
    columns = sorted({column for column, _, _ in nodes.values()})
    most = max(sum(column == c for c, _, _ in nodes.values()) for column in columns)
    found, left = {}, 1.0
    for column in columns:
        held = [name for name, (c, _, _) in nodes.items() if c == column]
        wide = max(len(nodes[name][2]) for name in held) * LETTER + WIDE
        top = (most - len(held)) * (HIGH + BETWEEN) / 2 + 1
        for row, name in enumerate(held):
            found[name] = (left, top + row * (HIGH + BETWEEN) + HIGH / 2, wide)
        left += wide + GAP
    return found


def _picture(places: dict[str, tuple[float, float, float]], edges: list, texts: dict[str, str]) -> str:
    wide = max(left + width for left, _, width in places.values()) + 1
    high = max(middle for _, middle, _ in places.values()) + HIGH / 2 + 1
    said = "; ".join(f"{texts[a]} {'may call' if how == '-.->' else 'then'} {texts[b]}" for a, how, b in edges)
    parts = [
        f'<svg class="flow" role="img" viewBox="0 0 {wide:.0f} {high:.0f}" width="{wide:.0f}" height="{high:.0f}" '
        f'aria-label="{html.escape(said or " and ".join(texts.values()))}">'
    ]
    for start, how, end in edges:
        x, y = places[start][0] + places[start][2], places[start][1]
        to_x, to_y = places[end][0] - 3, places[end][1]
        dashed = ' stroke-dasharray="5 4"' if how == "-.->" else ""
        parts.append(f'<path d="M{x:.0f} {y:.0f} L{to_x:.0f} {to_y:.0f}"{dashed}/>')
        parts.append(f'<path class="head" d="M{to_x - 8:.0f} {to_y - 5:.0f} l9 5 l-9 5 z"/>')
    for name, (left, middle, width) in places.items():
        parts.append(f'<rect x="{left:.0f}" y="{middle - HIGH / 2:.0f}" width="{width:.0f}" height="{HIGH}" rx="6"/>')
        parts.append(f'<text x="{left + width / 2:.0f}" y="{middle + 5:.0f}">{html.escape(texts[name])}</text>')
    return "".join([*parts, "</svg>"])
