"""Values of the kernel as messages of the contract and back, by the descriptors of the messages.

`fill` writes each field from the attribute of its name, `fields_of` reads those that are set; `_fill_rest` has
what a message tells in its own form. Fields of an envelope that the contract has no place for (history, prior
plans, errors …) stay in the kernel. Metadata that is no text is JSON text on the way out. Numbers are made to fit,
times are in milliseconds, texts are such as protobuf takes, JSON is in bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from math import isfinite
from typing import Any, Final, TypeVar

import msgspec

from lyra.core.checking.check import is_nested_deeper
from lyra.core.codec import to_plain
from lyra.core.envelope import Envelope
from lyra.core.limits import VALUE_DEPTH_MAX
from lyra.errors import ConfigError
from lyra.kernel.pipelines.feeds import PipelineEvent
from lyra.kernel.workers.entry import ProcessControlBlock
from lyra.kernel.workers.quota import ResourceUsage
from lyra.server.generated import engine_pb2 as pb

_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1
_write: Final = msgspec.json.Encoder(enc_hook=to_plain).encode
_read_field: Final = msgspec.json.Decoder().decode


def require(value: str, field: str) -> str:
    """Return the text of a field that must not be empty."""
    if not value:
        raise ConfigError(f"{field} is required", key=field)
    return value


def int32(value: float) -> int:
    number = int(value)
    return number if -_INT32_MAX <= number <= _INT32_MAX else _INT32_MAX if number > 0 else -_INT32_MAX


def int64(value: float) -> int:
    number = int(value)
    return number if -_INT64_MAX <= number <= _INT64_MAX else _INT64_MAX if number > 0 else -_INT64_MAX


def milliseconds(seconds_since_1970: float | None) -> int:
    """Return a time; 0 represents one that has not come."""
    if seconds_since_1970 is None or not isfinite(seconds_since_1970):
        return 0
    return int64(seconds_since_1970 * 1000)


def text(value: Any) -> str:
    """Text that protobuf takes: half a surrogate pair becomes a question mark."""
    word = value if type(value) is str else str(value)
    return word if word.isascii() else word.encode("utf-8", "replace").decode()


def json_bytes(value: Any) -> bytes:
    """Return a value as JSON; b"" for None."""
    if value is None:
        return b""
    try:
        return _write(value)
    except (TypeError, ValueError, OverflowError, RecursionError):  # no form in JSON: its text instead
        return _write(text(repr(value)))


def seconds(milliseconds_since_1970: int) -> float | None:
    return milliseconds_since_1970 / 1000 if milliseconds_since_1970 else None


def json_value(data: bytes, field: str) -> Any:
    """Return the value of JSON in bytes; None for empty bytes."""
    if not data:
        return None
    try:
        value = _read_field(data)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError):
        raise ConfigError(f"{field} is not JSON", key=field) from None
    if is_nested_deeper(value, VALUE_DEPTH_MAX):
        raise ConfigError(f"{field} is nested more than {VALUE_DEPTH_MAX} levels deep", key=field)
    return value


def json_mapping(data: bytes, field: str) -> dict[str, Any] | None:
    """Read a field that holds a JSON object."""
    value = json_value(data, field)
    if value is not None and not isinstance(value, dict):
        raise ConfigError(f"{field} is a JSON object, not {type(value).__name__}", key=field)
    return value


# The tables of words: the number of each kernel word in its enum of the contract, and back.


class Words:
    """One enum: `number` (or the table `numbers` itself) on the way out, `word` on the way in."""

    __slots__ = ("_field", "_words", "numbers")

    def __init__(self, enum: Any, prefix: str, field: str) -> None:
        self._field = field
        self._words: dict[int, str] = {
            number: name.removeprefix(prefix).lower() for name, number in enum.items() if number
        }
        self.numbers: dict[str, Any] = {word: number for number, word in self._words.items()}

    def number(self, word: str | None) -> Any:
        """Return the number of a word; 0 for None and for a word that the contract does not have."""
        return self.numbers.get(word, 0) if word is not None else 0

    def word(self, number: int) -> str | None:
        """Return the word of a number; None for 0."""
        if number and number not in self._words:
            raise ConfigError(f"{self._field} has no value {number}", key=self._field)
        return self._words.get(number)

    def require(self, number: int) -> str:
        """Read a field that must be given."""
        word = self.word(number)
        if word is None:
            raise ConfigError(f"{self._field} is required", key=self._field)
        return word

    def words(self) -> frozenset[str]:
        return frozenset(self.numbers)


PROCESS_STATE: Final = Words(pb.ProcessState, "PROCESS_STATE_", "state")
PRIORITY: Final = Words(pb.SchedulingPriority, "SCHEDULING_PRIORITY_", "priority")
TERMINAL_REASON: Final = Words(pb.TerminalReason, "", "terminal_reason")
INTERRUPT_KIND: Final = Words(pb.InterruptKind, "", "kind")
INTERRUPT_STATUS: Final = Words(pb.InterruptStatus, "INTERRUPT_", "status")
EVENT_TYPE: Final = Words(pb.ExecutionEventType, "", "type")
INSTRUCTION_KIND: Final = Words(pb.InstructionKind, "", "kind")
HEALTH: Final = Words(pb.HealthStatus, "HEALTH_", "status")
WORDS: Final = {  # by the name of the enum
    "ProcessState": PROCESS_STATE,
    "SchedulingPriority": PRIORITY,
    "TerminalReason": TERMINAL_REASON,
    "InterruptKind": INTERRUPT_KIND,
    "InterruptStatus": INTERRUPT_STATUS,
    "ExecutionEventType": EVENT_TYPE,
    "InstructionKind": INSTRUCTION_KIND,
    "HealthStatus": HEALTH,
}


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
