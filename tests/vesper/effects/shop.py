"""A node that takes from a stock in a transaction, its tables, and a process that executes it once and can be killed.

    python -m tests.vesper.effects.shop FOLDER DATABASE MODE WHEN

WHEN is `inside` (of the transaction), `after` (its commit, before the journal has it) or `never`: where the process
writes a file `stopped` and waits to be killed.
"""

from __future__ import annotations

import json
import sqlite3
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg

from lyra import vesper
from lyra.vesper.effects.database import Database

NODE = """\
node_id: take_v1
type: function
intent: take one from the stock, if there is one, and note the order
inputs:
  item: string
  idempotency_key: string
outputs:
  success: {left: integer}
  error: {error_code: "enum[out_of_stock, busy]", message: string}
security: {capabilities_required: [database.read.stock, database.write.stock, database.write.orders]}
flow:
  - step: take
    operation: transaction
    on_error:
      - {error_type: conflict, return_error: {error_code: busy, message: "try again"}}
    steps:
      - {step: note, operation: database_write, table: orders, data: {item: "{item}", owner: "{idempotency_key}"}}
      - {step: look, operation: database_query, query: "SELECT quantity FROM stock WHERE item = {item}"}
      - {step: left, operation: arithmetic, expression: "query_result.quantity - 1"}
      - step: enough
        operation: validation
        guards: [left >= 0, may_go_on(left)]
        on_failure: {return_error: {error_code: out_of_stock, message: "nothing is left"}}
      - {step: keep, operation: database_update, table: stock, where: {item: "{item}"}, set: {quantity: "{left}"}}
  - {operation: return, return_success: {left: "{left}"}}
"""
GRANT = ["database.read.stock", "database.write.stock", "database.write.orders"]
_TABLES = (
    "DROP TABLE IF EXISTS stock",
    "DROP TABLE IF EXISTS orders",
    "DROP TABLE IF EXISTS lyra_effects",
    "CREATE TABLE stock (item TEXT PRIMARY KEY, quantity INTEGER NOT NULL)",
    "CREATE TABLE orders (item TEXT, owner TEXT)",
)


def make_tables(url: str, quantity: int) -> None:
    for statement in (*_TABLES, f"INSERT INTO stock VALUES ('apple', {quantity})"):
        rows(url, statement)


def rows(url: str, statement: str) -> list[tuple[Any, ...]]:
    """Send a statement past Lyra; its rows."""
    path = url.removeprefix("sqlite:///")
    if path != url:
        with closing(sqlite3.connect(path)) as connection, connection:
            return connection.execute(statement).fetchall()
    with psycopg.connect(url, autocommit=True) as server:
        cursor = server.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def runtime(url: str, store: str = "memory", **more: Any) -> vesper.Runtime:
    more.setdefault("predicates", {"may_go_on": lambda left: True})
    return vesper.Runtime(store, database=url, grant=GRANT, **more)


def main(folder: str, url: str, mode: str, when: str) -> None:
    def stop() -> None:
        Path(folder, "stopped").touch()
        threading.Event().wait()

    def may_go_on(left: Any) -> bool:
        if when == "inside":
            stop()
        return True

    original = Database.transact

    def transact(*arguments: Any) -> str:
        record = original(*arguments)
        if when == "after":
            stop()
        return record

    stopping: Any = transact
    Database.transact = stopping  # type: ignore[method-assign]
    with runtime(url, str(Path(folder, "lyra.db")), predicates={"may_go_on": may_go_on}) as opened:
        outcome = opened.execute(vesper.load(NODE), {"item": "apple", "idempotency_key": "k1"}, mode)
    code = outcome.error.code if outcome.error is not None else ""
    print(json.dumps({"status": outcome.status, "outputs": outcome.outputs, "code": code}))


if __name__ == "__main__":
    main(*sys.argv[1:])
