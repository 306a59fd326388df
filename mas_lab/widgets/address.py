"""Read and write addresses of episodes within the page of a RolloutViewer, `#step=3&episode=...`.

It also checks the address of that page, which other pages link to. This module leaves out how the page reads and writes
its own address (`static/rollouts.js`).
"""

from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from mas_lab.widgets.text import escape_control_chars

FIELDS = ("run", "step", "episode", "node", "candidate")


def address(**where: Any) -> str:
    """Return `#run=0&step=3&...` with the given `FIELDS` that are not `None`, with names as a page shows them."""
    told = {name: escape_control_chars(str(where[name])) for name in FIELDS if where.get(name) is not None}
    return "#" + urlencode(told)


def fields(address: str) -> dict[str, str]:
    """Return the `FIELDS` that an address names, without any other names."""
    return {name: value for name, value in parse_qsl(address.removeprefix("#")) if name in FIELDS}


def page_address(page: str | Path | None, who: str) -> str:
    """Return the address of the page that links lead to, or an empty string if `page` is `None`.

    A relative address is quoted. An absolute one starts with http, https or file. `who` is the instrument that was
    given `rollouts=page`, for error messages. Raise ValueError for any other address. An address with `#` is refused
    too, because links add their own.
    """
    if page is None:
        return ""
    given = page.as_posix() if isinstance(page, Path) else str(page)
    parts = urlsplit(given)
    is_whole = (parts.scheme in ("http", "https") and parts.netloc) or parts.scheme == "file"
    is_relative = bool(parts.path) and not (parts.scheme or parts.netloc or parts.query or given.startswith("/"))
    if not (is_whole or is_relative) or "#" in given or "\\" in given:
        raise ValueError(
            f"{who}: rollouts={given!r:.80} is no address of a page; pass a file name such as 'rollouts.html', a path "
            "with / from this page, or an http, https or file address without a #"
        )
    return given if is_whole else "./" + quote(given, safe="/")
