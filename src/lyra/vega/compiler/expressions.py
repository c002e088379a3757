"""Expressions to register code.

`expression(node, into)` leaves the value in `into` or, without one, in whatever register is cheapest: a variable's
own, a constant's own, a temporary. A condition becomes jumps without a bool in between: `jump_false` and `jump_true`
give the jumps to patch, `loop_while` the jump back at the end of a loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from lyra.vega.bytecode.opcodes import (
    OP_ADD,
    OP_ADD_INT,
    OP_CELL_GET,
    OP_CLOSURE,
    OP_DIV,
    OP_EQ,
    OP_FIELD,
    OP_GLOBAL_GET,
    OP_IF,
    OP_INDEX,
    OP_JOIN,
    OP_LE,
    OP_LIST,
    OP_LIST_ADD,
    OP_LOOP_EQ,
    OP_LOOP_IF,
    OP_LOOP_LE,
    OP_LOOP_LT,
    OP_LOOP_NE,
    OP_LT,
    OP_MAP,
    OP_MAP_ADD,
    OP_MOD,
    OP_MUL,
    OP_NE,
    OP_NEG,
    OP_NOT,
    OP_SUB,
    OP_SUB_INT,
    OP_UNLESS,
    OP_UNLESS_EQ,
    OP_UNLESS_LE,
    OP_UNLESS_LT,
    OP_UNLESS_NE,
)
from lyra.vega.compiler.emitter import Emitter
from lyra.vega.plan.names import ModuleScope, Symbol, Unit, Variable, complaint
from lyra.vega.syntax import ast

if TYPE_CHECKING:
    from lyra.vega.compiler.compiler import Linker

__all__ = ["Expressions"]

_CHUNK: Final = 32  # items of a literal that are in registers at one time
_IMMEDIATE_MAX: Final = 1 << 30

_ARITHMETIC: Final = {"+": OP_ADD, "-": OP_SUB, "*": OP_MUL, "/": OP_DIV, "%": OP_MOD}
# operator: (value, unless, loop, whether the operands change places)
_COMPARISONS: Final = {
    "==": (OP_EQ, OP_UNLESS_EQ, OP_LOOP_EQ, False),
    "!=": (OP_NE, OP_UNLESS_NE, OP_LOOP_NE, False),
    "<": (OP_LT, OP_UNLESS_LT, OP_LOOP_LT, False),
    "<=": (OP_LE, OP_UNLESS_LE, OP_LOOP_LE, False),
    ">": (OP_LT, OP_UNLESS_LT, OP_LOOP_LT, True),
    ">=": (OP_LE, OP_UNLESS_LE, OP_LOOP_LE, True),
}
_OPPOSITE: Final = {"==": "!=", "!=": "=="}
_BLOCK_EXPRESSIONS: Final = (ast.Match, ast.Receive)


class Expressions(Emitter):
    """The half of the function compiler that makes expressions."""

    linker: Linker
    module: ModuleScope
    unit: Unit
    is_hidden: bool  # the library's own code
    captured: dict[int, int]  # id(Variable) → register, for what the function captured
    rules: ClassVar[dict[type, Any]]  # how each kind of expression is made; the subclasses add theirs

    def expression(self, node: ast.Expression, into: int | None = None) -> int:
        self.at(node)
        result: int = self.rules[type(node)](self, node, into)
        return result

    def target(self, into: int | None) -> int:
        return self.register() if into is None else into

    def run_of(self, nodes: list[ast.Expression]) -> int:
        """The values of some expressions in fresh registers in a row."""
        first = self.register(len(nodes))
        for index, node in enumerate(nodes):
            self.expression_in(node, first + index)
        return first

    def expression_in(self, node: ast.Expression, register: int) -> None:
        """The value in exactly that register, temporaries given back."""
        mark = self.next_register
        self.expression(node, register)
        self.next_register = mark

    def fail(self, node: ast.Node, message: str, hint: str = "") -> Exception:
        return complaint(self.source, node, message, hint)

    def literal(self, node: ast.Literal, into: int | None) -> int:
        return self.constant(node.value, into)

    def interpolation(self, node: ast.Interpolation, into: int | None) -> int:
        into = self.target(into)
        mark = self.next_register
        first = self.register(min(len(node.parts), _CHUNK))
        held = 0  # pieces that stand in registers
        for part in node.parts:
            if held == _CHUNK:
                self.at(node)
                self.emit(OP_JOIN, first, first, held)
                held = 1
            if isinstance(part, str):
                self.constant(part, first + held)
            else:
                self.expression_in(part, first + held)
            held += 1
        self.at(node)
        self.emit(OP_JOIN, into, first, held)
        self.next_register = mark
        return into

    def list_literal(self, node: ast.ListLiteral, into: int | None) -> int:
        return self.literal_of(node, node.items, into, OP_LIST, OP_LIST_ADD)

    def map_literal(self, node: ast.MapLiteral, into: int | None) -> int:
        flat = [part for entry in node.entries for part in entry]
        return self.literal_of(node, flat, into, OP_MAP, OP_MAP_ADD)

    def literal_of(self, node: ast.Node, items: list[ast.Expression], into: int | None, make: int, add: int) -> int:
        into = self.target(into)
        mark = self.next_register
        # Built in a temporary one: an item may read the variable that the literal is assigned to.
        whole = into if len(items) <= _CHUNK else self.register()
        for start in range(0, max(len(items), 1), _CHUNK):
            part = items[start : start + _CHUNK]
            first = self.run_of(part)
            self.at(node)
            self.emit(add if start else make, whole, first, len(part))
            self.next_register = max(mark, whole + 1) if whole != into else mark
        self.move(into, whole)
        self.next_register = mark
        return into

    def name_of(self, node: ast.Name, into: int | None) -> int:
        meaning = self.module.meanings.get(id(node))
        if isinstance(meaning, Variable):
            return self.variable(meaning, into)
        if isinstance(meaning, Symbol):
            return self.symbol(node, meaning, into)
        return self.linker.library_value(self, node, "", node.name, into)

    def path(self, node: ast.Path, into: int | None) -> int:
        meaning = self.module.meanings.get(id(node))
        if isinstance(meaning, Variable):
            return self.variable(meaning, into)
        if isinstance(meaning, Symbol):
            return self.symbol(node, meaning, into)
        return self.linker.library_value(self, node, node.module, node.name, into)

    def variable(self, variable: Variable, into: int | None) -> int:
        if variable.literal is not None:
            return self.constant(variable.literal.value, into)
        if variable.is_global:
            into = self.target(into)
            self.emit(OP_GLOBAL_GET, into, self.linker.slot(variable), self.other(variable.name))
            return into
        home = self.home(variable)
        if variable.is_cell:
            into = self.target(into)
            self.emit(OP_CELL_GET, into, home, self.other(variable.name))
            return into
        if into is None:
            return home
        self.move(into, home)
        return into

    def home(self, variable: Variable) -> int:
        """The register of a variable, or of its cell, in this function."""
        return self.captured.get(id(variable), variable.register)

    def symbol(self, node: ast.Node, symbol: Symbol, into: int | None) -> int:
        if symbol.kind in ("function", "tool"):
            into = self.target(into)
            self.emit(OP_CLOSURE, into, self.linker.function_of(symbol), self.other([]))
            return into
        if symbol.kind in ("agent", "supervisor"):
            return self.constant(symbol.name, into)  # an agent's name stands for it in messages and settings
        return self.linker.host_value(self, node, symbol, into)

    def lambda_(self, node: ast.Lambda, into: int | None) -> int:
        into = self.target(into)
        self.closure(node, "lambda", into)
        return into

    def closure(self, node: Any, name: str, into: int) -> None:
        """Make the function value of a lambda, nested fn or defer from the variables it captures."""
        unit = self.module.units[id(node)]
        function = self.linker.function(self.module, node, unit, name)
        registers = [self.home(variable) for variable in unit.captures]
        self.at(node)
        self.emit(OP_CLOSURE, into, function, self.other(["registers", *registers] if registers else []))

    def unary(self, node: ast.Unary, into: int | None) -> int:
        if node.operator == "-" and type(node.operand) is ast.Literal and type(node.operand.value) in (int, float):
            return self.constant(-node.operand.value, into)
        into = self.target(into)
        mark = self.next_register
        operand = self.expression(node.operand)
        self.at(node)
        self.emit(OP_NEG if node.operator == "-" else OP_NOT, into, operand)
        self.next_register = mark
        return into

    def binary(self, node: ast.Binary, into: int | None) -> int:
        if node.operator in ("&&", "||"):
            return self.logical(node, into)
        into = self.target(into)
        mark = self.next_register
        # The left side of a long chain is compiled first, from its deepest operator up: no recursion on it.
        chain = [node]
        while type(chain[-1].left) is ast.Binary and chain[-1].left.operator not in ("&&", "||"):
            chain.append(chain[-1].left)
        left = self.operand(chain[-1].left, chain[-1].right)
        accumulator = -1
        for link in reversed(chain):
            if link is node:
                goal = into
            elif accumulator < 0:
                goal = accumulator = self.register()
            else:
                goal = accumulator
            inner = self.next_register
            self.operator(link, left, goal)
            self.next_register = inner
            left = goal
        self.next_register = mark
        return into

    def operator(self, node: ast.Binary, left: int, into: int) -> None:
        step = node.right.value if type(node.right) is ast.Literal else None
        if node.operator in ("+", "-") and type(step) is int and 0 <= step < _IMMEDIATE_MAX:
            self.at(node)
            self.emit(OP_ADD_INT if node.operator == "+" else OP_SUB_INT, into, left, step)
            return
        right = self.expression(node.right)
        self.at(node)
        if node.operator in _ARITHMETIC:
            self.emit(_ARITHMETIC[node.operator], into, left, right)
            return
        op, _, _, is_swapped = _COMPARISONS[node.operator]
        self.emit(op, into, right if is_swapped else left, left if is_swapped else right)

    def operand(self, node: ast.Expression, then: ast.Expression) -> int:
        """The left operand; kept in a register of its own when the right side may assign the variable it is."""
        left = self.expression(node)
        if type(node) is ast.Name and _has_block(then):
            copy = self.register()
            self.move(copy, left)
            return copy
        return left

    def logical(self, node: ast.Binary, into: int | None) -> int:
        into = self.target(into)
        mark = self.next_register
        value = self.register()
        false = self.jump_false(node)
        self.constant(True, value)
        end = self.jump()
        self.patch_all(false)
        self.constant(False, value)
        self.patch(end)
        self.move(into, value)
        self.next_register = mark
        return into

    def jump_false(self, node: ast.Expression) -> list[int]:
        """Jumps (to be patched) that are taken when the condition is false."""
        if type(node) is ast.Binary and node.operator == "&&":
            return [jump for part in _chain(node) for jump in self.jump_false(part)]
        if type(node) is ast.Binary and node.operator == "||":
            *parts, last = _chain(node)
            true = [jump for part in parts for jump in self.jump_true(part)]
            false = self.jump_false(last)
            self.patch_all(true)
            return false
        if type(node) is ast.Unary and node.operator == "!":
            return self.jump_true(node.operand)
        mark = self.next_register
        if type(node) is ast.Binary and node.operator in _COMPARISONS:
            _, unless, _, is_swapped = _COMPARISONS[node.operator]
            index = self.emit(unless, 0, *self.compared(node, is_swapped))
        else:
            value = self.expression(node)
            self.at(node)
            index = self.emit(OP_UNLESS, 0, value)
        self.next_register = mark
        return [index]

    def jump_true(self, node: ast.Expression) -> list[int]:
        """Jumps that are taken when the condition is true."""
        if type(node) is ast.Binary and node.operator == "||":
            return [jump for part in _chain(node) for jump in self.jump_true(part)]
        if type(node) is ast.Binary and node.operator == "&&":
            *parts, last = _chain(node)
            false = [jump for part in parts for jump in self.jump_false(part)]
            true = self.jump_true(last)
            self.patch_all(false)
            return true
        if type(node) is ast.Unary and node.operator == "!":
            return self.jump_false(node.operand)
        mark = self.next_register
        if type(node) is ast.Binary and node.operator in _OPPOSITE:
            _, unless, _, is_swapped = _COMPARISONS[_OPPOSITE[node.operator]]
            index = self.emit(unless, 0, *self.compared(node, is_swapped))
        else:
            value = self.expression(node)
            self.at(node)
            index = self.emit(OP_IF, 0, value)
        self.next_register = mark
        return [index]

    def loop_while(self, node: ast.Expression, body: int) -> None:
        """The end of a loop: back to `body` while the condition is true."""
        mark = self.next_register
        if type(node) is ast.Binary and node.operator == "&&":
            *parts, last = _chain(node)
            false = [jump for part in parts for jump in self.jump_false(part)]
            self.loop_while(last, body)
            self.patch_all(false)
        elif type(node) is ast.Binary and node.operator in _COMPARISONS:
            _, _, loop, is_swapped = _COMPARISONS[node.operator]
            self.emit(loop, body, *self.compared(node, is_swapped))
        else:
            value = self.expression(node)
            self.at(node)
            self.emit(OP_LOOP_IF, body, value)
        self.next_register = mark

    def compared(self, node: ast.Binary, is_swapped: bool) -> tuple[int, int]:
        left = self.operand(node.left, node.right)
        right = self.expression(node.right)
        self.at(node)
        return (right, left) if is_swapped else (left, right)

    def index(self, node: ast.Index, into: int | None) -> int:
        into = self.target(into)
        mark = self.next_register
        whole = self.operand(node.target, node.index)
        index = self.expression(node.index)
        self.at(node)
        self.emit(OP_INDEX, into, whole, index)
        self.next_register = mark
        return into

    def field(self, node: ast.Field, into: int | None) -> int:
        into = self.target(into)
        mark = self.next_register
        whole = self.expression(node.target)
        self.at(node)
        self.emit(OP_FIELD, into, whole, self.other(node.name))
        self.next_register = mark
        return into


def _chain(node: ast.Binary) -> list[ast.Expression]:
    """The parts of `a && b && c …`, which is deep on its left side, from left to right."""
    parts: list[ast.Expression] = []
    left: ast.Expression = node
    while type(left) is ast.Binary and left.operator == node.operator:
        parts.append(left.right)
        left = left.left
    return [left, *reversed(parts)]


def _has_block(node: Any) -> bool:
    """Whether an expression holds a match or receive, whose arms may assign variables."""
    if isinstance(node, (ast.Literal, ast.Name, ast.Path, ast.Lambda, str)) or node is None:
        return False
    if isinstance(node, _BLOCK_EXPRESSIONS):
        return True
    if isinstance(node, msgspec.Struct):
        return any(_has_block(getattr(node, field)) for field in node.__struct_fields__ if field not in ("at", "end"))
    if isinstance(node, (list, tuple)):
        return any(_has_block(part) for part in node)
    return False


Expressions.rules = {
    ast.Literal: Expressions.literal,
    ast.Interpolation: Expressions.interpolation,
    ast.Name: Expressions.name_of,
    ast.Path: Expressions.path,
    ast.ListLiteral: Expressions.list_literal,
    ast.MapLiteral: Expressions.map_literal,
    ast.Lambda: Expressions.lambda_,
    ast.Unary: Expressions.unary,
    ast.Binary: Expressions.binary,
    ast.Index: Expressions.index,
    ast.Field: Expressions.field,
}
