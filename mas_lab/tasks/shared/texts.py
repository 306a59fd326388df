"""Load the prompts and the word lists of the tasks, which stand in TOML files beside them."""

import tomllib
from pathlib import Path

_FOLDER = Path(__file__).parents[1]
PROMPTS = tomllib.loads((_FOLDER / "prompts.toml").read_text(encoding="utf-8"))
"""Task -> role or purpose -> text."""
WORD_LISTS = tomllib.loads((_FOLDER / "words.toml").read_text(encoding="utf-8"))
