"""Changes functions of Lyra for the time of a `with` block.

A `Change` names a function, a fragment of its source and a replacement. Fragment and replacement are each one
expression, or the fragment is one statement and the replacement any number of them. Fragments are compared as syntax
trees, so that line breaks, quotes and comments do not matter. A fragment must occur exactly once in its function: a
change whose function was rewritten raises `PlantingError` instead of planting nothing.

The changed function is compiled in its own module and class, and its code object replaces the one of the existing
function. All references to the function, imported names and dispatch tables included, therefore see the change, and
its default values and free variables stay. Frames that are already running keep the code they began with.
"""

from __future__ import annotations
import __future__

import ast
import copy
import functools
import importlib
import inspect
import linecache
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any, Final, NamedTuple

__all__ = ["Change", "PlantingError", "changed", "planted"]

_KIND_FLAGS: Final = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_FUTURE_FLAGS: Final = functools.reduce(
    int.__or__, (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
)

_changed_functions: set[FunctionType] = set()


class PlantingError(Exception):
    """A change does not fit the function it names."""


class Change(NamedTuple):
    """In the function `qualname` of `module`, `replacement` takes the place of `fragment`.

    A method, property, static or class method is named by its qualified name; a function inside another one is changed
    through the outer function.
    """

    module: str
    qualname: str
    fragment: str
    replacement: str


@contextmanager
def planted(bugs: Mapping[str, tuple[Change, ...]], *names: str) -> Iterator[None]:
    """Plant the bugs of these names, all at once, and remove them at the end of the block."""
    with changed([change for name in names for change in bugs[name]]):
        yield


@contextmanager
def changed(changes: Iterable[Change]) -> Iterator[None]:
    """Make these changes, and undo them at the end of the block. A change that does not fit leaves nothing changed."""
    by_function: dict[FunctionType, list[Change]] = {}
    for change in changes:
        by_function.setdefault(_function(change), []).append(change)
    for function in by_function:
        if function in _changed_functions:
            raise PlantingError(f"{function.__module__}:{function.__qualname__} is changed already by a block around")
    codes = {function: _compiled(function, tuple(parts)) for function, parts in by_function.items()}
    originals = {function: function.__code__ for function in by_function}
    try:
        for function, code in codes.items():
            function.__code__ = code
            _changed_functions.add(function)
        yield
    finally:
        for function, code in originals.items():
            function.__code__ = code
            _changed_functions.discard(function)


# ---------------------------------------------------------------- finding the function


def _function(change: Change) -> FunctionType:
    """The function object that a change names, without the descriptors and decorators around it."""
    value: Any = importlib.import_module(change.module)
    for name in change.qualname.split("."):
        try:
            value = inspect.getattr_static(value, name)
        except AttributeError:
            raise PlantingError(f"there is no {change.module}:{change.qualname}") from None
    if isinstance(value, property):
        value = value.fget
    elif isinstance(value, functools.cached_property):
        value = value.func
    elif isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    value = inspect.unwrap(value)
    if not isinstance(value, FunctionType) or value.__module__ != change.module:
        raise PlantingError(f"{change.module}:{change.qualname} is no function of that module")
    return value


@functools.lru_cache(maxsize=64)
def _definitions(path: str) -> dict[int, tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """All functions of a file: by their first line (decorators included), the class around each and its tree."""
    definitions: dict[int, tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]] = {}

    def read(node: ast.AST, owner: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                first = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
                definitions[first] = (owner, child)
            read(child, child.name if isinstance(child, ast.ClassDef) else owner)

    read(ast.parse("".join(linecache.getlines(path)), path), "")
    return definitions


# ---------------------------------------------------------------- changing its tree


class _Replacer(ast.NodeTransformer):
    """Replaces the nodes that equal a fragment, and counts them."""

    def __init__(self, change: Change) -> None:
        fragment, replacement = ast.parse(change.fragment).body, ast.parse(change.replacement).body
        if len(fragment) != 1:
            raise PlantingError(f"{change.module}:{change.qualname}: a fragment is one expression or one statement")
        self.count = 0
        self._new: list[Any] = [*replacement]
        wanted: ast.AST = fragment[0]
        if isinstance(wanted, ast.Expr):
            if len(replacement) != 1 or not isinstance(replacement[0], ast.Expr):
                raise PlantingError(f"{change.module}:{change.qualname}: an expression is replaced by an expression")
            wanted, self._new = wanted.value, [replacement[0].value]
        self._type = type(wanted)
        self._wanted = ast.dump(wanted)

    def visit(self, node: ast.AST) -> Any:
        if type(node) is not self._type or ast.dump(node) != self._wanted:
            return self.generic_visit(node)
        self.count += 1
        new = copy.deepcopy(self._new)
        for part in (part for root in new for part in ast.walk(root) if hasattr(part, "lineno")):
            ast.copy_location(part, node)
        return new if isinstance(node, ast.stmt) else new[0]


@functools.lru_cache(maxsize=256)
def _compiled(function: FunctionType, changes: tuple[Change, ...]) -> CodeType:
    """The code of a function with these changes."""
    old = function.__code__
    where = f"{function.__module__}:{function.__qualname__}"
    owner, definition = _definitions(old.co_filename).get(old.co_firstlineno, ("", None))
    if definition is None or definition.name != old.co_name:
        raise PlantingError(f"the source of {where} does not show it")
    definition = copy.deepcopy(definition)
    for change in changes:
        replacer = _Replacer(change)
        replacer.visit(definition)
        if replacer.count != 1:
            raise PlantingError(f"{where} has this {replacer.count} times, not once: {change.fragment}")
    code = _code_of(definition, old, owner)
    if code.co_freevars != old.co_freevars or (code.co_flags ^ old.co_flags) & _KIND_FLAGS:
        raise PlantingError(f"the changed {where} has other free variables, or is another kind of function")
    return code


def _code_of(definition: ast.FunctionDef | ast.AsyncFunctionDef, old: CodeType, owner: str) -> CodeType:
    """Compile a function where it stood: in a class of the same name, among variables of the same names."""
    line = definition.lineno
    definition.decorator_list = []
    body: list[ast.stmt] = [definition]
    if old.co_freevars:
        # A name in dead code keeps its place among the free variables where the change no longer uses it.
        definition.body += ast.parse(f"if False: ({', '.join(old.co_freevars)},)").body
    if owner:
        body = [ast.ClassDef(owner, [], [], body, [])]
        body[0].type_params = []  # type: ignore[attr-defined]  # a field since Python 3.12
    free = [name for name in old.co_freevars if name != "__class__" or not owner]
    around = ast.parse("def around(): " + (f"{' = '.join(free)} = None" if free else "pass"))
    outer = around.body[0]
    assert isinstance(outer, ast.FunctionDef)
    outer.body += body
    ast.fix_missing_locations(around)
    whole = compile(around, old.co_filename, "exec", flags=old.co_flags & _FUTURE_FLAGS, dont_inherit=True)
    code = next(code for code in _codes_in(whole) if code.co_name == old.co_name and code.co_firstlineno == line)
    return code.replace(co_qualname=old.co_qualname)


def _codes_in(code: CodeType) -> Iterator[CodeType]:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _codes_in(constant)
