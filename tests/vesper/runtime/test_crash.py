"""A node whose process is killed goes on: finished effects are replayed, the one under way is repeated by its key."""

from __future__ import annotations

import json
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from lyra import vesper
from lyra.vesper.evidence.modes import ORDER
from tests import warm
from tests.vesper.runtime import charge_once
from tests.vesper.runtime.payments import GRANT, NODE, PaymentServer, make_database, request, rows

pytestmark = pytest.mark.slow


def _start(folder, url, mode):
    words = [str(folder), url, "1", mode]
    return warm.start(charge_once.__file__, words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _wait_until(condition, seconds=30.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.mark.parametrize("mode", ORDER)
@pytest.mark.parametrize("when", ["charging", "charged"])
def test_a_killed_payment_is_charged_once(tmp_path, mode, when):
    server = PaymentServer(delay_s=0.3 if when == "charging" else 0.0)
    path = tmp_path / "orders.db"
    make_database(path)
    try:
        first = _start(tmp_path, server.url, mode)
        _wait_until(lambda: server.requests)
        if when == "charged":
            _wait_until(lambda: rows(path, "SELECT * FROM transactions") or first.poll() is not None)
        first.kill()
        first.communicate()
        second = _start(tmp_path, server.url, mode)
        output, errors = second.communicate()
        told = json.loads(output or "{}") or errors
        assert told["status"] == "success", told
        assert told["outputs"]["transaction_id"] == "ch_1"
        assert len(server.charges) == 1
        assert rows(path, "SELECT transaction_id, amount FROM transactions") == [("ch_1", "12.50")]
        assert rows(path, "SELECT balance FROM users") == [(487.5,)]
    finally:
        server.close()


@pytest.mark.parametrize("mode", ORDER)
def test_duplicates_after_a_kill_share_the_unfinished_execution(tmp_path, mode):
    """The killed process had sent its charge; twenty requests at once with its key are answered by that one."""
    server = PaymentServer(delay_s=0.3)
    path = tmp_path / "orders.db"
    make_database(path)
    try:
        first = _start(tmp_path, server.url, mode)
        _wait_until(lambda: server.requests)
        first.kill()
        first.communicate()
        with vesper.Runtime(
            str(tmp_path / "lyra.db"),
            database=f"sqlite:///{path}",
            providers={"stripe": server.url},
            grant=GRANT,
            predicates={"order_not_locked": lambda: True},
        ) as runtime:
            node = vesper.load(NODE)
            with ThreadPoolExecutor(20) as pool:
                outcomes = list(pool.map(lambda _: runtime.execute(node, request(1), mode), range(20)))
        assert {outcome.outputs.get("transaction_id") for outcome in outcomes} == {"ch_1"}
        assert len(server.charges) == 1
        assert len(server.requests) == 2  # the one under way was repeated, with its key
        assert rows(path, "SELECT balance FROM users") == [(487.5,)]
    finally:
        server.close()
