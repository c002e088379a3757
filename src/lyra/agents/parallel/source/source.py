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
from typing import Any, Final, TypeVar

from lyra.agents.parallel.source.function_map import (
    COMPREHENSIONS,
    LOOK,
    LOOP,
    SCOPES,
    SIMPLE,
    SITE,
    CallForm,
    Definition,
    FunctionMap,
    inside,
    render_dotted,
)
from lyra.errors import ConfigError

NO_DEF: Final = "it is not a `def` of its own"
WRAPPERS: Final = frozenset({"staticmethod", "classmethod", "property"})
_BESIDE: Final = "put it next to a `def`"

_FUTURE: Final = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
_KNOWS_SCOPE: Final = frozenset({"locals", "vars", "exec", "eval", "globals", "super", "dir"})


def parallel_function(function: Any) -> Any:
    """Return the function with its agent calls overlapping; see `lyra.parallel`."""
    if not isinstance(function, FunctionType):
        raise _no_function(function)
    tree = _definition(function)
    why = refusal(tree)
    if why is not None:
        node, reason = why
        raise _make_refusal(function, node.lineno if hasattr(node, "lineno") else tree.lineno, reason)
    form = CallForm(is_async=isinstance(tree, ast.AsyncFunctionDef), run_names=_run_names(function))
    shadowed = frozenset({*function.__globals__, *function.__code__.co_freevars, *function.__code__.co_varnames})
    map_ = FunctionMap(tree, form, shadowed, function.__globals__, _cells(function))
    if not map_.sites:
        return function
    overlapped = _function(function, rewrite_function(tree, map_), map_)
    return overlapped if inspect.iscoroutinefunction(function) else _outside_of_loops(function, overlapped)


def _no_function(thing: Any) -> ConfigError:
    """Return the error for an object that is no function, with a hint."""
    kind = type(thing).__name__
    name = getattr(thing, "__qualname__", "") or getattr(getattr(thing, "fget", None), "__qualname__", "")
    hint = _BESIDE
    if kind in WRAPPERS:  # objects that wrap a function
        hint = f"put `@{kind}` above `@lyra.parallel`"
    elif isinstance(thing, type):
        kind, hint = "a class", "put it on the methods of the class"
    return ConfigError(f"@lyra.parallel is for functions, not {kind} {name}".rstrip(), hint=hint, key="parallel")


def _definition(function: FunctionType) -> Definition:
    """Return the function's `def` in the syntax tree of its whole file: a part alone may be read differently."""
    code = function.__code__
    try:
        lines, _ = inspect.findsource(code)
    except (OSError, TypeError):
        raise _make_refusal(function, code.co_firstlineno, "its source is not there") from None
    try:
        module = ast.parse("".join(lines))
    except SyntaxError:
        raise _make_refusal(function, code.co_firstlineno, "its source cannot be read") from None
    definitions = [node for node in ast.walk(module) if _is_definition(node, code)]
    if len(definitions) != 1 or code.co_name != function.__name__:
        raise _make_refusal(function, code.co_firstlineno, NO_DEF)
    definition: Definition = copy.deepcopy(definitions[0])  # type: ignore[assignment]  # _is_definition has checked
    return definition


def _is_definition(node: ast.AST, code: CodeType) -> bool:
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) or node.name != code.co_name:
        return False
    return min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) == code.co_firstlineno


def _make_refusal(function: FunctionType, line: int, reason: str) -> ConfigError:
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
    """Return the first construct of a function that cannot be analysed, and why."""
    for node in _walk_own(tree.body):
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


def _walk_own(nodes: list[Any]) -> Iterator[ast.AST]:
    """Yield the nodes of the function itself, without those of inner functions."""
    for node in nodes:
        yield node
        yield from _walk_own(list(inside(node)))


def _run_names(function: FunctionType) -> frozenset[str]:
    """Return the names by which a function knows `lyra.run`."""
    from lyra.agents.sdk import run

    package = sys.modules["lyra"]
    known = {**function.__globals__, **dict(_list_closed_over(function))}
    names = {name for name, value in known.items() if value is run}
    names |= {f"{name}.run" for name, value in known.items() if value is package}
    return frozenset(names | _find_imported(function))


def _find_imported(function: FunctionType) -> set[str]:
    """Return the names of `lyra.run` that the function imports itself."""
    names: set[str] = set()
    for node in ast.walk(_definition(function)):
        if isinstance(node, ast.Import):
            names |= {f"{alias.asname or 'lyra'}.run" for alias in node.names if alias.name == "lyra"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "lyra":
            names |= {alias.asname or alias.name for alias in node.names if alias.name == "run"}
    return names


def _cells(function: FunctionType) -> dict[str, CellType]:
    return dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))


def _list_closed_over(function: FunctionType) -> Iterator[tuple[str, Any]]:
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
    tree.returns = None
    for node in ast.walk(tree.args):
        if isinstance(node, ast.arg):
            node.annotation = None
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


# ---------------------------------------------------------------- rewrite
# Rewrites a function so that its agent calls and loops go through a CallGroup.

BASE: Final = "_lyra_base"  # BaseException, also where the function has redefined that name
OPEN: Final = "_lyra_open"
MAP: Final = "_lyra_map"
_GROUP: Final = "_lyra_group"
_ITEM: Final = "_lyra_item"
_Node = TypeVar("_Node", bound=ast.AST)


def rewrite_function(tree: Definition, map_: FunctionMap) -> Definition:
    """Return a copy of the function, rewritten."""
    rewriter = _Rewriter(map_, is_async=isinstance(tree, ast.AsyncFunctionDef))
    new = copy.deepcopy(tree)
    given = [argument.arg for argument in (*new.args.posonlyargs, *new.args.args, *new.args.kwonlyargs)]
    body = rewriter.block(new.body)
    opened = _call(OPEN, _name(MAP), *(_name(name) for name in given))
    item = ast.withitem(opened, ast.Name(_GROUP, ast.Store()))
    first = new.body[0]
    new.body = [_place(ast.AsyncWith([item], body) if rewriter.is_async else ast.With([item], body), first)]
    return new


class _Rewriter(ast.NodeTransformer):
    def __init__(self, map_: FunctionMap, *, is_async: bool) -> None:
        self._map = map_
        self.is_async = is_async
        self._in_comprehension = 0

    def block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        return [new for node in statements for new in self._statement(node)]

    def _statement(self, node: ast.stmt) -> list[ast.stmt]:
        if isinstance(node, SCOPES):
            return [node]
        has_calls = any(hasattr(part, SITE) for part in ast.walk(node))
        if not has_calls:
            return [node]
        if isinstance(node, SIMPLE):
            new = self.generic_visit(node)
            assert isinstance(new, ast.stmt)
            handler = ast.ExceptHandler(_name(BASE), None, [self._discard(), ast.Raise()])
            watched = _place(ast.Try([new], [handler], [], []), node)
            if not hasattr(node, LOOK):
                return [watched]
            number = getattr(node, LOOK)
            names = [_name(name) for name in self._map.statement_names[number]]
            look = ast.Expr(_call(f"{_GROUP}.look_ahead", ast.Constant(number), *names))
            return [_place(look, node), watched, _place(self._if_mispredicted(), node)]
        for name, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                setattr(node, name, self.block(value))
            elif isinstance(value, list):
                setattr(node, name, [self._part(part) for part in value])
            elif isinstance(value, ast.AST):
                setattr(node, name, self._part(value))
        return self._for(node) if isinstance(node, ast.For) and hasattr(node, LOOP) else [node]

    def _part(self, part: Any) -> Any:
        if isinstance(part, (ast.ExceptHandler, ast.match_case)):
            part.body = self.block(part.body)
            return part
        return self.visit(part) if isinstance(part, ast.AST) else part

    def _for(self, node: ast.For) -> list[ast.stmt]:
        node.iter = self._wrap_loop(node.iter, getattr(node, LOOP))
        begin = [_place(self._if_mispredicted(), node)]
        if not isinstance(node.target, ast.Name):
            begin.append(_place(ast.Assign([node.target], _name(_ITEM)), node.target))
            node.target = _place(ast.Name(_ITEM, ast.Store()), node.target)
        node.body = [*begin, *node.body]
        if node.orelse:
            node.orelse = [_place(self._if_mispredicted(), node), *node.orelse]
        return [node, _place(self._if_mispredicted(), node)]

    def _wrap_loop(self, node: ast.expr, number: int) -> ast.expr:
        given: list[ast.expr] = [node]
        keywords: list[ast.keyword] = []
        if isinstance(node, ast.Call) and render_dotted(node.func) in ("enumerate", "zip") and node.args:
            is_plain = not any(isinstance(argument, ast.Starred) for argument in node.args)
            given, keywords = ([node.func, *node.args], node.keywords) if is_plain else (given, keywords)
        return _place(_call(f"{_GROUP}.loop", ast.Constant(number), *given, keywords=keywords), node)

    def _discard(self) -> ast.stmt:
        new = _call(f"{_GROUP}.discard")
        return ast.Expr(ast.Await(new) if self.is_async else new)

    def _if_mispredicted(self) -> ast.stmt:
        return ast.If(_parse_dotted(f"{_GROUP}.mispredicted"), [self._discard()], [])

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, SCOPES):
            return node
        number = getattr(node, SITE, None)
        is_deeper = isinstance(node, COMPREHENSIONS)
        self._in_comprehension += is_deeper
        new = self.generic_visit(node)
        self._in_comprehension -= is_deeper
        if isinstance(new, ast.comprehension) and hasattr(new, LOOP):
            new.iter = self._wrap_loop(new.iter, getattr(new, LOOP))
        return new if number is None else self._through_group(new, number)

    def _through_group(self, node: Any, number: int) -> ast.expr:
        call: ast.Call = node.value if self.is_async else node
        names: ast.expr = ast.Constant(None)
        if not self._in_comprehension:
            names = ast.Tuple([_name(name) for name in self._map.names[number]], ast.Load())
        given = [ast.Constant(number), names, call.func, *call.args]
        new = _call(f"{_GROUP}.call", *given, keywords=call.keywords)
        return _place(ast.Await(new) if self.is_async else new, node)


def _name(name: str) -> ast.Name:
    return ast.Name(name, ast.Load())


def _parse_dotted(path: str) -> ast.expr:
    first, *rest = path.split(".")
    new: ast.expr = _name(first)
    for name in rest:
        new = ast.Attribute(new, name, ast.Load())
    return new


def _call(name: str, *arguments: ast.expr, keywords: list[ast.keyword] | None = None) -> ast.expr:
    return ast.Call(_parse_dotted(name), list(arguments), keywords or [])


def _place(node: _Node, place: ast.AST) -> _Node:
    """Return the node and its new parts, with the line numbers of the source that it replaces."""
    for part in ast.walk(node):
        if isinstance(part, (ast.expr, ast.stmt, ast.arg, ast.ExceptHandler, ast.keyword)) and not hasattr(
            part, "lineno"
        ):
            ast.copy_location(part, place)
    return node
