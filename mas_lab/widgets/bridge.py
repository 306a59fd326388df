"""The way between a page in a notebook's frame and the kernel: an invisible widget that relays JSON.

The page works without it. A notebook keeps nothing of it: once it relays, its output is empty. Leaves out: what is
answered (`answers`).
"""

import uuid
from collections.abc import Callable
from functools import cache
from typing import Any

from mas_lab.widgets.document import STATIC
from mas_lab.widgets.live import with_fallback

EMPTY = {"text/plain": "", "text/html": ""}


def new_name() -> str:
    """Of a frame, which no other has."""
    return f"mas-lab-{uuid.uuid4().hex[:12]}"


def connect(frame: str, answer: Callable[[Any], dict[str, Any]], is_first: bool = True) -> Any:
    """A widget that has the questions of the frame of that name answered. It is shown, so that the notebook wakes its
    widgets, unless another of them is there already: then it is not the first."""
    from IPython.display import display

    widget = _kind()(_dom_classes=[frame])  # a trait that every widget has, so that none is needed for the name
    shown = None
    if is_first:
        shown = display(with_fallback(widget, "") | {"text/plain": ""}, raw=True, display_id=True)

    def heard(_: Any, question: Any, buffers: Any) -> None:
        nonlocal shown
        if shown is not None:  # it lives in the browser now, whatever is shown of it
            shown.update(EMPTY, raw=True)
            shown = None
        widget.send(answer(question))

    widget.on_msg(heard)
    return widget


@cache
def _kind() -> type:
    import anywidget

    class Bridge(anywidget.AnyWidget):
        _esm = (STATIC / "bridge.js").read_text(encoding="utf-8")

    return Bridge
