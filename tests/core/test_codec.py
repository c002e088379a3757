"""Values to bytes and back: nothing lost silently, nothing hostile gets further than Corrupt."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lyra.core.budgets.budget import Usage
from lyra.core.budgets.money import Money
from lyra.core.codec import canonical, decode, decoder_for, encode
from lyra.core.policies.policy import Policy
from lyra.core.rights.capability import Capability, Grant
from lyra.errors import ConfigError, Corrupt
from tests.cases import cases

quick = settings(derandomize=True, deadline=None, max_examples=cases(250))

scalars = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary()
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


class Colour(enum.Enum):
    RED = "red"


class Word(enum.StrEnum):
    YES = "yes"


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Line(msgspec.Struct):
    start: Point
    end: Point


class Strange:
    pass


class Broken:
    def to_data(self):
        raise ValueError("not today")


class Text(str):
    __slots__ = ()


class Real(float):
    __slots__ = ()


@quick
@given(values)
def test_plain_values_come_back_as_they_were(value):
    """decode ∘ encode is the identity on plain data, types included."""
    again = decode(encode(value))
    assert again == value
    assert repr(again) == repr(value)


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        ((1, 2), [1, 2]),
        ({3}, [3]),
        (Decimal("1.10"), "1.10"),
        (uuid.UUID(int=5), str(uuid.UUID(int=5))),
        (Colour.RED, "red"),
        (Word.YES, "yes"),
        (Line(Point(1), Point(2, 3)), {"start": {"x": 1, "y": 0}, "end": {"x": 2, "y": 3}}),
        (Money(5), 5),
        (Text("t"), "t"),
        (Real(1.5), 1.5),
        (Usage(usd=3), {"usd": 3}),
        (Grant.all(), {"allow": ["*"]}),
        ({1: "a", (1, 2): "b"}, {1: "a", (1, 2): "b"}),
        (datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)),
    ],
)
def test_richer_values_come_back_as_plain_data(value, plain):
    """What has a plain form is saved in it."""
    assert decode(encode(value)) == plain


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Line, Line(Point(1), Point(2))),
        (list[Point], [Point(1)]),
        (tuple[int, str], (1, "a")),
        (Decimal, Decimal("1.10")),
        (Colour, Colour.RED),
        (Usage, Usage(usd=3)),
        (Grant, Grant(["fs.read:/x"])),
        (Capability, Capability("fs.read", "/x")),
        (Policy, Policy.of({"retry": 3})),
        (Any, {"a": [1]}),
        (set[int], {1, 2}),
        (int | None, None),
    ],
)
def test_a_type_brings_its_values_back(annotation, value):
    """Told the type, reading gives the value itself; the reader is made once."""
    assert decoder_for(annotation)(encode(value)) == value
    assert decoder_for(annotation) is decoder_for(annotation)


@pytest.mark.parametrize("annotation", [Strange, "Unknown", 5, int | Strange, list[Strange] | dict | set, [int]])
def test_an_annotation_without_a_form_reads_plain(annotation):
    """An annotation that means nothing here does no harm."""
    assert decoder_for(annotation)(encode({"a": 1})) == {"a": 1}
    with pytest.raises(Corrupt):
        decoder_for(annotation)(b"\xc1")


def test_the_wrong_type_is_corrupt():
    """Bytes of another type, or of values a type refuses, are Corrupt."""
    for annotation, value in ((int, "x"), (Capability, {"name": "nonsense"}), (Usage, {"usd": -1}), (Point, [1])):
        with pytest.raises(Corrupt):
            decoder_for(annotation)(encode(value))


@quick
@given(st.binary(max_size=60))
def test_hostile_bytes_are_a_value_or_corrupt(data):
    """Reading anything never raises anything else."""
    for read in (decode, decoder_for(Line), decoder_for(dict[str, int]), decoder_for(Usage)):
        with contextlib.suppress(Corrupt):
            read(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x91" * 100_000,
        b"\x81\x80\x01",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xa1\xff",
        b"\xd4\x05\x05",
        b"\xd7\xff" + b"\xff" * 8,
        b"\x01\x01",
    ],
)
def test_known_attacks_are_corrupt(data):
    """Deep nesting, huge lengths, bad text, unknown extensions and trailing bytes."""
    with pytest.raises(Corrupt):
        decode(data)


@pytest.mark.parametrize("write", [encode, canonical])
@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (Strange(), "type Strange"),
        ([1j], "type complex"),
        (lambda: 0, "type function"),
        (Strange, "type type"),
        ("\ud800", "surrogate"),
        ({"a": {Strange()}}, "type Strange"),
        (Broken(), "not today"),
    ],
)
def test_what_has_no_form_is_a_config_error_that_names_it(write, value, sentence):
    """The sentence says which type, the hint what to use."""
    with pytest.raises(ConfigError, match=sentence) as caught:
        write(value)
    assert caught.value.hint


def test_a_value_that_contains_itself_is_a_config_error():
    """Cycles and bottomless nesting are refused, not followed."""
    loop: list[Any] = []
    loop.append(loop)
    keyed: dict[Any, Any] = {1: 2}
    keyed[3] = keyed
    for write in (encode, canonical):
        for value in (loop, keyed):
            with pytest.raises(ConfigError, match="contains itself"):
                write(value)


def test_a_number_beyond_64_bits():
    """It cannot be saved, but two requests that hold it can be told apart."""
    with pytest.raises(ConfigError, match="64 bits"):
        encode(2**70)
    assert canonical([2**70]) == canonical((2**70,)) != canonical([2**70 + 1])


def test_many_annotations_do_not_fill_memory():
    """The readers kept are bounded."""
    from lyra.core import codec

    for number in range(codec._DECODERS_MAX + 10):
        decoder_for(f"unknown {number}")
    assert len(codec._decoders) <= codec._DECODERS_MAX


@quick
@given(st.dictionaries(st.integers() | st.text(max_size=3) | st.booleans(), values, max_size=5))
def test_canonical_bytes_do_not_depend_on_order(mapping):
    """Keys in any order, of any kind, give the same bytes."""
    turned = dict(reversed(mapping.items()))
    assert canonical(mapping) == canonical(turned)
    assert canonical([{"m": mapping}]) == canonical(({"m": turned},))


def test_canonical_bytes_of_sets_and_odd_keys():
    """Sets are sorted, also sets of several types; a mapping is not the list of its pairs."""
    assert canonical({1, 2, 3}) == canonical({3, 2, 1})
    assert canonical({"b", 1, (2,)}) == canonical({(2,), "b", 1})
    assert canonical({1: 2}) != canonical([[1, 2]])
    assert canonical({1: 2}) != canonical({True: 2})
    assert canonical({1: 2, "s": {"a", 1}}) == canonical({"s": {1, "a"}, 1: 2})
