"""Records of what agents do: JSON lines, SQLite, and the tree of spans."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sqlite3
from pathlib import Path

import pytest

import lyra
from lyra import Agent, Kernel, tool
from lyra.core.event import Event
from lyra.errors import ConfigError, ModelError
from lyra.observe import JsonLines, Spans, SqliteRecords, observe
from tests.agents.support import calls, clock_here, run, says, virtual

FIELDS = [
    *("trace_id", "span_id", "agent", "model", "input_tokens", "output_tokens"),
    *("cost_usd", "latency_ms", "status", "retries", "parent_span"),
]
KEY = "sk-ant-" + "planted0123456789abcdef"


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


async def work(path: Path, *, fails: bool = False) -> None:
    price = {"input_usd_per_mtok": 1, "output_usd_per_mtok": 2}
    replies = [calls("add", a=1, b=2), {"error": {"kind": "auth"}} if fails else "done"]
    async with Kernel() as kernel:
        observe(kernel, path)
        process = await kernel.spawn(Agent("Coder", model=says(*replies, price=price), tools=[add]))
        if fails:
            with pytest.raises(ModelError):
                await process.send("go")
        else:
            await process.send("go")


def test_json_lines_have_exactly_the_fields(tmp_path):
    """One line a model call, the documented fields in their order."""
    path = tmp_path / "trace.jsonl"
    run(work(path))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [list(line) for line in lines] == [FIELDS, FIELDS]
    first, second = lines
    assert first["agent"] == "Coder"
    assert first["status"] == "ok"
    assert first["retries"] == 0
    assert first["cost_usd"] > 0
    assert re.fullmatch("[0-9a-f]{32}", first["trace_id"])
    assert re.fullmatch("[0-9a-f]{16}", first["span_id"])
    assert first["trace_id"] == second["trace_id"]
    assert first["span_id"] != second["span_id"]
    assert first["parent_span"] == second["parent_span"]


def test_a_failed_call_has_its_kind_as_status(tmp_path):
    """And is a record like any other."""
    path = tmp_path / "trace.jsonl"
    run(work(path, fails=True))
    assert [json.loads(line)["status"] for line in path.read_text().splitlines()] == ["ok", "auth"]


def test_sqlite_has_the_same_records(tmp_path):
    """Table `calls` has exactly the fields; it is in WAL mode, indexed, and can be asked."""
    path = tmp_path / "trace.db"
    run(work(path))
    run(work(path, fails=True))
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        assert [column[1] for column in db.execute("PRAGMA table_info(calls)")] == FIELDS
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        plan = db.execute("EXPLAIN QUERY PLAN SELECT * FROM calls WHERE trace_id = ''").fetchone()
        assert "calls_by_trace" in plan[-1]
    db.close()
    records = SqliteRecords(path)
    assert len(records.calls()) == 4
    assert [call["status"] for call in records.calls(status="auth")] == ["auth"]
    assert records.calls(agent="unknown") == []
    assert len(records.calls(limit=1)) == 1
    totals = records.totals("agent")["Coder"]
    assert (totals["calls"], totals["errors"]) == (4, 1)
    assert totals["cost_usd"] is None  # the cost of a failed call is unknown
    trees = records.tree()
    assert [tree.span.status for tree in trees] == ["ok", "auth"]
    assert [child.span.kind for child in trees[0].children] == ["model", "tool", "model"]
    asyncio.run(records.close())


def test_spans_nest():
    """turn > model and tool calls > a helper's turn > its model calls; latencies are those of the clock."""
    helper = Agent("helper", model=says({"text": "42", "first_s": 2}))
    lead = Agent("lead", model=says({**calls("helper", task="go"), "first_s": 1}, "{result}"), tools=[helper])
    spans = Spans()

    async def main():
        async with Kernel(clock=clock_here()) as kernel:
            kernel.on_event(spans)
            process = await kernel.spawn(lead)
            await process.send("go")

    virtual(main())
    (tree,) = spans.tree()
    assert str(tree).splitlines() == [
        "turn lead ok 3000 ms",
        "  model sim ok 1000 ms",
        "  tool helper ok 2000 ms",
        "    turn helper ok 2000 ms",
        "      model sim ok 2000 ms",
        "  model sim ok 0 ms",
    ]
    assert len({span.trace_id for span in spans}) == 1


def test_each_conversation_is_a_trace_and_each_message_a_turn():
    """Two messages: two trees of one trace; another process: another trace."""
    spans = Spans()

    async def main():
        async with Kernel() as kernel:
            kernel.on_event(spans)
            for _ in range(2):
                process = await kernel.spawn(Agent("a", model="sim/echo"))
                await process.send("a")
                await process.send("b")

    run(main())
    assert len(spans.tree()) == 4
    traces = {span.trace_id for span in spans}
    assert [len(spans.tree(trace)) for trace in traces] == [2, 2]


def test_events_of_other_kinds(tmp_path):
    """`kinds` writes whole Events; a kind that does not exist is refused."""
    path = tmp_path / "events.jsonl"

    async def main():
        async with Kernel() as kernel:
            observe(kernel, path, kinds=["process.created", "agent.answered"])
            await (await kernel.spawn(Agent("a", model="sim/echo"))).send("hi")

    run(main())
    assert [json.loads(line)["kind"] for line in path.read_text().splitlines()] == ["process.created", "agent.answered"]
    with pytest.raises(ConfigError, match=r"model\.caled"):
        JsonLines(path, kinds=["model.caled"])
    with pytest.raises(ConfigError, match=r"\.txt"):
        run(observed("trace.txt"))
    with pytest.raises(ConfigError, match="cannot be written"):
        run(observed(str(tmp_path / "no" / "trace.jsonl")))


async def observed(path: str) -> None:
    async with Kernel() as kernel:
        observe(kernel, path)


def test_no_planted_key_is_in_any_record(tmp_path):
    """In a name, an argument, an answer, an error: it is in none of the files, whatever kinds they hold."""
    refused = {"error": {"kind": "auth", "message": f"bad {KEY}"}}
    model = says(calls("look", key=KEY), {"text": f"the key is {KEY}"}, refused)

    @tool
    def look(key: str) -> str:
        """Look."""
        return f"found {key}"

    paths = [tmp_path / name for name in ("calls.jsonl", "all.jsonl", "trace.db")]

    async def main():
        async with Kernel() as kernel:
            observe(kernel, paths[0])
            observe(kernel, paths[1], kinds="*")
            observe(kernel, paths[2])
            process = await kernel.spawn(Agent(f"agent {KEY}", model=model, tools=[look]))
            await process.send(f"use {KEY}")
            with pytest.raises(ModelError):
                await process.send("again")

    run(main())
    assert len(paths[1].read_text().splitlines()) > 10
    for file in tmp_path.iterdir():
        assert KEY.encode() not in file.read_bytes(), file.name


def test_a_replayed_call_is_no_new_record(tmp_path):
    """After a restart what was already told is not told again."""
    agent = Agent("a", model=says("one", "two"))
    told: list[str] = []

    def note(event: Event) -> None:
        if event.kind in ("model.called", "agent.answered"):
            told.append(event.kind)

    async def life(message: str):
        async with Kernel(str(tmp_path / "run.db"), programs=[agent]) as kernel:
            kernel.on_event(note)
            await (await kernel.spawn(agent, pid="a")).send(message)

    run(life("1"))
    run(life("2"))
    assert told == ["model.called", "agent.answered"] * 2


def test_no_span_is_made_without_a_listener():
    """No listener: no ids are drawn, no records made."""

    async def main():
        async with Kernel() as kernel:
            process = await kernel.spawn(Agent("a", model="sim/echo"))
            await process.send("hi")
            from lyra.agents.session.shared import runtime_of

            return runtime_of(kernel).sessions[process.pid].trace_id

    assert run(main()) == ""
    assert lyra.Event is Event
