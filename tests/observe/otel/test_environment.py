"""The standard OTEL_* variables, a provider of the application, a dead collector: each in a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from lyra.errors import ConfigError
from lyra.observe.otel.requests import exporter_for, is_wanted, read_content_places
from tests.observe.otel.collector import Collector, attributes, grpc_collector, http_collector

PROGRAM = """
import asyncio, logging, sys
import lyra
from lyra import Agent, Kernel, tool

@tool
def add(a: int, b: int) -> int:
    "Add."
    return a + b

async def main():
    async with Kernel() as kernel:
        process = await kernel.spawn(Agent("Coder", model="sim/echo", tools=[add]))
        answer = await process.send("hello")
        logging.getLogger("lyra.program").warning("seen %s", "sk-ant-" + "planted0123456789abcdef")
        print(answer)

asyncio.run(main())
"""

NODE = """
import sys
from lyra.core.trace_context import continued
from lyra.vesper import Runtime, load

node = load('''node_id: half_v1
type: function
intent: halve a number
inputs: {number: integer}
outputs: {success: {half: decimal}}
flow:
  - {step: divide, operation: arithmetic, expression: number / 2, output: half}
observability: {tracing: {enabled: true, sample_rate: 1}}
''')
with Runtime() as runtime:
    with continued("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"):
        print(runtime.execute(node, {"number": 4}).status)
"""

APPLICATION = """
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
import sys
import asyncio
from lyra import Agent, Kernel

async def main():
    async with Kernel() as kernel:
        with trace.get_tracer("app").start_as_current_span("application"):
            await (await kernel.spawn(Agent("Coder", model="sim/echo"))).send("hello")

asyncio.run(main())
from lyra.observe import request_span
with request_span("GET /x", {"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}) as span:
    span.end_with({"http.response.status_code": 500}, error="500")
for span in exporter.get_finished_spans():
    print(span.name, span.kind.name, span.parent.span_id if span.parent else 0, span.context.span_id,
          span.attributes.get("error.type"))
"""


def started(program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    env |= variables
    return subprocess.run(
        [sys.executable, "-c", program, "x"], env=env, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("collecting", "protocol"), [(grpc_collector, "grpc"), (http_collector, "http/protobuf")], ids=["grpc", "http"]
)
def test_the_variables_alone_export_spans_metrics_and_logs(
    collecting: Callable[[], AbstractContextManager[Collector]], protocol: str
):
    """Nothing is called by hand: a program whose environment names a collector exports all three signals to it."""
    with collecting() as collector:
        done = started(
            PROGRAM,
            OTEL_EXPORTER_OTLP_ENDPOINT=collector.url,
            OTEL_EXPORTER_OTLP_PROTOCOL=protocol,
            OTEL_RESOURCE_ATTRIBUTES="deployment.environment.name=test",
        )
    assert (done.returncode, done.stdout.strip()) == (0, "hello"), done.stderr
    assert {span.name for span in collector.spans} == {"session Coder", "invoke_agent Coder", "chat echo"}
    assert all(resource["service.name"] == "lyra" for resource in collector.resources)
    assert all(resource["deployment.environment.name"] == "test" for resource in collector.resources)
    usage, duration = (
        collector.metrics["gen_ai.client.token.usage"],
        collector.metrics["gen_ai.client.operation.duration"],
    )
    points = {attributes(point)["gen_ai.token.type"]: point for point in usage.histogram.data_points}
    assert points.keys() == {"input", "output"}
    assert points["output"].sum > 0
    assert usage.unit == "{token}"
    (point,) = duration.histogram.data_points
    assert (point.count, attributes(point)["gen_ai.request.model"]) == (1, "echo")
    assert "gen_ai.invoke_agent.duration" in collector.metrics
    (record,) = [record for record in collector.logs if "seen" in record.body.string_value]
    assert record.severity_text == "WARN"
    assert "planted" not in str(collector.requests)


@pytest.mark.slow
def test_executions_of_nodes_are_spans():
    """`sir.execute` with the attributes of nodes, in the trace of the caller."""
    with grpc_collector() as collector:
        done = started(NODE, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, OTEL_EXPORTER_OTLP_PROTOCOL="grpc")
    assert (done.returncode, done.stdout) == (0, "success\n"), done.stderr
    span = collector.span("sir.execute")
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == ("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
    told = attributes(span)
    assert (told["sir.node_id"], told["sir.execution_path"], told["sir.divergence"]) == ("half_v1", "python", False)
    assert told["sir.intent"] == "halve a number"


@pytest.mark.slow
def test_each_signal_can_be_switched_off():
    """`none` for two of the three: only the third arrives; and a disabled SDK exports nothing."""
    off = {"OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "none"}
    with http_collector() as collector:
        common = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
        assert started(PROGRAM, **common, **off, OTEL_SERVICE_NAME="shop").returncode == 0
        assert set(collector.paths) == {"/v1/traces"}
        assert collector.resources[0]["service.name"] == "shop"
        collector.paths.clear()
        assert started(PROGRAM, **common, OTEL_SDK_DISABLED="true").returncode == 0
        assert collector.paths == []


@pytest.mark.slow
@pytest.mark.timed
@pytest.mark.parametrize("protocol", [pytest.param("grpc", marks=pytest.mark.long), "http/protobuf"])
def test_a_collector_that_does_not_answer_holds_nothing_up(protocol: str):
    """It takes connections and says nothing: the program answers, and ends a short time later."""
    began = time.monotonic()
    quiet = started(PROGRAM)
    without_s = time.monotonic() - began
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        env = {"OTEL_EXPORTER_OTLP_TIMEOUT": "60", "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
        began = time.monotonic()
        done = started(PROGRAM, OTEL_EXPORTER_OTLP_ENDPOINT=url, **env)
        with_s = time.monotonic() - began
    assert (quiet.returncode, quiet.stdout) == (done.returncode, done.stdout) == (0, "hello\n")
    assert with_s < without_s * 4 + 8  # the exporters would wait for a minute, and thirty seconds to shut down


@pytest.mark.slow
def test_a_dead_collector_changes_nothing():
    """Nothing listens where the variables point: the same answer, the same exit code."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    done = started(PROGRAM, OTEL_EXPORTER_OTLP_ENDPOINT=url)
    assert (done.returncode, done.stdout) == (0, "hello\n"), done.stderr


@pytest.mark.slow
def test_a_provider_of_the_application_is_used():
    """The application has set a TracerProvider: Lyra's spans go there, inside the application's own span."""
    done = started(APPLICATION)
    assert done.returncode == 0, done.stderr
    rows = {
        " ".join(name): rest
        for *name, kind, parent, own, error in (line.split(" ") for line in done.stdout.splitlines())
        for rest in [(kind, parent, own, error)]
    }
    assert rows["session Coder"][1] == rows["application"][2]
    assert rows["invoke_agent Coder"][1] == rows["session Coder"][2]
    assert rows["chat echo"][1] == rows["invoke_agent Coder"][2]
    assert rows["GET /x"][:2] == ("SERVER", str(int("00f067aa0ba902b7", 16)))
    assert rows["GET /x"][3] == "500"


@pytest.mark.parametrize(
    ("env", "wanted"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "x"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4317"}, True),
        ({"OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": "http://x:4317"}, True),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
        ({"OTEL_TRACES_EXPORTER": "console", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_what_asks_for_an_export(env, wanted, monkeypatch):
    """An endpoint or an exporter does; a name of the service does not; disabling wins."""
    monkeypatch.setattr("lyra.observe.otel.requests.has_own_provider", lambda: False)
    assert is_wanted(env) is wanted


@pytest.mark.parametrize(
    ("env", "module"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4317"}, "grpc"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:4318"}, "http"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, "http"),
        (
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:1",
                "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
                "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc",
            },
            "grpc",
        ),
    ],
)
def test_the_protocol_is_chosen_by_the_variables(env: dict[str, str], module: str):
    """The signal's own variable, else the common one, else the usual port of HTTP, else gRPC."""
    exporter: Any = exporter_for("traces", env)
    assert f".{module}." in type(exporter).__module__
    exporter.shutdown()


@pytest.mark.parametrize(
    "env",
    [
        {"OTEL_TRACES_EXPORTER": "jaeger"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
    ],
)
def test_a_word_that_is_not_known_is_refused(env):
    """An exporter or protocol that does not exist is an error with the words that do."""
    with pytest.raises(ConfigError, match="not known"):
        exporter_for("traces", env)


def test_content_is_asked_for_by_its_variable():
    """The words of the conventions, in any case; anything else is no content."""
    name = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
    assert (
        read_content_places({})
        == read_content_places({name: "NO_CONTENT"})
        == read_content_places({name: "false"})
        == set()
    )
    assert read_content_places({name: "true"}) == read_content_places({name: "SPAN_ONLY"}) == {"span"}
    assert read_content_places({name: "EVENT_ONLY"}) == {"event"}
    assert read_content_places({name: "span_and_event"}) == {"span", "event"}
