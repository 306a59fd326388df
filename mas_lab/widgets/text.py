"""Model text and names as text: what they would do to a page, a figure, a terminal or the order of letters is shown,
not done.

Leaves out: HTML escaping, which every writer of HTML does at its end (`html.escape`, or `textContent` in the browser).
"""

import html
import json
from typing import Any

from mas_lab.visible import visible


def visible_data(data: Any) -> Any:
    """Plain data with all of its texts visible, the keys among them."""
    if isinstance(data, dict):
        return {visible_data(key): visible_data(value) for key, value in data.items()}
    if isinstance(data, list):
        return [visible_data(value) for value in data]
    return visible(data) if isinstance(data, str) else data


def for_plotly(text: Any) -> str:
    """Text for any string of a figure, where it shows as it is written.

    plotly reads tags (links and styles among them) and entities in all of its strings, `$…$` as LaTeX on a page that
    has MathJax, and `%{…}` in its templates. It decodes entities once, last.
    """
    return html.escape(visible(str(text)), quote=False).replace("$", "&#36;").replace("%", "&#37;")


def for_script(data: Any) -> str:
    """JSON that may stand inside a <script> element: no character of it can end the element or be read as markup."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
