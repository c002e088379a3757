"""Calls to register code: of known functions, of values, with named arguments, of methods."""

from __future__ import annotations

from typing import Final

from lyra.vega.bytecode.opcodes import (
    ANY_LENGTH,
    OP_CALL,
    OP_CALL_NAMED,
    OP_CALL_VALUE,
    OP_LENGTH,
    OP_METHOD,
    OP_PUSH,
    OP_UNLESS_LIST,
)
from lyra.vega.compiler.expressions import Expressions
from lyra.vega.plan.names import Symbol, Variable
from lyra.vega.stdlib.table import LIBRARY
from lyra.vega.syntax import ast
from lyra.vega.values.values import UNSET

__all__ = ["Calls"]

# Methods of lists that are written in Vega, with how many values, the list among them, they take.
_VEGA_METHODS: Final = {
    name: range(entry.required, entry.most + 1) for name, entry in LIBRARY["list"].items() if entry.how == "vega"
}


class Calls(Expressions):
    def call(self, node: ast.Call, into: int | None) -> int:
        into = self.target(into)
        mark = self.next_register
        callee = node.callee
        meaning = self.module.meanings.get(id(callee))
        if isinstance(meaning, Symbol) and meaning.kind in ("function", "tool"):
            function = self.linker.function_of(meaning)
            first = self.arguments(node, meaning.node.parameters, meaning.name)
            self.at(node)
            self.emit(OP_CALL, into, function, first)
        elif isinstance(meaning, Symbol):
            self.linker.host_call(self, node, meaning, into)
        elif meaning is None and isinstance(callee, (ast.Name, ast.Path)):
            self.linker.library_call(self, node, into)
        else:
            self.call_value(node, into)
        self.next_register = mark
        return into

    def arguments(self, node: ast.Call, parameters: list[ast.Parameter], name: str) -> int:
        """The arguments of a known function in a run of registers, in the order of its parameters."""
        order = self.matched(node, [parameter.name for parameter in parameters], name)
        for index, parameter in enumerate(parameters):
            if index not in order and parameter.default is None:
                raise self.fail(node, f"`{name}` needs `{parameter.name}`", _signature(parameters))
        first = self.register(max(len(parameters), 1))
        for index, argument in order.items():
            self.expression_in(argument, first + index)
        for index in range(len(parameters)):
            if index not in order:
                self.constant(UNSET, first + index)
        return first

    def matched(self, node: ast.Call, names: list[str], name: str) -> dict[int, ast.Expression]:
        """Which argument goes to which parameter, in the order they are written."""
        order: dict[int, ast.Expression] = {}
        for position, argument in enumerate(node.arguments):
            if argument.name and argument.name not in names:
                raise self.fail(argument, f"`{name}` has no parameter `{argument.name}`")
            index = names.index(argument.name) if argument.name else position
            if index >= len(names):
                raise self.fail(argument, f"`{name}` takes {len(names)} arguments, got {len(node.arguments)}")
            if index in order:
                raise self.fail(argument, f"`{names[index]}` is given twice")
            order[index] = argument.value
        return order

    def call_value(self, node: ast.Call, into: int) -> None:
        first = self.register(1 + len(node.arguments))
        self.expression_in(node.callee, first)
        for index, argument in enumerate(node.arguments):
            self.expression_in(argument.value, first + 1 + index)
        self.at(node)
        names = [argument.name for argument in node.arguments]
        if any(names):
            self.emit(OP_CALL_NAMED, into, first, self.other(["names", *names]))
        else:
            self.emit(OP_CALL_VALUE, into, first, len(names))

    def method_call(self, node: ast.MethodCall, into: int | None) -> int:
        into = self.target(into)
        mark = self.next_register
        if any(argument.name for argument in node.arguments):
            raise self.fail(node, "arguments of a method have no names")
        values = [node.target, *(argument.value for argument in node.arguments)]
        if node.name == "len" and len(values) == 1:
            whole = self.expression(node.target)
            self.at(node)
            self.emit(OP_LENGTH, into, whole)
        elif node.name == "push" and len(values) == 2:
            whole = self.operand(node.target, values[1])
            item = self.expression(values[1])
            self.at(node)
            no_list = self.unless_list(node.target, whole)
            self.emit(OP_PUSH, into, whole, item)
            if no_list is not None:
                end = self.jump()
                self.patch(no_list)
                first = self.register(2)
                self.move(first, whole)
                self.move(first + 1, item)
                self.emit(OP_METHOD, into, first, self.other([node.name, 2]))
                self.patch(end)
        elif (count := _VEGA_METHODS.get(node.name)) is not None and len(values) in count:
            first = self.run_of(values)
            self.at(node)
            no_list = self.unless_list(node.target, first)
            self.linker.prelude_call(self, node, f"list::{node.name}", first, len(values), into)
            if no_list is not None:
                end = self.jump()
                self.patch(no_list)
                self.emit(OP_METHOD, into, first, self.other([node.name, len(values)]))
                self.patch(end)
        else:
            first = self.run_of(values)
            self.at(node)
            self.emit(OP_METHOD, into, first, self.other([node.name, len(values)]))
        self.next_register = mark
        return into

    def unless_list(self, target: ast.Expression, register: int) -> int | None:
        """Before what only lists do: a jump (to be patched) for other values, since a map may hold a function of the
        same name. None where it can only be a list."""
        meaning = self.module.meanings.get(id(target))
        if type(target) is ast.ListLiteral or (
            isinstance(meaning, Variable) and meaning.began_as_list and not meaning.is_assigned
        ):
            return None
        return self.emit(OP_UNLESS_LIST, 0, register, ANY_LENGTH)


def _signature(parameters: list[ast.Parameter]) -> str:
    return f"its parameters are ({', '.join(parameter.name for parameter in parameters)})"


Calls.rules = {
    **Expressions.rules,
    ast.Call: Calls.call,
    ast.MethodCall: Calls.method_call,
}
