"""Answer questions in a child process, one JSON line each, so that code may hang or crash there alone.

`Child(name)` runs this file with the name of one of `PROGRAMS`. `multiprocessing` would run the caller's own script
again in each process. This file imports nothing of the package. Writing the programs of the sandbox and reading their
answers is in `sandbox`.
"""

import datetime
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any

READY = '"ready"\n'
RESULT = "_mas_lab_result"
RECURSION = 1000
"""Most calls within each other, on monty: CPython's limit, so that only what CPython refuses too is an error."""
MOST_PRINTED = 16 << 20
"""Bytes that a program may print on monty."""
LONGEST_OUTPUT = 1 << 18
"""Characters of the printed text that are kept."""
MOST_ANSWERED = 1 << 24
"""Most characters of all answers together; as objects they take many times as much memory."""
FILES = 1 << 20
"""Bytes of files in memory that a program may write on pyeryx."""
GRACE = 0.25
"""Seconds after the limit at which monty ends a worker that does not end its program."""


class ChildEnded(RuntimeError):
    """Error for a child without an answer: `late` if it was ended for taking too long, else it died (`code`)."""

    def __init__(self, late: bool, code: int | None):
        super().__init__("ended for taking too long" if late else f"ended with {code}")
        self.late, self.code = late, code


class Child:
    """Child process that starts at once and answers one question at a time.

    Raises RuntimeError that says what to install if the program does not start.
    """

    def __init__(self, program: str):
        command = [sys.executable, "-P", __file__, program]  # -P: an import must not find a file of this folder
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, encoding="utf-8", start_new_session=True
        )
        if (line := self.process.stdout.readline()) != READY:
            self.close()
            why = line.strip() or "it printed no error"
            raise RuntimeError(f"a child process for {program!r} does not start ({why}): pip install {NEEDS[program]}")

    def ask(self, question: Any, seconds: float) -> Any:
        """Return the answer (plain data); raise `ChildEnded` if none comes in time, and the child is then gone."""
        late = threading.Event()
        clock = threading.Timer(seconds, lambda: (late.set(), self._kill()))
        clock.start()
        line = ""
        try:
            with suppress(OSError):  # a broken pipe, which Windows calls an invalid argument
                print(json.dumps(question), file=self.process.stdin, flush=True)
                line = self.process.stdout.readline()
        finally:
            clock.cancel()
            if late.is_set() or not line.endswith("\n"):  # a late answer would be taken for that to the next question
                self.close()
        if not line.endswith("\n"):
            raise ChildEnded(late.is_set(), self.process.returncode)
        return json.loads(line)

    def _kill(self) -> None:
        """End the child and the processes that it started, which would run on to their own limit."""
        if self.process.returncode is None:  # no other process can get its number before it is waited for
            _end_group(self.process.pid)
            self.process.kill()

    def close(self) -> None:
        self._kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with suppress(OSError):  # unwritten data for a process that is gone
                pipe.close()


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Workers:
    """Pool with one child process per core, each running one of `PROGRAMS`; a dead child is replaced."""

    def __init__(self, program: str):
        self.program, self.free, self.idle = program, threading.BoundedSemaphore(usable_cores()), []

    def ask(self, question: list, seconds: float) -> Any:
        """Return the answer of a child; raise `ChildEnded` if none comes in time."""
        with self.free:
            child = None
            while child is None or child.process.poll() is not None:  # a child may have died since its last answer
                child = self.idle.pop() if self.idle else Child(self.program)
            answer = child.ask(question, seconds)
            self.idle.append(child)
            return answer


_pools: dict[tuple[int, str], Workers] = {}
"""Pools by process id and program. A forked process starts its own workers and does not use those of its parent."""


def workers(program: str) -> Workers:
    """Return this process's pool for one of `PROGRAMS`."""
    return _pools.setdefault((os.getpid(), program), Workers(program))


def serve(program: str) -> None:
    """Answer each line of standard input; what the program prints goes to standard error, outside the protocol."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        answer = PROGRAMS[program]()
    except Exception as error:  # the first line says why it does not start
        print(f"{type(error).__name__}: {error}", file=answers, flush=True)
        return
    threading.Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    print(READY, end="", file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(*json.loads(line))), file=answers, flush=True)


def _end_with(parent: int) -> None:
    """End this process when its parent has ended; a fork of the parent could otherwise keep the pipe open.

    Windows keeps the number of an ended parent, so this does nothing there.
    """
    while os.getppid() == parent:
        time.sleep(1)
    _end_group(os.getpid())
    os._exit(0)


def _end_group(leader: int) -> None:
    """End a child and the processes that it started, if the system has groups of processes."""
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError, PermissionError):  # all of them are gone (macOS says: not permitted)
            os.killpg(leader, signal.SIGKILL)


def equality() -> Callable[[str, str], bool]:
    """Return a function that compares mathematical answers with `math-verify`.

    Only LaTeX is parsed: the search for plain numbers would find the 12 of `< 12` or of `12 maybe`. Units stay, because
    their removal takes the `t` of `2t` for one. An equation of numbers, such as `6 = 12`, must hold. An equation is a
    value only if its left side is a name, as in `f(x) = 4`: `x^2 = 4` is not 4. The library takes two numbers for equal
    if their difference is small. A function put in place of its own asks that their ratio be 1 too: 2^-99 is not 2^-98.
    Two fractions are compared exactly. It takes two equations without a solution for equal; here they are not.
    """
    from math_verify import LatexExtractionConfig, grader, parse, verify
    from math_verify.grader import Basic, Eq, Integer, Rational, UndefinedFunction, is_assignment_relation, is_equation

    latex = LatexExtractionConfig(boxed_match_priority=-1)
    latex = replace(latex, normalization_config=replace(latex.normalization_config, units=False, boxed="none"))

    plain_close = grader.sympy_numeric_eq

    def close(one: Any, other: Any, *how: int) -> bool:
        if not plain_close(one, other, *how) or not (isinstance(one, Basic) and isinstance(other, Basic)):
            return plain_close(one, other, *how)
        exact = one.doit(), other.doit()
        if all(isinstance(part, Rational) for part in exact):
            return exact[0] == exact[1]
        symbols = sorted(one.free_symbols | other.free_symbols, key=str)
        point = {symbol: Rational(place + 3, place + 2) for place, symbol in enumerate(symbols)}
        ratio = (exact[0] / exact[1]).subs(point)
        return not any(part.is_finite and abs(part - 1) > 1e-12 for part in (ratio.evalf(), (1 / ratio).evalf()))

    grader.sympy_numeric_eq = close

    def names(part: Basic) -> bool:
        return part.is_Derivative or isinstance(part.func, UndefinedFunction)

    plain_solved = grader.sympy_solve_and_compare

    def solved(gold: Any, found: Any, *how: int) -> bool:
        unknown = not gold.find(names) and grader.solve(gold, gold.free_symbols)
        return bool(unknown) and plain_solved(gold, found, *how)

    grader.sympy_solve_and_compare = solved

    imaginary_unit = Integer(-1) ** Rational(1, 2)

    def complex_form(one: Any) -> Any:  # the library has two names i, one of which is real
        symbols = one.free_symbols if isinstance(one, Basic) else ()
        return one.subs({symbol: imaginary_unit for symbol in symbols if symbol.name == "i"}) if symbols else one

    def is_value(one: Basic | str) -> bool:
        if not isinstance(one, Basic):  # text that has no value, such as that of "\\le 12"
            return True
        known = all(not part.lhs.free_symbols or part.lhs.find(names) for part in one.atoms(Eq))
        return not is_equation(one) or is_assignment_relation(one) or known

    def equal(answer: str, gold: str) -> bool:
        right, found = (list(map(complex_form, parse(f"${text}$", [latex], parsing_timeout=None)))
                        for text in (gold, answer))  # fmt: skip
        equations = (part for one in found if isinstance(one, Basic) for part in one.atoms(Eq) if not part.free_symbols)
        wrong = any(str(part.simplify()) == "False" for part in equations)
        wrong |= not all(map(is_value, found[:1])) and not any(map(is_equation, right))
        return not wrong and bool(verify(right, found, allow_set_relation_comp=True, timeout_seconds=None))

    return equal


def schema() -> Callable[..., bool | str]:
    """Return a function that tells whether arguments fit a JSON schema, or what is wrong with the schema.

    A schema may refer to its own parts only. Without arguments, it checks the schema alone.
    """
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    @lru_cache(maxsize=256)
    def validator(text: str) -> Any:
        loaded = json.loads(text)
        kind = validator_for(loaded)
        kind.check_schema(loaded)
        return kind(loaded, registry=Registry())  # without a registry it would load references from the network

    def fits(text: str, *arguments: Any) -> bool | str:
        try:
            return all(map(validator(text).is_valid, arguments))
        except (SchemaError, Unresolvable) as error:
            return f"{error!s:.200}"
        except Exception:  # a schema that refers to itself, or numbers too large to compare
            return False

    return fits


def monty() -> Callable[[str, float, int, int], dict[str, Any]]:
    """Return a function that runs programs in pydantic-monty, a subset of Python, each in a fresh session.

    The library hangs in a process that was forked from one that used it. So its worker gets a separate child process.
    """
    import pydantic_monty

    graces = {"feed_duration_limit_grace": GRACE, "turn_duration_limit_grace": GRACE}
    pool = pydantic_monty.Monty(max_processes=1, **graces).__enter__()
    midnight = datetime.datetime(2000, 1, 1)
    policy = {"datetime": midnight, "sleep": "zero", "process_time": "zero", "random_start": {"seed": 0}}

    def run(source: str, seconds: float, megabytes: int, fuel: int) -> dict[str, Any]:
        limits = {"max_feed_duration_secs": seconds, "max_memory": megabytes << 20, "max_recursion_depth": RECURSION}
        printed = pydantic_monty.CollectStreams(max_bytes=MOST_PRINTED)
        text, error, late, begun = None, "", False, time.monotonic()
        try:
            with pool.checkout(limits=limits, os_policy=policy) as session:
                text = session.feed_run(source, print_callback=printed)
        except pydantic_monty.MontyCrashedError as crash:
            error, late = str(crash) if crash.timed_out else "", crash.timed_out
        except pydantic_monty.MontyError as failure:
            raised = failure.exception()
            error = f"{type(raised).__name__}: {raised}"
            late = isinstance(raised, TimeoutError) and time.monotonic() - begun >= seconds  # programs may raise it too
        stdout = "".join(text for stream, text in printed.output if stream == "stdout")[:LONGEST_OUTPUT]
        return reply(text, error, stdout, backstop=late, late=late)

    return run


def pyeryx() -> Callable[[str, float, int, int], dict[str, Any]]:
    """Return a function that runs programs in pyeryx, CPython in WebAssembly, each in a fresh instance."""
    import eryx

    def run(source: str, seconds: float, megabytes: int, fuel: int) -> dict[str, Any]:
        limits = eryx.ResourceLimits(
            execution_timeout_ms=max(1, round(seconds * 1000)),
            max_memory_bytes=megabytes << 20,
            max_fuel=fuel,
            max_callback_invocations=0,
            max_vfs_bytes=FILES,
        )
        printed: list[bytes] = []
        box = eryx.Sandbox(resource_limits=limits, result_variable=RESULT, on_stdout=printed.append)
        text, error, late, backstop = None, "", False, False
        try:
            text = box.execute(source).result
        except eryx.TimeoutError as over:
            error, late, backstop = f"TimeoutError: {over}", True, True
        except eryx.ResourceLimitError as over:
            late = "fuel" in str(over)
            error = f"{'TimeoutError' if late else 'MemoryError'}: {over}"
        except eryx.EryxError as raised:
            lines = str(raised).splitlines()
            error = lines[-1] if lines[:1] == ["Traceback (most recent call last):"] else ""
        return reply(text, error, b"".join(printed)[:LONGEST_OUTPUT].decode("utf-8", "replace"), backstop, late)

    run("", 5.0, 256, 10**9)  # start the first instance now, which takes a tenth of a second
    return run


def reply(
    text: Any = None, error: str = "", stdout: str = "", backstop: bool = False, late: bool = False
) -> dict[str, Any]:
    """Return the reply of a sandbox: `text` of the harness, or the `error` that ended the program without one.

    `error` is empty if the program ended its interpreter. `late`: a limit of fuel or time ended the program, which may
    raise the same errors itself. `backstop`: it was the limit of time.
    """
    text = text if isinstance(text, str) else None
    if text and len(text) > MOST_ANSWERED:
        text, error = None, f"MemoryError: the answers take {len(text)} characters, more than {MOST_ANSWERED}"
    return {"text": text, "error": error, "stdout": stdout, "backstop": backstop, "late": late}


PROGRAMS = {"math": equality, "schema": schema, "monty": monty, "pyeryx": pyeryx}
NEEDS = {
    "math": "math-verify[antlr4_13_2]", "schema": "jsonschema", "monty": "pydantic-monty", "pyeryx": "pyeryx==0.11.0",
}  # fmt: skip
"""Package of each program."""

if __name__ == "__main__":
    serve(sys.argv[1])
