"""Addresses of an episode within the page of a RolloutViewer, `#step=3&episode=...`, and of that page beside another.

Leaves out: how the page reads and writes its own (`static/rollouts_address.js`).
"""

from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from mas_lab.widgets.text import visible

FIELDS = ("run", "step", "episode", "node", "candidate")
SCHEMES = ("", "http", "https", "file")


def address(**where: Any) -> str:
    """`#run=0&step=3&...` of the `FIELDS` that are given and not None, the names in it as a page shows them."""
    told = {name: where[name] for name in FIELDS if where.get(name) is not None}
    return "#" + urlencode({name: visible(str(value)) for name, value in told.items()})


def fields(address: str) -> dict[str, str]:
    """What an address names; nothing but `FIELDS`."""
    told = dict(parse_qsl(address.removeprefix("#")))
    return {name: told[name] for name in FIELDS if name in told}


def page_address(page: str, who: str) -> str:
    """The address of a page that a link may lead to. Raises ValueError where it would run something."""
    if urlsplit(str(page)).scheme not in SCHEMES:
        raise ValueError(
            f"{who}: rollouts={str(page)!r:.80}; give the address of a page, such as 'rollouts.html' beside this one"
        )
    return str(page)


def relative(page: str, who: str) -> str:
    """A relative address, quoted. Raises ValueError where it names another place than a file beside or below or above
    the page."""
    parts = urlsplit(page)
    if not parts.path or parts.scheme or parts.netloc or parts.query or parts.fragment or page[0] in "/\\":
        raise ValueError(
            f"{who}: rollouts={page!r} is no relative address of a page; pass a file name such as 'rollouts.html', or "
            "a path with / from this page"
        )
    return "./" + quote(page, safe="/")
