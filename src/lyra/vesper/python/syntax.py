"""Short ways to build syntax trees, the parts that one generated module collects while it is made, and its names.

An input called `class`, `print` or `_x` gets another Python name (`class_`, `print_`, `x_`), so that it can hide
neither a keyword, nor a built-in, nor a helper of the generated module. `fresh` gives names for helper variables.

Records of inputs become dataclasses in generated code where their fields are all that a node looks at.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any, Final

import msgspec

from lyra.vesper import ir
from lyra.vesper.python import runtime
from lyra.vesper.python.kinds import get_writes, names_in, parts
from lyra.vesper.values.limits import MEMORY_MB_DEFAULT, TEXT_MAX
from lyra.vesper.values.types import (
    BOOLEAN,
    BYTES,
    DURATION,
    INTEGER,
    STRING,
    TIMESTAMP,
    Array,
    DecimalType,
    EnumType,
    MapType,
    Nullable,
    RecordType,
    Scalar,
    SetType,
    ValueType,
    key_kind,
)

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


def name(text: str) -> ast.Name:
    return ast.Name(text, ast.Load())


def store(text: str) -> ast.Name:
    return ast.Name(text, ast.Store())


def attribute(target: ast.expr, text: str) -> ast.Attribute:
    return ast.Attribute(target, text, ast.Load())


def call(function: ast.expr, *arguments: ast.expr, **keywords: ast.expr) -> ast.Call:
    return ast.Call(function, list(arguments), [ast.keyword(word, value) for word, value in keywords.items()])


def compare(left: ast.expr, operator: ast.cmpop, right: ast.expr) -> ast.Compare:
    return ast.Compare(left, [operator], [right])


def assign(target: str, value: ast.expr) -> ast.Assign:
    return ast.Assign([store(target)], value)


def if_(test: ast.expr, body: Sequence[ast.stmt], otherwise: Sequence[ast.stmt] = ()) -> ast.If:
    return ast.If(test, list(body), list(otherwise))


def raise_(error: ast.expr, *, plainly: bool = False) -> ast.Raise:
    """Raise the error; `plainly` drops the error that led to it."""
    return ast.Raise(error, ast.Constant(None) if plainly else None)


_OPPOSITES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
}


def negate(test: ast.expr) -> ast.expr:
    """Return the opposite of a condition. Values that have an order have a total one, so `<` turns into `>=`."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        return ast.Compare(test.left, [_OPPOSITES[type(test.ops[0])]()], test.comparators)
    if isinstance(test, ast.Constant) and isinstance(test.value, bool):
        return ast.Constant(not test.value)
    if isinstance(test, ast.BoolOp) and all(isinstance(value, ast.Compare | ast.UnaryOp) for value in test.values):
        return ast.BoolOp(ast.Or() if isinstance(test.op, ast.And) else ast.And(), [negate(v) for v in test.values])
    return ast.UnaryOp(ast.Not(), test)


def all_of(tests: Sequence[ast.expr]) -> ast.expr:
    return tests[0] if len(tests) == 1 else ast.BoolOp(ast.And(), list(tests))


class ModuleParts:
    """What a module imports and defines besides its functions."""

    def __init__(self, names: Names, own_names: set[str], memory_mb: int = MEMORY_MB_DEFAULT) -> None:
        self.names = names
        self.memory_bytes = memory_mb * 1024 * 1024
        self.aliases = {text: f"_{text}" for text in own_names & set(RUNTIME_NAMES)}
        self.imports: dict[str, set[str]] = {}
        self.classes: dict[RecordType, ast.ClassDef] = {}
        self.constants: list[ast.stmt] = []
        self._constant_names: dict[str, str] = {}

    def runtime(self, text: str) -> ast.Name:
        """Return a name of the runtime module, with an underscore where a value of the node has that name."""
        self.import_name("lyra.vesper.python.runtime", text)
        return name(self.aliases.get(text, text))

    def import_name(self, module: str, text: str) -> ast.Name:
        self.imports.setdefault(module, set()).add(text)
        return name(text)

    def constant(self, hint: str, value: ast.expr) -> ast.Name:
        """Return a constant of the module with this value; the same for the same value."""
        key = ast.dump(value)
        if key not in self._constant_names:
            chosen = self.names.private(hint.upper())
            self._constant_names[key] = chosen
            self.constants.append(ast.AnnAssign(store(chosen), self.import_name("typing", "Final"), value, 1))
        return name(self._constant_names[key])

    def literal(self, value: Any) -> ast.expr:
        """Return a value written out. Decimals and times become constants of the module."""
        match value:
            case bool() | None | str() | bytes():
                return ast.Constant(value)
            case int():
                return ast.Constant(value) if value >= 0 else ast.UnaryOp(ast.USub(), ast.Constant(-value))
            case Decimal():
                hint = "decimal_" + re.sub(r"\W", "_", str(value).replace("-", "minus_"))
                is_whole = re.fullmatch(r"-?(0|[1-9][0-9]{0,17})", str(value)) and str(value) != "-0"
                number = self.literal(int(value)) if is_whole else ast.Constant(str(value))
                return self.constant(hint, call(self.import_name("decimal", "Decimal"), number))
            case datetime():
                parse = attribute(self.import_name("datetime", "datetime"), "fromisoformat")
                return self.constant("time", call(parse, ast.Constant(value.isoformat())))
            case list():
                return ast.List([self.literal(element) for element in value], ast.Load())
            case dict():
                keys: list[ast.expr | None] = [ast.Constant(key) for key in value]
                return ast.Dict(keys, [self.literal(element) for element in value.values()])
            case frozenset():
                elements = [self.literal(element) for element in sorted(value, key=repr)]
                return call(name("frozenset"), ast.List(elements, ast.Load()))
        raise TypeError(f"{type(value).__name__} cannot be written out")

    def text_limit(self) -> list[ast.expr]:
        """Return the argument for the most characters of a text, where memory allows fewer than any text may have."""
        return [ast.Constant(self.memory_bytes)] if self.memory_bytes < TEXT_MAX else []

    def array_limit(self) -> list[ast.expr]:
        """Return the argument for the memory of an array, where it is not the usual one."""
        is_usual = self.memory_bytes == MEMORY_MB_DEFAULT * 1024 * 1024
        return [] if is_usual else [ast.Constant(self.memory_bytes)]

    def annotation(self, kind: ValueType) -> ast.expr:
        """Return the Python type of values of a type."""
        plain = {STRING: "str", INTEGER: "int", BOOLEAN: "bool", BYTES: "bytes"}
        match kind:
            case DecimalType():
                return self.import_name("decimal", "Decimal")
            case EnumType():
                return name("str")
            case Array():
                return self._generic("list", self.annotation(kind.item))
            case SetType():
                return self._generic("frozenset", self.annotation(kind.item))
            case MapType():
                return self._generic("dict", name("str"), self.annotation(kind.value))
            case DataRecord():
                return name(kind.python)
            case Scalar(kind="number"):
                return ast.BinOp(self.import_name("decimal", "Decimal"), ast.BitOr(), name("int"))
            case RecordType():
                return self._generic("dict", name("str"), self.any())
            case Nullable():
                inner = self.annotation(kind.type)
                is_any = isinstance(inner, ast.Name) and inner.id == "Any"
                return inner if is_any else ast.BinOp(inner, ast.BitOr(), ast.Constant(None))
        if kind == DURATION:
            return self.import_name("decimal", "Decimal")
        if kind == TIMESTAMP:
            return self.import_name("datetime", "datetime")
        return name(plain[kind]) if kind in plain else self.any()

    def dataclass(self, kind: RecordType) -> str:
        """Return the name of the module's dataclass for a record."""
        if kind not in self.classes:
            words = re.split(r"[^A-Za-z0-9]+", kind.name)
            chosen = self.names.fresh("".join(word[:1].upper() + word[1:] for word in words))
            keywords = [ast.keyword(word, ast.Constant(True)) for word in ("frozen", "slots")]
            decorator = ast.Call(self.import_name("dataclasses", "dataclass"), [], keywords)
            fields: list[ast.stmt] = [ast.Expr(ast.Constant(f"A record {kind.name}."))]
            for field in kind.fields:
                is_sure = field.required or isinstance(field.type, Nullable) or isinstance(field.default, _GIVEN)
                annotation = self.annotation(field.type if is_sure else Nullable(field.type))
                fields.append(ast.AnnAssign(store(field.name), annotation, None, 1))
            self.classes[kind] = ast.ClassDef(chosen, [], [], fields, [decorator])
        return self.classes[kind].name

    def any(self) -> ast.Name:
        return self.import_name("typing", "Any")

    def dict_type(self) -> ast.expr:
        return self._generic("dict", name("str"), self.any())

    @staticmethod
    def _generic(outer: str, *inner: ast.expr) -> ast.Subscript:
        index = inner[0] if len(inner) == 1 else ast.Tuple(list(inner), ast.Load())
        return ast.Subscript(name(outer), index, ast.Load())

    def coercer(self, kind: ValueType, *, is_output: bool = False) -> ast.expr:
        """Return the function of the runtime that coerces to a type; compound ones are constants of the module."""
        simple = {STRING: "to_string", INTEGER: "to_integer", BOOLEAN: "to_boolean"}
        exact = {BYTES: "bytes", TIMESTAMP: "timestamp"}
        prefix = "exact" if is_output else "to"
        if kind == DURATION:
            return self.runtime("exact_decimal" if is_output else "to_duration")
        if kind in simple:
            return self.runtime(simple[kind])
        if kind in exact:
            return self.runtime(f"{prefix}_{exact[kind]}")
        match kind:
            case DecimalType(scale=None):
                return self.runtime(f"{prefix}_decimal")
            case DecimalType():
                maker = self.runtime("exact_decimal_of" if is_output else "decimal_of")
                return self._coercer_constant("scaled", call(maker, ast.Constant(kind.scale)))
            case EnumType():
                return self._coercer_constant("enum", call(self.runtime("enum_of"), *map(ast.Constant, kind.values)))
            case Nullable(type=Nullable() as inner_kind):
                return self.coercer(inner_kind, is_output=is_output)
            case Nullable():
                inner = self.coercer(kind.type, is_output=is_output)
                return self._coercer_constant("nullable", call(self.runtime("nullable"), inner))
            case Array() | SetType():
                maker = self.runtime("array_of" if isinstance(kind, Array) else "set_of")
                return self._coercer_constant("items", call(maker, self.coercer(kind.item, is_output=is_output)))
            case MapType():
                entry = [self._key_coercer(kind.key), self.coercer(kind.value, is_output=is_output)]
                return self._coercer_constant("map", call(self.runtime("map_of"), *entry))
            case RecordType():
                return self._record_coercer(kind, is_output=is_output)
        return self.runtime("to_null" if getattr(kind, "kind", "") == "null" else f"{prefix}_any")

    def _key_coercer(self, kind: ValueType) -> ast.expr:
        word = key_kind(kind)
        if word in ("string", "any"):
            return self.coercer(kind if isinstance(kind, EnumType) else STRING)
        return self._coercer_constant("key", call(self.runtime("key_of"), ast.Constant(word)))

    def _coercer_constant(self, hint: str, value: ast.expr) -> ast.expr:
        return self.constant(f"to_{hint}", value)

    def _record_coercer(self, kind: RecordType, *, is_output: bool) -> ast.expr:
        rows: list[ast.expr] = []
        for field in kind.fields:
            default = self.literal(field.default) if isinstance(field.default, _VALUES) else ast.Constant(None)
            is_needed = field.required and not isinstance(field.type, Nullable) and isinstance(default, ast.Constant)
            is_needed = is_needed and not isinstance(field.default, _VALUES)
            row = [
                ast.Constant(field.name),
                self.coercer(field.type, is_output=is_output),
                ast.Constant(is_needed),
                default,
            ]
            rows.append(ast.Tuple(row, ast.Load()))
        maker = call(self.runtime("record_of"), ast.Constant(kind.name or "record"), *rows)
        if isinstance(kind, DataRecord):
            maker.keywords.append(ast.keyword("make", name(kind.python)))
        return self._coercer_constant(kind.name or "record", maker)


_GIVEN = (str, int, Decimal, bool, bytes, datetime, list, dict, frozenset)
_VALUES = (str, int, Decimal, bool, bytes, datetime, list, dict, frozenset, type(None))


RUNTIME_NAMES: Final = tuple(name for name in vars(runtime) if name[0] != "_" and name != "annotations")

_IMPORTED: Final = ("Any", "Decimal", "Final", "UTC", "annotations", "datetime", "effects", "reduce", "run")
_TAKEN: Final = frozenset({*keyword.kwlist, *keyword.softkwlist, *dir(builtins), *_IMPORTED})
_LENGTH_MAX: Final = 80


def _identifier(text: str) -> str:
    plain = re.sub(r"[^A-Za-z0-9_]", "_", text)[:_LENGTH_MAX].strip("_") or "value"
    return f"n{plain}" if plain[0].isdigit() else plain


def function_name(node_id: str) -> str:
    """Return the name of a node's function: the node id, its dots as underscores."""
    name = _identifier(node_id)
    return f"{name}_" if name in _TAKEN else name


class Names:
    """The names of one generated module."""

    def __init__(self, *taken: str) -> None:
        self._taken = {*_TAKEN, *taken}
        self.bases: dict[str, str] = {}  # of names with a number or an underscore: the name without it
        self._helpers = set(RUNTIME_NAMES)  # a helper variable may not be called like one; a value of the node may

    def name_value(self, text: str) -> str:
        """Return the Python name of a value of the node."""
        base = _identifier(text)
        return self._choose(base.lower() if keyword.iskeyword(base) else base, self._taken)

    def fresh(self, hint: str) -> str:
        """Return a name like the hint that is not used yet."""
        return self._choose(_identifier(hint), self._taken | self._helpers)

    def _choose(self, base: str, taken: set[str]) -> str:
        name, number = base, 1
        while name in taken:
            name = f"{base}_" if number == 1 else f"{base}_{number}"
            number += 1
        self._taken.add(name)
        if name != base:
            self.bases[name] = base
        return name

    def private(self, hint: str) -> str:
        """Return a name for the module itself, which begins with an underscore."""
        base = f"_{_identifier(hint)}"
        name, number = base, 1
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken.add(name)
        return name
