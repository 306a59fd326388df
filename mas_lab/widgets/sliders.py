"""Show a function with sliders, as `ipywidgets.interact` does, with a static form for viewers without live widgets.

This module leaves out the content that the function shows.
"""

from collections.abc import Callable
from typing import Any

from mas_lab.widgets.document import beside, escape
from mas_lab.widgets.live import with_fallback


def interact(function: Callable[..., None], **controls: Any) -> None:
    """Show `function` below a widget for each of its arguments; a moved widget runs it again.

    A stored notebook keeps the function's output for the first values, and names these values. The sliders do not move
    in a viewer, in an untrusted notebook, or on a page made from one.
    """
    import ipywidgets
    from IPython.display import display

    widget = ipywidgets.interactive(function, **controls)
    values = {name: one.get_interact_value() for name, one in zip(controls, widget.kwargs_widgets, strict=True)}
    display(with_fallback(widget, _static(function, values)), raw=True)


def _static(function: Callable[..., None], values: dict[str, Any]) -> str:
    from IPython.utils.capture import capture_output

    with capture_output() as captured:
        function(**values)
    printed = f"<pre>{escape(captured.stdout)}</pre>" if captured.stdout else ""
    chosen = ", ".join(f"{name} = {value}" for name, value in values.items())
    drawn = [one.data["text/html"] for one in captured.outputs if "text/html" in one.data]
    note = f"<p><small>Here at {escape(chosen)}; the slider lives where the notebook runs.</small></p>"
    return beside(f"{printed}{''.join(drawn)}{note}")
