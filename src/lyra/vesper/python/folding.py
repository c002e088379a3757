"""Conditions that are known before a node runs, so that generated code does not test them.

`fold_answer` puts in what is known about the answer: in a check of a success, `success` is true and `error.occurred` is
false, in a check of an error the other way round. What follows from that by `AND`, `OR`, `NOT` and `=>` is settled; an
operand that may raise is never dropped. `KnownFacts` holds what checks of inputs have shown: a later check that follows
from them is left out. Nothing here looks at values of a run: that is the work of the generated code.
"""

from __future__ import annotations

from collections.abc import Collection
from decimal import Decimal
from typing import Any, Final

import msgspec

from lyra.vesper import ir
from lyra.vesper.values.types import BOOLEAN

_CONDITIONS = (ir.Not, ir.Compare, ir.Membership, ir.IsNull, ir.Logic, ir.Quantifier)


def fold_answer(condition: ir.TypedExpression, known: Collection[str], *, is_success: bool) -> ir.TypedExpression:
    """Return the condition about a success or an error; `known` are the names that surely have a value."""
    return _Folder(known, is_success=is_success).fold(condition, as_condition=True)


def is_true(condition: ir.TypedExpression | None) -> bool:
    """Return whether the condition is the constant true."""
    return _is_settled(condition, True)


def _is_settled(condition: ir.TypedExpression | None, value: object) -> bool:
    return isinstance(condition, ir.Constant) and condition.value is value


def _make_constant(value: object) -> ir.Constant:
    return ir.Constant(type=BOOLEAN, value=value)


class _Folder:
    def __init__(self, known: Collection[str], *, is_success: bool) -> None:
        self._known = known
        self._is_success = is_success

    def fold(self, node: ir.TypedExpression, *, as_condition: bool) -> ir.TypedExpression:
        match node:
            case ir.NodeVariable(name="success"):
                return _make_constant(self._is_success)
            case ir.FieldOf(target=ir.NodeVariable(name="error"), name="occurred"):
                return _make_constant(not self._is_success)
            case ir.Not():
                operand = self.fold(node.operand, as_condition=True)
                if isinstance(operand, ir.Constant) and isinstance(operand.value, bool):
                    return _make_constant(not operand.value)
                return msgspec.structs.replace(node, operand=operand)
            case ir.Logic():
                return self._logic(node, as_condition=as_condition)
            case ir.Compare():
                left, right = (self.fold(part, as_condition=False) for part in (node.left, node.right))
                return msgspec.structs.replace(node, left=left, right=right)
        return node

    def _logic(self, node: ir.Logic, *, as_condition: bool) -> ir.TypedExpression:
        left, right = (self.fold(part, as_condition=True) for part in (node.left, node.right))
        folded = msgspec.structs.replace(node, left=left, right=right)
        decides = node.operator == "or"  # the value of the left operand that decides alone
        if _is_settled(left, decides):
            return _make_constant(node.operator != "and")
        if _is_settled(left, not decides):
            return right if as_condition or _is_boolean(right) else folded
        if node.operator == "implies":
            return _make_constant(True) if _is_settled(right, True) and self._is_calm(left) else folded
        if _is_settled(right, decides) and self._is_calm(left):
            return _make_constant(decides)
        if _is_settled(right, not decides):
            return left if as_condition or _is_boolean(left) else folded
        return folded

    def _is_calm(self, node: ir.TypedExpression) -> bool:
        """Return whether evaluating a condition surely neither raises nor asks the host."""
        match node:
            case ir.Constant(value=value):
                return isinstance(value, bool)
            case ir.Not():
                return self._is_calm(node.operand)
            case ir.Logic():
                return self._is_calm(node.left) and self._is_calm(node.right)
            case ir.Compare(operator="==" | "!="):
                return self._is_plain(node.left) and self._is_plain(node.right)
            case ir.Membership(collection=ir.ListOf(items=items)):
                texts = all(isinstance(item, ir.Constant) and isinstance(item.value, str) for item in items)
                return texts and self._is_plain(node.item)
            case ir.IsNull():
                return self._is_plain(node.operand)
        return False

    def _is_plain(self, node: ir.TypedExpression) -> bool:
        return isinstance(node, ir.Constant) or (isinstance(node, ir.NodeVariable) and node.name in self._known)


def _is_boolean(node: ir.TypedExpression) -> bool:
    return isinstance(node, _CONDITIONS) or (isinstance(node, ir.Constant) and isinstance(node.value, bool))


_Number = int | Decimal
_Bound = tuple[_Number, bool]  # a limit, and whether the value may be the limit itself
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_REPEATABLE: Final = (
    ir.Constant,
    ir.NodeVariable,
    ir.FieldOf,
    ir.Length,
    ir.Compare,
    ir.Logic,
    ir.Not,
    ir.Membership,
    ir.IsNull,
    ir.ListOf,
    ir.Arithmetic,
    ir.Negate,
)


class KnownFacts:
    """Conditions about inputs that hold from some place on, since a check before it would have raised.

    A fact is a lower or an upper limit of a number or a length, or a condition as it was written. Only inputs that no
    step assigns are known, and only conditions whose value cannot change.
    """

    def __init__(self, inputs: Collection[str] = ()) -> None:
        self._inputs = frozenset(inputs)
        self._lows: dict[Any, _Bound] = {}
        self._highs: dict[Any, _Bound] = {}
        self._conditions: set[Any] = set()

    def learn(self, condition: ir.TypedExpression | None, subject: str = "") -> None:
        """Take over a condition that holds; `subject` is the input that its `value` means."""
        if isinstance(condition, ir.Logic) and condition.operator == "and":
            self.learn(condition.left, subject)
            self.learn(condition.right, subject)
            return
        key = self._key(condition, subject)
        if key is None:
            return
        self._conditions.add(key)
        limit = self._limit(condition, subject)
        if limit is None:
            return
        place, operator, number = limit
        if operator in (">", ">=", "=="):
            self._lows[place] = max(self._lows.get(place, (number, True)), (number, operator != ">"), key=_by_low)
        if operator in ("<", "<=", "=="):
            self._highs[place] = min(self._highs.get(place, (number, True)), (number, operator != "<"), key=_by_high)

    def imply(self, condition: ir.TypedExpression | None, subject: str = "") -> bool:
        """Return whether the condition surely holds."""
        if isinstance(condition, ir.Logic) and condition.operator == "and":
            return self.imply(condition.left, subject) and self.imply(condition.right, subject)
        key = self._key(condition, subject)
        if key is None:
            return False
        limit = self._limit(condition, subject)
        return key in self._conditions or (limit is not None and self._is_within(*limit))

    def _is_within(self, place: Any, operator: str, number: _Number) -> bool:
        if operator in (">", ">=") and place in self._lows:
            return _by_low(self._lows[place]) >= _by_low((number, operator == ">="))
        if operator in ("<", "<=") and place in self._highs:
            return _by_high(self._highs[place]) <= _by_high((number, operator == "<="))
        return False

    def _limit(self, condition: ir.TypedExpression | None, subject: str) -> tuple[Any, str, _Number] | None:
        """Return the subject of a comparison with a number, the operator with the subject on the left, and the
        number."""
        if not isinstance(condition, ir.Compare):
            return None
        mirrored = _MIRRORED[condition.operator]
        for side, operator, other in (
            (condition.left, condition.operator, condition.right),
            (condition.right, mirrored, condition.left),
        ):
            if isinstance(other, ir.Constant) and type(other.value) in (int, Decimal):
                if isinstance(side, ir.Length) and operator in (">", "<") and type(other.value) is int:
                    whole = other.value + 1 if operator == ">" else other.value - 1
                    return self._key(side, subject), f"{operator}=", whole
                return self._key(side, subject), operator, other.value
        return None

    def _key(self, node: object, subject: str) -> Any:
        """Return an expression without its types and places; None of one whose value may change."""
        if isinstance(node, tuple):
            inner = tuple(self._key(part, subject) for part in node)
            return None if None in inner else inner
        if not isinstance(node, _REPEATABLE):
            return node if isinstance(node, str) else None
        if isinstance(node, ir.Constant):
            is_number = type(node.value) in (int, Decimal)
            return (
                "number" if is_number else type(node.value).__name__,
                repr(node.value) if not is_number else node.value,
            )
        if isinstance(node, ir.NodeVariable):
            name = subject if subject and node.name == "value" else node.name
            return ("name", name) if name in self._inputs else None
        fields = [field for field in node.__struct_fields__ if field not in ("type", "place")]
        inner = tuple(self._key(getattr(node, field), subject) for field in fields)
        return None if None in inner else (type(node).__name__, *inner)


def _by_low(bound: _Bound) -> tuple[_Number, bool]:
    """Order lower limits: a value above the limit is further up than one that may be the limit."""
    return bound[0], not bound[1]


def _by_high(bound: _Bound) -> tuple[_Number, bool]:
    return bound[0], bound[1]
