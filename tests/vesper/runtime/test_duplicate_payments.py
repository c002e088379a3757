"""Many duplicate and concurrent payments, in every mode and on both databases: each is charged exactly once.

Thirty requests a mode by default; `LYRA_PAYMENTS=1000` (`make payments`) for the long run.
"""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from itertools import count

import pytest

from lyra import vesper
from lyra.vesper.effects.database import open_database
from lyra.vesper.evidence.modes import ORDER
from tests.vesper.runtime.payments import GRANT, NODE, PaymentServer, make_database, make_postgres, request

pytestmark = pytest.mark.slow
REQUESTS = int(os.environ.get("LYRA_PAYMENTS", "30"))
SAME = 10  # requests with an equal key
THREADS = 16
_schemas = count(1)


@pytest.fixture(params=["sqlite", "postgres"])
def database(request, tmp_path):
    if request.param == "sqlite":
        return make_database(tmp_path / "orders.db")
    server = request.getfixturevalue("postgres_server")
    return make_postgres(server.url, f"payments_{next(_schemas)}")


@pytest.mark.parametrize("mode", ORDER)
def test_duplicate_and_concurrent_payments_are_charged_once(tmp_path, database, mode):
    server = PaymentServer()
    orders = REQUESTS // SAME
    node = vesper.load(NODE)
    with vesper.Runtime(
        str(tmp_path / "lyra.db"),
        database=database,
        providers={"stripe": server.url},
        grant=GRANT,
        predicates={"order_not_locked": lambda: True},
    ) as runtime:
        with ThreadPoolExecutor(THREADS) as pool:
            outcomes = list(
                pool.map(lambda number: runtime.execute(node, request(number % orders), mode), range(REQUESTS))
            )
        evidence = runtime.evidence(node)
    server.close()
    errors = {str(outcome.error) for outcome in outcomes if outcome.status != "success"}
    assert Counter(outcome.status for outcome in outcomes) == {"success": REQUESTS}, errors
    charges = {}
    for number, outcome in enumerate(outcomes):
        charges.setdefault(number % orders, set()).add(outcome.outputs["transaction_id"])
    assert all(len(ids) == 1 for ids in charges.values())
    keys = Counter(key for key, _ in server.requests)
    assert keys == {f"key_{number:08d}": 1 for number in range(orders)}
    kept = open_database(database)
    rows = kept.query("SELECT idempotency_key, transaction_id FROM transactions", {})
    (user,) = kept.query("SELECT balance FROM users", {})
    kept.close()
    assert len(rows) == len({row["idempotency_key"] for row in rows}) == orders
    assert Decimal(user["balance"]) == 500 - Decimal("12.50") * orders
    assert evidence.divergences == 0, evidence.found
