"""Exports what a kernel does to OpenTelemetry, for as long as the kernel is open.

    attach_otel(kernel)                               the providers of the application, or of the OTEL_* variables
    attach_otel(kernel, tracer_provider=provider)     one that is given

`attach_from_environment` does so where the variables, or a provider that the application has set, ask for it; agents
call it when they come to a kernel, so that nothing has to be called by hand.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from lyra._version import __version__
from lyra.core.clock import SystemClock
from lyra.core.event import Event
from lyra.core.trace_context import TraceBridge, set_bridge
from lyra.errors import ConfigError, StoreError
from lyra.observe.otel.conventions import PART, CallDetails, EventInstruments
from lyra.observe.otel.requests import exporter_for, import_extra, is_disabled, is_wanted, read_content_places

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider


_PART: Final = "otel"


class Exported(Protocol):
    """The part of a kernel that `attach_otel` uses."""

    parts: dict[str, Any]

    def on_event(self, listener: Callable[[Event], Any], kinds: Iterable[str] | None = None) -> Callable[[], None]: ...


def attach_otel(
    kernel: Exported,
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    logger_provider: LoggerProvider | None = None,
) -> None:
    """Export spans, metrics and log records of a kernel until it closes; a second call changes nothing.

    A provider that is not given is the one that the application has set, else one made from the OTEL_* variables.
    """
    if _PART in kernel.parts:
        return
    import_extra("opentelemetry.sdk.trace")
    if tracer_provider is None and meter_provider is None and logger_provider is None:
        providers = process_providers()
    else:
        providers = OtelProviders(tracer_provider, meter_provider, logger_provider)
    kernel.parts[_PART] = AttachedOtel(kernel, providers)


def attach_from_environment(kernel: Exported) -> None:
    """`attach_otel`, where the OTEL_* variables or a provider of the application ask for it."""
    if is_wanted():
        attach_otel(kernel)


_bridged = 0  # kernels whose traces are exported


def _connect(bridge: TraceBridge) -> None:
    global _bridged
    _bridged += 1
    set_bridge(bridge)


def _disconnect() -> None:
    """Take the bridge away with the last kernel that exports: from then on nothing is told to other systems."""
    global _bridged
    _bridged -= 1
    if not _bridged:
        set_bridge(None)


class AttachedOtel:
    """A part of the kernel: its listeners, until it closes. What waits to be exported then is exported all the same."""

    __slots__ = ("_handler", "_is_bridged", "_stops")

    def __init__(self, kernel: Exported, providers: OtelProviders) -> None:
        from lyra.observe.otel.tracing import LogRecords, OtelBridge, OtelLogHandler, event_spans

        self._stops: list[Callable[[], None]] = []
        self._handler: logging.Handler | None = None
        self._is_bridged = False
        records = LogRecords(providers.logger, __version__) if providers.logger is not None else None
        if providers.tracer is not None:
            details = kernel.parts[PART] = CallDetails(read_content_places())
            spans = event_spans(providers.tracer, __version__, details, records)
            if spans is not None:
                self._is_bridged = True
                self._stops.append(kernel.on_event(spans, spans.KINDS))
                _connect(OtelBridge())
        if providers.meter is not None:
            instruments = EventInstruments(providers.meter, __version__)
            self._stops.append(kernel.on_event(instruments, instruments.kinds))
        if records is not None:
            self._handler = OtelLogHandler(records)
            logging.getLogger("lyra").addHandler(self._handler)

    async def close(self) -> None:
        """Stop listening."""
        for stop in self._stops:
            stop()
        if self._is_bridged:
            _disconnect()
        if self._handler is not None:
            logging.getLogger("lyra").removeHandler(self._handler)


FLUSH_S: Final = 2.0  # the longest that the end of a process waits for a collector


class OtelProviders(NamedTuple):
    """A provider of each signal; None where it is not exported."""

    tracer: Any = None
    meter: Any = None
    logger: Any = None


class _Finisher:
    """Shuts a provider down in its own thread, which waits for that from the start: at the end of a process no
    thread can be started any more."""

    def __init__(self, shut_down: Callable[[], Any]) -> None:
        self._shut_down = shut_down
        self._asked = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lyra-otel-end", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._asked.wait()
        self._shut_down()

    def begin(self) -> None:
        self._asked.set()

    def join(self, timeout_s: float) -> None:
        self._thread.join(timeout_s)


def _finish(finishers: Sequence[_Finisher]) -> None:
    """Export what waits, of all signals at once, and continue after `FLUSH_S` at the latest."""
    for finisher in finishers:
        finisher.begin()
    clock = SystemClock()
    end_s = clock.monotonic() + FLUSH_S
    for finisher in finishers:
        finisher.join(max(end_s - clock.monotonic(), 0.0))


_providers: OtelProviders | None = None
_lock: Final = threading.Lock()


def process_providers(env: Mapping[str, str] = os.environ) -> OtelProviders:
    """Return the providers of this process; made at the first call."""
    global _providers
    with _lock:
        if _providers is None:
            _providers = _new_providers(env)
        return _providers


def _new_providers(env: Mapping[str, str]) -> OtelProviders:
    if is_disabled(env):
        return OtelProviders()
    own: list[tuple[str, Any]] = []
    tracer = _set_by_application("opentelemetry.trace", "get_tracer_provider", "ProxyTracerProvider")
    meter = _set_by_application("opentelemetry.metrics", "get_meter_provider", "_ProxyMeterProvider")
    logger = _set_by_application("opentelemetry._logs", "get_logger_provider", "ProxyLoggerProvider")
    for signal, provider, make in (
        ("traces", tracer, _tracer_provider),
        ("metrics", meter, _meter_provider),
        ("logs", logger, _logger_provider),
    ):
        exporter = exporter_for(signal, env) if provider is None else None
        if exporter is not None:
            own.append(make(exporter))
    providers = dict(own)
    if own:
        atexit.register(_finish, [_Finisher(provider.shutdown) for provider in providers.values()])
    return OtelProviders(
        tracer or providers.get("tracer"), meter or providers.get("meter"), logger or providers.get("logger")
    )


def _set_by_application(module: str, getter: str, proxy: str) -> Any:
    """Return the global provider; None where it only represents one that may be set later."""
    provider = getattr(import_extra(module), getter)()
    return None if type(provider).__name__ in (proxy, f"_{proxy}") else provider


def lyra_resource() -> Any:
    """`service.name` is `lyra` unless OTEL_SERVICE_NAME or OTEL_RESOURCE_ATTRIBUTES say otherwise."""
    resources = import_extra("opentelemetry.sdk.resources")
    named = resources.Resource.create({"telemetry.distro.name": "lyra", "telemetry.distro.version": __version__})
    if str(named.attributes.get("service.name", "")).startswith("unknown_service"):
        named = named.merge(resources.Resource({"service.name": "lyra"}))
    return named


def _tracer_provider(exporter: Any) -> tuple[str, Any]:
    sdk, export = import_extra("opentelemetry.sdk.trace"), import_extra("opentelemetry.sdk.trace.export")
    provider = sdk.TracerProvider(resource=lyra_resource(), shutdown_on_exit=False)
    provider.add_span_processor(export.BatchSpanProcessor(exporter))
    import_extra("opentelemetry.trace").set_tracer_provider(provider)
    return "tracer", provider


def _meter_provider(exporter: Any) -> tuple[str, Any]:
    sdk, export = import_extra("opentelemetry.sdk.metrics"), import_extra("opentelemetry.sdk.metrics.export")
    reader = export.PeriodicExportingMetricReader(exporter)
    provider = sdk.MeterProvider([reader], resource=lyra_resource(), shutdown_on_exit=False)
    import_extra("opentelemetry.metrics").set_meter_provider(provider)
    return "meter", provider


def _logger_provider(exporter: Any) -> tuple[str, Any]:
    sdk, export = import_extra("opentelemetry.sdk._logs"), import_extra("opentelemetry.sdk._logs.export")
    provider = sdk.LoggerProvider(resource=lyra_resource(), shutdown_on_exit=False)
    provider.add_log_record_processor(export.BatchLogRecordProcessor(exporter))
    import_extra("opentelemetry._logs").set_logger_provider(provider)
    return "logger", provider


# Sends spans of records that were read back from a store to a collector, and waits until they have arrived.

_BATCH: Final = 512
_HINT: Final = "set OTEL_EXPORTER_OTLP_ENDPOINT, such as http://127.0.0.1:4317"


def export_events(events: Iterable[Event]) -> int:
    """Export a span for each Event by the OTEL_* variables; gives how many there were."""
    sdk, export = import_extra("opentelemetry.sdk.trace"), import_extra("opentelemetry.sdk.trace.export")
    exporter = exporter_for("traces")
    if exporter is None:
        raise ConfigError("no collector is named", hint=_HINT, key="to")
    from lyra.observe.otel.tracing import event_spans

    batches = _Batches(exporter, export.SpanExportResult.SUCCESS)
    provider = sdk.TracerProvider(resource=lyra_resource(), shutdown_on_exit=False)
    provider.add_span_processor(export.SimpleSpanProcessor(batches))
    spans = event_spans(provider, __version__, CallDetails(()))
    assert spans is not None
    count = 0
    try:
        for event in events:
            spans(event)
            count += 1
            if batches.is_refused:
                break
        batches.send()
    finally:
        provider.shutdown()
    if batches.is_refused:
        raise StoreError("the collector does not take the spans", hint="is it running, and is its address right?")
    return count


class _Batches:
    """An exporter that hands spans on in batches, until the exporter behind it fails."""

    def __init__(self, exporter: Any, success: Any) -> None:
        self._exporter = exporter
        self._success = success
        self._waiting: list[Any] = []
        self.is_refused = False

    def export(self, spans: Sequence[Any]) -> Any:
        self._waiting += spans
        if len(self._waiting) >= _BATCH:
            self.send()
        return self._success

    def send(self) -> None:
        spans, self._waiting = self._waiting, []
        if spans and not self.is_refused:
            self.is_refused = self._exporter.export(spans) is not self._success

    def shutdown(self) -> None:
        self._exporter.shutdown()
