"""Log records and metrics of OpenTelemetry: what they say, to which trace they belong, and when they end."""

from __future__ import annotations

import json
import logging

import pytest
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from lyra import Agent, Kernel, tool
from lyra.errors import ModelError
from lyra.observe.otel import attach_otel
from tests.agents.support import calls, clock_here, run, says, virtual
from tests.observe.otel.collector import attributes, http_collector

KEY = "sk-ant-" + "planted0123456789abcdef"


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    logging.getLogger("lyra.program").error("adding with %s", KEY)
    return a + b


def test_log_records_belong_to_the_span_that_is_open(monkeypatch):
    """Level, text without keys, trace and span; content as an event where that is asked for, and not in spans then.
    The handler goes with the kernel."""
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "event_only")
    handlers = list(logging.getLogger("lyra").handlers)

    async def main() -> None:
        async with Kernel() as kernel:
            attach_otel(kernel, tracer_provider=tracer, logger_provider=logger)
            process = await kernel.spawn(Agent("Coder", model=says(calls("add", a=1, b=2), "done"), tools=[add]))
            await process.send("go")

    with http_collector() as collector:
        logger, tracer = LoggerProvider(shutdown_on_exit=False), TracerProvider(shutdown_on_exit=False)
        logger.add_log_record_processor(BatchLogRecordProcessor(OTLPLogExporter(endpoint=f"{collector.url}/v1/logs")))
        tracer.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{collector.url}/v1/traces")))
        run(main())
        logger.shutdown()
        tracer.shutdown()
    assert logging.getLogger("lyra").handlers == handlers
    (record,) = [record for record in collector.logs if record.body.string_value]
    span = collector.span("execute_tool add")
    assert (record.severity_text, record.trace_id, record.span_id) == ("ERROR", span.trace_id, span.span_id)
    assert record.body.string_value.startswith("adding with")
    assert attributes(record)["logger.name"] == "lyra.program"
    assert KEY not in str(collector.requests)
    events = [record for record in collector.logs if record.event_name == "gen_ai.client.inference.operation.details"]
    chats = [span for span in collector.spans if span.name == "chat sim"]
    assert {event.span_id for event in events} >= {chat.span_id for chat in chats}
    last = next(event for event in events if "done" in attributes(event).get("gen_ai.output.messages", ""))
    assert json.loads(attributes(last)["gen_ai.input.messages"])[0]["parts"][0]["content"] == "go"
    assert all("gen_ai.input.messages" not in attributes(chat) for chat in chats)


def test_metrics_are_recorded_with_the_durations_of_events():
    """Tokens by type, durations in seconds with error.type, money, and sessions that go back to none."""
    price = {"input_usd_per_mtok": 1, "output_usd_per_mtok": 2}

    async def main() -> None:
        async with Kernel(clock=clock_here()) as kernel:
            attach_otel(kernel, meter_provider=meter)
            model = says(
                {**calls("add", a=1, b=2), "first_s": 2}, calls("gone"), {"error": {"kind": "auth"}}, price=price
            )
            process = await kernel.spawn(Agent("Coder", model=model, tools=[add]))
            with pytest.raises(ModelError):
                await process.send("go")

    with http_collector() as collector:
        exporter = OTLPMetricExporter(endpoint=f"{collector.url}/v1/metrics")
        reader = PeriodicExportingMetricReader(exporter, export_interval_millis=1e7)
        meter = MeterProvider([reader], shutdown_on_exit=False)
        virtual(main())
        meter.shutdown()
    metrics = collector.metrics
    points = metrics["gen_ai.client.operation.duration"].histogram.data_points
    by_error = {attributes(point).get("error.type"): point for point in points}
    assert (by_error[None].sum, by_error[None].count, by_error["auth"].count) == (2, 2, 1)
    named = attributes(by_error[None])
    assert (named["gen_ai.operation.name"], named["gen_ai.provider.name"]) == ("chat", "sim")
    kinds = {
        attributes(point)["gen_ai.token.type"] for point in metrics["gen_ai.client.token.usage"].histogram.data_points
    }
    assert kinds == {"input", "output"}
    tools = [attributes(point) for point in metrics["gen_ai.execute_tool.duration"].histogram.data_points]
    assert {(named["gen_ai.tool.name"], named.get("error.type")) for named in tools} == {
        ("add", None),
        ("unknown", "not_found"),
    }
    (turn,) = metrics["gen_ai.invoke_agent.duration"].histogram.data_points
    assert attributes(turn)["error.type"] == "auth"
    assert metrics["lyra.cost"].sum.data_points[0].as_double > 0
    assert metrics["lyra.sessions.active"].sum.data_points[0].as_int == 0
    assert "lyra.pid" not in str(collector.requests)
