"""Give recipes colours of their own, not those of agents; the kit's recipes keep theirs on every board.

This module leaves out the colours of agents (`figures.colors`), which follow their places in the team.
"""

from collections.abc import Sequence
from itertools import chain, count
from zlib import crc32

COLORS = ("#CC3311", "#6699CC", "#6B59B0", "#2A8090", "#999933", "#EE3377", "#984F52",
          "#777777", "#557711", "#EE6677", "#997700", "#40A493", "#B34FC9", "#0BA20A", "#1278F0",
          "#B48A8A")  # fmt: skip
"""Colours after schemes of Paul Tol (technical note SRON/EPS/TN/09-002), and others found by a search. The first seven
are distinct for colour-blind readers too (Machado, Oliveira and Fernandes 2009). For readers who lack one kind of
cones, they are at least 6 apart in OKLab (times 100). The others come with a dash. For readers with all cones, any two
of the sixteen are 8 apart. Each has a contrast of at least 3:1 on both backgrounds of a page, white and #16181b. Each
is at least 5.5 away from each colour of `figures.PALETTE`."""
WELL_APART = 7
KIT = {
    "grpo": 0, "dr_mas": 1, "at_grpo": 2, "magrpo": 3, "grpo_mixed": 4, "dr_mas_mean": 5, "dr_mas_std": 6,
    "grpo_turns": 7, "dr_mas_episodes": 8, "mareinforce": 9, "marloo": 10, "maremax": 11,
    "grpo_masked": 12, "own_pooled": 13, "own_robust": 15,
}  # fmt: skip
"""The place in `COLORS` of the recipes that have a fixed one; the others of the kit take what is free."""
ARMS = {"global": 0, "own": 1, "own mean": 5, "own scale": 6}
"""The places of grpo, dr_mas and its halves under their names in the recorded studies."""
DASHES = ("solid", "dash", "dot", "dashdot")


def recipe_colors(names: Sequence[str]) -> dict[str, str]:
    """Return a colour per recipe, whatever the order of the names.

    The recipes of the kit have fixed colours. A variant such as "grpo (ddof=1)" prefers that of the kit's recipe. Any
    other name prefers one of the first seven. If it is taken, the name takes the next free colour, in alphabetical
    order. Recipes share a colour only if there are more recipes than colours.
    """
    return {name: COLORS[place % len(COLORS)] for name, place in _places(names).items()}


def recipe_dashes(names: Sequence[str]) -> dict[str, str]:
    """Return a dash per recipe, by plotly's names, for readers who cannot tell some colours apart."""
    return {name: DASHES[place // WELL_APART % len(DASHES)] for name, place in _places(names).items()}


def _places(names: Sequence[str]) -> dict[str, int]:
    """Return each name's place in `COLORS`, or a number beyond if all places are taken."""
    taken = {KIT[name]: name for name in dict.fromkeys(names) if name in KIT}
    for name in sorted(set(names) - set(KIT), key=str):
        drawn = crc32(str(name).encode(errors="replace")) % WELL_APART
        first = KIT.get(str(name).partition(" (")[0], ARMS.get(name, drawn))
        around = [(first + more) % WELL_APART for more in range(WELL_APART)]
        taken[next(place for place in chain([first], around, count(WELL_APART)) if place not in taken)] = name
    by_name = {name: place for place, name in taken.items()}
    return {name: by_name[name] for name in names}
