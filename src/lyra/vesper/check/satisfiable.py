"""Contracts that can never hold, or always hold, as far as that is cheap to see.

Constants are folded; bounds of one input (`amount > 0`, `max: 100`, `name.length <= 80`) are joined over its
constraints and all preconditions, and must leave room. What needs a solver is left to `vesper prove`.
"""

from __future__ import annotations

from decimal import Decimal
from math import ceil, floor
from typing import Any, Final

import msgspec

from lyra.core.checking.document import Path
from lyra.vesper import ir
from lyra.vesper.check.state import CheckState
from lyra.vesper.values.types import INTEGER, without_null

_MIRROR: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


def judge_contracts(program: ir.NodeProgram, state: CheckState) -> None:
    """Remark on constant contracts, and on bounds of an input that contradict each other."""
    declared = state.node.contracts
    groups = (
        ("preconditions", program.preconditions, declared.preconditions),
        ("postconditions", program.postconditions, declared.postconditions),
        ("invariants", program.invariants, declared.invariants),
    )
    for kind, contracts, texts in groups:
        for contract, text in zip(contracts, texts, strict=False):
            value = fold_constant(contract.expression) if contract.expression is not None else None
            if value is False:
                state.error("contradiction", "the contract is never true", text.path, value=True)
            elif value is True:
                state.warn("vacuous", f"one of the {kind} is always true and says nothing", text.path, value=True)
    _bounds(program, state)


def fold_constant(expression: ir.TypedExpression) -> bool | None:
    """Return true or false where an expression is constant; None where it depends on a value."""
    match expression:
        case ir.Constant(value=bool() as value):
            return value
        case ir.Not():
            inner = fold_constant(expression.operand)
            return None if inner is None else not inner
        case ir.Logic():
            left, right = fold_constant(expression.left), fold_constant(expression.right)
            if expression.operator == "implies":
                if left is False or right is True:
                    return True
                return right if left is True else None
            decisive = expression.operator == "or"
            if left is decisive or right is decisive:
                return decisive
            return None if left is None or right is None else not decisive
        case ir.Compare(left=ir.Constant() as left, right=ir.Constant() as right):
            return _compare_constants(expression.operator, left.value, right.value)
    return None


def _compare_constants(operator: str, left: Any, right: Any) -> bool | None:
    if not _is_number(left) or not _is_number(right):
        same_kind = type(left) is type(right)
        equal: dict[str, bool] = {"==": left == right, "!=": left != right}
        return equal.get(operator) if same_kind else None
    table: dict[str, bool] = {
        "==": left == right,
        "!=": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }
    return table[operator]


# ------------------------------------------------------------------ bounds
class _Range(msgspec.Struct):
    """What is left of the values of one path."""

    is_integer: bool
    low: int | Decimal | None = None
    high: int | Decimal | None = None
    low_open: bool = False
    high_open: bool = False
    values: set[Any] | None = None  # equal to one of these; None: any

    def is_empty(self) -> bool:
        if self.values is not None and not any(self.has_room(value) for value in self.values):
            return True
        low, high = self.low, self.high
        if low is None or high is None:
            return False
        if self.is_integer:
            first = floor(low) + 1 if self.low_open else ceil(low)
            last = ceil(high) - 1 if self.high_open else floor(high)
            return first > last
        return low > high or (low == high and (self.low_open or self.high_open))

    def has_room(self, value: Any) -> bool:
        if not _is_number(value):
            return True
        below = self.low is not None and (value < self.low or (self.low_open and value == self.low))
        above = self.high is not None and (value > self.high or (self.high_open and value == self.high))
        return not below and not above

    def narrow(self, operator: str, value: Any) -> None:
        if operator == "==":
            self.values = {value} if self.values is None else self.values & {value}
        if not _is_number(value):
            return
        if operator in (">", ">=") and (self.low is None or (value, operator == ">") > (self.low, self.low_open)):
            self.low, self.low_open = value, operator == ">"
        if operator in ("<", "<=") and (
            self.high is None or value < self.high or (value == self.high and operator == "<")
        ):
            self.high, self.high_open = value, operator == "<"


def _bounds(program: ir.NodeProgram, state: CheckState) -> None:
    ranges: dict[str, _Range] = {}
    reported: set[str] = set()
    for source in program.inputs:
        declared = next((field for field in state.node.inputs if field.name == source.name), None)
        for check in source.constraints:
            path = declared.path if declared is not None else ()
            _narrow(check.expression, ranges, reported, state, path, value_name=source.name)
    for contract, text in zip(program.preconditions, state.node.contracts.preconditions, strict=True):
        if contract.expression is not None:
            _narrow(contract.expression, ranges, reported, state, text.path)


def _narrow(
    expression: ir.TypedExpression,
    ranges: dict[str, _Range],
    reported: set[str],
    state: CheckState,
    path: Path,
    *,
    value_name: str = "",
) -> None:
    for operator, subject, value in _comparisons(expression):
        name = _path_text(subject, value_name)
        if name is None:
            continue
        room = ranges.setdefault(name, _Range(without_null(subject.type) == INTEGER))
        room.narrow(operator, value)
        if name not in reported and room.is_empty():
            reported.add(name)
            state.error("contradiction", f"no value of `{name}` is left: its bounds contradict each other", path)


def _comparisons(expression: ir.TypedExpression) -> list[tuple[str, ir.TypedExpression, Any]]:
    """Return the comparisons with constants that must all hold."""
    match expression:
        case ir.Logic(operator="and"):
            return _comparisons(expression.left) + _comparisons(expression.right)
        case ir.Logic(operator="or", left=ir.IsNull()):
            return _comparisons(expression.right)  # a constraint of a value that may be null
        case ir.Compare(right=ir.Constant() as right) if not isinstance(right.value, bool) and right.value is not None:
            return [(expression.operator, expression.left, right.value)]
        case ir.Compare(left=ir.Constant() as left) if not isinstance(left.value, bool) and left.value is not None:
            return [(_MIRROR[expression.operator], expression.right, left.value)]
    return []


def _path_text(expression: ir.TypedExpression, value_name: str) -> str | None:
    match expression:
        case ir.NodeVariable():
            return value_name if value_name and expression.name == "value" else expression.name
        case ir.FieldOf():
            target = _path_text(expression.target, value_name)
            return f"{target}.{expression.name}" if target else None
        case ir.Length():
            target = _path_text(expression.target, value_name)
            return f"{target}.length" if target else None
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, Decimal)) and not isinstance(value, bool)
