"""Define a language that a pocket model can write: operations on a list of digits, and Python that does them.

A problem is a chain of operations, `sort then add 3 then reverse`. A program is one line of Python with a space between
any two symbols, `def f ( x ) : x = sorted ( x ) ; x = [ ( y + 3 ) % 10 for y in x ] ; x = x [ ::-1 ] ; return x`. The
tasks decide who writes which part, and what that earns.
"""

import random
from collections.abc import Callable, Iterator

Numbers = list[int]
PLAIN: dict[str, tuple[str, Callable[[Numbers], Numbers]]] = {
    "reverse": ("x [ ::-1 ]", lambda x: x[::-1]),
    "sort": ("sorted ( x )", sorted),
    "rotate": ("x [ 1: ] + x [ :1 ]", lambda x: x[1:] + x[:1]),
    "double": ("x + x", lambda x: x + x),
}
"""Operations without a number: the Python of each, and its function."""
COUNTED: dict[str, tuple[str, Callable[[int, int], int]]] = {"add": ("+", int.__add__), "times": ("*", int.__mul__)}
"""Operations on each digit, mod 10, with a number: `add 3`, `times 7`."""
DIGITS = tuple("0123456789")
WORDS = (*PLAIN, *COUNTED, "then", *DIGITS, *"xy=;()[]%:+*,", "10", "::-1", "1:", ":1", "sorted", "for", "in", "def",
         "return", "assert", "==")  # fmt: skip
"""Every word of a problem, a program or a case."""
LENGTH = 4
"""Digits of an input list."""
OPERATIONS = (*PLAIN, *(f"{name} {number}" for name in COUNTED for number in range(2, 10)))


def parts(problem: str) -> list[str]:
    """Return the operations of a problem, in order."""
    return problem.split(" then ")


def done(problem: str, x: Numbers) -> Numbers:
    """Return the result of a problem's operations on a list."""
    for operation in parts(problem):
        name, _, number = operation.partition(" ")
        x = PLAIN[name][1](x) if name in PLAIN else [COUNTED[name][1](y, int(number)) % 10 for y in x]
    return x


def statement(operation: str) -> str:
    """Return one operation in Python: `x = sorted ( x ) ;`."""
    name, _, number = operation.partition(" ")
    code = PLAIN[name][0] if name in PLAIN else f"[ ( y {COUNTED[name][0]} {number} ) % 10 for y in x ]"
    return f"x = {code} ;"


def program(name: str, operations: list[str], first: str = "") -> str:
    """Return a function called `name` that does `operations`; it calls the function `first` before, if one is named."""
    call = [f"x = {first} ( x ) ;"] if first else []
    return " ".join([f"def {name} ( x ) :", *call, *map(statement, operations), "return x"])


def case(name: str, x: Numbers, y: Numbers) -> str:
    """Return a case such as `assert f ( [ 3 , 1 ] ) == [ 1 , 3 ]`."""
    return f"assert {name} ( {text_of(x)} ) == {text_of(y)}"


def text_of(values: Numbers) -> str:
    """Return a list as text, such as `[ 3 , 1 ]`."""
    return " ".join(["[", *" , ".join(map(str, values)).split(), "]"])


def numbers(rng: random.Random, length: int = LENGTH) -> Numbers:
    return [rng.randrange(10) for _ in range(length)]


def cases(problem: str, count: int) -> list[tuple[list[Numbers], Numbers]]:
    """Return `count` different lists and the problem's result on each, always the same ones for a problem."""
    rng, drawn = random.Random(f"cases {problem}"), {}
    while len(drawn) < count:
        drawn[tuple(numbers(rng))] = None
    return [([list(x)], done(problem, list(x))) for x in drawn]


def problems(rng: random.Random, length: int) -> Iterator[str]:
    """Yield random chains of `length` operations without end; no operation comes twice in a row."""
    while True:
        chain: list[str] = []
        while len(chain) < length:
            operation = rng.choice(OPERATIONS)
            if not chain or operation.split()[0] != chain[-1].split()[0]:
                chain.append(operation)
        yield " then ".join(chain)
