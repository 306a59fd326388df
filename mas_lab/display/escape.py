"""Text in which every character is visible: control characters are shown instead of acting on a terminal.

The same holds for characters that change the order of letters. Leaves out: HTML and plotly (`widgets.text`).
"""

import unicodedata

ALLOWED = "\n\t"


def escape_control_chars(text: str) -> str:
    """Return `text` with control characters as pictures (␀, ␛) and other invisible ones as codes such as ⟨U+202E⟩."""
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text
    return "".join(_visible(character) for character in text)


def _visible(character: str) -> str:
    if character.isprintable() or character in ALLOWED or character == " ":
        return character
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    return f"⟨U+{code:04X}⟩" if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp", "Co") else character
