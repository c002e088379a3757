"""Events of nodes after kill -9: an interrupted publication is made again, and its handlers act once."""

from __future__ import annotations

import sqlite3
import subprocess
import time

import pytest

from lyra import vesper
from tests import warm
from tests.vesper.runtime import event_once
from tests.vesper.runtime.event_once import HANDLER, PUBLISHER, runtime_in
from tests.vesper.runtime.payments import PaymentServer, rows

pytestmark = pytest.mark.slow


def _wait_until(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def _make_notes(folder):
    connection = sqlite3.connect(folder / "notes.db")
    connection.execute("CREATE TABLE notes (name TEXT)")
    connection.commit()
    connection.close()


def _killed(folder, url, how, condition):
    """Start a program that publishes an event, and kill it once the condition holds."""
    _make_notes(folder)
    program = warm.start(event_once.__file__, [str(folder), url, how], stderr=subprocess.DEVNULL)
    try:
        _wait_until(condition)
    finally:
        program.kill()
        program.wait()


def _notes(folder):
    return rows(folder / "notes.db", "SELECT name FROM notes")


@pytest.mark.parametrize("subscribed", ["before", "later", "never"])
def test_a_handler_that_was_killed_goes_on_and_acts_once(tmp_path, subscribed):
    """The publication comes again; the handler has begun, and is not executed a second time."""
    server = PaymentServer(delay_s=1.5)
    try:
        _killed(tmp_path, server.url, "handled", lambda: server.requests)
        handler = vesper.load(HANDLER)
        with runtime_in(tmp_path, server.url, handlers=[handler] if subscribed == "before" else []) as runtime:
            if subscribed == "later":
                runtime.events.add(handler)
            _wait_until(lambda: {"note_v1", "pay_v1"} <= {row["node"] for row in runtime.audit()})
    finally:
        server.close()
    assert _notes(tmp_path) == [("ann",)]
    assert list(server.charges) == ["ann"]


def test_a_handler_that_is_handed_to_the_runtime_gets_an_interrupted_event(tmp_path):
    server = PaymentServer()
    try:
        _killed(tmp_path, server.url, "waiting", (tmp_path / "begun").exists)
        with runtime_in(tmp_path, server.url, handlers=[vesper.load(HANDLER)]):
            _wait_until(lambda: server.charges)
    finally:
        server.close()
    assert _notes(tmp_path) == [("ann",)]


KEYED_HANDLER = HANDLER.replace("inputs: {name: string}", "inputs: {name: string, idempotency_key: string}")
KEYED_PUBLISHER = PUBLISHER.replace('{name: "{name}"}', '{name: "{name}", idempotency_key: "{name}"}')


@pytest.mark.parametrize(
    ("publisher", "handler", "times"), [(PUBLISHER, HANDLER, 2), (KEYED_PUBLISHER, KEYED_HANDLER, 1)]
)
def test_two_events_are_one_only_by_the_handlers_own_key(tmp_path, publisher, handler, times):
    """Equal data alone does not make two publications one."""
    server = PaymentServer()
    _make_notes(tmp_path)
    with runtime_in(tmp_path, server.url, handlers=[vesper.load(handler)]) as runtime:
        for _ in range(2):
            assert runtime.execute(vesper.load(publisher), {"name": "ann"}).error is None
        executions = [row["node"] for row in runtime.audit()].count("note_v1")
    server.close()
    assert _notes(tmp_path) == [("ann",)] * times
    assert executions == times
