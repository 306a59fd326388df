"""Addresses of an episode within the page of a RolloutViewer, `#step=3&episode=...`, and of that page beside another.

Leaves out: how the page reads and writes its own (`static/rollouts_address.js`).
"""

from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from mas_lab.widgets.text import visible

FIELDS = ("run", "step", "episode", "node", "candidate")
SCHEMES = ("http", "https", "file")


def address(**where: Any) -> str:
    """`#run=0&step=3&...` of the `FIELDS` that are given and not None, the names in it as a page shows them."""
    told = {name: where[name] for name in FIELDS if where.get(name) is not None}
    return "#" + urlencode({name: visible(str(value)) for name, value in told.items()})


def fields(address: str) -> dict[str, str]:
    """What an address names; nothing but `FIELDS`."""
    told = dict(parse_qsl(address.removeprefix("#")))
    return {name: told[name] for name in FIELDS if name in told}


def page_address(page: str | Path | None, who: str) -> str:
    """Where links lead that `who` was given `rollouts=page` for: a relative address, quoted, or one of `SCHEMES`; empty
    where there is none. Raises ValueError where it is neither, or names a place within a page: links add their own."""
    if page is None:
        return ""
    given = page.as_posix() if isinstance(page, Path) else str(page)
    parts = urlsplit(given)
    is_whole = parts.scheme in SCHEMES and (parts.netloc or parts.scheme == "file")
    is_relative = bool(parts.path) and not (parts.scheme or parts.netloc or parts.query or given.startswith("/"))
    if not (is_whole or is_relative) or "#" in given or "\\" in given:
        raise ValueError(
            f"{who}: rollouts={given!r:.80} is no address of a page; pass a file name such as 'rollouts.html', a path "
            "with / from this page, or an http, https or file address without a #"
        )
    return given if is_whole else "./" + quote(given, safe="/")
