"""Does a function need its auxiliary one, and does it do more than hand on what that returns? Seen by running it: with
`aux` knocked out, with `aux` alone, and with what `aux` is given and says written down.

Leaves out: what is read from the syntax tree (`pair_flow`), and what all this is worth (`pair_code`).
"""

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace

from mas_lab.tasks.shared.harness import literal
from mas_lab.tasks.shared.pair_flow import AUX, hands_on
from mas_lab.tasks.shared.problems import Problem
from mas_lab.tasks.shared.programs import Case, Graded, same

NEEDED = 0.25
"""The share of the passed tests that must fail without `aux`, at least one."""
MOST_CALLS, MOST_VALUES = 64, 4096
"""Calls of `aux` that are written down of a test, in order and of each value; and different values."""
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


def is_needed(helper: str, main: str, problem: Problem, cases: Sequence[Case], whole: Graded) -> bool:
    """Do tests that were passed fail without `aux`, whichever way it is knocked out?

    None alone would be too easy: a main that solves all by itself need only refuse None, or add `aux(x) - 7` where
    `aux` always says 7. So `aux` also hands back its argument (an `aux` that does nothing), and says what it said, call
    by call, in another test (one that says the same whatever it is given, and is checked with a known question). An
    `aux` that is a constant is therefore never needed.
    """
    logs = _logs(helper, main, problem, cases)
    broken = [problem.grade(f"{helper}\n{instead}\n{main}", cases).passed for instead in (NOTHING, ITS_ARGUMENT)]
    if logs is not None and len(cases) > 1:
        broken.append(_replayed(helper, main, problem, cases, logs))
    passed = sum(whole.passed)
    lost = [sum(was and not now for was, now in zip(whole.passed, one, strict=True)) for one in broken]
    return min(lost) >= max(1, NEEDED * passed)


def _run(problem: Problem, entry: str, source: str, cases: Sequence[Case]) -> Graded:
    return replace(problem, entry=entry).grade(source, cases)


@dataclass(frozen=True)
class Log:
    """What was written down of a test: what `aux` said, call by call; what it was given where it said what main then
    returned; and whether that is all. What no literal writes stands as its text."""

    said: list
    given: list
    whole: bool


def _logs(helper: str, main: str, problem: Problem, cases: Sequence[Case]) -> list[Log] | None:
    """One per case. None: the sandbox's tier cannot tell."""
    source = f"{helper}\n{LOGGED}\n{main}\n{LOG.format(entry=problem.entry)}"
    outcome = _run(problem, "_mas_lab_probe", source, cases).outcome
    return None if outcome.status == "unsupported" else [_read(value) for value in outcome.values]


def _read(told: object) -> Log:
    match told:
        case [list(said), list(given), bool(whole)]:
            return Log(list(map(_plain, said)), list(map(_plain, given)), whole)
    return Log([], [], False)


def _plain(text: str) -> object:
    try:
        value = ast.literal_eval(text)
        literal(value, "a value of aux")  # no bytes, no complex numbers, which a sandbox does not take
        return value
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return text


def _replayed(helper: str, main: str, problem: Problem, cases: Sequence[Case], logs: list[Log]) -> tuple[bool, ...]:
    """Which cases pass while `aux` says what it said in the next case in which it said something else."""
    said = [log.said for log in logs]
    asked = []
    for i, (arguments, expected) in enumerate(cases):
        others = [one for one in (*said[i + 1 :], *said[:i]) if one and one != said[i]]
        asked.append([[(others or said[i:])[0], *arguments], expected])
    source = f"{helper}\n{REPLAYED}\n{main}\n{REPLAY.format(entry=problem.entry)}"
    return _run(problem, "_mas_lab_probe", source, asked).passed


def is_thin(helper: str, main: str, problem: Problem, cases: Sequence[Case], whole: Graded) -> bool:
    """Does `aux` alone pass what both pass; or is, in every test passed, what main returns what `aux` returned when it
    was given all that main was given? (Other arguments besides, or a copy of a list, make no other work of it; calls
    without end, among which nobody finds the one that counts, are no work either.)"""
    alone = _run(problem, AUX, helper, cases).passed
    if all(one for one, both in zip(alone, whole.passed, strict=True) if both):
        return True
    logs = _logs(helper, main, problem, cases)
    if logs is None:
        return hands_on(main, problem.entry)
    passed = [(arguments, log) for (arguments, _), log, was in zip(cases, logs, whole.passed, strict=True) if was]
    return all(not log.whole or _handed_on(arguments, log.given) for arguments, log in passed)


def _handed_on(arguments: Sequence, told: list) -> bool:
    """Was it given all of these in one of the calls?"""
    return any(
        isinstance(given, list) and all(any(same(one, part) for part in given) for one in arguments) for given in told
    )
