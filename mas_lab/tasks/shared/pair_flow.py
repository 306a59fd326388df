"""Follow a call of `aux` through another function by its syntax tree; comments and texts call nothing.

Whether the call matters is in `pair_knockout`, what it is worth in `pair_code`.
"""

import ast
from collections.abc import Sequence

from mas_lab.tasks.shared.programs import function, parsed

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
    tree = parsed(source)
    carrying: set[str] = set()
    while True:
        grown = carrying | {name for part in ast.walk(tree) for name in _carried(part, carrying)}
        if grown == carrying:
            return entry in carrying
        carrying = grown


def _carried(part: ast.AST, carrying: set[str]) -> set[str]:
    """Return the names that receive what this statement or expression carries."""
    if isinstance(part, ast.FunctionDef):
        given = [one for one in _inside(part) if isinstance(one, ast.Return | ast.Yield | ast.YieldFrom)]
        tests = [one.test for one in _inside(part) if isinstance(one, ast.If | ast.While | ast.Assert)]
        tests += [one.iter for one in _inside(part) if isinstance(one, ast.For)]
        return {part.name} if any(_carries(one, carrying) for one in [*given, *tests]) else set()
    if isinstance(part, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
        targets = part.targets if isinstance(part, ast.Assign) else [part.target]
        return _bases(targets) if part.value is not None and _carries(part.value, carrying) else set()
    if isinstance(part, ast.For | ast.comprehension):
        return _bases([part.target]) if _carries(part.iter, carrying) else set()
    if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):  # y.append(aux(x))
        given = [*part.args, *(one.value for one in part.keywords)]
        return _bases([part.func.value]) if any(_carries(one, carrying) for one in given) else set()
    return set()


def _carries(part: ast.AST, carrying: set[str]) -> bool:
    known = {AUX} | carrying
    return any(getattr(one, "id", getattr(one, "attr", None)) in known for one in ast.walk(part))


def _bases(targets: Sequence[ast.AST]) -> set[str]:
    """Return the names in targets such as `a`, `a[i]`, `a.b` and `(a, b)`."""
    return {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}


def hands_on(source: str, entry: str) -> bool:
    """Return whether every `return` of `entry` is a call of `aux`, unchanged."""
    given = [part.value for part in _inside(function(source, entry)) if isinstance(part, ast.Return)]
    return all(isinstance(value, ast.Call) and _is_aux(value.func) for value in given)
