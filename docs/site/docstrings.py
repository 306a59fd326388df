"""Write the package's docstrings, which are plain text with backticks, as reStructuredText.

A paragraph stays one. The sections `Args:`, `Returns:` and so on become a heading and a list. Other indented lines and
`>>>` become code. Text in backticks becomes code, and a link if it is a public name. Leaves out: Sphinx itself.
"""

import re
from collections.abc import Collection, Iterator

NAMED = re.compile(r"`[\w.*]+(\([^`]*\))?`(, `[\w.*]+(\([^`]*\))?`)*( and `[\w.*]+`)?(, [^:`]{1,40})?: ")
"""The line begins with arguments or columns and says what they are."""
SECTION = re.compile(r"(Args|Attributes|Raises|Returns|Yields):")
ITEM = re.compile(r"    (\*{0,2}[\w., ]+): (.*)")
"""The line begins with an argument or an error and says what it is."""
CODE = re.compile(r"`([^`]+)`")
SPECIAL = re.compile(r"([\\*_|`<>])")


def as_rst(lines: Collection[str], public: Collection[str] = ()) -> list[str]:
    """The lines of a docstring, without its indentation, as lines of reStructuredText."""
    found: list[str] = []
    for block in _blocks(lines):
        found += [*(_section(block, public) if SECTION.fullmatch(block[0]) else _block(block, public)), ""]
    return found


def _section(lines: list[str], public: Collection[str]) -> list[str]:
    """Write a heading and a list: an entry per argument or error, one for what is returned."""
    named = lines[0] not in ("Returns:", "Yields:")
    entries: list[str] = []
    for line in lines[1:]:
        item = ITEM.fullmatch(line) if named else None
        if item:
            entries.append(f"`{item[1]}`: {item[2]}")
        elif entries:
            entries[-1] += f" {line.strip()}"
        else:
            entries.append(line.strip())
    return [f"**{lines[0].removesuffix(':')}**", "", *(f"- {inline(entry, public)}" for entry in entries)]


def _blocks(lines: Collection[str]) -> Iterator[list[str]]:
    """Stretches without an empty line; an indented stretch, or one of `>>>`, stands alone, empty lines and all."""
    block: list[str] = []
    for line in lines:
        inside = block and SECTION.fullmatch(block[0]) and line.startswith("    ")
        if block and not inside and (not line.strip() or _is_code(line) != _is_code(block[-1])):
            yield block
            block = []
        if line.strip():
            block.append(line.rstrip())
    if block:
        yield block


def _is_code(line: str) -> bool:
    return line.startswith((">>> ", "... ", "    "))


def _block(lines: list[str], public: Collection[str]) -> list[str]:
    if _is_code(lines[0]):
        plain = all(line.startswith("    ") for line in lines)
        return [".. code-block:: python", "", *(line if plain else f"    {line}" for line in lines)]
    items = _items(lines)
    if len(items) == 1 and not _opens(lines[0]):
        return [inline(" ".join(lines), public)]
    written: list[str] = []
    for item in items:
        text = inline(" ".join(item), public)
        if _opens(item[0]):
            written += [f"- {text.removeprefix('- ')}"]
        else:
            written += [text, ""]
    return written


def _items(lines: list[str]) -> list[list[str]]:
    items = [[lines[0].strip()]]
    for line in lines[1:]:
        if _opens(line):
            items.append([line.strip()])
        else:
            items[-1].append(line.strip())
    return items


def _opens(line: str) -> bool:
    return line.startswith("- ") or bool(NAMED.match(line))


def inline(text: str, public: Collection[str] = ()) -> str:
    """One paragraph: signs that reStructuredText would read are escaped, backticks are code."""
    parts, end = [], 0
    for found in CODE.finditer(text):
        parts += [SPECIAL.sub(r"\\\1", text[end : found.start()]), _code(found[1], public)]
        end = found.end()
    return "".join([*parts, SPECIAL.sub(r"\\\1", text[end:])])


def _code(code: str, public: Collection[str]) -> str:
    """Code that may stand anywhere in a word; `\\ ` is nothing, where reStructuredText wants a gap."""
    code = code.strip()
    named = re.fullmatch(r"(?:lab\.|mas_lab\.)?(\w+)(\(.*\))?", code)
    if named and named[1] in public and "\\" not in code:
        shown = code.replace("<", "\\<")
        return f"\\ :py:obj:`{shown} <mas_lab.{named[1]}>`\\ "
    return f"\\ ``{code}``\\ "
