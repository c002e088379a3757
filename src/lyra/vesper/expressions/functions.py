"""The table of built-in functions: signature, errors, charge, bound, one line for readers, and an example.

The checker types calls by the signatures, the reference page and completion print them, and a test runs every example
on every evaluator, so that a function that one of them lacks is named. Nothing is computed here: each evaluator
implements each row with code of its own.

A signature is `name(parameter: kind, parameter: kind = default, *parameters: kind) -> kind`. A kind is a type of the
language, or `number` (integer or decimal), `sized` (text, bytes or collection), `T U K V` (any type, the same each
time), `O` (numbers, texts, timestamps or durations, all alike), `N` (a number or a duration), `list<T>` (an array, or a
set in the order of its elements), `map<K, V>`. A `?` allows null; elsewhere null is a type error. `zone`, `mode`,
`unit`, `pattern`, `directives` and `field` are texts that the checker looks at where they are constant.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec


class Kind(msgspec.Struct, frozen=True):
    """A kind in a signature: its name, the kinds inside it, and whether null is allowed."""

    name: str
    inner: tuple[Kind, ...] = ()
    is_nullable: bool = False


class Parameter(msgspec.Struct, frozen=True):
    name: str
    kind: Kind
    default: str | None = None  # as a reader sees it; None: it must be given
    is_many: bool = False  # any number of arguments, none included


class BuiltIn(msgspec.Struct, frozen=True):
    """A function. `node` names the expression of the IR that a call becomes; empty: a FunctionCall."""

    name: str
    group: str
    signature: str
    parameters: tuple[Parameter, ...]
    result: Kind
    text: str
    example: str
    value: str  # an expression that equals the example
    errors: tuple[str, ...] = ()  # besides type_error, which every function answers to values of other types
    charge: str = ""  # `size`: one step for each element of the arguments, and for each 1,024 characters
    bound: str = ""  # `text` or `array`: the result is a resource_limit where it is larger than the node may
    node: str = ""
    is_public: bool = True  # false: the checker writes it, a file cannot


ROUNDINGS: Final = ("half_even", "half_up", "half_down", "up", "down", "ceiling", "floor")
UNITS: Final = ("year", "month", "week", "day", "hour", "minute")
CHARS_A_STEP: Final = 1024  # characters of an argument that are charged as one step

# Directives of format_timestamp and parse_timestamp: what stands for them, and whether parse_timestamp reads them.
DIRECTIVES: Final[dict[str, tuple[str, bool]]] = {
    "Y": ("the year, four digits", True),
    "m": ("the month, 01 to 12", True),
    "d": ("the day, 01 to 31", True),
    "H": ("the hour, 00 to 23", True),
    "M": ("the minute, 00 to 59", True),
    "S": ("the second, 00 to 59", True),
    "f": ("the microsecond, six digits", True),
    "z": ("the distance from UTC, such as +0200", True),
    "j": ("the day of the year, 001 to 366", False),
    "u": ("the day of the week, 1 (Monday) to 7", False),
    "a": ("the day of the week, Mon to Sun", False),
    "A": ("the day of the week, Monday to Sunday", False),
    "b": ("the month, Jan to Dec", True),
    "B": ("the month, January to December", True),
    "%": ("a percent sign", True),
}
MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

_PART: Final = re.compile(r"\s*([A-Za-z_]+|->|[(),:<>?=*]|'[^']*'|-?[0-9]+)")


class _Reader:
    """Reads the signatures below."""

    def __init__(self, text: str) -> None:
        self.parts = _PART.findall(text)
        self.index = 0

    def take(self) -> str:
        self.index += 1
        return str(self.parts[self.index - 1])

    def takes(self, part: str) -> bool:
        is_there = self.index < len(self.parts) and self.parts[self.index] == part
        self.index += is_there
        return is_there

    def kind(self) -> Kind:
        name, inner = self.take(), []
        if self.takes("<"):
            inner.append(self.kind())
            while self.takes(","):
                inner.append(self.kind())
            self.takes(">")
        return Kind(name, tuple(inner), self.takes("?"))

    def parameters(self) -> Iterable[Parameter]:
        while not self.takes(")"):
            is_many = self.takes("*")
            name = self.take()
            self.takes(":")
            kind = self.kind()
            yield Parameter(name, kind, self.take() if self.takes("=") else None, is_many)
            self.takes(",")


def _row(
    group: str,
    signature: str,
    text: str,
    example: str,
    value: str,
    *,
    errors: tuple[str, ...] = (),
    charge: str = "",
    bound: str = "",
    node: str = "",
    is_public: bool = True,
) -> BuiltIn:
    reader = _Reader(signature)
    name = reader.take()
    reader.takes("(")
    parameters = tuple(reader.parameters())
    reader.takes("->")
    errors = (*errors, *(["resource_limit"] if bound else []))
    return BuiltIn(
        name,
        group,
        signature,
        parameters,
        reader.kind(),
        text,
        example,
        value,
        errors,
        charge,
        bound,
        node,
        is_public,
    )


_OVERFLOW: Final = ("overflow",)
_OF_ZONES: Final = ("overflow", "unknown_zone")
_OF_NUMBERS: Final = ("not_a_number", "overflow")
_N, _T, _L, _D, _C = "Numbers", "Texts", "Lists and maps", "Times", "Choice"
_TABLE: Final = (
    _row(
        _C,
        "if(condition: boolean?, then: T?, otherwise: T?) -> T",
        "`then` where the condition is true, else `otherwise`; the other one is not evaluated",
        "if(2 > 1, 'more', 'less')",
        "'more'",
        node="Conditional",
    ),
    _row(
        _C,
        "coalesce(value: T?, *others: T?) -> T",
        "the first value that is not null; those after it are not evaluated",
        "coalesce(null, 3, 4)",
        "3",
        node="Coalesce",
    ),
    _row(_N, "abs(x: N) -> N", "the number without its sign", "abs(-5)", "5", errors=_OVERFLOW),
    _row(_N, "floor(x: number) -> integer", "the whole number below", "floor(-1.5)", "-2", errors=_OVERFLOW),
    _row(_N, "ceil(x: number) -> integer", "the whole number above", "ceil(-1.5)", "-1", errors=_OVERFLOW),
    _row(
        _N,
        "round(x: number, digits: integer = 0, mode: mode = 'half_even') -> decimal",
        "the number with so many digits after the point; without `digits` an integer",
        "round(2.345, 2, 'half_up')",
        "2.35",
        errors=_OVERFLOW,
    ),
    _row(
        _N,
        "div(a: number, b: number) -> integer",
        "the whole part of the quotient, cut off towards zero, so that `a == div(a, b) * b + a % b`",
        "div(-7, 2)",
        "-3",
        errors=("division_by_zero", "overflow"),
    ),
    _row(_N, "min(a: O, b: O, *more: O) -> O", "the smallest; the first of equal ones", "min(3, 1, 2)", "1"),
    _row(_N, "max(a: O, b: O, *more: O) -> O", "the largest; the first of equal ones", "max(3, 1, 2)", "3"),
    _row(
        _N,
        "clamp(x: O, low: O, high: O) -> O",
        "the value, or the bound that it is beyond; a type error where `low` is above `high`",
        "clamp(12, 0, 10)",
        "10",
    ),
    _row(
        _T,
        "len(x: sized?) -> integer?",
        "how many characters, bytes, elements or entries; of null: null",
        "len('abc')",
        "3",
        node="Length",
    ),
    _row(_T, "lower(text: text) -> string", "the text in lower case", "lower('ABC')", "'abc'"),
    _row(_T, "upper(text: text) -> string", "the text in upper case", "upper('abc')", "'ABC'"),
    _row(_T, "trim(text: text) -> string", "the text without blanks at its ends", "trim(' a b ')", "'a b'"),
    _row(
        _T,
        "starts_with(text: text, start: text) -> boolean",
        "whether the text begins with the second one",
        "starts_with('abc', 'ab')",
        "true",
    ),
    _row(
        _T,
        "ends_with(text: text, end: text) -> boolean",
        "whether the text ends with the second one",
        "ends_with('abc', 'bc')",
        "true",
    ),
    _row(
        _T,
        "matches(text: text, pattern: pattern) -> boolean",
        "whether the regular expression matches a part of the text; `$` is its very end",
        "matches('order 12', '[0-9]+$')",
        "true",
        errors=("resource_limit",),
    ),
    _row(
        _T,
        "contains(collection: any?, item: any?) -> boolean",
        "the same as `item IN collection`",
        "contains('abc', 'b')",
        "true",
        node="Membership",
    ),
    _row(
        _T,
        "slice(sequence: T, start: integer, end: integer? = null) -> T",
        "the characters or elements from `start` up to, but not including, `end`; below 0 they count from the end",
        "slice('4111111111111111', -4)",
        "'1111'",
        charge="size",
    ),
    _row(
        _T,
        "replace(text: text, old: text, new: text) -> string",
        "the text with `new` in every place of `old`, from the left; `old` is not empty",
        "replace('a-b-c', '-', '')",
        "'abc'",
        charge="size",
        bound="text",
    ),
    _row(
        _T,
        "split(text: text, separator: text) -> array<string>",
        "the texts between the separators; the separator is not empty",
        "split('a,b,', ',')",
        "['a', 'b', '']",
        charge="size",
        bound="array",
    ),
    _row(
        _T,
        "join(texts: list<text>, separator: text) -> string",
        "the texts in a row, the separator between them",
        "join(['a', 'b'], ', ')",
        "'a, b'",
        charge="size",
        bound="text",
    ),
    _row(
        _T,
        "pad_left(text: text, width: integer, fill: text = ' ') -> string",
        "the text with `fill`, one character, before it until it has `width` characters",
        "pad_left('7', 3, '0')",
        "'007'",
        bound="text",
    ),
    _row(
        _T,
        "pad_right(text: text, width: integer, fill: text = ' ') -> string",
        "the text with `fill`, one character, after it until it has `width` characters",
        "pad_right('7', 3, '.')",
        "'7..'",
        bound="text",
    ),
    _row(
        _T,
        "parse_integer(text: text) -> integer",
        "the whole number that a text writes: digits, a sign before them or none, and nothing else",
        "parse_integer('-042')",
        "-42",
        errors=_OF_NUMBERS,
    ),
    _row(
        _T,
        "parse_decimal(text: text) -> decimal",
        "the number that a text writes: digits, a sign before them or none, a point and digits behind them or none, "
        "and nothing else",
        "parse_decimal('+12.50')",
        "12.50",
        errors=_OF_NUMBERS,
    ),
    _row(
        _L,
        "append(list: list<T>, item: T?) -> array<T>",
        "the list with one more element at its end",
        "append([1, 2], 3)",
        "[1, 2, 3]",
        charge="size",
        bound="array",
    ),
    _row(
        _L,
        "concat(list: list<T>, *more: list<T>) -> array<T>",
        "the lists in a row",
        "concat([1], [2, 3])",
        "[1, 2, 3]",
        charge="size",
        bound="array",
    ),
    _row(
        _L,
        "sort(list: list<T>, by: field? = null) -> array<T>",
        "the elements in ascending order, or by a field of theirs; equal ones stay in their order, null comes first, "
        "unlike kinds are a type error",
        "sort([3, 1, 2])",
        "[1, 2, 3]",
        charge="size",
    ),
    _row(
        _L, "reverse(list: list<T>) -> array<T>", "the elements backwards", "reverse([1, 2])", "[2, 1]", charge="size"
    ),
    _row(
        _L,
        "distinct(list: list<T>) -> array<T>",
        "the elements without those that equal an earlier one",
        "distinct([1, 2, 1.0])",
        "[1, 2]",
        charge="size",
    ),
    _row(
        _L,
        "take(list: list<T>, count: integer) -> array<T>",
        "the first elements, at most `count` of them; none where it is below 0",
        "take([1, 2, 3], 2)",
        "[1, 2]",
        charge="size",
    ),
    _row(
        _L,
        "zip(first: list<T>, second: list<U>) -> array<array<any>>",
        "pairs of the elements at equal places, as lists of two, up to the end of the shorter list",
        "zip([1, 2], ['a', 'b'])",
        "[[1, 'a'], [2, 'b']]",
        charge="size",
        bound="array",
    ),
    _row(
        _L,
        "get(collection: any?, key: any, default: any? = null) -> any",
        "the element of a list by its number from 0, or of a map by its key; the default where there is none",
        "get({'a': 1}, 'b', 0)",
        "0",
    ),
    _row(
        _L,
        "keys(map: map<K, V>) -> array<K>",
        "the keys of a map, in its order",
        "keys({'b': 1, 'a': 2})",
        "['b', 'a']",
        charge="size",
    ),
    _row(
        _L,
        "values(map: map<K, V>) -> array<V>",
        "the values of a map, in its order",
        "values({'b': 1, 'a': 2})",
        "[1, 2]",
        charge="size",
    ),
    _row(
        _L,
        "put(map: map<K, V>, key: K, value: V?) -> map<K, V>",
        "the map with one more entry, or with another value for a key that it has",
        "put({'a': 1}, 'b', 2)",
        "{'a': 1, 'b': 2}",
        charge="size",
        bound="array",
    ),
    _row(
        _L,
        "map_of(keys: list<K>, values: list<V>) -> map<K, V>",
        "a map of keys and values; of equal keys the last one counts",
        "{(upper('a')): 1}",
        "{'A': 1}",
        is_public=False,
    ),
    _row(
        _L,
        "map_key(key: any, kind: text) -> string",
        "the text that stands for a key in a map of such keys",
        "get({1: 'one'}, 1)",
        "'one'",
        is_public=False,
    ),
    _row(
        _D,
        "current_timestamp() -> timestamp",
        "the time of the execution, the same for all its steps",
        "current_timestamp()",
        "current_timestamp()",
    ),
    _row(
        _D,
        "current_year() -> integer",
        "its year, in UTC",
        "current_year()",
        "year(current_timestamp())",
    ),
    _row(
        _D,
        "timestamp(text: text) -> timestamp?",
        "the moment that a text names, in the form of an input of type timestamp, in UTC where it has no offset; null "
        "where it is none",
        "timestamp('2024-02-29T12:00:00+01:00')",
        "timestamp('2024-02-29T11:00:00Z')",
    ),
    *(
        _row(
            _D,
            f"{unit}(count: number) -> duration",
            f"so many {unit}; a duration is a number of seconds",
            f"{unit}(2)",
            value,
            errors=_OVERFLOW,
        )
        for unit, value in (
            ("milliseconds", "seconds(0.002)"),
            ("seconds", "minutes(2) / 60"),
            ("minutes", "seconds(120)"),
            ("hours", "minutes(120)"),
            ("days", "hours(48)"),
            ("weeks", "days(14)"),
        )
    ),
    *(
        _row(
            _D,
            f"{part}(time: timestamp, zone: zone = 'UTC') -> integer",
            text,
            f"{part}(timestamp('2024-02-29T12:34:56.789Z'), 'Europe/Berlin')",
            value,
            errors=_OF_ZONES,
        )
        for part, text, value in (
            ("year", "the year", "2024"),
            ("month", "the month, from 1", "2"),
            ("day", "the day of the month, from 1", "29"),
            ("hour", "the hour, 0 to 23", "13"),
            ("minute", "the minute, 0 to 59", "34"),
            ("second", "the second, 0 to 59", "56"),
            ("microsecond", "the millionths of a second, 0 to 999999", "789000"),
            ("weekday", "the day of the week, from 1 (Monday) to 7 (Sunday)", "4"),
            ("day_of_year", "the day of the year, 1 to 366", "60"),
        )
    ),
    _row(
        _D,
        "is_zone(name: text) -> boolean",
        "whether a text is the name of a time zone, as a precondition asks of an input",
        "is_zone('Europe/Berlin')",
        "true",
    ),
    _row(
        _D,
        "format_timestamp(time: timestamp, format: directives, zone: zone = 'UTC') -> string",
        "the time as a text, by directives; at most 1,000 characters of them",
        "format_timestamp(timestamp('2024-02-29T23:30:00Z'), '%d.%m.%Y %H:%M', 'Europe/Berlin')",
        "'01.03.2024 00:30'",
        errors=_OF_ZONES,
    ),
    _row(
        _D,
        "parse_timestamp(text: text, format: directives, zone: zone = 'UTC') -> timestamp?",
        "the time that a text names, by directives; null where the text is none. What the format leaves out is the "
        "earliest: 1 January, 00:00:00",
        "parse_timestamp('29.02.2024', '%d.%m.%Y')",
        "timestamp('2024-02-29T00:00:00Z')",
        errors=("unknown_zone",),
    ),
    _row(
        _D,
        "add_days(time: timestamp, count: integer, zone: zone = 'UTC') -> timestamp",
        "the same time of day so many days later in the zone, also where its clocks change between",
        "add_days(timestamp('2024-03-30T12:00:00Z'), 1, 'Europe/Berlin')",
        "timestamp('2024-03-31T11:00:00Z')",
        errors=_OF_ZONES,
    ),
    _row(
        _D,
        "add_months(time: timestamp, count: integer, zone: zone = 'UTC') -> timestamp",
        "the same day and time so many months later in the zone; the last day of the month where it has no such day",
        "add_months(timestamp('2024-01-31T00:00:00Z'), 1)",
        "timestamp('2024-02-29T00:00:00Z')",
        errors=_OF_ZONES,
    ),
    _row(
        _D,
        "add_years(time: timestamp, count: integer, zone: zone = 'UTC') -> timestamp",
        "the same day and time so many years later in the zone; 28 February where there is no 29th",
        "add_years(timestamp('2024-02-29T00:00:00Z'), 1)",
        "timestamp('2025-02-28T00:00:00Z')",
        errors=_OF_ZONES,
    ),
    _row(
        _D,
        "start_of(time: timestamp, unit: unit, zone: zone = 'UTC') -> timestamp",
        "the beginning of the year, month, week (Monday), day, hour or minute that the time is in, in the zone",
        "start_of(timestamp('2024-02-29T12:34:56Z'), 'month')",
        "timestamp('2024-02-01T00:00:00Z')",
        errors=_OF_ZONES,
    ),
)
FUNCTIONS: Final[dict[str, BuiltIn]] = {function.name: function for function in _TABLE}
AGGREGATES: Final = ("SUM", "COUNT", "AVG", "MIN", "MAX")
FORMS: Final = ("old", "all", "any")
PUBLIC_FUNCTIONS: Final = tuple(function for function in _TABLE if function.is_public)
# All names that a file may call, for hints.
CALLED_NAMES: Final = (
    *(function.name for function in PUBLIC_FUNCTIONS),
    *AGGREGATES,
    *(name.lower() for name in AGGREGATES),
    *FORMS,
)

# Words of other languages, and what they are here: names, functions and methods.
OTHER_NAMES: Final = {
    "True": "true",
    "TRUE": "true",
    "False": "false",
    "FALSE": "false",
    "None": "null",
    "nil": "null",
    "undefined": "null",
    "now": "current_timestamp()",
    "today": "start_of(current_timestamp(), 'day')",
}
OTHER_FUNCTIONS: Final = {
    "now": "current_timestamp()",
    "utcnow": "current_timestamp()",
    "NOW": "current_timestamp()",
    "today": "start_of(current_timestamp(), 'day')",
    "date": "timestamp(text)",
    "datetime": "timestamp(text)",
    "fromisoformat": "timestamp(text)",
    "strftime": "format_timestamp(time, format)",
    "format_date": "format_timestamp(time, format)",
    "strptime": "parse_timestamp(text, format)",
    "parse_date": "parse_timestamp(text, format)",
    "timedelta": "days(n), hours(n), minutes(n) or seconds(n)",
    "isoweekday": "weekday(time)",
    "size": "len(x)",
    "length": "len(x)",
    "strlen": "len(x)",
    "toUpperCase": "upper(text)",
    "uppercase": "upper(text)",
    "toLowerCase": "lower(text)",
    "lowercase": "lower(text)",
    "strip": "trim(text)",
    "substr": "slice(text, start, end)",
    "substring": "slice(text, start, end)",
    "left": "slice(text, 0, n)",
    "right": "slice(text, -n)",
    "includes": "contains(x, item)",
    "has": "contains(x, item)",
    "startswith": "starts_with(text, start)",
    "startsWith": "starts_with(text, start)",
    "endswith": "ends_with(text, end)",
    "endsWith": "ends_with(text, end)",
    "rjust": "pad_left(text, width, fill)",
    "padStart": "pad_left(text, width, fill)",
    "lpad": "pad_left(text, width, fill)",
    "zfill": "pad_left(text, width, '0')",
    "ljust": "pad_right(text, width, fill)",
    "padEnd": "pad_right(text, width, fill)",
    "rpad": "pad_right(text, width, fill)",
    "sorted": "sort(list)",
    "order_by": "sort(list, 'field')",
    "sort_by": "sort(list, 'field')",
    "sortBy": "sort(list, 'field')",
    "unique": "distinct(list)",
    "uniq": "distinct(list)",
    "reversed": "reverse(list)",
    "repeat": "pad_left('', n, 'x')",
    "first": "take(list, n) or list[0]",
    "last": "list[len(list) - 1]",
    **dict.fromkeys(("filter", "map", "reduce", "group_by", "groupBy"), "a step with `operation: data_transform`"),
    **dict.fromkeys(("format", "sprintf", "printf"), 'a template: "{x}"'),
    **dict.fromkeys(("replaceAll", "gsub"), "replace(text, old, new)"),
    **dict.fromkeys(("match", "regex", "regexp", "search", "test"), "matches(text, pattern)"),
    **dict.fromkeys(("date_add", "addDays", "dateadd"), "add_days(time, n, zone), or time + days(n)"),
    **dict.fromkeys(("date_diff", "datediff", "dateDiff", "days_between", "daysBetween"), "floor((b - a) / days(1))"),
    "limit": "take(list, n)",
    "push": "append(list, item)",
    "extend": "concat(a, b)",
    "lookup": "get(map, key, default)",
    "ceiling": "ceil(x)",
    "trunc": "div(x, 1)",
    "mod": "a % b",
    "fmod": "a % b",
    **dict.fromkeys(
        ("int", "integer", "to_int", "to_integer", "toInt", "parse_int", "parseInt"), "parse_integer(text)"
    ),
    **dict.fromkeys(("float", "double", "decimal", "to_decimal", "parse_float", "parseFloat"), "parse_decimal(text)"),
    **dict.fromkeys(
        ("number", "Number", "num", "to_number", "toNumber", "parse_number", "cast"),
        "parse_integer(text) or parse_decimal(text)",
    ),
    "IF": "if(condition, a, b)",
    "iif": "if(condition, a, b)",
    "IIF": "if(condition, a, b)",
    "ifnull": "coalesce(a, b)",
    "nvl": "coalesce(a, b)",
    "isnull": "x IS NULL",
    "is_null": "x IS NULL",
    "COALESCE": "coalesce(a, b)",
    "average": "AVG(list)",
    "mean": "AVG(list)",
    "str": 'a template: "{x}"',
    "not": "NOT x",
}
