"""What nodes of the corpus may reach: a server, functions, predicates and a database of their own."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from lyra.vesper import Runtime
from lyra.vesper.effects.request import EffectError
from lyra.vesper.reference.run import run, start
from lyra.vesper.repository.folders import Repository
from tests.vesper.language import corpus

__all__ = ["MODES", "ShopServer", "runtime_for"]

# By the name of a path, the mode in which it is live.
MODES = {"python": "python_only", "direct": "direct_only", "reference": "direct_only", "both": "dual_verify"}


class ReferencePath:
    """The reference evaluator in place of the direct path."""

    def __init__(self) -> None:
        self.run = run
        self.start = start


class ShopServer:
    """Answers by the path of a request."""

    def __init__(self) -> None:
        self.tries: Counter[str] = Counter()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self._answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))

            def do_GET(self) -> None:
                self._answer(None)

            def _answer(self, sent: Any) -> None:
                status, body = owner.answer(self.command, self.path, sent)
                data = json.dumps(body).encode()
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

    def answer(self, method: str, path: str, sent: Any) -> tuple[int, Any]:
        if path.startswith("/flaky/"):
            self.tries[path] += 1
            tries = self.tries[path]
            return (503, {}) if tries <= int(path.removeprefix("/flaky/")) else (200, {"tries": tries})
        answers: dict[str, tuple[int, Any]] = {
            "/echo": (200, {"method": method, "sent": sent}),
            "/fine": (200, {"ok": True}),
            "/declined": (402, {"error": {"code": "card_declined"}}),
            "/broken": (500, {}),
            "/teapot": (418, "short"),
        }
        return answers.get(path, (404, {}))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def price(name: str) -> Decimal:
    if name == "melon":
        raise EffectError("sold_out", "no melons")
    if name != "apple":
        raise EffectError("unknown", name)
    return Decimal("1.50")


def echo(**values: Any) -> dict[str, Any]:
    return values


@contextmanager
def runtime_for(path: Path, evaluator: str, folder: Path, server: ShopServer) -> Iterator[Runtime]:
    """A runtime with what a node's file asks for; afterwards its database must hold what the file says."""
    database = folder / "node.db"
    with closing(sqlite3.connect(database)) as connection:
        for statement in corpus.comments(path, "sql"):
            connection.executescript(statement)
        connection.commit()
    server.tries.clear()
    grants = corpus.comments(path, "grant")
    grant = list(corpus.program(path).capabilities) if not grants else grants[0].replace("none", "").split()
    with Runtime(
        database=f"sqlite:///{database}",
        providers={"shop": server.url},
        grant=grant,
        direct=ReferencePath() if evaluator == "reference" else None,
        custom={"shop.price": price, "shop.echo": echo},
        predicates={"is_even": lambda n: n % 2 == 0, "shop_is_open": lambda: True},
        nodes=Repository([path.parent]),
    ) as runtime:
        yield runtime
    with closing(sqlite3.connect(database)) as connection:
        for comment in corpus.comments(path, "rows"):
            query, _, wanted = comment.partition(" => ")
            assert [list(row) for row in connection.execute(query)] == json.loads(wanted), query
