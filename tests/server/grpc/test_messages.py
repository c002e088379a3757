"""Values and messages: the tables of words are total, every value has a message, every message a value or a mistake."""

from __future__ import annotations

import math

import pytest

from lyra.core.envelope import Envelope, TerminalReason
from lyra.core.ids import Entropy
from lyra.errors import CODES, ConfigError, LyraError, _classes
from lyra.kernel.interrupts.interrupt import InterruptKind, InterruptStatus
from lyra.kernel.pipelines.instruction import InstructionKind
from lyra.kernel.services.service import ServiceStatus
from lyra.kernel.workers.entry import ProcessState, SchedulingPriority
from lyra.server.generated import engine_pb2 as pb
from lyra.server.grpc import messages as enums
from lyra.server.grpc.guard import end_of
from lyra.server.grpc.messages import (
    answer_fields,
    envelope_fields,
    envelope_message,
    find_changed_fields,
    int32,
    int64,
    interrupt_fields,
    json_bytes,
    json_value,
    milliseconds,
    question_message,
    text,
)

TABLES = [
    (enums.PROCESS_STATE, ProcessState),
    (enums.PRIORITY, SchedulingPriority),
    (enums.TERMINAL_REASON, TerminalReason),
    (enums.INTERRUPT_KIND, InterruptKind),
    (enums.INTERRUPT_STATUS, InterruptStatus),
    (enums.INSTRUCTION_KIND, InstructionKind),
    (enums.HEALTH, ServiceStatus),
]


@pytest.mark.parametrize(("table", "words"), TABLES, ids=lambda value: getattr(value, "__name__", ""))
def test_every_word_of_the_kernel_has_its_number_and_back(table, words):
    assert {word.value for word in words} == table.words()
    for word in words:
        assert table.word(table.number(word.value)) == word.value
    assert table.word(0) is None
    with pytest.raises(ConfigError):
        table.word(1_000)
    with pytest.raises(ConfigError, match="is required"):
        table.require(0)


def test_numbers_are_clamped_and_texts_are_utf8():
    assert (int32(2**40), int32(-(2**40)), int32(7)) == (2**31 - 1, -(2**31 - 1), 7)
    assert (int64(2**70), int64(-(2**70))) == (2**63 - 1, -(2**63 - 1))
    assert (milliseconds(None), milliseconds(math.inf), milliseconds(1.5)) == (0, 0, 1500)
    assert text("half \ud800 pair") == "half ? pair"
    assert json_bytes(object()).startswith(b'"<object')
    assert (json_bytes(None), json_bytes({"a": [1]})) == (b"", b'{"a":[1]}')


@pytest.mark.parametrize("data", [b"{", b"\xff", b"nope", b"[" * 100_000, b'{"a":' * 300 + b"1" + b"}" * 300, b"NaN"])
def test_bytes_that_are_no_json_are_a_mistake_that_names_the_field(data: bytes):
    with pytest.raises(ConfigError, match="payload"):
        json_value(data, "payload")


def _full_envelope() -> Envelope:
    return Envelope.create(
        Entropy(1),
        now=1_700_000_000.25,
        user_id="alice",
        raw_input="tea",
        outputs={"a": {"n": 1}},
        metadata={"cup": "blue"},
        stage_order=["a", "b"],
        current_stage="b",
        active_stages={"b": True},
        completed_stage_set={"a": True},
        failed_stages={"c": "cold"},
        iteration=1,
        llm_call_count=2,
        tool_call_count=3,
        agent_hop_count=4,
        tokens_in=5,
        tokens_out=6,
        max_input_tokens=100,
        all_goals=["g", "h"],
        remaining_goals=["h"],
        goal_completion_status={"g": "satisfied"},
        interrupt_pending=True,
        interrupt={"id": "int_1", "kind": "confirmation", "question": "Sure?", "data": {"usd": 3}},
    )


def test_an_envelope_comes_back_as_it_was():
    envelope = _full_envelope()
    fields = envelope_fields(envelope_message(envelope))
    again = Envelope.create(Entropy(2), now=0.0, **fields)
    for name in envelope_fields(envelope_message(again)):
        if name != "interrupt":
            assert getattr(again, name) == getattr(envelope, name), name
    assert again.interrupt is not None
    assert again.interrupt.question == "Sure?"


def test_every_field_of_an_envelope_in_the_contract_is_served():
    """Each field of the message is written from the envelope: a full envelope leaves none at its default."""
    envelope = _full_envelope()
    envelope.terminate("completed", now=2.0)
    envelope.max_output_tokens = 1
    message = envelope_message(envelope)
    assert {field.name for field, _value in message.ListFields()} == set(pb.Envelope.DESCRIPTOR.fields_by_name)


def test_only_what_differs_is_a_change():
    held = {"iteration": 1, "outputs": {"a": {"n": 1}}, "stage_order": ["a"]}
    assert find_changed_fields(held, held) == {}
    given = {"iteration": 2, "outputs": {"a": {"n": 1}, "b": {}}, "stage_order": ["a"], "raw_input": "x"}
    assert find_changed_fields(given, held) == {"iteration": 2, "outputs": {"b": {}}, "raw_input": "x"}


def test_a_confirmation_that_is_not_approved_is_a_no_and_other_answers_say_nothing_about_it():
    assert answer_fields(pb.InterruptResponse(), "confirmation")["approved"] is False
    assert answer_fields(pb.InterruptResponse(text="x"), "clarification")["approved"] is None
    assert answer_fields(pb.InterruptResponse(approved=True), "clarification")["approved"] is True


def test_an_open_question_with_odd_fields_is_shown_as_far_as_it_fits():
    message = question_message({"kind": 7, "question": None, "created_at": "now", "extra": 1}, pending=True)
    assert (message.kind, message.status) == (0, pb.INTERRUPT_PENDING)
    asked = {"id": "int_1", "kind": "clarification", "question": "?", "response": {"text": "x"}}
    assert interrupt_fields(question_message(asked, pending=False))["response"]["text"] == "x"


def test_every_error_has_a_status_of_grpc():
    """The table of surfaces names status codes that exist; a LyraError of any class ends with its own."""
    for code, kind in _classes(LyraError).items():
        if code in CODES:  # another test may have made one of its own
            assert end_of(kind("x"), "test").code.name == CODES[code].grpc
    assert set(CODES) <= set(_classes(LyraError))
