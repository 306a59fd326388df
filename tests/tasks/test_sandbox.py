"""`lab.sandbox`: what `run` answers, and that attacks get nothing. On each tier at hand; its workers: `test_child`.

Imports neither torch nor pandas, so that it also runs in the small environment of `make test-sandbox`.
"""

import importlib.util
import math
import os
import secrets
import socket
import subprocess
import sys
import threading

import pytest
from attacks import ATTACKS, FORGED

from mas_lab.child import reply
from mas_lab.tasks import sandbox

DOUBLE = "def f(x):\n    return x * 2"


def value(source, *arguments, **limits):
    """What the one call answers."""
    outcome = sandbox.run(source, "f", [list(arguments)], **limits)
    assert (outcome.status, outcome.failed) == ("ok", (False,)), outcome
    return outcome.values[0]


# Attacks


@pytest.fixture(scope="module")
def host(tmp_path_factory):
    """A folder with a secret in it, which the environment holds too, and a port that listens."""
    folder = tmp_path_factory.mktemp("host")
    secret = secrets.token_hex(16)
    (folder / "secret").write_text(secret, encoding="utf-8")
    os.environ["MAS_LAB_TEST_SECRET"] = secret  # before the workers begin
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield folder, secret, server
    del os.environ["MAS_LAB_TEST_SECRET"]


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.name.replace(" ", "_"))
def test_an_attack_reaches_nothing(host, tier, attack, monkeypatch):
    folder, secret, server = host
    monkeypatch.chdir(folder)
    port = server.getsockname()[1]
    source = attack.source.replace("FILE", str(folder / "secret")).replace("MARK", str(folder / "mark"))
    modules, threads = set(sys.modules), threading.active_count()
    outcome = sandbox.run(source.replace("PORT", str(port)), "f", [[]], timeout_s=attack.seconds)

    assert isinstance(outcome, sandbox.Outcome) and len(outcome.values) == len(outcome.failed) == 1
    assert outcome.status in {"error", "timeout", "memory", "killed", "unsupported", "refused"} or attack.ok
    assert sandbox.literal(outcome.values[0], "an answer") and str(FORGED) not in repr(outcome.values)
    assert outcome.failed == (outcome.status != "ok",)
    assert secret not in repr(outcome)
    assert len(outcome.stdout) <= sandbox.LONGEST_OUTPUT and len(outcome.stderr) <= sandbox.LONGEST_OUTPUT
    assert os.listdir(folder) == ["secret"]
    with pytest.raises(BlockingIOError):
        server.accept()
    assert not {"antigravity", "this"} & (set(sys.modules) - modules)
    assert threading.active_count() <= threads + 1  # a clock that was just cancelled
    assert value(DOUBLE, 21) == 42


# What `run` answers

KINDS = [
    None, True, 0, -7, 10**400, 0.1, -0.0, 1e308, math.inf, -math.inf, math.nan, "", "a\n'\"\\\té \N{SNAKE}", [], (),
    set(), {}, (1,), [1, [2, (3, {"a": {1, 2}})]], {1: "a", "1": "b", (1, 2): [None], None: 0.5, 2.5: False},
    [True, 1, 1.0], "x" * 100_000, list(range(1000)),
]  # fmt: skip


def test_plain_data_goes_in_and_comes_out_as_it_was(tier):
    outcome = sandbox.run("def f(x):\n    return x", "f", [[kind] for kind in KINDS])
    assert (outcome.status, outcome.stderr) == ("ok", "")
    assert list(map(repr, outcome.values)) == list(map(repr, KINDS))


def test_a_dict_or_tuple_of_another_name_is_plain_data(tier):
    source = "from collections import Counter, namedtuple\ndef f(x): return [Counter(x), namedtuple('P', 'a b')(x, 2)]"
    assert value(source, "aab") == [{"a": 2, "b": 1}, ("aab", 2)]


def test_a_call_that_fails_is_none_and_told(tier):
    source = "def f(x):\n    print('at', x)\n    return None if x == 0 else 6 // (x - 1)"
    outcome = sandbox.run(source, "f", [[0], [1], [2], ["a"]])
    assert outcome.status == "error" and outcome.values == (None, None, 6, None)
    assert outcome.failed == (False, True, False, True)
    assert outcome.stderr.startswith("ZeroDivisionError: ") and "\n" not in outcome.stderr
    assert outcome.stdout == "at 0\nat 1\nat 2\nat a\n"
    assert not outcome.backstop


@pytest.mark.parametrize(("source", "line"), [
    ("def f(x): return y", "NameError: name 'y' is not defined"),
    ("def g(x): return x", "NameError: name 'f' is not defined"), ("def f(x: return x", "SyntaxError: "),
    ("raise ValueError('no')\ndef f(x): return x", "ValueError: no"), ("def f(): return 1", "TypeError: "),
    ("from math import nothing\ndef f(x): return x", "ImportError: cannot import name 'nothing' from 'math'"),
    ("import nothing\ndef f(x): return x", "ModuleNotFoundError: No module named 'nothing'"),
    ("def f(x): return print", "TypeError: returned a "),
    ("class A: pass\ndef f(x): return A()", "TypeError: returned a A, which is no plain data"),
    ("def f(x): return f(x)", "RecursionError: "), ("f = 7", "TypeError: "),
])  # fmt: skip
def test_a_wrong_program_is_an_error_on_each_tier(tier, source, line):
    outcome = sandbox.run(source, "f", [[1]])
    assert (outcome.status, outcome.values, outcome.failed) == ("error", (None,), (True,))
    assert outcome.stderr.startswith(line)


@pytest.mark.parametrize("error", [
    "AttributeError: module 'sys' has no attribute 'setrecursionlimit'",
    "AttributeError: 'int' object has no attribute 'bit_length'",
    "ImportError: cannot import name 'OrderedDict' from 'collections' (unknown location)",
])  # fmt: skip
def test_what_cpython_has_and_a_sandbox_lacks_is_no_error_of_the_program(error):
    assert sandbox.status_of(error) == "unsupported"
    absent = error.replace("setrecursionlimit", "y").replace("bit_length", "y").replace("OrderedDict", "y")
    assert sandbox.status_of(absent) == sandbox.status_of(absent.replace("sys", "mine")) == "error"


def test_without_calls_the_program_itself_is_run(tier):
    assert sandbox.run("print(1 + 1)") == sandbox.Outcome("ok", stdout="2\n")
    assert sandbox.run("1 / 0").status == "error"
    assert sandbox.run("") == sandbox.Outcome("ok")
    assert sandbox.run("def f(): return 1", "f") == sandbox.Outcome("ok")
    mine = [1]
    outcome = sandbox.run("def f(x):\n    x.append(2)\n    return x", "f", [[mine], [mine]])
    assert outcome.values == ([1, 2], [1, 2]) and mine == [1]  # each call gets its own arguments


def test_chance_and_order_are_the_same_in_every_run(tier):
    source = """
from __future__ import annotations
import random
def f():
    return [random.random(), random.randint(1, 10 ** 9), list({'a', 'b', 'c', 'dd', 'eee'}), hash('a')]
"""
    first = value(source)
    assert value(source) == first
    assert value(source.replace("from __future__ import annotations", "")) == first


def test_time_and_memory_have_limits_and_sleeping_takes_no_time(tier):
    assert value("import time\ndef f():\n    time.sleep(1000)\n    return 1", timeout_s=60) == 1
    outcome = sandbox.run("def f(x):\n    while True: pass", "f", [[1], [2]], timeout_s=1)
    assert (outcome.status, outcome.backstop) == ("timeout", True)
    assert outcome.values == (None, None) and outcome.failed == (True, True)
    raised = sandbox.run("raise TimeoutError('time limit exceeded')")
    assert (raised.status, raised.backstop) == ("error", False)
    source = "def f(n):\n    return len('x' * n)"
    assert sandbox.run(source, "f", [[200 << 20]], memory_mb=64).status == "memory"
    assert sandbox.run(source, "f", [[100 << 20]]).values == (100 << 20,)


GOOD = {"source": "def f(x): return x", "entry": "f", "inputs": [[1]]}


@pytest.mark.parametrize(("changes", "place"), [
    ({"source": b"x"}, "source=b'x'"), ({"entry": "f()"}, r"entry='f\(\)'"), ({"entry": "class"}, "entry='class'"),
    ({"inputs": [[1], 2]}, r"inputs=\[\[1\], 2\] .*such as"), ({"inputs": ["ab"]}, r"inputs=\['ab'\]"),
    ({"inputs": [[1, {"a": [object]}]]}, r"inputs\[0\]\[1\]\['a'\]\[0\] is <class 'object'>"),
    ({"inputs": [[{1: 2, (object,): 3}]]}, r"inputs\[0\]\[0\], a key\[0\] is <class 'object'>"),
    ({"inputs": [[type("I", (int,), {})(3)]]}, r"inputs\[0\]\[0\] is 3 \(I\)"),
    ({"inputs": [[10**5000]]}, r"inputs\[0\]\[0\] has 16610 bits"), ({"timeout_s": 0}, "timeout_s=0"),
    ({"timeout_s": math.nan}, "timeout_s=nan"), ({"memory_mb": 0.5}, "memory_mb=0.5"), ({"fuel": 0}, "fuel=0"),
])  # fmt: skip
def test_a_bad_argument_is_named_with_its_place(changes, place):
    with pytest.raises(ValueError, match=f"sandbox.run: {place}"):
        sandbox.run(**(GOOD | changes))


def test_without_a_library_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install .*pydantic-monty.*pyeryx==0\.11\.0"):
        sandbox.run("x = 1")


# What a tier lacks

LACKING = [
    "def f():\n    yield 1", "class A:\n    @staticmethod\n    def g(): pass\ndef f(): return 1",
    "import heapq\ndef f(): return 1", "x = [1]\ndel x[0]\ndef f(): return 1", "def f(): return input()",
]  # fmt: skip


LONG = [
    f"def f(): return {' + '.join(['1'] * 300)}", f"def f(): return max({', '.join(['1'] * 300)})",
    "import re\ndef f(): return re.search(r'\\w{1,1000}', 'a')[0]",
    f"import re\ndef f(): return re.search('{'(' * 90}a{')' * 90}', 'a')[0]",
    "import re\ndef f(): return re.match('(a+)+(?=c)', 'a' * 50)",
    "def f(): return range(10 ** 20)[5]", "def f(): return pow(2, -1, 7)",
]  # fmt: skip
"""Programs that CPython runs, beyond a limit of monty."""


@pytest.mark.parametrize("source", LACKING + LONG)
def test_what_monty_lacks_is_neither_right_nor_wrong(use, source):
    use("monty")
    outcome = sandbox.run(source, "f", [[]])
    assert (outcome.status, outcome.values) == ("unsupported", (None,)), outcome


def test_a_result_beyond_what_a_sandbox_writes_is_neither_right_nor_wrong(tier):
    deep = "def f(n):\n    x = []\n    for _ in range(n):\n        x = [x]\n    return x"
    long = "def f(n): return {1: -(10 ** n)}"
    assert value(deep, 199) and value(long, 4299) == {1: -(10**4299)}
    for source, n in ((deep, 200), (long, 4300)):
        outcome = sandbox.run(source, "f", [[1], [n]])
        assert (outcome.status, outcome.failed) == ("unsupported", (False, True)), outcome


def test_a_function_may_recurse_as_deep_as_in_cpython(tier):
    source = "def f(n): return n and 1 + f(n - 1)"
    assert value(source, 980) == 980
    assert sandbox.run(source, "f", [[1000]]).status == "error"


@pytest.mark.parametrize("guard", ["if __name__ == '__main__': ", 'if ("__main__"==__name__):\n    '])
def test_what_a_script_does_is_left_out_if_a_function_is_called(tier, guard):
    source = f"def f(x): return x\n{guard}print('main')"
    assert sandbox.run(source).stdout == "main\n"
    assert sandbox.run(source, "f", [[1]]) == sandbox.Outcome("ok", (1,), failed=(False,))


@pytest.mark.parametrize("text", [
    "", "[1]", '[["a", 1]]', "[[1, null], [2, null]]", "[[1, 2, 3]]", '[[["eval", ["1"]], null]]',
    '[[["set", [["list", []]]], null]]', "[" * 200_000, "[[" + "9" * 9999 + ", null]]", '[[["dict", [1]], null]]',
])  # fmt: skip
def test_what_is_no_answer_of_the_harness_is_taken_for_none(text):
    outcome = sandbox.outcome(1, "mark", reply(f"mark{text}"))
    assert (outcome.status, outcome.values, outcome.failed) == ("killed", (None,), (True,))
    assert sandbox.outcome(1, "mark", reply("[[1, null]]")).status == "killed"
    assert sandbox.outcome(1, "mark", reply("mark[[1, null]]")).values == (1,)


# Fuel


SPIN = "def f(n):\n    for i in range(n):\n        pass\n    return n"


def test_fuel_decides_alike_on_a_busy_machine(use):
    use("pyeryx")

    def ends(fuel):
        return sandbox.run(SPIN, "f", [[1_000_000]], fuel=fuel, timeout_s=60)

    low, high = 10**8, 10**10  # the least fuel on which it ends lies between
    while high - low > 10**7:
        middle = (low + high) // 2
        low, high = (low, middle) if ends(middle).status == "ok" else (middle, high)
    idle = [ends(fuel).status for fuel in (low, high)]
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(3)]
    try:
        assert [ends(fuel).status for fuel in (low, high)] == idle == ["timeout", "ok"]
        assert not ends(low).backstop
    finally:
        for process in busy:
            process.kill()
            process.wait()
