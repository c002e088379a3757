"""Values of subclassed types are plain before any path sees them, and a hostile mapping makes no execution raise."""

from __future__ import annotations

import collections
import datetime
import decimal
import enum
from collections.abc import Mapping
from typing import Any

import pytest

from lyra import vesper
from lyra.errors import ContractViolation
from lyra.vesper.values.plain import UnreadableInputs, to_plain_inputs, to_plain_value

PATHS = ("python", "direct", "reference")


class Word(str):
    __slots__ = ()

    def __str__(self):
        return "another word"


class Number(int):
    def __int__(self):
        return 99


class Fraction(float):
    """As numpy.float64 is one."""


class Money(decimal.Decimal):
    pass


class Data(bytes):
    pass


class Time(datetime.datetime):
    pass


class Row(list[Any]):
    pass


class Colour(enum.StrEnum):
    red = "red"


class OldColour(str, enum.Enum):  # noqa: UP042 - the older form differs in what str() gives
    red = "red"


class Count(enum.IntEnum):
    one = 1


NOON = Time(2031, 3, 4, 12, tzinfo=datetime.UTC)
VALUES = [
    ("string", Word("red"), "red"),
    ("string", Colour.red, "red"),
    ("string", OldColour.red, "red"),
    ("enum[red, blue]", OldColour.red, "red"),
    ("enum[red, blue]", Word("red"), "red"),
    ("integer", Number(7), 7),
    ("integer", Count.one, 1),
    ("decimal", Number(7), decimal.Decimal(7)),
    ("decimal", Count.one, decimal.Decimal(1)),
    ("decimal", Money("1.50"), decimal.Decimal("1.50")),
    ("decimal", Fraction(1.5), decimal.Decimal("1.5")),
    ("decimal", Word("1.5"), decimal.Decimal("1.5")),
    ("bytes", Data(b"x"), b"x"),
    ("timestamp", NOON, datetime.datetime(2031, 3, 4, 12, tzinfo=datetime.UTC)),
    ("array<integer>", Row([Number(7), Count.one]), [7, 1]),
    ("map<string, integer>", collections.OrderedDict({Colour.red: Count.one}), {"red": 1}),
    ("set<string>", {Word("red")}, frozenset({"red"})),
    ("any", OldColour.red, "red"),
    ("any", Count.one, 1),
    ("any", Money("1.5"), decimal.Decimal("1.5")),
    ("any", {Word("k"): Row([Fraction(0.5)])}, {"k": [decimal.Decimal("0.5")]}),
]


def node_of(kind: str) -> vesper.Node:
    return vesper.load(
        f"node_id: give_v1\ntype: function\nintent: give a value\ninputs:\n  a: '{kind}'\noutputs:\n  x: '{kind}'\n"
        "flow:\n  - {step: s, operation: arithmetic, expression: a, output: x}\n"
    )


def types_in(value):
    """The types of a value and of everything in it."""
    if isinstance(value, Mapping):
        return {type(value)}.union(*(types_in(item) for pair in value.items() for item in pair))
    if isinstance(value, list | frozenset):
        return {type(value)}.union(*map(types_in, value))
    return {type(value)}


@pytest.mark.parametrize(("kind", "given", "plain"), VALUES)
def test_all_paths_give_equal_plain_values(kind, given, plain):
    """The caller's types split no paths and do not come back in outputs."""
    node = node_of(kind)
    outcomes = [vesper.execute(node, {Word("a"): given}, path=path) for path in PATHS]
    with vesper.Runtime() as runtime:
        outcomes.append(runtime.execute(node, {"a": given}, "dual_verify"))
        evidence = runtime.evidence(node)
        assert (evidence.compared, evidence.divergences) == (1, 0)
    for outcome in outcomes:
        assert outcome.outputs == {"x": plain}, outcome.error
        assert types_in(outcome.outputs["x"]) == types_in(plain)
    compiled = [vesper.compile(node, path=path)(given)["x"] for path in ("python", "direct")]
    assert compiled == [plain, plain]
    assert types_in(compiled) == types_in([plain])


def test_answers_of_the_embedding_program_are_plain():
    """Predicates, custom operations and ambient objects give enumerations, too."""
    node = vesper.load(
        "node_id: ask_v1\ntype: function\nintent: ask the host\ninputs: {a: string}\noutputs: {x: any, y: any}\n"
        "contracts: {preconditions: [is_open]}\nsecurity: {capabilities_required: [custom.shop.colour]}\nflow:\n"
        "  - {step: c, operation: custom.shop.colour, a: '{a}', output: x}\n"
        "  - {step: s, operation: arithmetic, expression: 'user.colour', output: y}\n"
    )
    custom = {"shop.colour": lambda **_: {"colour": OldColour.red, "counts": Row([Count.one])}}
    for mode in ("python_only", "dual_verify", "direct_only"):
        with vesper.Runtime(
            custom=custom, grant=["custom.shop.colour"], predicates={"is_open": lambda: True}
        ) as runtime:
            outcome = runtime.execute(node, {"a": "x"}, mode, ambient={"user": {"colour": OldColour.red}})
            assert outcome.outputs == {"x": {"colour": "red", "counts": [1]}, "y": "red"}, outcome.error
            assert types_in(outcome.outputs) == {dict, str, list, int}
            assert runtime.evidence(node).divergences == 0


class Hostile(dict[str, Any]):
    def items(self):
        raise RuntimeError("top secret")

    keys = values = __iter__ = get = items  # type: ignore[assignment]


class HostileMapping(Mapping[str, Any]):
    def __getitem__(self, name):
        raise KeyError("top secret")

    def __iter__(self):
        return iter(["a"])

    def __len__(self):
        return 1


class Nowhere(datetime.tzinfo):
    def utcoffset(self, _):
        raise RuntimeError("top secret")

    dst = tzname = utcoffset


def deep(levels):
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "inputs",
    [
        Hostile(a=1),
        HostileMapping(),
        {"a": Hostile(b=1)},
        {"a": datetime.datetime(2031, 3, 4, tzinfo=Nowhere())},
        {"a": deep(50_000)},
    ],
    ids=["dict", "mapping", "inner", "zone", "deep"],
)
@pytest.mark.parametrize("kind", ["any", "timestamp"])
def test_a_hostile_mapping_makes_no_execution_raise(inputs, kind):
    """It is invalid input, and the error does not repeat the text of the caller's exception."""
    node = node_of(kind)
    outcomes = [vesper.execute(node, inputs, path=path) for path in PATHS]
    with vesper.Runtime() as runtime:
        outcomes += [runtime.execute(node, inputs, mode) for mode in ("python_only", "dual_verify", "direct_only")]
        assert runtime.evidence(node).divergences == 0
    for outcome in outcomes:
        assert (outcome.error.code, outcome.error.phase) == ("invalid_input", "input")
        assert "secret" not in outcome.error.message
    if "a" in inputs and type(inputs) is dict:
        with pytest.raises(ContractViolation):
            vesper.compile(node)(inputs["a"])


def test_plain_inputs_are_handed_on_without_a_copy():
    """Inputs that are plain already cost a look at their types."""
    inputs = {"a": "x", "b": 1, "c": decimal.Decimal(1), "d": None, "e": True}
    assert to_plain_inputs(inputs) is inputs
    values = [1, "x"]
    assert to_plain_inputs({"a": values})["a"] is values
    assert to_plain_inputs([1]) == [1]
    assert to_plain_value(Count.one) == 1
    with pytest.raises(UnreadableInputs):
        to_plain_inputs(Hostile())


@pytest.mark.parametrize("text", ["0" * 30_000 + "1", "1e0000000001", "1e-000000002"])
def test_long_number_texts_are_judged_alike(text):
    """All paths take texts of the same length, and exponents of up to nine digits."""
    outcomes = [vesper.execute(node_of("decimal"), {"a": text}, path=path) for path in PATHS]
    assert len({(outcome.status, str(outcome.outputs.get("x"))) for outcome in outcomes}) == 1
