"""The OpenAPI document of the table of routes: paths from the endpoints, schemas from their types.

Nothing is written by hand, so the document says what the server does. Errors that every request can meet (guard,
query, body) stand at every operation, others where the endpoint declares them.
"""

from __future__ import annotations

from functools import cache
from http import HTTPStatus
from typing import Any, Final

import msgspec

from lyra._version import __version__
from lyra.server.http.endpoint import Endpoint
from lyra.server.http.problems import vendor_of

_REFS: Final = "#/components/schemas/{name}"
_EVERY: Final = (400, 401, 403, 413, 421, 429)  # by the guard, or by a query that cannot be read
_OPEN: Final = (400, 403, 413, 421)
_WITH_BODY: Final = (408, 415)


class ErrorDetail(msgspec.Struct):
    """`code` is a word of Lyra's table of errors; `hint` says what to do, where that is known."""

    code: str
    message: str
    hint: str


class ErrorBody(msgspec.Struct):
    error: ErrorDetail


class OpenAiErrorDetail(msgspec.Struct):
    message: str
    type: str
    param: str | None
    code: str | None


class OpenAiError(msgspec.Struct):
    error: OpenAiErrorDetail


class AnthropicErrorDetail(msgspec.Struct):
    type: str
    message: str


class AnthropicError(msgspec.Struct):
    type: str
    error: AnthropicErrorDetail


class JsonRpcErrorDetail(msgspec.Struct):
    code: int
    message: str
    data: Any = None


class JsonRpcError(msgspec.Struct):
    jsonrpc: str
    id: str | int | None
    error: JsonRpcErrorDetail


class A2aErrorStatus(msgspec.Struct):
    code: int
    status: str
    message: str
    details: list[dict[str, Any]]


class A2aError(msgspec.Struct):
    error: A2aErrorStatus


_ERRORS: Final[dict[str, Any]] = {
    "lyra": ErrorBody,
    "openai": OpenAiError,
    "anthropic": AnthropicError,
    "jsonrpc": JsonRpcError,
    "a2a": A2aError,
}


@cache
def openapi_bytes(endpoints: tuple[Endpoint, ...]) -> bytes:
    return msgspec.json.encode(openapi_document(endpoints))


def openapi_document(table: tuple[Endpoint, ...]) -> dict[str, Any]:
    """The document as plain data; pages for people are not in it."""
    endpoints = [endpoint for endpoint in table if endpoint.is_documented]
    types = [
        kind
        for endpoint in endpoints
        for kind in (endpoint.answer, endpoint.body, endpoint.query)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    ]
    unique = list(dict.fromkeys([*types, *_ERRORS.values()]))
    schemas, components = msgspec.json.schema_components(unique, ref_template=_REFS)
    named = dict(zip(unique, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, named, components)
    for kind in dict.fromkeys(endpoint.query for endpoint in endpoints):
        components.pop(kind.__name__, None)  # its fields stand as parameters
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Lyra",
            "version": __version__,
            "description": "Agents as processes: talk to them, watch them, answer them, end them.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "apiKey": {"type": "apiKey", "in": "header", "name": "x-api-key"},
            },
        },
        "security": [{"bearer": []}, {"apiKey": []}],
        "tags": [{"name": name} for name in dict.fromkeys(endpoint.group for endpoint in endpoints)],
    }


def _operation(endpoint: Endpoint, named: dict[Any, Any], components: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "tags": [endpoint.group],
        "summary": endpoint.summary,
        "parameters": [*_path_parameters(endpoint), *_query_parameters(endpoint, components)],
        "responses": _responses(endpoint, named),
    }
    if endpoint.about:
        operation["description"] = endpoint.about
    if endpoint.is_open:
        operation["security"] = []
    if endpoint.body is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": named[endpoint.body]}}}
    if endpoint.name == "agents.resume":
        operation["parameters"].append(
            {"name": "Last-Event-ID", "in": "header", "required": False, "schema": {"type": "string"}}
        )
    return operation


def _path_parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in endpoint.parameters
    ]


def _query_parameters(endpoint: Endpoint, components: dict[str, Any]) -> list[dict[str, Any]]:
    fields = components[endpoint.query.__name__]["properties"]
    return [{"name": name, "in": "query", "required": False, "schema": schema} for name, schema in fields.items()]


def _responses(endpoint: Endpoint, named: dict[Any, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if not endpoint.streams:
        media = endpoint.media.partition(";")[0]
        content[media] = {"schema": named.get(endpoint.answer) or _plain_schema(endpoint.answer)}
    if endpoint.streams or endpoint.may_stream:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    responses = {str(endpoint.status): {"description": endpoint.summary, "content": content}}
    error = named[_ERRORS[vendor_of(endpoint.path, {})]]
    common = _OPEN if endpoint.is_open else _EVERY
    statuses = {*common, *endpoint.statuses, *(_WITH_BODY if endpoint.body is not None else ())}
    for status in sorted(statuses):
        responses[str(status)] = {
            "description": HTTPStatus(status).phrase,
            "content": {"application/json": {"schema": error}},
        }
    return responses


def _plain_schema(kind: Any) -> dict[str, Any]:
    return msgspec.json.schema(kind)
