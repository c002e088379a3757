"""Records of what agents do: JSON lines, SQLite, and the tree of spans."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import sqlite3
from pathlib import Path
from typing import Any

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
    """Table `calls` has exactly the fields, and `estimated`; it is in WAL mode, indexed, and can be asked."""
    path = tmp_path / "trace.db"
    run(work(path))
    run(work(path, fails=True))
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        assert [column[1] for column in db.execute("PRAGMA table_info(calls)")] == [*FIELDS, "estimated"]
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
    assert totals["cost_usd"] > 0  # a call that was refused cost nothing
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


# ---------------------------------------------------------------- one listener by itself
def called(number: int, *, model: str = "sim/a", trace: str = "t1", text: str = "") -> Event:
    """The Event of a model call, as a kernel publishes it."""
    data = {
        **dict.fromkeys(FIELDS, 0),
        "trace_id": trace,
        "span_id": f"s{number}",
        "parent_span": None,
        "agent": f"agent{text}",
        "model": model,
        "status": "ok",
    }
    return Event(number, 100.0 + number, f"p{number}", "model.called", data)


_opened: list[SqliteRecords] = []


@pytest.fixture(autouse=True)
def close_records():
    yield
    while _opened:
        asyncio.run(_opened.pop().close())


def records_of(path: Path, *events: Event, **settings: Any) -> SqliteRecords:
    records = SqliteRecords(path, **settings)
    _opened.append(records)
    for event in events:
        records(event)
    return records


def test_json_lines_say_which_events_they_want(tmp_path):
    """Model calls by themselves, or the kinds that were asked for; None is every kind."""
    wanted = []
    for kinds in (None, "tool.called", ["*"]):
        lines = JsonLines(tmp_path / "a.jsonl", kinds=kinds)
        wanted.append(lines.kinds)
        asyncio.run(lines.close())
    assert wanted == [{"model.called"}, {"tool.called"}, None]


def test_closed_json_lines_write_nothing_more(tmp_path):
    """An Event that comes after `close` is left out, and is no error."""
    lines = JsonLines(tmp_path / "a.jsonl")
    lines(called(1))
    asyncio.run(lines.close())
    lines(called(2))
    assert [json.loads(line)["span_id"] for line in lines.path.read_text().splitlines()] == ["s1"]


@pytest.mark.parametrize("kinds", [None, "*"])
def test_json_lines_redact_the_secrets_they_are_told(tmp_path, kinds):
    """A text that has not the form of a key is redacted where `secrets` names it; it is asked at every Event."""
    known: list[str] = []
    lines = JsonLines(tmp_path / "a.jsonl", kinds=kinds, secrets=lambda: known)
    lines(called(1, text=" plain-word"))
    known.append("plain-word")
    lines(called(2, text=" plain-word"))
    asyncio.run(lines.close())
    first, second = lines.path.read_text().splitlines()
    assert "plain-word" in first
    assert "plain-word" not in second


def test_sqlite_records_redact_the_secrets_they_are_told(tmp_path):
    """In both tables."""
    records = records_of(tmp_path / "a.db", called(1, text=" plain-word"), secrets=lambda: ["plain-word"])
    assert "plain-word" not in repr((records.calls(), records.spans()))
    assert records.calls()[0]["agent"].startswith("agent")


def test_estimated_tokens_are_marked_everywhere(tmp_path):
    """A count of Lyra's own is marked in both tables and in JSON lines; a provider's is not."""
    counted, estimated = called(1), called(2)
    estimated.data["estimated"] = True  # type: ignore[index]
    lines = JsonLines(tmp_path / "a.jsonl")
    lines(counted)
    lines(estimated)
    asyncio.run(lines.close())
    marked = [json.loads(line).get("estimated") for line in lines.path.read_text().splitlines()]
    assert marked == [None, True]
    records = records_of(tmp_path / "a.db", counted, estimated)
    assert [call["estimated"] for call in records.calls()] == [False, True]
    assert [span.data.get("estimated", False) for span in records.spans()] == [False, True]
    asyncio.run(records.close())
    with contextlib.closing(sqlite3.connect(tmp_path / "a.db")) as db:
        assert db.execute("SELECT span_id FROM calls WHERE estimated").fetchall() == [("s2",)]


def test_records_of_an_older_version_are_opened(tmp_path):
    """A file whose table `calls` has no column `estimated` gets it; its rows are kept and count as counted."""
    path = tmp_path / "old.db"
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        db.execute(f"CREATE TABLE calls ({', '.join(FIELDS)})")
        old = ["t0", "s0", "agent", "sim/a", 1, 1, 0.0, 1, "ok", 0, None]
        db.execute(f"INSERT INTO calls VALUES ({', '.join('?' * len(FIELDS))})", old)
    event = called(1)
    event.data["estimated"] = True  # type: ignore[index]
    for number in (1, 2):  # once to change it, once to find it changed
        records = records_of(path, *([event] if number == 1 else []))
        assert [(call["span_id"], call["estimated"]) for call in records.calls()] == [("s0", False), ("s1", True)]
        asyncio.run(records.close())


def test_sqlite_records_want_the_events_that_are_spans(tmp_path):
    """Turns, calls of models, calls of tools and executions of nodes: no other Event is handed to them."""
    records = records_of(tmp_path / "a.db")
    assert records.kinds == {"agent.answered", "model.called", "tool.called", "vesper.executed"}


def test_closed_sqlite_records_leave_one_file(tmp_path):
    """`close` brings the log of changes into the database: that file alone can be copied."""
    records = records_of(tmp_path / "a.db", called(1))
    asyncio.run(records.close())
    assert [file.name for file in tmp_path.iterdir()] == ["a.db"]
    with pytest.raises(sqlite3.ProgrammingError):
        records.calls()


def test_calls_of_one_model_or_one_trace(tmp_path):
    """The filters of `calls` and `totals`."""
    events = [called(1), called(2, model="sim/b"), called(3, model="sim/b", trace="t2")]
    records = records_of(tmp_path / "a.db", *events)
    assert [call["span_id"] for call in records.calls(model="sim/b")] == ["s2", "s3"]
    assert [call["span_id"] for call in records.calls(trace_id="t1")] == ["s1", "s2"]
    assert {name: row["calls"] for name, row in records.totals("model").items()} == {"sim/a": 1, "sim/b": 2}
    assert {name: row["calls"] for name, row in records.totals(by="trace_id").items()} == {"t1": 2, "t2": 1}


def test_spans_of_one_trace_and_the_last_ones(tmp_path):
    """By `trace_id`, and so many by `limit`, the newest; `tree` has those of one trace, too."""
    records = records_of(tmp_path / "a.db", called(1), called(2), called(3, trace="t2"))
    assert [span.span_id for span in records.spans("t1")] == ["s1", "s2"]
    assert [span.span_id for span in records.spans(limit=1)] == ["s3"]
    assert [node.span.span_id for node in records.tree("t2")] == ["s3"]


def test_only_the_last_spans_are_kept():
    """As many as `most` says."""
    spans = Spans(most=2)
    for number in range(5):
        spans(called(number))
    assert [span.span_id for span in spans] == ["s3", "s4"]


def test_a_span_says_who_worked_and_has_the_whole_record():
    """Its process, its agent, and the record of the call with tokens and retries."""
    spans = Spans()

    async def main():
        async with Kernel() as kernel:
            kernel.on_event(spans)
            process = await kernel.spawn(Agent("coder", model=says("done"), tools=[add]))
            await process.send("go")
            return process.pid

    pid = run(main())
    model, turn = spans
    assert (model.kind, turn.kind) == ("model", "turn")
    assert (model.agent, turn.agent) == ("coder", "coder")
    assert (model.pid, turn.pid) == (pid, pid)
    assert (model.data["output_tokens"] > 0, model.data["retries"]) == (True, 0)
