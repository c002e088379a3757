"""A small HTTP server that keeps what it is sent: a collector of telemetry, or a provider that refuses every request and
quotes its headers in the refusal."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

__all__ = ["Listener"]


class Listener:
    """`with Listener() as listener:`; `quotes` has it refuse with the headers of the request in its words."""

    def __init__(self, *, quotes: bool = False) -> None:
        self.bodies: list[bytes] = []
        self.heads: list[bytes] = []
        listener = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                data = self.rfile.read(int(self.headers.get("content-length", "0")))
                if self.headers.get("content-encoding") == "gzip":
                    import gzip

                    data = gzip.decompress(data)
                listener.bodies.append(data)
                listener.heads.append(bytes(self.headers))
                words = f"invalid request with {self.headers}" if quotes else ""
                body = json.dumps({"type": "error", "error": {"type": "invalid_request_error", "message": words}})
                self.send_response(400 if quotes else 200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body) if quotes else 0))
                self.end_headers()
                if quotes:
                    self.wfile.write(body.encode())

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name of the base class
                del format, args

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Listener:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
