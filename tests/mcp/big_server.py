"""A server over HTTP whose results are as large as they may be: run as a program with a port."""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


TEXT = [{"type": "text", "text": "x" * 20_000_000}]
RESULTS: dict[str, Any] = {
    "text": {"content": TEXT},
    "escaped": {"content": [{"type": "text", "text": 'é\n"\\' * 2_500_000}]},
    "parts": {"content": [{"type": "text", "text": f"{number} " + "y" * 2_000} for number in range(10_000)]},
    "structured": {"content": [], "structuredContent": {"rows": list(range(90_000)), "log": "z" * 19_000_000}},
    "picture": {"content": [{"type": "image", "mimeType": "image/png", "data": "iVBORw0K" + "A" * 20_000_000}]},
    "crowded": {"content": [], "structuredContent": {"rows": list(range(2_000_000))}},
    "deep": {"content": [], "structuredContent": {"rows": [nested(100)] * 90_000}},
}
BODIES = {name: json.dumps(result, ensure_ascii=False).encode() for name, result in RESULTS.items()}
STARTS: dict[str, Any] = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "big", "version": "1"},
    },
    "tools/list": {
        "tools": [
            {"name": f"{name}_{way}", "inputSchema": {"type": "object"}} for name in RESULTS for way in ("json", "sse")
        ]
    },
}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.answer(405, b"")

    def do_DELETE(self) -> None:
        self.answer(405, b"")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        number, method = json.dumps(asked.get("id")).encode(), asked["method"]
        if "id" not in asked:
            self.answer(202, b"")
        elif method == "tools/call":
            name, _, way = asked["params"]["name"].partition("_")
            body = b'{"jsonrpc":"2.0","id":%s,"result":%s}' % (number, BODIES[name])
            self.answer(200, b"event: message\ndata: " + body + b"\n\n" if way == "sse" else body, way)
        elif method in STARTS:
            self.answer(200, json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": STARTS[method]}).encode())
        else:
            self.answer(200, b'{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no"}}' % number)

    def answer(self, status: int, body: bytes, way: str = "json") -> None:
        self.send_response(status)
        self.send_header("content-type", "text/event-stream" if way == "sse" else "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
