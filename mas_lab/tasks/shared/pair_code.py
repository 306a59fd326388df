"""Score two functions that are written for each other, without seeing each other (MAGRPO, arXiv 2508.04652).

They are an auxiliary function `aux` and the asked function, which should call it. The syntax tree shows whether main
calls `aux`. A run in which `aux` returns its argument shows whether main needs it, and a run of `aux` alone whether it
does all the work. The published rule looks for words instead. Feedback comes from a parser and the problem's
examples. Some cases look the same as work that was divided: an `aux` that solves all but one step, and a main that
solves everything, and undoes what `aux` did or answers only where `aux` agrees. Grading is in `programs`. The task
decides who writes, and what the writers see.
"""

import ast
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from mas_lab.tasks.shared import programs
from mas_lab.tasks.shared.bases import PROMPTS
from mas_lab.tasks.shared.programs import Case, Problem, Result, function, parsed, read_code

AUX = "aux"
"""Name of the function that the helper writes."""


def returns(found: ast.FunctionDef | None) -> bool:
    """Return whether the function itself, not one inside it, has a `return` with a value."""
    return found is not None and any(isinstance(part, ast.Return) and part.value for part in _inside(found))


def is_constant(found: ast.FunctionDef) -> bool:
    """Return whether the function has a single `return`, of a constant."""
    returned = [part.value for part in _inside(found) if isinstance(part, ast.Return)]
    return len(returned) == 1 and isinstance(returned[0], ast.Constant)


def _inside(found: ast.AST):
    """Yield the nodes of a function, except those of functions and classes inside it."""
    for part in ast.iter_child_nodes(found):
        yield part
        if not isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from _inside(part)


def calls(source: str) -> bool:
    """Return whether the value of `aux` is read; `map(aux, xs)` counts, a comment or a text does not."""
    return any(_is_aux(part) for part in ast.walk(parsed(source)))


def _is_aux(part: ast.AST) -> bool:
    return isinstance(part, ast.Name) and part.id == AUX and isinstance(part.ctx, ast.Load)


def _is_result(part: ast.AST | None) -> bool:
    return isinstance(part, ast.Call) and _is_aux(part.func)


def hands_on(source: str, entry: str) -> bool:
    """Return whether every `return` of `entry` is a call of `aux`, or a name that holds it and is used nowhere else."""
    nodes = list(_inside(function(source, entry)))
    mentions = Counter(part.id for part in nodes if isinstance(part, ast.Name))
    assigned = [part.targets[0] for part in nodes if isinstance(part, ast.Assign) and _is_result(part.value)]
    held = {one.id for one in assigned if isinstance(one, ast.Name) and mentions[one.id] == 2}
    returned = [part.value for part in nodes if isinstance(part, ast.Return)]
    return all(_is_result(value) or getattr(value, "id", None) in held for value in returned)


NEEDED = 0.25
"""Share of the passed tests that must fail if `aux` returns its argument, at least one."""
ITS_ARGUMENT = "def aux(*args, **kwargs):\n    return args[0] if args else None\n"


def is_needed(helper: str, main: str, problem: Problem, cases: Sequence[Case], graded: Result) -> bool:
    """Return whether passed tests fail if `aux` returns its argument, like an `aux` that does nothing."""
    without = problem.grade(f"{helper}\n{ITS_ARGUMENT}\n{main}", cases).passed
    lost = sum(was and not still for was, still in zip(graded.passed, without, strict=True))
    return lost >= max(1, NEEDED * sum(graded.passed))


def does_all(helper: str, problem: Problem, cases: Sequence[Case], graded: Result) -> bool:
    """Return whether `aux` alone passes the tests that both pass."""
    alone = problem.grade(helper, cases, AUX).passed
    return all(one for one, both in zip(alone, graded.passed, strict=True) if both)


BEST = 4.0
LEVELS = {"aux": 0.4, "main": 0.6, "parses": 0.5, "tests": 1.0, "used": 0.5, "apart": 1.0}
"""Highest pay of each level; the last two are multiplied by the share of tests passed."""
IGNORED = -0.5
"""Pay instead of the last two levels, times the same share, if `aux` is called without being used."""


@dataclass(frozen=True)
class Judged:
    """Score of two functions, level by level."""

    parts: dict[str, float]
    """Pay of each of `LEVELS`, and `ignored`; levels that were not reached are missing."""
    fault: str = "fine"
    """First fault: aux or main (missing), syntax, tests, call (main does not call `aux`), use (main calls `aux` without
    using it), thin (main returns what `aux` returns), or fine."""
    graded: Result | None = None
    """Test results; `None` if no tests ran."""

    @property
    def score(self) -> float:
        return round(sum(self.parts.values()), 9)


def judge(helper: str, main: str, problem: Problem, cases: Sequence[Case]) -> Judged:
    """Judge both texts on these cases.

    A level that fails ends the judgement, except for a missing `aux`: the asked function is still graded without it. If
    the helper's text is no program, `aux` is missing, and nothing parses together.
    """
    written, main_code = read_code(helper, f"def {AUX}"), read_code(main, f"def {problem.entry}")
    aux = function(written or "", AUX)
    has_aux = returns(aux)
    parts = {"aux": LEVELS["aux"] * has_aux, "main": 0.0}
    if main_code is None or not returns(function(main_code, problem.entry)):
        return Judged(parts, "syntax" if main_code is None and main.strip() else "main")
    parts["main"] = LEVELS["main"]
    if written is None and helper.strip():
        return Judged(parts, "syntax")
    parts["parses"] = LEVELS["parses"]
    written = written or ""
    called = has_aux and calls(main_code)
    used = called and not is_constant(aux)
    thin, graded = used and hands_on(main_code, problem.entry), None
    if cases:
        graded = problem.grade(f"{written}\n{main_code}", cases)
        share = graded.share
        used = used and share > 0 and is_needed(written, main_code, problem, cases, graded)
        thin = used and (thin or does_all(written, problem, cases, graded))
        paid = {"used": LEVELS["used"] * used, "apart": LEVELS["apart"] * (used and not thin)}
        parts |= {"tests": LEVELS["tests"] * share} | {level: share * pays for level, pays in paid.items()}
        parts |= {"ignored": IGNORED * share} if called and not used else {}
    fails = graded is not None and not all(graded.passed)
    amiss = {"aux": not has_aux, "tests": fails, "call": not called, "use": not used, "thin": thin}
    return Judged(parts, next((name for name, wrong in amiss.items() if wrong), "fine"), graded)


FENCE = re.compile(r"^```\w*\s*$", flags=re.MULTILINE)
IGNORES = re.compile(r"aux\s\([^)]\)")


def judge_published(helper: str, main: str, problem: Problem, cases: Sequence[Case]) -> Judged:
    """Judge both texts on these cases by lines and words, as CoMLRL does.

    `aux` counts as called if `aux(` stands in the asked function, even in a comment, a text or a definition. The
    function is a thin wrapper if its body is one `return` that names `aux`, or `name = aux(` and `return name`. The
    result of `aux` counts as ignored if a line is `aux (x)`, with one space and one character. A single passed test
    opens the bonuses. Three things of the original are left out: running code outside a sandbox, time limits per test,
    and the clean-up of prose around functions, except that the fences of blocks are removed.
    """
    aux, main_code = extracted(helper, AUX), extracted(main, problem.entry)
    written = {"aux": aux, "main": main_code}
    parts = {level: LEVELS[level] * bool(re.search(r"return\s+", text)) for level, text in written.items()}
    if not parts["main"]:
        return Judged(parts, "main")
    source = f"{aux}\n\n{main_code}"
    if not parsed(source):
        return Judged(parts, "syntax")
    graded = problem.grade(f"import math\n{source}", cases)
    parts |= {"parses": LEVELS["parses"], "tests": LEVELS["tests"] * graded.share}
    called = bool(aux and any(graded.passed) and re.search(r"\baux\s*\(", main_code))
    thin, ignored = is_wrapper(main_code), any(IGNORES.fullmatch(line.strip()) for line in main_code.splitlines())
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


def is_wrapper(source: str) -> bool:
    """Return whether the body is a thin wrapper, by its lines without comments and one-line docstrings."""
    lines = [line.strip() for line in source.splitlines()]
    body = [line for line in lines if line and not line.startswith(("#", "def ", '"""', "'''"))]
    if len(body) == 2:
        assigned = re.search(r"(\w+)\s*=\s*aux\s*\(", body[0])
        return bool(assigned) and body[1] == f"return {assigned[1]}"
    return not body or (len(body) == 1 and body[0].startswith("return ") and AUX in body[0])


SENTENCES = PROMPTS["code_pair_feedback"]
"""Plain feedback, by its pocket word."""
WORDS = {"aux": "none", "main": "missing"}


def word(judged: Judged, feedback: str) -> str:
    """Return the pocket word of the first level that failed; `level` adds how many examples passed, if they ran."""
    fault = WORDS.get(judged.fault, judged.fault)
    counted = feedback == "level" and judged.graded is not None
    return f"{fault} {sum(judged.graded.passed)}" if counted else fault


def sentences(judged: Judged, feedback: str, problem: Problem, helper: str, main: str) -> str:
    """Return the full-size feedback: a sentence on the first level that failed, or a line on each level."""
    first = SENTENCES[WORDS.get(judged.fault, judged.fault)].format(entry=problem.entry)
    if feedback == "plain":
        return first
    parts, graded = judged.parts, judged.graded
    lines = [f"- `{name}`: {'defined, with a return' if parts[level] else 'missing, or without a return'}"
             for name, level in ((AUX, "aux"), (problem.entry, "main"))]  # fmt: skip
    wrong = [f"{name}: {why}" for name, text in ((AUX, helper), (problem.entry, main)) if (why := syntax(text, name))]
    lines.append(f"- syntax: {'; '.join(wrong) or 'fine'}")
    if graded is not None:
        lines.append(f"- examples of the problem: {sum(graded.passed)} of {len(graded.passed)} pass")
        if graded.outcome.stderr:
            lines[-1] += f"; one raised {programs.readable(graded.outcome.stderr)}"
    if judged.fault in ("call", "use", "thin", "fine"):
        lines.append(f"- use of `aux`: {'fine' if judged.fault == 'fine' else first}")
    return "\n".join(lines)


def syntax(text: str, name: str) -> str:
    """Return the syntax error of the program with a function `name`, such as `line 3: invalid syntax`, or no text."""
    try:
        programs.tree_of(programs.code_in(text, f"def {name}"))
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}"
    except (ValueError, RecursionError, MemoryError) as error:
        return str(error)
    return ""
