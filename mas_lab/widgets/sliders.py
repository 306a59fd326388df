"""A function with sliders, as `ipywidgets.interact` makes it, and what it showed at first where no widget lives.

Leaves out: what the function shows.
"""

from collections.abc import Callable
from typing import Any

from mas_lab.widgets.document import beside, escape
from mas_lab.widgets.live import with_fallback


def interact(function: Callable[..., None], **controls: Any) -> None:
    """Show `function` below a widget for each of its arguments, which runs it anew when it moves.

    A stored notebook keeps what the function printed and displayed for the first values, and says which these were: the
    sliders stand still on a viewer, in an untrusted notebook, and on a page that was made of one.
    """
    import ipywidgets
    from IPython.display import display

    widget = ipywidgets.interactive(function, **controls)
    values = {name: one.get_interact_value() for name, one in zip(controls, widget.kwargs_widgets, strict=True)}
    display(with_fallback(widget, _shown(function, values)), raw=True)


def _shown(function: Callable[..., None], values: dict[str, Any]) -> str:
    from IPython.utils.capture import capture_output

    with capture_output() as held:
        function(**values)
    printed = f"<pre>{escape(held.stdout)}</pre>" if held.stdout else ""
    told = ", ".join(f"{name} = {value}" for name, value in values.items())
    drawn = [one.data["text/html"] for one in held.outputs if "text/html" in one.data]
    body = f"{printed}{''.join(drawn)}<p><small>Here at {escape(told)}; the slider lives where the notebook runs."
    return beside(f"{body}</small></p>")
