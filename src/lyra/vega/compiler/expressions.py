"""Expressions to register code.

`compile_expression(out, node, into)` leaves the value in `into` or, without one, in the register that is cheapest: a
variable's own, a constant's own, a temporary. A condition becomes jumps without a bool in between: `jump_if` gives the
jumps to patch, `loop_while` the jump back at the end of a loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

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
from lyra.vega.compiler.emitter import FunctionCode
from lyra.vega.plan.names import Variable
from lyra.vega.syntax import ast

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


def compile_expression(out: FunctionCode, node: ast.Expression, into: int | None = None) -> int:
    out.at(node)
    return out.expression_rules[type(node)](out, node, into)


def compile_run(out: FunctionCode, nodes: list[ast.Expression]) -> int:
    """Return the values of some expressions in fresh registers in a row."""
    first = out.register(len(nodes))
    for index, node in enumerate(nodes):
        compile_into(out, node, first + index)
    return first


def compile_into(out: FunctionCode, node: ast.Expression, register: int) -> None:
    """Compile the value in exactly that register, temporaries given back."""
    mark = out.next_register
    compile_expression(out, node, register)
    out.next_register = mark


def _compile_interpolation(out: FunctionCode, node: ast.Interpolation, into: int | None) -> int:
    into = out.target(into)
    mark = out.next_register
    first = out.register(min(len(node.parts), _CHUNK))
    held = 0  # pieces that stand in registers
    for part in node.parts:
        if held == _CHUNK:
            out.at(node)
            out.emit(OP_JOIN, first, first, held)
            held = 1
        if isinstance(part, str):
            out.constant(part, first + held)
        else:
            compile_into(out, part, first + held)
        held += 1
    out.at(node)
    out.emit(OP_JOIN, into, first, held)
    out.next_register = mark
    return into


def _compile_map_literal(out: FunctionCode, node: ast.MapLiteral, into: int | None) -> int:
    flat = [part for entry in node.entries for part in entry]
    return _compile_items(out, node, flat, into, OP_MAP, OP_MAP_ADD)


def _compile_items(
    out: FunctionCode, node: ast.SyntaxNode, items: list[ast.Expression], into: int | None, make: int, add: int
) -> int:
    into = out.target(into)
    mark = out.next_register
    # Built in a temporary one: an item may read the variable that the literal is assigned to.
    whole = into if len(items) <= _CHUNK else out.register()
    for start in range(0, max(len(items), 1), _CHUNK):
        part = items[start : start + _CHUNK]
        first = compile_run(out, part)
        out.at(node)
        out.emit(add if start else make, whole, first, len(part))
        out.next_register = max(mark, whole + 1) if whole != into else mark
    out.move(into, whole)
    out.next_register = mark
    return into


def compile_variable(out: FunctionCode, variable: Variable, into: int | None) -> int:
    """Return the value of a variable; code that looks ahead reads its copy."""
    copy = None if out.copies is None else out.copies.get(id(variable))
    if copy is not None:
        if into is None:
            return copy
        out.move(into, copy)
        return into
    if variable.literal is not None:
        return out.constant(variable.literal.value, into)
    if variable.is_global:
        into = out.target(into)
        out.emit(OP_GLOBAL_GET, into, out.linker.slot(variable), out.other(variable.name))
        return into
    home = out.home(variable)
    if variable.is_cell:
        into = out.target(into)
        out.emit(OP_CELL_GET, into, home, out.other(variable.name))
        return into
    if into is None:
        return home
    out.move(into, home)
    return into


def _compile_lambda(out: FunctionCode, node: ast.Lambda, into: int | None) -> int:
    into = out.target(into)
    compile_closure(out, node, "lambda", into)
    return into


def compile_closure(out: FunctionCode, node: Any, name: str, into: int) -> None:
    """Make the function value of a lambda, nested fn or defer from the variables it captures."""
    unit = out.module.units[id(node)]
    function = out.linker.function(out.module, node, unit, name)
    registers = [out.home(variable) for variable in unit.captures]
    out.at(node)
    out.emit(OP_CLOSURE, into, function, out.other(["registers", *registers] if registers else []))


def _compile_unary(out: FunctionCode, node: ast.Unary, into: int | None) -> int:
    if node.operator == "-" and type(node.operand) is ast.Literal and type(node.operand.value) in (int, float):
        return out.constant(-node.operand.value, into)
    into = out.target(into)
    mark = out.next_register
    operand = compile_expression(out, node.operand)
    out.at(node)
    out.emit(OP_NEG if node.operator == "-" else OP_NOT, into, operand)
    out.next_register = mark
    return into


def _compile_binary(out: FunctionCode, node: ast.Binary, into: int | None) -> int:
    if node.operator in ("&&", "||"):
        into = out.target(into)
        mark = out.next_register
        value = out.register()
        false = jump_if(out, node, wanted=False)
        out.constant(True, value)
        end = out.jump()
        out.patch_all(false)
        out.constant(False, value)
        out.patch(end)
        out.move(into, value)
        out.next_register = mark
        return into
    into = out.target(into)
    mark = out.next_register
    # The left side of a long chain is compiled first, from its deepest operator up: no recursion on it.
    chain = [node]
    while type(chain[-1].left) is ast.Binary and chain[-1].left.operator not in ("&&", "||"):
        chain.append(chain[-1].left)
    left = compile_operand(out, chain[-1].left, chain[-1].right)
    accumulator = -1
    for link in reversed(chain):
        if link is node:
            goal = into
        elif accumulator < 0:
            goal = accumulator = out.register()
        else:
            goal = accumulator
        inner = out.next_register
        _compile_operator(out, link, left, goal)
        out.next_register = inner
        left = goal
    out.next_register = mark
    return into


def _compile_operator(out: FunctionCode, node: ast.Binary, left: int, into: int) -> None:
    step = node.right.value if type(node.right) is ast.Literal else None
    if node.operator in ("+", "-") and type(step) is int and 0 <= step < _IMMEDIATE_MAX:
        out.at(node)
        out.emit(OP_ADD_INT if node.operator == "+" else OP_SUB_INT, into, left, step)
        return
    right = compile_expression(out, node.right)
    out.at(node)
    if node.operator in _ARITHMETIC:
        out.emit(_ARITHMETIC[node.operator], into, left, right)
        return
    op, _, _, is_swapped = _COMPARISONS[node.operator]
    out.emit(op, into, right if is_swapped else left, left if is_swapped else right)


def compile_operand(out: FunctionCode, node: ast.Expression, then: ast.Expression) -> int:
    """Return the left operand; kept in its own register when the right side may assign the variable it is."""
    left = compile_expression(out, node)
    if type(node) is ast.Name and _has_block(then):
        copy = out.register()
        out.move(copy, left)
        return copy
    return left


def jump_if(out: FunctionCode, node: ast.Expression, *, wanted: bool) -> list[int]:
    """Jumps (to be patched) that are taken when the condition is `wanted`."""
    if type(node) is ast.Unary and node.operator == "!":
        return jump_if(out, node.operand, wanted=not wanted)
    operator = node.operator if type(node) is ast.Binary else ""
    if type(node) is ast.Binary and operator in ("&&", "||"):
        *parts, last = _chain(node)
        if (operator == "||") is wanted:
            return [jump for part in (*parts, last) for jump in jump_if(out, part, wanted=wanted)]
        others = [jump for part in parts for jump in jump_if(out, part, wanted=not wanted)]
        jumps = jump_if(out, last, wanted=wanted)
        out.patch_all(others)
        return jumps
    mark = out.next_register
    if wanted:
        operator = _OPPOSITE.get(operator, "")
    if type(node) is ast.Binary and operator in _COMPARISONS:
        _, unless, _, is_swapped = _COMPARISONS[operator]
        index = out.emit(unless, 0, *_compile_compared(out, node, is_swapped))
    else:
        value = compile_expression(out, node)
        out.at(node)
        index = out.emit(OP_IF if wanted else OP_UNLESS, 0, value)
    out.next_register = mark
    return [index]


def loop_while(out: FunctionCode, node: ast.Expression, body: int) -> None:
    """Compile the end of a loop: back to `body` while the condition is true."""
    mark = out.next_register
    if type(node) is ast.Binary and node.operator == "&&":
        *parts, last = _chain(node)
        false = [jump for part in parts for jump in jump_if(out, part, wanted=False)]
        loop_while(out, last, body)
        out.patch_all(false)
    elif type(node) is ast.Binary and node.operator in _COMPARISONS:
        _, _, loop, is_swapped = _COMPARISONS[node.operator]
        out.emit(loop, body, *_compile_compared(out, node, is_swapped))
    else:
        value = compile_expression(out, node)
        out.at(node)
        out.emit(OP_LOOP_IF, body, value)
    out.next_register = mark


def _compile_compared(out: FunctionCode, node: ast.Binary, is_swapped: bool) -> tuple[int, int]:
    left = compile_operand(out, node.left, node.right)
    right = compile_expression(out, node.right)
    out.at(node)
    return (right, left) if is_swapped else (left, right)


def _compile_index(out: FunctionCode, node: ast.Index, into: int | None) -> int:
    into = out.target(into)
    mark = out.next_register
    whole = compile_operand(out, node.target, node.index)
    index = compile_expression(out, node.index)
    out.at(node)
    out.emit(OP_INDEX, into, whole, index)
    out.next_register = mark
    return into


def _compile_field(out: FunctionCode, node: ast.Field, into: int | None) -> int:
    into = out.target(into)
    mark = out.next_register
    whole = compile_expression(out, node.target)
    out.at(node)
    out.emit(OP_FIELD, into, whole, out.other(node.name))
    out.next_register = mark
    return into


def _chain(node: ast.Binary) -> list[ast.Expression]:
    """Return the parts of `a && b && c …`, which is deep on its left side, from left to right."""
    parts: list[ast.Expression] = []
    left: ast.Expression = node
    while type(left) is ast.Binary and left.operator == node.operator:
        parts.append(left.right)
        left = left.left
    return [left, *reversed(parts)]


def _has_block(node: Any) -> bool:
    """Return whether an expression holds a match or receive, whose arms may assign variables."""
    if isinstance(node, (ast.Literal, ast.Name, ast.Path, ast.Lambda, str)) or node is None:
        return False
    if isinstance(node, _BLOCK_EXPRESSIONS):
        return True
    if isinstance(node, msgspec.Struct):
        return any(_has_block(getattr(node, field)) for field in node.__struct_fields__ if field not in ("at", "end"))
    if isinstance(node, (list, tuple)):
        return any(_has_block(part) for part in node)
    return False


EXPRESSIONS: Final[dict[type, Callable[[FunctionCode, Any, int | None], int]]] = {
    ast.Literal: lambda out, node, into: out.constant(node.value, into),
    ast.Interpolation: _compile_interpolation,
    ast.ListLiteral: lambda out, node, into: _compile_items(out, node, node.items, into, OP_LIST, OP_LIST_ADD),
    ast.MapLiteral: _compile_map_literal,
    ast.Lambda: _compile_lambda,
    ast.Unary: _compile_unary,
    ast.Binary: _compile_binary,
    ast.Index: _compile_index,
    ast.Field: _compile_field,
}
