"""Built-in functions: every example of the table on every evaluator, boundaries, wrong values, and random programs."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from lyra.core.ids import make_random
from lyra.errors import CheckError
from lyra.vesper.direct.functions import FUNCTIONS_OF_VALUES
from lyra.vesper.direct.run import run as direct
from lyra.vesper.evidence import differential
from lyra.vesper.evidence.compare import is_same
from lyra.vesper.expressions.functions import FUNCTIONS
from lyra.vesper.python.run import run as python
from lyra.vesper.reference.run import run as reference
from tests.cases import ALL, cases, first
from tests.vesper.language.asking import PATH_NAMES, ask, remarks
from tests.vesper.random_programs import random_call

D = Decimal
TYPE, OVERFLOW, LIMIT, NUMBER = "type_error", "overflow", "resource_limit", "not_a_number"
UTC_TIME = "timestamp('2024-02-29T12:34:56.789Z')"


def failing_examples(path: str, salt: int) -> dict[str, Any]:
    """Functions whose example fails; the salt makes nodes that no earlier call has compiled."""
    wrong: dict[str, Any] = {}
    for name, row in FUNCTIONS.items():
        try:
            outcome = ask(f"[{row.example}, {row.value}, ({row.example}) == ({row.value}), {salt}]", path)
        except Exception as error:
            outcome = repr(error)
        if not isinstance(outcome, list) or outcome[2] is not True:
            wrong[name] = outcome
    return wrong


@pytest.mark.parametrize("path", PATH_NAMES)
def test_every_example_of_the_table_is_true_on_every_evaluator(path: str) -> None:
    """A function that an evaluator lacks is named here."""
    assert failing_examples(path, 1) == {}


def test_a_function_that_an_evaluator_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above would find it."""
    monkeypatch.delitem(FUNCTIONS_OF_VALUES, "pad_left")
    assert list(failing_examples("direct", 2)) == ["pad_left"]


def time(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


VALUES: list[tuple[str, Any]] = [
    # choice
    ("if(null == 1, 1, 2)", 2),
    ("if(1 > 0, 1, 1 / 0)", 1),
    ("if(1 < 0, 1 / 0, 'x')", "x"),
    ("coalesce(1, 1 / 0)", 1),
    ("coalesce(null, null)", None),
    ("[coalesce(x, 0 - 1)]", [-1]),
    # numbers
    ("floor(-0.5)", -1),
    ("ceil(-0.5)", 0),
    ("floor(7)", 7),
    ("floor(9223372036854775807.9)", 2**63 - 1),
    ("floor(9223372036854775808.0)", OVERFLOW),
    ("ceil(9223372036854775807.1)", OVERFLOW),
    ("floor(null)", "remark"),
    ("round(2.5)", 2),
    ("round(-3.5)", -4),
    ("round(7)", 7),
    *((f"round(-2.5, 0, '{mode}')", D(value)) for mode, value in (
        ("half_even", -2), ("half_up", -3), ("half_down", -2), ("up", -3), ("down", -2), ("ceiling", -2), ("floor", -3),
    )),
    *((f"round(2.41, 1, '{mode}')", D(value)) for mode, value in (
        ("half_even", "2.4"), ("up", "2.5"), ("ceiling", "2.5"), ("floor", "2.4"), ("down", "2.4"),
    )),
    ("round(1.5, 0, lower('SIDEWAYS'))", TYPE),
    ("div(7, 2)", 3),
    ("div(-7, 2)", -3),
    ("div(7.5, -2)", -3),
    ("div(0.0, 3)", 0),
    ("div(1, 0)", "division_by_zero"),
    ("div(-9223372036854775807 - 1, -1)", OVERFLOW),
    ("-7 % 3", -1),
    ("7 % -3", 1),
    ("min(1, 1.0)", 1),
    ("max('b', 'a', 'c')", "c"),
    ("min(true, false)", "remark"),
    ("min(x, 1)", TYPE),
    ("clamp(5, 10, 1)", TYPE),
    ("clamp(0.5, 1, 2)", 1),
    ("abs(-9223372036854775807 - 1)", OVERFLOW),
    # texts
    ("slice('abcdef', -3)", "def"),
    ("slice('abcdef', 1, -1)", "bcde"),
    ("slice('abc', 5)", ""),
    ("slice('a𝄞b', 1, 2)", "𝄞"),
    ("slice([1, 2, 3], 1)", [2, 3]),
    ("slice(x, 1)", TYPE),
    ("replace('aaa', 'aa', 'b')", "ba"),
    ("replace('a', trim(' '), 'b')", TYPE),
    ("split('', ',')", [""]),
    ("split('a', trim(' '))", TYPE),
    ("join([], ',')", ""),
    ("join([x], ',')", TYPE),
    ("pad_left('abc', 2)", "abc"),
    ("pad_left('a', -1, '0')", "a"),
    ("pad_right('ä', 3, '𝄞')", "ä𝄞𝄞"),
    ("pad_left('a', 3, trim(' ab '))", TYPE),
    ("pad_left('a', 4611686018427387904)", LIMIT),
    ("pad_left('*', len('4111111111111111') - 4, '*') + slice('4111111111111111', -4)", "************1111"),
    ("parse_integer('007')", 7),
    ("parse_integer('+7') + 1", 8),
    ("parse_integer('-0')", 0),
    ("parse_integer('9223372036854775807')", 2**63 - 1),
    ("parse_integer('-9223372036854775808')", -(2**63)),
    ("parse_integer('9223372036854775808')", OVERFLOW),
    ("parse_integer('-9223372036854775809')", OVERFLOW),
    ("parse_integer(pad_left('7', 30000, '0'))", 7),
    ("parse_integer(pad_left('7', 30000, '1'))", OVERFLOW),
    *((f"parse_integer('{text}')", NUMBER) for text in (
        "", "+", "-", "+-1", "1.0", "1.", " 1", "1 ", "1_000", "1,000", "1e3", "0x10", "٣", "x", "--1", "²", "−1",
    )),
    ("parse_integer('1' + slice('\\n', 0))", NUMBER),
    ("parse_integer(x)", TYPE),
    ("parse_integer(1)", "remark"),
    ("parse_decimal('5')", D(5)),
    ("parse_decimal('-00.50')", D("-0.50")),
    ("parse_decimal('+12.500')", D("12.500")),
    ("parse_decimal('-0.00')", D("0.00")),
    ("parse_decimal('12345678901234567890.1')", D("12345678901234567890.1")),
    ("round(parse_decimal('2.345'), 2, 'half_up')", D("2.35")),
    ("parse_decimal(pad_left('7', 10001, '1'))", OVERFLOW),
    ("parse_decimal('0.' + pad_left('7', 10000, '0')) > 0", True),
    ("parse_decimal('0.' + pad_left('7', 10001, '0'))", OVERFLOW),
    ("parse_decimal('0.' + pad_left('0', 30000, '0')) == 0", True),
    ("parse_decimal(pad_right('1.', 30000, '0')) == 1", True),
    ("parse_decimal(pad_left('1', 30000, '0')) == 1", True),
    ("parse_decimal(pad_right('1', 10001, '0')) > 1", True),
    ("parse_decimal(pad_right('1', 10002, '0'))", OVERFLOW),
    ("parse_decimal(pad_right('1', 30000, '0') + '.5')", OVERFLOW),
    *((f"parse_decimal('{text}')", NUMBER) for text in (
        "", "-", ".5", "5.", "1.2.3", "1,5", " 1.5", "1.5 ", "1e3", "NaN", "Infinity", "1_0.0", "+-1.0", "1.-5", "1.٣",
    )),
    ("parse_decimal(x)", TYPE),
    ("contains([1, 2.0], 2)", True),
    ("contains({a: 1}, 'a')", True),
    # lists
    ("append([], null)", [None]),
    ("concat([1], [], [2])", [1, 2]),
    ("sort([2, 1.5, 1])", [1, D("1.5"), 2]),
    ("sort(['b', null, 'a'])", [None, "a", "b"]),
    ("sort([1, 'a'])", TYPE),
    ("sort([true, 1])", TYPE),
    ("sort([true, false])", [False, True]),
    ("sort([[1]])", "remark"),
    ("sort([{n: 2, p: 1}, {n: 1, p: 1}, {n: 3, p: 0}], 'p')", [{"n": 3, "p": 0}, {"n": 2, "p": 1}, {"n": 1, "p": 1}]),
    ("distinct([1, 1.0, true, '1', [1], [1.0], null, null])", [1, True, "1", [1], None]),
    ("take([1, 2], -1)", []),
    ("take([1, 2], 5)", [1, 2]),
    ("zip([1, 2], ['a'])", [[1, "a"]]),
    ("get([1, 2], -1, 'none')", "none"),
    ("get({a: null}, 'a', 1)", None),
    ("get(x, 'a', 1)", 1),
    ("get([1], 0)", 1),
    # maps and records
    ("{name: 'Ada', born: {year: 1815}}.born.year", 1815),
    ("{}", {}),
    ("{1: 'a', 2: 'b'}[2]", "b"),
    ("{1: 'a'}", {"1": "a"}),
    ("{1.50: 'a'}[1.5]", "a"),
    ("{(1 == 1): 'yes', (1 == 2): 'no'}[true]", "yes"),
    (f"{{({UTC_TIME}): 1}}[{UTC_TIME}]", 1),
    ("keys({2: 'b', 1: 'a'})", [2, 1]),
    ("keys({1.50: 0})", [D("1.5")]),
    ("keys({true: 0})", [True]),
    (f"keys({{({UTC_TIME}): 1}})", [time("2024-02-29T12:34:56.789")]),
    ("values({a: 1, b: 'x'})", [1, "x"]),
    ("put(put({}, 1, 'a'), 1, 'b')", {"1": "b"}),
    ("3 IN {3: 0}", True),
    ("{(x): 1}", TYPE),
    # times
    (f"{UTC_TIME} + days(1)", time("2024-03-01T12:34:56.789")),
    (f"hours(1) + {UTC_TIME} - minutes(60)", time("2024-02-29T12:34:56.789")),
    (f"{UTC_TIME} - {UTC_TIME}", 0),
    ("timestamp('2024-03-01') - timestamp('2024-02-28T12:00:00.5')", D("129599.500000")),
    ("(timestamp('2024-03-01') - timestamp('2024-02-28')) / days(1)", 2),
    ("timestamp('2024-01-01') + seconds(0.0000005)", time("2024-01-01T00:00:00")),
    ("timestamp('2024-01-01') + seconds(0.0000015)", time("2024-01-01T00:00:00.000002")),
    ("timestamp('9999-12-31T23:59:59') + seconds(1)", OVERFLOW),
    ("timestamp('2024-01-01') - days(1000000000)", OVERFLOW),
    ("days(9223372036854775807)", OVERFLOW),
    ("milliseconds(1500)", D("1.5")),
    ("timestamp('no')", None),
    ("timestamp('2024-02-29T12:00:00+02:00')", time("2024-02-29T10:00:00")),
    ("year(timestamp('9999-12-31T23:59:59Z'), 'Asia/Tokyo')", OVERFLOW),
    (f"hour({UTC_TIME}, 'Asia/Kathmandu')", 18),
    (f"weekday({UTC_TIME})", 4),
    (f"day({UTC_TIME}, trim('No/Where '))", "unknown_zone"),
    (f"day({UTC_TIME}, trim('../etc/passwd'))", "unknown_zone"),
    ("add_months(timestamp('2023-01-31'), 1)", time("2023-02-28T00:00:00")),
    ("add_months(timestamp('2024-03-31'), -1)", time("2024-02-29T00:00:00")),
    ("add_months(timestamp('2024-12-31'), 2)", time("2025-02-28T00:00:00")),
    ("add_years(timestamp('2024-02-29'), 4)", time("2028-02-29T00:00:00")),
    ("add_years(timestamp('2024-02-29'), 9000)", OVERFLOW),
    ("add_months(timestamp('2024-01-01'), 9223372036854775807)", OVERFLOW),
    # Berlin skips 02:00 to 03:00 on 31 March 2024, and has 02:00 to 03:00 twice on 27 October
    ("parse_timestamp('2024-03-31 02:30', '%Y-%m-%d %H:%M', 'Europe/Berlin')", time("2024-03-31T01:30:00")),
    ("parse_timestamp('2024-10-27 02:30', '%Y-%m-%d %H:%M', 'Europe/Berlin')", time("2024-10-27T00:30:00")),
    ("add_days(timestamp('2024-03-30T01:30:00Z'), 1, 'Europe/Berlin')", time("2024-03-31T01:30:00")),
    ("add_days(timestamp('2024-10-26T10:00:00Z'), 1, 'Europe/Berlin')", time("2024-10-27T11:00:00")),
    ("add_days(timestamp('2024-10-27T01:30:00Z'), 0, 'Europe/Berlin')", time("2024-10-27T01:30:00")),
    ("start_of(timestamp('2024-10-27T01:45:00Z'), 'hour', 'Europe/Berlin')", time("2024-10-27T01:00:00")),
    ("start_of(timestamp('2024-10-27T12:00:00Z'), 'day', 'Europe/Berlin')", time("2024-10-26T22:00:00")),
    (f"start_of({UTC_TIME}, 'week')", time("2024-02-26T00:00:00")),
    (f"start_of({UTC_TIME}, lower('FORTNIGHT'))", TYPE),
    (f"format_timestamp({UTC_TIME}, '%a %A %b %B %j %u %f %z %% x', 'America/New_York')",
     "Thu Thursday Feb February 060 4 789000 -0500 % x"),
    (f"format_timestamp({UTC_TIME}, trim('%Q'))", TYPE),
    (f"format_timestamp({UTC_TIME}, trim('100%'))", TYPE),
    ("parse_timestamp('2024-02-30', '%Y-%m-%d')", None),
    ("parse_timestamp('24:00', '%H:%M')", None),
    ("parse_timestamp('1 Jan', '%d %b')", None),
    ("parse_timestamp('01 May 2024', '%d %B %Y')", time("2024-05-01T00:00:00")),
    ("parse_timestamp('12:30', '%H:%M')", time("1970-01-01T12:30:00")),
    ("parse_timestamp('12:30+0130', '%H:%M%z')", time("1970-01-01T11:00:00")),
    ("parse_timestamp('x', trim('%j'))", TYPE),
]  # fmt: skip


@pytest.mark.parametrize("path", PATH_NAMES)
def test_boundaries_and_wrong_values(path: str) -> None:
    """Results worked out by hand, or the code of the error; `remark`: the checker refuses it."""
    wrong: dict[str, Any] = {}
    for expression, expected in VALUES:
        try:
            value = ask(expression, path, {}, "{x: {type: any, required: false}}")
        except CheckError:
            value = "remark"
        if not is_same(value, expected):
            wrong[expression] = value
    assert wrong == {}


@pytest.mark.parametrize("path", PATH_NAMES)
def test_maps_with_keys_of_other_types_come_in_and_go_out_as_texts(path: str) -> None:
    maps: list[tuple[str, dict[Any, str], dict[str, str]]] = [
        ("integer", {1: "a", "-02": "b"}, {"1": "a", "-2": "b"}),
        ("decimal", {"1.50": "a", "-0": "b"}, {"1.5": "a", "0": "b"}),
        ("boolean", {"true": "a", False: "b"}, {"true": "a", "false": "b"}),
        ("timestamp", {"2024-01-01T01:00:00+01:00": "a"}, {"2024-01-01T00:00:00Z": "a"}),
    ]
    for key, inner, outer in maps:
        kind = f"map<{key}, string>"
        assert ask("m", path, {"m": inner}, f"{{m: '{kind}'}}", kind) == outer
        assert ask("m[keys(m)[0]]", path, {"m": inner}, f"{{m: '{kind}'}}") == "a"
        assert ask("m", path, {"m": {"x": "a"}}, f"{{m: '{kind}'}}", kind) == "invalid_input"
    assert ask("m", path, {"m": {1: "a", "01": "b"}}, "{m: 'map<integer, string>'}") == "invalid_input"


@pytest.mark.parametrize("path", PATH_NAMES)
def test_a_duration_comes_in_as_a_number_of_seconds_or_with_a_unit(path: str) -> None:
    for given, seconds in (
        ("30d", D(2592000)),
        ("1.5h", D("5400.0")),
        ("-500ms", D("-0.500")),
        (90, D(90)),
        ("2 w", D(1209600)),
    ):
        assert ask("d", path, {"d": given}, "{d: duration}", "duration") == seconds
    assert ask("d", path, {"d": "a day"}, "{d: duration}") == "invalid_input"


@pytest.mark.parametrize("path", PATH_NAMES)
def test_results_are_bounded(path: str) -> None:
    """A node of one megabyte makes no list of more than 16,384 elements, and no longer text."""
    expressions = [
        "concat(l, l)",
        "append(concat(l, [1]), 1)",
        "zip(l, l)",
        "split(s, 'a')",
        "replace(s, 'a', s)",
        "join([s, s], '')",
        "pad_right(s, 2000000)",
        "join(split(slice(s, 0, 9000), 'a'), s)",
    ]
    for expression in expressions:
        inputs = "{l: 'array<integer>', s: string}\nperformance: {memory_limit_mb: 1}"
        values = {"l": list(range(16_384)), "s": "a" * 1_000_000}
        expected = LIMIT if expression != "zip(l, l)" else [[n, n] for n in range(16_384)]
        assert ask(expression, path, values, inputs) == expected, expression


@pytest.mark.parametrize("function", ["parse_integer", "parse_decimal"])
def test_random_texts_are_the_same_numbers_on_all_evaluators(function: str) -> None:
    """Also as Python's own reading says, where the text has the form."""
    rng, form = make_random(7), r"[+-]?[0-9]+" if function == "parse_integer" else r"[+-]?[0-9]+(\.[0-9]+)?"
    for _ in range(cases(300)):
        digits = "".join(rng.choices("0123456789", k=rng.choice([0, 1, 2, 3, 18, 19, 20])))
        text = (
            rng.choice(["", "", "+", "-", " "])
            + digits
            + rng.choice(["", "", ".", ".5", ".250", "e3", "\n", "٣", "_1"])
        )
        values = [ask(f"{function}(s)", path, {"s": text}, "{s: string}") for path in PATH_NAMES]
        expected: Any = D(text) if re.fullmatch(form, text, re.ASCII) else NUMBER
        if function == "parse_integer" and expected != NUMBER:
            expected = int(text) if -(2**63) <= int(text) < 2**63 else OVERFLOW
        assert all(is_same(value, expected) for value in values), (text, values)


CHUNKS = range(0, cases(400), 25)


@pytest.mark.usefixtures("unshrunk")
@pytest.mark.parametrize("start", CHUNKS)
def test_random_calls_agree_on_all_evaluators(start: int) -> None:
    for seed in range(start, start + 25):
        compare(seed, 20 if ALL else 6)


@pytest.mark.long
@pytest.mark.usefixtures("unshrunk")
@pytest.mark.parametrize("start", first(range(1_000_000, 1_000_000 + cases(32_000), 500), 0))
def test_many_random_calls_agree_on_all_evaluators(start: int) -> None:
    """With `make cases`: 32,000 programs of 32 inputs, two million comparisons."""
    for seed in range(start, start + 500):
        compare(seed, 32)


def compare(seed: int, inputs: int) -> None:
    program = random_call(make_random(seed))
    for other in (python, reference):
        report = differential.test(program, inputs, seed=seed, first=other, second=direct, stop_after=1)
        assert report.kept == (), seed


@pytest.mark.parametrize(
    ("written", "hint"),
    [
        ("a && b", "write AND"),
        ("a || b", "write OR"),
        ("!a", "write NOT"),
        ("a = b", "equality is written =="),
        ("a === b", "equality is written =="),
        ("a // b", "integer division is div(a, b)"),
        ("a ** 2", "write the product: x * x"),
        ("a ? b : 1", "write if(condition, a, b)"),
        ("a ?: b", "write if(condition, a, b)"),
        ("1 if a else b", "write if(condition, a, b)"),
        ("s[1:3]", "slice(x, start, end)"),
        ("now()", "write current_timestamp()"),
        ("True", "write true"),
        ("None", "write null"),
        ("s.upper()", "write upper(s)"),
        ("s.strip()", "write trim(text)"),
        ("int(s)", "write parse_integer(text)"),
        ("integer(s)", "write parse_integer(text)"),
        ("parse_int(s)", "write parse_integer(text)"),
        ("float(s)", "write parse_decimal(text)"),
        ("decimal(s)", "write parse_decimal(text)"),
        ("number(s)", "write parse_integer(text) or parse_decimal(text)"),
        ("substr(s, 1)", "write slice(text, start, end)"),
        ("1 < a < 5", "write 1 < a AND a < …"),
        ("a and b", "upper case: AND"),
        ("not a", "upper case: NOT"),
        ("current_timestamp() + 5", "a duration is written days(n)"),
        ("uper(s)", "did you mean `upper`?"),
        ("suum([a])", "did you mean `sum`?"),
        ("alll([a == 1])", "did you mean `all`?"),
        ("map_keyy(s)", "there is no function `map_keyy`"),  # `map_key` is the checker's own
        ("floor(s)", "floor(x: number) -> integer"),
        ("year(current_timestamp(), 'Europe/Berln')", "did you mean `Europe/Berlin`?"),
    ],
)
def test_words_of_other_languages_get_a_hint(written: str, hint: str) -> None:
    found = remarks(written, "{a: integer, b: integer, s: string}")
    assert len(found) == 1, found
    assert hint in found[0]


def test_a_typo_in_a_contract_is_told_and_a_predicate_of_the_host_is_not() -> None:
    """Both may be predicates; only a name that is nearly a function's gets a warning with a hint."""
    contract = '{s: string}\ncontracts: {preconditions: ["uper(s)"], postconditions: ["is_customer(s)"]}'
    (warning,) = remarks("len(s)", contract)
    assert warning.startswith("unknown_function: `uper` is no function")
    assert warning.endswith("(did you mean `upper`?)")


def test_functions_stand_in_contracts() -> None:
    """In pre- and postconditions and constraints, typed as anywhere."""
    text = """{n: {type: string, constraints: ["len(trim(value)) > 0"]}, at: timestamp}
contracts:
  preconditions: ["if(n == 'x', year(at) > 2000, true)"]
  postconditions: ["coalesce(y, '') == upper(n)"]"""
    for path in PATH_NAMES:
        assert ask("upper(n)", path, {"n": "ab", "at": "2024-01-01T00:00:00Z"}, text) == "AB"
        assert ask("upper(n)", path, {"n": " ", "at": "2024-01-01T00:00:00Z"}, text) == "invalid_input"
        assert ask("upper(n)", path, {"n": "x", "at": "1999-01-01T00:00:00Z"}, text) == "precondition_failed"
        assert ask("lower(n)", path, {"n": "Ab", "at": "2024-01-01T00:00:00Z"}, text) == "postcondition_failed"
