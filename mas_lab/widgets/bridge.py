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


def connect(frame: str, answer: Callable[[Any], dict[str, Any]]) -> Any:
    """Show a widget that has the questions of the frame of that name answered; returns it."""
    from IPython.display import display

    widget = _kind()(_dom_classes=[frame])  # a trait that every widget has, so that none is needed for the name
    shown = display(with_fallback(widget, "") | {"text/plain": ""}, raw=True, display_id=True)
    is_seen = True

    def heard(_: Any, question: Any, buffers: Any) -> None:
        nonlocal is_seen
        if is_seen:  # it lives in the browser now, whatever is shown of it
            is_seen = False
            shown.update(EMPTY, raw=True)
        widget.send(answer(question))

    widget.on_msg(heard)
    return widget


@cache
def _kind() -> type:
    import anywidget

    class Bridge(anywidget.AnyWidget):
        _esm = (STATIC / "bridge.js").read_text(encoding="utf-8")

    return Bridge
