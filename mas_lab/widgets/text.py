"""Make model text and names harmless: a page shows their control characters and markup, and never executes them.

The same holds for a figure, a terminal and the order of letters. This module leaves out HTML escaping, which every
writer of HTML does last (`html.escape`, or `textContent` in the browser).
"""

import html
import json
from typing import Any

from mas_lab.display.escape import escape_control_chars


def visible_data(data: Any) -> Any:
    """Return plain data with all of its texts visible, including keys."""
    if isinstance(data, dict):
        return {visible_data(key): visible_data(value) for key, value in data.items()}
    if isinstance(data, list):
        return [visible_data(value) for value in data]
    return escape_control_chars(data) if isinstance(data, str) else data


def for_plotly(text: Any) -> str:
    """Return text for any string of a figure, which then shows it as it is written.

    In all of its strings, plotly reads tags (with links and styles) and entities. It reads `$…$` as LaTeX on a page
    that has MathJax, and `%{…}` in its templates. It decodes entities once, last.
    """
    return html.escape(escape_control_chars(str(text)), quote=False).replace("$", "&#36;").replace("%", "&#37;")


def for_script(data: Any) -> str:
    """Return JSON for a <script> element; no character of it can end the element or be read as markup."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
