"""Mathematical equality by `math-verify`: what a child of the grader runs (`child.serve`)."""

from collections.abc import Callable


def prepare() -> Callable[[str, str], bool]:
    from math_verify import parse, verify

    def equal(answer: str, gold: str) -> bool:
        read = [parse(rf"\boxed{{{text}}}", parsing_timeout=None) for text in (gold, answer)]
        return bool(verify(*read, timeout_seconds=None))

    return equal
