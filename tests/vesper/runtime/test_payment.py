"""The payment node at work, against a real server and a real database."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest

from lyra import vesper
from lyra.vesper.evidence.modes import ORDER
from tests.vesper.runtime.payments import GRANT, NODE, PaymentServer, make_database, request, rows


@pytest.fixture
def server():
    server = PaymentServer()
    yield server
    server.close()


@pytest.fixture
def world(tmp_path, server):
    """A runtime, and the file of its database."""
    path = tmp_path / "orders.db"
    runtime = vesper.Runtime(
        str(tmp_path / "lyra.db"),
        database=make_database(path),
        providers={"stripe": server.url},
        grant=GRANT,
        predicates={"order_not_locked": lambda: True},
    )
    yield runtime, path
    runtime.close()


@pytest.mark.parametrize("mode", ORDER)
def test_a_payment_is_charged_once_in_every_mode(world, server, mode):
    runtime, path = world
    node = vesper.load(NODE)
    outcome = runtime.execute(node, request(1), mode)
    assert outcome.status == "success", outcome.error
    assert outcome.outputs["status"] == "completed"
    assert outcome.outputs["transaction_id"] == "ch_1"
    again = runtime.execute(node, request(1), mode)
    assert again.outputs["transaction_id"] == "ch_1"
    assert len(server.requests) == 1
    assert server.requests[0][0] == "key_00000001"
    assert rows(path, "SELECT transaction_id, amount FROM transactions") == [("ch_1", "12.50")]
    assert rows(path, "SELECT balance FROM users") == [(Decimal("487.5"),)] or rows(
        path, "SELECT balance FROM users"
    ) == [(487.5,)]
    evidence = runtime.evidence(node)
    assert evidence.divergences == 0, evidence.found


def test_transitions_are_told_as_events(world):
    runtime, _ = world
    events = []
    runtime.on_event(events.append, ["vesper.transition"])
    runtime.execute(vesper.load(NODE), request(5))
    assert [(event.data["from"], event.data["to"]) for event in events] == [
        ("pending", "processing"),
        ("processing", "paid"),
    ]


def test_a_refused_card_is_told_and_taken_back(world, server):
    runtime, path = world
    node = vesper.load(NODE)
    server.answers = [(402, {"error": {"code": "card_declined", "message": "no"}})]
    outcome = runtime.execute(node, request(2), "dual_verify")
    assert outcome.error is not None
    assert outcome.error.code == "payment_declined"
    assert outcome.error.fields["message"] == "the card for order ord_0000000000000002 was declined"
    assert rows(path, "SELECT * FROM transactions") == []
    assert runtime.evidence(node).divergences == 0


def test_a_server_that_is_down_for_a_moment_is_asked_again(world, server):
    runtime, _ = world
    node = vesper.load(NODE)
    server.answers = [(503, {}), (500, {})]
    outcome = runtime.execute(node, request(3), "python_only")
    assert outcome.status == "success", outcome.error
    assert len(server.requests) == 3


def test_without_a_right_nothing_is_done(tmp_path, server):
    path = tmp_path / "orders.db"
    rights = [right for right in GRANT if "users" not in right]
    with vesper.Runtime(database=make_database(path), providers={"stripe": server.url}, grant=rights) as runtime:
        outcome = runtime.execute(vesper.load(NODE), request(4))
    assert outcome.error is not None
    assert outcome.error.code == "capability_denied"
    assert server.requests == []


@pytest.mark.parametrize(
    "mode", ["dual_verify", *(pytest.param(mode, marks=pytest.mark.long) for mode in ("python_only", "direct_only"))]
)
def test_duplicates_at_once_are_charged_once(world, server, mode):
    runtime, path = world
    node = vesper.load(NODE)
    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda number: runtime.execute(node, request(number % 10), mode), range(40)))
    assert {outcome.status for outcome in outcomes} == {"success"}
    assert len({outcome.outputs["transaction_id"] for outcome in outcomes}) == 10
    assert len(server.requests) == 10
    assert len(rows(path, "SELECT * FROM transactions")) == 10
