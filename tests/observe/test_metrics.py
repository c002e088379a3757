"""Figures for Prometheus: valid text, the promised names, durations of the Events, bounded labels."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from lyra import Agent, Kernel, tool
from lyra.core.event import Event
from lyra.errors import LyraError, ModelError
from lyra.observe import PrometheusMetrics, attach_metrics
from lyra.observe.metrics import LABEL_VALUES_MAX, METRICS
from tests.agents.support import calls, clock_here, run, says, virtual

KEY = "sk-ant-" + "planted0123456789abcdef"


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def samples(metrics: PrometheusMetrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    body, content_type = metrics.render()
    assert content_type.startswith("text/plain; version=0.0.4")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def value(metrics: PrometheusMetrics, name: str, **labels: str) -> Any:
    return samples(metrics).get((name, tuple(sorted(labels.items()))))


def model_called(model: str = "sim", **more: Any) -> Event:
    data = {
        "trace_id": "a" * 32,
        "span_id": "b" * 16,
        "agent": "Coder",
        "model": model,
        "input_tokens": 3,
        "output_tokens": 4,
        "cost_usd": 0.5,
        "latency_ms": 1500,
        "status": "ok",
        "retries": 0,
        "parent_span": None,
    }
    return Event(0, 1.0, "p1", "model.called", {**data, **more})


def test_every_name_of_the_table_is_written_with_its_type():
    """The text parses; each metric of the table has its family, help and type before anything was counted."""
    body, _ = PrometheusMetrics().render()
    families = {family.name: family for family in text_string_to_metric_families(body.decode())}
    for name, row in METRICS.items():
        family = families[name.removesuffix("_total") if row.type == "counter" else name]
        assert (family.type, family.documentation) == (row.type, row.help)


def test_an_agent_at_work_is_counted():
    """Model calls, tokens, money, tools, turns and sessions of a real run, with the durations of its clock."""
    price = {"input_usd_per_mtok": 1, "output_usd_per_mtok": 2}
    model = says({**calls("add", a=1, b=2), "first_s": 2}, {**calls("gone"), "first_s": 1}, "done", price=price)

    async def main() -> PrometheusMetrics:
        async with Kernel(clock=clock_here()) as kernel:
            metrics = attach_metrics(kernel)
            assert attach_metrics(kernel) is metrics
            process = await kernel.spawn(Agent("Coder", model=model, tools=[add]))
            await process.send("go")
            assert value(metrics, "sessions_active") == 1
            assert value(metrics, "lyra_interrupts_pending") == 0
            assert value(metrics, "memory_usage_bytes") > 1_000_000
        return metrics

    metrics = virtual(main())
    assert value(metrics, "llm_requests_total", model="sim", status="ok") == 3
    assert value(metrics, "lyra_llm_calls_total", provider="sim", model="sim", status="ok") == 3
    assert value(metrics, "llm_request_duration_seconds_sum", model="sim") == 3
    assert value(metrics, "llm_request_duration_seconds_bucket", model="sim", le="1.0") == 2
    assert value(metrics, "llm_tokens_input_total", model="sim") > 0
    assert value(metrics, "llm_tokens_output_total", model="sim") > 0
    assert value(metrics, "lyra_cost_usd_total", agent="Coder", model="sim") > 0
    assert value(metrics, "context_tokens_current", agent="Coder") > 0
    assert value(metrics, "cache_misses_total", model="sim") == 3
    assert value(metrics, "tool_calls_total", tool="add") == 1
    assert value(metrics, "tool_success_total", tool="add") == 1
    assert value(metrics, "tool_errors_total", tool="other") == 1  # a name that the model made up is no label
    assert value(metrics, "tool_calls_total", tool="gone") is None
    assert value(metrics, "lyra_errors_total", part="tool", error="not_found") == 1
    assert value(metrics, "lyra_agent_executions_total", agent="Coder", status="ok") == 1
    assert value(metrics, "lyra_agent_duration_seconds_sum", agent="Coder") == 3
    assert value(metrics, "sessions_total") == 1
    assert value(metrics, "sessions_active") == 0
    assert value(metrics, "session_duration_seconds_sum") == 3


def test_failures_are_counted_by_their_kind():
    """A model that refuses: an error of the model and a failed turn."""

    async def main() -> PrometheusMetrics:
        async with Kernel() as kernel:
            metrics = attach_metrics(kernel)
            process = await kernel.spawn(Agent("Coder", model=says({"error": {"kind": "auth"}})))
            with pytest.raises(ModelError):
                await process.send("go")
        return metrics

    metrics = run(main())
    assert value(metrics, "llm_errors_total", model="sim", error="auth") == 1
    assert value(metrics, "lyra_errors_total", part="model", error="auth") == 1
    assert value(metrics, "lyra_errors_total", part="agent", error="auth") == 1


def test_an_agent_that_is_ended_on_purpose_is_no_error():
    """Killed with a reason while its model answers: the turn and the call count as cancelled, and as no failure."""

    async def main() -> PrometheusMetrics:
        async with Kernel(clock=clock_here()) as kernel:
            metrics = attach_metrics(kernel)
            process = await kernel.spawn(Agent("Coder", model=says({"text": "late", "first_s": 60})))
            asked = asyncio.ensure_future(process.send("go"))
            await kernel.outside_pause(1.0)
            await process.kill("budget review")
            with pytest.raises(LyraError):
                await asked
            await process.wait()
        return metrics

    metrics = virtual(main())
    assert value(metrics, "lyra_agent_executions_total", agent="Coder", status="cancelled") == 1
    assert value(metrics, "llm_requests_total", model="sim", status="cancelled") == 1
    assert not [name for name, labels in samples(metrics) if "errors_total" in name and labels]


def test_pipelines_are_counted_with_their_duration():
    """A pipeline that ends, its stages, and how long it took by the kernel's clock."""

    async def first(envelope):
        await asyncio.sleep(4)
        return {"ok": True}

    async def main() -> PrometheusMetrics:
        async with Kernel(clock=clock_here()) as kernel:
            metrics = attach_metrics(kernel)
            assert not kernel.listening  # programs without agents pay nothing
            kernel.register_agent("first", first)
            config = {"name": "review", "stages": [{"name": "first", "agent": "first"}]}
            async for _ in kernel.execute_pipeline(config, "text"):
                pass
            assert sum(value for (name, _), value in samples(metrics).items() if name == "lyra_processes") >= 1
        return metrics

    metrics = virtual(main())
    assert value(metrics, "lyra_pipeline_executions_total", pipeline="review", status="completed") == 1
    assert value(metrics, "lyra_pipeline_duration_seconds_sum", pipeline="review") == 4
    assert value(metrics, "lyra_stage_executions_total", agent="first", status="ok") == 1


def test_labels_are_bounded():
    """A thousand names make a hundred values; keys, long texts and odd characters become `other`."""
    metrics = PrometheusMetrics()
    for number in range(1000):
        metrics(model_called(f"sim/{number}"))
    for odd in (KEY, "x" * 500, 'a"b', "a\nb", "ü" * 3, ""):
        metrics(model_called("sim", agent=odd))
    rows = samples(metrics)
    models = {dict(labels)["model"] for (name, labels) in rows if name == "llm_requests_total"}
    assert len(models) == LABEL_VALUES_MAX + 1
    assert value(metrics, "llm_requests_total", model="other", status="ok") == 906
    assert value(metrics, "context_tokens_current", agent="other") == 3
    body, _ = metrics.render()
    assert KEY not in body.decode()
    assert b"p1" not in body


def test_requests_of_servers_are_counted():
    """gRPC by method and code, HTTP by route, method and status; an unknown method of HTTP is `other`."""
    metrics = PrometheusMetrics()
    metrics.grpc_request("KernelService/GetProcess", "NOT_FOUND", 0.02)
    metrics.http_request("/api/agents/{name}/chat", "post", 200, 0.2)
    metrics.http_request("/api/agents/{name}/chat", "FOO", 405, 0.2)
    assert value(metrics, "lyra_grpc_requests_total", method="KernelService/GetProcess", code="NOT_FOUND") == 1
    assert value(metrics, "lyra_grpc_request_duration_seconds_count", method="KernelService/GetProcess") == 1
    route = "/api/agents/{name}/chat"
    assert value(metrics, "lyra_http_requests_total", route=route, method="POST", status="200") == 1
    assert value(metrics, "lyra_http_requests_total", route=route, method="other", status="405") == 1
    assert value(metrics, "lyra_http_request_duration_seconds_sum", route=route, method="POST") == pytest.approx(0.2)


def test_gauges_of_the_kernel_are_those_of_now():
    """Questions and processes are read when asked for; a state that is empty again has 0."""

    async def main() -> None:
        async with Kernel() as kernel:
            metrics = attach_metrics(kernel)
            kernel.submit("w1", user_id="u", session_id="s", request_id="r")
            interrupt = kernel.create_interrupt("w1", "clarification", "which?", question="which?")
            assert value(metrics, "lyra_processes", state="new") == 1
            assert value(metrics, "lyra_interrupts_pending") == 1
            kernel.resolve_interrupt(interrupt.id, {"text": "this"}, user_id="u")
            kernel.terminate("w1")
            assert value(metrics, "lyra_interrupts_pending") == 0
            assert value(metrics, "lyra_processes", state="new") == 0
            assert value(metrics, "lyra_uptime_seconds") is not None

    run(main())


def test_the_cache_on_disk_is_measured(tmp_path, monkeypatch):
    """`cache_size_bytes` is what lies in the cache folder of this user."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    os.makedirs(tmp_path / "lyra" / "maps")
    (tmp_path / "lyra" / "maps" / "a.map").write_bytes(b"x" * 77)
    assert value(PrometheusMetrics(), "cache_size_bytes") == 77


def test_metrics_can_join_a_registry_of_the_application():
    """`REGISTRY.register(metrics)`: an application's own /metrics has them, too."""
    registry, metrics = CollectorRegistry(), PrometheusMetrics()
    metrics(model_called())
    registry.register(metrics)
    assert b'llm_requests_total{model="sim",status="ok"} 1.0' in generate_latest(registry)


def test_other_texts_are_appended():
    """`add_text`: figures of nodes, in the same page."""
    metrics = PrometheusMetrics()
    metrics.add_text(lambda: '# TYPE sir_confidence gauge\nsir_confidence{node="a"} 0.5\n')
    assert value(metrics, "sir_confidence", node="a") == 0.5
