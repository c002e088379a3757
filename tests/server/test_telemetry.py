"""What `lyra serve` tells the outside of its work: spans in the trace of the client, metrics, a log in JSON."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from lyra.server.generated import engine_pb2 as pb
from tests import warm
from tests.observe.otel.collector import attributes, grpc_collector

pytestmark = pytest.mark.slow

TOKEN = "operator-token-0123456789"
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SETUP = """
from lyra import Agent

def setup(kernel):
    agent = Agent("echo", model="sim/echo")
    kernel.register(agent)
    kernel.register_agent("echo", agent)
"""


def asked(url: str, body: dict[str, Any] | None = None, **headers: str) -> str:
    data = None if body is None else json.dumps(body).encode()
    named = {"authorization": f"Bearer {TOKEN}", "content-type": "application/json", **headers}
    with urllib.request.urlopen(urllib.request.Request(url, data, named), timeout=60) as answer:
        return str(answer.read().decode())


def test_a_served_kernel_is_observed(tmp_path: Path) -> None:
    """A chat over HTTP and a call over gRPC, each with a traceparent: the collector has the agent's spans in the trace
    of the client; /metrics parses and counts both; stderr has the log as JSON lines, and no token is anywhere."""
    (tmp_path / "tokens").write_text(f"{TOKEN}\n")
    (tmp_path / "tokens").chmod(0o600)
    (tmp_path / "setup.py").write_text(SETUP)
    command = [
        *warm.command("lyra.cli.main:main"),
        "serve",
        "--grpc",
        "127.0.0.1:0",
        "--http",
        "127.0.0.1:0",
        "--db",
        "memory",
    ]
    command += ["--token-file", str(tmp_path / "tokens"), "--load", str(tmp_path / "setup.py")]
    command += ["--log-format", "json", "--log-level", "info"]
    with grpc_collector() as collector:
        env = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}
        server = subprocess.Popen(
            command, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert server.stdout is not None
        ready = json.loads(server.stdout.readline())
        chat = asked(
            f"{ready['http']}/api/agents/echo/chat", {"message": "hello"}, traceparent=f"00-{TRACE}-{PARENT}-01"
        )
        with grpc.insecure_channel(ready["grpc"]) as channel:
            call = channel.unary_unary(
                "/lyra.engine.v1.KernelService/GetProcessCounts",
                request_serializer=pb.GetProcessCountsRequest.SerializeToString,
                response_deserializer=pb.ProcessCountsResponse.FromString,
            )
            identity = [("authorization", f"Bearer {TOKEN}"), ("traceparent", f"00-{TRACE}-{PARENT}-01")]
            call(pb.GetProcessCountsRequest(), metadata=identity, timeout=60)
        metrics = asked(f"{ready['http']}/metrics")
        server.send_signal(signal.SIGTERM)
        _, log = server.communicate(timeout=60)
        assert server.returncode == 0, log
    assert json.loads(chat)["text"] == "hello"
    turn = collector.span("invoke_agent echo")
    assert turn.trace_id.hex() == TRACE
    counted = collector.span("KernelService/GetProcessCounts")
    assert (counted.trace_id.hex(), counted.parent_span_id.hex()) == (TRACE, PARENT)
    assert attributes(counted)["rpc.response.status_code"] == "OK"
    assert attributes(collector.span("chat echo"))["gen_ai.operation.name"] == "chat"
    samples = {
        (sample.name, *sorted(sample.labels.items()))
        for family in text_string_to_metric_families(metrics)
        for sample in family.samples
        if sample.value > 0
    }
    assert ("lyra_grpc_requests_total", ("code", "OK"), ("method", "KernelService/GetProcessCounts")) in samples
    assert any(name == "lyra_http_requests_total" for name, *_ in samples)
    assert ("llm_requests_total", ("model", "sim/echo"), ("status", "ok")) in samples
    rows = [json.loads(line) for line in log.splitlines() if line.startswith('{"time"')]
    answered = next(row for row in rows if row["message"] == "agent.answered")
    assert answered["trace_id"] == TRACE
    assert TOKEN not in log + metrics + str(collector.requests)
