"""Blocks and variables to register code: where a variable's value goes, and what a scope needs at its start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lyra.vega.bytecode.opcodes import OP_CELL, OP_CELL_OF, OP_CELL_SET, OP_GLOBAL_SET, OP_SET_FIELD, OP_STORE
from lyra.vega.compiler.emitter import FunctionCode
from lyra.vega.compiler.expressions import compile_closure, compile_expression, compile_into, compile_operand
from lyra.vega.plan.names import Variable
from lyra.vega.syntax import ast

# Expressions that read all they need before they write: their value may go straight into the variable assigned.
_DIRECT: Final = (ast.Binary, ast.Call, ast.Literal, ast.Index, ast.Name, ast.Field, ast.MethodCall, ast.Interpolation)


def compile_statement(out: FunctionCode, node: ast.Statement) -> None:
    out.at(node)
    out.statement_rules[type(node)](out, node)


def compile_block(out: FunctionCode, block: ast.Block) -> None:
    mark = out.next_register
    enter_scope(out, out.module.cells.get(id(block), []), block.statements)
    out.sequence(out, block.statements)
    out.next_register = mark


def compile_sequence(out: FunctionCode, statements: list[ast.Statement]) -> None:
    """Statements one after the other."""
    for statement in statements:
        compile_statement(out, statement)


def enter_scope(out: FunctionCode, variables: list[Variable], statements: list[ast.Statement]) -> None:
    """Make the shared variables of a scope, then its functions: they may be called before they stand."""
    for variable in variables:
        if variable.is_cell and not variable.is_global:
            variable.register = out.register()
            out.emit(OP_CELL, variable.register)
        elif variable.is_const and variable.literal is None and not variable.is_global:
            variable.register = out.register()
            out.constant(None, variable.register)
    for statement in statements:
        if type(statement) is ast.Function and id(statement) in out.module.declared:
            mark = out.next_register
            closure = out.register()
            compile_closure(out, statement, statement.name, closure)
            out.next_register = mark
            set_new_variable(out, statement, closure)


def set_new_variable(out: FunctionCode, node: ast.SyntaxNode, value: int) -> None:
    """Give a variable that was just declared its first value."""
    variable = out.module.declared[id(node)]
    if variable.is_global or variable.is_cell:
        set_variable(out, variable, value)
    else:
        variable.register = out.register()
        out.move(variable.register, value)


def bind_variable(out: FunctionCode, node: ast.SyntaxNode, value: int) -> None:
    """Bind a new variable with that value, in a register, a cell or a global."""
    variable = out.module.declared[id(node)]
    if variable.is_global:
        out.emit(OP_GLOBAL_SET, out.linker.slot(variable), value)
        return
    variable.register = out.register()
    if variable.is_cell:
        out.emit(OP_CELL_OF, variable.register, value)
    else:
        out.move(variable.register, value)


def set_variable(out: FunctionCode, variable: Variable, value: int) -> None:
    if variable.is_global:
        out.emit(OP_GLOBAL_SET, out.linker.slot(variable), value)
    elif variable.is_cell:
        out.emit(OP_CELL_SET, out.home(variable), value)
    else:
        out.move(out.home(variable), value)


def _compile_let(out: FunctionCode, node: ast.Let | ast.Const) -> None:
    variable = out.module.declared[id(node)]
    if variable.literal is not None:
        return
    if variable.is_global or variable.is_cell:
        mark = out.next_register
        value = out.constant(None) if node.value is None else compile_expression(out, node.value)
        out.at(node)
        set_variable(out, variable, value)
        out.next_register = mark
        return
    register = variable.register if variable.is_const else out.register()
    if node.value is None:
        out.constant(None, register)
    else:
        compile_into(out, node.value, register)
    variable.register = register


def _compile_assign(out: FunctionCode, node: ast.Assign) -> None:
    mark = out.next_register
    target = node.target
    if type(target) is ast.Index:
        whole = compile_operand(out, target.target, node.value)
        index = compile_operand(out, target.index, node.value)
        value = compile_expression(out, node.value)
        out.at(target)
        out.emit(OP_STORE, whole, index, value)
    elif type(target) is ast.Field:
        whole = compile_operand(out, target.target, node.value)
        value = compile_expression(out, node.value)
        out.at(target)
        out.emit(OP_SET_FIELD, whole, out.other(target.name), value)
    else:
        meaning = out.module.meanings.get(id(target))
        if not isinstance(meaning, Variable):
            raise out.fail(target, "this cannot be assigned")
        _compile_assign_variable(out, meaning, node.value)
    out.next_register = mark


def _compile_assign_variable(out: FunctionCode, variable: Variable, value: ast.Expression) -> None:
    is_register = not variable.is_global and not variable.is_cell
    is_logical = type(value) is ast.Binary and value.operator in ("&&", "||")
    if is_register and isinstance(value, _DIRECT) and not is_logical:
        compile_expression(out, value, out.home(variable))
    else:
        set_variable(out, variable, compile_expression(out, value))


BLOCKS: Final[dict[type, Callable[[FunctionCode, Any], None]]] = {
    ast.Block: compile_block,
    ast.Let: _compile_let,
    ast.Const: _compile_let,
    ast.Assign: _compile_assign,
}
