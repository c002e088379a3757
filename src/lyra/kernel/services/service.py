"""A service: its registration, its requests and responses, and its durable state.

Plain values and the fold of their rows; `registry` finds services, takes slots and runs handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, ClassVar, Final

import msgspec

from lyra.core.checking.check import FrozenSettings, known_keys, one_of, short_text, whole
from lyra.core.envelope import Envelope
from lyra.core.limits import NAME_LENGTH_MAX, SERVICE_CONCURRENT_DEFAULT
from lyra.errors import ConfigError

SERVICE_TYPES: Final[dict[str, str]] = {
    "flow": "runs a whole pipeline",
    "worker": "does one kind of work",
    "vertical": "knows one field",
    "inference": "answers as a model",
}


class ServiceStatus(StrEnum):
    HEALTHY = "healthy"
    DEGRADED = "degraded"
    UNHEALTHY = "unhealthy"
    UNKNOWN = "unknown"


# How many of `max_concurrent` requests a service of each status accepts.
STATUSES: Final[dict[str, Callable[[int], int]]] = {
    ServiceStatus.HEALTHY.value: lambda most: most,
    ServiceStatus.DEGRADED.value: lambda most: max(1, most // 2),
    ServiceStatus.UNHEALTHY.value: lambda _most: 0,
    ServiceStatus.UNKNOWN.value: lambda _most: 0,
}

_CONCURRENT_MAX: Final = 1_000_000

ServiceHandler = Callable[["ServiceRequest"], Any]
HealthCheck = Callable[[], Any]
EnvelopeOf = Callable[[Any], Envelope]  # a mapping, or text, as a new envelope


class ServiceInfo(FrozenSettings, frozen=True):
    """A service as it is registered, and as the registry shows it (which sets its load and its last health check)."""

    WORD: ClassVar[str] = "service"

    name: str = ""
    service_type: str = "worker"
    version: str = "1.0.0"
    capabilities: list[str] = msgspec.field(default_factory=list)
    max_concurrent: int = SERVICE_CONCURRENT_DEFAULT
    current_load: int = 0
    status: str = "healthy"
    last_health_check: float | None = None
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        capabilities: object = self.capabilities
        metadata: object = self.metadata
        if not isinstance(capabilities, (list, tuple, set, frozenset)):
            raise ConfigError(f"capabilities is a list of words, not {capabilities!r}", key="capabilities")
        if not isinstance(metadata, Mapping):
            raise ConfigError(f"metadata is a mapping, not {metadata!r}", key="metadata")
        self._put(
            name=_name(self.name),
            service_type=one_of(lower(self.service_type), SERVICE_TYPES, "service_type"),
            version=short_text(self.version, "version", most=NAME_LENGTH_MAX),
            capabilities=[short_text(word, "a capability", most=NAME_LENGTH_MAX) for word in capabilities],
            max_concurrent=whole(self.max_concurrent, "max_concurrent", least=1, most=_CONCURRENT_MAX),
            current_load=whole(self.current_load, "current_load", most=_CONCURRENT_MAX),
            status=one_of(lower(self.status), STATUSES, "status"),
            metadata=dict(metadata),
        )

    @classmethod
    def of(cls, value: Any) -> ServiceInfo:
        if isinstance(value, ServiceInfo):
            return value
        if isinstance(value, Mapping) and "name" not in value:
            raise ConfigError("a service needs a name", key="name")
        return cls.from_data(value)

    @property
    def capacity(self) -> int:
        """How many requests at once its status lets it take."""
        return STATUSES[self.status](self.max_concurrent)

    @property
    def is_healthy(self) -> bool:
        return self.capacity > 0


class ServiceRequest(msgspec.Struct, kw_only=True):
    """The argument of a handler: the process, the work itself, and any other data. `user_id` is the user who asks,
    where the envelope does not say."""

    pid: str = ""
    envelope: Envelope | None = None
    metadata: dict[str, Any] = {}
    user_id: str = ""

    @classmethod
    def of(cls, value: Any, envelope_of: EnvelopeOf) -> ServiceRequest:
        """A request, an envelope, a mapping of the fields, or None for an empty one."""
        if isinstance(value, ServiceRequest):
            given: Any = value.envelope
            if given is not None and not isinstance(given, Envelope):
                return msgspec.structs.replace(value, envelope=envelope_of(given))
            return value
        if value is None:
            return cls()
        if isinstance(value, Envelope):
            return cls(envelope=value)
        if not isinstance(value, Mapping):
            raise ConfigError(f"a service request is a ServiceRequest or a mapping, not {type(value).__name__}")
        known_keys(value, cls.__struct_fields__, "a service request")
        return cls(**{**value, "envelope": _envelope(value.get("envelope"), envelope_of)})


class ServiceResponse(msgspec.Struct, kw_only=True):
    """The result of a request. A handler sets `error` to report a failure; exceptions are raised to the caller."""

    envelope: Envelope | None = None
    metadata: dict[str, Any] = {}
    error: str | None = None
    retries: int = 0
    duration_s: float = 0.0

    @property
    def success(self) -> bool:
        return self.error is None


class InferenceResponse(ServiceResponse, kw_only=True):
    """A response of a model, with the service that gave it."""

    model: str = ""
    service: str = ""
    input_chars: int = 0


class ServiceState:
    """The durable state: registered services and their health."""

    NAME: ClassVar[str] = "services"
    KINDS: ClassVar[frozenset[str]] = frozenset(
        {"service.registered", "service.unregistered", "service.health_changed"}
    )

    __slots__ = ("services", "untrusted")

    def __init__(self) -> None:
        self.services: dict[str, dict[str, Any]] = {}
        self.untrusted: set[str] = set()  # services that a process registered which had read text from outside

    def apply(self, kind: str, pid: str, time: float, data: dict[str, Any]) -> None:  # noqa: ARG002 (one signature)
        name = data["service_name"]
        changed_at = data.get("at", time)
        if kind == "service.registered":
            kept = {key: value for key, value in data.items() if key not in ("service_name", "at", "tainted")}
            self.untrusted.discard(name)
            if data.get("tainted"):
                self.untrusted.add(name)
            self.services[name] = {**kept, "name": name, "last_health_check": changed_at}
        elif kind == "service.unregistered":
            del self.services[name]
            self.untrusted.discard(name)
        else:
            self.services[name].update(status=data["status"], last_health_check=changed_at)

    def dump(self) -> Any:
        marked = {name: {**self.services[name], "tainted": True} for name in self.untrusted}
        return {**self.services, **marked}

    def load(self, data: Any) -> None:
        self.untrusted = {name for name, service in data.items() if service.pop("tainted", False)}
        self.services = {name: ServiceInfo.from_data(service).to_data() for name, service in data.items()}


def response_of(name: str, request: ServiceRequest, result: Any, envelope_of: EnvelopeOf) -> ServiceResponse:
    """The response for any value that a handler may return."""
    if isinstance(result, ServiceResponse):
        given: Any = result.envelope
        if given is not None and not isinstance(given, Envelope):
            return ServiceResponse(envelope=envelope_of(given), metadata=result.metadata, error=result.error)
        return result
    if result is None:
        return ServiceResponse(envelope=request.envelope)
    if isinstance(result, Envelope):
        return ServiceResponse(envelope=result)
    if not isinstance(result, Mapping):
        raise ConfigError(
            f"service {name!r} gave {type(result).__name__}",
            hint="give a ServiceResponse, an Envelope, a mapping or None",
            name=name,
        )
    if result and set(result) <= {"envelope", "metadata", "error"}:
        envelope = _envelope(result.get("envelope", request.envelope), envelope_of)
        return ServiceResponse(**{**result, "envelope": envelope})
    return ServiceResponse(envelope=request.envelope, metadata=dict(result))


def _envelope(value: Any, envelope_of: EnvelopeOf) -> Envelope | None:
    return value if value is None or isinstance(value, Envelope) else envelope_of(value)


def lower(word: Any) -> Any:
    return word.lower() if isinstance(word, str) else word


def _name(word: Any) -> str:
    if not isinstance(word, str) or not 0 < len(word) <= NAME_LENGTH_MAX or not word.isprintable():
        raise ConfigError(f"a service's name is 1 to {NAME_LENGTH_MAX} printable characters, not {word!r}", key="name")
    return word
