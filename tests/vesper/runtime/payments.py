"""A payment server and a database of orders, for nodes that charge."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

NODE = Path(__file__).parents[1] / "files" / "payment_handler.vsp"
GRANT = [
    "database.read.transactions",
    "database.write.transactions",
    "database.write.users",
    "network.http_client.api.stripe.com",
    "events.publish.payment.completed",
    "secrets.read.stripe_api_key",
]


class PaymentServer:
    """Charges once for each key, and remembers every request."""

    def __init__(self, *, delay_s: float = 0.0) -> None:
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.charges: dict[str, dict[str, Any]] = {}
        self.answers: list[tuple[int, dict[str, Any]]] = []  # given first, one each
        self._lock = threading.Lock()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                status, answer = owner.charge(str(self.headers["idempotency-key"]), body)
                time.sleep(delay_s)
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def charge(self, key: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        with self._lock:
            self.requests.append((key, body))
            if self.answers:
                return self.answers.pop(0)
            if key not in self.charges:
                self.charges[key] = {"id": f"ch_{len(self.charges) + 1}", "amount": body["amount"]}
            return 200, self.charges[key]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def make_database(path: Path) -> str:
    connection = sqlite3.connect(path)
    connection.executescript(
        """
        CREATE TABLE transactions (transaction_id TEXT, order_id TEXT, user_id TEXT, amount TEXT, currency TEXT,
                                   idempotency_key TEXT UNIQUE);
        CREATE TABLE users (id TEXT PRIMARY KEY, balance NUMERIC);
        INSERT INTO users VALUES ('user_1', 500);
        """
    )
    connection.commit()
    connection.close()
    return f"sqlite:///{path}"


def make_postgres(url: str, schema: str) -> str:
    """The address of the same tables in a schema of their own."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}".encode())
        connection.execute(f"SET search_path TO {schema}".encode())
        connection.execute(
            "CREATE TABLE transactions (transaction_id TEXT, order_id TEXT, user_id TEXT, amount NUMERIC,"
            " currency TEXT, idempotency_key TEXT UNIQUE)"
        )
        connection.execute("CREATE TABLE users (id TEXT PRIMARY KEY, balance NUMERIC)")
        connection.execute("INSERT INTO users VALUES ('user_1', 500)")
    return f"{url}&options=-csearch_path%3D{schema}"


def rows(path: Path, query: str) -> list[Any]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def request(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "amount": "12.50",
        "order_id": f"ord_{number:016d}",
        "user_id": "user_1",
        "payment_token": "tok_visa",
        "idempotency_key": f"key_{number:08d}",
        **changes,
    }
