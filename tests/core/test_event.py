"""Events are immutable facts of known kinds."""

from __future__ import annotations

import json

import msgspec
import pytest

from lyra.agents.session.records import CALL_FIELDS
from lyra.core.budgets.money import Money
from lyra.core.event import KINDS, Event, ModelCalled
from tests.agents.support import model_called


def test_an_event_does_not_change():
    """A fact stays a fact."""
    event = Event(1, 2.0, "p-1", "process.created", {})
    with pytest.raises(AttributeError):
        event.kind = "process.terminated"  # type: ignore[misc]


def test_an_event_is_one_line_of_json():
    """Any data a journal holds can be shown; bytes as base64."""
    event = Event(7, 1.5, "", "kernel.started", {"cost": Money(5), "raw": b"\x00", "text": "a\nb"})
    assert "\n" not in event.to_json()
    assert json.loads(event.to_json()) == {
        "seq": 7,
        "time": 1.5,
        "pid": "",
        "kind": "kernel.started",
        "data": {"cost": 5, "raw": "AA==", "text": "a\nb"},
    }


def test_every_kind_has_a_sentence():
    """The table is the reference: a dotted name, and one sentence about what it means."""
    for kind, sentence in KINDS.items():
        noun, _, verb = kind.partition(".")
        assert noun.isidentifier()
        assert verb.isidentifier()
        assert sentence
        assert not sentence.endswith(".")


def test_the_record_of_a_model_call_has_what_it_says_and_reads_the_rest_as_nothing() -> None:
    """A record read back from a journal knows fewer counts than a live one: readers find 0, not a missing name."""
    plain = model_called()
    assert tuple(plain.to_data()) == CALL_FIELDS
    stored = model_called(cache_read_tokens=5, cost_usd=None).to_data()
    assert list(stored) == [*CALL_FIELDS, "cache_read_tokens"]
    read = ModelCalled.from_data(stored)
    assert (read.cache_read_tokens, read.cache_write_tokens, read.micro_usd, read.all_input_tokens) == (5, 0, 0, 3)
    assert model_called(total_input_tokens=9).all_input_tokens == 9
    assert ModelCalled.from_data({"model": "sim/echo"}).output_tokens == 0
    with pytest.raises(msgspec.ValidationError, match="model"):
        ModelCalled.from_data({**stored, "model": 5})
