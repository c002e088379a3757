"""What the generator may take for granted about values: their types, and intervals of integers.

`kind_of(expression, known)` is the type that an expression's value surely has, worked out from the types of names and
not read from the IR's annotations; ANY where only a run knows. Code for a known type is Python's own operator; code for
ANY is a call of the runtime. `Interval`s come from constraints and preconditions; an integer result that fits by them
needs no check.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

import msgspec

from lyra.vesper import ir
from lyra.vesper.expressions.functions import FUNCTIONS
from lyra.vesper.values.types import (
    ANY,
    BOOLEAN,
    BYTES,
    DECIMAL,
    INTEGER,
    INTEGER_MAX,
    INTEGER_MIN,
    NULL,
    STRING,
    TIMESTAMP,
    Array,
    DecimalType,
    EnumType,
    MapType,
    Nullable,
    RecordField,
    RecordType,
    Scalar,
    SetType,
    ValueType,
)

NUMBER: Final = Scalar("number")  # an integer or a decimal: the quotient of two integers
Interval = tuple[int, int]
FULL: Final[Interval] = (INTEGER_MIN, INTEGER_MAX)
Known = Mapping[str, ValueType]


def parts(node: Any) -> list[Any]:
    """Return the structure and all structures inside it, each before those inside it."""
    structures: list[Any] = []
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if isinstance(node, tuple):
            waiting += node[::-1]
        elif isinstance(node, msgspec.Struct) and not isinstance(node, ValueType):
            structures.append(node)
            waiting += [getattr(node, name) for name in reversed(node.__struct_fields__)]
    return structures


def names_in(node: Any) -> set[str]:
    return {part.name for part in parts(node) if isinstance(part, ir.NodeVariable)}


def get_writes(steps: tuple[ir.Step, ...]) -> list[str]:
    """Return variables that the steps assign, in written order; elements of loops are not among them."""
    names: dict[str, None] = {}
    for step in parts(steps):
        match step:
            case ir.AssignStep():
                names[step.target] = None
            case ir.EffectStep():
                names.update(dict.fromkeys((step.output, *(name for name, _ in step.extract))))
            case ir.TransitionStep():
                names[step.output] = None
    names.pop("", None)
    return list(names)


# ------------------------------------------------------------ types
def is_decimal(kind: ValueType) -> bool:
    return isinstance(kind, DecimalType)


def is_number(kind: ValueType) -> bool:
    return kind in (INTEGER, NUMBER) or is_decimal(kind)


def item_kind(kind: ValueType) -> ValueType:
    """Return the type of a collection's elements."""
    return kind.item if isinstance(kind, Array | SetType) else ANY


def join_types(left: ValueType | None, right: ValueType) -> ValueType:
    """Return a type that values of both have."""
    if left is None or left == right:
        return right
    if is_decimal(left) and is_decimal(right):
        return DECIMAL
    if is_number(left) and is_number(right):
        return NUMBER
    if _is_text(left) and _is_text(right):
        return STRING
    return ANY


def _is_text(kind: ValueType) -> bool:
    return kind == STRING or isinstance(kind, EnumType)


_CONSTANTS: Final[dict[type, ValueType]] = {
    bool: BOOLEAN,
    int: INTEGER,
    Decimal: DECIMAL,
    str: STRING,
    bytes: BYTES,
    datetime: TIMESTAMP,
    type(None): NULL,
}
_RESULTS: Final[dict[str, ValueType]] = {
    "integer": INTEGER,
    "decimal": DECIMAL,
    "string": STRING,
    "boolean": BOOLEAN,
    "timestamp": TIMESTAMP,
}
_CONDITIONS: Final = (ir.Not, ir.Compare, ir.Membership, ir.IsNull, ir.Logic, ir.Quantifier)


def kind_of(node: ir.TypedExpression, known: Known) -> ValueType:
    """Return the type that the value surely has; ANY where only a run knows."""
    if isinstance(node, _CONDITIONS):
        return BOOLEAN
    match node:
        case ir.Constant():
            return _CONSTANTS.get(type(node.value), ANY)
        case ir.NodeVariable():
            return known.get(node.name, ANY)
        case ir.FieldOf():
            return _field_kind(kind_of(node.target, known), node.name)
        case ir.Projection():
            target = kind_of(node.target, known)
            return Array(_field_kind(target.item, node.name)) if isinstance(target, Array) else ANY
        case ir.Length(target=target):
            return _length_kind(kind_of(target, known))
        case ir.Negate(operand=operand):
            kind = kind_of(operand, known)
            return kind if is_number(kind) else ANY
        case ir.Arithmetic():
            left, right = kind_of(node.left, known), kind_of(node.right, known)
            if node.operator == "+" and _is_text(left) and _is_text(right):
                return STRING
            if TIMESTAMP in (left, right) and node.operator in "+-":
                return NUMBER if left == right and node.operator == "-" else TIMESTAMP
            if not (is_number(left) and is_number(right)):
                return ANY
            if is_decimal(left) or is_decimal(right):
                return DECIMAL
            return INTEGER if left == right == INTEGER and node.operator != "/" else NUMBER
        case ir.Rounded():
            return DecimalType(node.scale)
        case ir.TemplateText():
            return STRING
        case ir.FunctionCall():
            return _call_kind(node, known)
        case ir.Conditional():
            return join_types(kind_of(node.then, known), kind_of(node.otherwise, known))
        case ir.Coalesce():
            kinds = [kind for kind in (kind_of(operand, known) for operand in node.operands) if kind != NULL]
            inner = join_all_types([kind.type if isinstance(kind, Nullable) else kind for kind in kinds])
            is_sure = any(kind != ANY and not isinstance(kind, Nullable) for kind in kinds)
            return inner if is_sure or inner == ANY else Nullable(inner)
        case ir.Old():
            return known.get(f"old({node.slot})", ANY)
        case ir.Aggregate():
            if node.function == "count":
                return INTEGER
            item = item_kind(kind_of(node.collection, known))
            if node.function == "sum" and is_number(item):
                return INTEGER if item == INTEGER else NUMBER  # of no decimals: the integer 0
            return ANY
    return _collection_kind(node, known)


def _collection_kind(node: ir.TypedExpression, known: Known) -> ValueType:
    match node:
        case ir.ListOf():
            item: ValueType | None = None
            for element in node.items:
                item = join_types(item, kind_of(element, known))
            return Array(item or ANY)
        case ir.MapOf():
            return RecordType("", tuple(RecordField(name, kind_of(value, known)) for name, value in node.entries))
        case ir.MapOver():
            return Array(kind_of(node.body, {**known, node.name: item_kind(kind_of(node.collection, known))}))
        case ir.Filter():
            return Array(item_kind(kind_of(node.collection, known)))
        case ir.Reduce():
            start = kind_of(node.initial, known)
            inner = {**known, node.name: item_kind(kind_of(node.collection, known)), node.accumulator: start}
            body = kind_of(node.body, inner)
            return start if body == start else ANY
    return ANY


def _field_kind(target: ValueType, name: str) -> ValueType:
    field = target.field(name) if isinstance(target, RecordType) else None
    if field is None:
        return ANY
    has_value = field.required or field.default not in (msgspec.UNSET, None)
    return field.type if has_value or isinstance(field.type, Nullable) else Nullable(field.type)


def _length_kind(target: ValueType) -> ValueType:
    has_length = _is_text(target) or target == BYTES or isinstance(target, Array | SetType | MapType | RecordType)
    return INTEGER if has_length else ANY


def _call_kind(node: ir.FunctionCall, known: Known) -> ValueType:
    """Return the kind of a call: by the signature, or by the kinds of the arguments where it is theirs."""
    kinds = [kind_of(argument, known) for argument in node.arguments]
    match node.function:
        case "len":
            return _length_kind(kinds[0])
        case "round" if len(kinds) == 1:
            return INTEGER
        case "split":
            return Array(STRING)
        case "slice" if _is_text(kinds[0]):
            return STRING
        case "slice" | "sort" | "reverse" | "distinct" | "take" if isinstance(kinds[0], Array):
            return kinds[0]
        case "append" if isinstance(kinds[0], Array):
            return Array(join_types(kinds[0].item, kinds[1]))
        case "abs" | "min" | "max" | "clamp" | "seconds" | "minutes" | "hours" | "days" | "weeks":
            result = join_all_types(kinds)
            return result if is_number(result) or result in (STRING, TIMESTAMP) else ANY
    row = FUNCTIONS[node.function].result
    result = _RESULTS.get(row.name, ANY)
    return Nullable(result) if row.is_nullable and result != ANY else result


def join_all_types(kinds: list[ValueType]) -> ValueType:
    """Return a type that values of all of them have."""
    result: ValueType | None = None
    for kind in kinds:
        result = join_types(result, kind)
    return ANY if result is None else result


def output_type(output: ir.NodeOutput) -> ValueType:
    is_plain = output.required or isinstance(output.type, Nullable)
    return output.type if is_plain else Nullable(output.type)


def fits(kind: ValueType, declared: ValueType) -> bool:
    """Return whether values of the one type surely are values of the other as they stand."""
    while isinstance(declared, Nullable):
        declared = declared.type
    if is_decimal(kind) and isinstance(declared, DecimalType):
        return declared.scale is None or kind == declared
    if kind == declared:
        return declared != ANY and not any(isinstance(part, DecimalType) or part == ANY for part in _types(declared))
    return (
        isinstance(kind, EnumType) and not isinstance(declared, EnumType) and getattr(declared, "kind", "") == "string"
    )


def is_word_of(value: object, declared: ValueType) -> bool:
    """Return whether a value is a word of an enum."""
    while isinstance(declared, Nullable):
        declared = declared.type
    return isinstance(declared, EnumType) and value in declared.values


def _types(kind: ValueType) -> list[ValueType]:
    """Return the type and the types inside it."""
    inside: list[ValueType] = []
    for field in kind.__struct_fields__:
        value = getattr(kind, field)
        inside += _types(value) if isinstance(value, ValueType) else []
    if isinstance(kind, RecordType):
        for record_field in kind.fields:
            inside += _types(record_field.type)
    return [kind, *inside]


def inner_steps(step: ir.Step) -> list[tuple[ir.Step, ...]]:
    """Return the sequences of steps inside a step."""
    match step:
        case ir.BranchStep():
            return [step.then, step.otherwise]
        case ir.ForEachStep() | ir.LoopStep() | ir.ParallelStep():
            return [step.steps]
        case ir.TransactionStep():
            return [step.steps, *(rule.compensation for rule in step.rules)]
        case ir.EffectStep():
            return [step.found, step.empty, *(rule.compensation for rule in step.rules)]
    return []


def variable_kinds(steps: tuple[ir.Step, ...], inputs: Known) -> dict[str, ValueType]:
    """Return the types of inputs and variables. A variable is ANY where values of several types are assigned to it, or
    where it may be read before it is assigned."""
    variables = get_writes(steps)
    unsettled = read_too_early(steps, frozenset(inputs))
    kinds: dict[str, ValueType] = dict(inputs)
    for _ in range(8):
        results = {name: inputs[name] for name in variables if name in inputs}
        _collect_kinds(steps, kinds, results, {})
        after = {**inputs, **results, **dict.fromkeys(unsettled, ANY)}
        if after == kinds:
            return kinds
        kinds = after
    return {name: ANY if name in variables else kind for name, kind in kinds.items()}


def _collect_kinds(steps: tuple[ir.Step, ...], kinds: Known, results: dict[str, ValueType], loops: Known) -> None:
    """Join the types of all values that are assigned to a variable."""
    for step in steps:
        known = {**results, **kinds, **loops}
        if isinstance(step, ir.AssignStep):
            results[step.target] = join_types(results.get(step.target), kind_of(step.value, known))
        elif isinstance(step, ir.EffectStep | ir.TransitionStep):
            names = [name for name, _ in step.extract] if isinstance(step, ir.EffectStep) else []
            results.update(dict.fromkeys([name for name in (step.output, *names) if name], ANY))
        inside = loops
        if isinstance(step, ir.ForEachStep):
            inside = {**loops, step.variable: item_kind(kind_of(step.collection, known))}
        for inner in inner_steps(step):
            _collect_kinds(inner, kinds, results, inside)


# ------------------------------------------------------------ variables that may have no value yet
def read_too_early(steps: tuple[ir.Step, ...], inputs: frozenset[str]) -> set[str]:
    """Return variables that some step may read before they are assigned; their value is then null."""
    early: set[str] = set()
    find_settled_after(steps, inputs, early)
    return early & set(get_writes(steps))


def find_settled_after(steps: tuple[ir.Step, ...], settled: frozenset[str], early: set[str]) -> frozenset[str]:
    """Return the names that surely have a value after the steps. Names that are read before that are added to
    `early`."""
    for step in steps:
        settled |= _find_settled_by(step, settled, early)
    return settled


def _find_settled_by(step: ir.Step, settled: frozenset[str], early: set[str]) -> frozenset[str]:
    early |= names_in(step.guards) - settled
    gained: frozenset[str] = frozenset()
    match step:
        case ir.AssignStep():
            early |= names_in(step.value) - settled
            gained = frozenset({step.target})
        case ir.BranchStep():
            early |= names_in(step.condition) - settled
            gained = find_settled_after(step.then, settled, early) & find_settled_after(step.otherwise, settled, early)
        case ir.ForEachStep():
            early |= names_in(step.collection) - settled
            find_settled_after(step.steps, settled | {step.variable}, early)
        case ir.LoopStep():
            early |= names_in(step.condition) - settled
            find_settled_after(step.steps, settled, early)
        case ir.ParallelStep():
            gained = find_settled_after(step.steps, settled, early)
        case ir.EffectStep():
            gained = _find_settled_by_effect(step, settled, early)
        case ir.TransactionStep():
            early |= names_in((step.request, *(rule.answer for rule in step.rules))) - settled
            gained = find_settled_after(step.steps, settled, early)
            for rule in step.rules:
                find_settled_after(rule.compensation, settled | gained, early)
        case ir.TransitionStep():
            early |= names_in((step.entity, step.source, step.target, step.checks)) - settled
            gained = frozenset({step.output})
        case _:
            early |= names_in(step) - settled
    return frozenset() if step.guards else gained


def _find_settled_by_effect(step: ir.EffectStep, settled: frozenset[str], early: set[str]) -> frozenset[str]:
    early |= names_in(step.request) - settled
    gained = frozenset({step.output})
    for name, value in step.extract:
        early |= names_in(value) - settled - gained
        gained |= {name}
    inside = settled | gained
    branches = find_settled_after(step.found, inside, early) & find_settled_after(step.empty, inside, early)
    for rule in step.rules:
        early |= names_in(rule.answer) - settled
        find_settled_after(rule.compensation, inside, early)
    return gained | branches


# ------------------------------------------------------------ intervals
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "=="}


def bounds(condition: ir.TypedExpression, name: str) -> Interval:
    """Return the integers that a name may have where the condition is true."""
    match condition:
        case ir.Logic(operator="and"):
            return _meet(bounds(condition.left, name), bounds(condition.right, name))
        case ir.Compare(left=ir.NodeVariable() as subject, right=ir.Constant() as limit) if subject.name == name:
            return _half_line(condition.operator, limit.value)
        case ir.Compare(left=ir.Constant() as limit, right=ir.NodeVariable() as subject) if subject.name == name:
            return _half_line(_MIRRORED.get(condition.operator, ""), limit.value)
    return FULL


def _meet(left: Interval, right: Interval) -> Interval:
    return max(left[0], right[0]), min(left[1], right[1])


def _half_line(operator: str, limit: Any) -> Interval:
    if type(limit) is not int:
        return FULL
    low, high = FULL
    match operator:
        case "<":
            return low, limit - 1
        case "<=":
            return low, limit
        case ">":
            return limit + 1, high
        case ">=":
            return limit, high
        case "==":
            return limit, limit
    return FULL


def interval_of(node: ir.TypedExpression, intervals: Mapping[str, Interval]) -> Interval:
    """Return the integers that an expression of integers may give, before any check of its own result."""
    match node:
        case ir.Constant(value=int() as value):
            return value, value
        case ir.NodeVariable():
            return intervals.get(node.name, FULL)
        case ir.Length():
            return 0, 2**48  # more elements than a machine holds
        case ir.Negate():
            low, high = _within(interval_of(node.operand, intervals))
            return -high, -low
        case ir.Arithmetic(operator="+" | "-" | "*"):
            left = _within(interval_of(node.left, intervals))
            right = _within(interval_of(node.right, intervals))
            operator = node.operator
            if operator == "+":
                return left[0] + right[0], left[1] + right[1]
            if operator == "-":
                return left[0] - right[1], left[1] - right[0]
            products = [first * second for first in left for second in right]
            return min(products), max(products)
    return FULL


def _within(interval: Interval) -> Interval:
    """Return the part of an interval that passes a check."""
    return _meet(interval, FULL)
