"""Values of generated code: each kind of node as an expression of Python's.

Where both kinds are known an operator is Python's own with what Vega asks besides (64 bits, truncation, no negative
index); where they are not it is the machine's function for it. Small results are let through by one comparison that
Python does quickly.
"""

from __future__ import annotations

import ast
from typing import Any, Final

from lyra.vega.machine.pure import GiveUp
from lyra.vega.machine.pure.kinds import Look, Row, RowFacts, Trees, called, is_positive, row_name
from lyra.vega.machine.pure.pieces import LOAD, SMALL, STORE, call, compare, constant, fitting, named
from lyra.vega.stdlib.natives import native

STEP_MAX: Final = 1 << 30
_NUMBERS: Final = frozenset({"int", "float"})
ARITHMETIC: Final[dict[str, type[ast.operator]]] = {"+": ast.Add, "-": ast.Sub, "*": ast.Mult}
GENERAL: Final = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide", "%": "remainder"}
_ORDERINGS: Final[dict[str, type[ast.cmpop]]] = {"<": ast.Lt, "<=": ast.LtE, ">": ast.Gt, ">=": ast.GtE}
_EQUALITIES: Final[dict[str, type[ast.cmpop]]] = {"==": ast.Eq, "!=": ast.NotEq}


class Values:
    def __init__(self, trees: Trees, row: Row, rows: dict[Row, RowFacts], into: dict[str, Any]) -> None:
        self.facts = rows[row]
        self.look = Look.again(trees, row, rows)
        self.into = into
        self.temporaries = 0
        self.least: dict[int, int] = {}  # of slots that a test before has bounded
        self.bounded: set[int] = set()  # slots that a loop's condition keeps from overflowing in their one step

    # ------------------------------------------------------------ kinds

    def kind(self, node: list[Any]) -> str:
        return self.look.kind(node)

    def _kinds(self, node: list[Any]) -> tuple[str, str]:
        return self.kind(node[2]), self.kind(node[3])

    def _is_positive(self, node: list[Any]) -> bool:
        return is_positive(node, self.facts.positive)

    def _is_safe(self, node: list[Any], slot: int = -1) -> bool:
        """Whether an int result cannot leave 64 bits."""
        _, operator, left, right = node
        if right[0] != "constant" or not 0 <= right[1] < STEP_MAX:
            return False
        if operator == "-":
            return self._is_positive(left) or (left[0] == "slot" and left[1] in self.least)
        return operator == "+" and left == ["slot", slot] and right[1] == 1 and slot in self.bounded

    # ------------------------------------------------------------ values

    def value(self, node: list[Any]) -> ast.expr:
        expression: ast.expr = getattr(self, f"_{node[0]}")(*node[1:])
        return expression

    def condition(self, node: list[Any]) -> ast.expr:
        expression = self.value(node)
        return expression if self.kind(node) == "bool" else call("sure", expression)

    def _temporary(self) -> str:
        self.temporaries += 1
        return f"t{self.temporaries}"

    def _twice(self, node: list[Any]) -> tuple[ast.expr, ast.expr]:
        """A value to be used two times: where it is computed, and where it is used again."""
        if node[0] in ("slot", "constant"):
            return self.value(node), self.value(node)
        name = self._temporary()
        return ast.NamedExpr(ast.Name(name, STORE), self.value(node)), named(name)

    def _constant(self, value: Any) -> ast.expr:
        return constant(value)

    def _slot(self, slot: int) -> ast.expr:
        return named(f"v{slot}")

    def _plain(self, node: list[Any]) -> ast.expr:
        return ast.BinOp(self.value(node[2]), ARITHMETIC[node[1]](), self.value(node[3]))

    def _binary(self, operator: str, left: list[Any], right: list[Any]) -> ast.expr:
        if operator in ("&&", "||"):
            joined: ast.boolop = ast.And() if operator == "&&" else ast.Or()
            return ast.BoolOp(joined, [self.condition(left), self.condition(right)])
        kinds = (self.kind(left), self.kind(right))
        if operator in _ORDERINGS:
            return self._ordering(operator, left, right, kinds)
        if operator in _EQUALITIES:
            return self._equality(operator, left, right, kinds)
        if kinds == ("int", "int"):
            return self._ints(operator, left, right)
        if kinds[0] in _NUMBERS and kinds[1] in _NUMBERS and operator in ARITHMETIC:
            return ast.BinOp(self.value(left), ARITHMETIC[operator](), self.value(right))
        if kinds == ("float", "float") and operator == "/":
            return ast.BinOp(self.value(left), ast.Div(), self.value(right))
        if "any" in kinds and operator in ("+", "-") and set(kinds) <= {"any", "int"}:
            return self._maybe_ints(operator, left, right)
        return call(GENERAL[operator], self.value(left), self.value(right))

    def _maybe_ints(self, operator: str, left: list[Any], right: list[Any]) -> ast.expr:
        """Two ints where they are, else whatever the machine does."""
        first, again = self._twice(left)
        second, once_more = self._twice(right)
        name = self._temporary()
        both = ast.BinOp(self._is_int(first), ast.BitAnd(), self._is_int(second))
        result = ast.NamedExpr(ast.Name(name, STORE), ast.BinOp(again, ARITHMETIC[operator](), once_more))
        small = compare(constant(-SMALL), (ast.Lt, result), (ast.Lt, constant(SMALL)))
        test = ast.BoolOp(ast.And(), [both, small])
        return ast.IfExp(test, named(name), call(GENERAL[operator], again, once_more))

    def _is_int(self, value: ast.expr) -> ast.expr:
        return compare(call("type", value), (ast.Is, named("int")))

    def _ints(self, operator: str, left: list[Any], right: list[Any]) -> ast.expr:
        node = ["binary", operator, left, right]
        if operator in ARITHMETIC:
            if self._is_safe(node):
                return self._plain(node)
            name = self._temporary()
            result = ast.NamedExpr(ast.Name(name, STORE), self._plain(node))
            return ast.IfExp(fitting(result, named(name), self._is_positive(node)), named(name), call("give_up"))
        # `/` and `%` truncate: Python's do too where nothing is negative.
        python: ast.operator = ast.FloorDiv() if operator == "/" else ast.Mod()
        divisor_fits = right[0] == "constant" and right[1] > 0
        if divisor_fits and self._is_positive(left):
            return ast.BinOp(self.value(left), python, self.value(right))
        first, again = self._twice(left)
        second, once_more = self._twice(right)
        test = ast.BinOp(compare(first, (ast.GtE, constant(0))), ast.BitAnd(), compare(second, (ast.Gt, constant(0))))
        return ast.IfExp(test, ast.BinOp(again, python, once_more), call(GENERAL[operator], again, once_more))

    def _ordering(self, operator: str, left: list[Any], right: list[Any], kinds: tuple[str, str]) -> ast.expr:
        is_known = (kinds[0] in _NUMBERS and kinds[1] in _NUMBERS) or kinds == ("str", "str")
        if is_known:
            return compare(self.value(left), (_ORDERINGS[operator], self.value(right)))
        name = "less" if operator in ("<", ">") else "less_or_equal"
        if operator in ("<", "<="):
            return call(name, self.value(left), self.value(right))
        first, again = self._twice(left)  # the left side is computed first all the same
        if first is again or left[0] in ("slot", "constant"):
            return call(name, self.value(right), first)
        return ast.Subscript(ast.Tuple([first, call(name, self.value(right), again)], LOAD), constant(1), LOAD)

    def _equality(self, operator: str, left: list[Any], right: list[Any], kinds: tuple[str, str]) -> ast.expr:
        is_known = (kinds[0] in _NUMBERS and kinds[1] in _NUMBERS) or (
            kinds[0] == kinds[1] and kinds[0] in ("str", "bool", "null")
        )
        if is_known:
            return compare(self.value(left), (_EQUALITIES[operator], self.value(right)))
        comparison = call("equal", self.value(left), self.value(right))
        return comparison if operator == "==" else ast.UnaryOp(ast.Not(), comparison)

    def _not(self, value: list[Any]) -> ast.expr:
        return ast.UnaryOp(ast.Not(), self.condition(value))

    def _negate(self, value: list[Any]) -> ast.expr:
        if self.kind(value) == "float":
            return ast.UnaryOp(ast.USub(), self.value(value))
        return call("negate", self.value(value))

    def _list(self, items: list[Any]) -> ast.expr:
        return ast.List([self.value(item) for item in items], LOAD)

    def _map(self, pairs: list[Any]) -> ast.expr:
        keys: list[ast.expr | None] = [
            self.value(key) if self.kind(key) in ("str", "int") else call("key", self.value(key)) for key, _ in pairs
        ]
        return ast.Dict(keys, [self.value(value) for _, value in pairs])

    def _index(self, whole: list[Any], index: list[Any]) -> ast.expr:
        kinds = (self.kind(whole), self.kind(index))
        if kinds[0] in ("list", "str") and kinds[1] == "int" and self._is_positive(index):
            return ast.Subscript(self.value(whole), self.value(index), LOAD)
        if kinds[0] == "map" and kinds[1] in ("str", "int"):
            return ast.Subscript(self.value(whole), self.value(index), LOAD)
        return call("index", self.value(whole), self.value(index))

    def _length(self, value: list[Any]) -> ast.expr:
        return call("len" if self.kind(value) in ("list", "str", "map") else "length", self.value(value))

    def _join(self, parts: list[Any]) -> ast.expr:
        return call("joined", ast.List([self.value(part) for part in parts], LOAD))

    def _append(self, node: list[Any]) -> ast.expr:
        return ast.Call(ast.Attribute(named(f"v{node[1]}"), "append", LOAD), [self.value(node[2])], [])

    def _push(self, slot: int, value: list[Any]) -> ast.expr:
        """`push` gives the list itself."""
        if self.facts.slots[slot] != "list":
            raise GiveUp
        pair = ast.Tuple([self._append(["push", slot, value]), named(f"v{slot}")], LOAD)
        return ast.Subscript(pair, constant(1), LOAD)

    def _variant(self, is_error: bool, value: list[Any]) -> ast.expr:
        return call("Err" if is_error else "Ok", self.value(value))

    def _call(self, function: int, arguments: list[Any]) -> ast.expr:
        row = called(function, tuple(self.kind(value) for value in arguments), self.look.results)
        values = [self.value(value) for value in arguments]
        # A call without a row is unreachable: one of its arguments has no value.
        return call(row_name(row) if row in self.look.results else "give_up", *values)

    def _library(self, full: str, arguments: list[Any]) -> ast.expr:
        name = "l_" + full.replace("::", "_")
        self.into[name] = native(full)
        return call(name, *(self.value(value) for value in arguments))
