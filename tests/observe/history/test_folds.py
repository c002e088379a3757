"""The folds give the processes, calls and costs that the rows of a kernel tell."""

from __future__ import annotations

from typing import Any

import pytest

from lyra.core.event import Event
from lyra.errors import ConfigError
from lyra.observe.history.calls import CallHistory, costs, read_stored_records
from lyra.observe.history.processes import ProcessTable
from lyra.observe.spans import span_of

DAY_S = 86_400.0


def rows(*facts: tuple[str, str, dict[str, Any]]) -> list[Event]:
    return [Event(seq, 10.0 * seq, pid, kind, data) for seq, (pid, kind, data) in enumerate(facts, 1)]


def folded(*facts: tuple[str, str, dict[str, Any]]) -> ProcessTable:
    processes = ProcessTable()
    processes.add_all(rows(*facts))
    return processes


def test_a_process_runs_waits_and_ends() -> None:
    created = ("p1", "process.created", {"program": "work", "name": "w", "budget": {"limits": {"usd": 7}}})
    asked = ("p1", "interrupt.created", {"id": "i1", "kind": "confirmation", "question": "may I?"})
    processes = folded(created)
    record = processes.records["p1"]
    assert (record.state, record.name, record.budget_micro_usd, record.is_live) == ("running", "w", 7, True)
    waiting = folded(created, asked).records["p1"]
    assert (waiting.state, waiting.questions) == ("waiting", {"i1": "may I?"})
    for end in ("interrupt.resolved", "interrupt.expired", "interrupt.cancelled"):
        again = folded(created, asked, ("p1", end, {"id": "i1"})).records["p1"]
        assert (again.state, again.questions) == ("running", {})
    ended = folded(created, ("p1", "process.terminated", {"reason": "crash", "error": {"message": "no"}})).records["p1"]
    assert (ended.state, ended.reason, ended.error, ended.ended_at, ended.is_live) == (
        "terminated",
        "crash",
        "no",
        20.0,
        False,
    )


def test_a_process_that_was_told_to_end_is_stopping_until_it_ends() -> None:
    created, effect = ("p1", "process.created", {"program": "work"}), ("p1", "effect.started", {"key": 1, "name": "e"})
    stopping = ("p1", "process.stopping", {"reason": "killed"})
    record = folded(created, effect, stopping).records["p1"]
    assert (record.state, record.reason, record.is_live, record.under_way) == ("stopping", "killed", True, {"1": "e"})
    ended = folded(created, effect, stopping, ("p1", "process.terminated", {"reason": "killed"})).records["p1"]
    assert (ended.state, ended.is_live, ended.under_way) == ("terminated", False, {})


def test_an_entry_of_a_worker_has_its_states() -> None:
    submitted = ("e", "pcb.submitted", {"user_id": "alice", "parent_pid": ""})
    record = folded(submitted).records["e"]
    assert (record.state, record.user_id) == ("new", "alice")
    moved = folded(submitted, ("e", "pcb.moved", {"new_state": "ready", "reason": ""})).records["e"]
    assert moved.state == "ready"
    used = folded(submitted, ("e", "pcb.used", {"tokens_in": 3, "tokens_out": 4, "llm_calls": 1, "tool_calls": 2}))
    assert (used.records["e"].tokens, used.records["e"].calls) == (7, 3)
    noted = folded(submitted, ("e", "pcb.noted", {"current_stage": "draft"}))
    assert noted.records["e"].stage == "draft"
    over = folded(submitted, ("e", "pcb.moved", {"new_state": "terminated", "reason": "done"})).records["e"]
    assert (over.is_live, over.reason) == (False, "done")
    assert folded(submitted, ("e", "pcb.forgotten", {})).records == {}


def test_mailboxes_restarts_and_spending_are_counted() -> None:
    created = ("p1", "process.created", {"program": "work"})
    sent = ("p0", "message.sent", {"to": "p1", "message": 1})
    record = folded(created, sent, sent, ("p1", "message.received", {"key": 1, "message": 2})).records["p1"]
    assert record.messages == 1
    assert folded(created, ("p0", "message.sent", {"to": "p1", "dropped": True})).records["p1"].messages == 0
    spent = folded(
        created, ("p1", "effect.finished", {"key": 1, "usage": {"usd": 5, "input_tokens": 2, "llm_calls": 1}})
    )
    assert (spent.records["p1"].micro_usd, spent.records["p1"].tokens, spent.records["p1"].calls) == (5, 2, 1)
    assert spent.records["p1"].to_data()["cost_usd"] == 5e-6
    assert folded(created, ("s", "child.restarting", {"pid": "p1"})).records["p1"].restarts == 1


def test_the_walk_has_parents_before_their_children() -> None:
    processes = folded(
        ("a", "process.created", {"program": "x"}),
        ("b", "process.created", {"program": "x"}),
        ("a1", "process.created", {"program": "x", "parent": "a"}),
        ("a11", "process.created", {"program": "x", "parent": "a1"}),
        ("orphan", "process.created", {"program": "x", "parent": "gone"}),
    )
    assert [(depth, record.pid) for depth, record in processes.walk()] == [
        (0, "a"),
        (1, "a1"),
        (2, "a11"),
        (0, "b"),
        (0, "orphan"),
    ]


def calls_of(*facts: tuple[str, str, dict[str, Any]]) -> CallHistory:
    calls = CallHistory()
    calls.add_all(rows(*facts))
    return calls


def model_call(
    key: int, name: str, usage: dict[str, Any] | None = None, error: dict[str, Any] | None = None
) -> list[tuple[str, str, dict[str, Any]]]:
    end = {"key": key, **({"usage": usage} if usage else {}), **({"error": error} if error else {})}
    return [("p", "effect.started", {"key": key, "name": name, "hash": b""}), ("p", "effect.finished", end)]


def test_a_call_has_its_kind_time_status_and_cost() -> None:
    calls = calls_of(
        *model_call(1, "model:ann:sim/echo", {"usd": 9, "input_tokens": 1, "output_tokens": 2}),
        *model_call(2, "tool:Read", error={"code": "tool_error", "message": "gone"}),
        ("p", "effect.started", {"key": 3, "name": "fetch", "hash": b""}),
        ("p", "effect.retried", {"key": 3}),
        ("p", "effect.finished", {"key": 99, "name": "clock", "form": "read"}),
    )
    model, tool, other = calls.list_for("p")
    assert (model.kind, model.agent, model.model, model.name, model.status) == (
        "model",
        "ann",
        "sim/echo",
        "sim/echo",
        "ok",
    )
    assert (model.latency_ms, model.micro_usd, model.input_tokens, model.output_tokens) == (10_000, 9, 1, 2)
    assert (tool.kind, tool.name, tool.status, tool.error) == ("tool", "Read", "tool_error", "gone")
    assert (other.kind, other.status, other.tries, other.latency_ms) == ("effect", "running", 2, None)


def test_costs_are_summed_by_what_is_asked_for() -> None:
    calls = calls_of(
        *model_call(1, "model:ann:m1", {"usd": 5, "input_tokens": 1}),
        *model_call(2, "model:bob:m1", {"usd": 7}),
        *model_call(3, "model:ann:m2", {"usd": 1}, {"code": "model_error"}),
        *model_call(4, "tool:Read"),
    )
    records = list(calls.records.values())
    assert [(row.group, row.micro_usd) for row in costs(records, ("agent",))] == [(("bob",), 7), (("ann",), 6)]
    assert [row.group for row in costs(records, ("model", "day"))] == [("m1", "1970-01-01"), ("m2", "1970-01-01")]
    (everything,) = costs(records, ())
    assert (everything.calls, everything.errors, everything.micro_usd, everything.input_tokens) == (3, 1, 13, 1)
    assert costs(records, ("pid",))[0].to_data(("pid",)) == {
        "pid": "p",
        "calls": 3,
        "errors": 1,
        "input_tokens": 1,
        "output_tokens": 0,
        "cost_usd": 13e-6,
    }
    with pytest.raises(ConfigError):
        costs(records, ("month",))


def test_costs_are_summed_by_the_key_that_pays() -> None:
    """A gateway key pays for its own calls and for those of agents below it; others have none."""

    def call(pid: str, name: str, key: str, usd: int) -> list[tuple[str, str, dict[str, Any]]]:
        usage = {"usd": usd, "input_tokens": 1, "llm_calls": 1}
        return [
            (pid, "effect.started", {"key": key, "name": name}),
            (pid, "effect.finished", {"key": key, "usage": usage}),
        ]

    history = CallHistory()
    history.add_all(
        rows(
            ("k", "process.created", {"program": "lyra:gateway.key", "args": [{"name": "ci"}], "parent": ""}),
            *call("k", "model:key/ci:openai/m", "passing:1", 5),
            ("a", "process.created", {"program": "agent:echo", "args": [], "parent": "k"}),
            *call("a", "model:echo:openai/m", "0", 7),
            ("b", "process.created", {"program": "agent:echo", "args": [], "parent": ""}),
            *call("b", "model:echo:openai/m", "0", 11),
            ("a", "process.terminated", {"reason": "normal"}),
        )
    )
    assert [(row.group, row.micro_usd) for row in costs(history.records.values(), ("key",))] == [
        (("ci",), 12),
        (("-",), 11),
    ]


def test_calls_one_after_the_other_stay_in_their_order() -> None:
    """A latency in whole milliseconds is rounded down: a call never seems to begin before the one in front ended."""

    def call(key: int, name: str, began: float, ended: float) -> list[Event]:
        return [
            Event(key * 2, began, "p", "effect.started", {"key": key, "name": name, "hash": b""}),
            Event(key * 2 + 1, ended, "p", "effect.finished", {"key": key}),
        ]

    events = [*call(1, "tool:add", 10.0001, 10.0004), *call(2, "model:ann:sim/echo", 10.0005, 10.0012)]
    spans = [span for event in read_stored_records(events, "store") if (span := span_of(event)) is not None]
    assert [span.kind for span in sorted(spans, key=lambda span: span.started)] == ["tool", "model"]
