"""A check of what `Env.draw` returns: a picture that a page may show as it is.

Leaves out: the drawing itself (`Env.draw`), and where the picture is shown (`widgets.states`).
"""

import re
from typing import Any
from xml.etree import ElementTree

LONGEST = 100_000
"""Most characters of a picture; a page holds hundreds of pictures."""
SVG = "{http://www.w3.org/2000/svg}"
ACTIVE = {"script", "foreignObject", "a", "animate", "animateMotion", "animateTransform", "set", "iframe", "handler",
          "image", "feImage", "use", "style", "audio", "video"}  # fmt: skip
"""Elements that run, move, lead somewhere, or fetch something."""
SIZE = re.compile(r"[0-9]+(\.[0-9]+)?(px)?")


def validate_svg(drawn: Any) -> str:
    """Return an error message if `drawn` is no SVG picture that may be shown, else an empty string.

    A picture is well-formed XML with an `svg` root, its namespace, `width`, `height` and `viewBox`. It holds no script,
    event handler, link, style sheet or document type, because nothing in it may run or lead out of it.
    """
    if not isinstance(drawn, str):
        return f"is a {type(drawn).__name__}; give the text of an SVG picture"
    if len(drawn) > LONGEST:
        return f"has {len(drawn):,} characters; a page holds many of them: draw it with at most {LONGEST:,}"
    if "<!" in drawn or "<?" in drawn:
        return "has a comment, a document type or a processing instruction ('<!' or '<?'); leave it out"
    try:
        root = ElementTree.fromstring(drawn)
    except (ElementTree.ParseError, ValueError) as error:
        return f"is not well-formed XML ({error}); escape names and texts with xml.sax.saxutils.escape"
    if root.tag != f"{SVG}svg":
        return f'is a {root.tag!r:.60}; give <svg xmlns="http://www.w3.org/2000/svg" ...>'
    for name in ("width", "height"):
        if not SIZE.fullmatch(root.get(name, "")):
            return f"has {name}={root.get(name)!r:.60}; give a number of pixels"
    if "viewBox" not in root.attrib:
        return 'has no viewBox; give viewBox="0 0 WIDTH HEIGHT", so that it may be shown smaller'
    return next(filter(None, map(_active, root.iter())), "")


def _active(element: ElementTree.Element) -> str:
    name = element.tag.rpartition("}")[2]
    if not element.tag.startswith(SVG) or name in ACTIVE:
        return f"holds the element {name!r:.60}; a picture runs nothing, links nowhere and fetches nothing: draw shapes"
    for attribute, value in element.attrib.items():
        bare = attribute.rpartition("}")[2].lower()
        outside = "url(" in value.replace(" ", "").lower() or "javascript:" in value.lower()
        if bare.startswith("on") or bare in ("href", "src", "style") or outside:
            return f"has the attribute {bare}={value!r:.60}; a picture runs nothing, links nowhere and fetches nothing"
    return ""
