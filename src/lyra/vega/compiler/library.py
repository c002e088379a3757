"""Calls of the standard library, of host functions and of the prelude to register code.

A pure function is one instruction; one that calls a lambda is Vega source of the prelude, compiled into the program
when it is used; everything else is an effect that the host answers. A library function used as a value becomes a
small function of its own that calls it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lyra.vega.bytecode.opcodes import (
    OP_BUDGET_CHECK,
    OP_CALL,
    OP_CLOSURE,
    OP_EFFECT,
    OP_EXIT,
    OP_LENGTH,
    OP_LIBRARY,
    OP_LINK,
    OP_MONITOR,
    OP_PRINT,
    OP_PUSH,
    OP_VARIANT,
)
from lyra.vega.stdlib.table import GLOBALS, LIBRARY, Entry
from lyra.vega.syntax import ast

if TYPE_CHECKING:
    from lyra.vega.compiler.calls import Calls
    from lyra.vega.compiler.expressions import Expressions

__all__ = ["PRIVATE", "call", "host_call", "library_entry", "value_lambda"]

# Functions that only the prelude calls.
PRIVATE: Final = {"list::sorted": Entry((("xs", "list"),), 1, "list", "pure", "")}

# Library functions with an instruction of their own that has one operand: (opcode, whether it gives a value).
_SINGLE: Final = {
    "str::len": OP_LENGTH,
    "list::len": OP_LENGTH,
    "map::len": OP_LENGTH,
    "process::link": OP_LINK,
    "process::monitor": OP_MONITOR,
}
_BUDGET: Final = {"budget::remaining": 0, "budget::used": 1, "budget::limit": 2}


def library_entry(compiler: Expressions, node: ast.Node, module: str, name: str) -> Entry:
    """The row of a library function; a name that nobody knows is an error with a hint."""
    full = f"{module}::{name}" if module else name
    if compiler.is_hidden and full in PRIVATE:
        return PRIVATE[full]
    table = LIBRARY.get(module, {}) if module else GLOBALS
    found = table.get(name)
    if found is not None:
        return found
    from difflib import get_close_matches  # only the wrong wait for it

    if module and module not in LIBRARY:
        near = get_close_matches(module, LIBRARY, 1)
        raise compiler.fail(node, f"unknown module `{module}`", f"did you mean `{near[0]}`?" if near else "")
    near = get_close_matches(name, [*table, *compiler.module.scope.names, *compiler.module.symbols], 1)
    raise compiler.fail(node, f"unknown name `{full}`", f"did you mean `{near[0]}`?" if near else "")


def call(compiler: Calls, node: ast.Call, into: int) -> None:
    callee = node.callee
    assert isinstance(callee, (ast.Name, ast.Path))
    module = callee.module if isinstance(callee, ast.Path) else ""
    full = f"{module}::{callee.name}" if module else callee.name
    if full in compiler.linker.host_names:
        host_call(compiler, node, full, into)
        return
    entry = library_entry(compiler, callee, module, callee.name)
    order = compiler.matched(node, [name for name, _ in entry.parameters], full)
    count = max(order, default=-1) + 1
    for index in range(max(count, entry.required)):
        if index not in order and index < entry.required:
            raise compiler.fail(node, f"`{full}` needs `{entry.parameters[index][0]}`")
    first = compiler.register(max(count, 2))
    for index, argument in order.items():
        compiler.expression_in(argument, first + index)
    for index in range(count):
        if index not in order:
            compiler.constant(None, first + index)
    compiler.at(node)
    _emit(compiler, node, full, entry, first, count, into)


def _emit(compiler: Calls, node: ast.Node, full: str, entry: Entry, first: int, count: int, into: int) -> None:
    if full in _SINGLE:
        compiler.emit(_SINGLE[full], into, first)
    elif full in _BUDGET:
        compiler.emit(OP_BUDGET_CHECK, into, _BUDGET[full])
    elif full == "list::push":
        compiler.emit(OP_PUSH, into, first, first + 1)
    elif full == "print" or full == "process::exit":
        if not count:
            compiler.constant("" if full == "print" else "normal", first)
        compiler.emit(OP_PRINT if full == "print" else OP_EXIT, first)
        compiler.constant(None, into)
    elif full == "Ok" or full == "Err":
        if not count:
            compiler.constant(None, first)
        compiler.emit(OP_VARIANT, into, first, int(full == "Err"))
    elif entry.how == "vega":
        prelude_call(compiler, node, full, first, count, into)
    else:
        op = OP_EFFECT if entry.how == "effect" else OP_LIBRARY
        compiler.emit(op, into, first, compiler.other([full, count]))


def prelude_call(compiler: Calls, node: ast.Node, full: str, first: int, count: int, into: int) -> None:
    from lyra.vega.values.values import UNSET

    function, parameters, required = compiler.linker.prelude(full)
    if not required <= count <= parameters:
        raise compiler.fail(node, f"`{full}` takes {required} to {parameters} arguments, got {count}")
    run = compiler.register(parameters)
    for index in range(parameters):
        if index < count:
            compiler.move(run + index, first + index)
        else:
            compiler.constant(UNSET, run + index)
    compiler.at(node)
    compiler.emit(OP_CALL, into, function, run)


def host_call(compiler: Calls, node: ast.Call, name: str, into: int) -> None:
    """A function of the host: imported nodes, tools and Python functions, and those given when embedding."""
    if any(argument.name for argument in node.arguments):
        raise compiler.fail(node, "arguments of a host function have no names")
    first = compiler.register(max(1, len(node.arguments)))
    for index, argument in enumerate(node.arguments):
        compiler.expression_in(argument.value, first + index)
    compiler.at(node)
    compiler.emit(OP_EFFECT, into, first, compiler.other([f"host::{name}", len(node.arguments)]))


def value_lambda(compiler: Expressions, node: ast.Node, module: str, name: str, into: int | None) -> int:
    """`str::upper` as a value: a function of its required parameters that calls it."""
    entry = library_entry(compiler, node, module, name)
    into = compiler.target(into)
    # `print` needs nothing, but who passes it on means it to be given something.
    function = compiler.linker.wrapper(module, name, entry.required or min(entry.most, 1))
    compiler.emit(OP_CLOSURE, into, function, compiler.other([]))
    return into
