"""Walks built pages and finds what does not stand where they say: `python docs/site/links.py FOLDER`.

A link within the site must lead to a file, and to an anchor if it names one. A page must need nothing from the network:
no script, style, picture or font of another host. Links to other hosts are only listed. Leaves out: asking them.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADS = {("script", "src"), ("link", "href"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("video", "src")}
"""What a page fetches by itself."""
INERT = {"canonical", "next", "prev", "author", "license"}
"""`rel` of a <link> that a browser only reads."""
IN_STYLE = re.compile(r"url\(\s*['\"]?([^'\")]+)['\"]?\s*\)|@import\s+['\"]([^'\"]+)['\"]")


@dataclass
class Page(HTMLParser):
    """What one file points to, and the anchors in it."""

    links: list[tuple[str, bool]] = field(default_factory=list)
    """(target, is it fetched by itself?)"""
    anchors: set[str] = field(default_factory=set)
    style: bool = False

    def __post_init__(self) -> None:
        HTMLParser.__init__(self)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attributes}
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        self.style = tag == "style"
        for name in ("href", "src", "poster", "data"):
            if given.get(name) and not (tag == "link" and set(given.get("rel", "").split()) & INERT):
                self.links.append((given[name], (tag, name) in LOADS))
        for part in given.get("srcset", "").split(","):
            if part.strip():
                self.links.append((part.split()[0], True))
        self.links += [(target, True) for target in in_style(given.get("style", ""))]

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        self.style = False

    def handle_data(self, data: str) -> None:
        if self.style:
            self.links += [(target, True) for target in in_style(data)]

    def handle_endtag(self, tag: str) -> None:
        self.style = False


def in_style(text: str) -> Iterator[str]:
    yield from (one or other for one, other in IN_STYLE.findall(text))


def read(path: Path) -> Page:
    page = Page()
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".css":
        page.links = [(target, True) for target in in_style(text)]
    else:
        page.feed(text)
    return page


def check(folder: Path) -> tuple[list[str], dict[str, list[str]]]:
    """(what is wrong, a line each; {link to another host: the pages that have it})."""
    folder = folder.resolve()
    pages = {path: read(path) for path in sorted(folder.rglob("*")) if path.suffix in (".html", ".css")}
    if not any(path.suffix == ".html" for path in pages):
        return [f"{folder.name}: there is no page in it"], {}
    wrong, outside = [], {}
    for path, page in pages.items():
        name = path.relative_to(folder).as_posix()
        for target, loads in page.links:
            split = urlsplit(target)
            if split.scheme in ("data", "mailto", "blob"):
                continue
            if split.scheme or split.netloc:
                if loads or split.scheme not in ("http", "https"):
                    wrong.append(f"{name}: asks another place for {target}")
                else:
                    outside.setdefault(target, []).append(name)
            elif complaint := _within(folder, path, split.path, split.fragment, pages):
                wrong.append(f"{name}: {target}: {complaint}")
    return list(dict.fromkeys(wrong)), outside


def _within(folder: Path, path: Path, file: str, anchor: str, pages: dict[Path, Page]) -> str:
    if file.startswith("/"):
        return "is absolute, which a folder of files has not"
    there = (path.parent / unquote(file)).resolve() if file else path
    if not there.is_relative_to(folder):
        return "leads out of the site"
    if not there.is_file():
        return "is a folder, which a browser lists" if there.is_dir() else "there is no such file"
    if anchor and there in pages and unquote(anchor) not in pages[there].anchors:
        return "there is no such anchor"
    return ""


def main(folder: str) -> int:
    wrong, outside = check(Path(folder))
    print(*wrong, sep="\n")
    print(f"links: {len(wrong)} dead; {len(outside)} lead to other hosts:", *sorted(outside), sep="\n  ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
