"""Requests that no honest client sends, as bytes, and what may come of each.

`REFUSED` are whole requests: the answer has to be a refusal (4xx) or the end of the connection. `SMUGGLED` carry a second
request in their body or behind it; the second one must not be answered. `BODIES` are documents for a JSON endpoint.
"""

from __future__ import annotations

import json
from typing import Final

from verify.served import OPERATOR, USER_TOKEN

__all__ = ["BODIES", "NAMES", "REFUSED", "SMUGGLED", "request"]

_HIDDEN: Final = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n"


def request(path: str, *headers: str, method: str = "GET", body: bytes = b"", token: str = OPERATOR) -> bytes:
    """A request with a token; headers as they are."""
    lines = [f"{method} {path} HTTP/1.1", "host: localhost", f"authorization: Bearer {token}", *headers]
    if body and not any(line.lower().startswith(("content-length", "transfer-encoding")) for line in headers):
        lines.append(f"content-length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def _plain(*lines: str) -> bytes:
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


_LIST: Final = "GET /api/processes HTTP/1.1"
_TOKEN: Final = f"authorization: Bearer {OPERATOR}"
REFUSED: Final[dict[str, bytes]] = {
    "no token": _plain(_LIST, "host: localhost"),
    "a wrong token": request("/api/processes", token="wrong-token-0123456789"),  # noqa: S106 - wrong on purpose
    "an empty token": _plain(_LIST, "host: localhost", "authorization: Bearer "),
    "two tokens": _plain(_LIST, "host: localhost", "authorization: Bearer x", _TOKEN),
    "a token of 60 kB": _plain(_LIST, "host: localhost", f"authorization: Bearer {'x' * 60_000}"),
    "a token that is not ASCII": _plain(_LIST, "host: localhost", "authorization: Bearer \xe4\xf6\xfc"),
    "a token in the URL": _plain(f"GET /api/processes?token={OPERATOR} HTTP/1.1", "host: localhost"),
    "a token in a cookie": _plain(_LIST, "host: localhost", f"cookie: token={OPERATOR}"),
    "another user's name": request("/api/processes", "x-user-id: bob", token=USER_TOKEN),
    "a foreign host": _plain(_LIST, "host: evil.example", _TOKEN),
    "no host": _plain(_LIST, _TOKEN),
    "two hosts": _plain(_LIST, "host: localhost", "host: evil.example", _TOKEN),
    "a host with a user": _plain(_LIST, "host: localhost@evil.example", _TOKEN),
    "a host that ends in ours": _plain(_LIST, "host: evil-localhost", _TOKEN),
    "a foreign origin": request("/api/processes", "origin: https://evil.example"),
    "the origin null": request("/api/processes", "origin: null"),
    "an origin that begins as ours": request("/api/processes", "origin: http://localhost.evil.example"),
    "a preflight": request("/api/processes", "origin: https://evil.example", method="OPTIONS"),
    "HTTP/9.9": _plain("GET /healthz HTTP/9.9", "host: localhost"),
    "a method with a space": _plain("GE T /healthz HTTP/1.1", "host: localhost"),
    "a method that is none": _plain("FROBNICATE /api/processes HTTP/1.1", "host: localhost", _TOKEN),
    "a tunnel": _plain("CONNECT evil.example:443 HTTP/1.1", "host: evil.example:443"),
    "a NUL in a header": b"GET /api/processes HTTP/1.1\r\nhost: localhost\r\nx: a\0b\r\n\r\n",
    "a header without a name": b"GET /api/processes HTTP/1.1\r\nhost: localhost\r\n: x\r\n\r\n",
    "a header over two lines": b"GET /api/processes HTTP/1.1\r\nhost: localhost\r\nx: a\r\n b\r\n\r\n",
    "bytes of TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x5a" * 200,
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0" * 50,
    "noise": bytes(range(256)) * 20 + b"\r\n\r\n",
    "a user with a line break": request("/api/processes?user_id=a%0d%0ax:%20y"),
    "a user with a NUL": request("/api/processes?user_id=a%00b"),
    "a user of 10 000 letters": request(f"/api/processes?user_id={'u' * 10_000}"),
    "a session with a line break": request("/api/processes", "x-session-id: a\x7fb"),
    "10 000 fields in the query": request("/api/processes?" + "&".join(f"a{number}=1" for number in range(5000))),
    "a wrong escape": request("/api/processes?user_id=%zz"),
    "an escape that is not UTF-8": request("/api/processes?user_id=%ff%fe"),
    "a limit beyond int64": request(f"/api/processes?limit={10**30}"),
    "a limit below 0": request("/api/processes?limit=-1"),
    "1 000 segments": request("/api" + "/x" * 1000),
}

_CHAT: Final = f"POST /api/agents/echo/chat HTTP/1.1\r\nhost: localhost\r\n{_TOKEN}\r\n".encode()
_SHORT: Final = b'{"message":"a"}'


def _smuggled(headers: bytes, body: bytes) -> bytes:
    return _CHAT + b"content-type: application/json\r\n" + headers + b"\r\n" + body


_CHUNKED: Final = b"f\r\n" + _SHORT + b"\r\n0\r\n\r\n"
SMUGGLED: Final[dict[str, bytes]] = {
    "a length and chunks": _smuggled(b"content-length: 15\r\ntransfer-encoding: chunked\r\n", _CHUNKED + _HIDDEN),
    "chunks and a length": _smuggled(b"transfer-encoding: chunked\r\ncontent-length: 4\r\n", _CHUNKED + _HIDDEN),
    "two lengths": _smuggled(b"content-length: 15\r\ncontent-length: 5\r\n", _SHORT + _HIDDEN),
    "a list of lengths": _smuggled(b"content-length: 15, 5\r\n", _SHORT + _HIDDEN),
    "a length with a sign": _smuggled(b"content-length: +15\r\n", _SHORT + _HIDDEN),
    "a length below 0": _smuggled(b"content-length: -1\r\n", _SHORT + _HIDDEN),
    "a length in hex": _smuggled(b"content-length: 0xf\r\n", _SHORT + _HIDDEN),
    "a length beyond int64": _smuggled(b"content-length: 99999999999999999999\r\n", _SHORT + _HIDDEN),
    "another coding": _smuggled(b"transfer-encoding: xchunked\r\n", _CHUNKED + _HIDDEN),
    "identity": _smuggled(b"transfer-encoding: identity\r\ncontent-length: 15\r\n", _CHUNKED + _HIDDEN),
    "chunked, twice": _smuggled(b"transfer-encoding: chunked, chunked\r\n", _CHUNKED + _HIDDEN),
    "a space before the colon": _smuggled(b"transfer-encoding : chunked\r\ncontent-length: 15\r\n", _CHUNKED + _HIDDEN),
    "a tab in the coding": _smuggled(b"transfer-encoding:\tchunked\x0b\r\ncontent-length: 15\r\n", _CHUNKED + _HIDDEN),
    "a chunk of a wrong size": _smuggled(
        b"transfer-encoding: chunked\r\n", b"3\r\n" + _SHORT + b"\r\n0\r\n\r\n" + _HIDDEN
    ),
    "a chunk beyond int64": _smuggled(b"transfer-encoding: chunked\r\n", b"fffffffffffffffff\r\n" + _SHORT + _HIDDEN),
    "a chunk below 0": _smuggled(b"transfer-encoding: chunked\r\n", b"-f\r\n" + _SHORT + b"\r\n0\r\n\r\n" + _HIDDEN),
    "an extension with a line break": _smuggled(
        b"transfer-encoding: chunked\r\n", b"f;x=\n" + _SHORT + b"\r\n0\r\n\r\n" + _HIDDEN
    ),
    "lines that end without CR": _smuggled(b"content-length: 15\r\n", _SHORT).replace(b"\r\n", b"\n")
    + _HIDDEN.replace(b"\r\n", b"\r"),
}

_NESTED: Final = 200_000
BODIES: Final[dict[str, bytes]] = {
    "no JSON": b"{message: x}",
    "nothing": b" ",
    "a list": b"[]",
    "cut off": b'{"message": "x',
    "not UTF-8": b'{"message": "\xff\xfe\xfd"}',
    "half a surrogate pair": b'{"message": "\\ud800"}',
    "a NUL": b'{"message": "a\x00b"}',
    "nested lists": b'{"message": ' + b"[" * _NESTED + b"]" * _NESTED + b"}",
    "nested objects": b'{"message": ' + b'{"a":' * _NESTED + b"1" + b"}" * _NESTED + b"}",
    "nested, in a pipeline": b'{"pipeline": {"name": "x", "agents": [' + b"[" * _NESTED + b"]" * _NESTED + b"]}}",
    "a number for a text": b'{"message": 1}',
    "a number beyond int64": b'{"message": "x", "session_id": 99999999999999999999999}',
    "a number beyond a float": b'{"message": 1e999999}',
    "a number of a million digits": b'{"message": ' + b"9" * 1_000_000 + b"}",
    "NaN": b'{"message": NaN}',
    "an unknown field": b'{"message": "x", "is_admin": true}',
    "a wrong session": json.dumps({"message": "x", "session_id": "../../etc/passwd"}).encode(),
    "a session with a line break": json.dumps({"message": "x", "session_id": "a\r\nset-cookie: b"}).encode(),
    "a user with a line break": json.dumps({"message": "x", "user_id": "a\r\nx: y"}).encode(),
    "a user of 10 000 letters": json.dumps({"message": "x", "user_id": "u" * 10_000}).encode(),
}

NAMES: Final = (
    "../../../../etc/passwd",
    "..%2f..%2f..%2fetc%2fpasswd",
    "%2e%2e%2f%2e%2e%2fetc%2fpasswd",
    "..%5c..%5cetc%5cpasswd",
    "%00",
    "a%00b",
    "%0d%0aset-cookie:%20x",
    "%ff%fe",
    "file:%2f%2f%2fetc%2fpasswd",
    "x" * 8000,
    "{name}",
    "$%7BHOME%7D",
    "' OR 1=1 --",
)
