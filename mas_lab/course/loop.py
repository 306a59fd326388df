"""A drawing of the four cells and their loop, with one cell marked."""

from dataclasses import dataclass

CELLS = {
    "rollout": ("who said what, and what it earned", "prompt, completion, logprobs, rewards"),
    "group": ("who is compared with whom", "credit, group"),
    "normalize": ("how much better than the others", "center, scale, advantage"),
    "update": ("make better answers likelier", "changes the weights"),
}
"""Cell -> its question, and the columns that it adds."""
BOX = "flex:1 1 9rem; border:{width}px solid {colour}; border-radius:6px; padding:.4rem .6rem; min-width:8rem"


@dataclass(frozen=True)
class loop:
    """Draw the loop of the four cells.

    Args:
        cell: The cell that is marked, such as "group". `None` marks none.

    Raises:
        ValueError: No cell has this name.
    """

    cell: str | None = None

    def __post_init__(self):
        if self.cell is not None and self.cell not in CELLS:
            raise ValueError(f"loop: no cell is named {self.cell!r}; the cells are {', '.join(CELLS)}")

    def __repr__(self) -> str:
        return " → ".join(f"[{name}]" if name == self.cell else name for name in CELLS) + " → rollout …"

    def _repr_html_(self) -> str:
        boxes = []
        for number, (name, (question, adds)) in enumerate(CELLS.items(), start=1):
            here = name == self.cell
            box = BOX.format(width=3 if here else 1, colour="#D55E00" if here else "#888888")
            mark = " <small>(you are here)</small>" if here else ""
            boxes.append(
                f'<div style="{box}"><b>{number} {name}</b>{mark}<br>{question}<br><small>{adds}</small></div>'
            )
        arrow = '<div style="align-self:center" aria-hidden="true">→</div>'
        again = '<div style="align-self:center" role="img" aria-label="and again">↺</div>'
        style = "display:flex; flex-wrap:wrap; gap:.4rem; max-width:56rem; line-height:1.35"
        return f'<div style="{style}">{arrow.join(boxes)}{again}</div>'
