"""Services of the kernel: what there is, how it is doing, and a piece of work for one."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lyra.kernel.services.service import ServiceInfo
from lyra.server.http.endpoint import Endpoint, HttpCall, RequestBody
from lyra.server.work.names import is_offered, service_for


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


ENDPOINTS: Final = (
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
