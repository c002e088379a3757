"""The Python of pure functions: from a typed tree to an `ast` tree, and from that to a function.

Nothing of a program's text is in it: variables are `v0 v1 …`, constants are constants, functions are looked up by the
row of kinds they were made for. Statements are here, values in `expressions`. `STOP` and `PAUSE` are names in the
functions' own namespace: the watch sets them when another process waits. Every call and every turn of a loop looks at
`STOP`; but a function that loops is made a second time, as a generator that the machine calls, and that looks at
`PAUSE`: it yields in the middle of its loop and goes on there later.
"""

from __future__ import annotations

import ast
from typing import Any

from lyra.core.limits import VEGA_STRING_CHARS_MAX
from lyra.vega.bytecode.pure_shapes import CHANGING, nodes
from lyra.vega.machine import rare_instructions as machinery
from lyra.vega.machine.pure import GiveUp
from lyra.vega.machine.pure.expressions import ARITHMETIC, GENERAL, STEP_MAX, Values
from lyra.vega.machine.pure.kinds import Row, RowFacts, Trees, outer_name, row_name
from lyra.vega.machine.pure.pieces import STORE, assigned, call, compare, constant, fitting, give_up, named
from lyra.vega.values import operators, values


def _sure(value: Any) -> bool:
    if value is True or value is False:
        return bool(value)
    raise GiveUp


def _gave_up(*_: Any) -> Any:
    raise GiveUp


def _walked(value: Any) -> Any:
    walked = operators.iterable(value)
    if type(walked) is values.Stream:
        raise GiveUp
    return walked


def namespace() -> dict[str, Any]:
    """What generated functions see: the machine's own functions. (`STOP` and `PAUSE` are there already.)"""
    return {
        "__builtins__": {"len": len, "list": list, "type": type, "int": int, "GiveUp": GiveUp},
        "give_up": _gave_up,
        "equal": values.equal,
        "shown": values.shown,
        "joined": machinery.joined,
        "sure": _sure,
        "walked": _walked,
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
        return ast.If(named("STOP"), [give_up()], [])

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
            assignment = assigned(name, self._plain(value))
            return (
                [assignment]
                if self._is_safe(value, slot)
                else [assignment, self._check(name, self._is_positive(value))]
            )
        if value[0] == "binary" and value[1] == "+" and self._kinds(value) == ("str", "str"):
            assignment = assigned(name, self._plain(value))
            return [assignment, self._check_length(name)]
        return [assigned(name, self.value(value))]

    def _check(self, name: str, is_positive: bool) -> ast.stmt:
        fits = fitting(named(name), named(name), is_positive)
        return ast.If(ast.UnaryOp(ast.Not(), fits), [give_up()], [])

    def _check_length(self, name: str) -> ast.stmt:
        over = compare(call("len", named(name)), (ast.Gt, constant(VEGA_STRING_CHARS_MAX)))
        return ast.If(over, [give_up()], [])

    def _store_statement(self, slot: int, index: list[Any], value: list[Any]) -> list[ast.stmt]:
        whole, kinds = named(f"v{slot}"), (self.facts.slots[slot], self.kind(index))
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
        """The slot `i` of `while i < n { …; i = i + 1; }` whose one step, at the end of a turn, cannot overflow."""
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
        return ast.If(named("PAUSE"), [ast.Expr(ast.Yield(None))], [])


def _changes(value: list[Any]) -> bool:
    """Whether computing a value changes a list or map."""
    return any(node[0] == "push" or (node[0] == "library" and node[1] in CHANGING) for node in nodes([value]))


def _count_sets(statements: list[Any], slot: int) -> int:
    """How often these may set a slot in one turn; two for one that is inside another loop."""
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
