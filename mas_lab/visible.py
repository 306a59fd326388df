"""Text in which nothing is invisible: what it would do to a terminal or the order of letters is shown, not done.

Leaves out: HTML and plotly (`widgets.text`).
"""

import unicodedata

KEPT = "\n\t"


def visible(text: str) -> str:
    """Control characters as their pictures (␀, ␛), invisible format characters and lone surrogates as ⟨U+202E⟩."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    if character.isprintable() or character in KEPT or character == " ":
        return character
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    return f"⟨U+{code:04X}⟩" if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp", "Co") else character
