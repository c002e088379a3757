"""The Python of pure functions: from a typed tree to an `ast` tree, and from that to a function.

Nothing of a program's text is in it: variables are `v0 v1 …`, constants are constants, functions are looked up by the
row of kinds they were made for. `STOP` and `PAUSE` are names in the
functions' own namespace: the watch sets them when another process waits. Every call and every turn of a loop looks at
`STOP`; but a function that loops is made a second time, as a generator that the machine calls, and that looks at
`PAUSE`: it yields in the middle of its loop and continues there later.
"""

from __future__ import annotations

import ast
from typing import Any, Final

from lyra.core.limits import VEGA_STRING_CHARS_MAX
from lyra.vega.bytecode.pure_shapes import CHANGING, nodes
from lyra.vega.machine import rare_instructions as machinery
from lyra.vega.machine.pure import GiveUp
from lyra.vega.machine.pure.kinds import Look, Row, RowFacts, Trees, choose_row, is_positive, outer_name, row_name
from lyra.vega.stdlib.natives import native
from lyra.vega.values import operators, values
from lyra.vega.values.values import INT_MAX, INT_MIN

# ---------------- Values of generated code: each kind of node as an expression of Python's
# Where both kinds are known an operator is Python's own with what Vega asks besides (64 bits, truncation, no negative
# index); where they are not it is the machine's function for it.

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
        """Return whether an int result cannot leave 64 bits."""
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
        """Return a value to be used two times: where it is computed, and where it is used again."""
        if node[0] in ("slot", "constant"):
            return self.value(node), self.value(node)
        name = self._temporary()
        return ast.NamedExpr(ast.Name(name, STORE), self.value(node)), load_name(name)

    def _constant(self, value: Any) -> ast.expr:
        return constant(value)

    def _slot(self, slot: int) -> ast.expr:
        return load_name(f"v{slot}")

    def _plain(self, node: list[Any]) -> ast.expr:
        return ast.BinOp(self.value(node[2]), ARITHMETIC[node[1]](), self.value(node[3]))

    def _binary(self, operator: str, left: list[Any], right: list[Any]) -> ast.expr:
        if operator in ("&&", "||"):
            joined: ast.boolop = ast.And() if operator == "&&" else ast.Or()
            return ast.BoolOp(joined, [self.condition(left), self.condition(right)])
        kinds = (self.kind(left), self.kind(right))
        if operator in _ORDERINGS:
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
        if operator in _EQUALITIES:
            return self._equality(operator, left, right, kinds)
        if kinds == ("int", "int"):
            return self._ints(operator, left, right)
        if kinds[0] in _NUMBERS and kinds[1] in _NUMBERS and operator in ARITHMETIC:
            return ast.BinOp(self.value(left), ARITHMETIC[operator](), self.value(right))
        if kinds == ("float", "float") and operator == "/":
            return ast.BinOp(self.value(left), ast.Div(), self.value(right))
        if "any" in kinds and operator in ("+", "-") and set(kinds) <= {"any", "int"}:
            first, again = self._twice(left)
            second, once_more = self._twice(right)
            name = self._temporary()
            both = ast.BinOp(self._is_int(first), ast.BitAnd(), self._is_int(second))
            result = ast.NamedExpr(ast.Name(name, STORE), ast.BinOp(again, ARITHMETIC[operator](), once_more))
            small = compare(constant(-SMALL), (ast.Lt, result), (ast.Lt, constant(SMALL)))
            test = ast.BoolOp(ast.And(), [both, small])
            return ast.IfExp(test, load_name(name), call(GENERAL[operator], again, once_more))
        return call(GENERAL[operator], self.value(left), self.value(right))

    def _is_int(self, value: ast.expr) -> ast.expr:
        return compare(call("type", value), (ast.Is, load_name("int")))

    def _ints(self, operator: str, left: list[Any], right: list[Any]) -> ast.expr:
        node = ["binary", operator, left, right]
        if operator in ARITHMETIC:
            if self._is_safe(node):
                return self._plain(node)
            name = self._temporary()
            result = ast.NamedExpr(ast.Name(name, STORE), self._plain(node))
            return ast.IfExp(
                fitting(result, load_name(name), self._is_positive(node)), load_name(name), call("give_up")
            )
        # `/` and `%` truncate: Python's do too where nothing is negative.
        python: ast.operator = ast.FloorDiv() if operator == "/" else ast.Mod()
        divisor_fits = right[0] == "constant" and right[1] > 0
        if divisor_fits and self._is_positive(left):
            return ast.BinOp(self.value(left), python, self.value(right))
        first, again = self._twice(left)
        second, once_more = self._twice(right)
        test = ast.BinOp(compare(first, (ast.GtE, constant(0))), ast.BitAnd(), compare(second, (ast.Gt, constant(0))))
        return ast.IfExp(test, ast.BinOp(again, python, once_more), call(GENERAL[operator], again, once_more))

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
        return ast.Call(ast.Attribute(load_name(f"v{node[1]}"), "append", LOAD), [self.value(node[2])], [])

    def _push(self, slot: int, value: list[Any]) -> ast.expr:
        """`push` gives the list itself."""
        if self.facts.slots[slot] != "list":
            raise GiveUp
        pair = ast.Tuple([self._append(["push", slot, value]), load_name(f"v{slot}")], LOAD)
        return ast.Subscript(pair, constant(1), LOAD)

    def _variant(self, is_error: bool, value: list[Any]) -> ast.expr:
        return call("Err" if is_error else "Ok", self.value(value))

    def _call(self, function: int, arguments: list[Any]) -> ast.expr:
        row = choose_row(function, tuple(self.kind(value) for value in arguments), self.look.results)
        values = [self.value(value) for value in arguments]
        # A call without a row is unreachable: one of its arguments has no value.
        return call(row_name(row) if row in self.look.results else "give_up", *values)

    def _library(self, full: str, arguments: list[Any]) -> ast.expr:
        name = "l_" + full.replace("::", "_")
        self.into[name] = native(full)
        return call(name, *(self.value(value) for value in arguments))


# ---------------- Pieces of Python's `ast` that generated code is put together from

SMALL: Final = 0x3FFFFFFF  # one digit of a Python int
LOAD, STORE = ast.Load(), ast.Store()


def load_name(name: str) -> ast.Name:
    return ast.Name(name, LOAD)


def constant(value: Any) -> ast.expr:
    return ast.Constant(value)


def call(name: str, *arguments: ast.expr) -> ast.expr:
    return ast.Call(load_name(name), list(arguments), [])


def compare(left: ast.expr, *rest: tuple[type[ast.cmpop], ast.expr]) -> ast.expr:
    return ast.Compare(left, [operator() for operator, _ in rest], [value for _, value in rest])


def give_up() -> ast.stmt:
    return ast.Raise(load_name("GiveUp"), None)


def make_assignment(name: str, value: ast.expr) -> ast.stmt:
    return ast.Assign([ast.Name(name, STORE)], value)


def fitting(value: ast.expr, again: ast.expr, is_positive: bool) -> ast.expr:
    """Test whether an int fits 64 bits. Small ones are let through first: Python compares those quickly."""
    if is_positive:
        tests = [compare(value, (ast.Lt, constant(SMALL))), compare(again, (ast.LtE, constant(INT_MAX)))]
    else:
        tests = [
            compare(constant(-SMALL), (ast.Lt, value), (ast.Lt, constant(SMALL))),
            compare(constant(INT_MIN), (ast.LtE, again), (ast.LtE, constant(INT_MAX))),
        ]
    return ast.BoolOp(ast.Or(), tests)


def _sure(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise GiveUp


def _gave_up(*_: Any) -> Any:
    raise GiveUp


def _to_iterable(value: Any) -> Any:
    walked = operators.iterable(value)
    if type(walked) is values.Stream:
        raise GiveUp
    return walked


def namespace() -> dict[str, Any]:
    """Return what generated functions see: the machine's own functions. (`STOP` and `PAUSE` are there already.)"""
    return {
        "__builtins__": {"len": len, "list": list, "type": type, "int": int, "GiveUp": GiveUp},
        "give_up": _gave_up,
        "equal": values.equal,
        "shown": values.render,
        "joined": machinery.join_parts,
        "sure": _sure,
        "walked": _to_iterable,
        "Ok": values.Ok,
        "Err": values.Err,
        **{name: getattr(operators, name) for name in (*GENERAL.values(), "less", "less_or_equal", "negate")},
        **{name: getattr(operators, name) for name in ("index", "store", "length", "key")},
    }


def python_of(
    trees: Trees, facts: dict[Row, RowFacts], rows: list[Row], into: dict[str, Any], outer: Row | None = None
) -> None:
    """Put the functions of these rows into a namespace, where those of the other rows are; and the generator of one."""
    bodies: list[ast.stmt] = [_GeneratedFunction(trees, row, facts, into).function() for row in rows]
    if outer is not None:
        bodies.append(_Generator(trees, outer, facts, into).function())
    module = ast.Module(body=bodies, type_ignores=[])
    ast.fix_missing_locations(module)
    exec(compile(module, "<vega tier 2>", "exec"), into)  # noqa: S102 - of a tree made here, from checked parts


class _GeneratedFunction(Values):
    def __init__(self, trees: Trees, row: Row, rows: dict[Row, RowFacts], into: dict[str, Any]) -> None:
        super().__init__(trees, row, rows, into)
        self.row = row
        self.parameters, _, self.body = trees[row[0]][:3]
        self.steps: list[list[Any]] = []  # what `continue` has to do first

    def function(self) -> ast.stmt:
        arguments = [ast.arg(f"v{slot}") for slot in range(self.parameters)]
        body = [*self._first(), *self.block(self.body), ast.Return(constant(None))]
        spec = ast.arguments(posonlyargs=[], args=arguments, kwonlyargs=[], kw_defaults=[], defaults=[])
        definition = ast.FunctionDef(self._name(), spec, body, [])
        definition.type_params = []  # type: ignore[attr-defined]  # asked for since Python 3.12
        return definition

    def _name(self) -> str:
        return row_name(self.row)

    def _first(self) -> list[ast.stmt]:
        return [self._poll()]

    def _poll(self) -> ast.stmt:
        return ast.If(load_name("STOP"), [give_up()], [])

    # ------------------------------------------------------------ statements

    def block(self, statements: list[Any]) -> list[ast.stmt]:
        lines: list[ast.stmt] = []
        outer = dict(self.least)
        for statement in statements:
            lines += self.statement(statement)
            self._learn(statement)
        self.least = outer
        return lines or [ast.Pass()]

    def _learn(self, node: list[Any]) -> None:
        """After `if n < 2 { return … }` an `n` that is never set is at least 2."""
        if node[0] != "if" or node[3] or not node[2] or node[2][-1][0] not in ("return", "give up"):
            return
        condition = node[1]
        if condition[0] != "binary" or condition[1] not in ("<", "<="):
            return
        _, operator, left, right = condition
        is_bounded = left[0] == "slot" and left[1] in self.facts.steady and self.kind(left) == "int"
        if is_bounded and right[0] == "constant" and type(right[1]) is int and abs(right[1]) < STEP_MAX:
            self.least[left[1]] = right[1] + (operator == "<=")

    def statement(self, node: list[Any]) -> list[ast.stmt]:
        lines: list[ast.stmt] = getattr(self, f"_{node[0].replace(' ', '_')}_statement")(*node[1:])
        return lines

    def _set_statement(self, slot: int, value: list[Any]) -> list[ast.stmt]:
        name = f"v{slot}"
        if value[0] == "binary" and value[1] in ARITHMETIC and self._kinds(value) == ("int", "int"):
            assignment = make_assignment(name, self._plain(value))
            return (
                [assignment]
                if self._is_safe(value, slot)
                else [assignment, self._check(name, self._is_positive(value))]
            )
        if value[0] == "binary" and value[1] == "+" and self._kinds(value) == ("str", "str"):
            assignment = make_assignment(name, self._plain(value))
            over = compare(call("len", load_name(name)), (ast.Gt, constant(VEGA_STRING_CHARS_MAX)))
            return [assignment, ast.If(over, [give_up()], [])]
        return [make_assignment(name, self.value(value))]

    def _check(self, name: str, is_positive: bool) -> ast.stmt:
        fits = fitting(load_name(name), load_name(name), is_positive)
        return ast.If(ast.UnaryOp(ast.Not(), fits), [give_up()], [])

    def _store_statement(self, slot: int, index: list[Any], value: list[Any]) -> list[ast.stmt]:
        whole, kinds = load_name(f"v{slot}"), (self.facts.slots[slot], self.kind(index))
        is_plain = (kinds == ("list", "int") and self._is_positive(index)) or (
            kinds[0] == "map" and kinds[1] in ("str", "int")
        )
        # Python evaluates the value before the index, which is the same unless one of them changes something.
        if is_plain and (index[0] in ("slot", "constant") or not (_changes(index) or _changes(value))):
            return [ast.Assign([ast.Subscript(whole, self.value(index), STORE)], self.value(value))]
        return [ast.Expr(call("store", whole, self.value(index), self.value(value)))]

    def _if_statement(self, condition: list[Any], then: list[Any], otherwise: list[Any]) -> list[ast.stmt]:
        test = self.condition(condition)
        return [ast.If(test, self.block(then), self.block(otherwise) if otherwise else [])]

    def _while_statement(self, condition: list[Any], body: list[Any], step: list[Any]) -> list[ast.stmt]:
        counter = self._counter(condition, [*body, *step])
        fresh = counter - self.bounded
        self.bounded |= fresh
        self.steps.append(step)
        loop_body = [self._poll(), *self.block(body)]
        loop_body += self.block(step) if step else []
        self.steps.pop()
        self.bounded -= fresh
        return [ast.While(self.condition(condition), loop_body, [])]

    def _counter(self, condition: list[Any], body: list[Any]) -> set[int]:
        """Return the slot `i` of `while i < n { …; i = i + 1; }` whose one step, at the end of a turn, cannot
        overflow."""
        if condition[0] != "binary" or condition[1] != "<" or condition[2][0] != "slot" or not body:
            return set()
        slot = condition[2][1]
        if self.kind(condition[3]) != "int" or _count_sets(body, slot) != 1:
            return set()
        step = ["set", slot, ["binary", "+", ["slot", slot], ["constant", 1]]]
        return {slot} if step in body else set()

    def _each_statement(self, slot: int, source: list[Any], body: list[Any]) -> list[ast.stmt]:
        over = self.kind(source)
        walked = self.value(source)
        if over == "map":
            walked = call("list", walked)
        elif over not in ("list", "str"):
            walked = call("walked", walked)
        self.steps.append([])
        loop_body = [self._poll(), *self.block(body)]
        self.steps.pop()
        return [ast.For(ast.Name(f"v{slot}", STORE), walked, loop_body, [])]

    def _return_statement(self, value: list[Any]) -> list[ast.stmt]:
        return [ast.Return(self.value(value))]

    def _do_statement(self, value: list[Any]) -> list[ast.stmt]:
        if value[0] == "push" and self.facts.slots[value[1]] == "list":
            return [ast.Expr(self._append(value))]
        return [ast.Expr(self.value(value))]

    def _break_statement(self) -> list[ast.stmt]:
        return [ast.Break()]

    def _continue_statement(self) -> list[ast.stmt]:
        step = self.steps[-1]
        return [*(self.block(step) if step else []), ast.Continue()]

    def _give_up_statement(self) -> list[ast.stmt]:
        return [give_up()]


class _Generator(_GeneratedFunction):
    """The function as the machine calls it: a generator, which pauses instead of giving up."""

    def _name(self) -> str:
        return outer_name(self.row)

    def _first(self) -> list[ast.stmt]:
        return []

    def _poll(self) -> ast.stmt:
        return ast.If(load_name("PAUSE"), [ast.Expr(ast.Yield(None))], [])


def _changes(value: list[Any]) -> bool:
    """Return whether computing a value changes a list or map."""
    return any(node[0] == "push" or (node[0] == "library" and node[1] in CHANGING) for node in nodes([value]))


def _count_sets(statements: list[Any], slot: int) -> int:
    """Count how often these may set a slot in one turn; two for one that is inside another loop."""
    count = 0
    for node in statements:
        if node[0] in ("set", "each") and node[1] == slot:
            count += 1
        if node[0] == "if":
            count += _count_sets(node[2], slot) + _count_sets(node[3], slot)
        elif node[0] == "while":
            count += 2 * _count_sets([*node[2], *node[3]], slot)
        elif node[0] == "each":
            count += 2 * _count_sets(node[3], slot)
    return count
