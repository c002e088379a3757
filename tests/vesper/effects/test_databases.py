"""Queries, writes and updates of nodes on SQLite and on a real PostgreSQL server."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import psycopg
import pytest

from lyra import vesper
from lyra.vesper.effects.database import open_database
from lyra.vesper.effects.request import EffectError

HEAD = """\
node_id: rows_v1
type: function
intent: keep rows
inputs:
  name: string
  price: {type: decimal, scale: 2}
  count: {type: integer, default: 1, required: false}
outputs: {success: {rows: any}}
security: {capabilities_required: [database.read.goods, database.write.goods]}
flow:
  - step: add
    operation: database_write
    table: goods
    data: {name: "{name}", price: "{price}", count: "{count}"}
  - step: raise_price
    operation: database_update
    table: goods
    where: "name = {name} AND price > 0"
    set: {price: "price + {price}", count: "{count}"}
  - step: look
    operation: database_query
    query: "SELECT name, price, count FROM goods WHERE name = {name} AND name NOT LIKE '100%' ORDER BY price"
    output: rows
"""


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    """A database with a table of goods."""
    if request.param == "sqlite":
        address = f"sqlite:///{tmp_path}/goods.db"
        (tmp_path / "goods.db").touch()
    else:
        server = request.getfixturevalue("postgres_server")
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("DROP TABLE IF EXISTS goods, lyra_effects")
        address = server.url
    database = open_database(address)
    number = "TEXT" if request.param == "sqlite" else "NUMERIC(12, 2)"
    with database._lock, database._transaction() as connection:
        connection.execute(f"CREATE TABLE goods (name TEXT UNIQUE, price {number}, count INTEGER)")
    database.close()
    return address


def test_the_same_node_on_either_database(url):
    with vesper.Runtime(database=url, grant=["database.read.goods", "database.write.goods"]) as runtime:
        node = vesper.load(HEAD)
        for number, mode in enumerate(("python_only", "dual_verify", "direct_only")):
            inputs = {"name": f"x'; DROP TABLE goods; -- {number} %s :p0 {{name}}", "price": "1.10", "count": 2}
            outcome = runtime.execute(node, inputs, mode)
            assert outcome.error is None, outcome.error
            (row,) = outcome.outputs["rows"]
            assert (row["name"], row["count"]) == (inputs["name"], 2)
            assert Decimal(row["price"]) == Decimal("2.20")
        assert runtime.evidence(node).divergences == 0, runtime.evidence(node).found


def test_a_change_is_made_once_for_its_key(url):
    database = open_database(url)
    for _ in range(3):
        assert database.change(
            "db.write", {"table": "goods", "data": {"name": "a", "price": Decimal("1.00"), "count": 1}}, "k1"
        ) == {"rows": 1}
        where = {"sql": '"name" = :p0', "values": {"p0": "a"}}
        change = {"count": {"sql": '"count" + :p0', "values": {"p0": 5}}}
        assert database.change("db.update", {"table": "goods", "where": where, "set": change}, "k2") == {"rows": 1}
    assert database.query("SELECT count FROM goods", {}) == [{"count": 6}]
    database.close()


def test_a_refused_row_is_an_integrity_error_and_leaves_the_connection_fit(url):
    database = open_database(url)
    database.change("db.write", {"table": "goods", "data": {"name": "a", "price": 1, "count": 1}}, "k1")
    with pytest.raises(EffectError) as caught:
        database.change("db.write", {"table": "goods", "data": {"name": "a", "price": 1, "count": 1}}, "k2")
    assert caught.value.kind == "integrity_error"
    with pytest.raises(EffectError) as caught:
        database.query("SELECT nothing FROM nowhere", {})
    assert caught.value.kind in ("database_error", "database_unavailable")
    assert database.query("SELECT name FROM goods", {}) == [{"name": "a"}]
    database.close()


def test_values_of_postgresql_are_values_of_nodes(postgres_server):
    database = open_database(postgres_server.url)
    text = (
        "SELECT CAST('2026-01-02 03:04:05+02' AS timestamptz) AS moment, CAST('2026-01-02' AS date) AS day,"
        " CAST('1.50' AS numeric) AS price, 0.5::float8 AS share, CAST('{\"a\": [1.5]}' AS jsonb) AS facts,"
        " CAST('0a0b' AS bytea) AS raw, gen_random_uuid() AS id, ARRAY[1, 2] AS numbers, true AS flag"
    )
    (row,) = database.query(text, {})
    assert row["moment"] == datetime(2026, 1, 2, 1, 4, 5, tzinfo=UTC)
    assert row["moment"].utcoffset().total_seconds() == 0
    assert (row["day"], row["price"], row["share"]) == ("2026-01-02", Decimal("1.50"), Decimal("0.5"))
    assert row["facts"] == {"a": [Decimal("1.5")]}
    assert (row["raw"], row["numbers"], row["flag"]) == (b"0a0b", [1, 2], True)
    assert isinstance(row["id"], str)
    database.close()


def test_a_connection_that_is_lost_is_opened_again(postgres_server):
    """PostgreSQL ends the connection; the failed call says so, and the next one has a new connection."""
    database = open_database(postgres_server.url)
    database.query("SELECT 1", {})
    pid = database._connection.info.backend_pid
    with psycopg.connect(postgres_server.url, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(%s)", (pid,))
    with pytest.raises(EffectError) as caught:
        database.query("SELECT 1 AS n", {})
    assert caught.value.kind == "database_unavailable"
    assert database.query("SELECT 1 AS n", {}) == [{"n": 1}]
    database.close()
