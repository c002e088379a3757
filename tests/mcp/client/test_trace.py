"""A call of an MCP server carries the trace of the agent's tool call, where traces are exported, and nothing else."""

from __future__ import annotations

import json

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from lyra.agents.agent import Agent
from lyra.kernel.kernel import Kernel
from lyra.observe.otel import attach_otel
from tests.agents.support import calls, says
from tests.mcp.support import run, tiny, using


def test_the_server_is_told_the_span_of_the_tool_call(tmp_path):
    """`_meta.traceparent` of `tools/call` names the span execute_tool; without an export there is none."""
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    async def main(*, export: bool) -> str:
        async with using(tiny(start="meta"), folder=tmp_path) as use, Kernel() as kernel:
            if export:
                attach_otel(kernel, tracer_provider=provider)
            agent = Agent(
                "assistant",
                model=says(calls("mcp__tiny__meta"), "{result}"),
                tools=[use.servers],
                permissions={"allow": ["mcp__tiny__*"]},
            )
            return str(await (await kernel.spawn(agent)).send("go"))

    assert "traceparent" not in json.loads(run(main(export=False)))
    told = json.loads(run(main(export=True)))["traceparent"].split("-")
    (span,) = [span for span in exporter.get_finished_spans() if span.name.startswith("execute_tool")]
    assert (told[1], told[2]) == (f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}")
