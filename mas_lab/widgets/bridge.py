"""Connect a page in a notebook's frame with the kernel by an invisible widget that relays JSON.

The page also works without the widget. The notebook stores nothing of it: as soon as the widget relays, its output is
empty. This module leaves out the answers (`answers`).
"""

import uuid
from collections.abc import Callable
from functools import cache
from typing import Any

from mas_lab.widgets.document import STATIC
from mas_lab.widgets.live import with_fallback

EMPTY = {"text/plain": "", "text/html": ""}


def new_name() -> str:
    """Return a new, unique name for a frame."""
    return f"mas-lab-{uuid.uuid4().hex[:12]}"


def connect(frame: str, answer: Callable[[Any], dict[str, Any]], is_first: bool = True) -> Any:
    """Return a widget that answers the questions of the frame named `frame` by calling `answer`.

    The widget is displayed, because this makes the notebook start its widgets. With `is_first=False` it is not
    displayed, because another live widget already is.
    """
    from IPython.display import display

    widget = _kind()(_dom_classes=[frame])  # every widget has this trait, so the name needs no new one
    shown = None
    if is_first:
        shown = display(with_fallback(widget, "") | {"text/plain": ""}, raw=True, display_id=True)

    def heard(_: Any, question: Any, buffers: Any) -> None:
        nonlocal shown
        if shown is not None:  # it runs in the browser now and no longer needs its output
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
