"""Conditions that are known before a node runs, so that generated code does not test them.

`fold_answer` puts in what is known about the answer: in a check of a success, `success` is true and `error.occurred` is
false, in a check of an error the other way round. What follows from that by `AND`, `OR`, `NOT` and `=>` is settled; an
operand that may raise is never dropped. Nothing here looks at values: that is the work of the generated code.
"""

from __future__ import annotations

from collections.abc import Collection

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
