"""The plan of a Python file: which agent calls of its `@lyra.parallel` functions overlap, and why the others do not.

The file is read, not imported: `lyra.run` and the decorator are known by how they are imported and named. The plan says
what the source allows; whether an agent may be asked early, and whether values are plain, is decided when the function
runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, Final

from lyra.agents.parallel.source.facts import CallForm, render_dotted
from lyra.agents.parallel.source.overlaps import CallOverlaps, CallSite
from lyra.agents.parallel.source.source import NO_DEF, WRAPPERS, refusal
from lyra.errors import ParseError

__all__ = ["CallPlan", "CallSite", "plan_of"]

_ASKING: Final = ("run", "parallel")
_RETURN_SAME: Final = frozenset(  # decorators that give back the function itself
    {"override", "final", "no_type_check", "typing.override", "typing.final", "typing.no_type_check"}
)


class CallPlan:
    """`groups` are (function, calls that overlap), `alone` (function, call, why), `refused` (function, line, why)."""

    def __init__(self) -> None:
        self.groups: list[tuple[str, int, list[CallSite]]] = []
        self.alone: list[tuple[str, CallSite, str]] = []
        self.refused: list[tuple[str, int, str]] = []


def plan_of(text: str, name: str) -> CallPlan:
    try:
        module = ast.parse(text)
    except SyntaxError as error:
        raise ParseError(f"{error.msg}", file=name, line=error.lineno or 1, column=error.offset or 1) from None
    known = _find_asking_names(module)
    given = _find_passed(module, known["parallel"])
    plan = CallPlan()
    unchanging = _RETURN_SAME | _returning_it(module)
    for function, path in _functions(module, ""):
        below = _below(function, known["parallel"], is_given=path in given)
        if below is None:
            continue
        other = next(
            (decorator for decorator in below if (render_dotted(_callee(decorator)) or "") not in unchanging), None
        )
        if other is not None:
            plan.refused.append((path, other.lineno, _no_def(other)))
        else:
            _add(function, path, known["run"], plan)
    return plan


def _below(function: Any, parallel: frozenset[str], *, is_given: bool) -> list[ast.expr] | None:
    """Return the decorators below `@lyra.parallel`; None where the function is not decorated with it."""
    decorators = function.decorator_list
    places = [index for index, decorator in enumerate(decorators) if render_dotted(_callee(decorator)) in parallel]
    if places:
        return list(decorators[places[-1] + 1 :])
    return list(decorators) if is_given else None


def _no_def(decorator: ast.expr) -> str:
    """Return why a function below another decorator is refused."""
    name = ast.unparse(_callee(decorator))
    if name in WRAPPERS:
        return f"it is a {name}; put `@{name}` above `@lyra.parallel`"
    return f"{NO_DEF}, but what `@{name}` gives"


def _returning_it(module: ast.Module) -> frozenset[str]:
    """Return the decorators of the file that return the function itself, by their source: they register or mark it."""
    names = set()
    for node in module.body:
        if isinstance(node, ast.FunctionDef) and node.args.args:
            returned = [part.value for part in ast.walk(node) if isinstance(part, ast.Return)]
            if returned and all(
                isinstance(value, ast.Name) and value.id == node.args.args[0].arg for value in returned
            ):
                names.add(node.name)
    return frozenset(names)


def _add(function: Any, path: str, run_names: frozenset[str], plan: CallPlan) -> None:
    why = refusal(function)
    if why is not None:
        plan.refused.append((path, getattr(why[0], "lineno", function.lineno), why[1]))
        return
    form = CallForm(is_async=isinstance(function, ast.AsyncFunctionDef), run_names=run_names)
    overlaps = CallOverlaps(function, form, run_names)
    plan.groups += [(path, step, calls) for step, calls in overlaps.groups()]
    plan.alone += [(path, call, reason) for call, reason in overlaps.alone()]


def _functions(node: ast.AST, path: str) -> Iterator[tuple[Any, str]]:
    for part in ast.iter_child_nodes(node):
        name = f"{path}.{part.name}" if path and hasattr(part, "name") else getattr(part, "name", path)
        if isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield part, str(name)
        inner = isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        yield from _functions(part, str(name) if inner else path)


def _find_asking_names(module: ast.Module) -> dict[str, frozenset[str]]:
    """Return the names by which the file knows `lyra.run` and `lyra.parallel`."""
    known: dict[str, set[str]] = {what: set() for what in _ASKING}
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "lyra":
                    for what, names in known.items():
                        names.add(f"{alias.asname or 'lyra'}.{what}")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "lyra":
            for alias in node.names:
                if alias.name in known:
                    known[alias.name].add(alias.asname or alias.name)
    for node in ast.walk(module):
        if isinstance(node, ast.Assign):
            for what, names in known.items():
                if render_dotted(node.value) in names:
                    known[what] = names | {target.id for target in node.targets if isinstance(target, ast.Name)}
    return {what: frozenset(names) for what, names in known.items()}


def _find_passed(module: ast.Module, parallel: frozenset[str]) -> frozenset[str]:
    """Return the functions that are passed to the decorator in a call: `f = lyra.parallel(f)`."""
    return frozenset(
        node.args[0].id
        for node in ast.walk(module)
        if isinstance(node, ast.Call)
        and render_dotted(node.func) in parallel
        and len(node.args) == 1
        and not node.keywords
        if isinstance(node.args[0], ast.Name)
    )


def _callee(node: ast.expr) -> ast.expr:
    return node.func if isinstance(node, ast.Call) else node
