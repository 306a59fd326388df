"""Model text and names as text: what they would do to a page, a figure, a terminal or the order of letters is shown,
not done.

Leaves out: HTML escaping, which every writer of HTML does at its end (`html.escape`, or `textContent` in the browser).
"""

import html
import json
import unicodedata
from typing import Any

KEPT = "\n\t"


def visible(text: str) -> str:
    """Control characters as their pictures (␀, ␛), invisible format characters and lone surrogates as ⟨U+202E⟩."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_shown(character) for character in text)


def visible_data(data: Any) -> Any:
    """Plain data with all of its texts visible, the keys among them."""
    if isinstance(data, dict):
        return {visible_data(key): visible_data(value) for key, value in data.items()}
    if isinstance(data, list):
        return [visible_data(value) for value in data]
    return visible(data) if isinstance(data, str) else data


def _shown(character: str) -> str:
    if character.isprintable() or character in KEPT or character == " ":
        return character
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    return f"⟨U+{code:04X}⟩" if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp", "Co") else character


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
