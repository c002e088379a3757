"""Values of the kernel as messages of the contract and back, by the descriptors of the messages.

`fill` writes each field from the attribute of its name, `fields_of` reads those that are set; `_fill_rest` has
what a message tells in its own form. Fields of an envelope that the contract has no place for (history, prior
plans, errors …) stay in the kernel. Metadata that is no text is JSON text on the way out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, TypeVar

from lyra.core.envelope import Envelope
from lyra.kernel.pipelines.feeds import PipelineEvent
from lyra.kernel.workers.entry import ProcessControlBlock
from lyra.kernel.workers.quota import ResourceUsage
from lyra.server.generated import engine_pb2 as pb
from lyra.server.grpc.fields import (
    EVENT_TYPE,
    INTERRUPT_KIND,
    INTERRUPT_STATUS,
    PRIORITY,
    PROCESS_STATE,
    WORDS,
    int32,
    int64,
    json_bytes,
    json_mapping,
    json_value,
    milliseconds,
    seconds,
    text,
)

M = TypeVar("M")
_TIMES: Final = ("_at_ms", "timestamp_ms", "last_health_check_ms")
_ATTRIBUTES: Final = {  # of fields that are not called as in the kernel
    "Envelope.metadata_str": "metadata",
    "InterruptResponse.resolved_at_ms": "received_at",
    "RequestStatus.process": "pcb",
}


def _attribute(field: Any) -> str:
    name: str = field.name.removesuffix("_ms") if field.name.endswith(_TIMES) else field.name
    return _ATTRIBUTES.get(f"{field.containing_type.name}.{field.name}", name)


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


# ------------------------------------------------------------------ out
def message_from(kind: type[M], value: Any) -> M:
    """Return the message of a value of the kernel's."""
    message = kind()
    fill(message, value)
    return message


def fill(message: Any, value: Any) -> None:
    """Write a value into an empty message; an attribute that is None or missing leaves its field unset."""
    kind = message.DESCRIPTOR.name
    if kind == "ProcessControlBlock":
        fill_process(message, value)
        return
    for attribute, put in _plan(message.DESCRIPTOR):
        part = getattr(value, attribute, None)
        if part is not None:
            put(message, part)
    _fill_rest(kind, message, value)


@cache
def _plan(descriptor: Any) -> tuple[tuple[str, Callable[[Any, Any], None]], ...]:
    """Return the attribute and the writer of each field but the question of an envelope or instruction, a mapping."""
    return tuple((_attribute(field), _writer(field)) for field in descriptor.fields if field.name != "interrupt")


def _writer(field: Any) -> Callable[[Any, Any], None]:
    name = field.name
    if _is_map(field):
        convert = _converter(field.message_type.fields_by_name["value"])

        def put_items(message: Any, value: Mapping[str, Any]) -> None:
            items = getattr(message, name)
            for key, item in value.items():
                items[text(key)] = convert(item)

        return put_items
    if field.is_repeated:
        return lambda message, value: getattr(message, name).extend(map(text, value))
    if field.message_type is not None:

        def put_message(message: Any, value: Any) -> None:
            part = getattr(message, name)
            part.SetInParent()
            fill(part, value)

        return put_message
    convert = _converter(field)
    return lambda message, value: setattr(message, name, convert(value))


def _converter(field: Any) -> Callable[[Any], Any]:
    """Return the function that makes the value of a field of what the kernel has."""
    if field.enum_type is not None:
        return WORDS[field.enum_type.name].number
    if field.name.endswith(_TIMES):
        return milliseconds
    converters: dict[int, Callable[[Any], Any]] = {
        field.TYPE_STRING: lambda value: text(value) if isinstance(value, str) else json_bytes(value).decode(),
        field.TYPE_BYTES: lambda value: json_bytes(value.to_data() if hasattr(value, "to_data") else value),
        field.TYPE_INT32: int32,
        field.TYPE_INT64: int64,
        field.TYPE_BOOL: bool,
    }
    return converters.get(field.type, float)


def _fill_rest(kind: str, message: Any, value: Any) -> None:
    """Write what a message tells in its own form."""
    if kind in ("Envelope", "Instruction") and value.interrupt is not None:
        message.interrupt.CopyFrom(question_message(value.interrupt, pending=value.interrupt_pending))
    if kind == "Instruction" and value.lease is not None:
        message.lease_expires_at_ms = milliseconds(value.lease.expires_at)
    elif kind == "RequestStatus":
        message.state, message.has_interrupt = value.pcb.state, value.pending_interrupt is not None
        message.pid, message.current_stage = message.process.pid, message.process.current_stage
    elif kind == "DispatchServiceResponse":
        message.success, message.duration_ms = value.error is None, int64(value.duration_s * 1000)
    elif kind == "ProcessCountsResponse":
        message.counts_by_state.update({state: int32(count) for state, count in value.items()})


def envelope_message(envelope: Envelope) -> pb.Envelope:
    return message_from(pb.Envelope, envelope)


def event_message(event: PipelineEvent, now: float) -> pb.ExecutionEvent | None:
    """Return an event of a pipeline; None for one that the contract has no type for."""
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


_NOTHING_USED: Final = ResourceUsage()
_last_quota: Final[dict[str, Any]] = {"quota": None, "message": None}


def fill_process(message: pb.ProcessControlBlock, block: ProcessControlBlock) -> None:
    """Write a process into an empty message. Lists have thousands: a field at its default is not set."""
    message.pid = text(block.pid)
    message.state = PROCESS_STATE.numbers[block.state]
    message.priority = PRIORITY.numbers[block.priority]
    message.created_at_ms = int((block.created_at or 0.0) * 1000)
    # The message of a quota; most processes share the default, whose message is made once.
    quota = block.quota
    if quota is not _last_quota["quota"]:
        _last_quota.update(quota=quota, message=message_from(pb.ResourceQuota, quota))
    shared: pb.ResourceQuota = _last_quota["message"]
    message.quota.CopyFrom(shared)
    if block.usage == _NOTHING_USED:
        message.usage.SetInParent()
    else:
        fill(message.usage, block.usage)
    if block.user_id:
        message.user_id = text(block.user_id)
    if block.request_id or block.session_id:
        message.request_id, message.session_id = text(block.request_id), text(block.session_id)
    if block.started_at is not None or block.completed_at is not None:
        message.started_at_ms = milliseconds(block.started_at)
        message.completed_at_ms = milliseconds(block.completed_at)
        message.last_scheduled_at_ms = milliseconds(block.last_scheduled_at)
    if block.current_stage or block.current_service or block.parent_pid:
        message.current_stage, message.current_service = text(block.current_stage), text(block.current_service)
        message.parent_pid = text(block.parent_pid)
    if block.pending_interrupt is not None or block.interrupt_data is not None:
        message.pending_interrupt = text(block.pending_interrupt or "")
        message.interrupt_data = json_bytes(block.interrupt_data)
    if block.child_pids:
        message.child_pids.extend(map(text, block.child_pids))


# ---------------------------------------------------------------- questions
# In the kernel a question is an `Interrupt`, in an envelope a mapping.

_QUESTION: Final = pb.FlowInterrupt.DESCRIPTOR.fields
_QUESTION_TEXTS: Final = [field.name for field in _QUESTION if field.type == field.TYPE_STRING]
_QUESTION_TIMES: Final = [field.name.removesuffix("_ms") for field in _QUESTION if field.name.endswith(_TIMES)]
_YES_OR_NO: Final = "confirmation"  # of these, `approved` left out is a no


def question_message(question: Mapping[str, Any], *, pending: bool) -> pb.FlowInterrupt:
    """Return the question of an envelope; a field that does not fit its place in the contract is left out."""
    status = question.get("status") or ("pending" if pending else "resolved")
    message = pb.FlowInterrupt(
        kind=INTERRUPT_KIND.number(_word(question.get("kind"))),
        status=INTERRUPT_STATUS.number(_word(status)),
        data=json_bytes(question.get("data")),
    )
    for name in _QUESTION_TEXTS:
        if isinstance(question.get(name), str):
            setattr(message, name, text(question[name]))
    for name in _QUESTION_TIMES:
        setattr(message, f"{name}_ms", milliseconds(_number(question.get(name))))
    response = question.get("response")
    if isinstance(response, Mapping):
        message.response.text = text(response.get("text") or "")
        message.response.approved = response.get("approved") is True
        message.response.decision = text(response.get("decision") or "")
        message.response.data = json_bytes(response.get("data"))
        message.response.resolved_at_ms = milliseconds(_number(response.get("received_at")))
    return message


def _word(value: Any) -> str | None:
    return value.lower() if isinstance(value, str) else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


# ------------------------------------------------------------------ in
def fields_of(message: Any, path: str = "") -> dict[str, Any]:
    """Return the fields that a message gives, by the names of the kernel; those at their default are left out."""
    given: dict[str, Any] = {}
    for field, value in message.ListFields():
        place = f"{path}{field.name}"
        if _is_map(field):
            entry = field.message_type.fields_by_name["value"]
            given[_attribute(field)] = {key: _read(entry, item, f"{place}.{key}") for key, item in value.items()}
        elif field.is_repeated:
            given[_attribute(field)] = list(value)
        else:
            given[_attribute(field)] = _read(field, value, place)
    return given


def _read(field: Any, value: Any, place: str) -> Any:
    if field.message_type is not None:
        return interrupt_fields(value) if field.message_type.name == "FlowInterrupt" else fields_of(value, f"{place}.")
    if field.enum_type is not None:
        return WORDS[field.enum_type.name].word(value)
    if field.type == field.TYPE_BYTES:
        return json_value(value, place)
    return seconds(value) if field.name.endswith(_TIMES) else value


def envelope_fields(message: pb.Envelope) -> dict[str, Any]:
    """Return the fields of an envelope that a message gives."""
    given = fields_of(message)
    for key, output in message.outputs.items():
        given["outputs"][key] = json_mapping(output, f"outputs.{key}") or {}
    return given


def interrupt_fields(message: pb.FlowInterrupt) -> dict[str, Any]:
    """Return the question of an envelope as the kernel keeps it."""
    question = fields_of(message, "interrupt.")
    if message.HasField("response"):
        question["response"] = answer_fields(message.response, str(question.get("kind", "")))
    return question


def answer_fields(message: pb.InterruptResponse, kind: str) -> dict[str, Any]:
    """Return an answer to a question of that kind. The contract cannot tell a no from an answer that was left out: for
    a confirmation it is a no."""
    approved = True if message.approved else False if kind == _YES_OR_NO else None
    return {
        "text": message.text,
        "approved": approved,
        "decision": message.decision,
        "data": json_value(message.data, "response.data"),
    }


def find_changed_fields(given: Mapping[str, Any], held: Mapping[str, Any]) -> dict[str, Any]:
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
    """Return an envelope in bytes: JSON with the kernel's field names."""
    value = json_value(data, "envelope")
    if isinstance(value, str):
        return {"raw_input": value}
    return json_mapping(data, "envelope")
