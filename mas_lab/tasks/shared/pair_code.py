"""Score two functions that are written for each other, without seeing each other (MAGRPO, arXiv 2508.04652).

They are an auxiliary function `aux` and the asked function, which should call it. The syntax tree (`pair_flow`) and
runs without `aux` (`pair_knockout`) show whether `aux` is used. The published rule, which looks for words, is in
`pair_code_published`. Grading is in `programs`. The task decides who writes, and what the writers see. Two cases look
the same as work that was divided: an `aux` that solves all but one step, and a main that solves everything and answers
only where `aux` agrees.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from mas_lab.tasks.shared.pair_flow import AUX, calls, hands_on, reaches, rebinds, returns
from mas_lab.tasks.shared.pair_knockout import is_needed, is_thin
from mas_lab.tasks.shared.problems import Problem
from mas_lab.tasks.shared.programs import Case, Graded, function, parsed, read_code

BEST = 4.0
LEVELS = {"aux": 0.4, "main": 0.6, "parses": 0.5, "tests": 1.0, "used": 0.5, "apart": 1.0}
"""Highest pay of each level; the last two are multiplied by the share of tests passed."""
IGNORED = -0.5
"""Pay instead of the last two levels, times the same share, if `aux` is called without being used."""
IMPORT = re.compile(r"(?:from [\w.]+ import [\w, *]+|import [\w., ]+)")


@dataclass(frozen=True)
class Judged:
    """Score of two functions, level by level."""

    parts: dict[str, float]
    """Pay of each of `LEVELS`, and `ignored`; levels that were not reached are missing."""
    fault: str = "fine"
    """First fault: aux or main (missing), syntax, tests, call (main does not call `aux`), use (main calls `aux` without
    using it), thin (main returns what `aux` returns), or fine."""
    graded: Graded | None = None
    """Test results; `None` if no tests ran."""

    @property
    def score(self) -> float:
        return round(sum(self.parts.values()), 9)


def judge(helper: str, main: str, problem: Problem, cases: Sequence[Case]) -> Judged:
    """Judge both texts on these cases.

    A level that fails ends the judgement, except for a missing `aux`: the asked function is still graded without it. If
    the helper's text is no program, `aux` is missing, and nothing parses together.
    """
    written, asked = read_code(helper), read_code(main)
    has_aux = written is not None and returns(function(written, AUX))
    parts = {"aux": LEVELS["aux"] * has_aux, "main": 0.0}
    if asked is None or not returns(function(asked, problem.entry)):
        return Judged(parts, "syntax" if asked is None and main.strip() else "main")
    parts["main"] = LEVELS["main"]
    if written is None and helper.strip():
        return Judged(parts, "syntax")
    parts["parses"] = LEVELS["parses"]
    before = f"{imports(problem.text)}{written or ''}"
    called = has_aux and calls(asked)
    used = called and not rebinds(asked) and reaches(asked, problem.entry)
    thin, graded = used and hands_on(asked, problem.entry), None
    if cases:
        graded = problem.grade(f"{before}\n{asked}", cases)
        share = graded.share
        used = used and share > 0 and is_needed(before, asked, problem, cases, graded)
        thin = used and is_thin(before, asked, problem, cases, graded)
        paid = {"used": LEVELS["used"] * used, "apart": LEVELS["apart"] * (used and not thin)}
        parts |= {"tests": LEVELS["tests"] * share} | {level: share * pays for level, pays in paid.items()}
        parts |= {"ignored": IGNORED * share} if called and not used else {}
    fails = graded is not None and not graded.unknown and not all(graded.passed)
    amiss = {"aux": not has_aux, "tests": fails, "call": not called, "use": not used, "thin": thin}
    return Judged(parts, next((name for name, wrong in amiss.items() if wrong), "fine"), graded)


def imports(text: str) -> str:
    """Return the import lines of a problem's text that parse, for the top of a program."""
    lines = [line.strip() for line in text.splitlines() if IMPORT.fullmatch(line.strip())]
    return "".join(f"{line}\n" for line in lines if parsed(line))
