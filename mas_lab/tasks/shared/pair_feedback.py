"""Write feedback on two functions that were written for each other, from a parser and the problem's examples.

Hidden tests are not used: the functions were judged on the examples. Judging them is in `pair_code`.
"""

import ast

from mas_lab.tasks.shared.pair_code import Judged
from mas_lab.tasks.shared.pair_flow import AUX
from mas_lab.tasks.shared.problems import Problem
from mas_lab.tasks.shared.programs import FENCED, readable

SENTENCES = {
    "none": "There is no function `aux` that returns something.",
    "missing": "There is no function `{entry}` that returns something.",
    "syntax": "What was written does not parse.",
    "tests": "The examples do not all pass.",
    "call": "`{entry}` does not call `aux`.",
    "use": "`{entry}` calls `aux`, but its result makes no difference.",
    "thin": "`{entry}` merely hands on what `aux` returns, or `aux` is the whole solution.",
    "fine": "It parses, and every example passes.",
}
"""Plain feedback, by its pocket word."""
WORDS = {"aux": "none", "main": "missing"}


def word(judged: Judged, feedback: str) -> str:
    """Return the pocket word of the first level that failed; `level` adds how many examples passed, if they ran."""
    told = WORDS.get(judged.fault, judged.fault)
    counted = feedback == "level" and judged.graded is not None
    return f"{told} {sum(judged.graded.passed)}" if counted else told


def sentences(judged: Judged, feedback: str, problem: Problem, helper: str, main: str) -> str:
    """Return the full-size feedback: a sentence on the first level that failed, or a line on each level."""
    first = SENTENCES[WORDS.get(judged.fault, judged.fault)].format(entry=problem.entry)
    if feedback == "plain":
        return first
    parts, graded = judged.parts, judged.graded
    lines = [f"- `{name}`: {'defined, with a return' if parts[level] else 'missing, or without a return'}"
             for name, level in ((AUX, "aux"), (problem.entry, "main"))]  # fmt: skip
    wrong = [f"{name}: {error}" for name, text in ((AUX, helper), (problem.entry, main)) if (error := syntax(text))]
    lines.append(f"- syntax: {'; '.join(wrong) or 'fine'}")
    if graded is not None:
        lines.append(f"- examples of the problem: {sum(graded.passed)} of {len(graded.passed)} pass")
        if graded.outcome.stderr:
            lines[-1] += f"; one raised {readable(graded.outcome.stderr)}"
    if judged.fault in ("call", "use", "thin", "fine"):
        lines.append(f"- use of `aux`: {'fine' if judged.fault == 'fine' else first}")
    return "\n".join(lines)


def syntax(text: str) -> str:
    """Return the syntax error in the program of an answer, such as `line 3: invalid syntax`; empty if it parses."""
    blocks = FENCED.findall(text)
    try:
        ast.parse(blocks[-1] if blocks else text)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return str(error)
    return ""
