"""Envelopes, their bounds, and the events and results of runs.

Fields of an envelope that the contract has no place for (history, prior plans, errors …) stay in the kernel. Metadata
that is no text is JSON text on the way out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lyra.core.envelope import BoundsResult, Envelope
from lyra.kernel.pipelines.events import PipelineEvent
from lyra.kernel.pipelines.single_agent import AgentRun
from lyra.server.generated import engine_pb2 as pb
from lyra.server.grpc.messages.enums import EVENT_TYPE, TERMINAL_REASON
from lyra.server.grpc.messages.fields import (
    int32,
    int64,
    json_bytes,
    json_mapping,
    json_value,
    milliseconds,
    seconds,
    text,
    texts,
)
from lyra.server.grpc.messages.interrupts import interrupt_fields, question_message

_FIELDS: Final = pb.Envelope.DESCRIPTOR.fields
_TIMES: Final = ("received_at", "completed_at", "created_at")
_OWN_FORM: Final = {"terminal_reason", "interrupt", "outputs", "metadata_str", *(f"{name}_ms" for name in _TIMES)}
_LIKE: Final = frozenset(Envelope.__struct_fields__)
# Fields that are the same on both sides, by their form.
_SAME: Final = [field for field in _FIELDS if field.name not in _OWN_FORM and field.name in _LIKE]
_TEXTS: Final = [field.name for field in _SAME if field.type == field.TYPE_STRING and not field.is_repeated]
_INT32: Final = [field.name for field in _SAME if field.type == field.TYPE_INT32]
_INT64: Final = [field.name for field in _SAME if field.type == field.TYPE_INT64]
_FLAGS: Final = [field.name for field in _SAME if field.type == field.TYPE_BOOL]
_LISTS: Final = [field.name for field in _SAME if field.type == field.TYPE_STRING and field.is_repeated]
_MAPS: Final = [field.name for field in _SAME if field.type == field.TYPE_MESSAGE]


# ------------------------------------------------------------------ out
def envelope_message(envelope: Envelope) -> pb.Envelope:
    message = pb.Envelope(
        outputs={text(name): json_bytes(output) for name, output in envelope.outputs.items()},
        metadata_str=texts(envelope.metadata),
        terminal_reason=TERMINAL_REASON.number(envelope.terminal_reason),
    )
    for name in _TIMES:
        setattr(message, f"{name}_ms", milliseconds(getattr(envelope, name)))
    for name in _TEXTS:
        setattr(message, name, text(getattr(envelope, name)))
    for name in _INT32:
        setattr(message, name, int32(getattr(envelope, name) or 0))
    for name in _INT64:
        setattr(message, name, int64(getattr(envelope, name) or 0))
    for name in _FLAGS:
        setattr(message, name, bool(getattr(envelope, name)))
    for name in _LISTS:
        getattr(message, name).extend(map(text, getattr(envelope, name)))
    for name in _MAPS:
        shown = getattr(message, name)
        for key, value in getattr(envelope, name).items():
            shown[text(key)] = value if isinstance(value, bool) else text(value)
    if envelope.interrupt is not None:
        message.interrupt.CopyFrom(question_message(envelope.interrupt, pending=envelope.interrupt_pending))
    return message


def bounds_message(bounds: BoundsResult) -> pb.BoundsResult:
    left_in, left_out = bounds.tokens_in_remaining, bounds.tokens_out_remaining
    return pb.BoundsResult(
        can_continue=bounds.can_continue,
        terminal_reason=TERMINAL_REASON.number(bounds.terminal_reason),
        llm_calls_remaining=int32(bounds.llm_calls_remaining),
        agent_hops_remaining=int32(bounds.agent_hops_remaining),
        iterations_remaining=int32(bounds.iterations_remaining),
        tokens_in_remaining=None if left_in is None else int64(left_in),
        tokens_out_remaining=None if left_out is None else int64(left_out),
    )


def agent_result_message(run: AgentRun) -> pb.AgentResult:
    return pb.AgentResult(
        success=run.success,
        output=json_bytes(run.output),
        error=text(run.error),
        duration_ms=int32(run.duration_ms),
        llm_calls=int32(run.llm_calls),
        envelope=envelope_message(run.envelope),
    )


def event_message(event: PipelineEvent, now: float) -> pb.ExecutionEvent | None:
    """An event of a pipeline; None for one that the contract has no type for."""
    number = EVENT_TYPE.number(event.type)
    if not number:
        return None
    facts = {name: value for name, value in event.data.items() if name != "seq"}
    return pb.ExecutionEvent(
        type=number,
        stage=text(event.stage),
        timestamp_ms=milliseconds(now),
        payload=json_bytes({"pid": event.pid, **facts}),
        envelope=envelope_message(event.envelope),
    )


# ------------------------------------------------------------------ in
def envelope_fields(message: pb.Envelope) -> dict[str, Any]:
    """The fields of an envelope that a message gives; those at their default are left out."""
    given: dict[str, Any] = {}
    for field, value in message.ListFields():
        name = field.name
        if name in _TEXTS or name in _INT32 or name in _INT64 or name in _FLAGS:
            given[name] = value
        elif name in _LISTS:
            given[name] = list(value)
        elif name in _MAPS:
            given[name] = dict(value)
        elif name == "terminal_reason":
            given[name] = TERMINAL_REASON.word(value)
        elif name == "interrupt":
            given[name] = interrupt_fields(value)
        elif name == "outputs":
            given[name] = {key: json_mapping(output, f"outputs.{key}") or {} for key, output in value.items()}
        elif name == "metadata_str":
            given["metadata"] = dict(value)
        elif name.removesuffix("_ms") in _TIMES:
            given[name.removesuffix("_ms")] = seconds(value)
    return given


def changed_fields(given: Mapping[str, Any], held: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the given fields, and of mappings those keys, that differ from what an envelope holds: a client may send
    back what it was given, with its times in milliseconds and its metadata as text."""
    changed: dict[str, Any] = {}
    for name, value in given.items():
        before = held.get(name)
        if isinstance(value, dict) and isinstance(before, Mapping) and name != "interrupt":
            items = {key: item for key, item in value.items() if key not in before or before[key] != item}
            if items:
                changed[name] = items
        elif value != before:
            changed[name] = value
    return changed


def json_envelope(data: bytes) -> dict[str, Any] | None:
    """An envelope in bytes: JSON with the kernel's field names."""
    value = json_value(data, "envelope")
    if isinstance(value, str):
        return {"raw_input": value}
    return json_mapping(data, "envelope")
