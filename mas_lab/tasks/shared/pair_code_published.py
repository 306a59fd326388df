"""Score two functions by lines and words, as CoMLRL does (MAGRPO, arXiv 2508.04652).

`aux` counts as called if `aux(` stands in the asked function, even in a comment, a text or a definition. The function
is a thin wrapper if its body is one `return` that names `aux`, or `name = aux(` and `return name`. The result of `aux`
counts as ignored if a line is `aux (x)`, with one space and one character. A single passed test opens the bonuses.
Three things of the original are left out: running code outside a sandbox, time limits per test, and the clean-up of
prose around functions, except that the fences of blocks are removed.
"""

import re
from collections.abc import Sequence

from mas_lab.tasks.shared.pair_code import IGNORED, LEVELS, Judged, imports
from mas_lab.tasks.shared.pair_flow import AUX
from mas_lab.tasks.shared.problems import Problem
from mas_lab.tasks.shared.programs import Case, parsed

FENCE = re.compile(r"^```\w*\s*$", flags=re.MULTILINE)
IGNORES = re.compile(r"aux\s\([^)]\)")


def judge(helper: str, main: str, problem: Problem, cases: Sequence[Case]) -> Judged:
    """Judge both texts on these cases."""
    aux, asked = extracted(helper, AUX), extracted(main, problem.entry)
    parts = {
        level: LEVELS[level] * bool(re.search(r"return\s+", text)) for level, text in (("aux", aux), ("main", asked))
    }
    if not parts["main"]:
        return Judged(parts, "main")
    together = f"{imports(problem.text)}{aux}\n\n{asked}"
    if not parsed(together):
        return Judged(parts, "syntax")
    graded = problem.grade(f"import math\n{together}", cases)
    parts |= {"parses": LEVELS["parses"], "tests": LEVELS["tests"] * graded.share}
    called = bool(aux and any(graded.passed) and re.search(r"\baux\s*\(", asked))
    thin, ignored = is_wrapper(asked), any(IGNORES.fullmatch(line.strip()) for line in asked.splitlines())
    if called:
        parts |= {"used": LEVELS["used"], "apart": LEVELS["apart"] * (not thin), "ignored": IGNORED * ignored}
    amiss = {"aux": not parts["aux"], "tests": not all(graded.passed), "call": not called, "use": ignored, "thin": thin}
    return Judged(parts, next((name for name, wrong in amiss.items() if wrong), "fine"), graded)


def extracted(text: str, name: str) -> str:
    """Return the lines of the first function `name`, up to one that is not indented below it, or an empty text."""
    lines = FENCE.sub("", text).splitlines()
    first = next((i for i, line in enumerate(lines) if re.match(rf"\s*def\s+{re.escape(name)}\s*\(", line)), None)
    if first is None:
        return ""
    indent = " " * (len(lines[first]) - len(lines[first].lstrip()) + 1)
    rest = lines[first + 1 :]
    end = next((i for i, line in enumerate(rest) if line.strip() and not line.startswith((indent, "\t"))), len(rest))
    return "\n".join([lines[first], *rest[:end]]).strip()


def is_wrapper(asked: str) -> bool:
    """Return whether the body is a thin wrapper, by its lines without comments and one-line docstrings."""
    lines = [line.strip() for line in asked.splitlines()]
    body = [line for line in lines if line and not line.startswith(("#", "def ", '"""', "'''"))]
    if len(body) == 2:
        kept = re.search(r"(\w+)\s*=\s*aux\s*\(", body[0])
        return bool(kept) and body[1] == f"return {kept[1]}"
    return not body or (len(body) == 1 and body[0].startswith("return ") and AUX in body[0])
