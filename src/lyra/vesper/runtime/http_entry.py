"""Nodes as routes of an HTTP server: a plain function from a request to a reply. Serving is another's business.

    entry = HttpEntry(runtime, nodes)
    reply = entry.handle("POST", "/orders/7/payments", {"Idempotency-Key": "k"}, b'{"amount": "9.90"}')

Only nodes of the type `http_handler` have routes. Inputs come from the path, the query, the JSON body and, for an input
`idempotency_key`, the header of that name; an input that comes from two places is refused. Numbers of the body are read
exactly. `STATUSES` maps error codes to statuses; a code that the node declares itself is 422.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import msgspec

from lyra.errors import ConfigError
from lyra.vesper.values.json_values import json_shape
from lyra.vesper.values.limits import HTTP_BODY_BYTES_MAX, HTTP_QUERY_FIELDS_MAX
from lyra.vesper.values.names import bare_id
from lyra.vesper.values.triggers import HttpRoute, route_of
from lyra.vesper.values.types import BOOLEAN, INTEGER, ValueType, without_null

if TYPE_CHECKING:
    from lyra.vesper.nodes import Node
    from lyra.vesper.runtime.runtime import Runtime
    from lyra.vesper.values.outcome import Outcome

__all__ = ["STATUSES", "HttpEntry", "HttpReply"]

STATUSES: Final = {
    "invalid_input": 400,
    "capability_denied": 403,
    "invalid_transition": 409,
    "precondition_failed": 422,
    "validation_failed": 422,
    "rate_limited": 429,
    "overflow": 500,
    "division_by_zero": 500,
    "type_error": 500,
    "incomplete_output": 500,
    "loop_limit": 500,
    "postcondition_failed": 500,
    "invariant_failed": 500,
    "resource_limit": 500,
    "effect_failed": 502,
    "timeout": 504,
}
_OWN_CODE: Final = 422
_INTEGER: Final = re.compile(r"-?\d{1,20}\Z", re.ASCII)
_JSON: Final = {"content-type": "application/json"}


class HttpReply(msgspec.Struct, frozen=True):
    status: int
    headers: dict[str, str]
    body: bytes


class _Refused(Exception):
    """A request that reaches no node; `reply` says why."""

    def __init__(self, status: int, code: str, message: str, **headers: str) -> None:
        super().__init__(message)
        self.reply = _reply(status, {"status": "error", "error": {"code": code, "message": message}}, headers)


class HttpEntry:
    """The routes of some nodes."""

    def __init__(self, runtime: Runtime, nodes: Iterable[Node]) -> None:
        self._runtime = runtime
        self._routes: list[tuple[HttpRoute, Node]] = []
        for node in nodes:
            if node.kind == "http_handler":
                self._add(node)

    def _add(self, node: Node) -> None:
        self._runtime.program(node)  # a node with mistakes has no route
        route = route_of(node.metadata.route or f"POST /{bare_id(node.node_id)}")
        assert route is not None  # the checker has read it
        shape = _shape(route)
        for other, earlier in self._routes:
            if _shape(other) == shape:
                raise ConfigError(f"{node.node_id} and {earlier.node_id} have the same route: {node.metadata.route}")
        self._routes.append((route, node))

    def routes(self) -> list[tuple[str, str, str]]:
        """Method, path and node of each route."""
        return sorted((route.method, route.path, node.node_id) for route, node in self._routes)

    def has_path(self, path: str) -> bool:
        """Whether a node is behind this path, with any method."""
        return any(route.match(path) is not None for route, _ in self._routes)

    def handle(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> HttpReply:
        """Execute the node behind a request. Never raises for what a request says."""
        try:
            node, given, query = self._find(method.upper(), path)
            inputs = self._inputs(node, given, query, headers or {}, body or b"")
        except _Refused as refused:
            return refused.reply
        return _told(self._runtime.execute(node, inputs))

    def _find(self, method: str, target: str) -> tuple[Node, dict[str, str], str]:
        path, _, query = target.partition("?")
        matches = [(route, node, values) for route, node in self._routes if (values := route.match(path)) is not None]
        for route, node, values in sorted(matches, key=lambda match: len(match[2])):  # the most literal path first
            if route.method == method:
                return node, values, query
        if not matches:
            raise _Refused(404, "not_found", "there is no such path")
        allowed = ", ".join(sorted({route.method for route, _, _ in matches}))
        raise _Refused(405, "method_not_allowed", f"this path takes {allowed}", allow=allowed)

    def _inputs(
        self, node: Node, given: dict[str, str], query: str, headers: Mapping[str, str], body: bytes
    ) -> dict[str, Any]:
        program = self._runtime.program(node)
        kinds = {entry.name: entry.type for entry in program.inputs}
        texts = [*given.items(), *_query(query)]
        key = next((value for name, value in headers.items() if name.lower() == "idempotency-key"), None)
        if key is not None and program.idempotency_key:
            texts.append((program.idempotency_key, key))
        inputs = _body(body)
        for name, text in texts:
            value = _read(text, kinds.get(name))
            if name in inputs and inputs[name] != value:
                raise _Refused(400, "invalid_input", f"{name} is given twice")
            inputs[name] = value
        return inputs


def _shape(route: HttpRoute) -> tuple[str, ...]:
    return (route.method, *("{}" if segment.startswith("{") else segment for segment in route.segments))


def _query(text: str) -> list[tuple[str, str]]:
    try:
        return parse_qsl(text, keep_blank_values=True, max_num_fields=HTTP_QUERY_FIELDS_MAX)
    except ValueError:
        raise _Refused(400, "invalid_input", "the query has too many fields") from None


def _body(body: bytes) -> dict[str, Any]:
    if len(body) > HTTP_BODY_BYTES_MAX:
        raise _Refused(413, "invalid_input", f"the body has more than {HTTP_BODY_BYTES_MAX} bytes")
    if not body.strip():
        return {}
    try:
        value = json.loads(body, parse_float=Decimal, parse_constant=_refuse, object_pairs_hook=_once_each)
    except (ValueError, RecursionError):
        raise _Refused(400, "invalid_input", "the body is no JSON, or has a key twice") from None
    if not isinstance(value, dict):
        raise _Refused(400, "invalid_input", "the body is no JSON object")
    return value


def _refuse(word: str) -> Any:
    raise ValueError(word)


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) != len(pairs):
        raise ValueError("a key twice")
    return values


def _read(text: str, kind: ValueType | None) -> Any:
    """A text of the path, the query or a header as the input's type has it."""
    plain = None if kind is None else without_null(kind)
    if plain == INTEGER and _INTEGER.match(text):
        return int(text)
    if plain == BOOLEAN and text in ("true", "false"):
        return text == "true"
    return text


def _told(outcome: Outcome) -> HttpReply:
    failure = outcome.error
    if failure is None:
        return _reply(200, {"status": "success", "outputs": outcome.outputs, "trace_id": outcome.trace_id})
    error = {**failure.fields, "code": failure.code, "message": failure.message, "phase": failure.phase}
    data = {"status": "error", "error": error, "trace_id": outcome.trace_id}
    headers = {}
    pause = failure.fields.get("retry_after_seconds")
    if isinstance(pause, int) and not isinstance(pause, bool):
        headers["retry-after"] = str(pause)
    return _reply(STATUSES.get(failure.code, _OWN_CODE), data, headers)


def _reply(status: int, data: Any, headers: Mapping[str, str] | None = None) -> HttpReply:
    return HttpReply(status, {**_JSON, **(headers or {})}, json.dumps(json_shape(data)).encode())
