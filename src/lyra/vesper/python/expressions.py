"""Python expressions for expressions of the IR.

Values of known types become Python's own operators; values that only a run knows go through the runtime. A result that
must be checked (an integer's range) is checked by a statement before the expression where statements may stand, and by
a call where they may not: behind `and` and `or`, and inside comprehensions. The order of evaluation is that of the
expression as it was written.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Final

import msgspec

from lyra.vesper import ir
from lyra.vesper.charges import is_charged
from lyra.vesper.expressions.functions import FUNCTIONS
from lyra.vesper.python.kinds import FULL, Interval, interval_of, is_decimal, is_number, item_kind, kind_of
from lyra.vesper.python.syntax import (
    DataRecord,
    ModuleParts,
    assign,
    attribute,
    call,
    compare,
    if_,
    name,
    negate,
    raise_,
)
from lyra.vesper.values.types import (
    ANY,
    BOOLEAN,
    BYTES,
    INTEGER,
    NULL,
    STRING,
    TIMESTAMP,
    Array,
    EnumType,
    MapType,
    Nullable,
    RecordType,
    SetType,
    ValueType,
)

_ORDERS: Final[dict[str, tuple[type[ast.cmpop], str]]] = {
    "<": (ast.Lt, "less"),
    "<=": (ast.LtE, "less_equal"),
    ">": (ast.Gt, "greater"),
    ">=": (ast.GtE, "greater_equal"),
}
_ARITHMETIC: Final[dict[str, tuple[type[ast.operator], str]]] = {
    "+": (ast.Add, "add"),
    "-": (ast.Sub, "subtract"),
    "*": (ast.Mult, "multiply"),
    "/": (ast.Div, "divide"),
    "%": (ast.Mod, "remainder"),
}
_AGGREGATES: Final = {"count": "count", "avg": "average", "min": "smallest", "max": "largest", "sum": "total"}
_FUNCTIONS: Final = {
    "abs": "absolute",
    "floor": "floor",
    "ceil": "ceil",
    "round": "round_number",
    "div": "divide_whole",
    "min": "smallest_of",
    "max": "largest_of",
    "clamp": "clamp",
    "len": "size",
    "lower": "to_lower",
    "upper": "to_upper",
    "trim": "trim_text",
    "starts_with": "starts_with",
    "ends_with": "ends_with",
    "matches": "regex_matches",
    "slice": "part_of",
    "replace": "replace_text",
    "split": "split_text",
    "join": "join_texts",
    "pad_left": "pad_left",
    "pad_right": "pad_right",
    "parse_integer": "integer_from",
    "parse_decimal": "decimal_from",
    "append": "append_element",
    "concat": "concatenate_lists",
    "sort": "sort_list",
    "reverse": "reverse_list",
    "distinct": "distinct",
    "take": "first_of",
    "zip": "pairs",
    "get": "item_or",
    "keys": "keys_of",
    "values": "values_of",
    "put": "with_entry",
    "map_of": "map_from",
    "map_key": "map_key",
    "timestamp": "parse_iso",
    "is_zone": "is_zone",
    "milliseconds": "milliseconds_in",
    "year": "year_of",
    "month": "month_of",
    "day": "day_of",
    "hour": "hour_of",
    "minute": "minute_of",
    "second": "second_of",
    "microsecond": "microsecond_of",
    "weekday": "weekday_of",
    "day_of_year": "day_of_year",
    "format_timestamp": "format_timestamp",
    "parse_timestamp": "parse_timestamp",
    "add_days": "add_days",
    "add_months": "add_months",
    "add_years": "add_years",
    "start_of": "start_of",
}
_ELEMENT_OF_CONSTRAINT: Final = re.compile(r"item_[0-9]+")  # as the checker calls the elements of an input
_SECONDS: Final = {"seconds": 1, "minutes": 60, "hours": 3600, "days": 86_400, "weeks": 604_800}


class PythonScope:
    """The names that an expression may use: their Python names, their types, their intervals."""

    def __init__(
        self,
        python: Mapping[str, str],
        kinds: Mapping[str, ValueType],
        intervals: Mapping[str, Interval] | None = None,
        absent: frozenset[str] = frozenset(),
    ) -> None:
        self.python = dict(python)
        self.kinds = dict(kinds)
        self.intervals = dict(intervals or {})
        self.absent = absent  # variables whose value may be ABSENT

    def bind(self, variable: str, python: str, kind: ValueType) -> PythonScope:
        """Return a scope in which the variable has this Python name."""
        inner = PythonScope(self.python, self.kinds, self.intervals, self.absent - {variable})
        inner.python[variable] = python
        inner.kinds[variable] = kind
        inner.intervals.pop(variable, None)
        return inner


class ExpressionWriter:
    """Writes the expressions of one place: `sink` takes statements before it, or is None where none may stand."""

    def __init__(
        self, module: ModuleParts, scope: PythonScope, sink: list[ast.stmt] | None, *, in_loop: bool = False
    ) -> None:
        self.module = module
        self.scope = scope
        self.sink = sink
        self.in_loop = in_loop
        self.may_raise = False  # whether an expression written so far can raise
        self.uses_run = False
        self.uses_host = False  # a predicate or an ambient object, which may be missing

    # ------------------------------------------------------------ helpers
    def kind(self, node: ir.TypedExpression) -> ValueType:
        return kind_of(node, self.scope.kinds)

    def helper(self, function: str, *arguments: ast.expr) -> ast.Call:
        """Return a call of the runtime that may raise."""
        self.may_raise = True
        return call(self.module.runtime(function), *arguments)

    def run_method(self, method: str, *arguments: ast.expr) -> ast.Call:
        self.uses_run = True
        return call(attribute(name("run"), method), *arguments)

    def inner(self, scope: PythonScope | None = None) -> ExpressionWriter:
        """Return a writer for a place where no statements may stand."""
        return ExpressionWriter(self.module, scope or self.scope, None, in_loop=self.in_loop or scope is not None)

    def adopt(self, other: ExpressionWriter) -> None:
        self.may_raise |= other.may_raise
        self.uses_run |= other.uses_run
        self.uses_host |= other.uses_host

    def operands(self, *nodes: ir.TypedExpression) -> list[ast.expr]:
        """Return the values in order. Where a later one needs statements, earlier ones are kept in variables before
        them."""
        values: list[ast.expr] = []
        for node in nodes:
            mark = len(self.sink) if self.sink is not None else 0
            value = self.value(node)
            if self.sink is not None and len(self.sink) > mark:
                self._keep(values, mark)
            values.append(value)
        return values

    def _keep(self, values: list[ast.expr], mark: int) -> None:
        assert self.sink is not None
        kept: list[ast.stmt] = []
        for index, value in enumerate(values):
            if not isinstance(value, ast.Name | ast.Constant):
                variable = self.module.names.fresh("operand")
                kept.append(assign(variable, value))
                values[index] = name(variable)
        self.sink[mark:mark] = kept

    def lazy(
        self, node: ir.TypedExpression, *, as_condition: bool = False, scope: PythonScope | None = None
    ) -> ast.expr:
        """Return an expression that is evaluated later, or not at all."""
        writer = self.inner(scope)
        value = writer.condition(node) if as_condition else writer.value(node)
        self.adopt(writer)
        return value

    def condition(self, node: ir.TypedExpression) -> ast.expr:
        """Return the expression as a condition: null counts as false."""
        value = self.value(node)
        if self.kind(node) == BOOLEAN:
            return value
        return self.helper("truth", value)

    # ------------------------------------------------------------ values
    def value(self, node: ir.TypedExpression) -> ast.expr:
        match node:
            case ir.Constant():
                return self.module.literal(node.value)
            case ir.NodeVariable():
                return self._name(node.name)
            case ir.Arithmetic():
                return self._arithmetic(node)
            case ir.Compare():
                return self._compare(node)
            case ir.Logic():
                return self._logic(node)
            case ir.Not():
                return negate(self.condition(node.operand))
            case ir.Negate():
                kind = self.kind(node.operand)
                value = self.value(node.operand)
                if kind == INTEGER:
                    return self._check_range(ast.UnaryOp(ast.USub(), value), interval_of(node, self.scope.intervals))
                if is_decimal(kind):
                    self.may_raise = True
                    return call(attribute(self.module.runtime("EXACT"), "minus"), value)
                return self.helper("negate", value)
            case ir.Rounded():
                how = [ast.Constant(node.scale), ast.Constant(node.rounding)]
                operand = node.operand
                if isinstance(operand, ir.Arithmetic) and operand.operator == "/":
                    return self.helper("round_quotient", *self.operands(operand.left, operand.right), *how)
                return self.helper("round_number", self.value(operand), *how)
            case ir.Membership():
                return self._membership(node)
            case ir.IsNull():
                return _is(self.value(node.operand), ast.Constant(None))
            case ir.TemplateText():
                return self._text(node)
            case ir.FunctionCall():
                return self._call(node)
            case ir.Conditional():
                condition = self.condition(node.condition)
                return ast.IfExp(condition, self.lazy(node.then), self.lazy(node.otherwise))
            case ir.Coalesce():
                return self._coalesce(node)
            case ir.Old():
                variable = name(self.scope.python[f"old({node.slot})"])
                if self.kind(node) != ANY:
                    return variable
                self.uses_host = True  # the value may have been missing
                return self.helper("recall_old", variable)
            case ir.HostCall():
                self.uses_host = True
                self.may_raise = True
                return self.run_method("ask_host", ast.Constant(node.name), *self.operands(*node.arguments))
        return self._structure(node)

    def _structure(self, node: ir.TypedExpression) -> ast.expr:
        match node:
            case ir.FieldOf():
                target = self.kind(node.target)
                value = self.value(node.target)
                if isinstance(target, DataRecord):
                    return attribute(value, node.name)
                if isinstance(target, RecordType) and target.field(node.name) is not None:
                    return ast.Subscript(value, ast.Constant(node.name), ast.Load())
                return self.helper("field", value, ast.Constant(node.name))
            case ir.Projection():
                if not isinstance(item_kind(self.kind(node.target)), DataRecord):
                    return self.helper("project", self.value(node.target), ast.Constant(node.name))
                element = self.module.names.fresh("element")
                return ast.ListComp(attribute(name(element), node.name), self._loop(element, self.value(node.target)))
            case ir.ItemOf():
                return self.helper("item", *self.operands(node.target, node.index))
            case ir.Length():
                return self._length(node.target)
            case ir.ListOf():
                return ast.List(self.operands(*node.items), ast.Load())
            case ir.MapOf():
                keys: list[ast.expr | None] = [ast.Constant(key) for key, _ in node.entries]
                return ast.Dict(keys, self.operands(*(value for _, value in node.entries)))
            case ir.Quantifier():
                elements = self.elements(node, node.collection)
                scope, python = self.bind_element(node.name, node.collection)
                body = self.lazy(node.body, as_condition=True, scope=scope)
                function = "all" if node.kind == "forall" else "any"
                return call(name(function), ast.GeneratorExp(body, self._loop(python, elements)))
            case ir.Aggregate():
                kind = self.kind(node.collection)
                is_paid = is_charged(ir.Aggregate, in_loop=self.in_loop)
                value = self.elements(node, node.collection) if is_paid else self.value(node.collection)
                if isinstance(kind, Array) and node.function == "count":
                    return call(name("len"), value)
                if isinstance(kind, Array) and node.function == "sum" and kind.item == INTEGER:
                    return self.helper("total_integers", value)
                if isinstance(kind, Array) and node.function == "sum" and is_decimal(kind.item):
                    return self.helper("total_decimals", value)
                return self.helper(_AGGREGATES[node.function], value)
            case ir.MapOver():
                return self._comprehension(node, node.body, None)
            case ir.Filter():
                return self._comprehension(node, None, node.body)
            case ir.Reduce():
                return self._reduce(node)
            case ir.GroupBy():
                return self._group_by(node)
            case ir.MatrixProduct():
                operands = self.operands(node.left, node.right)
                if is_charged(ir.MatrixProduct, in_loop=self.in_loop):
                    self.uses_run = True
                    operands.append(attribute(name("run"), "tick"))
                return self.helper("matrix_product", *operands)
        raise AssertionError(type(node).__name__)

    def _name(self, variable: str) -> ast.expr:
        python = self.scope.python.get(variable)
        if python is None:
            self.uses_host = True
            self.may_raise = True
            return self.run_method("ambient", ast.Constant(variable))
        if variable in self.scope.absent:
            return call(self.module.runtime("present"), name(python))
        return name(python)

    def _length(self, target: ir.TypedExpression) -> ast.expr:
        value = self.value(target)
        kind = self.kind(target)
        has_length = kind in (STRING, BYTES) or isinstance(kind, EnumType | Array | SetType | MapType | RecordType)
        return call(name("len"), value) if has_length else self.helper("size", value)

    # ------------------------------------------------------------ arithmetic
    def _arithmetic(self, node: ir.Arithmetic) -> ast.expr:
        kind = self.kind(node)
        left, right = self.operands(node.left, node.right)
        operator, function = _ARITHMETIC[node.operator]
        if kind == INTEGER and node.operator in ("+", "-", "*"):
            return self._check_range(ast.BinOp(left, operator(), right), interval_of(node, self.scope.intervals))
        if node.operator == "%" and kind == INTEGER and self._is_plain_remainder(node):
            return ast.BinOp(left, operator(), right)
        if kind == STRING:
            return self.helper("add_texts", left, right, *self.module.text_limit())
        if is_decimal(kind) and node.operator in ("+", "-", "*"):
            self.may_raise = True
            return call(attribute(self.module.runtime("EXACT"), function), left, right)
        limit = self.module.text_limit() if node.operator == "+" and not is_number(kind) else []
        return self.helper(function, left, right, *limit)

    def _is_plain_remainder(self, node: ir.Arithmetic) -> bool:
        """Return whether Python's own remainder is the right one: of a number that is not negative, by a positive
        one."""
        dividend = interval_of(node.left, self.scope.intervals)
        divisor = interval_of(node.right, self.scope.intervals)
        return dividend[0] >= 0 and divisor[0] > 0

    def _check_range(self, value: ast.expr, interval: Interval) -> ast.expr:
        if FULL[0] <= interval[0] and interval[1] <= FULL[1]:
            return value
        if self.sink is None:
            return self.helper("check_integer", value)
        self.may_raise = True
        variable = self.module.names.fresh("result")
        self.sink += [assign(variable, value), self.range_check(variable)]
        return name(variable)

    def range_check(self, variable: str) -> ast.stmt:
        low, high = self.module.runtime("INTEGER_MIN"), self.module.runtime("INTEGER_MAX")
        fits = ast.Compare(low, [ast.LtE(), ast.LtE()], [name(variable), high])
        return if_(ast.UnaryOp(ast.Not(), fits), [raise_(call(self.module.runtime("overflow")))])

    # ------------------------------------------------------------ conditions
    def _compare(self, node: ir.Compare) -> ast.expr:
        kinds = self.kind(node.left), self.kind(node.right)
        if node.operator in ("==", "!="):
            result = self._equality(node, *kinds)
            return negate(result) if node.operator == "!=" else result
        left, right = self.operands(node.left, node.right)
        operator, function = _ORDERS[node.operator]
        if _have_order(*kinds):
            return compare(left, operator(), right)
        return self.helper(function, left, right)

    def _equality(self, node: ir.Compare, left_kind: ValueType, right_kind: ValueType) -> ast.expr:
        left, right = self.operands(node.left, node.right)
        if NULL in (left_kind, right_kind):
            return _is(left, right) if right_kind == NULL else _is(right, left)
        for value in (left, right):
            if isinstance(value, ast.Constant) and isinstance(value.value, bool):
                return _is(left, right)
        if _have_equality(left_kind, right_kind):
            return compare(left, ast.Eq(), right)
        return call(self.module.runtime("equal"), left, right)

    def _logic(self, node: ir.Logic) -> ast.expr:
        left = self.condition(node.left)
        right = self.lazy(node.right, as_condition=True)
        if node.operator == "and":
            return _join_logic(ast.And(), left, right)
        return _join_logic(ast.Or(), negate(left) if node.operator == "implies" else left, right)

    def _membership(self, node: ir.Membership) -> ast.expr:
        collection = node.collection
        if isinstance(collection, ir.ListOf) and _are_texts(collection.items):
            texts = [self.value(text) for text in collection.items]
            return compare(self.value(node.item), ast.In(), ast.Tuple(texts, ast.Load()))
        item, container = self.kind(node.item), self.kind(collection)
        left, right = self.operands(node.item, node.collection)
        is_text = _is_text(item)
        in_text_items = isinstance(container, Array | SetType) and _is_text(container.item)
        has_plain_members = isinstance(container, MapType | RecordType) or _is_text(container) or in_text_items
        if (is_text and has_plain_members) or (item == INTEGER and container in (Array(INTEGER), SetType(INTEGER))):
            return compare(left, ast.In(), right)
        return self.helper("member", left, right)

    # ------------------------------------------------------------ texts and functions
    def _text(self, node: ir.TemplateText) -> ast.expr:
        expressions = [part for part in node.parts if isinstance(part, ir.TypedExpression)]
        values = iter(self.operands(*expressions))
        pieces = [ast.Constant(part) if isinstance(part, str) else next(values) for part in node.parts]
        kinds = [STRING if isinstance(part, str) else self.kind(part) for part in node.parts]
        is_plain = all(
            isinstance(piece, ast.Constant | ast.Name) and (kind == INTEGER or _is_text(kind))
            for piece, kind in zip(pieces, kinds, strict=True)
        )
        limit = self.module.text_limit()
        if not is_plain or self.in_loop:
            result = self.helper("text_of", *pieces)
            result.keywords = [ast.keyword("chars_max", value) for value in limit]
            return result
        if not expressions:
            return ast.Constant("".join(part for part in node.parts if isinstance(part, str)))
        fields: list[ast.expr] = []
        for part, piece in zip(node.parts, pieces, strict=True):
            is_text = isinstance(part, str) or (isinstance(piece, ast.Constant) and isinstance(piece.value, str))
            fields.append(piece if is_text else ast.FormattedValue(piece, -1))
        text = ast.JoinedStr([field for field in fields if not (isinstance(field, ast.Constant) and field.value == "")])
        if all(isinstance(part, str) or kind != STRING for part, kind in zip(node.parts, kinds, strict=True)):
            return text  # numbers and words of enums are short
        return self.helper("short_text", text, *limit)

    def _call(self, node: ir.FunctionCall) -> ast.expr:
        if node.function == "current_timestamp":
            self.uses_run = True
            return attribute(name("run"), "now")
        if node.function == "current_year":
            self.uses_run = True
            return attribute(name("run"), "year")
        kinds = [self.kind(argument) for argument in node.arguments]
        if node.function == "len":
            return self._length(node.arguments[0])
        arguments = self.operands(*node.arguments)
        if all(_is_text(kind) for kind in kinds) and node.function in _TEXT_METHODS:
            return call(attribute(arguments[0], _TEXT_METHODS[node.function]), *arguments[1:])
        if node.function in _SECONDS:
            return self.helper("seconds_in", arguments[0], ast.Constant(_SECONDS[node.function]))
        if node.function == "round" and len(arguments) == 1:
            return self.helper("round_whole", arguments[0])
        row = FUNCTIONS[node.function]
        result = self.helper(_FUNCTIONS[node.function], *arguments)
        limits = {"text": ("chars_max", self.module.text_limit), "array": ("bytes_max", self.module.array_limit)}
        if row.bound:
            keyword, limit = limits[row.bound]
            result.keywords = [ast.keyword(keyword, value) for value in limit()]
        if row.charge and is_charged(ir.FunctionCall, in_loop=self.in_loop):
            result = self.run_method("call_metered", result.func, *arguments)
            result.keywords = [ast.keyword(keyword, value) for value in limit()] if row.bound else []
        return result

    def _coalesce(self, node: ir.Coalesce) -> ast.expr:
        """Return the first operand that is not null. A name can be looked at twice, and nothing that raises or reads
        the run is behind it."""
        first, *others = node.operands
        value = self.value(first)
        if not others or (isinstance(value, ast.Constant) and value.value is not None):
            return value
        if isinstance(value, ast.Constant):
            return self._coalesce(msgspec.structs.replace(node, operands=tuple(others)))
        if not isinstance(value, ast.Name):
            if self.sink is None:
                lazy = [self.lazy(operand) for operand in others]
                return self.helper("first_value", *(_thunk(operand) for operand in (value, *lazy)))
            variable = self.module.names.fresh("value")
            self.sink.append(assign(variable, value))
            value = name(variable)
        rest = self.lazy(others[0] if len(others) == 1 else msgspec.structs.replace(node, operands=tuple(others)))
        return ast.IfExp(compare(value, ast.IsNot(), ast.Constant(None)), value, rest)

    # ------------------------------------------------------------ collections
    def elements(self, part: ir.TypedExpression | ir.ForEachStep, collection: ir.TypedExpression) -> ast.expr:
        """Return the collection that a part iterates over; where it is metered, the run counts a step for each
        element."""
        value = self.value(collection)
        if not isinstance(self.kind(collection), Array):
            value = self.helper("in_order", value)
        return self.run_method("spend", value) if is_charged(type(part), in_loop=self.in_loop) else value

    def bind_element(self, variable: str, collection: ir.TypedExpression) -> tuple[PythonScope, str]:
        """Return a scope in which the variable is an element of the collection, and its Python name."""
        is_numbered = _ELEMENT_OF_CONSTRAINT.fullmatch(variable) is not None
        python = self.module.names.name_value("element" if is_numbered else variable)
        return self.scope.bind(variable, python, item_kind(self.kind(collection))), python

    def _loop(self, python: str, elements: ast.expr, *tests: ast.expr) -> list[ast.comprehension]:
        return [ast.comprehension(ast.Name(python, ast.Store()), elements, list(tests), 0)]

    def _comprehension(
        self, node: ir.MapOver | ir.Filter, body: ir.TypedExpression | None, test: ir.TypedExpression | None
    ) -> ast.expr:
        elements = self.elements(node, node.collection)
        scope, python = self.bind_element(node.name, node.collection)
        if body is None:
            tests = [] if test is None else [self.lazy(test, as_condition=True, scope=scope)]
            return ast.ListComp(name(python), self._loop(python, elements, *tests))
        value = self.lazy(body, scope=scope)
        limit = self.module.array_limit()
        if _may_be_text(kind_of(body, scope.kinds)):
            return self.helper("collect_elements", ast.GeneratorExp(value, self._loop(python, elements)), *limit)
        return ast.ListComp(value, self._loop(python, self.helper("fitting", elements, *limit)))

    def _reduce(self, node: ir.Reduce) -> ast.expr:
        elements = self.elements(node, node.collection)
        scope, python = self.bind_element(node.name, node.collection)
        start_kind = self.kind(node)
        accumulator = self.module.names.name_value(node.accumulator)
        inner = scope.bind(node.accumulator, accumulator, start_kind)
        if self.sink is None:
            initial = self.lazy(node.initial)
            body = self.lazy(node.body, scope=inner)
            arguments = ast.arguments([], [ast.arg(accumulator), ast.arg(python)], None, [], [], None, [])
            function = self.module.import_name("functools", "reduce")
            return call(function, ast.Lambda(arguments, body), elements, initial)
        collection = self.module.names.fresh("elements")
        self.sink.append(assign(collection, elements))
        self.sink.append(self._start(accumulator, self.value(node.initial), start_kind))
        statements: list[ast.stmt] = []
        writer = ExpressionWriter(self.module, inner, statements, in_loop=True)
        statements.append(assign(accumulator, writer.value(node.body)))
        self.adopt(writer)
        self.sink.append(ast.For(ast.Name(python, ast.Store()), name(collection), statements, [], None))
        return name(accumulator)

    def _start(self, variable: str, value: ast.expr, kind: ValueType) -> ast.stmt:
        annotation = self.module.annotation(kind)
        return ast.AnnAssign(ast.Name(variable, ast.Store()), annotation, value, 1)

    def _group_by(self, node: ir.GroupBy) -> ast.expr:
        is_paid = is_charged(ir.GroupBy, in_loop=self.in_loop)
        elements = self.elements(node, node.collection) if is_paid else self.value(node.collection)
        scope, python = self.bind_element(node.name, node.collection)

        def function(body: ir.TypedExpression) -> ast.expr:
            arguments = ast.arguments([], [ast.arg(python)], None, [], [], None, [])
            return ast.Lambda(arguments, self.lazy(body, scope=scope))

        keys: list[ast.expr] = [ast.Tuple([ast.Constant(key), function(value)], ast.Load()) for key, value in node.keys]
        columns: list[ast.expr] = []
        for item in node.aggregations:
            operand = ast.Constant(None) if item.operand is None else function(item.operand)
            columns.append(ast.Tuple([ast.Constant(item.output), ast.Constant(item.function), operand], ast.Load()))
        return self.helper("group_elements", elements, ast.List(keys, ast.Load()), ast.List(columns, ast.Load()))


_TEXT_METHODS: Final = {
    "lower": "lower",
    "upper": "upper",
    "trim": "strip",
    "starts_with": "startswith",
    "ends_with": "endswith",
}


def _thunk(value: ast.expr) -> ast.expr:
    return ast.Lambda(ast.arguments([], [], None, [], [], None, []), value)


def _is(left: ast.expr, right: ast.expr) -> ast.expr:
    """Return whether a value is null, true or false. Python warns about literals on both sides, so those are settled
    here."""
    if isinstance(left, ast.Constant) and isinstance(right, ast.Constant):
        return ast.Constant(left.value is right.value)
    if any(isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub) for value in (left, right)):
        return ast.Constant(False)  # a number, perhaps a literal
    return compare(left, ast.Is(), right)


def _is_text(kind: ValueType) -> bool:
    return kind == STRING or isinstance(kind, EnumType)


def _may_be_text(kind: ValueType) -> bool:
    inner = kind.type if isinstance(kind, Nullable) else kind
    return inner == ANY or _is_text(inner)


def _are_texts(items: tuple[ir.TypedExpression, ...]) -> bool:
    return bool(items) and all(isinstance(item, ir.Constant) and isinstance(item.value, str) for item in items)


def _have_order(left: ValueType, right: ValueType) -> bool:
    both_numbers = is_number(left) and is_number(right)
    return both_numbers or (_is_text(left) and _is_text(right)) or (left == right == TIMESTAMP)


def _have_equality(left: ValueType, right: ValueType) -> bool:
    """Return whether Python's own == is the right one: a text or a time equals nothing of another kind."""
    if is_number(left) and is_number(right):
        return True
    if left == right and left in (BOOLEAN, BYTES, TIMESTAMP):
        return True
    return (_is_text(left) and (_is_text(right) or right == ANY)) or (left == ANY and _is_text(right))


def _join_logic(operator: ast.boolop, left: ast.expr, right: ast.expr) -> ast.BoolOp:
    """Join conditions: `a and b and c` is one node, as Python's own parser would build it."""
    if isinstance(left, ast.BoolOp) and type(left.op) is type(operator):
        return ast.BoolOp(operator, [*left.values, right])
    return ast.BoolOp(operator, [left, right])
