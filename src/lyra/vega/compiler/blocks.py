"""Blocks and variables to register code: where a variable's value goes, and what a scope needs at its start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

from lyra.vega.bytecode.opcodes import (
    OP_CELL,
    OP_CELL_SET,
    OP_GLOBAL_SET,
    OP_SET_FIELD,
    OP_STORE,
)
from lyra.vega.compiler.processes import Processes
from lyra.vega.plan.names import Variable
from lyra.vega.syntax import ast

__all__ = ["Blocks"]

# Expressions that read all they need before they write: their value may go straight into the variable assigned.
_DIRECT: Final = (ast.Binary, ast.Call, ast.Literal, ast.Index, ast.Name, ast.Field, ast.MethodCall, ast.Interpolation)


class Blocks(Processes):
    statement_rules: ClassVar[dict[type, Callable[[Any, Any], None]]]  # filled by Statements

    def statement(self, node: ast.Statement) -> None:
        self.at(node)
        self.statement_rules[type(node)](self, node)

    def block(self, block: ast.Block) -> None:
        mark = self.next_register
        self.enter(self.module.cells.get(id(block), []), block.statements)
        self.sequence(block.statements)
        self.next_register = mark

    def sequence(self, statements: list[ast.Statement]) -> None:
        """Statements one after the other."""
        for statement in statements:
            self.statement(statement)

    def enter(self, variables: list[Variable], statements: list[ast.Statement]) -> None:
        """Make the shared variables of a scope, then its functions: they may be called before they stand."""
        for variable in variables:
            if variable.is_cell and not variable.is_global:
                variable.register = self.register()
                self.emit(OP_CELL, variable.register)
            elif variable.is_const and variable.literal is None and not variable.is_global:
                variable.register = self.register()
                self.constant(None, variable.register)
        for statement in statements:
            if type(statement) is ast.Function and id(statement) in self.module.declared:
                mark = self.next_register
                closure = self.register()
                self.closure(statement, statement.name, closure)
                self.next_register = mark
                self.set_new(statement, closure)

    def set_new(self, node: ast.Node, value: int) -> None:
        """Give a variable that was just declared its first value."""
        variable = self.module.declared[id(node)]
        if variable.is_global or variable.is_cell:
            self.set_variable(variable, value)
        else:
            variable.register = self.register()
            self.move(variable.register, value)

    def set_variable(self, variable: Variable, value: int) -> None:
        if variable.is_global:
            self.emit(OP_GLOBAL_SET, self.linker.slot(variable), value)
        elif variable.is_cell:
            self.emit(OP_CELL_SET, self.home(variable), value)
        else:
            self.move(self.home(variable), value)

    def let(self, node: ast.Let | ast.Const) -> None:
        variable = self.module.declared[id(node)]
        if variable.literal is not None:
            return
        if variable.is_global or variable.is_cell:
            mark = self.next_register
            value = self.constant(None) if node.value is None else self.expression(node.value)
            self.at(node)
            self.set_variable(variable, value)
            self.next_register = mark
            return
        register = variable.register if variable.is_const else self.register()
        if node.value is None:
            self.constant(None, register)
        else:
            self.expression_in(node.value, register)
        variable.register = register

    def assign(self, node: ast.Assign) -> None:
        mark = self.next_register
        target = node.target
        if type(target) is ast.Index:
            whole = self.operand(target.target, node.value)
            index = self.operand(target.index, node.value)
            value = self.expression(node.value)
            self.at(target)
            self.emit(OP_STORE, whole, index, value)
        elif type(target) is ast.Field:
            whole = self.operand(target.target, node.value)
            value = self.expression(node.value)
            self.at(target)
            self.emit(OP_SET_FIELD, whole, self.other(target.name), value)
        else:
            meaning = self.module.meanings.get(id(target))
            if not isinstance(meaning, Variable):
                raise self.fail(target, "this cannot be assigned")
            self.assign_variable(meaning, node.value)
        self.next_register = mark

    def assign_variable(self, variable: Variable, value: ast.Expression) -> None:
        is_register = not variable.is_global and not variable.is_cell
        is_logical = type(value) is ast.Binary and value.operator in ("&&", "||")
        if is_register and isinstance(value, _DIRECT) and not is_logical:
            self.expression(value, self.home(variable))
        else:
            self.set_variable(variable, self.expression(value))
