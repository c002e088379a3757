"""The server itself: whether it lives, whether it is ready, how it is doing, its metrics, what can be asked.

`SERVICE_ENDPOINTS` are the services of the kernel: what there is, how it is doing, and a piece of work for one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra._version import __version__
from lyra.errors import Denied
from lyra.kernel.services.service import ServiceInfo
from lyra.kernel.workers.quota import SystemUsage
from lyra.observe.metrics import attach_metrics
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer, RequestBody
from lyra.server.http.mounted_nodes import get_mounted_nodes
from lyra.server.http.problems import HttpRefusal, vendor_of
from lyra.server.owners import owner_if_known
from lyra.server.work.names import is_offered, service_for

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.server.identity import Caller


class Alive(msgspec.Struct):
    status: str = "ok"


class StatusView(msgspec.Struct, kw_only=True):
    """How the kernel is doing; for a user, what is theirs of it."""

    version: str
    uptime_seconds: float
    total_processes: int
    process_counts: dict[str, int]
    queue_depth: int
    service_counts: dict[str, int]
    interrupts: dict[str, int]
    resources: dict[str, Any]


async def alive(call: HttpCall) -> Alive:
    del call
    return Alive()


async def ready(call: HttpCall) -> Alive:
    kernel = call.kernel
    if kernel.failure is not None or not kernel.open or kernel.stopping:
        raise HttpRefusal(503, "the kernel is not open")
    if call.parts.is_draining or kernel.draining:
        raise HttpRefusal(503, "the server is stopping")
    return Alive("ready")


async def status(call: HttpCall) -> StatusView:
    data = call.kernel.get_system_status().to_data()
    data.pop("rate_limit_usage")
    if not call.caller.is_operator:
        data.update(_figures_of(call.kernel, call.caller))
    return StatusView(version=__version__, **data)


def _figures_of(kernel: Kernel, caller: Caller) -> dict[str, Any]:
    """Return the figures of one user, in place of those of all."""
    counts = kernel.lifecycle.get_process_counts(caller.user_id)
    statuses = Counter(
        str(interrupt.status)
        for interrupt in kernel.interrupts.list_interrupts()
        if caller.owns(interrupt.user_id or owner_if_known(kernel, interrupt.pid))
    )
    usage = kernel.resources.get_user_usage(caller.user_id)
    used = {name: getattr(usage, name) for name in SystemUsage.__struct_fields__ if hasattr(usage, name)}
    ended = counts["terminated"] + counts["zombie"]
    return {
        "total_processes": counts.total,
        "process_counts": dict(counts),
        "queue_depth": counts.queue_depth,
        "interrupts": {status: statuses[status] for status in kernel.interrupts.get_counts()},
        "resources": {"total_processes": counts.total, "active_processes": counts.total - ended, **used},
    }


async def metrics(call: HttpCall) -> RawAnswer:
    if call.caller.is_bound:  # they tell of the agents of all users
        raise Denied("metrics are for the operator", hint="use a token that is bound to no user")
    body, media = attach_metrics(call.kernel).render()
    mounted = get_mounted_nodes(call.kernel)
    if mounted is not None and b"# TYPE sir_executions_total " not in body:  # the application may have added them
        body += (await asyncio.to_thread(mounted.runtime.metrics_text)).encode()
    return RawAnswer(body, media)


async def openapi(call: HttpCall) -> RawAnswer:
    return RawAnswer(openapi_bytes(call.parts.endpoints))


ENDPOINTS: Final = (
    Endpoint("system.alive", "GET", "/healthz", "Whether the server runs", alive, answer=Alive, is_open=True),
    Endpoint(
        "system.ready",
        "GET",
        "/readyz",
        "Whether it takes requests: 503 while it starts or stops, or when its store is lost",
        ready,
        answer=Alive,
        is_open=True,
        statuses=(503,),
    ),
    Endpoint("system.openapi", "GET", "/openapi.json", "This API as an OpenAPI document", openapi, is_open=True),
    Endpoint("system.status", "GET", "/api/system", "How the kernel is doing", status, answer=StatusView),
    Endpoint(
        "system.metrics",
        "GET",
        "/metrics",
        "Metrics for Prometheus; for the operator",
        metrics,
        answer=str,
        media="text/plain; version=0.0.4; charset=utf-8",
        statuses=(403,),
    ),
)


# ---------------------------------------------------------------- openapi
# The OpenAPI document of the table of routes: paths from the endpoints, schemas from their types.

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
    """Return the document as plain data; pages for people are not in it."""
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
        content[media] = {"schema": named.get(endpoint.answer) or msgspec.json.schema(endpoint.answer)}
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


class ServiceView(msgspec.Struct, kw_only=True):
    name: str
    service_type: str
    version: str
    status: str
    capabilities: list[str]
    max_concurrent: int
    current_load: int
    last_health_check: float | None
    shard: str = ""  # of a cluster: the one that has it, where that is another


class ServiceList(msgspec.Struct):
    services: list[ServiceView]


class DispatchBody(RequestBody):
    """`pid` names a process of the caller's, for whose quota the work counts."""

    metadata: dict[str, Any] = msgspec.field(default_factory=dict)
    envelope: dict[str, Any] | None = None
    pid: str = ""


class DispatchAnswer(msgspec.Struct, kw_only=True):
    envelope: dict[str, Any] | None
    metadata: dict[str, Any]
    error: str | None


def _view(info: ServiceInfo) -> ServiceView:
    fields = {name: getattr(info, name) for name in ServiceView.__struct_fields__ if name != "shard"}
    return ServiceView(**fields, shard=info.metadata.get("shard", ""))


async def list_services(call: HttpCall) -> ServiceList:
    services = call.kernel.services.list_services()
    return ServiceList([_view(info) for info in services if is_offered(call.kernel, info, call.caller)])


async def get_service(call: HttpCall) -> ServiceView:
    return _view(service_for(call.kernel, call.caller, call.path["name"]))


async def dispatch(call: HttpCall) -> DispatchAnswer:
    body: DispatchBody = call.body
    user_id = call.caller.user_id
    request: dict[str, Any] = {"metadata": {**body.metadata, "user_id": user_id}, "user_id": user_id}
    if body.pid:
        request["pid"] = call.require_process(body.pid)
    if body.envelope is not None:
        request["envelope"] = {**body.envelope, "user_id": user_id}
    response = await call.kernel.dispatch(call.path["name"], request)
    envelope = response.envelope
    error = response.error
    return DispatchAnswer(
        envelope=None if envelope is None else envelope.to_data(),
        metadata=dict(response.metadata),
        error=None if error is None else str(error),
    )


SERVICE_ENDPOINTS: Final = (
    Endpoint(
        "services.list",
        "GET",
        "/api/services",
        "The services, with their health and load",
        list_services,
        answer=ServiceList,
    ),
    Endpoint(
        "services.get", "GET", "/api/services/{name}", "One service", get_service, answer=ServiceView, statuses=(404,)
    ),
    Endpoint(
        "services.dispatch",
        "POST",
        "/api/services/{name}/dispatch",
        "Have a service do a piece of work",
        dispatch,
        body=DispatchBody,
        answer=DispatchAnswer,
        is_work=True,
        statuses=(404, 409, 502, 503, 504),
    ),
)
