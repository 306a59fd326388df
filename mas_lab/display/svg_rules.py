"""A check of what `Env.draw` returns: a picture that a page may show as it is.

Pages show it as an image, in which a browser runs and fetches nothing. Leaves out: the drawing itself (`Env.draw`), and
where the picture is shown.
"""

import re
from typing import Any
from xml.etree import ElementTree

LONGEST = 100_000
"""Most characters of a picture; a page holds hundreds of pictures."""
SVG = "{http://www.w3.org/2000/svg}svg"
ACTIVE = re.compile(r"<[!?]|<(\w+:)?(script|style|image|use|foreignObject)\b|\b(on\w+|href|src)\s*=|url\s*\(", re.I)
"""What would run, fetch something or lead out of the picture."""


def validate_svg(drawn: Any) -> str:
    """Return an error message if `drawn` is no SVG picture that may be shown, else an empty string.

    A picture is well-formed XML with an `svg` root, its namespace, `width`, `height` and `viewBox`. It holds no script,
    event handler, link, style sheet or document type.
    """
    if not isinstance(drawn, str) or len(drawn) > LONGEST:
        return f"is a {type(drawn).__name__}; give the text of an SVG picture, with at most {LONGEST:,} characters"
    if found := ACTIVE.search(drawn):
        return f"holds {found[0]!r:.60}; a picture runs nothing, links nowhere and fetches nothing: draw shapes"
    try:
        root = ElementTree.fromstring(drawn)
    except (ElementTree.ParseError, ValueError) as error:
        return f"is not well-formed XML ({error}); escape names and texts with xml.sax.saxutils.escape"
    lacks = [name for name in ("width", "height", "viewBox") if name not in root.attrib]
    if root.tag != SVG or lacks:
        return f'is a {root.tag!r:.60} and lacks {lacks}; give <svg xmlns="http://www.w3.org/2000/svg" width="9" ...>'
    return ""
