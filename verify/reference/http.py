"""`http.md`: everything that can be asked over HTTP, from the table of routes of the server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

Table = Callable[[tuple[str, ...], Sequence[tuple[str, ...]]], str]

_PAGE: Final = """\
# HTTP

{written}

`lyra serve --http HOST:PORT` answers these requests; `lyra.server.app(kernel)` is the same as an ASGI application. How
to use them is in [Serve agents over HTTP](../how-to/serve-over-http.md). `/openapi.json` is this table as an OpenAPI
document.

## Who asks

A request carries a token: `authorization: Bearer TOKEN`, or `x-api-key: TOKEN`. It acts for the user that the token is
bound to; with any other token, for the user that `x-user-id` or `user_id` (in the query or the body) names. A token
that is not bound and names no user is the operator's, who sees everything. A bound token is 403 for another user that
the request names; what belongs to another user is 404, in the words for what does not exist. An id of a session that is
taken cannot be chosen for a new one (403). The paths marked *open* need no token.

## What is refused

{refusals}

The body of an error is `{{"error": {{"code", "message", "hint"}}}}`; below `/v1/` it has the form of the vendor. Codes
and their statuses are in [Errors](errors.md). A client that sends its headers or its body too slowly, or does not read
its answer, is dropped.

## Streams

Streams are server-sent events. Each has an `id`; a GET with the header `Last-Event-ID` reads on after it. `missed` says
how many events are not kept any more. A comment comes when nothing has happened for {heartbeat:g} s.

{groups}"""

_REFUSALS: Final = (
    ("400", "the query or the body cannot be read, or has an unknown key"),
    ("401", "no token, or one that is not known"),
    ("402", "a budget does not allow it"),
    ("403", "for another user than the token's, or a page of another origin (there is no CORS)"),
    ("404", "there is no such path or thing, or it is another user's"),
    ("405", "the path takes other methods; `allow` says which"),
    ("408", "the body did not come in time"),
    ("409", "not in the state that it is in; also while the server stops"),
    ("410", "these events are not kept any more"),
    ("413", "a body larger than `[server] message_bytes_max`"),
    ("415", "a body that is not JSON"),
    ("421", "a host that is not in `[server] hosts` and not the server's own"),
    ("429", "more than `[server] requests_per_minute`, or a limit set in the kernel; `retry-after` says when"),
)


def pages(written: str, table: Table) -> dict[str, str]:
    """The page, by file name."""
    from lyra.core.limits import SERVER_HEARTBEAT_S
    from lyra.server.http.routes import ENDPOINTS

    groups: dict[str, list[Any]] = {}
    for endpoint in ENDPOINTS:
        groups.setdefault(endpoint.group, []).append(endpoint)
    text = _PAGE.format(
        written=written,
        refusals=table(("status", "when"), _REFUSALS),
        heartbeat=SERVER_HEARTBEAT_S,
        groups="\n".join(_group(name, endpoints, table) for name, endpoints in groups.items()),
    )
    return {"http.md": text}


def _group(name: str, endpoints: list[Any], table: Table) -> str:
    rows = [(f"`{endpoint.method} {endpoint.path}`", _what(endpoint)) for endpoint in endpoints]
    details = "".join(_details(endpoint) for endpoint in endpoints)
    return f"## {name}\n\n{table(('request', 'what it does'), rows).rstrip()}\n\n{details}"


def _what(endpoint: Any) -> str:
    marks = [word for word, holds in (("open", endpoint.is_open), ("stream", endpoint.streams)) if holds]
    mark = f" *({', '.join(marks)})*" if marks else ""
    return f"{endpoint.summary}.{mark}"


def _details(endpoint: Any) -> str:
    """The fields of the query, the body and the answer of an endpoint, as a list."""
    parts = []
    query = [name for name in _fields(endpoint.query) if name != "`user_id`"]
    if query:
        parts.append(f"query {', '.join(query)}")
    if endpoint.body is not None:
        parts.append(f"body {', '.join(name for name in _fields(endpoint.body) if name != '`user_id`')}")
    if not endpoint.streams and _fields(endpoint.answer):
        status = f" {endpoint.status}" if endpoint.status != 200 else ""
        parts.append(f"answer{status} {', '.join(_fields(endpoint.answer))}")
    about = f" {endpoint.about}" if endpoint.about else ""
    return f"- `{endpoint.name}`: {'; '.join(parts)}.{about}\n" if parts or about else ""


def _fields(kind: Any) -> list[str]:
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return []
    return [f"`{field.name}`" for field in msgspec.structs.fields(kind)]
