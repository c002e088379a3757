"""Python values as messages of the contract and back, by their descriptors: no message has code of its own.

Out: words become enum values, mappings and objects become messages, values in fields of bytes become JSON. In: enum
values become words, times in milliseconds become seconds, JSON in bytes becomes values, and messages become the
kernel's own types where it has one (`VALUES`), else a `RemoteRecord`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

import msgspec
from google.protobuf.message_factory import GetMessageClass

from lyra.core.codec import to_plain
from lyra.core.envelope import BoundsResult, Envelope
from lyra.errors import ConfigError
from lyra.kernel.interrupts.interrupt import Answer, Interrupt
from lyra.kernel.services.service import ServiceInfo, ServiceResponse
from lyra.kernel.workers.entry import ProcessControlBlock, ProcessCounts
from lyra.kernel.workers.quota import QuotaResult, ResourceQuota, ResourceUsage
from lyra.kernel.workers.rate_limits import RateLimitResult, RateLimitUsage
from lyra.server.generated import engine_pb2 as pb

_write: Final = msgspec.json.Encoder(enc_hook=to_plain).encode
_TIMES: Final = ("_at_ms", "timestamp_ms", "last_health_check_ms")


class RemoteRecord(dict[str, Any]):
    """A value without its own type: its fields are attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


# ------------------------------------------------------------------ out
def request_class(rpc: str) -> Any:
    return GetMessageClass(_method(rpc).input_type)


def answer_class(rpc: str) -> Any:
    return GetMessageClass(_method(rpc).output_type)


def _method(rpc: str) -> Any:
    service, _, name = rpc.partition("/")
    return pb.DESCRIPTOR.services_by_name[service].methods_by_name[name]


def message_of(descriptor: Any, value: Any) -> Any:
    """Return a mapping, or an object with `to_data`, as a message; an envelope may also be its text."""
    message = GetMessageClass(descriptor)()
    for name, part in _fields_of(descriptor, value).items():
        field = descriptor.fields_by_name.get(name)
        if field is None:
            raise ConfigError(f"{descriptor.name} has no field {name!r}", key=name)
        if part is not None:
            _put(message, field, part)
    return message


def _fields_of(descriptor: Any, value: Any) -> dict[str, Any]:
    if descriptor.name == "Envelope":
        return _envelope_fields(value)
    if isinstance(value, Mapping):
        return dict(value)
    known = [field.name for field in descriptor.fields]
    return {name: getattr(value, name) for name in known if hasattr(value, name)}


def _envelope_fields(value: Any) -> dict[str, Any]:
    data: Any = value.to_data() if isinstance(value, Envelope) else value
    if isinstance(value, str):
        data = {"raw_input": value}
    if not isinstance(data, Mapping):
        raise ConfigError(f"an envelope is an Envelope, a mapping or text, not {type(value).__name__}", key="envelope")
    known = pb.Envelope.DESCRIPTOR.fields_by_name
    fields = {name: part for name, part in data.items() if name in known}
    for name in ("received_at", "completed_at", "created_at"):
        if data.get(name):
            fields[f"{name}_ms"] = data[name] * 1000
    fields["metadata_str"] = {
        name: part if isinstance(part, str) else _write(part).decode()
        for name, part in data.get("metadata", {}).items()
    }
    if isinstance(fields.get("interrupt"), Mapping):
        question = pb.FlowInterrupt.DESCRIPTOR.fields_by_name
        fields["interrupt"] = {name: part for name, part in fields["interrupt"].items() if name in question}
    return fields


def _put(message: Any, field: Any, value: Any) -> None:
    if field.is_repeated and field.message_type is not None and field.message_type.GetOptions().map_entry:
        entry = field.message_type.fields_by_name["value"]
        shown = getattr(message, field.name)
        for key, part in value.items():
            shown[str(key)] = _scalar(entry, part)
    elif field.is_repeated:
        parts = [value] if isinstance(value, str) else value
        if field.message_type is not None:
            getattr(message, field.name).extend(message_of(field.message_type, part) for part in parts)
        else:
            getattr(message, field.name).extend(_scalar(field, part) for part in parts)
    elif field.message_type is not None:
        getattr(message, field.name).CopyFrom(message_of(field.message_type, value))
    else:
        setattr(message, field.name, _scalar(field, value))


def _scalar(field: Any, value: Any) -> Any:
    try:
        if field.enum_type is not None:
            return _enum_numbers(field.enum_type)[str(value).lower()]
        if field.type == field.TYPE_BYTES:
            return _write(value.to_data() if hasattr(value, "to_data") else value)
        if field.type in (field.TYPE_DOUBLE, field.TYPE_FLOAT):
            return float(value)
        if field.type == field.TYPE_STRING:
            return str(value)
        return bool(value) if field.type == field.TYPE_BOOL else int(value)
    except KeyError:
        words = ", ".join(_enum_numbers(field.enum_type))
        raise ConfigError(f"{field.name} has no value {value!r}", hint=f"one of {words}", key=field.name) from None
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"{field.name} cannot be {value!r}: {error}", key=field.name) from None


@cache
def _enum_words(enum: Any) -> dict[int, str]:
    """Return the words of an enum: its names in lower case, without the prefix that they share."""
    names = {value.number: value.name for value in enum.values if value.number}
    unset = next(value.name for value in enum.values if not value.number)
    prefix = unset.removesuffix("UNSPECIFIED")
    if not all(name.startswith(prefix) for name in names.values()):
        prefix = next((p for p in _PREFIXES if all(name.startswith(p) for name in names.values())), "")
    return {number: name.removeprefix(prefix).lower() for number, name in names.items()}


_PREFIXES: Final = ("INTERRUPT_", "HEALTH_", "JOIN_", "TOOL_", "RISK_", "LOOP_", "OPERATION_", "AGENT_OUTPUT_")


@cache
def _enum_numbers(enum: Any) -> dict[str, int]:
    return {word: number for number, word in _enum_words(enum).items()}


# ------------------------------------------------------------------ in
def value_of(message: Any) -> Any:
    """Return a message as the kernel's own value where there is one, else as a RemoteRecord."""
    data = RemoteRecord()
    for field in message.DESCRIPTOR.fields:
        name, value = _read(message, field)
        data[name] = value
    build = VALUES.get(message.DESCRIPTOR.name)
    return data if build is None else build(data)


def _read(message: Any, field: Any) -> tuple[str, Any]:
    value = getattr(message, field.name)
    if field.is_repeated:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            entry = field.message_type.fields_by_name["value"]
            return field.name, {key: _read_one(entry, part) for key, part in value.items()}
        return field.name, [_read_one(field, part) for part in value]
    if field.message_type is not None:
        return field.name, value_of(value) if message.HasField(field.name) else None
    if field.name.endswith(_TIMES):
        return field.name.removesuffix("_ms"), value / 1000 if value else None
    if field.has_presence and not message.HasField(field.name):
        return field.name, None
    return field.name, _read_one(field, value)


def _read_one(field: Any, value: Any) -> Any:
    if field.enum_type is not None:
        return _enum_words(field.enum_type).get(value)
    if field.type == field.TYPE_BYTES:
        return msgspec.json.decode(value) if value else None
    return value_of(value) if field.message_type is not None else value


def _make_builder(cls: Any) -> Callable[[RemoteRecord], Any]:
    """Make a value of the fields that its class knows; what is not set takes the default."""
    known = frozenset(getattr(cls, "__struct_fields__", None) or cls._fields)

    def build(data: RemoteRecord) -> Any:
        return cls(**{name: value for name, value in data.items() if name in known and value is not None})

    return build


def _envelope(data: RemoteRecord) -> Envelope:
    metadata = data.pop("metadata_str")
    question = data.get("interrupt")
    fields = {name: value for name, value in data.items() if value is not None and name in Envelope.__struct_fields__}
    for bound in ("max_input_tokens", "max_output_tokens"):
        if not fields.get(bound):
            fields.pop(bound, None)
    if isinstance(question, Interrupt):
        fields["interrupt"] = {
            name: value for name, value in msgspec.to_builtins(question).items() if value not in (None, "", 0, 0.0)
        }
    return msgspec.convert({**fields, "metadata": metadata}, Envelope)


def _with_envelope(data: RemoteRecord) -> RemoteRecord:
    """Return an envelope that came as JSON."""
    if isinstance(data.get("envelope"), dict):
        data["envelope"] = msgspec.convert(data["envelope"], Envelope)
    return data


def _interrupt(data: RemoteRecord) -> Interrupt:
    interrupt: Interrupt = _build_interrupt(
        RemoteRecord(data, status=data["status"] or "pending", kind=data["kind"] or "")
    )
    return interrupt


def _process(data: RemoteRecord) -> ProcessControlBlock:
    block: ProcessControlBlock = _build_process(
        RemoteRecord(data, pending_interrupt=data["pending_interrupt"] or None, child_pids=tuple(data["child_pids"]))
    )
    return block


def _answer(data: RemoteRecord) -> Answer:
    return Answer(data["text"], data["approved"], data["decision"], data["data"], data["resolved_at"])


def _response(data: RemoteRecord) -> ServiceResponse:
    envelope = _with_envelope(data)["envelope"]
    return ServiceResponse(
        envelope=envelope,
        metadata=data["metadata"] or {},
        error=None if data["success"] else data["error"],
        retries=data["retries"],
        duration_s=data["duration_ms"] / 1000,
    )


def _counts(data: RemoteRecord) -> ProcessCounts:
    return ProcessCounts(data["counts_by_state"], data["queue_depth"])


def _system_status(data: RemoteRecord) -> RemoteRecord:
    return RemoteRecord(data, resources=data["usage"], interrupts={"pending": data["pending_interrupts"]})


_build_process: Final = _make_builder(ProcessControlBlock)
_build_interrupt: Final = _make_builder(Interrupt)
VALUES: Final[dict[str, Callable[[RemoteRecord], Any]]] = {
    "ProcessControlBlock": _process,
    "ResourceQuota": _make_builder(ResourceQuota),
    "ResourceUsage": _make_builder(ResourceUsage),
    "QuotaResult": _make_builder(QuotaResult),
    "RateLimitResult": _make_builder(RateLimitResult),
    "RateLimitUsage": _make_builder(RateLimitUsage),
    "ServiceInfo": _make_builder(ServiceInfo),
    "BoundsResult": lambda data: BoundsResult(
        *(data[name] for name in BoundsResult._fields if name in data),
    ),
    "FlowInterrupt": _interrupt,
    "InterruptResponse": _answer,
    "Envelope": _envelope,
    "Instruction": _with_envelope,
    "SessionState": _with_envelope,
    "DispatchServiceResponse": _response,
    "ProcessCountsResponse": _counts,
    "SystemStatus": _system_status,
    "RequestStatus": lambda data: RemoteRecord(data, pcb=data["process"]),
}
