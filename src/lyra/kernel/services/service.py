"""A service: its registration, its requests and responses, and its durable state.

Plain values and the fold of their rows; `registry` finds services, takes slots and runs handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from lyra.core.checking.check import FrozenSettings, check_integer, check_keys, one_of, printable, short_text
from lyra.core.envelope import Envelope
from lyra.core.limits import NAME_LENGTH_MAX, SERVICE_CONCURRENT_DEFAULT
from lyra.errors import ConfigError, DeadlineExceeded
from lyra.kernel.base.waiting import in_time

if TYPE_CHECKING:
    from lyra.core.clock import Timer
    from lyra.kernel.services.registry import ServiceRegistry


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
            name=printable(self.name, "a service's name", key="name"),
            service_type=one_of(lower(self.service_type), SERVICE_TYPES, "service_type"),
            version=short_text(self.version, "version", most=NAME_LENGTH_MAX),
            capabilities=[short_text(word, "a capability", most=NAME_LENGTH_MAX) for word in capabilities],
            max_concurrent=check_integer(self.max_concurrent, "max_concurrent", least=1, most=_CONCURRENT_MAX),
            current_load=check_integer(self.current_load, "current_load", most=_CONCURRENT_MAX),
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
        """Return how many requests at once its status lets it take."""
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
        """Return a request, an envelope, a mapping of the fields, or None for an empty one."""
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
        check_keys(value, cls.__struct_fields__, "a service request")
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
    """Return the response for any value that a handler may return."""
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


# Which service takes a request: the least loaded one of those that a word means.

INSTANCE: Final = "/"  # between the name of a service and that of one of its instances


class Balancer:
    """The services by the words that mean them, read anew after each registration."""

    def __init__(self, services: Callable[[], Mapping[str, dict[str, Any]]]) -> None:
        self._services = services
        self._by_word: dict[str, list[str]] | None = None

    def forget_words(self) -> None:
        self._by_word = None

    def list_matching(self, word: str) -> list[str]:
        """Return the names of the services that a word means, in the order of their registration."""
        if self._by_word is None:
            self._by_word = _words(self._services())
        return self._by_word.get(word, [])


def _words(services: Mapping[str, dict[str, Any]]) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    capabilities: dict[str, list[str]] = {}
    types: dict[str, list[str]] = {}
    for name, service in services.items():
        names.setdefault(name, []).append(name)
        base, instance, _ = name.rpartition(INSTANCE)
        if base and instance:
            names.setdefault(base, []).append(name)
        for capability in dict.fromkeys(service["capabilities"]):
            capabilities.setdefault(capability, []).append(name)
        types.setdefault(service["service_type"], []).append(name)
    return {**types, **capabilities, **names}


def least_loaded(candidates: Iterable[tuple[str, Mapping[str, Any], Any]]) -> str:
    """Of (name, service, live part): one with a handler and a free slot before others, a healthy one before a degraded
    one, then the smallest part of its capacity in use, then the one that was given the fewest requests so far."""

    def rank(candidate: tuple[str, Mapping[str, Any], Any]) -> tuple[bool, bool, bool, float, int]:
        _, service, live = candidate
        capacity = STATUSES[service["status"]](service["max_concurrent"])
        in_use = live.load / service["max_concurrent"]
        return live.handler is None, capacity <= live.load, service["status"] != "healthy", in_use, live.dispatched

    return min(candidates, key=rank)[0]


# Health checks of services: repeated on the kernel's clock, never two of one service at a time.


class ServiceCheck:
    """The repeated health check of one service."""

    def __init__(
        self,
        registry: ServiceRegistry,
        name: str,
        check: HealthCheck,
        *,
        interval_s: float,
        degraded_after: int,
        unhealthy_after: int,
    ) -> None:
        self._registry = registry
        self._name = name
        self._check = check
        self._interval_s = interval_s
        self._degraded_after = degraded_after
        self._unhealthy_after = unhealthy_after
        self._failures = 0
        self._timer: Timer | None = None
        self._stopped = False

    def arm(self) -> None:
        clock = self._registry.core.clock
        self._timer = clock.call_at(clock.monotonic() + self._interval_s, self._ring)

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _ring(self) -> None:
        if not self._stopped:
            self._registry.core.tasks.start(self._once(), name=f"lyra-health {self._name}")

    async def _once(self) -> None:
        core = self._registry.core
        try:
            late = DeadlineExceeded(f"the health check of {self._name} took too long")
            status = self._status(await in_time(core.clock, answer_of(self._check), self._interval_s, late))
        except Exception:  # noqa: BLE001 - whatever it raised, the service did not answer well
            status = self._status(False)
        if self._stopped or core.stopping or core.failure is not None:
            return
        if status is not None:
            self._registry.update_health(self._name, status)
        self.arm()

    def _status(self, answer: Any) -> str | None:
        """Return the status that an answer represents; None leaves the status unchanged."""
        if answer is not False:
            self._failures = 0
            return "healthy" if answer is None or answer is True else one_of(lower(answer), STATUSES, "a health check")
        self._failures += 1
        if self._failures >= self._unhealthy_after:
            return "unhealthy"
        return "degraded" if self._failures >= self._degraded_after else None


async def answer_of(function: Callable[..., Any], *args: Any) -> Any:
    """Call a plain or async function of a service."""
    answer = function(*args)
    return await answer if hasattr(type(answer), "__await__") else answer


# Inference requests: which services have a model, the texts of an input, and the error for a used-up time quota.


def has_model(service: Mapping[str, Any], model: str) -> bool:
    metadata = service["metadata"]
    models = metadata.get("models")
    return (
        model == service["name"]
        or model in service["capabilities"]
        or metadata.get("model") == model
        or (isinstance(models, list) and model in models)
    )


def texts_of(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        check_keys(value, ("text", "texts"), "an inference input")
        text, texts = value.get("text"), value.get("texts", ())
        if not isinstance(texts, (list, tuple)):
            raise ConfigError(f"texts is a list of texts, not {type(texts).__name__}", key="texts")
        all_texts = [*([] if text is None else [text]), *texts]
    else:
        all_texts = [value] if isinstance(value, str) else list(value) if isinstance(value, (list, tuple)) else [value]
    for item in all_texts:
        if not isinstance(item, str):
            raise ConfigError(f"an inference input is text or a list of texts, not {type(item).__name__}", key="input")
    return all_texts


def out_of_time(pid: str) -> DeadlineExceeded:
    return DeadlineExceeded(
        f"process {pid} is over its quota: timeout_exceeded",
        hint="adjust_quota raises it",
        pid=pid,
        reason="timeout_exceeded",
    )
