"""Random inputs for a program, in bulk.

`InputGenerator(program, seed).batch(count)` gives inputs as JSON-shaped or Python values: mostly of the declared types,
from random values and boundaries (the program's constants and their neighbours, and the ends of its types), and now and
then a missing, unknown or mistyped input. Values of an input are drawn from a pool that each batch renews, so that a
batch costs little more than the dictionaries it is made of. The same seed gives the same inputs.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from random import Random  # noqa: TID251 - the type; generators come from core.ids
from typing import Any, Final, TypeVar

import msgspec

from lyra.core.ids import make_random
from lyra.vesper import ir
from lyra.vesper.evidence.clock_changes import anchors_in, draw_near, list_changes, local_texts, texts_in, zones_in
from lyra.vesper.expressions.functions import DIRECTIVES, FUNCTIONS
from lyra.vesper.values.types import (
    ANY,
    INTEGER_MAX,
    INTEGER_MIN,
    STRING,
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

T = TypeVar("T")
Draw = Callable[[Random], Any]
_POOL: Final = 256  # values of an input in a batch; a random byte chooses one of them
_EDGES: Final = 96  # of them, at most, boundary values
_ODD_SHARE: Final = 16  # one in so many inputs is missing, unknown or mistyped
_ODD_VALUES: Final[tuple[Any, ...]] = (
    None, True, False, 0, 1, -1, 2**63, 1.5, float("nan"), float("inf"), "", "x", "1", "NaN", "1e3", [], [1], {},
    {"a": 1}, b"x", Decimal("1.5"), Decimal("NaN"), [None], (1,), "2024-01-01", 1e300, -0.0,
)  # fmt: skip
_LETTERS: Final = "abcxyzABC 019_-@.éß𝄞"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DEPTH_MAX: Final = 3
_CHANGE_SHARE: Final = 0.3  # of timestamps, where a program names a zone whose clocks change


def pick(rng: Random, values: Sequence[T]) -> T:
    """Return one of the values: all are as likely, at a third of what `Random.choice` takes."""
    return values[int(rng.random() * len(values))]


def drawer(kind: ValueType, boundaries: Boundaries, depth: int = 0) -> Draw:
    """Return a function that draws values of a type."""
    match kind:
        case Scalar():
            return _scalar(kind.kind, boundaries, depth)
        case DecimalType():
            return _decimal(kind.scale, boundaries)
        case EnumType():
            return lambda rng: pick(rng, kind.values)
        case Array():
            return _list(drawer(kind.item, boundaries, depth + 1), boundaries)
        case SetType():
            return _distinct(_list(drawer(kind.item, boundaries, depth + 1), boundaries))
        case MapType():
            keys = drawer(STRING if kind.key == ANY else kind.key, boundaries)
            return _map(lambda rng: _key_text(keys(rng)), drawer(kind.value, boundaries, depth + 1))
        case RecordType():
            return _record(kind.fields, boundaries, depth)
        case Nullable():
            inner = drawer(kind.type, boundaries, depth)
            return lambda rng: None if rng.random() < 0.2 else inner(rng)
    raise AssertionError(kind)


def _scalar(name: str, boundaries: Boundaries, depth: int) -> Draw:
    match name:
        case "string":
            return _text(boundaries)
        case "integer":
            return _integer(boundaries)
        case "boolean":
            return lambda rng: rng.random() < 0.5
        case "bytes":
            return _bytes
        case "timestamp":
            return _timestamp(boundaries)
        case "duration":
            return _duration(boundaries)
        case "null":
            return lambda _: None
    return _anything(boundaries, depth)


def _integer(boundaries: Boundaries) -> Draw:
    edges = boundaries.integers

    def draw(rng: Random) -> int:
        choice = rng.random()
        if choice < 0.4:
            return pick(rng, edges)
        if choice < 0.8:
            return int(rng.random() * 1020) - 20
        return rng.getrandbits(rng.randrange(1, 64)) * (1 if rng.random() < 0.5 else -1)

    return draw


def _decimal(scale: int | None, boundaries: Boundaries) -> Draw:
    edges = boundaries.decimals
    fitting = [text for text in edges if scale is None or _scale_of(text) <= scale] or ["0"]

    def draw(rng: Random) -> Any:
        choice = rng.random()
        if choice < 0.45:
            text = pick(rng, fitting if rng.random() < 0.9 else edges)
        else:
            digits = rng.randrange(0, 5) if scale is None else rng.randrange(0, scale + 1)
            whole = rng.randrange(0, 10 ** rng.randrange(1, 8))
            sign = "-" if rng.random() < 0.3 else ""
            text = f"{sign}{whole}.{rng.randrange(0, 10**digits):0{digits}d}" if digits else f"{sign}{whole}"
        form = rng.random()
        if form < 0.4:
            return text
        if form < 0.8 or len(text) > 15:
            return Decimal(text)
        return float(text)

    return draw


def _scale_of(text: str) -> int:
    exponent = Decimal(text).as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


def _text(boundaries: Boundaries) -> Draw:
    edges = [*boundaries.texts, *boundaries.time_texts]

    def draw(rng: Random) -> str:
        choice = rng.random()
        if choice < 0.6:
            return pick(rng, edges)
        if choice < 0.7:
            return pick(rng, edges) + pick(rng, edges)
        length = pick(rng, boundaries.lengths) if choice < 0.8 else rng.randrange(0, 12)
        return "".join(rng.choices(_LETTERS, k=length))

    return draw


def _bytes(rng: Random) -> Any:
    data = rng.randbytes(rng.randrange(0, 6))
    return data if rng.random() < 0.5 else base64.b64encode(data).decode()


def _timestamp(boundaries: Boundaries) -> Draw:
    changes = boundaries.changes

    def draw(rng: Random) -> Any:
        if changes and rng.random() < _CHANGE_SHARE:
            return write_timestamp(draw_near(changes, rng), rng)
        seconds = pick(rng, (0, 86_399, 951_782_400, 1_700_000_000)) if rng.random() < 0.3 else rng.randrange(0, 2**32)
        time = _EPOCH + timedelta(seconds=seconds, microseconds=pick(rng, (0, 0, 1, 500_000, 999_999)))
        return write_timestamp(time, rng)

    return draw


def move_time(time: datetime, span: timedelta) -> datetime:
    """Return the moment that lies so far from another; at the ends of all moments, that one."""
    try:
        return time + span
    except OverflowError:
        return time


def write_timestamp(time: datetime, rng: Random) -> Any:
    """Return a moment as itself or as a text, with one offset or another."""
    match rng.randrange(0, 4):
        case 0:
            return time.isoformat().replace("+00:00", "Z")
        case 1:
            offset = timedelta(minutes=rng.randrange(-14 * 60, 14 * 60))
            return move_time(time.replace(tzinfo=None), offset).replace(tzinfo=timezone(offset)).isoformat()
        case 2:
            return time.replace(tzinfo=None).isoformat()
    return time


def _duration(boundaries: Boundaries) -> Draw:
    """Return a function that draws durations: texts with a unit and numbers of seconds."""
    seconds = _decimal(None, boundaries)

    def draw(rng: Random) -> Any:
        if rng.random() < 0.3:
            return seconds(rng)
        return f"{pick(rng, ('0', '1', '1.5', '7', '30', '365', '-2'))}{pick(rng, ('ms', 's', 'm', 'h', 'd', 'w'))}"

    return draw


def _key_text(key: Any) -> str:
    """Return a key as JSON has it."""
    if isinstance(key, datetime):
        return key.isoformat()
    return str(key).lower() if isinstance(key, bool) else str(key)


def _list(item: Draw, boundaries: Boundaries) -> Draw:
    def draw(rng: Random) -> list[Any]:
        length = pick(rng, boundaries.lengths) if rng.random() < 0.3 else rng.randrange(0, 5)
        return [item(rng) for _ in range(length)]

    return draw


def _distinct(items: Draw) -> Draw:
    def draw(rng: Random) -> list[Any]:
        values = items(rng)
        if rng.random() < 0.1:
            return list(values)
        distinct: dict[str, Any] = {str(value): value for value in values}
        return list(distinct.values())

    return draw


def _map(keys: Draw, values: Draw) -> Draw:
    return lambda rng: {keys(rng): values(rng) for _ in range(rng.randrange(0, 4))}


def _record(fields: tuple[RecordField, ...], boundaries: Boundaries, depth: int) -> Draw:
    draws = [(field, drawer(field.type, boundaries, depth + 1)) for field in fields]

    def draw(rng: Random) -> dict[str, Any]:
        record: dict[str, Any] = {}
        for field, value in draws:
            if field.required or rng.random() < 0.6:
                record[field.name] = value(rng)
        return record

    return draw


def _anything(boundaries: Boundaries, depth: int) -> Draw:
    draws: list[Draw] = [
        _integer(boundaries),
        _decimal(None, boundaries),
        _text(boundaries),
        lambda rng: rng.random() < 0.5,
    ]
    draws += [lambda _: None, _bytes]
    if depth < _DEPTH_MAX:
        inner = _later(boundaries, depth + 1)
        draws += [_list(inner, boundaries), _map(_text(boundaries), inner)]

    def draw(rng: Random) -> Any:
        chosen: Draw = pick(rng, draws)
        return chosen(rng)

    return draw


def _later(boundaries: Boundaries, depth: int) -> Draw:
    """Return a function that draws values of any type; it is built at its first use, since `any` contains `any`."""
    built: list[Draw] = []

    def draw(rng: Random) -> Any:
        if not built:
            built.append(_anything(boundaries, depth))
        return built[0](rng)

    return draw


class InputGenerator:
    """An endless, repeatable stream of inputs for one program."""

    def __init__(self, program: ir.NodeProgram, seed: int = 0) -> None:
        self._rng = make_random(seed)
        boundaries = Boundaries(program)
        self._names = tuple(declared.name for declared in program.inputs)
        self._optional = tuple(declared.name for declared in program.inputs if not declared.required)
        self._draws = [drawer(declared.type, boundaries) for declared in program.inputs]
        self._edges = [_edges(declared, boundaries) for declared in program.inputs]

    def batch(self, count: int) -> list[dict[str, Any]]:
        """Return `count` generated inputs."""
        rng = self._rng
        if not self._names:
            return [{} for _ in range(count)]
        if len(self._names) == 1:  # a pool would repeat the same inputs, and a repeated input proves nothing
            columns = [[self._draws[0](rng) for _ in range(count)]]
        else:
            columns = [self._column(*source, count) for source in zip(self._draws, self._edges, strict=True)]
        rows = self._rows(columns)
        for index in range(rng.randrange(0, _ODD_SHARE), count, _ODD_SHARE):
            self._spoil(rows[index])
        return rows

    def _column(self, draw: Draw, edges: list[Any], count: int) -> list[Any]:
        """Return values of one input, each from a new pool of boundary values and random ones."""
        rng = self._rng
        few = rng.sample(edges, min(len(edges), _EDGES))
        pool = few + [draw(rng) for _ in range(_POOL - len(few))]
        return [pool[byte] for byte in rng.randbytes(count)]

    def _rows(self, columns: list[list[Any]]) -> list[dict[str, Any]]:
        """Return one dict for each row of the columns; the usual small numbers of inputs take the quickest way."""
        match self._names:
            case (first,):
                return [{first: value} for value in columns[0]]
            case (first, second):
                return [{first: left, second: right} for left, right in zip(*columns, strict=True)]
        return [dict(zip(self._names, values, strict=True)) for values in zip(*columns, strict=True)]

    def _spoil(self, row: dict[str, Any]) -> None:
        rng = self._rng
        name = pick(rng, self._names)
        choice = rng.random()
        if self._optional and choice < 0.5:
            row.pop(pick(rng, self._optional))
        elif choice < 0.6:
            del row[name]
        elif choice < 0.65:
            row["unknown"] = row[name]
        else:
            row[name] = pick(rng, _ODD_VALUES)


def _edges(declared: ir.NodeInput, boundaries: Boundaries) -> list[Any]:
    """Return all boundary values of an input: each is drawn in every batch of some size."""
    kind = declared.type.type if isinstance(declared.type, Nullable) else declared.type
    match kind:
        case Scalar(kind="integer"):
            return list(boundaries.integers)
        case DecimalType():
            return list(boundaries.decimals)
        case Scalar(kind="string"):
            return list(boundaries.texts)
    return []


# ---------------------------------------------------------------- boundaries

_ROOT_OF_MAX: Final = 3_037_000_499  # its square is the largest that fits 64 bits
_INTEGERS: Final = (0, 1, -1, 2, -2, 3, 5, 7, 10, 100, 1000, INTEGER_MAX, INTEGER_MAX - 1, INTEGER_MIN, INTEGER_MIN + 1)
_DECIMALS: Final = (
    "0",
    "-0",
    "0.00",
    "1",
    "-1",
    "0.1",
    "0.5",
    "1.5",
    "2.5",
    "0.005",
    "0.015",
    "-0.125",
    "1.10",
    "99.99",
)
_LONG_DECIMALS: Final = ("1e3", "1E-20", "12345678901234567890123456789.5", "0.3333333333333333333333333333", "1e30")
_ZONED: Final = frozenset(
    row.name for row in FUNCTIONS.values() if any(part.kind.name == "zone" for part in row.parameters)
)
_TEXTS_OF: Final = (  # texts that functions take, where a program calls one of them
    (_ZONED | {"is_zone"}, ("UTC", "Europe/Berlin", "America/New_York", "Mars/Base")),
    (frozenset({"parse_integer", "parse_decimal"}), ("12", "+007", "-3.50", "1e3", " 1", "9223372036854775808")),
    (frozenset({"timestamp"}), ("2024-02-29T12:00:00Z", "2023-12-31", "2024-03-31 02:30")),
)
_PIECE_MAX: Final = 12  # characters of a text that is put into others
_PIECE_SOURCE_MAX: Final = 400
_TEXTS: Final = ("", " ", "a", "A", "ab", "abc", " x ", "ß", "é", "0", "-1", "true", "null", "𝄞", "a\nb", "İ")


def parts_of(node: Any) -> Iterator[Any]:
    """Yield a struct of the IR and all structs inside it."""
    todo = [node]
    while todo:
        part = todo.pop()
        if isinstance(part, tuple | list):
            todo.extend(part)
        elif isinstance(part, msgspec.Struct):
            yield part
            todo.extend(getattr(part, name) for name in part.__struct_fields__)


def _constant_in(part: Any) -> Any:
    """Return the constant that a part of a program holds: its value, or its number of rounds."""
    match part:
        case ir.Constant():
            return part.value
        case ir.LoopStep():
            return part.max_iterations
    return None


def _is_match(part: Any) -> bool:
    is_call = isinstance(part, ir.FunctionCall) and part.function == "matches"
    return is_call and isinstance(part.arguments[1], ir.Constant) and isinstance(part.arguments[1].value, str)


class Boundaries:
    """Interesting values of each kind, for one program. `pieces` are short texts that it names and the characters of
    its texts that are neither letters nor digits: what separates or begins the parts of a text. `patterns` are those
    that its conditions match with. `changes` are the moments at which the clocks change in the time zones that it or
    its cases name, and `time_texts` are texts at them, in the formats that it reads, and the names of these zones where
    it takes them."""

    def __init__(self, program: ir.NodeProgram, cases: Sequence[Mapping[str, Any]] = ()) -> None:
        integers: dict[int, None] = dict.fromkeys(_INTEGERS)
        integers.update(dict.fromkeys([_ROOT_OF_MAX, _ROOT_OF_MAX + 1]))
        decimals: dict[str, None] = dict.fromkeys((*_DECIMALS, *_LONG_DECIMALS))
        texts: dict[str, None] = dict.fromkeys(_TEXTS)
        self.lengths: list[int] = [0, 1, 2, 3]
        parts = list(parts_of(program))
        for part in parts:
            value = _constant_in(part)
            if isinstance(value, bool) or value is None:
                continue
            if isinstance(value, int):
                integers.update((number, None) for number in (value - 1, value, value + 1, -value))
                decimals.update((text, None) for text in (str(value), f"{value}.01", f"{value - 1}.99"))
                self.lengths += [n for n in (value - 1, value, value + 1) if 0 <= n <= 64]
            elif isinstance(value, Decimal):
                unit = Decimal((0, (1,), min(0, int(value.as_tuple().exponent))))
                decimals.update((format(number, "f"), None) for number in (value - unit, value, value + unit, -value))
                integers.update((number, None) for number in (int(value), int(value) + 1))
            elif isinstance(value, str):
                texts.update((text, None) for text in (value, value + "x", value[:-1], value.upper(), value.lower()))
        tables = [part.value for part in parts if isinstance(part, ir.AssignStep)]
        tables += [part.target for part in parts if isinstance(part, ir.ItemOf)]
        texts.update((name, None) for part in tables if isinstance(part, ir.MapOf) for name, _ in part.entries)
        called = {part.function for part in parts if isinstance(part, ir.FunctionCall)}
        texts.update((text, None) for functions, named in _TEXTS_OF for text in named if called & functions)
        named = [part.value for part in parts if isinstance(part, ir.Constant) and type(part.value) is str]
        marks = [char for text in named for char in text[:_PIECE_SOURCE_MAX] if not char.isalnum()]
        self.pieces = [*dict.fromkeys([text for text in named if 0 < len(text) <= _PIECE_MAX] + marks)]
        self.patterns = [*dict.fromkeys(part.arguments[1].value for part in parts if _is_match(part))]
        self.integers = [number for number in integers if INTEGER_MIN <= number <= INTEGER_MAX]
        self.decimals = list(decimals)
        self.texts = list(texts)
        self.changes: tuple[datetime, ...] = ()
        self._add_clock_changes(parts, cases)

    def _add_clock_changes(self, parts: list[Any], cases: Sequence[Mapping[str, Any]]) -> None:
        values = [part.value for part in parts if isinstance(part, ir.Constant)]
        values += [value for part in parts if isinstance(part, EnumType) for value in part.values]
        given = [value for case in cases for value in case.values()]
        takes_zones = any(isinstance(part, ir.FunctionCall) and _takes_zone(part) for part in parts)
        zones = zones_in([*texts_in(values), *texts_in(given), *(self.texts if takes_zones else ())])
        self.anchors = anchors_in([*values, *given])
        changes = {zone: [list_changes(zone, anchor) for anchor in self.anchors] for zone in zones}
        self.changes = tuple(sorted({change for rows in changes.values() for row in rows for change in row}))
        self.time_texts = zones if takes_zones else []
        calls = [part for part in parts if isinstance(part, ir.FunctionCall) and part.function == "parse_timestamp"]
        forms = {call.arguments[1].value for call in calls if isinstance(call.arguments[1], ir.Constant)}
        for form in sorted(form for form in forms if _is_format(form)):
            for zone, rows in changes.items():
                self.time_texts += [text for row in rows for text in local_texts(zone, row, form)]


def _takes_zone(call: ir.FunctionCall) -> bool:
    """Return whether a call takes a name of a zone that is not written out."""
    if call.function == "is_zone":
        return True
    parameters = FUNCTIONS[call.function].parameters if call.function in _ZONED else ()
    return any(
        parameter.kind.name == "zone" and not isinstance(argument, ir.Constant)
        for parameter, argument in zip(parameters, call.arguments, strict=False)
    )


def _is_format(form: Any) -> bool:
    """Return whether a text is a format whose directives a local time is written with."""
    return isinstance(form, str) and all(
        name[:1] in DIRECTIVES for part in form.split("%%") for name in part.split("%")[1:]
    )
