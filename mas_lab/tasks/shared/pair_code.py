"""Score two functions that are written for each other, without seeing each other (MAGRPO, arXiv 2508.04652).

They are an auxiliary function `aux` and the asked function, which should call it. The syntax tree shows whether `aux`
is used, and so do runs with `aux` knocked out, with `aux` alone, and with a log of its arguments and results. The
published rule looks for words instead. Feedback comes from a parser and the problem's examples. Two cases look the same
as work that was divided: an `aux` that solves all but one step, and a main that solves everything and answers only
where `aux` agrees. Grading is in `programs`. The task decides who writes, and what the writers see.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from mas_lab.tasks.shared import programs
from mas_lab.tasks.shared.bases import PROMPTS
from mas_lab.tasks.shared.programs import Case, Problem, Result, function, parsed, read_code, read_literal, same

AUX = "aux"
"""Name of the function that the helper writes."""


def returns(found: ast.FunctionDef | None) -> bool:
    """Return whether the function itself, not one inside it, has a `return` with a value."""
    return found is not None and any(isinstance(part, ast.Return) and part.value for part in _inside(found))


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


def rebinds(source: str) -> bool:
    """Return whether `aux` is rebound anywhere: defined, assigned, imported, a parameter, or `global`."""
    for part in ast.walk(parsed(source)):
        names = [getattr(part, name, None) for name in ("name", "asname", "arg", "rest")]
        names += getattr(part, "names", []) if isinstance(part, ast.Global | ast.Nonlocal) else []
        names += [part.id] if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load) else []
        if AUX in names and not isinstance(part, ast.keyword):
            return True
    return False


def reaches(source: str, entry: str) -> bool:
    """Return whether the result of `aux` reaches what `entry` returns.

    It may go through names, containers, functions inside it, or a condition. The order of statements is ignored:
    running with `aux` knocked out shows whether the result is overwritten.
    """
    return entry in _all_carrying(parsed(source))


def _all_carrying(tree: ast.Module) -> set[str]:
    """Return the names through which the result of `aux` goes."""
    carrying: set[str] = set()
    while True:
        grown = carrying | {name for part in ast.walk(tree) for name in _carried(part, carrying)}
        if grown == carrying:
            return carrying
        carrying = grown


def _carried(part: ast.AST, carrying: set[str]) -> set[str]:
    """Return the names that receive what this statement or expression carries."""
    targets, values = [], []
    if isinstance(part, ast.FunctionDef):
        targets, inside = [ast.Name(part.name)], list(_inside(part))
        values = [one for one in inside if isinstance(one, ast.Return | ast.Yield | ast.YieldFrom)]
        values += [one.test for one in inside if isinstance(one, ast.If | ast.While | ast.Assert)]
        values += [one.iter for one in inside if isinstance(one, ast.For)]
    elif isinstance(part, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
        targets, values = getattr(part, "targets", None) or [part.target], [part.value] if part.value else []
    elif isinstance(part, ast.For | ast.comprehension):
        targets, values = [part.target], [part.iter]
    elif isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):  # y.append(aux(x))
        targets, values = [part.func.value], [*part.args, *(one.value for one in part.keywords)]
    return _bases(targets) if any(_carries(one, carrying) for one in values) else set()


def _carries(part: ast.AST, carrying: set[str]) -> bool:
    known = {AUX} | carrying
    return any(getattr(one, "id", getattr(one, "attr", None)) in known for one in ast.walk(part))


def _bases(targets: Sequence[ast.AST]) -> set[str]:
    """Return the names in targets such as `a`, `a[i]`, `a.b` and `(a, b)`."""
    return {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}


def hands_on(source: str, entry: str) -> bool:
    """Return whether every `return` of `entry` is a call of `aux`, unchanged."""
    returned = [part.value for part in _inside(function(source, entry)) if isinstance(part, ast.Return)]
    return all(isinstance(value, ast.Call) and _is_aux(value.func) for value in returned)


CONDITIONS, VALUES = 3, 24
"""Most conditions on `aux` of which all combinations are tried, and most values that an argument replaces."""


def undivided(source: str, entry: str) -> Iterator[str]:
    """Yield variants of main that pass without `aux` if main does all the work.

    Conditions on a result of `aux` are constant: main only verified it. Or an argument of main, kept in a name of its
    own, replaces a value that came from `aux`: main undid what `aux` did.
    """
    nodes = list(ast.walk(parsed(source)))
    carrying = _all_carrying(parsed(source)) - {entry}
    tests = [nodes.index(part.test) for part in nodes if isinstance(part, ast.If | ast.IfExp | ast.Assert)
             and _carries(part.test, carrying)]  # fmt: skip
    for values in product((True, False), repeat=len(tests)) if 0 < len(tests) <= CONDITIONS else ():
        yield _changed(source, entry, dict(zip(tests, map(repr, values), strict=True)))
    holders = [part for part in nodes if isinstance(part, ast.stmt | ast.NamedExpr | ast.Call | ast.comprehension)]
    replaceable = {id(getattr(part, name, None)) for part in holders for name in ("value", "iter")}
    replaceable |= {id(one) for part in holders if isinstance(part, ast.Call) for one in part.args}
    came = [i for i, part in enumerate(nodes) if id(part) in replaceable and _carries(part, carrying)]
    for i, name in product(came[:VALUES], _arguments(source, entry)):
        yield _changed(source, entry, {i: f"{ARGUMENT}{name}"})


def returns_to_its_argument(gold: str, problem: Problem, cases: Sequence[Case]) -> bool:
    """Return whether the right program itself passes with an argument in place of a value that it computes."""
    nodes = list(ast.walk(parsed(gold) or ast.Module([], [])))
    values = [nodes.index(part.value) for part in nodes if isinstance(part, ast.Assign)][1:VALUES]
    variants = (_changed(gold, problem.entry, {i: f"{ARGUMENT}{name}"}) for i in values
                for name in _arguments(gold, problem.entry))  # fmt: skip
    return any(all(problem.grade(one, cases).passed) for one in variants)


ARGUMENT = "_mas_lab_kept_"


def _arguments(source: str, entry: str) -> list[str]:
    found = function(source, entry)
    return [one.arg for one in found.args.args] if found else []


def _changed(source: str, entry: str, changes: Mapping[int, str]) -> str:
    """Return a program with other expressions at some places of `ast.walk`, and the arguments kept as they came."""
    tree = parsed(source)
    nodes = list(ast.walk(tree))
    new = {id(nodes[i]): ast.parse(text, mode="eval").body for i, text in changes.items()}
    for part in nodes:
        for name, value in ast.iter_fields(part):
            fields = [new.get(id(one), one) for one in value] if isinstance(value, list) else new.get(id(value), value)
            setattr(part, name, fields)
    [main] = [part for part in tree.body if isinstance(part, ast.FunctionDef) and part.name == entry][-1:]
    copies = "\n".join(
        f"{ARGUMENT}{x} = list({x}) if isinstance({x}, list) else {x}" for x in _arguments(source, entry)
    )
    main.body[:0] = ast.parse(copies).body
    return ast.unparse(ast.fix_missing_locations(tree))


NEEDED = 0.25
"""Share of the passed tests that must fail without `aux`, at least one."""
MOST_CALLS, MOST_VALUES = 64, 4096
"""Most calls of `aux` that are logged per test, in order and for each value; and most different values."""
SPREAD = "def aux(*args, **kwargs):\n    "
NOTHING = f"{SPREAD}return None\n"
ITS_ARGUMENT = f"{SPREAD}return args[0] if args else None\n"
REPLAYED = f"""_mas_lab_said = []
_mas_lab_at = [0]
{SPREAD}if not _mas_lab_said:
        return None
    _mas_lab_at[0] += 1
    return _mas_lab_said[min(_mas_lab_at[0], len(_mas_lab_said)) - 1]
"""
REPLAY = """
def _mas_lab_probe(said, *args):
    _mas_lab_said[:] = said
    _mas_lab_at[0] = 0
    return {entry}(*args)
"""
LOGGED = f"""_mas_lab_aux = aux
_mas_lab_said = []
_mas_lab_given = {{}}
def _mas_lab_key(value):
    return repr(value).replace("(", "[").replace(")", "]").replace(",]", "]")
{SPREAD}given = repr([*args, *kwargs.values()])
    place = len(_mas_lab_said)
    if place < {MOST_CALLS}:
        _mas_lab_said.append("")
    value = _mas_lab_aux(*args, **kwargs)
    if place < {MOST_CALLS}:
        _mas_lab_said[place] = repr(value)
    key = _mas_lab_key(value)
    if len(_mas_lab_given) < {MOST_VALUES} and len(_mas_lab_given.get(key, [])) < {MOST_CALLS}:
        _mas_lab_given[key] = [*_mas_lab_given.get(key, []), given]
    return value
"""
LOG = f"""
def _mas_lab_probe(*args):
    _mas_lab_said.clear()
    _mas_lab_given.clear()
    key = _mas_lab_key({{entry}}(*args))
    return [_mas_lab_said, _mas_lab_given.get(key, []), len(_mas_lab_given) < {MOST_VALUES}]
"""


def is_needed(helper: str, main: str, problem: Problem, cases: Sequence[Case], graded: Result) -> bool:
    """Return whether passed tests fail without `aux`, in every way that it is knocked out.

    An `aux` that returns None would be too easy alone: a main that solves everything only has to refuse None, or adds
    `aux(x) - 7` where `aux` always returns 7. So there are two more knockouts. One returns its argument, like an `aux`
    that does nothing. The other returns, call by call, what `aux` returned in another test. It finds an `aux` that
    returns the same for every argument, or that main checks with a known question. So a constant `aux` is never needed.
    At last, main does not need `aux` if a variant of it (`undivided`) does the work alone. Problems whose right program
    comes back to its argument are left out, because an honest main may do the same.
    """
    logs = _logs(helper, main, problem, cases)
    broken = [problem.grade(f"{helper}\n{instead}\n{main}", cases).passed for instead in (NOTHING, ITS_ARGUMENT)]
    if logs is not None and len(cases) > 1:
        broken.append(_replayed(helper, main, problem, cases, logs))
    least = max(1, NEEDED * sum(graded.passed))

    def lost(now: Sequence[bool]) -> int:
        return sum(was and not still for was, still in zip(graded.passed, now, strict=True))

    if min(map(lost, broken)) < least:
        return False
    alone = (problem.grade(f"{helper}\n{ITS_ARGUMENT}\n{one}", cases).passed for one in undivided(main, problem.entry))
    if all(lost(one) >= least for one in alone):
        return True
    return bool(problem.gold) and returns_to_its_argument(problem.gold, problem, cases)


@dataclass(frozen=True)
class Log:
    """Log of one test: results of `aux`, arguments of some calls, and whether these are complete.

    `results` has the result of each call of `aux`, in order. `arguments` has the arguments of the calls whose result
    was the same as main's. A value that no literal can write is there as its text.
    """

    results: list
    arguments: list
    complete: bool


def _logs(helper: str, main: str, problem: Problem, cases: Sequence[Case]) -> list[Log] | None:
    """Return one log per case, or `None` if the sandbox's tier cannot write logs."""
    source = f"{helper}\n{LOGGED}\n{main}\n{LOG.format(entry=problem.entry)}"
    outcome = problem.grade(source, cases, "_mas_lab_probe").outcome
    return None if outcome.status == "unsupported" else [_read(value) for value in outcome.values]


def _read(logged: object) -> Log:
    match logged:
        case [list(results), list(arguments), bool(complete)]:
            values = [[read_literal(text, text) for text in texts] for texts in (results, arguments)]
            return Log(*values, complete)
    return Log([], [], False)


def _replayed(helper: str, main: str, problem: Problem, cases: Sequence[Case], logs: list[Log]) -> tuple[bool, ...]:
    """Return which cases pass while `aux` returns its results of the next case in which they differ."""
    results = [log.results for log in logs]
    replays = []
    for i, (arguments, expected) in enumerate(cases):
        others = [one for one in (*results[i + 1 :], *results[:i]) if one and one != results[i]]
        replays.append([[(others or results[i:])[0], *arguments], expected])
    source = f"{helper}\n{REPLAYED}\n{main}\n{REPLAY.format(entry=problem.entry)}"
    return problem.grade(source, replays, "_mas_lab_probe").passed


def is_thin(helper: str, main: str, problem: Problem, cases: Sequence[Case], graded: Result) -> bool:
    """Return whether `aux` does all the work, or main only returns a result of `aux`.

    The first holds if `aux` alone passes the tests that both pass. The second holds if in every passed test main
    returns what `aux` returned when it got all of main's arguments. Further arguments, or a copy of a list, make no
    difference. A test with too many different results to log counts too, because nobody can find the call that matters.
    """
    alone = problem.grade(helper, cases, AUX).passed
    if all(one for one, both in zip(alone, graded.passed, strict=True) if both):
        return True
    logs = _logs(helper, main, problem, cases)
    if logs is None:
        return hands_on(main, problem.entry)
    passed = [(arguments, log) for (arguments, _), log, was in zip(cases, logs, graded.passed, strict=True) if was]
    return all(not log.complete or _handed_on(arguments, log.arguments) for arguments, log in passed)


def _handed_on(arguments: Sequence, calls: list) -> bool:
    """Return whether one of the calls got all of these arguments."""
    readable = [call for call in calls if isinstance(call, list)]
    return any(all(any(same(one, part) for part in call) for one in arguments) for call in readable)


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
    has_aux = written is not None and returns(function(written, AUX))
    parts = {"aux": LEVELS["aux"] * has_aux, "main": 0.0}
    if main_code is None or not returns(function(main_code, problem.entry)):
        return Judged(parts, "syntax" if main_code is None and main.strip() else "main")
    parts["main"] = LEVELS["main"]
    if written is None and helper.strip():
        return Judged(parts, "syntax")
    parts["parses"] = LEVELS["parses"]
    written = written or ""
    called = has_aux and calls(main_code)
    used = called and not rebinds(main_code) and reaches(main_code, problem.entry)
    thin, graded = used and hands_on(main_code, problem.entry), None
    if cases:
        graded = problem.grade(f"{written}\n{main_code}", cases)
        share = graded.share
        used = used and share > 0 and is_needed(written, main_code, problem, cases, graded)
        thin = used and is_thin(written, main_code, problem, cases, graded)
        paid = {"used": LEVELS["used"] * used, "apart": LEVELS["apart"] * (used and not thin)}
        parts |= {"tests": LEVELS["tests"] * share} | {level: share * pays for level, pays in paid.items()}
        parts |= {"ignored": IGNORED * share} if called and not used else {}
    fails = graded is not None and not graded.unknown and not all(graded.passed)
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
