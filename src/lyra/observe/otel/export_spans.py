"""Sends spans of records that were read back from a store to a collector, and waits until they have arrived."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from lyra._version import __version__
from lyra.core.event import Event
from lyra.errors import ConfigError, StoreError
from lyra.observe.otel.call_details import CallDetails
from lyra.observe.otel.environment import exporter_for, imported
from lyra.observe.otel.providers import lyra_resource

_BATCH: Final = 512
_HINT: Final = "set OTEL_EXPORTER_OTLP_ENDPOINT, such as http://127.0.0.1:4317"


def export_events(events: Iterable[Event]) -> int:
    """Export a span for each Event by the OTEL_* variables; gives how many there were."""
    sdk, export = imported("opentelemetry.sdk.trace"), imported("opentelemetry.sdk.trace.export")
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
