"""The service registry: named handlers, each with a health and a capacity.

A service is registered (`ServiceInfo`), given a handler, and dispatched to. `dispatch` asks in this order: is there
such a service, does its health let it accept, is a slot free, is there a handler. Then it runs the handler in one slot,
within a time-out, again by error class while retries are left; the slot is free again however that ends. Nobody
queues: a full service is `Overloaded`, and the caller decides.

    status      accepts
    healthy     up to max_concurrent
    degraded    half of it, at least one
    unhealthy   nothing
    unknown     nothing until somebody reports its health

Registrations and health are durable (`ServiceState`). Handlers, health checks and load are not: after a restart a
program registers its handlers again, and the first registration under a restored name takes it over instead of being
a duplicate. A program reaches a service inside an effect, so what comes back is journaled there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from lyra.core import codec
from lyra.core.check import Declaration, known_keys, one_of, real, short_text, whole
from lyra.core.envelope import Envelope
from lyra.core.limits import (
    NAME_LENGTH_MAX,
    RETRY_ATTEMPTS_MAX,
    SERVICE_CONCURRENT_DEFAULT,
    SERVICE_HEALTH_CHECK_S,
    SERVICES_MAX,
)
from lyra.core.retry import Backoff, Retry
from lyra.errors import (
    ConfigError,
    DeadlineExceeded,
    EffectFailed,
    InvalidTransition,
    LimitExceeded,
    LyraError,
    NameTaken,
    NoSuchService,
    Overloaded,
)
from lyra.kernel.bus import within
from lyra.kernel.faults import text_of
from lyra.kernel.handle import Ack
from lyra.kernel.process import resume

if TYPE_CHECKING:
    from lyra.core.clock import Timer
    from lyra.kernel.kernel import Kernel

__all__ = [
    "SERVICE_TYPES",
    "STATUSES",
    "InferenceResponse",
    "ServiceHandler",
    "ServiceInfo",
    "ServiceRegistry",
    "ServiceRequest",
    "ServiceResponse",
    "ServiceState",
    "ServiceStatus",
]

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


# What a status accepts, of `max_concurrent`.
STATUSES: Final[dict[str, Callable[[int], int]]] = {
    ServiceStatus.HEALTHY.value: lambda most: most,
    ServiceStatus.DEGRADED.value: lambda most: max(1, most // 2),
    ServiceStatus.UNHEALTHY.value: lambda _most: 0,
    ServiceStatus.UNKNOWN.value: lambda _most: 0,
}

_BACKOFF: Final = Backoff(initial_s=0.05, max_s=5.0)
_CONCURRENT_MAX: Final = 1_000_000

ServiceHandler = Callable[["ServiceRequest"], Any]
HealthCheck = Callable[[], Any]


class ServiceInfo(Declaration, frozen=True):
    """A service as it is registered, and as the registry shows it (which sets its load and its last health check)."""

    WORD: ClassVar[str] = "service"

    name: str
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
            service_type=one_of(_lower(self.service_type), SERVICE_TYPES, "service_type"),
            version=short_text(self.version, "version", most=NAME_LENGTH_MAX),
            capabilities=[short_text(word, "a capability", most=NAME_LENGTH_MAX) for word in capabilities],
            max_concurrent=whole(self.max_concurrent, "max_concurrent", least=1, most=_CONCURRENT_MAX),
            current_load=whole(self.current_load, "current_load", most=_CONCURRENT_MAX),
            status=one_of(_lower(self.status), STATUSES, "status"),
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
    """What a handler gets: for which process, the work itself, and anything else."""

    pid: str = ""
    envelope: Envelope | None = None
    metadata: dict[str, Any] = {}

    @classmethod
    def of(cls, value: Any) -> ServiceRequest:
        """A request, an envelope, a mapping of the fields, or None for an empty one."""
        if isinstance(value, ServiceRequest):
            return value
        if value is None:
            return cls()
        if isinstance(value, Envelope):
            return cls(envelope=value)
        if not isinstance(value, Mapping):
            raise ConfigError(f"a service request is a ServiceRequest or a mapping, not {type(value).__name__}")
        known_keys(value, cls.__struct_fields__, "a service request")
        return cls(**{**value, "envelope": _envelope(value.get("envelope"))})


class ServiceResponse(msgspec.Struct, kw_only=True):
    """What comes back. `error` is the handler's own word for "it did not work"; what it raises is raised."""

    envelope: Envelope | None = None
    metadata: dict[str, Any] = {}
    error: str | None = None
    retries: int = 0
    duration_s: float = 0.0

    @property
    def success(self) -> bool:
        return self.error is None


class InferenceResponse(ServiceResponse, kw_only=True):
    """A response of a model, and who gave it."""

    model: str = ""
    service: str = ""
    input_chars: int = 0


class ServiceState:
    """What survives: who is registered, with which health."""

    NAME: ClassVar[str] = "services"
    KINDS: ClassVar[frozenset[str]] = frozenset(
        {"service.registered", "service.unregistered", "service.health_changed"}
    )

    __slots__ = ("services",)

    def __init__(self) -> None:
        self.services: dict[str, dict[str, Any]] = {}

    def apply(self, kind: str, pid: str, time: float, data: dict[str, Any]) -> None:  # noqa: ARG002 (one signature)
        name = data["service_name"]
        if kind == "service.registered":
            kept = {key: value for key, value in data.items() if key != "service_name"}
            self.services[name] = {**kept, "name": name, "last_health_check": time}
        elif kind == "service.unregistered":
            del self.services[name]
        else:
            self.services[name].update(status=data["status"], last_health_check=time)

    def dump(self) -> Any:
        return self.services

    def load(self, data: Any) -> None:
        self.services = {name: ServiceInfo.from_data(found).to_data() for name, found in data.items()}


class _Live:
    """What a registration has in this life of the kernel; requests in flight hold on to theirs."""

    __slots__ = ("check", "checked_at", "claimed", "dispatched", "failed", "handler", "load")

    def __init__(self, *, claimed: bool) -> None:
        self.claimed = claimed  # registered in this life, not only remembered from an earlier one
        self.handler: ServiceHandler | None = None
        self.check: _Check | None = None
        self.checked_at: float | None = None
        self.load = 0
        self.dispatched = 0
        self.failed = 0


class ServiceRegistry:
    __slots__ = ("_kernel", "_live", "state")

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.state = ServiceState()
        self._live: dict[str, _Live] = {}

    # ------------------------------------------------------------------ who there is

    def register_service(self, info: ServiceInfo | Mapping[str, Any]) -> Ack:
        """Make a service known; a second of the same name is NameTaken."""
        self._kernel._raise_if_closed()
        wanted = ServiceInfo.of(info)
        live = self._live.get(wanted.name)
        if live is not None and live.claimed:
            raise NameTaken(f"there is a service {wanted.name!r} already", name=wanted.name)
        if live is None and len(self.state.services) >= SERVICES_MAX:
            raise Overloaded(f"{SERVICES_MAX} services are registered, the most there may be", limit=SERVICES_MAX)
        data = wanted.to_data()
        for own in ("name", "current_load", "last_health_check"):
            data.pop(own, None)
        data["metadata"] = codec.decode(codec.encode(wanted.metadata))  # what cannot be kept fails here, unchanged
        seq = self._kernel.fact(self.state, "", "service.registered", {"service_name": wanted.name, **data})
        if live is None:
            self._live[wanted.name] = _Live(claimed=True)
        else:
            live.claimed = True
        return Ack(self._kernel, seq)

    def unregister_service(self, name: str) -> Ack:
        """Forget a service and its handler; requests in flight come to their end."""
        self._kernel._raise_if_closed()
        found = self._find(name)
        live = self._live.pop(name)
        if live.check is not None:
            live.check.stop()
        seq = self._kernel.fact(
            self.state, "", "service.unregistered", {"service_name": name, "service_type": found["service_type"]}
        )
        return Ack(self._kernel, seq)

    def register_handler(self, name: str, handler: ServiceHandler) -> None:
        """Say what runs a service's requests: a plain or async function of a ServiceRequest.

        It gives a ServiceResponse, an Envelope, a mapping (of a response's fields, or anything: then it is the
        response's metadata) or None. A plain function runs on the loop and must be quick. A new handler takes the
        place of the old one.
        """
        self._find(name)
        if not callable(handler):
            raise ConfigError(f"a handler is a function of one request, not {handler!r}", name=name)
        self._live[name].handler = handler

    def get_service(self, name: str) -> ServiceInfo:
        found = self._find(name)
        live = self._live[name]
        checked_at = live.checked_at if live.checked_at is not None else found["last_health_check"]
        return ServiceInfo(**{**found, "current_load": live.load, "last_health_check": checked_at})

    def list_services(self) -> list[ServiceInfo]:
        """All, in the order of registration."""
        return [self.get_service(name) for name in self.state.services]

    def list_services_by_type(self, service_type: str) -> list[ServiceInfo]:
        wanted = one_of(_lower(service_type), SERVICE_TYPES, "service_type")
        return [
            self.get_service(name) for name, found in self.state.services.items() if found["service_type"] == wanted
        ]

    def get_stats(self) -> dict[str, Any]:
        """Figures of the whole registry."""
        services = self.list_services()
        live = self._live.values()
        return {
            "total_services": len(services),
            **{f"{word}_services": sum(info.status == word for info in services) for word in STATUSES},
            "services_by_type": {
                word: count for word in SERVICE_TYPES if (count := sum(info.service_type == word for info in services))
            },
            "total_handlers": sum(one.handler is not None for one in live),
            "total_load": sum(info.current_load for info in services),
            "total_capacity": sum(info.max_concurrent for info in services),
            "dispatched": sum(one.dispatched for one in live),
            "failed": sum(one.failed for one in live),
        }

    # ------------------------------------------------------------------ health

    def update_health(self, name: str, status: str) -> Ack:
        """Report a service's health; only a change is a row and an Event."""
        self._kernel._raise_if_closed()
        found = self._find(name)
        word = one_of(_lower(status), STATUSES, "status")
        self._live[name].checked_at = self._kernel.clock.now()
        if found["status"] == word:
            return self._kernel._acknowledge()
        data = {"service_name": name, "status": word, "old_status": found["status"]}
        return Ack(self._kernel, self._kernel.fact(self.state, "", "service.health_changed", data))

    def check_health(
        self,
        name: str,
        check: HealthCheck,
        *,
        interval_s: float = SERVICE_HEALTH_CHECK_S,
        degraded_after: int = 1,
        unhealthy_after: int = 3,
    ) -> Callable[[], None]:
        """Ask `check()` every `interval_s` seconds and report what it says; gives a callable that ends it.

        True or None is healthy, a status word is that status, False or an error is a failure; so many failures in a
        row make it degraded and unhealthy. A check that takes longer than the interval is a failure. A new check
        takes the place of the old one.
        """
        self._kernel._raise_if_closed()
        self._find(name)
        if not callable(check):
            raise ConfigError(f"a health check is a function without arguments, not {check!r}", name=name)
        watch = _Check(
            self,
            name,
            check,
            interval_s=real(interval_s, "interval_s", above=0.0),
            degraded_after=whole(degraded_after, "degraded_after", least=1),
            unhealthy_after=whole(unhealthy_after, "unhealthy_after", least=1),
        )
        live = self._live[name]
        if live.check is not None:
            live.check.stop()
        live.check = watch
        watch.arm()
        return watch.stop

    # ------------------------------------------------------------------ slots

    def can_accept(self, name: str) -> bool:
        """Whether its health and its load leave room for one more request."""
        return self._room(self._find(name), self._live[name]) > 0

    def acquire_slot(self, name: str) -> bool:
        """Take a slot for work outside `dispatch`; Overloaded when there is none."""
        self._acquire(name)
        return True

    def release_slot(self, name: str) -> bool:
        """Give a slot back."""
        self._find(name)
        live = self._live[name]
        if live.load == 0:
            raise InvalidTransition(f"no slot of service {name!r} is taken", name=name)
        live.load -= 1
        return True

    def _acquire(self, name: str) -> _Live:
        found = self._find(name)
        live = self._live[name]
        if self._room(found, live) <= 0:
            raise _refusal(found, live)
        live.load += 1
        return live

    @staticmethod
    def _room(found: Mapping[str, Any], live: _Live) -> int:
        return STATUSES[found["status"]](found["max_concurrent"]) - live.load

    # ------------------------------------------------------------------ dispatch

    async def dispatch(
        self,
        name: str,
        request: ServiceRequest | Mapping[str, Any] | Envelope | None = None,
        timeout_s: float | None = None,
        max_retries: int = 0,
        *,
        backoff: Backoff | Mapping[str, Any] | str | None = None,
    ) -> ServiceResponse:
        """Have a service do a piece of work, in one of its slots.

        `timeout_s` bounds the whole, pauses between tries included. Errors that a later try may not meet are tried
        again `max_retries` times, also a response with an `error`. What the handler raised in the end is raised:
        Lyra's own errors as they are, others as EffectFailed.
        """
        self._kernel._raise_if_closed()
        limit_s = None if timeout_s is None else real(timeout_s, "timeout_s", above=0.0)
        retry = Retry(
            max_attempts=1 + whole(max_retries, "max_retries", most=RETRY_ATTEMPTS_MAX - 1),
            backoff=_BACKOFF if backoff is None else Backoff.of(backoff),
        )
        wanted = ServiceRequest.of(request)
        found = self._find(name)
        live = self._live[name]
        if self._room(found, live) <= 0:
            raise _refusal(found, live)
        if live.handler is None:
            raise ConfigError(
                f"service {name!r} has no handler", hint="kernel.register_handler(name, fn), also after a restart"
            )
        live.load += 1
        live.dispatched += 1
        try:
            work = self._tries(name, live.handler, wanted, retry)
            if limit_s is None:
                return await work
            late = DeadlineExceeded(
                f"dispatch timeout: service {name} gave no answer within {limit_s:g} s", name=name, timeout_s=limit_s
            )
            return await within(self._kernel.clock, work, limit_s, late)
        except BaseException:
            live.failed += 1
            raise
        finally:
            live.load = max(live.load - 1, 0)  # somebody may have given back a slot that was not theirs

    async def _tries(
        self, name: str, handler: ServiceHandler, request: ServiceRequest, retry: Retry
    ) -> ServiceResponse:
        kernel = self._kernel
        began = kernel.clock.monotonic()
        attempt = 1
        while True:
            failure: Exception
            response: ServiceResponse | None = None
            try:
                response = _response(name, request, await _result(handler, request))
            except Exception as error:  # noqa: BLE001 - a handler may raise anything; it is sorted below
                failure = error
            else:
                failure = EffectFailed(response.error or "")
            if (response is not None and response.error is None) or not retry.should_retry(failure, attempt):
                break
            await self._pause(retry.delay(attempt, kernel.rng, failure))
            attempt += 1
        if response is None:
            raise failure if isinstance(failure, LyraError) else _wrapped(name, failure) from failure
        took_s = kernel.clock.monotonic() - began
        answer: ServiceResponse = msgspec.structs.replace(response, retries=attempt - 1, duration_s=took_s)
        return answer

    async def _pause(self, seconds: float) -> None:
        clock = self._kernel.clock
        over: asyncio.Future[None] = self._kernel.loop.create_future()
        timer = clock.call_at(clock.monotonic() + seconds, lambda: resume(over))
        try:
            await over
        finally:
            timer.cancel()

    async def dispatch_inference(
        self,
        model: str,
        input: Any,  # noqa: A002 (a settled name)
        *,
        pid: str = "",
        timeout_s: float | None = None,
        max_retries: int = 0,
    ) -> InferenceResponse:
        """Ask the least busy inference service that has this model.

        `input` is text, a list of texts, or a mapping with `text` and `texts`. With a `pid`, its quota is checked
        first, and the request and its characters are counted after, also when it failed. The handler finds the text
        in the envelope's `raw_input`, and `model` and `input` in the request's metadata.
        """
        self._kernel._raise_if_closed()
        name = self._service_for(model)
        texts = _texts(input)
        if pid:
            self._check_quota(pid)
        kernel = self._kernel
        envelope = Envelope.create(kernel.entropy, now=kernel.clock.now(), raw_input="\n".join(texts))
        request = ServiceRequest(pid=pid, envelope=envelope, metadata={"model": model, "input": input})
        chars = sum(map(len, texts))
        try:
            found = await self.dispatch(name, request, timeout_s, max_retries)
        finally:
            if pid:
                self._record(pid, chars)
        return InferenceResponse(**msgspec.structs.asdict(found), model=model, service=name, input_chars=chars)

    def _service_for(self, model: str) -> str:
        best: tuple[bool, float, str] | None = None
        for name, found in self.state.services.items():
            if found["service_type"] == "inference" and _has_model(found, model):
                live = self._live[name]
                rank = (self._room(found, live) <= 0, live.load / found["max_concurrent"], name)
                best = rank if best is None or rank[:2] < best[:2] else best
        if best is None:
            raise NoSuchService(
                f"no inference service has the model {model!r}",
                hint="register one with the model among its capabilities",
                model=model,
            )
        return best[2]

    def _check_quota(self, pid: str) -> None:
        result = self._kernel.check_quota(pid)
        if not result.within_bounds:
            reason = result.exceeded_reason
            raise LimitExceeded(f"process {pid} is over its quota: {reason}", pid=pid, reason=reason)

    def _record(self, pid: str, chars: int) -> None:
        if not self._kernel.stopping:
            self._kernel.record_usage(pid, inference_requests=1, inference_input_chars=chars)

    # ------------------------------------------------------------------ coming and going

    def restored(self) -> None:
        """After a restart: what is remembered has no handler yet, and may be claimed by its program."""
        for name in self.state.services:
            self._live.setdefault(name, _Live(claimed=False))

    def stop(self) -> None:
        """The kernel closes: no more checks."""
        for live in self._live.values():
            if live.check is not None:
                live.check.stop()

    def _find(self, name: Any) -> dict[str, Any]:
        found = self.state.services.get(name) if isinstance(name, str) else None
        if found is None:
            raise NoSuchService(f"no service {name!r}", hint="kernel.services.list_services() lists them", name=name)
        return found


class _Check:
    """One service's health check, again and again on the kernel's clock; never two at a time."""

    __slots__ = (
        "_check",
        "_degraded_after",
        "_failures",
        "_interval_s",
        "_name",
        "_registry",
        "_stopped",
        "_timer",
        "_unhealthy_after",
    )

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
        clock = self._registry._kernel.clock
        self._timer = clock.call_at(clock.monotonic() + self._interval_s, self._ring)

    def stop(self) -> None:
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _ring(self) -> None:
        if not self._stopped:
            self._registry._kernel.tasks.start(self._once(), name=f"lyra-health {self._name}")

    async def _once(self) -> None:
        kernel = self._registry._kernel
        try:
            late = DeadlineExceeded(f"the health check of {self._name} took too long")
            status = self._status(await within(kernel.clock, _answer(self._check), self._interval_s, late))
        except Exception:  # noqa: BLE001 - whatever it raised, the service did not answer well
            status = self._status(False)
        if self._stopped or kernel.stopping or kernel.failure is not None:
            return
        if status is not None:
            self._registry.update_health(self._name, status)
        self.arm()

    def _status(self, answer: Any) -> str | None:
        """What an answer makes of the service; None leaves it as it is."""
        if answer is not False:
            self._failures = 0
            return "healthy" if answer is None or answer is True else one_of(_lower(answer), STATUSES, "a health check")
        self._failures += 1
        if self._failures >= self._unhealthy_after:
            return "unhealthy"
        return "degraded" if self._failures >= self._degraded_after else None


# ---------------------------------------------------------------------- small things


async def _result(handler: ServiceHandler, request: ServiceRequest) -> Any:
    result = handler(request)
    return await result if hasattr(type(result), "__await__") else result


async def _answer(check: HealthCheck) -> Any:
    answer = check()
    return await answer if hasattr(type(answer), "__await__") else answer


def _response(name: str, request: ServiceRequest, result: Any) -> ServiceResponse:
    """Everything a handler may give, as a response."""
    if isinstance(result, ServiceResponse):
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
        envelope = _envelope(result.get("envelope", request.envelope))
        return ServiceResponse(**{**result, "envelope": envelope})
    return ServiceResponse(envelope=request.envelope, metadata=dict(result))


def _refusal(found: Mapping[str, Any], live: _Live) -> Overloaded:
    name, status = found["name"], found["status"]
    if STATUSES[status](1) == 0:
        return Overloaded(f"service {name} is {status} and accepts nothing", name=name, status=status)
    return Overloaded(f"service {name} is at capacity", name=name, status=status, load=live.load)


def _wrapped(name: str, error: Exception) -> EffectFailed:
    return EffectFailed(f"service {name} failed: {text_of(error)}", name=name, type=type(error).__name__)


def _has_model(found: Mapping[str, Any], model: str) -> bool:
    metadata = found["metadata"]
    models = metadata.get("models")
    return (
        model == found["name"]
        or model in found["capabilities"]
        or metadata.get("model") == model
        or (isinstance(models, list) and model in models)
    )


def _texts(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        known_keys(value, ("text", "texts"), "an inference input")
        text, texts = value.get("text"), value.get("texts", ())
        found = [*([] if text is None else [text]), *texts]
    else:
        found = [value] if isinstance(value, str) else list(value) if isinstance(value, (list, tuple)) else [value]
    for one in found:
        if not isinstance(one, str):
            raise ConfigError(f"an inference input is text or a list of texts, not {type(one).__name__}", key="input")
    return found


def _envelope(value: Any) -> Envelope | None:
    return value if value is None or isinstance(value, Envelope) else Envelope.from_data(value)


def _lower(word: Any) -> Any:
    return word.lower() if isinstance(word, str) else word


def _name(word: Any) -> str:
    if not isinstance(word, str) or not 0 < len(word) <= NAME_LENGTH_MAX or not word.isprintable():
        raise ConfigError(f"a service's name is 1 to {NAME_LENGTH_MAX} printable characters, not {word!r}", key="name")
    return word
