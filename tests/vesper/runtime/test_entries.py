"""Entry points of nodes: routes of http_handlers, subscriptions of event_handlers, ticks of scheduled_jobs."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from lyra import vesper
from lyra.errors import CheckError, ConfigError
from lyra.vesper.check.judge import check_text
from lyra.vesper.runtime.entries import STATUSES, HttpEntry, ScheduledEntry
from lyra.vesper.values.limits import HTTP_BODY_BYTES_MAX
from lyra.vesper.values.outcome import CODES
from lyra.vesper.values.triggers import route_of, schedule_of
from tests.vesper.runtime.payments import GRANT, NODE, PaymentServer, make_database, request

PRICE = """\
node_id: price_v1
type: http_handler
intent: give a price
metadata: {route: "POST /goods/{name}/price"}
inputs:
  name: string
  count: {type: integer, constraints: [{max: 10}]}
  gift: {type: boolean, required: false, default: false}
outputs:
  success: {text: string}
  error:
    error_code: enum[sold_out, rate_limited]
    message: string
    retry_after_seconds: {type: integer, required: false}
flow:
  - step: have
    operation: validation
    guards: ["count != 9"]
    on_failure: {return_error: {error_code: sold_out, message: "no {name}"}}
  - step: calm
    operation: validation
    guards: ["count != 8"]
    on_failure: {return_error: {error_code: rate_limited, message: later, retry_after_seconds: 60}}
  - {step: write, operation: string_template, template: "{count} {name} {gift}", output: text}
"""
NOTED = """\
node_id: note_v1
type: {type}
intent: note what happened
metadata: {{{entry}}}
inputs: {{name: {{type: string, required: false}}}}
outputs: {{success: {{done: boolean}}}}
flow:
  - {{step: note, operation: custom.notes.add, text: "{{name}}"}}
  - {{step: end, operation: return, return_success: {{done: true}}}}
security: {{capabilities_required: [custom.notes.add]}}
"""


@pytest.fixture
def runtime():
    with vesper.Runtime() as runtime:
        yield runtime


def noting(notes, store="memory", **more):
    return vesper.Runtime(
        store,
        custom={"notes.add": lambda *, text: notes.append(text)},
        grant=["custom.notes.add", "events.subscribe.order.paid", "events.publish.order.paid"],
        **more,
    )


# ---------------------------------------------------------------- http
def test_a_request_is_an_execution(runtime):
    entry = HttpEntry(runtime, [vesper.load(PRICE)])
    assert entry.routes() == [("POST", "/goods/{name}/price", "price_v1")]
    reply = entry.handle("post", "/goods/red%20tea/price?gift=true", {}, b'{"count": 2}')
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    told = json.loads(reply.body)
    assert (told["status"], told["outputs"]) == ("success", {"text": "2 red tea true"})
    assert told["trace_id"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("POST", "/nowhere", b"", 404, "not_found"),
        ("GET", "/goods/tea/price", b"", 405, "method_not_allowed"),
        ("POST", "/goods/tea/price", b"{", 400, "invalid_input"),
        ("POST", "/goods/tea/price", b"[1]", 400, "invalid_input"),
        ("POST", "/goods/tea/price", b'{"count": NaN}', 400, "invalid_input"),
        ("POST", "/goods/tea/price", b'{"count": 1, "count": 2}', 400, "invalid_input"),
        ("POST", "/goods/tea/price", b'{"count": 1, "name": "milk"}', 400, "invalid_input"),
        ("POST", "/goods/tea/price", b'{"count": "x"}', 400, "invalid_input"),
        ("POST", "/goods/tea/price", b'{"count": 11}', 400, "invalid_input"),
        ("POST", "/goods/tea/price", b'{"count": 9}', 422, "sold_out"),
        ("POST", "/goods/tea/price", b'{"count": 8}', 429, "rate_limited"),
        ("POST", "/goods/tea/price?" + "a=1&" * 300, b'{"count": 1}', 400, "invalid_input"),
        ("POST", "/goods/tea/price", b"[" * 100_000, 400, "invalid_input"),
        ("POST", "/goods/tea/price", b" " * HTTP_BODY_BYTES_MAX + b"1", 413, "invalid_input"),
    ],
)
def test_errors_have_their_status(runtime, method, path, body, status, code):
    reply = HttpEntry(runtime, [vesper.load(PRICE)]).handle(method, path, {}, body)
    assert (reply.status, json.loads(reply.body)["error"]["code"]) == (status, code)
    assert reply.headers.get("allow") == ("POST" if status == 405 else None)
    assert reply.headers.get("retry-after") == ("60" if status == 429 else None)


def test_every_code_of_lyra_has_a_status():
    assert set(CODES) <= set(STATUSES)


def test_no_body_is_an_empty_body(runtime):
    entry = HttpEntry(runtime, [vesper.load(PRICE)])
    replies = [entry.handle("POST", "/goods/tea/price?count=2", {}, body) for body in (None, b"")]
    assert [reply.status for reply in replies] == [200, 200]


def test_a_payment_over_http_is_charged_once(tmp_path):
    server = PaymentServer()
    with vesper.Runtime(
        database=make_database(tmp_path / "orders.db"),
        providers={"stripe": server.url},
        grant=GRANT,
        predicates={"order_not_locked": lambda: True},
    ) as runtime:
        entry = HttpEntry(runtime, [vesper.load(NODE)])
        inputs = request(1)
        headers = {"Idempotency-Key": inputs.pop("idempotency_key")}
        replies = [entry.handle("POST", "/payment_handler", headers, json.dumps(inputs).encode()) for _ in range(3)]
    server.close()
    assert [reply.status for reply in replies] == [200, 200, 200]
    assert len(server.requests) == 1


def test_two_nodes_cannot_have_one_route(runtime):
    other = vesper.load(PRICE.replace("price_v1", "other_v1").replace("{name}/price", "{count}/price"))
    with pytest.raises(ConfigError, match="same route"):
        HttpEntry(runtime, [vesper.load(PRICE), other])


@pytest.mark.parametrize("route", ["FETCH /a", "POST a", "POST /{}", "POST /a b", "POST /{nothing}", "/a"])
def test_a_wrong_route_is_an_error_of_the_file(route):
    with pytest.raises(CheckError):
        vesper.load(PRICE.replace("POST /goods/{name}/price", route))
    assert route_of("GET /").path == "/"


# ---------------------------------------------------------------- events
def test_an_event_handler_is_executed_for_its_events():
    notes = []
    with noting(notes) as runtime:
        node = vesper.load(NOTED.format(type="event_handler", entry="events: [order.paid, order.sent]"))
        runtime.events.add(node)
        runtime.events.add(node)
        assert runtime.events.subscriptions() == [("order.paid", "note_v1"), ("order.sent", "note_v1")]
        publish(runtime, "order.paid", {"name": "a", "more": 1})
        publish(runtime, "order.sent", {"name": "b"})
        publish(runtime, "order.lost", {"name": "c"})
    assert notes == ["a", "b"]


def publish(runtime, kind, data):
    runtime._thread.call(lambda kernel: kernel.bus.publish(kind, data))


SUBSCRIBES = """\
node_id: shop_v1
type: function
intent: subscribe a handler and publish an event
inputs: {name: string}
outputs: {success: {done: boolean}}
flow:
  - {step: listen, operation: event_subscribe, event_type: order.paid, handler: note_v1}
  - {step: tell, operation: event_publish, event_type: order.paid, data: {name: "{name}"}}
  - {step: end, operation: return, return_success: {done: true}}
security: {capabilities_required: [events.subscribe.order.paid, events.publish.order.paid]}
"""


def test_a_subscription_of_a_step_is_made_once_for_its_node():
    """Three executions, one subscription: each event is noted once."""
    notes = []
    handler = vesper.load(NOTED.format(type="function", entry=""))
    with noting(notes, nodes=[handler]) as runtime:
        node = vesper.load(SUBSCRIBES)
        for name in ("a", "b", "c"):
            assert runtime.execute(node, {"name": name}, "dual_verify").error is None
    assert notes == ["a", "b", "c"]


def test_without_the_right_nothing_is_subscribed():
    with vesper.Runtime(grant=["events.publish.order.paid"]) as runtime:
        outcome = runtime.execute(vesper.load(SUBSCRIBES), {"name": "a"})
        assert outcome.error.code == "capability_denied"
        publish(runtime, "order.sent", {})  # what was posted to the kernel before is done then
        assert runtime.events.subscriptions() == []


# ---------------------------------------------------------------- schedules
NOON = datetime(2026, 3, 2, 12, 0, 30, tzinfo=UTC)  # a Monday


@pytest.mark.parametrize(
    ("text", "last", "following"),
    [
        ("every 5m", "2026-03-02 12:00", "2026-03-02 12:05"),
        ("* * * * *", "2026-03-02 12:00", "2026-03-02 12:01"),
        ("*/15 * * * *", "2026-03-02 12:00", "2026-03-02 12:15"),
        ("30 9-17/4 * * 1-5", "2026-03-02 09:30", "2026-03-02 13:30"),
        ("0 3 * * 0", "2026-03-01 03:00", "2026-03-08 03:00"),
        ("0 3 * * 7", "2026-03-01 03:00", "2026-03-08 03:00"),
        ("0 0 29 2 *", "2024-02-29 00:00", "2028-02-29 00:00"),
        ("0 0 13 * 5", "2026-02-27 00:00", "2026-03-06 00:00"),
        ("5,10 23 31 12 *", "2025-12-31 23:10", "2026-12-31 23:05"),
    ],
)
def test_ticks(text, last, following):
    schedule = schedule_of(text)
    assert schedule.last(NOON) == datetime.fromisoformat(last).replace(tzinfo=UTC)
    assert schedule.next(NOON) == datetime.fromisoformat(following).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    "text", ["", "every", "every 1ms", "60 * * * *", "* * *", "5-1 * * * *", "*/0 * * * *", "a * * * *"]
)
def test_a_wrong_schedule_is_an_error_of_the_file(text):
    assert schedule_of(text) is None
    issues = check_text(NOTED.format(type="scheduled_job", entry=f'schedule: "{text}"'))
    codes = [issue.code for issue in issues]
    assert ("no_entry" if not text else "bad_value") in codes


def test_a_job_runs_once_for_each_tick_also_after_a_restart(tmp_path):
    notes = []
    store = str(tmp_path / "lyra.db")
    node = vesper.load(NOTED.format(type="scheduled_job", entry='schedule: "every 5m"'))
    ticks = []
    with noting(notes, store) as runtime:
        runtime.on_event(ticks.append, ["vesper.ticked"])
        jobs = ScheduledEntry(runtime, [node], now=NOON)
        assert jobs.next_tick(NOON) == datetime(2026, 3, 2, 12, 5, tzinfo=UTC)
        assert jobs.run_due(NOON) == []
        (run,) = jobs.run_due(NOON + timedelta(minutes=5))
        assert (run[0], run[1], run[2].status) == ("note_v1", datetime(2026, 3, 2, 12, 5, tzinfo=UTC), "success")
        assert jobs.run_due(NOON + timedelta(minutes=6)) == []
    assert {event.data["node"] for event in ticks} == {"note_v1"}
    with noting(notes, store) as runtime:
        jobs = ScheduledEntry(runtime, [node], now=NOON + timedelta(days=1))
        assert jobs.run_due(NOON + timedelta(minutes=6)) == []
        assert len(jobs.run_due(NOON + timedelta(hours=1))) == 1  # many were missed; one makes up for them
    assert len(notes) == 2


def test_a_tick_that_ended_before_it_was_written_down_is_not_run_again(tmp_path, monkeypatch):
    notes = []
    store = str(tmp_path / "lyra.db")
    node = vesper.load(NOTED.format(type="scheduled_job", entry='schedule: "every 5m"'))
    later = NOON + timedelta(minutes=5)
    with noting(notes, store) as runtime:
        jobs = ScheduledEntry(runtime, [node], now=NOON)
        with monkeypatch.context() as patch:
            patch.setattr(jobs, "_note_tick", lambda *_: None)  # the crash
            assert len(jobs.run_due(later)) == 1
    with noting(notes, store) as runtime:
        ((_, _, outcome),) = ScheduledEntry(runtime, [node], now=NOON).run_due(later)
        assert outcome.status == "success"
    assert len(notes) == 1
