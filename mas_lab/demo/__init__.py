"""Train the teams of `make demo` side by side and show them on one page.

The first notebook goes through the settings of the first training one by one. The recipes themselves are not here.
"""

from mas_lab.demo.command import compare, main
from mas_lab.demo.trials import (
    ENV,
    HELD_OUT,
    LR,
    METHOD,
    SCORE_EVERY,
    SETTINGS,
    STEPS,
    Trained,
    Trial,
    before_and_after,
    held_out,
    ladder,
    learn,
    make_team,
    maze,
)

__all__ = [
    "ENV",
    "HELD_OUT",
    "LR",
    "METHOD",
    "SCORE_EVERY",
    "SETTINGS",
    "STEPS",
    "Trained",
    "Trial",
    "before_and_after",
    "compare",
    "held_out",
    "ladder",
    "learn",
    "main",
    "make_team",
    "maze",
]
