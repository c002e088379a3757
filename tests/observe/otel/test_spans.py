"""Spans that a collector receives: the tree, the conventions, propagation in both directions, sampling, content."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from lyra import Agent, Kernel, tool
from lyra.core import trace_context
from lyra.core.rights.capability import Grant
from lyra.core.trace_context import continued, format_traceparent, parse_traceparent
from lyra.errors import LyraError, ModelError
from lyra.observe.otel import attach_otel, grpc_span, request_span
from lyra.observe.otel.conventions import SHAPES
from lyra.tools.http_guard import fetch
from lyra.vega.runtime.run import run as run_vega
from tests.agents.support import calls, clock_here, model_called, run, says, virtual
from tests.kernel.conftest import crash
from tests.observe.otel.collector import Collector, attributes, grpc_collector

KEY = "sk-ant-" + "planted0123456789abcdef"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@pytest.fixture
def collector() -> Iterator[Collector]:
    with grpc_collector() as receiving:
        yield receiving


@contextmanager
def exporting(collector: Collector, **settings: Any) -> Iterator[TracerProvider]:
    """A provider whose spans have all arrived at the end of the block."""
    provider = TracerProvider(shutdown_on_exit=False, **settings)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=collector.url, insecure=True)))
    try:
        yield provider
    finally:
        provider.shutdown()


def coder(*replies: Any) -> Agent:
    price = {"input_usd_per_mtok": 1, "output_usd_per_mtok": 2}
    return Agent("Coder", model=says(*replies, price=price), tools=[add], temperature=0.5)


def test_a_turn_that_is_ended_on_purpose_has_no_error_status(collector):
    """An agent is killed for a reason while its model answers: its spans say cancelled, and none is an error."""

    async def main() -> None:
        async with Kernel(clock=clock_here()) as kernel:
            attach_otel(kernel, tracer_provider=provider)
            process = await kernel.spawn(coder({"text": "late", "first_s": 60}))
            asked = asyncio.ensure_future(process.send("go"))
            await kernel.outside_pause(1.0)
            await process.kill("budget review")
            with pytest.raises(LyraError):
                await asked
            await process.wait()

    with exporting(collector) as provider:
        virtual(main())
    assert attributes(collector.span("invoke_agent Coder"))["lyra.status"] == "cancelled"
    assert [span.name for span in collector.spans if span.status.code or "error.type" in attributes(span)] == []


def test_session_agent_model_and_tool_are_a_tree(collector):
    """session > invoke_agent > chat, execute_tool; ids, times and statuses are those of the Events."""
    heard = []

    async def main() -> None:
        async with Kernel(clock=clock_here()) as kernel:
            attach_otel(kernel, tracer_provider=provider)
            attach_otel(kernel, tracer_provider=provider)  # a second call changes nothing
            kernel.on_event(heard.append, ["model.called", "agent.answered"])
            process = await kernel.spawn(coder({**calls("add", a=1, b=2), "first_s": 2}, "done"))
            await process.send("go")

    with exporting(collector) as provider:
        virtual(main())
    assert len(collector.spans) == 5
    session, turn = collector.span("session Coder"), collector.span("invoke_agent Coder")
    tool_span = collector.span("execute_tool add")
    first, second = sorted(
        (span for span in collector.spans if span.name == "chat sim"), key=lambda span: span.start_time_unix_nano
    )
    assert session.parent_span_id == b""
    assert turn.parent_span_id == session.span_id
    assert {first.parent_span_id, second.parent_span_id, tool_span.parent_span_id} == {turn.span_id}
    assert len({span.trace_id for span in collector.spans}) == 1
    assert {event.data["span_id"] for event in heard} == {span.span_id.hex() for span in (first, second, turn)}
    assert first.end_time_unix_nano - first.start_time_unix_nano == 2_000_000_000
    assert (first.kind, turn.kind) == (3, 1)  # client, internal
    chat = attributes(first)
    assert chat["gen_ai.operation.name"] == "chat"
    assert (chat["gen_ai.provider.name"], chat["gen_ai.request.model"]) == ("sim", "sim")
    assert chat["gen_ai.request.temperature"] == 0.5
    assert chat["gen_ai.usage.input_tokens"] > 0
    assert chat["gen_ai.usage.output_tokens"] > 0
    assert chat["gen_ai.response.finish_reasons"] == ["tool_calls"]
    assert chat["gen_ai.agent.name"] == "Coder"
    assert (chat["lyra.status"], chat["lyra.retries"], chat["lyra.latency_ms"]) == ("ok", 0, 2000)
    assert chat["lyra.cost_usd"] > 0
    assert attributes(turn)["gen_ai.operation.name"] == "invoke_agent"
    assert attributes(turn)["lyra.model_calls"] == 2
    call = attributes(tool_span)
    assert (call["gen_ai.operation.name"], call["gen_ai.tool.name"], call["gen_ai.tool.type"]) == (
        *("execute_tool", "add"),
        "function",
    )
    assert call["gen_ai.tool.call.id"]
    assert attributes(session)["gen_ai.conversation.id"] == call["gen_ai.conversation.id"] != ""
    assert all("error.type" not in attributes(span) for span in collector.spans)


def test_failures_have_their_type(collector):
    """A model that refuses, and a tool that does not exist: error.type and the status of the span."""

    async def main() -> None:
        async with Kernel() as kernel:
            attach_otel(kernel, tracer_provider=provider)
            process = await kernel.spawn(coder(calls("gone"), {"error": {"kind": "auth"}}))
            with pytest.raises(ModelError):
                await process.send("go")

    with exporting(collector) as provider:
        run(main())
    assert attributes(collector.span("execute_tool gone"))["error.type"] == "not_found"
    failed = [span for span in collector.spans if span.name == "chat sim" and span.status.code == 2]
    assert [attributes(span)["error.type"] for span in failed] == ["auth"]
    turn = collector.span("invoke_agent Coder")
    assert (attributes(turn)["error.type"], turn.status.code, turn.status.message) == ("auth", 2, "auth")


def test_helpers_belong_to_the_call_that_asked_them(collector):
    """execute_tool helper > invoke_agent helper: the spawned process has the parent's context."""
    helper = Agent("helper", model=says("42"))
    lead = Agent("lead", model=says(calls("helper", task="go"), "{result}"), tools=[helper])

    async def main() -> None:
        async with Kernel() as kernel:
            attach_otel(kernel, tracer_provider=provider)
            process = await kernel.spawn(lead)
            await process.send("go")

    with exporting(collector) as provider:
        run(main())
    assert collector.span("invoke_agent helper").parent_span_id == collector.span("execute_tool helper").span_id
    assert [span.name for span in collector.spans if span.name.startswith("session")] == ["session lead"]
    assert len({span.trace_id for span in collector.spans}) == 1


def test_content_is_left_out_unless_it_is_asked_for(collector, monkeypatch):
    """By default no prompt, no answer, no arguments; with the variable they are there, with keys masked."""

    async def main() -> None:
        async with Kernel() as kernel:
            attach_otel(kernel, tracer_provider=provider)
            process = await kernel.spawn(coder(calls("add", a=11, b=22), "the answer"))
            await process.send(f"the question {KEY}")

    with exporting(collector) as provider:
        run(main())
    everything = str(collector.requests)
    assert "question" not in everything
    assert "the answer" not in everything
    assert "arguments" not in everything
    collector.requests.clear()
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY")
    with exporting(collector) as provider:
        run(main())
    last = max((span for span in collector.spans if span.name == "chat sim"), key=lambda span: span.end_time_unix_nano)
    said = json.loads(attributes(last)["gen_ai.input.messages"])
    assert said[0]["role"] == "user"
    assert said[0]["parts"][0]["content"].startswith("the question")
    assert said[1]["parts"][0]["type"] == "tool_call"
    assert said[2]["parts"][0]["response"] == "33"
    (answer,) = json.loads(attributes(last)["gen_ai.output.messages"])
    assert (answer["parts"], answer["finish_reason"]) == ([{"type": "text", "content": "the answer"}], "end")
    call = attributes(collector.span("execute_tool add"))
    assert json.loads(call["gen_ai.tool.call.arguments"]) == {"a": 11, "b": 22}
    assert json.loads(call["gen_ai.tool.call.result"]) == "33"
    assert KEY not in str(collector.requests)


def test_an_incoming_traceparent_is_continued(collector):
    """A question that came with a traceparent belongs to that trace; the next one without it does not."""

    async def main() -> None:
        async with Kernel() as kernel:
            attach_otel(kernel, tracer_provider=provider)
            process = await kernel.spawn(coder("yes"))
            with continued(f"00-{TRACE}-{PARENT}-01"):
                await process.send("a")
            await process.send("b")
            with continued("00-nonsense"):
                await process.send("c")

    with exporting(collector) as provider:
        run(main())
    turns = [span for span in collector.spans if span.name == "invoke_agent Coder"]
    session = collector.span("session Coder")
    assert (turns[0].trace_id.hex(), turns[0].parent_span_id.hex()) == (TRACE, PARENT)
    assert [turn.parent_span_id for turn in turns[1:]] == [session.span_id] * 2
    assert [span.trace_id.hex() for span in collector.spans if span.name == "chat sim"].count(TRACE) == 1


def test_what_a_caller_does_not_sample_is_not_exported(collector):
    """Flags 00 in the traceparent: neither the turn nor its calls arrive."""

    async def main() -> None:
        async with Kernel() as kernel:
            attach_otel(kernel, tracer_provider=provider)
            with continued(f"00-{TRACE}-{PARENT}-00"):
                process = await kernel.spawn(coder(calls("add", a=1, b=2), "yes"))
                await process.send("a")

    with exporting(collector) as provider:
        run(main())
    assert collector.spans == []


def test_traces_are_sampled_as_a_whole(collector):
    """With a ratio a trace arrives with all its spans or not at all."""

    async def main() -> None:
        async with Kernel() as kernel:
            attach_otel(kernel, tracer_provider=provider)
            for _ in range(30):
                process = await kernel.spawn(coder("yes"))
                await process.send("a")

    with exporting(collector, sampler=ParentBased(TraceIdRatioBased(0.5))) as provider:
        run(main())
    sizes = {span.trace_id: 0 for span in collector.spans}
    for span in collector.spans:
        sizes[span.trace_id] += 1
    assert set(sizes.values()) == {3}
    assert 3 <= len(sizes) <= 27


def test_spans_of_the_application_nest_with_lyras(collector):
    """An agent asked inside the application's span belongs to it; a tool's own spans belong to the tool call."""
    names: dict[str, Any] = {}

    @tool
    def look() -> str:
        """Look."""
        with names["tracer"].start_as_current_span("inside"):
            return "seen"

    async def main() -> None:
        async with Kernel() as kernel:
            attach_otel(kernel, tracer_provider=provider)
            with names["tracer"].start_as_current_span("application"):
                process = await kernel.spawn(Agent("Coder", model=says(calls("look"), "done"), tools=[look]))
                await process.send("go")
            assert not trace.get_current_span().get_span_context().is_valid

    with exporting(collector) as provider:
        names["tracer"] = provider.get_tracer("app")
        run(main())
    assert collector.span("session Coder").parent_span_id == collector.span("application").span_id
    assert collector.span("invoke_agent Coder").parent_span_id == collector.span("session Coder").span_id
    assert collector.span("inside").parent_span_id == collector.span("execute_tool look").span_id
    assert len({span.trace_id for span in collector.spans}) == 1


@contextmanager
def recording_server() -> Iterator[tuple[str, list[dict[str, str]]]]:
    """A model server that answers in OpenAI's format and records the headers it was sent."""
    seen: list[dict[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            seen.append({name.lower(): value for name, value in self.headers.items()})
            self.rfile.read(int(self.headers["content-length"]))
            piece = {"id": "c1", "model": "m-1", "choices": [{"index": 0, "delta": {"content": "hi"}}]}
            end = {"id": "c1", "model": "m-1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
            body = f"data: {json.dumps(piece)}\n\ndata: {json.dumps(end)}\n\ndata: [DONE]\n\n".encode()
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Quiet."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_requests_to_models_name_their_span(collector, monkeypatch):
    """`traceparent` of a model call has the id of its chat span; nothing is sent where nothing is exported."""

    async def main(*, export: bool) -> None:
        async with Kernel() as kernel:
            if export:
                attach_otel(kernel, tracer_provider=provider)
            else:
                kernel.on_event(lambda _: None)
            process = await kernel.spawn(Agent("Coder", model="openai/m-1"))
            await process.send("go")

    with recording_server() as (url, seen), exporting(collector) as provider:
        monkeypatch.setenv("OPENAI_BASE_URL", url)
        monkeypatch.setenv("OPENAI_API_KEY", "k" * 20)
        run(main(export=False))
        run(main(export=True))
    assert "traceparent" not in seen[0]
    sent = parse_traceparent(seen[1]["traceparent"])
    chat = collector.span("chat m-1")
    assert (sent.trace_id, sent.span_id) == (chat.trace_id.hex(), chat.span_id.hex())
    told = attributes(chat)
    assert (told["gen_ai.provider.name"], told["gen_ai.response.model"], told["gen_ai.response.id"]) == (
        *("openai", "m-1"),
        "c1",
    )
    assert told["gen_ai.response.finish_reasons"] == ["end"]


def test_requests_of_web_tools_name_their_span(collector):
    """What a tool fetches carries the span of the tool call."""
    names: dict[str, str] = {}

    @tool
    async def look() -> str:
        """Look."""
        answer = await fetch(f"{names['url']}/x", grant=Grant.all(), method="POST", body=b"{}", inside={names["place"]})
        return str(answer.status)

    async def main() -> None:
        async with Kernel() as kernel:
            attach_otel(kernel, tracer_provider=provider)
            agent = Agent("Coder", model=says(calls("look"), "{result}"), tools=[look])
            assert await (await kernel.spawn(agent)).send("go") == "200"

    with recording_server() as (url, seen), exporting(collector) as provider:
        names |= {"url": url, "place": url.removeprefix("http://").removesuffix("/v1")}
        run(main())
    sent = parse_traceparent(seen[0]["traceparent"])
    assert sent.span_id == collector.span("execute_tool look").span_id.hex()


def test_nothing_is_connected_after_the_last_kernel(collector):
    """The bridge goes with the kernel that set it."""

    async def main() -> None:
        async with Kernel() as first, Kernel() as second:
            attach_otel(first, tracer_provider=provider)
            attach_otel(second, tracer_provider=provider)
            assert trace_context._bridge is not None

    with exporting(collector) as provider:
        run(main())
    assert trace_context._bridge is None
    headers: dict[str, str] = {}
    with continued(f"00-{TRACE}-{PARENT}-01"):
        trace_context.outgoing(headers)
    assert headers == {}


def test_a_durable_session_keeps_its_trace(collector, tmp_path):
    """After a restart the session goes on in the same trace, and an unfinished question in that of its caller."""
    store = tmp_path / "lyra.db"

    async def first() -> None:
        model = says({"text": "a"}, {"text": "b", "first_s": 600})
        agent = Agent("Coder", model=model)
        async with Kernel(store) as kernel:
            attach_otel(kernel, tracer_provider=provider)
            process = await kernel.spawn(agent, pid="coder")
            await process.send("one")
            with continued(f"00-{TRACE}-{PARENT}-01"):
                asking = asyncio.ensure_future(process.send("two"))
                while len(model.requests) < 2:
                    await asyncio.sleep(0.01)
            await kernel.close(drain_s=0)
            await asyncio.gather(asking, return_exceptions=True)

    async def second() -> None:
        answered = asyncio.Event()
        async with Kernel(store) as kernel:
            attach_otel(kernel, tracer_provider=provider)
            kernel.on_event(lambda event: answered.set(), ["agent.answered"])
            process = await kernel.spawn(Agent("Coder", model=says("b")), pid="coder")
            await answered.wait()
            await process.send("three")

    with exporting(collector) as provider:
        asyncio.run(asyncio.wait_for(first(), 60))
        asyncio.run(asyncio.wait_for(second(), 60))
    sessions = [span for span in collector.spans if span.name == "session Coder"]
    assert len(sessions) == 2
    assert len({span.trace_id for span in sessions}) == 1
    assert [attributes(span)["lyra.status"] for span in sessions] == ["began", "began"]
    turns = [span for span in collector.spans if span.name == "invoke_agent Coder"]
    assert [(span.trace_id.hex(), span.parent_span_id.hex()) for span in turns[1:2]] == [(TRACE, PARENT)]
    assert turns[2].parent_span_id == sessions[1].span_id


def test_the_span_above_a_turn_is_exported_while_the_session_lasts(collector, tmp_path):
    """A conversation that goes on for days: the parent of its first turn has arrived while it is open. After a kill in
    the middle of a turn, the call that was exported before has its parent once the turn has been answered."""
    store = tmp_path / "lyra.db"

    async def first() -> None:
        model = says({**calls("add", a=1, b=2)}, {"text": "b", "first_s": 600})
        kernel = Kernel(store)
        await kernel.start()
        attach_otel(kernel, tracer_provider=provider)
        process = await kernel.spawn(Agent("Coder", model=model, tools=[add]), pid="coder")
        asking = asyncio.ensure_future(process.send("one"))
        while len(model.requests) < 2:
            await asyncio.sleep(0.01)
        provider.force_flush()
        names = [span.name for span in collector.spans]
        assert "session Coder" in names
        assert "chat sim" in names
        crash(kernel)
        await kernel.parts["otel"].close()  # no process keeps the bridge of one that was killed
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)

    async def second() -> None:
        answered = asyncio.Event()
        async with Kernel(store) as kernel:
            attach_otel(kernel, tracer_provider=provider)
            kernel.on_event(lambda event: answered.set(), ["agent.answered"])
            await kernel.spawn(Agent("Coder", model=says({"text": "b"}), tools=[add]), pid="coder")
            await answered.wait()

    with exporting(collector) as provider:
        asyncio.run(asyncio.wait_for(first(), 60))
        asyncio.run(asyncio.wait_for(second(), 60))
    known = {span.span_id for span in collector.spans}
    assert [span.name for span in collector.spans if span.parent_span_id and span.parent_span_id not in known] == []


def test_spans_of_vega_programs_arrive_with_their_notes(collector):
    """trace::span, trace::event and trace::set_attribute: a span with an event and an attribute, keys masked."""
    source = f"""
    let span = trace::span("work");
    trace::event("noted {KEY}");
    trace::set_attribute("answer", 42);
    trace::set_attribute("note", "{KEY}");
    span.end();
    """

    async def main() -> None:
        async with Kernel() as kernel:
            attach_otel(kernel, tracer_provider=provider)
            await run_vega(source, kernel=kernel)

    with exporting(collector) as provider:
        run(main())
    span = collector.span("work")
    assert attributes(span)["answer"] == 42
    assert [event.name.startswith("noted") for event in span.events] == [True]
    assert KEY not in str(collector.requests)


def test_a_request_of_a_server_is_continued_without_an_exporter():
    """`request_span` gives the work of a request the client's trace, also where nothing is exported."""
    with request_span("GET /", {"traceparent": f"00-{TRACE}-{PARENT}-01"}) as span:
        inside = trace_context.enclosing_span()
        assert inside is not None
        assert format_traceparent(inside) == f"00-{TRACE}-{PARENT}-01"
        assert span.place == inside
        span.end_with({"http.response.status_code": 200})
    assert trace_context.enclosing_span() is None


def test_a_call_of_grpc_is_continued_too():
    """`grpc_span` takes what a server has: the method, and the traceparent or nothing."""
    with grpc_span("KernelService/GetProcess", f"00-{TRACE}-{PARENT}-01") as span:
        assert span.place is not None
        assert span.place.trace_id == TRACE
    with grpc_span("KernelService/GetProcess", "") as span:
        assert span.place is None


@pytest.fixture
def request_exporter(monkeypatch):
    """What the provider of the application exports."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", provider)
    return exporter


def test_a_request_is_a_span_of_the_applications_provider(request_exporter):
    """With its name, its attributes, the client's trace and how it ended; a call over gRPC likewise."""
    headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    with request_span("GET /x", headers, {"http.request.method": "GET"}) as span:
        span.end_with({"http.response.status_code": 500}, error="store_failed")
    with grpc_span("KernelService/GetProcess", headers["traceparent"]):
        pass
    over_http, over_grpc = request_exporter.get_finished_spans()
    assert (over_http.name, over_http.status.description) == ("GET /x", "store_failed")
    assert dict(over_http.attributes) == {
        "http.request.method": "GET",
        "http.response.status_code": 500,
        "error.type": "store_failed",
    }
    assert over_grpc.name == over_grpc.attributes["rpc.method"] == "KernelService/GetProcess"
    assert {f"{span.context.trace_id:032x}" for span in (over_http, over_grpc)} == {TRACE}


def test_a_stored_call_with_cached_tokens_is_exported() -> None:
    """A journal does not tell the tokens that were written to a provider's cache."""
    stored = model_called(cache_read_tokens=5).to_data()
    told = SHAPES["model.called"].attributes(stored, "p1")
    assert told["gen_ai.usage.cache_read.input_tokens"] == 5
    assert told["gen_ai.usage.cache_creation.input_tokens"] == 0
