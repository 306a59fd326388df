"""Recipes have colours of their own, other than agents': the same name the same one on every board.

Leaves out: agents' colours (`figures.colors`), which go by their place in the team.
"""

from collections.abc import Iterator, Sequence
from itertools import count
from zlib import crc32

COLORS = ("#CC3311", "#6699CC", "#6B59B0", "#2A8090", "#999933", "#EE3377", "#984F52",
          "#777777", "#557711", "#EE6677", "#997700", "#40A493", "#B34FC9", "#0BA20A")  # fmt: skip
"""After schemes of Paul Tol (technical note SRON/EPS/TN/09-002) and searched for beside them. The first seven are told
apart by colour-blind readers too, at least 6 apart in OKLab (times 100) for who lacks one kind of cones (Machado,
Oliveira and Fernandes 2009). The others come with a dash; of all fourteen any two are 8 apart for who has all cones.
Each stands 3:1 or more on both papers of a page, white and #16181b, and 5.5 or more from each of `figures.PALETTE`."""
WELL_APART = 7
KIT = {
    "grpo": 0, "dr_mas": 1, "at_grpo": 2, "magrpo": 3, "grpo_mixed": 4, "dr_mas_mean": 5, "dr_mas_std": 6,
    "grpo_turns": 7, "dr_mas_episodes": 8, "mareinforce": 9, "marloo": 10, "maremax": 11,
    "grpo_masked": 12, "own_pooled": 13,
}  # fmt: skip
"""The place of each of the kit's recipes."""
ARMS = {"global": 0, "own": 1, "own mean": 5, "own scale": 6}
"""What the recorded studies call grpo, dr_mas and its halves."""
DASHES = ("solid", "dash", "dot", "dashdot")


def recipe_colors(names: Sequence[str]) -> dict[str, str]:
    """A colour per recipe, whatever their order: the kit's have fixed ones, any other the one that its name asks for.

    A variant, "grpo (ddof=1)", asks for the kit's colour of its name, and any other name for one of the first seven.
    Where two of a board ask for the same, the kit's own keeps it, then the one that stands first in the alphabet, and
    the other takes the next that is free: up to as many recipes as there are colours, none has another's.
    """
    return {name: COLORS[place % len(COLORS)] for name, place in _places(names).items()}


def recipe_dashes(names: Sequence[str]) -> dict[str, str]:
    """A dash per recipe, as plotly names them: a second sign beside colours that some readers do not tell apart, and
    the only one between recipes of a board with more of them than there are colours."""
    found = {}
    for name, place in _places(names).items():
        turn, of_color = divmod(place, len(COLORS))
        found[name] = DASHES[(2 * turn + (of_color >= WELL_APART)) % len(DASHES)]
    return found


def _places(names: Sequence[str]) -> dict[str, int]:
    """Each name's place in `COLORS`, or beyond where all of them are taken."""
    given = list(dict.fromkeys(names))
    taken = {KIT[name]: name for name in given if name in KIT}
    for name in sorted(set(given) - set(KIT), key=str):
        taken[next(place for place in _wishes(name) if place not in taken)] = name
    by_name = {name: place for place, name in taken.items()}
    return {name: by_name[name] for name in given}


def _wishes(name: str) -> Iterator[int]:
    """The places that a name would have, the one it likes most first."""
    drawn = crc32(str(name).encode(errors="replace")) % WELL_APART
    first = KIT.get(str(name).partition(" (")[0], ARMS.get(name, drawn))
    around = [(first + more) % WELL_APART for more in range(WELL_APART)]
    yield from dict.fromkeys([first, *around, *range(WELL_APART, len(COLORS))])
    yield from count(len(COLORS))
