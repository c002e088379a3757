"""Calls to register code: of known functions, of values, with named arguments, of methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lyra.vega.bytecode.opcodes import (
    ANY_LENGTH,
    OP_CALL,
    OP_CALL_NAMED,
    OP_CALL_VALUE,
    OP_EFFECT,
    OP_LENGTH,
    OP_METHOD,
    OP_PUSH,
    OP_UNLESS_LIST,
)
from lyra.vega.compiler.arguments import compile_arguments
from lyra.vega.compiler.expressions import compile_expression, compile_into, compile_operand, compile_run
from lyra.vega.compiler.function_code import FunctionCode
from lyra.vega.compiler.library import host_call, library_call, prelude_call
from lyra.vega.compiler.node_imports import compile_node_arguments
from lyra.vega.plan.names import Symbol, Variable
from lyra.vega.stdlib.table import LIBRARY
from lyra.vega.syntax import ast

# Methods of lists that are written in Vega, with how many values, the list among them, they take.
_VEGA_METHODS: Final = {
    name: range(entry.required, entry.most + 1) for name, entry in LIBRARY["list"].items() if entry.how == "vega"
}


def compile_call(out: FunctionCode, node: ast.Call, into: int | None) -> int:
    into = out.target(into)
    mark = out.next_register
    callee = node.callee
    meaning = out.module.meanings.get(id(callee))
    if isinstance(meaning, Symbol) and meaning.kind in ("function", "tool"):
        function = out.linker.function_of(meaning)
        first = compile_arguments(out, node, meaning.node.parameters, meaning.name)
        out.at(node)
        out.emit(OP_CALL, into, function, first)
    elif isinstance(meaning, Symbol):
        _compile_host_call(out, node, meaning, into)
    elif meaning is None and isinstance(callee, (ast.Name, ast.Path)):
        library_call(out, node, into)
    else:
        _compile_call_value(out, node, into)
    out.next_register = mark
    return into


def _compile_host_call(out: FunctionCode, node: ast.Call, symbol: Symbol, into: int) -> None:
    if symbol.kind != "import" or symbol.target is not None:
        article = "an" if symbol.kind[0] in "aeiou" else "a"
        raise out.fail(node, f"`{symbol.name}` is {article} {symbol.kind} and cannot be called")
    if symbol.inputs is None:
        host_call(out, node, symbol.key, into)
        return
    first, count = compile_node_arguments(out, node, symbol)
    out.at(node)
    out.emit(OP_EFFECT, into, first, out.other([f"host::{symbol.key}", count]))


def _compile_call_value(out: FunctionCode, node: ast.Call, into: int) -> None:
    first = out.register(1 + len(node.arguments))
    compile_into(out, node.callee, first)
    for index, argument in enumerate(node.arguments):
        compile_into(out, argument.value, first + 1 + index)
    out.at(node)
    names = [argument.name for argument in node.arguments]
    if any(names):
        out.emit(OP_CALL_NAMED, into, first, out.other(["names", *names]))
    else:
        out.emit(OP_CALL_VALUE, into, first, len(names))


def _compile_method_call(out: FunctionCode, node: ast.MethodCall, into: int | None) -> int:
    into = out.target(into)
    mark = out.next_register
    if any(argument.name for argument in node.arguments):
        raise out.fail(node, "arguments of a method have no names")
    values = [node.target, *(argument.value for argument in node.arguments)]
    if node.name == "len" and len(values) == 1:
        whole = compile_expression(out, node.target)
        out.at(node)
        out.emit(OP_LENGTH, into, whole)
    elif node.name == "push" and len(values) == 2:
        whole = compile_operand(out, node.target, values[1])
        item = compile_expression(out, values[1])
        out.at(node)
        no_list = _jump_unless_list(out, node.target, whole)
        out.emit(OP_PUSH, into, whole, item)
        if no_list is not None:
            end = out.jump()
            out.patch(no_list)
            first = out.register(2)
            out.move(first, whole)
            out.move(first + 1, item)
            out.emit(OP_METHOD, into, first, out.other([node.name, 2]))
            out.patch(end)
    elif (count := _VEGA_METHODS.get(node.name)) is not None and len(values) in count:
        first = compile_run(out, values)
        out.at(node)
        no_list = _jump_unless_list(out, node.target, first)
        prelude_call(out, node, f"list::{node.name}", first, len(values), into)
        if no_list is not None:
            end = out.jump()
            out.patch(no_list)
            out.emit(OP_METHOD, into, first, out.other([node.name, len(values)]))
            out.patch(end)
    else:
        first = compile_run(out, values)
        out.at(node)
        out.emit(OP_METHOD, into, first, out.other([node.name, len(values)]))
    out.next_register = mark
    return into


def _jump_unless_list(out: FunctionCode, target: ast.Expression, register: int) -> int | None:
    """Before what only lists do: a jump (to be patched) for other values, since a map may hold a function of the
    same name. None where it can only be a list."""
    meaning = out.module.meanings.get(id(target))
    if type(target) is ast.ListLiteral or (
        isinstance(meaning, Variable) and meaning.began_as_list and not meaning.is_assigned
    ):
        return None
    return out.emit(OP_UNLESS_LIST, 0, register, ANY_LENGTH)


CALLS: Final[dict[type, Callable[[FunctionCode, Any, int | None], int]]] = {
    ast.Call: compile_call,
    ast.MethodCall: _compile_method_call,
}
