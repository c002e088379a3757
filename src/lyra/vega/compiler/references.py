"""Names and paths as values to register code: variables, functions, agents, imports, the library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lyra.vega.bytecode.opcodes import OP_CLOSURE
from lyra.vega.compiler.expressions import compile_variable
from lyra.vega.compiler.function_code import FunctionCode
from lyra.vega.compiler.library import library_value
from lyra.vega.plan.names import Symbol, Variable
from lyra.vega.syntax import ast


def _compile_name(out: FunctionCode, node: ast.Name, into: int | None) -> int:
    meaning = out.module.meanings.get(id(node))
    if isinstance(meaning, Variable):
        return compile_variable(out, meaning, into)
    if isinstance(meaning, Symbol):
        return compile_symbol(out, node, meaning, into)
    return library_value(out, node, "", node.name, into)


def _compile_path(out: FunctionCode, node: ast.Path, into: int | None) -> int:
    meaning = out.module.meanings.get(id(node))
    if isinstance(meaning, Variable):
        return compile_variable(out, meaning, into)
    if isinstance(meaning, Symbol):
        return compile_symbol(out, node, meaning, into)
    return library_value(out, node, node.module, node.name, into)


def compile_symbol(out: FunctionCode, node: ast.SyntaxNode, symbol: Symbol, into: int | None) -> int:
    if symbol.kind in ("function", "tool"):
        into = out.target(into)
        out.emit(OP_CLOSURE, into, out.linker.function_of(symbol), out.other([]))
        return into
    if symbol.kind in ("agent", "supervisor"):
        return out.constant(symbol.name, into)  # an agent's name stands for it in messages and settings
    if symbol.target is not None:
        raise out.fail(node, f"`{symbol.name}` is a file", hint=f"write `{symbol.name}::name`")
    return out.constant(symbol.key, into)  # imported nodes and tools stand in an agent's `tools` list by name


REFERENCES: Final[dict[type, Callable[[FunctionCode, Any, int | None], int]]] = {
    ast.Name: _compile_name,
    ast.Path: _compile_path,
}
