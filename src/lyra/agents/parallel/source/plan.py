"""The plan of a Python file: which agent calls of its `@lyra.parallel` functions overlap, and why the others do not.

The file is read, not imported: `lyra.run` and the decorator are known by how they are imported and named. The plan says
what the source allows; whether an agent may be asked early, and whether values are what they look like, is seen when
the function runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, Final

from lyra.agents.parallel.source.call_sites import CallForm, dotted
from lyra.agents.parallel.source.overlaps import Called, Drawing
from lyra.agents.parallel.source.source import NO_DEF, WRAPPERS, refusal
from lyra.errors import ParseError

__all__ = ["Called", "Picture", "picture_of"]

_ASKING: Final = ("run", "parallel")
_SAME: Final = frozenset(  # decorators that give back the function itself
    {"override", "final", "no_type_check", "typing.override", "typing.final", "typing.no_type_check"}
)


class Picture:
    """`groups` are (function, calls that overlap), `alone` (function, call, why), `refused` (function, line, why)."""

    def __init__(self) -> None:
        self.groups: list[tuple[str, int, list[Called]]] = []
        self.alone: list[tuple[str, Called, str]] = []
        self.refused: list[tuple[str, int, str]] = []


def picture_of(text: str, name: str) -> Picture:
    try:
        module = ast.parse(text)
    except SyntaxError as error:
        raise ParseError(f"{error.msg}", file=name, line=error.lineno or 1, column=error.offset or 1) from None
    known = _known(module)
    given = _given(module, known["parallel"])
    picture = Picture()
    same = _SAME | _returning_it(module)
    for function, path in _functions(module, ""):
        below = _below(function, known["parallel"], is_given=path in given)
        if below is None:
            continue
        other = next((each for each in below if (dotted(_callee(each)) or "") not in same), None)
        if other is not None:
            picture.refused.append((path, other.lineno, _no_def(other)))
        else:
            _draw(function, path, known["run"], picture)
    return picture


def _below(function: Any, parallel: frozenset[str], *, is_given: bool) -> list[ast.expr] | None:
    """The decorators whose result the decorator gets; None where it is not there."""
    decorators = function.decorator_list
    places = [index for index, each in enumerate(decorators) if dotted(_callee(each)) in parallel]
    if places:
        return list(decorators[places[-1] + 1 :])
    return list(decorators) if is_given else None


def _no_def(decorator: ast.expr) -> str:
    """What is said of a function that another decorator has had before."""
    name = ast.unparse(_callee(decorator))
    if name in WRAPPERS:
        return f"it is a {name}; put `@{name}` above `@lyra.parallel`"
    return f"{NO_DEF}, but what `@{name}` gives"


def _returning_it(module: ast.Module) -> frozenset[str]:
    """The decorators of the file that are seen to give back the function itself: they register it, or mark it."""
    found = set()
    for node in module.body:
        if isinstance(node, ast.FunctionDef) and node.args.args:
            returned = [each.value for each in ast.walk(node) if isinstance(each, ast.Return)]
            if returned and all(isinstance(each, ast.Name) and each.id == node.args.args[0].arg for each in returned):
                found.add(node.name)
    return frozenset(found)


def _draw(function: Any, path: str, run_names: frozenset[str], picture: Picture) -> None:
    why = refusal(function)
    if why is not None:
        picture.refused.append((path, getattr(why[0], "lineno", function.lineno), why[1]))
        return
    form = CallForm(is_async=isinstance(function, ast.AsyncFunctionDef), run_names=run_names)
    drawing = Drawing(function, form, run_names)
    picture.groups += [(path, step, calls) for step, calls in drawing.groups()]
    picture.alone += [(path, call, reason) for call, reason in drawing.alone()]


def _functions(node: ast.AST, path: str) -> Iterator[tuple[Any, str]]:
    for part in ast.iter_child_nodes(node):
        name = f"{path}.{part.name}" if path and hasattr(part, "name") else getattr(part, "name", path)
        if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield part, str(name)
        inner = isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        yield from _functions(part, str(name) if inner else path)


def _known(module: ast.Module) -> dict[str, frozenset[str]]:
    """By which names the file knows `lyra.run` and `lyra.parallel`."""
    found: dict[str, set[str]] = {what: set() for what in _ASKING}
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "lyra":
                    for what, names in found.items():
                        names.add(f"{alias.asname or 'lyra'}.{what}")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "lyra":
            for alias in node.names:
                if alias.name in found:
                    found[alias.name].add(alias.asname or alias.name)
    for node in ast.walk(module):
        if isinstance(node, ast.Assign):
            for what, names in found.items():
                if dotted(node.value) in names:
                    found[what] = names | {each.id for each in node.targets if isinstance(each, ast.Name)}
    return {what: frozenset(names) for what, names in found.items()}


def _given(module: ast.Module, parallel: frozenset[str]) -> frozenset[str]:
    """The functions that are given to the decorator as a function: `f = lyra.parallel(f)`."""
    return frozenset(
        node.args[0].id
        for node in ast.walk(module)
        if isinstance(node, ast.Call) and dotted(node.func) in parallel and len(node.args) == 1 and not node.keywords
        if isinstance(node.args[0], ast.Name)
    )


def _callee(node: ast.expr) -> ast.expr:
    return node.func if isinstance(node, ast.Call) else node
