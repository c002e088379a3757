"""The service registry: named handlers, each with a health and a capacity.

A service is registered (`ServiceInfo`), given a handler, and dispatched to. `dispatch` asks in this order: is there
such a service, does its health let it accept, is a slot free, is there a handler. Then it runs the handler in one slot,
within a time-out, with retries by error class; the slot is freed in every case. Requests are not queued: a full service
raises `Overloaded`, and the caller decides. Where several services are meant (instances `NAME/1`, `NAME/2` of one name,
a capability, a type), the least loaded one takes the request.

    status      accepts
    healthy     up to max_concurrent
    degraded    half of it, at least one
    unhealthy   nothing
    unknown     nothing until its health is reported

Registrations and health are durable (`ServiceState`). Handlers, health checks and load are not: after a restart a
program registers its handlers again, and the first registration under a restored name takes it over instead of being
a duplicate. A program reaches a service inside an effect, so what comes back is journaled there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core import codec
from lyra.core.checking.check import check_integer, one_of, real, sendable_text
from lyra.core.envelope import Envelope
from lyra.core.limits import RETRY_ATTEMPTS_MAX, SERVICE_HEALTH_CHECK_S, SERVICES_MAX
from lyra.core.policies.retry import Backoff, Retry, http_status
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
from lyra.kernel.base.acting import acting, as_registered, require
from lyra.kernel.base.subsystem import Subsystem
from lyra.kernel.base.waiting import in_time
from lyra.kernel.journal.rows import text_of, without_keys
from lyra.kernel.programs.handle import Ack, acknowledge
from lyra.kernel.services.service import (
    SERVICE_TYPES,
    STATUSES,
    Balancer,
    HealthCheck,
    InferenceResponse,
    ServiceCheck,
    ServiceHandler,
    ServiceInfo,
    ServiceRequest,
    ServiceResponse,
    ServiceState,
    ServiceStatus,
    answer_of,
    has_model,
    least_loaded,
    lower,
    out_of_time,
    response_of,
    texts_of,
)
from lyra.kernel.workers.envelope_table import envelope_of

if TYPE_CHECKING:
    from lyra.kernel.base.core import Core
    from lyra.kernel.workers.lifecycle import LifecycleManager
    from lyra.kernel.workers.time_limits import TimeLimits
    from lyra.kernel.workers.usage import ResourceTracker

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

DISPATCH_BACKOFF: Final = Backoff(initial_s=0.05, max_s=5.0)


class _Live:
    """The part of a registration that is not durable; requests in flight keep a reference to it."""

    def __init__(self, *, claimed: bool) -> None:
        self.claimed = claimed  # registered since this kernel opened, not only restored
        self.handler: ServiceHandler | None = None
        self.owner: Any = None  # the process that registered the handler; None outside any
        self.check: ServiceCheck | None = None
        self.checked_at: float | None = None
        self.load = 0
        self.dispatched = 0
        self.failed = 0


class ServiceRegistry(Subsystem):
    def __init__(
        self, core: Core[Any], lifecycle: LifecycleManager, resources: ResourceTracker, time_limits: TimeLimits
    ) -> None:
        self.core = core
        self._lifecycle = lifecycle
        self._resources = resources
        self._time_limits = time_limits
        self._envelope_of = partial(envelope_of, core, lifecycle)
        self.state = ServiceState()
        self._live: dict[str, _Live] = {}
        self._balancer = Balancer(lambda: self.state.services)

    # ------------------------------------------------------------------ registrations

    def register_service(self, info: ServiceInfo | Mapping[str, Any]) -> Ack:
        """Make a service known; a second of the same name is NameTaken."""
        self.core.raise_if_closed()
        self._lifecycle.raise_if_closing("service")
        wanted = ServiceInfo.of(info)
        require("events.subscribe", wanted.name)
        live = self._live.get(wanted.name)
        if live is not None and live.claimed:
            raise NameTaken(
                f"there is a service {wanted.name!r} already", hint="unregister_service first", name=wanted.name
            )
        if live is None and len(self.state.services) >= SERVICES_MAX:
            raise Overloaded(
                f"{SERVICES_MAX} services are registered, the most there may be",
                hint="unregister_service makes room",
                limit=SERVICES_MAX,
            )
        data = wanted.to_data()
        for own in ("name", "current_load", "last_health_check"):
            data.pop(own, None)
        data["metadata"] = codec.decode(codec.encode(wanted.metadata))  # what cannot be kept fails here, unchanged
        row = {"service_name": wanted.name, **data, "at": self.core.now()}
        if self.core.taint.is_here:
            row["tainted"] = True
        seq = self.core.fact(self.state, "", "service.registered", row)
        self._balancer.forget_words()
        if live is None:
            self._live[wanted.name] = _Live(claimed=True)
        else:
            live.claimed = True
        self._tell_shards(wanted.name)
        return Ack(self.core, seq)

    def unregister_service(self, name: str) -> Ack:
        """Forget a service and its handler; requests in flight come to their end."""
        self.core.raise_if_closed()
        service = self._find(name)
        require("process.send", name)
        live = self._live.pop(name)
        if live.check is not None:
            live.check.stop()
        seq = self.core.fact(
            self.state, "", "service.unregistered", {"service_name": name, "service_type": service["service_type"]}
        )
        self._balancer.forget_words()
        self._tell_shards(name)
        return Ack(self.core, seq)

    def register_handler(self, name: str, handler: ServiceHandler) -> None:
        """Set the handler of a service's requests: a plain or async function of a ServiceRequest.

        It gives a ServiceResponse, an Envelope, a mapping (of a response's fields, or anything: then it is the
        response's metadata) or None. A plain function runs on the loop and must be quick. A new handler takes the
        place of the old one.
        """
        self.core.raise_if_elsewhere()
        self._find(name)
        if not callable(handler):
            raise ConfigError(f"a handler is a function of one request, not {handler!r}", name=name)
        require("events.subscribe", name)
        self._live[name].handler = as_registered(handler)
        self._live[name].owner = acting()
        self._tell_shards(name)

    def unregister_handler(self, name: str) -> None:
        """Forget the handler of a service; requests in flight come to their end, new ones are refused."""
        self.core.raise_if_elsewhere()
        self._find(name)
        require("events.subscribe", name)
        self._live[name].handler = None
        self._tell_shards(name)

    def _tell_shards(self, name: str) -> None:
        """Tell the other shards of a cluster how a service stands."""
        if self.core.remote is not None:
            self.core.remote.services.tell(name)

    def has_handler(self, name: str) -> bool:
        """Return whether a service of that name is registered and has a handler."""
        return name in self._live and self._live[name].handler is not None

    def get_service(self, name: str) -> ServiceInfo:
        if self.core.remote is not None and name not in self.state.services:
            abroad: ServiceInfo | None = self.core.remote.services.find_info(name)
            if abroad is not None:
                return abroad
        info = self._info(name)
        if name in self.state.untrusted:
            self.core.taint.mark_here(f"the service {name}")
        return info

    def _info(self, name: str) -> ServiceInfo:
        service = self._find(name)
        live = self._live[name]
        checked_at = live.checked_at if live.checked_at is not None else service["last_health_check"]
        own = {"metadata": codec.decode(codec.encode(service["metadata"]))} if service["metadata"] else {}
        return ServiceInfo(**{**service, **own, "current_load": live.load, "last_health_check": checked_at})

    def list_services(self) -> list[ServiceInfo]:
        """All, in the order of registration; in a cluster those of other shards behind them (`metadata["shard"]`)."""
        own = [self.get_service(name) for name in self.state.services]
        return own if self.core.remote is None else [*own, *self.core.remote.services.list_infos()]

    def list_services_by_type(self, service_type: str) -> list[ServiceInfo]:
        wanted = one_of(lower(service_type), SERVICE_TYPES, "service_type")
        return [
            self.get_service(name) for name, service in self.state.services.items() if service["service_type"] == wanted
        ]

    def get_stats(self) -> dict[str, Any]:
        """Figures of the whole registry."""
        services = [self._info(name) for name in self.state.services]
        live = self._live.values()
        return {
            "total_services": len(services),
            **{f"{word}_services": sum(info.status == word for info in services) for word in STATUSES},
            "services_by_type": {
                word: count for word in SERVICE_TYPES if (count := sum(info.service_type == word for info in services))
            },
            "total_handlers": sum(registration.handler is not None for registration in live),
            "total_load": sum(info.current_load for info in services),
            "total_capacity": sum(info.max_concurrent for info in services),
            "dispatched": sum(registration.dispatched for registration in live),
            "failed": sum(registration.failed for registration in live),
        }

    # ------------------------------------------------------------------ health

    def update_health(self, name: str, status: str) -> Ack:
        """Report a service's health; only a change is a row and an Event."""
        self.core.raise_if_closed()
        service = self._find(name)
        require("process.send", name)
        word = one_of(lower(status), STATUSES, "status")
        now = self._live[name].checked_at = self.core.now()
        if service["status"] == word:
            return acknowledge(self.core)
        data = {"service_name": name, "status": word, "old_status": service["status"], "at": now}
        seq = self.core.fact(self.state, "", "service.health_changed", data)
        self._tell_shards(name)
        return Ack(self.core, seq)

    def check_health(
        self,
        name: str,
        check: HealthCheck,
        *,
        interval_s: float = SERVICE_HEALTH_CHECK_S,
        degraded_after: int = 1,
        unhealthy_after: int = 3,
    ) -> Callable[[], None]:
        """Call `check()` every `interval_s` seconds and report its result; gives a callable that ends it.

        True or None is healthy, a status word is that status, False or an error is a failure; so many failures in a
        row make it degraded and unhealthy. A check that takes longer than the interval is a failure. A new check
        takes the place of the old one.
        """
        self.core.raise_if_closed()
        self._find(name)
        if not callable(check):
            raise ConfigError(f"a health check is a function without arguments, not {check!r}", name=name)
        require("process.send", name)
        watch = ServiceCheck(
            self,
            name,
            check,
            interval_s=real(interval_s, "interval_s", above=0.0),
            degraded_after=check_integer(degraded_after, "degraded_after", least=1),
            unhealthy_after=check_integer(unhealthy_after, "unhealthy_after", least=1),
        )
        live = self._live[name]
        if live.check is not None:
            live.check.stop()
        live.check = watch
        watch.arm()
        return watch.stop

    # ------------------------------------------------------------------ slots

    def can_accept(self, name: str) -> bool:
        """Return whether its health and its load leave room for one more request; False for a restored service without
        a handler."""
        service = self._find(name)
        live = self._live[name]
        return self._room(service, live) > 0 and (live.claimed or live.handler is not None)

    def acquire_slot(self, name: str) -> bool:
        """Take a slot for work outside `dispatch`; Overloaded when there is none."""
        self.core.raise_if_elsewhere()
        require("process.send", name)
        self._acquire(name)
        return True

    def release_slot(self, name: str) -> bool:
        """Give a slot back."""
        self.core.raise_if_elsewhere()
        self._find(name)
        require("process.send", name)
        live = self._live[name]
        if live.load == 0:
            raise InvalidTransition(f"no slot of service {name!r} is taken", hint="acquire_slot takes one", name=name)
        live.load -= 1
        return True

    def _acquire(self, name: str) -> _Live:
        service = self._find(name)
        live = self._live[name]
        if self._room(service, live) <= 0:
            raise _refusal(service, live)
        live.load += 1
        return live

    @staticmethod
    def _room(service: Mapping[str, Any], live: _Live) -> int:
        return STATUSES[service["status"]](service["max_concurrent"]) - live.load

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
        """Run a request in one of the slots of the least loaded service that `name` means.

        `timeout_s` bounds the whole, pauses between tries included. An exception of the handler, or a response with an
        `error`, is retried `max_retries` times with the original request; Lyra's own errors and those with an HTTP
        status only if their class can be retried. The last exception is raised: Lyra's own errors unchanged, others as
        EffectFailed.

        In a cluster the handlers of other shards are called where none of this one has room. A shard that gives no
        answer is like an exception of the handler, which may have done the work.
        """
        self.core.raise_if_closed()
        remote = self.core.remote
        if (
            remote is not None
            and not self._has_room(name)
            and (remote.services.list_places(name) or (name not in self.state.services and remote.services.knows(name)))
        ):
            abroad: ServiceResponse = await remote.services.dispatch(name, request, timeout_s, max_retries, backoff)
            return abroad
        chosen = self.choose(name)
        require("process.send", chosen, name)
        return await self._dispatch(chosen, request, timeout_s, max_retries, backoff)

    def _has_room(self, word: Any) -> bool:
        """Return whether a handler of this kernel would take a request now."""
        live = self._live
        return any(
            live[name].handler is not None and self._room(self.state.services[name], live[name]) > 0
            for name in (self._balancer.list_matching(word) if isinstance(word, str) else ())
        )

    async def dispatch_here(self, name: str, request: ServiceRequest) -> ServiceResponse:
        """Answer one request of another shard with the handler of this one."""
        return await self._dispatch(name, request, None, 0)

    def read_request(self, value: Any) -> ServiceRequest:
        """Return what a caller of `dispatch` gave as a request."""
        return ServiceRequest.of(value, self._envelope_of)

    def find_owner(self, name: str) -> str:
        """Return the pid of the process that registered a handler; "" where none did."""
        owner = self._live[name].owner if name in self._live else None
        return owner.pid if owner is not None and owner.core is self.core else ""

    def measure_load(self, name: str) -> int:
        return self._live[name].load if name in self._live else 0

    def choose(self, word: Any) -> str:
        """Return the name of the service that would take a request now: the least loaded of those that the word
        means."""
        meant = self._balancer.list_matching(word) if isinstance(word, str) else []
        if len(meant) < 2:
            return str(self._find(meant[0] if meant else word)["name"])
        return least_loaded((name, self.state.services[name], self._live[name]) for name in meant)

    async def _dispatch(
        self, name: str, request: Any, timeout_s: float | None, max_retries: int, backoff: Any = None
    ) -> ServiceResponse:
        limit_s = None if timeout_s is None else real(timeout_s, "timeout_s", above=0.0)
        retry = Retry(
            max_attempts=1 + check_integer(max_retries, "max_retries", most=RETRY_ATTEMPTS_MAX - 1),
            backoff=DISPATCH_BACKOFF if backoff is None else Backoff.of(backoff),
        )
        wanted = ServiceRequest.of(request, self._envelope_of)
        service = self._find(name)
        live = self._live[name]
        if self._room(service, live) <= 0:
            raise _refusal(service, live)
        if live.handler is None:
            raise ConfigError(
                f"service {name!r} has no handler", hint="kernel.register_handler(name, fn), also after a restart"
            )
        owner = live.owner.pid if live.owner is not None and live.owner.core is self.core else ""
        if owner:
            self.core.taint.pass_on_from_here(owner, "a request of")
        live.load += 1
        live.dispatched += 1
        try:
            with self.core.flight:
                work = self._tries(name, live.handler, wanted, retry)
                if limit_s is None:
                    response = await work
                else:
                    late = DeadlineExceeded(
                        f"dispatch timeout: service {name} gave no answer within {limit_s:g} s",
                        hint="raise timeout_s, or look at the service's load",
                        name=name,
                        timeout_s=limit_s,
                    )
                    response = await in_time(self.core.clock, work, limit_s, late)
            live.failed += response.error is not None
            return response
        except BaseException:
            live.failed += 1
            raise
        finally:
            self.core.taint.pass_on_to_here(owner, "an answer of")  # an error has its words, too
            live.load = max(live.load - 1, 0)  # a caller may have released a slot that it had not taken

    async def _tries(
        self, name: str, handler: ServiceHandler, request: ServiceRequest, retry: Retry
    ) -> ServiceResponse:
        core = self.core
        began = core.clock.monotonic()
        spare = (
            _copy_request(request) if retry.max_attempts > 1 else request
        )  # as it was, for the tries after the first
        attempt = 1
        while True:
            failure: Exception
            response: ServiceResponse | None = None
            try:
                response = response_of(name, request, await answer_of(handler, request), self._envelope_of)
            except Exception as error:  # noqa: BLE001 - a handler may raise anything; it is sorted below
                failure = error
            else:
                failure = EffectFailed(response.error or "")
            if (response is not None and response.error is None) or not worth_another(retry, failure, attempt):
                break
            await core.outside_pause(retry.delay(attempt, core.rng, failure))
            attempt += 1
            request = _copy_request(spare)
        if response is None:
            raise without_keys(failure) if isinstance(failure, LyraError) else _wrap_error(name, failure) from failure
        took_s = core.clock.monotonic() - began
        answer: ServiceResponse = msgspec.structs.replace(response, retries=attempt - 1, duration_s=took_s)
        return answer

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

        `input` is text, a list of texts, or a mapping with `text` and `texts`. With a `pid`, its quota must leave room:
        the request and its characters are counted before it runs, so no number of requests at once passes the quota;
        when the time of its quota is over, before or meanwhile, that is DeadlineExceeded. The handler finds the text
        in the envelope's `raw_input`, and `model` and `input` in the request's metadata.
        """
        core = self.core
        core.raise_if_closed()
        candidates = self._list_with_model(model)
        has_room = any(live.handler is not None and self._room(service, live) > 0 for _, service, live in candidates)
        abroad = core.remote is not None and not has_room and core.remote.services.list_places(model, is_model=True)
        if not candidates and not abroad:
            raise NoSuchService(
                f"no inference service has the model {model!r}",
                hint="register one with the model among its capabilities",
                model=model,
            )
        name = "" if abroad else least_loaded(candidates)
        require("model.use", model)
        texts = texts_of(input)
        limit_s = None if timeout_s is None else real(timeout_s, "timeout_s", above=0.0)
        check_integer(max_retries, "max_retries", most=RETRY_ATTEMPTS_MAX - 1)
        if sendable_text(pid, "a pid"):
            self._check_quota(self._lifecycle.check_pid(pid))
        envelope = Envelope.create(core.entropy, now=core.now(), raw_input="\n".join(texts))
        request = ServiceRequest(pid=pid, envelope=envelope, metadata={"model": model, "input": input})
        chars = sum(map(len, texts))
        if pid:
            with core.listeners.act:
                self._resources.take(pid, {"inference_requests": 1, "inference_input_chars": chars})
        if abroad:
            asked = core.remote.services.dispatch(model, request, limit_s, max_retries, None, is_model=True)
        else:
            asked = self._dispatch(name, request, limit_s, max_retries)
        left_s = self._time_limits.measure_left_s(pid)
        response = await (asked if left_s is None else in_time(core.clock, asked, left_s, out_of_time(pid)))
        fields = msgspec.structs.asdict(response)
        return InferenceResponse(**{"service": name, **fields, "model": model, "input_chars": chars})

    def _list_with_model(self, model: str) -> list[tuple[str, Any, Any]]:
        return [
            (name, service, self._live[name])
            for name, service in self.state.services.items()
            if service["service_type"] == "inference" and has_model(service, model)
        ]

    def _check_quota(self, pid: str) -> None:
        result = self._resources.check_quota(pid)
        if not result.within_bounds:
            reason = result.exceeded_reason
            if reason == "timeout_exceeded":
                raise out_of_time(pid)
            raise LimitExceeded(
                f"process {pid} is over its quota: {reason}", hint="adjust_quota raises it", pid=pid, reason=reason
            )

    # ------------------------------------------------------------------ start and stop

    def on_restored(self) -> None:
        """After a restart: restored services have no handler yet, and their program may register them again."""
        for name in self.state.services:
            self._live.setdefault(name, _Live(claimed=False))
        self._balancer.forget_words()

    def stop(self) -> None:
        """Stop all health checks when the kernel closes."""
        for live in self._live.values():
            if live.check is not None:
                live.check.stop()

    def _find(self, name: Any) -> dict[str, Any]:
        service = self.state.services.get(name) if isinstance(name, str) else None
        if service is None:
            raise unknown_service(name)
        return service


# ---------------------------------------------------------------------- helpers


def unknown_service(name: Any) -> NoSuchService:
    return NoSuchService(f"no service {name!r}", hint="kernel.services.list_services() lists them", name=name)


def _refusal(service: Mapping[str, Any], live: _Live) -> Overloaded:
    name, status = service["name"], service["status"]
    if STATUSES[status](1) == 0:
        hint = "update_health reports that it is well again"
        return Overloaded(f"service {name} is {status} and accepts nothing", hint=hint, name=name, status=status)
    hint = "try again when a request has ended, or register it with a larger max_concurrent"
    return Overloaded(f"service {name} is at capacity", hint=hint, name=name, status=status, load=live.load)


def _copy_request(request: ServiceRequest) -> ServiceRequest:
    envelope = request.envelope.clone() if request.envelope is not None else None
    return msgspec.structs.replace(request, envelope=envelope, metadata=deepcopy(request.metadata))


def worth_another(retry: Retry, failure: Exception, attempt: int) -> bool:
    """Return whether to retry: errors of Lyra and those with an HTTP status by their class, any other error always."""
    if isinstance(failure, LyraError) or http_status(failure) is not None:
        return retry.should_retry(failure, attempt)
    return attempt < retry.max_attempts


def _wrap_error(name: str, error: Exception) -> EffectFailed:
    return EffectFailed(f"service {name} failed: {text_of(error)}", name=name, type=type(error).__name__)
