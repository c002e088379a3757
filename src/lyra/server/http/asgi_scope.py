"""What the ASGI scope of a request says: its path, headers, query, client and whether it has a body."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl

from lyra.errors import ConfigError

_QUERY_FIELDS_MAX: Final = 100
_BAD_ESCAPE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")


def client_of(scope: Any) -> str:
    """The address of the client; "" where it is not known."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def has_no_body(scope: Any, headers: Mapping[str, str]) -> bool:
    length = headers.get("content-length", "0" if scope["method"] == "GET" else "")
    return length == "0" and "transfer-encoding" not in headers


def headers_of(scope: Any) -> dict[str, str]:
    """The headers by their names in lower case; one that may stand once and stands twice is refused by being joined."""
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key = name.decode("latin-1")
        text = value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    return headers


def own_path(scope: Any) -> str:
    """The path below the place where the application is mounted, as it was sent: with its escapes."""
    root = scope.get("root_path", "")
    raw = scope.get("raw_path")
    path: str = scope["path"] if raw is None else raw.partition(b"?")[0].decode("latin-1")
    return path[len(root) :] if root and path.startswith(root) else path


def base_url(scope: Any, headers: Mapping[str, str]) -> str:
    """The address under which the client reaches the application, also behind a proxy that does TLS."""
    forwarded = headers.get("x-forwarded-proto", "") == "https"
    scheme = "https" if forwarded else scope.get("scheme", "http")
    return f"{scheme}://{headers.get('host', '')}{scope.get('root_path', '')}"


def query_of(text: bytes) -> list[tuple[str, str]]:
    if not text:
        return []
    if _BAD_ESCAPE.search(text):
        raise ConfigError("the query has a % that escapes nothing")
    try:
        return parse_qsl(
            text.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=_QUERY_FIELDS_MAX
        )
    except ValueError:
        raise ConfigError("the query cannot be read") from None
