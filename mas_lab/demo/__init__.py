"""What `make demo` runs: trainings side by side, and the page that shows them.

The first notebook takes the settings of the first training one step at a time. Leaves out: the recipes themselves.
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
