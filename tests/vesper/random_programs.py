"""Random typed expressions and small programs, for comparing evaluators.

Expressions are typed most of the time; now and then an operand has another type, so that type errors are compared too.
Everything follows from the generator that is passed in.
"""

from __future__ import annotations

from decimal import Decimal
from random import Random
from typing import Any

import msgspec

from lyra.vesper import ir
from lyra.vesper.ir import (
    AssignStep,
    BranchStep,
    Condition,
    Contract,
    EffectStep,
    ErrorAnswer,
    ErrorRule,
    ForEachStep,
    LoopStep,
    Machine,
    NodeInput,
    NodeOutput,
    NodeProgram,
    ParallelStep,
    ReturnStep,
    Step,
    StepRetry,
    TransitionStep,
    ValidateStep,
)
from lyra.vesper.values.types import (
    ANY,
    BOOLEAN,
    BYTES,
    DECIMAL,
    DURATION,
    INTEGER,
    STRING,
    TIMESTAMP,
    Array,
    DecimalType,
    EnumType,
    MapType,
    Nullable,
    RecordField,
    RecordType,
    SetType,
    ValueType,
)

MONEY = DecimalType(2)
LINE = RecordType(
    "Line", (RecordField("price", MONEY), RecordField("count", INTEGER), RecordField("note", STRING, required=False))
)
INPUT_TYPES: list[ValueType] = [
    INTEGER,
    INTEGER,
    DECIMAL,
    MONEY,
    STRING,
    BOOLEAN,
    TIMESTAMP,
    BYTES,
    EnumType(("red", "green", "blue")),
    Array(INTEGER),
    Array(DECIMAL),
    Array(Nullable(INTEGER)),
    Array(STRING),
    SetType(INTEGER),
    SetType(STRING),
    MapType(STRING, INTEGER),
    Array(LINE),
    LINE,
    Nullable(INTEGER),
    Nullable(STRING),
    Array(Array(INTEGER)),
    ANY,
    DURATION,
    MapType(INTEGER, INTEGER),
    MapType(BOOLEAN, STRING),
    MapType(TIMESTAMP, INTEGER),
    MapType(DECIMAL, INTEGER),
]
SCALARS: list[ValueType] = [INTEGER, DECIMAL, STRING, BOOLEAN, TIMESTAMP]
MACHINE = Machine("order", "new", ("new", "paid", "sent"), (("new", "paid", None), ("paid", "sent", None)))
PATTERNS = ["^a", "b+", "[0-9]{2,}$", "(x|y)z?", "^$", ".", "("]
ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Kathmandu",
    "Pacific/Apia",
    "No/Where",
]
FORMATS = [
    "%Y-%m-%d",
    "%d.%m.%Y %H:%M:%S.%f",
    "%a %A %b %B %j %u %%",
    "%H%M%z",
    "%Y-%m-%dT%H:%M:%S%z",
    "%d %b %Y",
    "%B %d",
    "",
    "x",
    "%Q",
    "50%",
]
TIMES = [
    "2024-03-31T00:59:59.999999Z",
    "2024-03-31T01:30:00Z",
    "2024-10-27T00:30:00Z",
    "2024-10-27T01:30:00Z",
    "2024-02-29T12:00:00Z",
    "2023-12-31T23:59:59Z",
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999Z",
    "1900-01-31T10:11:12.000013Z",
    "2011-12-29T20:00:00Z",
]
TEXT_TIMES = [
    *TIMES,
    "2024-02-30",
    "29.02.2024 01:02:03.000004",
    "2024-02-29",
    "29 Feb 2024",
    "February 29",
    "0530+0130",
    "2024-03-31T02:30:00+0200",
    "2024-03-31T02:30:00-9900",
    "",
]
NUMBER_TEXTS = [
    *("0", "-0", "+7", "007", "-42", "1.50", "-0.00", "+00.5", "9223372036854775807", "9223372036854775808"),
    *("-9223372036854775808", "12345678901234567890.123", "", "+", "1.", ".5", " 1", "1e3", "1_0", "٣", "1\n", "NaN"),
]
MODES = ["half_even", "half_up", "half_down", "up", "down", "ceiling", "floor", "sideways"]
UNITS = ["year", "month", "week", "day", "hour", "minute", "fortnight"]
KEY_KINDS = ["integer", "decimal", "boolean", "timestamp"]
STRANGE = 0.04  # how often an operand has another type than the operator wants


class ProgramMaker:
    """Makes random programs; names in scope are a map from name to type."""

    def __init__(self, rng: Random, *, effects: bool = False, functions: float = 0.25) -> None:
        self.rng = rng
        self.effects = effects
        self.functions = functions  # how often an expression is a conditional or a call of a function
        self.names: dict[str, ValueType] = {}
        self.fresh = 0

    # ------------------------------------------------------------ expressions

    def new_name(self, prefix: str) -> str:
        self.fresh += 1
        return f"{prefix}{self.fresh}"

    def constant(self, kind: ValueType) -> ir.TypedExpression:
        rng = self.rng
        value: Any = None
        if kind == INTEGER:
            value = rng.choice([0, 1, -1, 2, 3, 7, 10, 100, 2**62, -(2**63), 2**63 - 1, rng.randrange(-50, 50)])
        elif isinstance(kind, DecimalType):
            value = Decimal(rng.choice(["0", "1", "0.5", "-1.25", "3", "0.10", "99.99", "1000", "0.001", "1e-9", "7"]))
        elif kind == STRING:
            value = rng.choice(["", "a", "b", "red", "abc", " x ", "xyz", "12", "É"])
        elif kind == BOOLEAN:
            value = rng.random() < 0.5
        elif kind == TIMESTAMP:
            if rng.random() < 0.3:
                return ir.FunctionCall(type=TIMESTAMP, function="current_timestamp", arguments=())
            text = ir.Constant(type=STRING, value=rng.choice(TIMES))
            return ir.FunctionCall(type=TIMESTAMP, function="timestamp", arguments=(text,))
        return ir.Constant(type=kind, value=value)

    def leaf(self, kind: ValueType) -> ir.TypedExpression:
        fitting = [name for name, declared in self.names.items() if _fits(declared, kind)]
        if fitting and self.rng.random() < 0.75:
            name = self.rng.choice(fitting)
            return ir.NodeVariable(type=self.names[name], name=name)
        match kind:
            case Array() | SetType():
                if isinstance(kind, SetType) and fitting:
                    return ir.NodeVariable(type=kind, name=fitting[0])
                items = tuple(self.leaf(kind.item) for _ in range(self.rng.randrange(0, 4)))
                return ir.ListOf(type=kind, items=items)
            case MapType():
                entries = tuple((name, self.leaf(kind.value)) for name in self.rng.sample("abcd", 2))
                return ir.MapOf(type=kind, entries=entries)
            case RecordType():
                return ir.MapOf(type=kind, entries=tuple((f.name, self.leaf(f.type)) for f in kind.fields))
            case Nullable():
                return ir.Constant(type=kind, value=None) if self.rng.random() < 0.3 else self.leaf(kind.type)
        return self.constant(kind)

    def expression(self, kind: ValueType, depth: int) -> ir.TypedExpression:
        if self.rng.random() < STRANGE:
            kind = self.rng.choice([*SCALARS, Nullable(INTEGER), Array(INTEGER), ANY])
        if depth <= 0 or self.rng.random() < 0.1:
            return self.leaf(kind)
        if self.rng.random() < self.functions:
            chosen = self.function(kind, depth - 1)
            if chosen is not None:
                return chosen
        match kind:
            case DecimalType():
                return self.number(DECIMAL, depth)
            case Array():
                return self.array(kind, depth)
            case Nullable():
                return self.nullable(kind, depth)
        if kind == INTEGER:
            return self.number(INTEGER, depth)
        if kind == BOOLEAN:
            return self.boolean(depth)
        if kind == STRING:
            return self.text(depth)
        return self.leaf(kind)

    # ------------------------------------------------------------ functions

    def call(self, kind: ValueType, function: str, *arguments: ir.TypedExpression) -> ir.TypedExpression:
        return ir.FunctionCall(type=kind, function=function, arguments=arguments)

    def one_of(self, values: list[str]) -> ir.TypedExpression:
        return ir.Constant(type=STRING, value=self.rng.choice(values))

    def zone(self) -> tuple[ir.TypedExpression, ...]:
        return (self.one_of(ZONES),) if self.rng.random() < 0.7 else ()

    def function(self, kind: ValueType, depth: int) -> ir.TypedExpression | None:
        """A conditional, or a call of a function that gives such a value; None where there is none."""
        rng = self.rng
        if rng.random() < 0.25:
            values = tuple(self.expression(kind, depth) for _ in range(2))
            if rng.random() < 0.5:
                condition = self.expression(BOOLEAN, depth)
                return ir.Conditional(type=kind, condition=condition, then=values[0], otherwise=values[1])
            first = self.leaf(Nullable(kind)) if rng.random() < 0.5 else self.leaf(ANY)
            return ir.Coalesce(type=kind, operands=(first, *values)[: rng.randrange(1, 4)])
        if rng.random() < 0.15:
            return self.looked_up(kind, depth)
        makers = {INTEGER: self.integer_call, STRING: self.text_call, TIMESTAMP: self.time_call}
        if isinstance(kind, DecimalType):
            return self.decimal_call(depth)
        if isinstance(kind, Array):
            return self.list_call(kind, depth)
        return makers[kind](depth) if kind in makers else None

    def looked_up(self, kind: ValueType, depth: int) -> ir.TypedExpression:
        """An element of a list, or of a map whose keys may be no texts, with a default."""
        rng, default = self.rng, self.expression(kind, depth)
        if rng.random() < 0.4:
            return self.call(kind, "get", self.leaf(Array(kind)), self.expression(INTEGER, depth), default)
        word = rng.choice(KEY_KINDS)
        own: dict[str, ValueType] = {
            "integer": INTEGER, "decimal": DECIMAL, "boolean": BOOLEAN, "timestamp": TIMESTAMP
        }  # fmt: skip
        of = ir.Constant(type=STRING, value=word)

        def key() -> ir.TypedExpression:
            return self.call(STRING, "map_key", self.expression(own[word], depth), of)

        keys = ir.ListOf(type=Array(STRING), items=(key(), key()))
        values = ir.ListOf(type=Array(kind), items=(self.leaf(kind), self.leaf(kind)))
        entries = self.call(MapType(own[word], kind), "map_of", keys, values)
        entries = self.call(entries.type, "put", entries, key(), self.leaf(kind)) if rng.random() < 0.5 else entries
        if rng.random() < 0.3:
            everything = self.call(Array(own[word]), "keys", entries, of)
            return ir.MapOf(type=ANY, entries=(("keys", everything), ("values", self.call(ANY, "values", entries))))
        return self.call(kind, "get", entries, key(), default)

    def integer_call(self, depth: int) -> ir.TypedExpression:
        rng = self.rng
        match rng.randrange(0, 6):
            case 5:
                return self.call(INTEGER, "parse_integer", self.number_text(depth))
            case 0:
                return self.call(INTEGER, rng.choice(["floor", "ceil", "round"]), self.any_number(depth))
            case 1:
                return self.call(INTEGER, "div", self.any_number(depth), self.any_number(depth))
            case 2:
                parts = ["year", "month", "day", "hour", "minute", "second", "microsecond", "weekday", "day_of_year"]
                return self.call(INTEGER, rng.choice(parts), self.expression(TIMESTAMP, depth), *self.zone())
            case 3:
                numbers = [self.expression(INTEGER, depth) for _ in range(rng.randrange(2, 4))]
                return self.call(INTEGER, rng.choice(["min", "max"]), *numbers)
        return self.call(INTEGER, "clamp", *(self.expression(INTEGER, depth) for _ in range(3)))

    def decimal_call(self, depth: int) -> ir.TypedExpression:
        rng = self.rng
        match rng.randrange(0, 5):
            case 4:
                return self.call(DECIMAL, "parse_decimal", self.number_text(depth))
            case 0:
                digits = ir.Constant(type=INTEGER, value=rng.randrange(-1, 5))
                return self.call(DECIMAL, "round", self.any_number(depth), digits, self.one_of(MODES))
            case 1:
                units = ["milliseconds", "seconds", "minutes", "hours", "days", "weeks"]
                return self.call(DECIMAL, rng.choice(units), self.any_number(depth))
            case 2:
                times = self.expression(TIMESTAMP, depth), self.expression(TIMESTAMP, depth)
                return ir.Arithmetic(type=DECIMAL, operator="-", left=times[0], right=times[1])
        numbers = [self.any_number(depth) for _ in range(3)]
        return self.call(DECIMAL, rng.choice(["min", "max", "clamp"]), *numbers)

    def number_text(self, depth: int) -> ir.TypedExpression:
        """A text that may write a number: one of some, a number as a template writes it, or any text."""
        match self.rng.randrange(0, 4):
            case 0:
                return self.expression(STRING, depth)
            case 1:
                return ir.TemplateText(type=STRING, parts=(self.any_number(depth),))
        return self.one_of(NUMBER_TEXTS)

    def text_call(self, depth: int) -> ir.TypedExpression:
        rng = self.rng

        def text() -> ir.TypedExpression:
            return self.expression(STRING, depth)

        match rng.randrange(0, 6):
            case 0:
                bounds = [self.leaf(INTEGER) for _ in range(rng.randrange(1, 3))]
                return self.call(STRING, "slice", text(), *bounds)
            case 1:
                return self.call(STRING, "replace", text(), self.leaf(STRING), self.leaf(STRING))
            case 2:
                return self.call(STRING, "join", self.expression(Array(STRING), depth), self.leaf(STRING))
            case 3:
                width = ir.Constant(type=INTEGER, value=rng.choice([-1, 0, 1, 5, 2**62]))
                fill = (self.one_of([" ", "0", "é", "", "ab"]),) if rng.random() < 0.7 else ()
                return self.call(STRING, rng.choice(["pad_left", "pad_right"]), text(), width, *fill)
            case 4:
                time = self.expression(TIMESTAMP, depth)
                return self.call(STRING, "format_timestamp", time, self.one_of(FORMATS), *self.zone())
        smallest = rng.choice(["min", "max", "clamp"])
        return self.call(STRING, smallest, text(), self.leaf(STRING), self.leaf(STRING))

    def time_call(self, depth: int) -> ir.TypedExpression:
        rng, time = self.rng, self.expression(TIMESTAMP, depth)
        count = ir.Constant(type=INTEGER, value=rng.choice([0, 1, -1, 12, 29, -13, 365, 40_000, 2**62]))
        match rng.randrange(0, 5):
            case 0:
                seconds = self.decimal_call(depth)
                operator = rng.choice("+-")
                return ir.Arithmetic(type=TIMESTAMP, operator=operator, left=time, right=seconds)
            case 1:
                calendar = rng.choice(["add_days", "add_months", "add_years"])
                return self.call(TIMESTAMP, calendar, time, count, *self.zone())
            case 2:
                return self.call(TIMESTAMP, "start_of", time, self.one_of(UNITS), *self.zone())
            case 3:
                return self.call(TIMESTAMP, "timestamp", self.one_of(TEXT_TIMES))
        text = self.one_of(TEXT_TIMES) if rng.random() < 0.5 else self.expression(STRING, depth)
        return self.call(TIMESTAMP, "parse_timestamp", text, self.one_of(FORMATS), *self.zone())

    def list_call(self, kind: Array, depth: int) -> ir.TypedExpression:
        rng = self.rng

        def items() -> ir.TypedExpression:
            return self.expression(kind, depth)

        match rng.randrange(0, 8):
            case 0:
                return self.call(kind, "append", items(), self.expression(kind.item, depth))
            case 1:
                return self.call(kind, "concat", *(items() for _ in range(rng.randrange(1, 4))))
            case 2 | 3:
                lists = [items(), self.leaf(Array(Nullable(INTEGER))), self.leaf(SetType(INTEGER)), self.leaf(ANY)]
                lines = self.leaf(Array(LINE)), self.one_of(["price", "count", "note", "none"])
                chosen = lines if rng.random() < 0.3 else (rng.choice(lists),)
                return self.call(kind, "sort", *chosen)
            case 4:
                chosen = (rng.choice([items(), self.leaf(Array(Array(INTEGER))), self.leaf(ANY)]),)
                return self.call(kind, rng.choice(["distinct", "reverse"]), *chosen)
            case 5:
                return self.call(kind, "take", items(), self.leaf(INTEGER))
            case 6:
                if kind.item == STRING:
                    return self.call(kind, "split", self.expression(STRING, depth), self.leaf(STRING))
                return self.call(Array(kind), "zip", items(), self.leaf(Array(STRING)))
        return self.call(kind, "slice", items(), self.leaf(INTEGER), self.leaf(INTEGER))

    def any_number(self, depth: int) -> ir.TypedExpression:
        return self.expression(self.rng.choice([INTEGER, DECIMAL]), depth)

    def number(self, kind: ValueType, depth: int) -> ir.TypedExpression:
        rng, inner = self.rng, depth - 1
        operand = (lambda: self.expression(INTEGER, inner)) if kind == INTEGER else (lambda: self.any_number(inner))
        match rng.randrange(0, 12):
            case 0 | 1 | 2 | 3:
                operator = rng.choice("+-*%" if kind == INTEGER else "+-*%//")
                return ir.Arithmetic(type=kind, operator=operator, left=operand(), right=operand())
            case 4:
                return ir.Negate(type=kind, operand=operand())
            case 5:
                return ir.FunctionCall(type=kind, function="abs", arguments=(operand(),))
            case 6:
                collection = self.expression(Array(kind), inner)
                function = rng.choice(["sum", "avg", "min", "max", "count"])
                return ir.Aggregate(type=kind, function=function, collection=collection)
            case 7 if kind != INTEGER:
                division = ir.Arithmetic(type=DECIMAL, operator="/", left=operand(), right=operand())
                rounding = rng.choice(["half_even", "half_up", "down"])
                return ir.Rounded(
                    type=kind, operand=rng.choice([division, operand()]), scale=rng.randrange(0, 5), rounding=rounding
                )
            case 8 if kind != INTEGER:
                scale = ir.Constant(type=INTEGER, value=rng.randrange(-1, 4))
                return ir.FunctionCall(type=kind, function="round", arguments=(operand(), scale))
            case 7 | 8:
                return ir.Length(type=kind, target=self.expression(rng.choice([STRING, Array(INTEGER)]), inner))
            case 9:
                return self.reduce(kind, inner)
            case 10:
                record = self.leaf(LINE)
                return ir.FieldOf(type=kind, target=record, name="count" if kind == INTEGER else "price")
        return self.leaf(kind)

    def bind(self, name: str, kind: ValueType) -> ValueType | None:
        """Bring a name into scope; gives what it hid."""
        hidden = self.names.get(name)
        self.names[name] = kind
        return hidden

    def unbind(self, name: str, hidden: ValueType | None) -> None:
        if hidden is None:
            self.names.pop(name, None)
        else:
            self.names[name] = hidden

    def body(self, name: str, element: ValueType, kind: ValueType, depth: int) -> ir.TypedExpression:
        hidden = self.bind(name, element)
        body = self.expression(kind, depth)
        self.unbind(name, hidden)
        return body

    def element(self) -> str:
        return self.rng.choice(["element", "row", self.new_name("e")])

    def reduce(self, kind: ValueType, depth: int) -> ir.TypedExpression:
        name, total = self.element(), self.new_name("total")
        collection = self.expression(Array(INTEGER), depth)
        hidden = self.bind(total, kind)
        body = self.body(name, INTEGER, kind, depth)
        self.unbind(total, hidden)
        initial = self.leaf(kind)
        return ir.Reduce(type=kind, collection=collection, name=name, accumulator=total, initial=initial, body=body)

    def boolean(self, depth: int) -> ir.TypedExpression:
        rng, inner = self.rng, depth - 1
        match rng.randrange(0, 11):
            case 0 | 1 | 2:
                kind = rng.choice([INTEGER, INTEGER, DECIMAL, STRING, TIMESTAMP, Nullable(INTEGER)])
                operator = rng.choice(["==", "!=", "<", "<=", ">", ">="])
                left, right = self.expression(kind, inner), self.expression(kind, inner)
                return ir.Compare(type=BOOLEAN, operator=operator, left=left, right=right)
            case 3:
                kind = rng.choice([Array(INTEGER), MapType(STRING, INTEGER), LINE, SetType(INTEGER), BOOLEAN, ANY])
                left, right = self.leaf(kind), self.leaf(kind)
                return ir.Compare(type=BOOLEAN, operator=rng.choice(["==", "!="]), left=left, right=right)
            case 4 | 5:
                left, right = self.expression(BOOLEAN, inner), self.expression(BOOLEAN, inner)
                return ir.Logic(type=BOOLEAN, operator=rng.choice(["and", "or", "implies"]), left=left, right=right)
            case 6:
                return ir.Not(type=BOOLEAN, operand=self.expression(BOOLEAN, inner))
            case 7:
                name = self.element()
                collection = self.expression(Array(INTEGER), inner)
                body = self.body(name, INTEGER, BOOLEAN, inner)
                word = rng.choice(["forall", "exists"])
                return ir.Quantifier(type=BOOLEAN, kind=word, name=name, collection=collection, body=body)
            case 8:
                pairs: list[tuple[ValueType, ValueType]] = [
                    (INTEGER, Array(INTEGER)),
                    (STRING, STRING),
                    (STRING, MapType(STRING, INTEGER)),
                    (INTEGER, SetType(INTEGER)),
                ]
                item, container = rng.choice(pairs)
                return ir.Membership(type=BOOLEAN, item=self.expression(item, inner), collection=self.leaf(container))
            case 9:
                return ir.IsNull(type=BOOLEAN, operand=self.leaf(rng.choice([Nullable(INTEGER), STRING])))
        function = rng.choice(["starts_with", "ends_with", "matches"])
        second = self.leaf(STRING)
        if function == "matches":
            second = ir.Constant(type=STRING, value=rng.choice(PATTERNS))
        return ir.FunctionCall(type=BOOLEAN, function=function, arguments=(self.expression(STRING, inner), second))

    def text(self, depth: int) -> ir.TypedExpression:
        rng, inner = self.rng, depth - 1
        match rng.randrange(0, 4):
            case 0:
                left, right = self.expression(STRING, inner), self.expression(STRING, inner)
                return ir.Arithmetic(type=STRING, operator="+", left=left, right=right)
            case 1:
                function = rng.choice(["lower", "upper", "trim"])
                return ir.FunctionCall(type=STRING, function=function, arguments=(self.expression(STRING, inner),))
            case 2:
                kinds = [*SCALARS, Nullable(INTEGER), ANY]
                parts = [self.expression(rng.choice(kinds), inner) for _ in range(rng.randrange(1, 3))]
                return ir.TemplateText(type=STRING, parts=("<", *parts, ">"))
        return self.leaf(STRING)

    def array(self, kind: Array, depth: int) -> ir.TypedExpression:
        rng, inner = self.rng, depth - 1
        name = self.element()
        match rng.randrange(0, 5):
            case 0:
                collection = self.expression(Array(INTEGER), inner)
                return ir.MapOver(
                    type=kind, collection=collection, name=name, body=self.body(name, INTEGER, kind.item, inner)
                )
            case 1:
                collection = self.expression(kind, inner)
                return ir.Filter(
                    type=kind, collection=collection, name=name, body=self.body(name, kind.item, BOOLEAN, inner)
                )
            case 2 if kind.item == INTEGER:
                return ir.Projection(type=kind, target=self.leaf(Array(LINE)), name="count")
            case 2 if isinstance(kind.item, DecimalType):
                return ir.FieldOf(type=kind, target=self.leaf(Array(LINE)), name="price")
        return self.leaf(kind)

    def nullable(self, kind: Nullable, depth: int) -> ir.TypedExpression:
        rng, inner = self.rng, depth - 1
        match rng.randrange(0, 3):
            case 0:
                target = self.leaf(Array(kind.type))
                return ir.ItemOf(type=kind, target=target, index=self.expression(INTEGER, inner))
            case 1:
                target = self.leaf(MapType(STRING, kind.type))
                return ir.ItemOf(type=kind, target=target, index=self.expression(STRING, inner))
        return self.expression(kind.type, inner)

    def grouped(self, depth: int) -> ir.TypedExpression:
        rng = self.rng
        hidden = self.bind("record", LINE)
        keys = tuple(
            (f"k{number}", self.expression(rng.choice([INTEGER, STRING, Nullable(STRING)]), depth))
            for number in range(rng.randrange(0, 3))
        )
        functions = ["sum", "count", "avg", "min", "max"]
        aggregations = tuple(
            ir.Aggregation(
                f"a{number}",
                function,
                None if function == "count" and rng.random() < 0.5 else self.expression(DECIMAL, depth),
            )
            for number, function in enumerate(rng.sample(functions, rng.randrange(0, 4)))
        )
        self.unbind("record", hidden)
        return ir.GroupBy(
            type=ANY, collection=self.leaf(Array(LINE)), name="record", keys=keys, aggregations=aggregations
        )

    def anything(self, depth: int) -> tuple[ir.TypedExpression, ValueType]:
        choice = self.rng.random()
        if choice < 0.08:
            return self.grouped(depth), ANY
        if choice < 0.11:
            matrix = Array(Array(INTEGER))
            product = ir.MatrixProduct(type=matrix, left=self.leaf(matrix), right=self.leaf(matrix))
            return product, matrix
        kind = self.rng.choice([*SCALARS, Array(INTEGER), Nullable(INTEGER), Array(DECIMAL), Array(STRING)])
        return self.expression(kind, depth), kind

    # ------------------------------------------------------------ programs

    def check(self, depth: int = 2) -> Condition:
        expression = self.expression(BOOLEAN, depth)
        return Condition(self.new_name("check"), expression)

    def likely(self) -> Condition:
        """A check that is true more often than not."""
        if self.rng.random() < 0.8:
            return Condition("true", ir.Constant(type=BOOLEAN, value=True))
        return self.check()

    def failure(self) -> ErrorAnswer:
        code = ir.Constant(type=STRING, value=self.rng.choice(["refused", "broken"]))
        message = ir.TemplateText(type=STRING, parts=("because ", self.leaf(self.rng.choice(SCALARS))))
        return ErrorAnswer(code, (("message", message),) if self.rng.random() < 0.8 else ())

    def guards(self) -> tuple[Condition, ...]:
        return (self.check(1),) if self.rng.random() < 0.1 else ()

    def step(self, depth: int) -> Step:
        rng, name = self.rng, self.new_name("step")
        choice = rng.random()
        if self.effects and choice < 0.25:
            return self.effect(name, depth)
        if depth <= 0 or choice < 0.55:
            value, kind = self.anything(2)
            inputs = [name for name in self.names if name[0] == "i" and name[1:].isdigit()]
            target = rng.choice(["result", "other", "state", rng.choice(inputs or ["state"]), self.new_name("v")])
            self.names[target] = kind
            return AssignStep(name=name, guards=self.guards(), target=target, value=value)
        if choice < 0.65:
            failure = self.failure() if rng.random() < 0.6 else None
            return ValidateStep(name=name, guards=self.guards(), checks=(self.likely(),), failure=failure)
        if choice < 0.77:
            condition, then, otherwise = self.expression(BOOLEAN, 2), self.steps(depth - 1), self.steps(depth - 1)
            return BranchStep(name=name, guards=self.guards(), condition=condition, then=then, otherwise=otherwise)
        if choice < 0.85:
            collection, variable = self.expression(Array(INTEGER), 1), self.new_name("item")
            self.names[variable] = INTEGER
            steps = self.steps(depth - 1)
            del self.names[variable]
            return ForEachStep(name=name, collection=collection, variable=variable, steps=steps)
        if choice < 0.9:
            return self.loop(name, depth)
        if choice < 0.94:
            return ParallelStep(name=name, steps=self.steps(depth - 1))
        if choice < 0.97:
            return ReturnStep(name=name, guards=self.guards(), error=self.failure())
        return ReturnStep(name=name, guards=self.guards(), success=self.success())

    def loop(self, name: str, depth: int) -> Step:
        counter = self.new_name("n")
        number = ir.NodeVariable(type=INTEGER, name=counter)
        more = ir.Compare(
            type=BOOLEAN, operator="!=", left=number, right=ir.Constant(type=INTEGER, value=self.rng.randrange(1, 4))
        )
        next_number = ir.Arithmetic(type=INTEGER, operator="+", left=number, right=ir.Constant(type=INTEGER, value=1))
        zero = AssignStep(name=name + "_from", target=counter, value=ir.Constant(type=INTEGER, value=0))
        count = AssignStep(name=name + "_next", target=counter, value=next_number)
        self.names[counter] = INTEGER
        body = (count, *self.steps(depth - 1))
        loop = LoopStep(name=name, condition=more, max_iterations=self.rng.choice([2, 5]), steps=body)
        return ParallelStep(name=name + "_both", steps=(zero, loop))

    def effect(self, name: str, depth: int) -> Step:
        rng = self.rng
        output = self.new_name("response")
        if rng.random() < 0.2:
            state = rng.choice(["new", "paid", "sent"])
            source, target = (ir.Constant(type=STRING, value=value) for value in (state, rng.choice(["paid", "sent"])))
            self.names[output] = ANY
            return TransitionStep(
                name=name, machine="order", entity=self.leaf(STRING), source=source, target=target, output=output
            )
        request = ir.MapOf(type=ANY, entries=(("value", self.anything(1)[0]), ("list", self.leaf(Array(DECIMAL)))))
        self.names[output] = ANY
        rules = tuple(self.rule(["timeout", "declined", "*", "type_error"]) for _ in range(rng.randrange(0, 3)))
        some, none = (self.steps(0), self.steps(0)) if rng.random() < 0.3 else ((), ())
        return EffectStep(
            name=name,
            kind=rng.choice(["http.call", "db.query"]),
            capability="x",
            request=request,
            output=output,
            output_type=ANY,
            rules=rules,
            found=some,
            empty=none,
            retry=StepRetry(rng.randrange(1, 4)) if rng.random() < 0.2 else None,
        )

    def rule(self, errors: list[str]) -> ErrorRule:
        rng = self.rng
        action = rng.choice(["map_to", "return_error", "retry", "backoff", "compensate", "compensate"])
        retry = StepRetry(rng.randrange(2, 9)) if action in ("retry", "backoff") and rng.random() < 0.8 else None
        compensation = self.compensation() if action == "compensate" and rng.random() < 0.8 else ()
        answer = self.failure() if rng.random() < 0.6 else None
        return ErrorRule(rng.choice(errors), action, answer, compensation, retry)

    def saga(self) -> Step:
        """Acts in a loop; each registers what takes it back, and an act that fails runs all of it."""
        steps = []
        self.names["round"] = INTEGER
        for _ in range(self.rng.randrange(1, 3)):
            output = self.rng.choice(["state", self.new_name("response")])
            request = ir.MapOf(type=ANY, entries=(("value", self.leaf(INTEGER)), ("round", self.leaf(ANY))))
            self.names[output] = ANY
            steps.append(
                EffectStep(
                    name=self.new_name("act"),
                    kind="http.call",
                    capability="x",
                    request=request,
                    output=output,
                    output_type=ANY,
                    rules=(ErrorRule("*", "compensate", None, self.compensation()),),
                )
            )
        del self.names["round"]
        rounds = ir.ListOf(type=Array(INTEGER), items=tuple(ir.Constant(type=INTEGER, value=n) for n in range(3)))
        return ForEachStep(name=self.new_name("saga"), collection=rounds, variable="round", steps=tuple(steps))

    def compensation(self) -> tuple[Step, ...]:
        """Steps that take something back; they may read and assign what the flow assigns."""
        kept, self.names = self.names, {**self.names, "error": ANY}
        value, _ = self.anything(1)
        steps: list[Step] = [
            AssignStep(name=self.new_name("step"), target=self.rng.choice(["state", "undone"]), value=value)
        ]
        if self.effects:
            request = ir.MapOf(type=ANY, entries=(("value", self.leaf(ANY)), ("state", self.leaf(INTEGER))))
            steps.insert(
                self.rng.randrange(0, 2),
                EffectStep(
                    name=self.new_name("undo"),
                    kind="http.call",
                    capability="x",
                    request=request,
                    output=self.rng.choice(["", "undone"]),
                    output_type=ANY,
                ),
            )
        self.names = kept
        return tuple(steps)

    def steps(self, depth: int) -> tuple[Step, ...]:
        return tuple(self.step(depth) for _ in range(self.rng.randrange(1, 4)))

    def success(self) -> tuple[tuple[str, ir.TypedExpression], ...]:
        return (("result", self.anything(1)[0]), ("other", self.expression(DECIMAL, 1)))

    def program(self) -> NodeProgram:
        rng = self.rng
        inputs = []
        for number in range(rng.randrange(1, 5)):
            kind, name = rng.choice(INPUT_TYPES), f"i{number}"
            if number == 0 and rng.random() < 0.1:
                name = rng.choice(["result", "other", "message", "code", "state"])  # an answer's field, or a variable
            required = rng.random() < 0.8
            constraints: tuple[Condition, ...] = ()
            if rng.random() < 0.15:
                self.names = {"value": kind}
                constraints = (self.likely(),)
                self.names = {}
            declared = kind if required or isinstance(kind, Nullable) else Nullable(kind)
            inputs.append(NodeInput(name, declared, required, constraints=constraints))
        self.names = {item.name: item.type for item in inputs}
        preconditions = tuple(self.contract(self.likely()) for _ in range(rng.randrange(0, 2)))
        olds = (self.expression(INTEGER, 1),) if rng.random() < 0.3 else ()
        known = dict(self.names)
        steps = self.steps(2)
        if self.effects and rng.random() < 0.4:
            steps = (self.saga(), *steps)
        if rng.random() < 0.7:
            steps = (*steps, ReturnStep(name="end", success=self.success()))
        rules = tuple(self.rule(["overflow", "*", "type_error", "timeout"]) for _ in range(rng.randrange(1, 3)))
        flow = dict(self.names)
        self.names = {**known, "result": ANY, "other": DECIMAL, "success": BOOLEAN, "message": STRING, "error": ANY}
        postconditions = [self.contract(self.likely()) for _ in range(rng.randrange(0, 2))]
        if olds:
            old = ir.Old(type=INTEGER, slot=0, operand=olds[0])
            postconditions.append(
                Contract("old", ir.Compare(type=BOOLEAN, operator="!=", left=old, right=self.leaf(INTEGER)))
            )
        self.names = known
        invariants = tuple(self.contract(self.likely()) for _ in range(rng.randrange(0, 2)))
        if rng.random() < 0.4:
            invariants = (*invariants, self.invariant_of_variables(flow))
        program = NodeProgram(
            node_id="random_v1",
            kind="function",
            intent="random",
            digest="",
            inputs=tuple(inputs),
            success=(
                NodeOutput("result", ANY),
                NodeOutput("other", rng.choice([DECIMAL, MONEY, ANY]), rng.random() < 0.5),
            ),
            error=(NodeOutput("code", STRING), NodeOutput("message", STRING)),
            steps=steps,
            preconditions=preconditions,
            postconditions=tuple(postconditions),
            invariants=invariants,
            olds=olds,
            rules=rules if rng.random() < 0.3 else (),
            machines=(MACHINE,),
            pure=not self.effects,
        )
        return msgspec.structs.replace(program, digest=f"random-{hash(repr(program))}")

    def invariant_of_variables(self, flow: dict[str, ValueType]) -> Contract:
        """An invariant that names variables, inputs that steps assign, and now and then the answer."""
        answer: dict[str, ValueType] = {"success": BOOLEAN, "result": ANY, "message": STRING, "error": ANY}
        self.names = {**flow, "state": ANY, **(answer if self.rng.random() < 0.3 else {})}
        left, right = (self.leaf(self.rng.choice([INTEGER, STRING, ANY])) for _ in range(2))
        operator = self.rng.choice(["!=", "!=", "=="])
        text = self.new_name("invariant")
        return Contract(text, ir.Compare(type=BOOLEAN, operator=operator, left=left, right=right))

    def contract(self, check: Condition) -> Contract:
        if self.rng.random() < 0.05:
            return Contract("prose", None, "prose")
        return Contract(check.text, check.expression)


def _fits(declared: ValueType, wanted: ValueType) -> bool:
    if declared == wanted or wanted == ANY:
        return True
    if isinstance(wanted, Nullable):
        return _fits(declared, wanted.type)
    return isinstance(declared, DecimalType) and isinstance(wanted, DecimalType)


def random_program(rng: Random, *, effects: bool = False, functions: float = 0.25) -> NodeProgram:
    return ProgramMaker(rng, effects=effects, functions=functions).program()


def random_call(rng: Random, types: list[ValueType] = INPUT_TYPES) -> NodeProgram:
    """A program that only computes values by conditionals and functions."""
    maker = ProgramMaker(rng, functions=0.9)
    inputs = tuple(NodeInput(f"i{number}", rng.choice(types)) for number in range(rng.randrange(1, 4)))
    maker.names = {declared.name: declared.type for declared in inputs}
    kinds = [*SCALARS, Array(INTEGER), Array(STRING), Nullable(INTEGER)]
    fields = tuple((f"f{number}", maker.expression(rng.choice(kinds), 2)) for number in range(2))
    program = NodeProgram(
        node_id="calls_v1",
        kind="function",
        intent="call functions",
        digest="",
        inputs=inputs,
        success=(NodeOutput("f0", ANY), NodeOutput("f1", ANY)),
        error=(),
        steps=(ReturnStep(name="end", success=fields),),
    )
    return msgspec.structs.replace(program, digest=f"calls-{hash(repr(program))}")
