"""Registered services, and what they answer."""

from __future__ import annotations

from typing import Any, Final

from lyra.kernel.services.service import ServiceInfo, ServiceResponse
from lyra.server.generated import engine_pb2 as pb
from lyra.server.grpc.messages.enums import HEALTH
from lyra.server.grpc.messages.fields import int32, int64, json_bytes, milliseconds, text, texts

# Fields that a registration may leave out: the kernel has defaults for them.
_OPTIONAL: Final = ("service_type", "version", "max_concurrent")


def service_message(info: ServiceInfo) -> pb.ServiceInfo:
    return pb.ServiceInfo(
        name=text(info.name),
        service_type=text(info.service_type),
        version=text(info.version),
        capabilities=map(text, info.capabilities),
        max_concurrent=int32(info.max_concurrent),
        current_load=int32(info.current_load),
        status=HEALTH.number(info.status),
        last_health_check_ms=milliseconds(info.last_health_check),
        metadata=texts(info.metadata),
    )


def service_fields(message: pb.ServiceInfo) -> dict[str, Any]:
    """A registration; its load and its last check are the kernel's to say."""
    fields: dict[str, Any] = {name: value for name in _OPTIONAL if (value := getattr(message, name))}
    if message.status:
        fields["status"] = HEALTH.word(message.status)
    return {
        "name": message.name,
        "capabilities": list(message.capabilities),
        "metadata": dict(message.metadata),
        **fields,
    }


def response_message(response: ServiceResponse) -> pb.DispatchServiceResponse:
    return pb.DispatchServiceResponse(
        success=response.error is None,
        envelope=json_bytes(response.envelope.to_data() if response.envelope is not None else None),
        metadata=json_bytes(response.metadata),
        error=text(response.error or ""),
        retries=int32(response.retries),
        duration_ms=int64(response.duration_s * 1000),
    )
