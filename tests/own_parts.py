"""A center and a credit of somebody's own, defined in any module: in `__main__` as a notebook does, or in a file's."""

import linecache

OWN_PARTS = """
from dataclasses import dataclass

def center(turns):
    return turns["credit"] * {number}

@dataclass(frozen=True)
class credit:
    per_word: float = 0.5

    def __call__(self, turns):
        return turns["team_reward"] * {number}
"""


def written_in(module, number=0.0, text=OWN_PARTS):
    """Return what source code defines in a module; `inspect` finds its lines, as those of a notebook."""
    source, file = text.format(number=number), f"<{module} {number}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    space = {"__name__": module}
    exec(compile(source, file, "exec"), space)
    return space
