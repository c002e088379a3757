"""Exports what a kernel does to OpenTelemetry, for as long as the kernel is open.

    attach_otel(kernel)                               the providers of the application, or of the OTEL_* variables
    attach_otel(kernel, tracer_provider=provider)     one that is given

`attach_from_environment` does so where the variables, or a provider that the application has set, ask for it; agents
call it when they come to a kernel, so that nothing has to be called by hand.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol

from lyra._version import __version__
from lyra.core.event import Event
from lyra.core.trace_context import TraceBridge, set_bridge
from lyra.observe.otel.environment import import_extra, is_wanted, read_content_places

if TYPE_CHECKING:
    from opentelemetry._logs import LoggerProvider
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider

    from lyra.observe.otel.providers import OtelProviders


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
    from lyra.observe.otel.providers import OtelProviders, process_providers

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
        from lyra.observe.otel.bridge import LogRecords, OtelBridge, OtelLogHandler
        from lyra.observe.otel.conventions import PART, CallDetails, EventInstruments
        from lyra.observe.otel.tracing import event_spans

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
