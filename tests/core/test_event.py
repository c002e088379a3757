"""Events are immutable facts of known kinds."""

from __future__ import annotations

import json

import pytest

from lyra.core.budgets.money import Money
from lyra.core.event import KINDS, Event


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
