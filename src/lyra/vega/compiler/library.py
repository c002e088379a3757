"""Calls of the standard library, of host functions and of the prelude to register code.

A pure function is one instruction; one that calls a lambda is Vega source of the prelude, compiled into the program
when it is used; everything else is an effect that the host answers. A library function used as a value becomes a
small function of its own that calls it.
"""

from __future__ import annotations

from typing import Final

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
from lyra.vega.compiler.arguments import match_arguments
from lyra.vega.compiler.expressions import compile_into
from lyra.vega.compiler.function_code import FunctionCode
from lyra.vega.stdlib.table import GLOBALS, LIBRARY, LibraryEntry
from lyra.vega.syntax import ast
from lyra.vega.values.values import UNSET

# Functions that only the prelude calls.
PRIVATE: Final = {"list::sorted": LibraryEntry((("xs", "list"),), 1, "list", "pure", "")}

# Library functions with an instruction of their own that has one operand: (opcode, whether it gives a value).
_SINGLE: Final = {
    "str::len": OP_LENGTH,
    "list::len": OP_LENGTH,
    "map::len": OP_LENGTH,
    "process::link": OP_LINK,
    "process::monitor": OP_MONITOR,
}
_BUDGET: Final = {"budget::remaining": 0, "budget::used": 1, "budget::limit": 2}


def _library_entry(out: FunctionCode, node: ast.SyntaxNode, module: str, name: str) -> LibraryEntry:
    """The row of a library function; an unknown name is an error with a hint."""
    full = f"{module}::{name}" if module else name
    if out.is_hidden and full in PRIVATE:
        return PRIVATE[full]
    table = LIBRARY.get(module, {}) if module else GLOBALS
    entry = table.get(name)
    if entry is not None:
        return entry
    from difflib import get_close_matches  # imported only for programs that are wrong

    if module and module not in LIBRARY:
        near = get_close_matches(module, LIBRARY, 1)
        raise out.fail(node, f"unknown module `{module}`", f"did you mean `{near[0]}`?" if near else "")
    near = get_close_matches(name, [*table, *out.module.scope.names, *out.module.symbols], 1)
    raise out.fail(node, f"unknown name `{full}`", f"did you mean `{near[0]}`?" if near else "")


def library_call(out: FunctionCode, node: ast.Call, into: int) -> None:
    callee = node.callee
    assert isinstance(callee, (ast.Name, ast.Path))
    module = callee.module if isinstance(callee, ast.Path) else ""
    full = f"{module}::{callee.name}" if module else callee.name
    if full in out.linker.host_names:
        host_call(out, node, full, into)
        return
    entry = _library_entry(out, callee, module, callee.name)
    order = match_arguments(out, node, [name for name, _ in entry.parameters], full)
    count = max(order, default=-1) + 1
    for index in range(max(count, entry.required)):
        if index not in order and index < entry.required:
            raise out.fail(node, f"`{full}` needs `{entry.parameters[index][0]}`")
    first = out.register(max(count, 2))
    for index, argument in order.items():
        compile_into(out, argument, first + index)
    for index in range(count):
        if index not in order:
            out.constant(None, first + index)
    out.at(node)
    _emit(out, node, full, entry, first, count, into)


def _emit(
    out: FunctionCode, node: ast.SyntaxNode, full: str, entry: LibraryEntry, first: int, count: int, into: int
) -> None:
    if full in _SINGLE:
        out.emit(_SINGLE[full], into, first)
    elif full in _BUDGET:
        out.emit(OP_BUDGET_CHECK, into, _BUDGET[full])
    elif full == "list::push":
        out.emit(OP_PUSH, into, first, first + 1)
    elif full == "print" or full == "process::exit":
        if not count:
            out.constant("" if full == "print" else "normal", first)
        out.emit(OP_PRINT if full == "print" else OP_EXIT, first)
        out.constant(None, into)
    elif full == "Ok" or full == "Err":
        if not count:
            out.constant(None, first)
        out.emit(OP_VARIANT, into, first, int(full == "Err"))
    elif entry.how == "vega":
        prelude_call(out, node, full, first, count, into)
    else:
        op = OP_EFFECT if entry.how == "effect" else OP_LIBRARY
        out.emit(op, into, first, out.other([full, count]))


def prelude_call(out: FunctionCode, node: ast.SyntaxNode, full: str, first: int, count: int, into: int) -> None:
    function, parameters, required = out.linker.prelude(full)
    if not required <= count <= parameters:
        raise out.fail(node, f"`{full}` takes {required} to {parameters} arguments, got {count}")
    run = out.register(parameters)
    for index in range(parameters):
        if index < count:
            out.move(run + index, first + index)
        else:
            out.constant(UNSET, run + index)
    out.at(node)
    out.emit(OP_CALL, into, function, run)


def host_call(out: FunctionCode, node: ast.Call, name: str, into: int) -> None:
    """A function of the host: imported nodes, tools and Python functions, and those given when embedding."""
    if any(argument.name for argument in node.arguments):
        raise out.fail(node, "arguments of a host function have no names")
    first = out.register(max(1, len(node.arguments)))
    for index, argument in enumerate(node.arguments):
        compile_into(out, argument.value, first + index)
    out.at(node)
    out.emit(OP_EFFECT, into, first, out.other([f"host::{name}", len(node.arguments)]))


def library_value(out: FunctionCode, node: ast.SyntaxNode, module: str, name: str, into: int | None) -> int:
    """`str::upper` as a value: a function of its required parameters that calls it."""
    entry = _library_entry(out, node, module, name)
    into = out.target(into)
    # `print` needs no argument, but as a value it is called with one.
    function = out.linker.wrapper(module, name, entry.required or min(entry.most, 1))
    out.emit(OP_CLOSURE, into, function, out.other([]))
    return into
