"""Whole functions to register code: those of the source, a file's top level, settings, and wrappers of the library."""

from __future__ import annotations

from typing import Any

from lyra.vega.bytecode.opcodes import (
    OP_CALL,
    OP_CELL_OF,
    OP_DEFAULT,
    OP_EFFECT,
    OP_GLOBAL_GET,
    OP_GLOBAL_SET,
    OP_LIST,
    OP_MAP_ADD,
    OP_RETURN,
    OP_RETURN_NULL,
    OP_UNLESS_EQ,
)
from lyra.vega.bytecode.program import Function, Parameter
from lyra.vega.compiler.blocks import enter_scope
from lyra.vega.compiler.control import compile_with_finally, run_defers
from lyra.vega.compiler.expressions import compile_into
from lyra.vega.compiler.function_code import FunctionCode
from lyra.vega.compiler.library import library_call
from lyra.vega.compiler.processes import compile_settings, compile_spawned
from lyra.vega.plan.names import Variable
from lyra.vega.syntax import ast


def _compile_head(out: FunctionCode, parameters: list[ast.Parameter]) -> None:
    """Registers for parameters and captures, then defaults, then cells for parameters that closures share."""
    out.parameters = [parameter_info(parameter) for parameter in parameters]
    first = out.register(len(parameters))
    out.captures = len(out.unit.captures)
    start = out.register(out.captures)
    out.captured = {id(variable): start + index for index, variable in enumerate(out.unit.captures)}
    for index, parameter in enumerate(parameters):
        variable = out.module.declared[id(parameter)]
        variable.register = first + index
        out.at(parameter)
        if parameter.default is not None:
            given = out.emit(OP_DEFAULT, first + index)
            compile_into(out, parameter.default, first + index)
            out.patch(given)
        if variable.is_cell:
            out.emit(OP_CELL_OF, first + index, first + index)


def _compile_body(
    out: FunctionCode, statements: list[ast.Statement], variables: list[Variable], end: ast.SyntaxNode
) -> Function:
    def inside() -> None:
        enter_scope(out, variables, statements)
        out.sequence(out, statements)

    if out.unit.has_defer:
        out.defers = out.register()
        out.emit(OP_LIST, out.defers, out.defers, 0)
        compile_with_finally(out, inside, lambda way: run_defers(out, way))
    else:
        inside()
    out.at(end)
    out.emit(OP_RETURN_NULL)
    return out.finish(is_hidden=out.is_hidden)


def compile_function(out: FunctionCode, node: Any) -> Function:
    _compile_head(out, getattr(node, "parameters", []))
    body: ast.Block = node.body
    return _compile_body(out, body.statements, out.module.cells.get(id(body), []), node)


def compile_top_level(out: FunctionCode) -> Function:
    """The top level of a file; an imported one runs once."""
    module = out.module
    out.at(module.module)
    if not module.is_main:
        flag, done = out.register(), out.constant(True)
        out.emit(OP_GLOBAL_GET, flag, module.flag, out.other("module"))
        first = out.emit(OP_UNLESS_EQ, 0, flag, done)
        out.emit(OP_RETURN_NULL)
        out.patch(first)
        out.emit(OP_GLOBAL_SET, module.flag, done)
    return _compile_body(out, module.module.statements, module.cells[id(module.module)], module.module)


def compile_configuration(out: FunctionCode, node: Any) -> Function:
    """The settings of an agent, a supervisor or a shared tool as a map."""
    out.at(node)
    into = out.register()
    if isinstance(node, ast.Agent):
        fields: dict[str, Any] = dict(node.fields)
        fields["tool_settings"] = {tool.name: dict(tool.settings) for tool in node.tools}
        compile_settings(out, fields, into)
    else:
        compile_settings(out, node.settings, into)
    if isinstance(node, ast.Supervisor):
        _compile_children(out, node, into)
    out.emit(OP_RETURN, into)
    return out.finish(is_hidden=out.is_hidden)


def _compile_children(out: FunctionCode, node: ast.Supervisor, into: int) -> None:
    """Each child is [name, kind, its name, what is spawned, arguments]; they stand under "children"."""
    pair = out.register(2)
    out.constant("children", pair)
    run = out.register(len(node.children))
    for index, child in enumerate(node.children):
        mark = out.next_register
        parts = out.register(5)
        kind, name = compile_spawned(out, child, child.target, parts + 3, is_function=child.is_function)
        for offset, word in enumerate((child.name, kind, name)):
            out.constant(word, parts + offset)
        out.emit(OP_LIST, run + index, parts, 5)
        out.next_register = mark
    out.emit(OP_LIST, pair + 1, run, len(node.children))
    out.emit(OP_MAP_ADD, into, pair, 2)


def compile_wrapper(out: FunctionCode, module: str, name: str, count: int) -> Function:
    """A function that does nothing but call one of the library."""
    out.parameters = [Parameter(f"x{index}") for index in range(count)]
    out.register(count)
    callee: ast.Expression = ast.Path(module=module, name=name) if module else ast.Name(name=name)
    parameters = [Variable(f"x{index}", out.unit) for index in range(count)]
    arguments = []
    for index, variable in enumerate(parameters):
        variable.register = index
        reference = ast.Name(name=variable.name)
        out.module.meanings[id(reference)] = variable
        out.linker.keep.append(reference)
        arguments.append(ast.Argument(value=reference))
    into = out.register()
    library_call(out, ast.Call(callee=callee, arguments=arguments), into)
    out.emit(OP_RETURN, into)
    return out.finish(is_hidden=True)


def compile_start(out: FunctionCode, init: int, main: int, *, takes_arguments: bool) -> Function:
    """The entry of a run: the file's top level, then `main`."""
    into = out.register(2)
    out.emit(OP_CALL, into, init, into)
    if main >= 0:
        if takes_arguments:
            out.emit(OP_EFFECT, into, into, out.other(["env::args", 0]))
        out.emit(OP_CALL, into, main, into)
    out.emit(OP_RETURN, into)
    return out.finish(is_hidden=True)


def parameter_info(parameter: ast.Parameter) -> Parameter:
    return Parameter(parameter.name, type_text(parameter.type), parameter.default is not None)


def type_text(written: ast.Type | None) -> str:
    if written is None:
        return ""
    if not written.parameters:
        return written.name
    return f"{written.name}[{', '.join(type_text(part) for part in written.parameters)}]"
