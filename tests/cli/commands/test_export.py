"""`lyra export`: a store as JSON lines, as SQLite and as spans at a collector."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from lyra import Agent, Kernel, tool
from lyra.errors import LyraError
from lyra.observe import SqliteRecords
from lyra.observe.otel import attach_otel
from tests.agents.support import calls, says
from tests.observe.otel.collector import attributes, grpc_collector, http_collector

KEY = "sk-ant-" + "planted0123456789abcdef"


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@pytest.fixture
def store(lyra: Any) -> Any:
    """A store in which an agent has called a model twice and a tool once."""
    path = lyra.folder / "lyra.db"

    async def main() -> None:
        price = {"input_usd_per_mtok": 1, "output_usd_per_mtok": 2}
        model = says(calls("add", a=1, b=2), "done", price=price)
        async with Kernel(path) as kernel:
            process = await kernel.spawn(Agent("Coder", model=model, tools=[add]), pid="coder")
            await process.send(f"go {KEY}")

    asyncio.run(main())
    return path


def test_events_as_json_lines(lyra, store):
    """Every row, a line each, with keys masked; the count is told."""
    told = lyra.json("export", str(store), "--to", "events.jsonl")
    lines = [json.loads(line) for line in (lyra.folder / "events.jsonl").read_text().splitlines()]
    assert told == {"to": "events.jsonl", "count": len(lines)}
    assert [line["seq"] for line in lines] == sorted(line["seq"] for line in lines)
    assert {"process.created", "effect.started", "effect.finished"} <= {line["kind"] for line in lines}
    assert KEY not in (lyra.folder / "events.jsonl").read_text()
    assert lyra.json("export", str(store), "--to", "few.jsonl", "--kind", "process.created")["count"] == 1
    assert lyra.json("export", str(store), "--to", "none.jsonl", "--pid", "other")["count"] == 0


def test_calls_and_spans_in_sqlite(lyra, store):
    """Two model calls and a tool call inside the session, with tokens and costs."""
    assert lyra.json("export", str(store), "--to", "trace.db")["count"] == 4
    with SqliteRecords(lyra.folder / "trace.db") as records:
        assert [(call["agent"], call["status"]) for call in records.calls()] == [("Coder", "ok")] * 2
        assert all(call["output_tokens"] > 0 and call["cost_usd"] > 0 for call in records.calls())
        (tree,) = records.tree()
    assert tree.span.kind == "session"
    assert [child.span.kind for child in tree.children] == ["model", "tool", "model"]
    with closing(sqlite3.connect(lyra.folder / "trace.db")) as db:
        assert db.execute("SELECT COUNT(*) FROM spans").fetchone() == (4,)


@pytest.mark.parametrize(("collecting", "protocol"), [(grpc_collector, "grpc"), (http_collector, "http/protobuf")])
def test_spans_at_a_collector(lyra, store, collecting, protocol):
    """The same spans over OTLP, twice with the same ids."""
    with collecting() as collector:
        env = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
        with pytest.MonkeyPatch.context() as patch:
            for name, value in env.items():
                patch.setenv(name, value)
            assert lyra.json("export", str(store), "--to", "otlp", **env)["count"] == 4
            first = {span.span_id: span.name for span in collector.spans}
            assert lyra.json("export", str(store), "--to", "otlp", **env)["count"] == 4
        assert sorted(first.values()) == ["chat sim", "chat sim", "execute_tool add", "session Coder"]
        assert {span.span_id for span in collector.spans} == first.keys()
        session = next(span for span in collector.spans if span.name == "session Coder")
        inner = [span for span in collector.spans if span.name != "session Coder"]
        assert {span.parent_span_id for span in inner} == {session.span_id}
        assert attributes(inner[0])["lyra.pid"] == "coder"


def test_the_trace_is_that_of_the_run(lyra, tmp_path):
    """A session that was exported while it ran, and from its store: one trace id."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter, path = InMemorySpanExporter(), lyra.folder / "live.db"
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))

    async def main() -> None:
        async with Kernel(path) as kernel:
            attach_otel(kernel, tracer_provider=provider)
            await (await kernel.spawn(Agent("Coder", model=says("done")), pid="coder")).send("go")

    asyncio.run(main())
    lyra.json("export", str(path), "--to", "trace.db")
    with SqliteRecords(lyra.folder / "trace.db") as records:
        (span, *_) = records.spans()
    assert {f"{live.context.trace_id:032x}" for live in exporter.get_finished_spans()} == {span.trace_id}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--to", "x.txt"), ".jsonl"),
        (("--to", "otlp"), "OTEL_EXPORTER_OTLP_ENDPOINT"),
        (("--to", "x.db", "--kind", "process.created"), "--kind is for .jsonl"),
        (("--to", "x.jsonl", "--kind", "nonsense"), "nonsense"),
        (("--to", "lyra.db"), "there already"),
    ],
)
def test_mistakes_are_told(lyra, store, arguments, said):
    """Exit code 2 and what would be right; no file is written or overwritten."""
    done = lyra("export", str(store), *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert not (lyra.folder / "x.db").exists()


def test_a_collector_that_is_not_there_is_told(lyra, store, monkeypatch):
    """Nothing listens: an error of one sentence, not a count."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    done = lyra("export", str(store), "--to", "otlp", **env)
    assert done.returncode == 1
    assert "the collector does not take the spans" in done.stderr


def test_the_audit_of_a_store(lyra):
    """`lyra audit view`: rights that were refused, questions and answers, with keys masked."""
    path = lyra.folder / "lyra.db"

    async def fetch(url: str) -> str:
        return url

    async def program(ctx: Any) -> Any:
        with contextlib.suppress(LyraError):
            await ctx.do(fetch, "x", needs=["net.http:example.com"])
        return (await ctx.ask(f"may I? {KEY}", kind="confirmation")).text

    async def main() -> None:
        async with Kernel(path, programs=[program]) as kernel:
            process = await kernel.spawn(program, pid="worker", grant=["human.ask"])
            while not (pending := kernel.interrupts.get_pending_interrupt("worker")):
                await asyncio.sleep(0.01)
            kernel.resolve_interrupt(pending.id, {"text": "yes"})
            await process.wait()

    asyncio.run(main())
    rows = lyra.json("audit", "view", str(path))
    kinds = [row["kind"] for row in rows]
    assert kinds[0] == "process.created"
    assert {"effect.stopped", "interrupt.created", "interrupt.resolved", "process.terminated"} <= set(kinds)
    stopped = next(row for row in rows if row["kind"] == "effect.stopped")
    assert stopped["fields"]["code"] == "capability_denied"
    done = lyra("audit", "view", str(path), "--pid", "worker")
    assert "interrupt.created" in done.stdout
    assert KEY not in done.stdout + str(rows)
    assert lyra.json("audit", "view", str(path), "--pid", "other") == []


def test_durable_vega_runs_are_exported_with_their_store(lyra, store):
    """Rows, calls and costs of each run stand beside those of the store's own kernel; a process of a run is RUN/PID."""
    (lyra.folder / "talk.vega").write_text('agent A { model "sim/echo" }\nlet a = spawn A;\nprint(a <- "one");\n')
    for run in ("first", "second"):
        done = lyra("vega", "run", "talk.vega", "--db", str(store), "--run-id", run)
        assert done.returncode == 0, done.stderr
    lyra.json("export", str(store), "--to", "events.jsonl")
    lines = [json.loads(line) for line in (lyra.folder / "events.jsonl").read_text().splitlines()]
    assert {line["pid"].partition("/")[0] for line in lines} == {"coder", "first", "second"}
    of_one = [line for line in lines if line["pid"] == "first/main"]
    assert of_one
    assert lyra.json("export", str(store), "--to", "main.jsonl", "--pid", "first/main")["count"] == len(of_one)
    assert lyra.json("export", str(store), "--to", "calls.db")["count"] > 0
    with SqliteRecords(lyra.folder / "calls.db") as records:
        assert sorted(call["agent"] for call in records.calls()) == ["A", "A", "Coder", "Coder"]
    with closing(sqlite3.connect(lyra.folder / "calls.db")) as db:
        assert db.execute("SELECT COUNT(DISTINCT trace_id) FROM spans").fetchone() == (3,)
