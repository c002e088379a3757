"""The plan of a Python file: which agent calls of its `@lyra.parallel` functions overlap, and why the others do not.

The file is read, not imported: `lyra.run` and the decorator are known by how they are imported. Whether an agent may be
asked early is decided when the function runs; the plan says what its source allows.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from lyra.agents.overlap.forms import CallForm
from lyra.agents.overlap.reading import fresh_lists, refusal, shadowed_names
from lyra.agents.overlap.stretches import Called, Loop, Other, Part, stretches
from lyra.errors import ParseError

__all__ = ["Picture", "picture_of"]


class Picture:
    """`groups` are (function, calls that overlap, whether each turn of a loop has its own), `alone` (call, why)."""

    def __init__(self) -> None:
        self.groups: list[tuple[str, list[Called], bool]] = []
        self.alone: list[tuple[str, Called, str]] = []
        self.refused: list[tuple[str, int, str]] = []  # function, line, why


def picture_of(text: str, name: str) -> Picture:
    try:
        module = ast.parse(text)
    except SyntaxError as error:
        raise ParseError(f"{error.msg}", file=name, line=error.lineno or 1, column=error.offset or 1) from None
    known = _known(module)
    picture = Picture()
    for function, path in _functions(module, ""):
        if any(_dotted(_callee(decorator)) in known["parallel"] for decorator in function.decorator_list):
            _draw(function, path, known["run"], picture)
    return picture


def _draw(function: Any, path: str, run_names: frozenset[str], picture: Picture) -> None:
    why = refusal(function)
    if why is not None:
        picture.refused.append((path, getattr(why[0], "lineno", function.lineno), why[1]))
        return
    is_async = isinstance(function, ast.AsyncFunctionDef)
    form = CallForm(is_async=is_async, run_names=run_names, shadowed=shadowed_names(function))
    _parts(form, stretches(form, function.body, fresh_lists(function)), path, picture, fresh_lists(function))


def _parts(form: CallForm, parts: list[Part], path: str, picture: Picture, fresh: frozenset[str]) -> None:
    for part in parts:
        if isinstance(part, Other):
            picture.alone += [(path, call, part.why or "a branch, loop or block begins here") for call in part.calls]
            for block in _blocks(part.node):
                _parts(form, stretches(form, block, fresh), path, picture, fresh)
        elif isinstance(part, Loop):
            picture.groups.append((path, part.stretch.calls, True))
        elif len(part.calls) > 1:
            picture.groups.append((path, part.calls, False))
        else:
            picture.alone += [(path, call, "there is no other call beside it") for call in part.calls]


def _blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return
    for name in ("body", "orelse", "finalbody"):
        found = getattr(node, name, None)
        if isinstance(found, list) and found:
            yield found
    for part in [*getattr(node, "handlers", ()), *getattr(node, "cases", ())]:
        yield part.body


def _functions(node: ast.AST, path: str) -> Iterator[tuple[Any, str]]:
    for part in ast.iter_child_nodes(node):
        name = f"{path}.{part.name}" if path and hasattr(part, "name") else getattr(part, "name", path)
        if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield part, str(name)
        inner = isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        yield from _functions(part, str(name) if inner else path)


def _known(module: ast.Module) -> dict[str, frozenset[str]]:
    """By which names the file knows `lyra.run` and `lyra.parallel`."""
    found: dict[str, set[str]] = {"run": set(), "parallel": set()}
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
    return {what: frozenset(names) for what, names in found.items()}


def _callee(node: ast.expr) -> ast.expr:
    return node.func if isinstance(node, ast.Call) else node


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return ""
