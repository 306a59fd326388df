"""Compare mathematical answers with `math-verify`, in a child process of the grader (`child.serve`)."""

from collections.abc import Callable


def prepare() -> Callable[[str, str], bool]:
    from math_verify import parse, verify

    def equal(answer: str, gold: str) -> bool:
        read = [parse(rf"\boxed{{{text}}}", parsing_timeout=None) for text in (gold, answer)]
        return bool(verify(*read, timeout_seconds=None))

    return equal
