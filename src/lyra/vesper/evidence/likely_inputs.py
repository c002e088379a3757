"""Inputs with which a node is likely to succeed.

Random values rarely pass the constraints of all inputs at once. `LikelyInputs` draws each value in the room that the
constraints and preconditions leave it (`evidence.rooms`): within its bounds, of the length and the pattern that is
asked for, the ends of the bounds more often than what lies between them. Most rows also keep to what the first steps
validate. A row is drawn like that, or is that of a test case with one input changed. What contracts say about several
inputs together is left to `evidence.search`. Texts without a pattern of their own are often drawn for one that the
program matches with anywhere, and `insert_pieces` puts the separators and prefixes that the program names into a text.

`pattern_drawer("^ord_[a-z0-9]{16,}$")` draws `ord_7w0k…`. Repetitions without an end have a few more rounds than they
need, and a text has a longest length. What is drawn nearly always matches: boundaries of words and the like are not
looked at, so a caller checks each text. Patterns that Lyra's own matcher does not take are not drawn from.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from decimal import Decimal
from math import ceil, floor
from random import Random  # noqa: TID251 - the type; generators come from core.ids
from re import _parser as parser  # type: ignore[attr-defined, unused-ignore]
from typing import Any, Final

from lyra.core.linear_regex import BadPattern
from lyra.vesper import ir
from lyra.vesper.evidence.clock_changes import draw_near, list_changes
from lyra.vesper.evidence.inputs import Boundaries, Draw, drawer, pick, write_timestamp
from lyra.vesper.evidence.rooms import EACH, LENGTH, Path, Room, rooms_of
from lyra.vesper.values.limits import DRAWN_TEXT_CHARS_MAX, PATTERN_STEPS_MAX
from lyra.vesper.values.patterns import compile_pattern
from lyra.vesper.values.types import (
    INTEGER,
    INTEGER_MAX,
    INTEGER_MIN,
    STRING,
    TIMESTAMP,
    Array,
    DecimalType,
    EnumType,
    MapType,
    Nullable,
    RecordType,
    SetType,
    ValueType,
    without_null,
)

_CHANGE_SHARE: Final = 0.3  # of rows with a zone, whose timestamp is moved near a change of its clocks
_ABSENT_SHARE: Final = 0.2  # of optional inputs that a row leaves out
_STRICT_SHARE: Final = 0.75  # of values that also pass what the first steps validate
_FOREIGN_SHARE: Final = 0.4  # of texts, where the program matches with patterns
_PIECES_SHARE: Final = 0.4  # of texts for such a pattern
_ROWS_OF_VALUE: Final = 2  # rows in which a value stands, on average, where many are drawn at once
_SIMPLE: Final = frozenset({int, str, Decimal, float})  # values of one kind that are known again quickly
_AGAIN_SHARE: Final = 0.8  # of values that were drawn before, where many are drawn at once
_AGAIN_MAX: Final = 3
_KNOWN_MAX: Final = 10_000
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz0123456789"
_ITEMS_MAX: Final = 4  # of an array without bounds; now and then as many as a boundary says
_REPEATED_SHARE: Final = 0.15  # of arrays that have an element twice
_TRIES: Final = 24  # to draw a text that a pattern and the bounds of its length both take
_NO_ROOM: Final = Room()

Rooms = Mapping[Path, Room]


class LikelyInputs:
    """Rows of inputs for one program, around the inputs of its test cases."""

    def __init__(self, program: ir.NodeProgram, cases: Sequence[Mapping[str, Any]], rng: Random) -> None:
        self._rng = rng
        self._cases = [dict(case) for case in cases]
        self._inputs = program.inputs
        self._drawn: dict[str, set[Any]] = {declared.name: set() for declared in program.inputs}
        self.boundaries = boundaries = Boundaries(program, cases)
        accepted, strict = rooms_of(program), rooms_of(program, with_validations=True)
        self._draws = {
            declared.name: tuple(
                fitting_drawer(declared.type, (declared.name,), rooms, boundaries) for rooms in (accepted, strict)
            )
            for declared in program.inputs
        }
        kinds = {declared.name: without_null(declared.type) for declared in program.inputs}
        texts = [name for name, kind in kinds.items() if kind == STRING or isinstance(kind, EnumType)]
        self._zones = texts if boundaries.changes else []
        self._times = [(name, strict.get((name,), _NO_ROOM)) for name, kind in kinds.items() if kind == TIMESTAMP]

    def row(self) -> dict[str, Any]:
        """Return inputs that are each likely to be accepted."""
        rng = self._rng
        which = rng.random() < _STRICT_SHARE
        row = {
            declared.name: self._draws[declared.name][which](rng)
            for declared in self._inputs
            if declared.required or rng.random() >= _ABSENT_SHARE
        }
        self._move_near_change(row)
        return row

    def _move_near_change(self, row: dict[str, Any]) -> None:
        """Now and then, replace a timestamp of a row by one at which the clocks of a zone in that row change."""
        rng = self._rng
        if not self._zones or not self._times or rng.random() >= _CHANGE_SHARE:
            return
        name, room = pick(rng, self._times)
        anchor = pick(rng, self.boundaries.anchors)
        changes = [change for zone in self._zones for change in list_changes(str(row.get(zone)), anchor)]
        if changes and room.has(moment := draw_near(tuple(changes), rng)):
            row[name] = write_timestamp(moment, rng)

    def rows(self, count: int) -> list[dict[str, Any]]:
        """Return rows for which fewer values are drawn than they have: each value stands in a few of them."""
        rng, inputs = self._rng, self._inputs
        which = rng.random() < _STRICT_SHARE
        size = count // _ROWS_OF_VALUE if len(inputs) > 1 else count  # one input alone would repeat itself
        columns = []
        for declared in inputs:
            values = self._draw_new_values(declared.name, self._draws[declared.name][which], size)
            columns.append(rng.choices(values, k=count) if size < count else values)
        names = [declared.name for declared in inputs]
        rows = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
        for declared in inputs:
            if not declared.required:
                for row in rows:
                    if rng.random() < _ABSENT_SHARE:
                        del row[declared.name]
        if self._zones and self._times:
            for row in rows:
                self._move_near_change(row)
        return rows

    def _draw_new_values(self, name: str, draw: Draw, count: int) -> list[Any]:
        """Return values of an input; most that were drawn before are drawn again, so that small numbers and boundaries,
        which are drawn often, do not make the same rows over and over."""
        rng, known = self._rng, self._drawn[name]
        values = []
        for _ in range(count):
            value = draw(rng)
            for _ in range(_AGAIN_MAX):
                if type(value) not in _SIMPLE or value not in known or rng.random() >= _AGAIN_SHARE:
                    break
                value = draw(rng)
            if type(value) in _SIMPLE and len(known) < _KNOWN_MAX:
                known.add(value)
            values.append(value)
        return values

    def near_case(self) -> dict[str, Any]:
        """Return the inputs of a test case with one of them changed; any row where there is no test case."""
        if not self._cases or not self._inputs:
            return self.row()
        name = pick(self._rng, self._inputs).name
        return {**pick(self._rng, self._cases), name: self.value(name)}

    def value(self, name: str) -> Any:
        """Return a value that is likely to be accepted as an input."""
        return self._draws[name][self._rng.random() < _STRICT_SHARE](self._rng)


# ---------------------------------------------------------------- values in their room


def fitting_drawer(kind: ValueType, path: Path, rooms: Rooms, boundaries: Boundaries) -> Draw:
    """Return a function that draws values of a type which the rooms at and below a place have room for."""
    room = rooms.get(path, _NO_ROOM)
    if isinstance(kind, Nullable):
        inner = fitting_drawer(kind.type, path, rooms, boundaries)
        return lambda rng: None if rng.random() < _ABSENT_SHARE else inner(rng)
    if room.values:
        fitting = [value for value in room.values if room.has(value)] or list(room.values)
        return lambda rng: pick(rng, fitting)
    match kind:
        case DecimalType():
            return _decimals(room, kind.scale, boundaries)
        case EnumType():
            return lambda rng: pick(rng, kind.values)
        case Array() | SetType():
            return _items(kind, path, rooms, boundaries)
        case MapType():
            keys, values = drawer(kind.key, boundaries), fitting_drawer(kind.value, (*path, EACH), rooms, boundaries)
            return lambda rng: {keys(rng): values(rng) for _ in range(rng.randrange(0, _ITEMS_MAX))}
        case RecordType():
            return _records(kind, path, rooms, boundaries)
    if kind == INTEGER:
        return _integers(room, boundaries)
    if kind == STRING:
        return _texts(room, rooms.get((*path, LENGTH), _NO_ROOM), boundaries)
    if kind == TIMESTAMP and (room.low is not None or room.high is not None):
        return _timestamps(room, boundaries)
    return drawer(kind, boundaries)


def _timestamps(room: Room, boundaries: Boundaries) -> Draw:
    """Return a function that draws moments within bounds: their ends, moments at which clocks change, and any."""
    low, high = room.low, room.high
    span = timedelta(days=3_650) if low is None or high is None else max(high - low, timedelta(0))
    ends = [end for end in (low, high) if end is not None]
    changes = tuple(change for change in boundaries.changes if room.has(change))

    def draw(rng: Random) -> Any:
        choice = rng.random()
        if choice < 0.2:
            return pick(rng, ends)
        time = draw_near(changes, rng) if changes and choice < 0.2 + _CHANGE_SHARE else None
        if time is None or not room.has(time):
            try:
                part = timedelta(seconds=int(rng.random() * span.total_seconds()))
                time = low + part if low is not None else high - part
            except OverflowError:
                return pick(rng, ends)
        return write_timestamp(time, rng) if room.has(time) else pick(rng, ends)

    return draw


def _integers(room: Room, boundaries: Boundaries) -> Draw:
    low = INTEGER_MIN if room.low is None else floor(room.low) + 1 if room.low_open else ceil(room.low)
    high = INTEGER_MAX if room.high is None else ceil(room.high) - 1 if room.high_open else floor(room.high)
    low, high = max(low, INTEGER_MIN), max(min(high, INTEGER_MAX), low)
    near = [low, min(low + 1, high), max(high - 1, low), high] if high - low < 2**40 else []
    near += [number for number in (0, 1) if low <= number <= high]
    first = max(low, min(0, high - 200))
    spans = [min(high, first + 10**digits) - first + 1 for digits in range(1, 5)]
    edges = [number for number in boundaries.integers if low <= number <= high] or [low, high]
    usual = [number for number in edges if abs(number) < 2**40] or edges

    def draw(rng: Random) -> int:
        choice = rng.random()
        if choice < 0.2 and near:
            return pick(rng, near)
        if choice < 0.4:
            return pick(rng, usual if choice < 0.38 else edges)
        if choice < 0.7:
            return first + int(rng.random() * pick(rng, spans))
        if high - low < 2**40:
            return low + int(rng.random() * (high - low + 1))
        number = rng.getrandbits(1 + int(rng.random() * 39))
        return max(low, min(high, number if choice < 0.88 else -number))

    return draw


def _decimals(room: Room, scale: int | None, boundaries: Boundaries) -> Draw:
    least = Decimal(room.low) if room.low is not None else None
    most = Decimal(room.high) if room.high is not None else None
    places = 2 if scale is None else min(scale, 12)
    edges = [number for text in boundaries.decimals if room.has(number := Decimal(text)) and _fits(number, scale)]
    for bound, unit in ((least, 1), (most, -1)):
        if bound is not None:
            steps = [bound + Decimal(unit * step).scaleb(-places) for step in (0, 1, 2, 100)]
            edges += [number for number in steps if room.has(number) and _fits(number, scale)] * 3
    edges = edges or [Decimal(0)]

    def draw(rng: Random) -> Any:
        if rng.random() < 0.3:
            number = pick(rng, edges)
        else:
            digits = int(rng.random() * (5 if scale is None else places + 1))
            number = Decimal(int(rng.random() * 10 ** (1 + int(rng.random() * 5) + digits))).scaleb(-digits)
            if least is None and rng.random() < 0.3:
                number = -number
            if not room.has(number):
                number = _move_inside(number, least, most, digits)
            if not room.has(number):
                number = pick(rng, edges)
        form = rng.random()
        text = format(number, "f")
        return number if form < 0.4 else text if form < 0.85 or len(text) > 15 else float(number)

    return draw


def _fits(number: Decimal, scale: int | None) -> bool:
    exponent = number.as_tuple().exponent
    return scale is None or (isinstance(exponent, int) and -exponent <= scale)


def _move_inside(number: Decimal, least: Decimal | None, most: Decimal | None, digits: int) -> Decimal:
    """Return the number between two bounds that another number selects."""
    if least is None:
        return number if most is None else most - abs(number)
    if most is None:
        return least + abs(number)
    span = (most - least).scaleb(digits)
    return least + (abs(number.scaleb(digits)) % (int(span) + 1)).scaleb(-digits)


def _texts(room: Room, lengths: Room, boundaries: Boundaries) -> Draw:
    least, most = _lengths(lengths, 0, 40)
    patterns = [draw for draw in map(pattern_drawer, room.patterns) if draw is not None]
    edges = [text for text in boundaries.texts if least <= len(text) <= most]
    is_free = lengths.low is None and lengths.high is None and not edges
    others = [draw for draw in map(pattern_drawer, boundaries.patterns) if draw is not None]
    required = [compile_pattern(pattern) for pattern in room.patterns] if len(patterns) == len(room.patterns) else []
    times = [
        text for text in boundaries.time_texts if least <= len(text) and (lengths.high is None or len(text) <= most)
    ]
    times = [text for text in times if all(pattern.search(text, 0, PATTERN_STEPS_MAX)[0] for pattern in required)]

    def foreign(rng: Random) -> str | None:
        """Return a text for a pattern that a step matches with, pieces in it, if it fits here."""
        text = pick(rng, others)(rng)
        if text is None:
            return None
        if boundaries.pieces and rng.random() < _PIECES_SHARE:
            text = insert_pieces(text, boundaries, rng)
        if not least <= len(text) <= max(most, least + 40 if lengths.high is None else most):
            return None
        return text if all(pattern.search(text, 0, PATTERN_STEPS_MAX)[0] for pattern in required) else None

    def draw(rng: Random) -> str:
        if times and rng.random() < _CHANGE_SHARE:
            return pick(rng, times)
        if others and rng.random() < _FOREIGN_SHARE and (text := foreign(rng)) is not None:
            return text
        for _ in range(_TRIES if patterns else 0):
            text = pick(rng, patterns)(rng)
            if text is not None and least <= len(text) <= max(most, least + 40 if lengths.high is None else most):
                return text
        if edges and rng.random() < 0.4:
            return pick(rng, edges)
        if is_free or rng.random() < 0.5:
            length = rng.randrange(least, min(most, least + 12) + 1)
        else:
            length = pick(rng, (least, min(least + 1, most), most))
        return "".join(rng.choices(_LETTERS, k=length))

    return draw


def insert_pieces(text: str, boundaries: Boundaries, rng: Random) -> str:
    """Return a text with what the program names put into it: between its parts, before or behind it, or before one of
    its parts once more; or cut or made longer to a length that the program names."""
    piece = pick(rng, boundaries.pieces) if boundaries.pieces else ""
    place = rng.randrange(0, len(text) + 1)
    match rng.randrange(7):
        case 6 if piece:
            return piece.join((text, pick(rng, text.split(piece))))
        case 0 | 1:
            return text[:place] + piece + text[place:]
        case 2:
            step = pick(rng, (2, 3, 4))
            return piece.join(text[start : start + step] for start in range(0, len(text), step))
        case 3:
            return piece + text if rng.random() < 0.5 else text + piece
        case 4:
            return text[:place] + piece + text[place + len(piece) :]
    length = pick(rng, boundaries.lengths)
    return text[:length] if len(text) >= length else text + (text[-1:] or piece[:1] or "a") * (length - len(text))


def _lengths(room: Room, least: int, most: int) -> tuple[int, int]:
    """Return the bounds of a length; a longest one only where it is not too long to draw."""
    if room.low is not None:
        least = max(least, floor(room.low) + 1 if room.low_open else ceil(room.low))
    if room.values:
        least = most = int(min(room.values))
    elif room.high is not None:
        most = ceil(room.high) - 1 if room.high_open else floor(room.high)
    else:
        most = max(most, least + 8)
    return min(least, DRAWN_TEXT_CHARS_MAX), max(min(most, DRAWN_TEXT_CHARS_MAX), least)


def _items(kind: Array | SetType, path: Path, rooms: Rooms, boundaries: Boundaries) -> Draw:
    least, most = _lengths(rooms.get((*path, LENGTH), _NO_ROOM), 0, _ITEMS_MAX)
    item = fitting_drawer(kind.item, (*path, EACH), rooms, boundaries)
    lengths = [length for length in boundaries.lengths if least <= length <= max(most, 12)]

    def draw(rng: Random) -> list[Any]:
        if lengths and rng.random() < 0.15:
            length = pick(rng, lengths)
        else:
            length = rng.randrange(least, min(most, least + _ITEMS_MAX) + 1)
        items = [item(rng) for _ in range(length)]
        if isinstance(kind, SetType):
            return list({str(value): value for value in items}.values())
        if length > 1 and rng.random() < _REPEATED_SHARE:
            items[-1] = items[rng.randrange(length - 1)]
        return items

    return draw


def _records(kind: RecordType, path: Path, rooms: Rooms, boundaries: Boundaries) -> Draw:
    draws = [
        (field.name, field.required, fitting_drawer(field.type, (*path, field.name), rooms, boundaries))
        for field in kind.fields
    ]

    def draw(rng: Random) -> dict[str, Any]:
        return {name: value(rng) for name, required, value in draws if required or rng.random() >= _ABSENT_SHARE}

    return draw


# ---------------------------------------------------------------- pattern texts

_MORE_ROUNDS: Final = 4  # of a repetition, beyond those it needs
_RANGE_MAX: Final = 1024  # characters of a range, its first ones
_ANY_CHARACTERS: Final = "abcxyzABCXYZ0123456789_- .@é"
_CATEGORIES: Final = {
    "CATEGORY_DIGIT": "0123456789",
    "CATEGORY_SPACE": " \t",
    "CATEGORY_WORD": "abcxyzABCXYZ0123456789_",
    "CATEGORY_NOT_DIGIT": "abcxyz -",
    "CATEGORY_NOT_SPACE": "abcxyz019-",
    "CATEGORY_NOT_WORD": " -.@",
}


class _TooLong(Exception):
    """The text would be longer than a drawn text may be."""


def pattern_drawer(pattern: str) -> Callable[[Random], str | None] | None:
    """Return a function that draws texts for a pattern, or None for one that became too long; None for a pattern that
    cannot be used."""
    try:
        compile_pattern(pattern)
    except BadPattern:
        return None
    draw_row = _compile_row(parser.parse(pattern))

    def draw(rng: Random) -> str | None:
        characters: list[str] = []
        try:
            draw_row(rng, characters)
        except _TooLong:
            return None
        return "".join(characters)

    return draw


_DrawPart = Callable[[Random, list[str]], None]  # adds the characters of a part of a pattern


def _compile_row(items: Any) -> _DrawPart:
    """Return a function that draws the parts of a parsed pattern, one behind the other."""
    parts = [draw for draw in (_compile_part(str(kind), value) for kind, value in items) if draw is not None]

    def draw_row(rng: Random, characters: list[str]) -> None:
        for draw in parts:
            draw(rng, characters)

    return parts[0] if len(parts) == 1 else draw_row


def _compile_part(kind: str, value: Any) -> _DrawPart | None:
    match kind:
        case "LITERAL":
            return _compile_character([chr(value)])
        case "NOT_LITERAL":
            return _compile_character(_ANY_CHARACTERS.replace(chr(value), ""))
        case "ANY":
            return _compile_character(_ANY_CHARACTERS)
        case "IN":
            return _compile_class([(str(name), part) for name, part in value])
        case "SUBPATTERN":
            return _compile_row(value[3])
        case "BRANCH":
            rows = [_compile_row(row) for row in value[1]]
            return lambda rng, characters: pick(rng, rows)(rng, characters)
        case "MAX_REPEAT" | "MIN_REPEAT":
            return _compile_repeat(*value)
    return None


def _compile_repeat(least: int, most: Any, items: Any) -> _DrawPart:
    draw_row = _compile_row(items)
    rounds = range(least, min(int(most), least + _MORE_ROUNDS) + 1)

    def draw(rng: Random, characters: list[str]) -> None:
        for _ in range(pick(rng, rounds)):
            draw_row(rng, characters)

    return draw


def _compile_character(choices: Sequence[str]) -> _DrawPart:
    """Return a function that draws one of these characters."""

    def draw(rng: Random, characters: list[str]) -> None:
        if len(characters) >= DRAWN_TEXT_CHARS_MAX or not choices:  # no common character is left
            raise _TooLong
        characters.append(choices[int(rng.random() * len(choices))])

    return draw


def _compile_class(parts: list[tuple[str, Any]]) -> _DrawPart:
    """Return a function that draws a character of a class such as `[a-z_]` or `[^0-9]`."""
    if parts[0][0] == "NEGATE":
        left = [char for char in _ANY_CHARACTERS if not any(_has(name, part, char) for name, part in parts[1:])]
        return _compile_character(left)
    members = [_compile_character(_list_characters(name, part)) for name, part in parts]
    return members[0] if len(members) == 1 else lambda rng, characters: pick(rng, members)(rng, characters)


def _list_characters(name: str, part: Any) -> Sequence[str]:
    if name == "LITERAL":
        return [chr(part)]
    if name == "RANGE":
        low, high = part
        return [chr(number) for number in range(low, min(high, low + _RANGE_MAX - 1) + 1)]
    return _CATEGORIES[str(part)]


def _has(name: str, part: Any, character: str) -> bool:
    if name == "LITERAL":
        return bool(ord(character) == part)
    if name == "RANGE":
        low, high = part
        return bool(low <= ord(character) <= high)
    mark = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}[str(part).rpartition("_")[2]]
    is_excluded = "NOT" in str(part)
    return bool(re.fullmatch(mark, character)) is not is_excluded
