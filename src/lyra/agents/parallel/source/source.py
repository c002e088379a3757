"""From a function object to its source, and back from the new source to a function object.

The new function has the old one's file, lines, name, defaults, annotations and closure; nothing is run to make it. A
function that cannot be analysed is refused with a place and a reason.
"""

from __future__ import annotations
import __future__

import ast
import copy
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from types import CellType, CodeType, FunctionType
from typing import Any, Final

from lyra.agents.parallel.source.call_sites import CallForm, Definition, inside
from lyra.agents.parallel.source.function_map import FunctionMap
from lyra.agents.parallel.source.rewrite import BASE, MAP, OPEN, rewrite_function
from lyra.errors import ConfigError

NO_DEF: Final = "it is not a `def` of its own"
WRAPPERS: Final = frozenset({"staticmethod", "classmethod", "property"})
_BESIDE: Final = "put it next to a `def`"

_FUTURE: Final = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
_KNOWS_SCOPE: Final = frozenset({"locals", "vars", "exec", "eval", "globals", "super", "dir"})


def parallel_function(function: Any) -> Any:
    """The function with its agent calls overlapping; see `lyra.parallel`."""
    if not isinstance(function, FunctionType):
        raise _no_function(function)
    tree = _definition(function)
    why = refusal(tree)
    if why is not None:
        node, reason = why
        raise _refused(function, node.lineno if hasattr(node, "lineno") else tree.lineno, reason)
    form = CallForm(is_async=isinstance(tree, ast.AsyncFunctionDef), run_names=_run_names(function))
    shadowed = frozenset({*function.__globals__, *function.__code__.co_freevars, *function.__code__.co_varnames})
    map_ = FunctionMap(tree, form, shadowed, function.__globals__, _cells(function))
    if not map_.sites:
        return function
    overlapped = _function(function, rewrite_function(tree, map_), map_)
    return overlapped if inspect.iscoroutinefunction(function) else _outside_of_loops(function, overlapped)


def _no_function(thing: Any) -> ConfigError:
    """The error for an object that is no function, with a hint."""
    kind = type(thing).__name__
    name = getattr(thing, "__qualname__", "") or getattr(getattr(thing, "fget", None), "__qualname__", "")
    hint = _BESIDE
    if kind in WRAPPERS:  # objects that wrap a function
        hint = f"put `@{kind}` above `@lyra.parallel`"
    elif isinstance(thing, type):
        kind, hint = "a class", "put it on the methods of the class"
    return ConfigError(f"@lyra.parallel is for functions, not {kind} {name}".rstrip(), hint=hint, key="parallel")


def _definition(function: FunctionType) -> Definition:
    """The function's `def` in the syntax tree of its whole file: a part alone may be read differently."""
    code = function.__code__
    try:
        lines, _ = inspect.findsource(code)
    except (OSError, TypeError):
        raise _refused(function, code.co_firstlineno, "its source is not there") from None
    try:
        module = ast.parse("".join(lines))
    except SyntaxError:
        raise _refused(function, code.co_firstlineno, "its source cannot be read") from None
    definitions = [node for node in ast.walk(module) if _is_definition(node, code)]
    if len(definitions) != 1 or code.co_name != function.__name__:
        raise _refused(function, code.co_firstlineno, NO_DEF)
    definition: Definition = copy.deepcopy(definitions[0])  # type: ignore[assignment]  # _is_definition has checked
    return definition


def _is_definition(node: ast.AST, code: CodeType) -> bool:
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or node.name != code.co_name:
        return False
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) == code.co_firstlineno


def _refused(function: FunctionType, line: int, reason: str) -> ConfigError:
    instead = "leave the decorator out, or use lyra.parallel(…) with the calls themselves"
    file = function.__code__.co_filename
    return ConfigError(
        f"@lyra.parallel cannot look into {function.__qualname__}: {reason} ({file}:{line})",
        hint=_BESIDE if function.__name__ == "<lambda>" else instead,
        key="parallel",
        file=file,
        line=line,
    )


def refusal(tree: Definition) -> tuple[ast.AST, str] | None:
    """The first construct of a function that cannot be analysed, and why."""
    for node in _own(tree.body):
        if isinstance(node, (ast.Yield, ast.YieldFrom)):
            return node, "it is a generator"
    for node in ast.walk(tree):
        if isinstance(node, ast.Nonlocal):
            return node, "it sets a variable of the function around it"
        if isinstance(node, ast.Global):
            return node, "it sets a global variable"
        if isinstance(node, ast.NamedExpr):
            return node, "it binds a name inside an expression (`:=`)"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _KNOWS_SCOPE:
            return node, f"`{node.func.id}()` looks at its variables"
        name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        if name.startswith("__") and not name.endswith("__"):
            return node, f"`{name}` is a name of its class alone"
    return None


def _own(nodes: list[Any]) -> Iterator[ast.AST]:
    """The nodes of the function itself, without those of inner functions."""
    for node in nodes:
        yield node
        yield from _own(list(inside(node)))


def _run_names(function: FunctionType) -> frozenset[str]:
    """The names by which a function knows `lyra.run`."""
    from lyra.agents.sdk import run

    package = sys.modules["lyra"]
    known = {**function.__globals__, **dict(_closed_over(function))}
    names = {name for name, value in known.items() if value is run}
    names |= {f"{name}.run" for name, value in known.items() if value is package}
    return frozenset(names | _imported(function))


def _imported(function: FunctionType) -> set[str]:
    """The names of `lyra.run` that the function imports itself."""
    names: set[str] = set()
    for node in ast.walk(_definition(function)):
        if isinstance(node, ast.Import):
            names |= {f"{alias.asname or 'lyra'}.run" for alias in node.names if alias.name == "lyra"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "lyra":
            names |= {alias.asname or alias.name for alias in node.names if alias.name == "run"}
    return names


def _cells(function: FunctionType) -> dict[str, CellType]:
    return dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))


def _closed_over(function: FunctionType) -> Iterator[tuple[str, Any]]:
    for name, cell in _cells(function).items():
        try:
            yield name, cell.cell_contents
        except ValueError:  # the cell is empty
            continue


# ---------------------------------------------------------------- a function again


def _function(old: FunctionType, tree: Definition, map_: FunctionMap) -> FunctionType:
    """Compile the new function inside one that has the names of its closure, and take its code out of that."""
    from lyra.agents.parallel.group import CallGroup, PlainCallGroup

    tree.decorator_list = []
    opened = CallGroup if inspect.iscoroutinefunction(old) else PlainCallGroup
    cells = {**_cells(old), OPEN: CellType(opened), MAP: CellType(map_), BASE: CellType(BaseException)}
    spec = ast.arguments(
        posonlyargs=[], args=[ast.arg(name) for name in cells], kwonlyargs=[], kw_defaults=[], defaults=[]
    )
    tree.args.defaults, tree.args.kw_defaults = _without_values(tree.args)
    _drop_annotations(tree)
    outer = ast.FunctionDef("_lyra_outer", spec, [tree], [])
    outer.type_params = []  # type: ignore[attr-defined]  # asked for since Python 3.12
    module = ast.fix_missing_locations(ast.Module([outer], []))
    flags = old.__code__.co_flags & _FUTURE
    whole = compile(module, old.__code__.co_filename, "exec", flags=flags, dont_inherit=True)
    code = _inner(_inner(whole, "_lyra_outer"), old.__name__)
    closure = tuple(cells[name] for name in code.co_freevars)
    new = FunctionType(code, old.__globals__, old.__name__, old.__defaults__, closure)
    new.__kwdefaults__ = old.__kwdefaults__
    functools.update_wrapper(new, old)
    return new


def _without_values(arguments: ast.arguments) -> tuple[list[ast.expr], list[ast.expr | None]]:
    """Placeholders for the defaults, which are taken from the old function."""
    some: list[ast.expr] = [ast.Constant(None) for _ in arguments.defaults]
    return some, [None if value is None else ast.Constant(None) for value in arguments.kw_defaults]


def _drop_annotations(tree: Definition) -> None:
    tree.returns = None
    for node in ast.walk(tree.args):
        if isinstance(node, ast.arg):
            node.annotation = None


def _inner(code: CodeType, name: str) -> CodeType:
    return next(part for part in code.co_consts if isinstance(part, CodeType) and part.co_name == name)


def _outside_of_loops(old: FunctionType, new: FunctionType) -> Callable[..., Any]:
    """Use the old function in a running event loop: there `lyra.run` gives an awaitable, not an answer."""
    import asyncio

    @functools.wraps(old)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return new(*args, **kwargs)
        return old(*args, **kwargs)

    return call
