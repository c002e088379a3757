"""Records that become dataclasses in generated code: those of inputs whose fields are all that a node looks at.

An input of a named record type, or an array of one, is coerced to instances of a frozen dataclass where every use of it
is known when the code is made: a field, a loop, a filter, a projection, a length or a count. Where such a record leaves
as a whole, into an answer, a text, a request or a function, it stays a dict in JSON shape. `find_records` says which
inputs those are; `DataRecord` is their type from then on.
"""

from __future__ import annotations

import keyword
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from lyra.vesper import ir
from lyra.vesper.python.kinds import get_writes, names_in, parts
from lyra.vesper.values.types import Array, RecordType, ValueType

_Uses = Mapping[str, str]  # what names hold: an "array" of records or a "record"


class DataRecord(RecordType, frozen=True, tag="data_record"):
    """A record whose values are instances of a dataclass."""

    python: str = ""  # the name of the class


class _RecordLeaves(Exception):
    """A record is used as a whole."""


def find_records(program: ir.NodeProgram) -> dict[str, RecordType]:
    """Return the record types of the inputs whose records are only looked into."""
    outputs = {output.name for output in (*program.success, *program.error)}
    rules = tuple(part.rules for part in parts(program.steps) if isinstance(part, ir.EffectStep | ir.TransactionStep))
    whole = names_in((program.olds, program.rules, rules, program.machines))
    fixed = outputs | whole | set(program.ambient) | {"value"}
    blocked = fixed | set(get_writes(program.steps))
    records: dict[str, RecordType] = {}
    for item in program.inputs:
        kind = item.type.item if isinstance(item.type, Array) else item.type
        if item.required and isinstance(kind, RecordType) and item.name not in blocked and _has_plain_names(kind):
            uses = {item.name: "array" if isinstance(item.type, Array) else "record"}
            try:
                _Walk(program, kind, fixed).check(item, uses)
            except _RecordLeaves:
                continue
            records[item.name] = kind
    return records


def replace_record(kind: ValueType, record: RecordType, python: str) -> ValueType:
    """Return the type of an input with the dataclass in place of its record."""
    shaped = DataRecord(record.name, record.fields, python)
    return Array(shaped) if isinstance(kind, Array) else shaped


def _has_plain_names(kind: RecordType) -> bool:
    names = [field.name for field in kind.fields]
    are_plain = all(name.isidentifier() and name.isascii() and not keyword.iskeyword(name) for name in names)
    return bool(kind.name and names) and are_plain and not any(name.startswith("_") for name in names)


class _Walk:
    """Walks over everything that may name an input; a record that leaves is an error."""

    def __init__(self, program: ir.NodeProgram, record: RecordType, fixed: set[str]) -> None:
        self._program = program
        self._record = record
        contracts = (program.preconditions, program.postconditions, program.invariants)
        self._fixed = fixed | names_in(contracts)
        sites = (step.target for step in parts(program) if isinstance(step, ir.AssignStep))
        self._counts = Counter(sites)

    def check(self, item: ir.NodeInput, uses: _Uses) -> None:
        program = self._program
        self._look((program.preconditions, program.postconditions, program.invariants), uses)
        for other in program.inputs:
            is_own = other.name == item.name
            self._look(other.constraints, {**uses, "value": uses[item.name]} if is_own else _without(uses, "value"))
        inner, before = dict(uses), set[str]()
        for step in program.steps:
            match step:
                case ir.AssignStep(guards=(), value=ir.Filter()) if self._is_array(step.value, inner):
                    if step.target in self._fixed or step.target in before or self._counts[step.target] > 1:
                        raise _RecordLeaves
                    self._look_into(step.value, inner)
                    inner[step.target] = "array"
                case _:
                    self._look(step, inner)
            before |= names_in(step)

    def _look(self, node: Any, uses: _Uses) -> None:
        match node:
            case ir.NodeVariable():
                if node.name in uses:
                    raise _RecordLeaves
            case ir.FieldOf(target=ir.NodeVariable(name=variable)) if uses.get(variable) == "record":
                self._see_field(node.name)
            case ir.Projection() if self._is_array(node.target, uses):
                self._see_field(node.name)
                self._look_into(node.target, uses)
            case ir.Length() if self._is_array(node.target, uses):
                self._look_into(node.target, uses)
            case ir.Aggregate(function="count") if self._is_array(node.collection, uses):
                self._look_into(node.collection, uses)
            case ir.Filter() | ir.GroupBy(aggregations=()) if self._is_array(node.collection, uses):
                raise _RecordLeaves
            case ir.Quantifier() | ir.MapOver() | ir.Filter() | ir.Reduce() | ir.GroupBy():
                self._look_at_loop(node, node.name, uses)
            case ir.ForEachStep():
                self._look_at_loop(node, node.variable, uses)
            case tuple():
                for part in node:
                    self._look(part, uses)
            case msgspec.Struct():
                for field in node.__struct_fields__:
                    self._look(getattr(node, field), uses)

    def _look_at_loop(self, node: Any, variable: str, uses: _Uses) -> None:
        inner = _without(uses, variable)
        if self._is_array(node.collection, uses):
            if variable in set(get_writes(self._program.steps)):
                raise _RecordLeaves
            self._look_into(node.collection, uses)
            inner = {**inner, variable: "record"}
        else:
            self._look(node.collection, uses)
        if isinstance(node, ir.Reduce):
            self._look(node.initial, uses)
            inner = _without(inner, node.accumulator)
        for field in node.__struct_fields__:
            if field not in ("collection", "initial", "guards"):
                self._look(getattr(node, field), inner)
        self._look(getattr(node, "guards", ()), uses)

    def _look_into(self, node: ir.TypedExpression, uses: _Uses) -> None:
        """Look at the conditions of filters around an array of records."""
        if isinstance(node, ir.Filter):
            self._look_into(node.collection, uses)
            self._look(node.body, {**uses, node.name: "record"})

    def _is_array(self, node: ir.TypedExpression, uses: _Uses) -> bool:
        """Return whether a value is an array of the records."""
        if isinstance(node, ir.Filter):
            return self._is_array(node.collection, uses)
        return isinstance(node, ir.NodeVariable) and uses.get(node.name) == "array"

    def _see_field(self, name: str) -> None:
        if self._record.field(name) is None:
            raise _RecordLeaves


def _without(uses: _Uses, name: str) -> dict[str, str]:
    return {other: use for other, use in uses.items() if other != name}
