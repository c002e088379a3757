"""What constraints and preconditions leave of the values of each input, as far as constants say it.

A `Room` has the bounds, the lengths, the values and the patterns of one place of the inputs: `("lines", "*", "price")`
is the price of each line. `rooms_of` collects them; `outcome_of` says whether a condition is always true or always
false in them, and `finite_inputs` lists all inputs of a node that has few. Nothing here is complete: what no constant
says is left out, and a search tries what it cannot know.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from itertools import combinations, product
from math import ceil, floor
from typing import Any, Final

import msgspec

from lyra.vesper import ir
from lyra.vesper.check.steps import parts_of
from lyra.vesper.evidence.clock_changes import read_moment
from lyra.vesper.values.types import (
    BOOLEAN,
    INTEGER,
    STRING,
    Array,
    DecimalType,
    EnumType,
    Nullable,
    RecordType,
    SetType,
    ValueType,
)

Path = tuple[str, ...]
EACH: Final = "*"  # the elements of an array, in a path
LENGTH: Final = "#"  # the length of what stands before it
_TEXTS_SHOWN: Final = 10  # of a hint
FINITE_MAX: Final = 20_000  # inputs of a node that is tried on all of them
_MIRROR: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_OPPOSITE: Final = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


class Room(msgspec.Struct):
    """What is left of the values of one place."""

    low: Any = None
    high: Any = None
    low_open: bool = False
    high_open: bool = False
    values: tuple[Any, ...] | None = None  # equal to one of these; None: any
    patterns: tuple[str, ...] = ()

    def narrow(self, operator: str, value: Any) -> None:
        if operator == "==":
            self.values = (value,) if self.values is None else tuple(item for item in self.values if item == value)
        if not is_ordered(value):
            return
        if operator in (">", ">=") and (self.low is None or (value, operator == ">") > (self.low, self.low_open)):
            self.low, self.low_open = value, operator == ">"
        if operator in ("<", "<=") and (
            self.high is None or (value, operator == "<=") < (self.high, not self.high_open)
        ):
            self.high, self.high_open = value, operator == "<"

    def has(self, value: Any) -> bool:
        """Return whether the bounds and the values leave room for a value; patterns are not looked at."""
        if self.values is not None and value not in self.values:
            return False
        if not is_ordered(value):
            return True
        below = self.low is not None and (value < self.low or (self.low_open and value == self.low))
        above = self.high is not None and (value > self.high or (self.high_open and value == self.high))
        return not below and not above

    def decide(self, operator: str, value: Any) -> bool | None:
        """Return whether all values here compare so with a constant, or none does; None where that depends."""
        if self.values is not None:
            outcomes = {_compare(operator, item, value) for item in self.values if self.has(item)}
            return outcomes.pop() if len(outcomes) == 1 else None
        if not is_ordered(value):
            return None
        if operator in ("==", "!="):
            return None if self.has(value) else operator == "!="
        if operator in (">", ">="):
            outcome = self.decide("<=" if operator == ">" else "<", value)
            return None if outcome is None else not outcome
        is_strict = operator == "<"
        if self.high is not None and (self.high < value or (self.high == value and (self.high_open or not is_strict))):
            return True
        if self.low is not None and (self.low > value or (self.low == value and (self.low_open or is_strict))):
            return False
        return None


def is_ordered(value: Any) -> bool:
    return isinstance(value, (int, Decimal, datetime)) and not isinstance(value, bool)


def _compare(operator: str, left: Any, right: Any) -> bool | None:
    if operator in ("==", "!="):
        return bool(left == right) is (operator == "==")
    if not is_ordered(left) or not is_ordered(right) or isinstance(left, datetime) is not isinstance(right, datetime):
        return None
    return bool({"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[operator])


def rooms_of(program: ir.NodeProgram, *, with_validations: bool = False) -> dict[Path, Room]:
    """Return the rooms that the entry of a program leaves; `with_validations`, also those of its first steps that only
    check."""
    rooms: dict[Path, Room] = {}
    places = {declared.name: (declared.name,) for declared in program.inputs}
    for declared in program.inputs:
        for check in declared.constraints:
            _narrow(check.expression, {**places, "value": (declared.name,)}, rooms)
    for contract in program.preconditions:
        if contract.expression is not None:
            _narrow(contract.expression, places, rooms)
    if with_validations:
        for step in program.steps:
            if isinstance(step, ir.ValidateStep):
                for condition in (*step.guards, *step.checks):
                    _narrow(condition.expression, places, rooms)
    return rooms


def rooms_of_answer(checks: tuple[ir.Condition, ...]) -> dict[Path, Room]:
    """Return the rooms that the checks of an act's answer leave it, below the place `value`."""
    rooms: dict[Path, Room] = {}
    for check in checks:
        _narrow(check.expression, {"value": ("value",)}, rooms)
    return rooms


def _narrow(condition: ir.TypedExpression, places: Mapping[str, Path], rooms: dict[Path, Room]) -> None:
    match condition:
        case ir.Logic(operator="and"):
            _narrow(condition.left, places, rooms)
            _narrow(condition.right, places, rooms)
        case ir.Logic(operator="or", left=ir.IsNull()):
            _narrow(condition.right, places, rooms)  # a constraint of a value that may be null
        case ir.Quantifier(kind="forall"):
            path = _path(condition.collection, places)
            if path is not None:
                _narrow(condition.body, {**places, condition.name: (*path, EACH)}, rooms)
        case ir.Not(operand=ir.Compare() as inner):
            _narrow(msgspec.structs.replace(inner, operator=_OPPOSITE[inner.operator]), places, rooms)
        case ir.Compare():
            bound = _comparison(condition, places)
            if bound is not None:
                path, operator, value = bound
                rooms.setdefault(path, Room()).narrow(operator, value)
        case ir.Membership():
            path, values = _path(condition.item, places), _constants(condition.collection)
            if path is not None and values is not None:
                room = rooms.setdefault(path, Room())
                room.values = tuple(value for value in values if room.values is None or value in room.values)
        case ir.FunctionCall(function="matches", arguments=(subject, ir.Constant(value=str(pattern)))):
            path = _path(subject, places)
            if path is not None:
                room = rooms.setdefault(path, Room())
                room.patterns = (*room.patterns, pattern)


def _comparison(condition: ir.Compare, places: Mapping[str, Path]) -> tuple[Path, str, Any] | None:
    """Return the place, the operator and the constant of a comparison of an input with a constant."""
    for subject, other, operator in (
        (condition.left, condition.right, condition.operator),
        (condition.right, condition.left, _MIRROR[condition.operator]),
    ):
        constant = _constant(other)
        if constant is not None:
            path = _path(subject, places)
            if path is not None:
                return path, operator, constant
    return None


def _constant(expression: ir.TypedExpression) -> Any:
    """Return the value of a constant, or the moment that `timestamp('…')` is; None of any other expression."""
    match expression:
        case ir.Constant():
            return expression.value
        case ir.FunctionCall(function="timestamp", arguments=(ir.Constant(value=str(text)),)):
            return read_moment(text)
    return None


def _constants(expression: ir.TypedExpression) -> list[Any] | None:
    if isinstance(expression, ir.ListOf) and all(isinstance(item, ir.Constant) for item in expression.items):
        return [item.value for item in expression.items if isinstance(item, ir.Constant)]
    return None


def _path(expression: ir.TypedExpression, places: Mapping[str, Path]) -> Path | None:
    match expression:
        case ir.NodeVariable():
            return places.get(expression.name)
        case ir.FieldOf():
            target = _path(expression.target, places)
            return None if target is None else (*target, expression.name)
        case ir.Projection():
            target = _path(expression.target, places)
            return None if target is None else (*target, EACH, expression.name)
        case ir.Length():
            target = _path(expression.target, places)
            return None if target is None else (*target, LENGTH)
        case ir.Aggregate(function="count"):
            target = _path(expression.collection, places)
            return None if target is None else (*target, LENGTH)
        case ir.FunctionCall(function="len" | "length", arguments=(subject,)):
            target = _path(subject, places)
            return None if target is None else (*target, LENGTH)
    return None


def outcome_of(condition: ir.TypedExpression, rooms: Mapping[Path, Room]) -> bool | None:
    """Return whether a condition is true, or false, wherever the inputs lie in their rooms; None where it depends."""
    match condition:
        case ir.Not():
            inner = outcome_of(condition.operand, rooms)
            return None if inner is None else not inner
        case ir.Logic():
            left, right = outcome_of(condition.left, rooms), outcome_of(condition.right, rooms)
            if condition.operator == "implies":
                left = None if left is None else not left
            decisive = condition.operator != "and"
            if left is decisive or right is decisive:
                return decisive
            return None if left is None or right is None else not decisive
        case ir.Compare():
            bound = _comparison(condition, {path[0]: (path[0],) for path in rooms})
            if bound is None or bound[0] not in rooms:
                return None
            if isinstance(condition.left.type, Nullable) or isinstance(condition.right.type, Nullable):
                return None
            return rooms[bound[0]].decide(bound[1], bound[2])
    return None


# ---------------------------------------------------------------- few inputs


def finite_inputs(
    program: ir.NodeProgram, most: int = FINITE_MAX, *, is_settled: bool = False
) -> list[dict[str, Any]] | None:
    """Return all inputs that a program may accept, if these are few and nothing else decides what it does. The acts of
    one that `is_settled` are calls of nodes that only their inputs decide."""
    if not depends_on_inputs(program, is_settled=is_settled):
        return None
    rooms = rooms_of(program)
    columns: list[list[tuple[str, Any] | None]] = []
    total = 1
    for declared in program.inputs:
        values = _values(declared.type, (declared.name,), rooms, most)
        if values is None:
            return None
        column: list[tuple[str, Any] | None] = [(declared.name, value) for value in values]
        columns.append(column if declared.required else [None, *column])
        total *= len(columns[-1])
        if total > most:
            return None
    return [dict(item for item in row if item is not None) for row in product(*columns)]


def describe_few_texts(program: ir.NodeProgram) -> str:
    """Return which constraint would leave a program so few inputs that it is tried on all of them: a text that it looks
    up among constants may be one of these. Empty where that is not so."""
    parts = list(parts_of(program))
    maps = {part.target: part.value for part in parts if isinstance(part, ir.AssignStep)}
    lookups = [row for part in parts if (row := _lookup(part, maps))[1]]
    texts: dict[str, tuple[str, ...]] = {}
    for item in program.inputs:
        values = {text for name, known in lookups for text in known if name == item.name}
        if item.type == STRING and values:
            texts[item.name] = tuple(sorted(values))
    inputs = tuple(
        msgspec.structs.replace(item, type=EnumType(texts[item.name])) if item.name in texts else item
        for item in program.inputs
    )
    if not texts or finite_inputs(msgspec.structs.replace(program, inputs=inputs)) is None:
        return ""
    uses = [part.name for part in parts if isinstance(part, ir.NodeVariable)]
    sentences = []
    for name, known_texts in texts.items():
        is_only_looked_up = uses.count(name) == [known for known, _ in lookups].count(name)
        others = "all other texts take one way through it; " if is_only_looked_up else ""
        shown = ", ".join(known_texts[:_TEXTS_SHOWN]) + ", …" * (len(known_texts) > _TEXTS_SHOWN)
        remedy = f"with the constraint `one_of: [{shown}]` it is tried on all of them"
        sentences.append(f"the node looks `{name}` up among {len(known_texts)} texts; {others}{remedy}")
    return "; ".join(sentences)


def _lookup(part: Any, maps: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return the variable that an expression looks up among constant texts, and these; empty for any other."""
    match part:
        case ir.Compare(operator="==" | "!=", left=ir.NodeVariable(name=name), right=ir.Constant(value=str(text))):
            return name, [text]
        case ir.Compare(operator="==" | "!=", left=ir.Constant(value=str(text)), right=ir.NodeVariable(name=name)):
            return name, [text]
        case ir.Membership(item=ir.NodeVariable(name=name), collection=known):
            pass
        case ir.ItemOf(target=known, index=ir.NodeVariable(name=name)):
            pass
        case ir.FunctionCall(function="get", arguments=(known, ir.NodeVariable(name=name), *_)):
            pass
        case _:
            return "", []
    known = maps.get(known.name, known) if isinstance(known, ir.NodeVariable) else known
    if isinstance(known, ir.MapOf):
        return name, [key for key, _ in known.entries]
    items = known.items if isinstance(known, ir.ListOf) else ()
    return name, [item.value for item in items if isinstance(item, ir.Constant) and isinstance(item.value, str)]


def depends_on_inputs(program: ir.NodeProgram, *, is_settled: bool = False) -> bool:
    """Return whether the inputs alone decide what a program does, whose acts may be settled by them, too."""
    return (program.pure or is_settled) and not program.ambient and not _depends_on_context(program)


def _depends_on_context(program: ir.NodeProgram) -> bool:
    """Return whether the outcome depends on more than the inputs: the time, ids, predicates of the host."""
    todo: list[Any] = [program]
    while todo:
        part = todo.pop()
        if isinstance(part, tuple | list):
            todo.extend(part)
        elif isinstance(part, msgspec.Struct):
            if isinstance(part, ir.HostCall) or (isinstance(part, ir.FunctionCall) and not part.arguments):
                return True
            todo.extend(getattr(part, name) for name in part.__struct_fields__)
    return False


def _values(kind: ValueType, path: Path, rooms: Mapping[Path, Room], most: int) -> list[Any] | None:
    """Return all values of a type at a place, None where these are many."""
    room = rooms.get(path, Room())
    if isinstance(kind, Nullable):
        inner = _values(kind.type, path, rooms, most)
        return None if inner is None else [None, *inner]
    if kind == BOOLEAN:
        return [value for value in (False, True) if room.has(value)]
    if isinstance(kind, EnumType):
        return [value for value in kind.values if room.has(value)]
    if room.values is not None and kind in (INTEGER, STRING):
        return [value for value in room.values if room.has(value)]
    if kind == INTEGER or (isinstance(kind, DecimalType) and kind.scale is not None):
        scale = kind.scale if isinstance(kind, DecimalType) and kind.scale else 0
        if room.low is None or room.high is None:
            return None
        first, last = ceil(room.low * 10**scale), floor(room.high * 10**scale)
        if last - first >= most:
            return None
        numbers: Iterable[Any] = range(first, last + 1)
        if isinstance(kind, DecimalType):
            numbers = [Decimal(number).scaleb(-scale) for number in numbers]
        return [number for number in numbers if room.has(number)]
    if isinstance(kind, RecordType):
        return _records(kind, path, rooms, most)
    if isinstance(kind, Array):
        return _lists(kind, path, rooms, most)
    if isinstance(kind, SetType):
        items = _values(kind.item, (*path, EACH), rooms, most)
        if items is not None and 2 ** len(items) <= most:
            return [list(chosen) for count in range(len(items) + 1) for chosen in combinations(items, count)]
    return None


def _lists(kind: Array, path: Path, rooms: Mapping[Path, Room], most: int) -> list[Any] | None:
    room = rooms.get((*path, LENGTH), Room())
    if room.high is None:
        return None
    lists: list[Any] = [[]]
    longest = lists
    items = _values(kind.item, (*path, EACH), rooms, most) if room.high > 0 else []
    if items is None:
        return None
    for _ in range(floor(room.high) if items else 0):
        if len(lists) + len(longest) * len(items) > most:
            return None
        longest = [[*before, item] for before in longest for item in items]
        lists += longest
    return [value for value in lists if room.has(len(value))]


def _records(kind: RecordType, path: Path, rooms: Mapping[Path, Room], most: int) -> list[Any] | None:
    columns: list[list[tuple[str, Any] | None]] = []
    total = 1
    for field in kind.fields:
        values = _values(field.type, (*path, field.name), rooms, most)
        if values is None:
            return None
        columns.append([*([] if field.required else [None]), *((field.name, value) for value in values)])
        total *= len(columns[-1])
        if total > most:
            return None
    return [dict(item for item in row if item is not None) for row in product(*columns)]
