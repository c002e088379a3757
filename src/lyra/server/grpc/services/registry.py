"""The services of SystemService: registered, reported on, listed and dispatched to.

Every user may list services and dispatch to them, but for those that only workers of other users serve. The health and
the registration of a service are changed by the user who registered it, and by the operator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lyra.errors import Denied, EffectFailed
from lyra.kernel.services.service import ServiceInfo
from lyra.server.generated import engine_pb2 as pb
from lyra.server.grpc.messages.enums import HEALTH
from lyra.server.grpc.messages.envelopes import json_envelope
from lyra.server.grpc.messages.fields import json_mapping, required, text
from lyra.server.grpc.messages.services import response_message, service_fields, service_message
from lyra.server.grpc.services.owners import SERVICE_OWNER, owned_envelope, require_process, service_owner
from lyra.server.work.names import is_offered, service_for

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.server.identity import Caller


class RegistryCalls:
    """See the module."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    async def register_service(self, request: pb.RegisterServiceRequest, caller: Caller) -> pb.ServiceInfo:
        fields = service_fields(request.service)
        name = required(fields["name"], "service.name")
        if name in self._kernel.services.state.services and not caller.owns(
            service_owner(self._kernel.services.get_service(name))
        ):
            raise Denied(f"the service {name} cannot be chosen", hint="choose another name")
        if caller.user_id:
            fields["metadata"][SERVICE_OWNER] = caller.user_id
        await self._kernel.register_service(fields)
        return service_message(self._kernel.services.get_service(name))

    async def unregister_service(self, request: pb.UnregisterServiceRequest, caller: Caller) -> pb.ServiceInfo:
        info = self._require_owner(required(request.name, "name"), caller)
        await self._kernel.unregister_service(info.name)
        return service_message(info)

    async def update_service_health(self, request: pb.UpdateServiceHealthRequest, caller: Caller) -> pb.ServiceInfo:
        info = self._require_owner(required(request.name, "name"), caller)
        await self._kernel.services.update_health(info.name, HEALTH.required(request.status))
        return service_message(self._kernel.services.get_service(info.name))

    async def list_services(self, request: pb.ListServicesRequest, caller: Caller) -> pb.ListServicesResponse:
        services = self._kernel.services
        infos = (
            services.list_services_by_type(request.service_type) if request.service_type else services.list_services()
        )
        seen = [info for info in infos if is_offered(self._kernel, info, caller)]
        return pb.ListServicesResponse(services=map(service_message, seen))

    async def dispatch_service(self, request: pb.DispatchServiceRequest, caller: Caller) -> pb.DispatchServiceResponse:
        name = required(request.service, "service")
        if request.pid:
            require_process(self._kernel, caller, request.pid)
        given = json_envelope(request.envelope)
        work = {
            "pid": request.pid,
            "envelope": owned_envelope(caller, given) if given is not None else None,
            "user_id": caller.user_id,
            "metadata": json_mapping(request.metadata, "metadata") or {},
        }
        try:
            response = await self._kernel.dispatch(
                name, work, timeout_s=request.timeout_seconds or None, max_retries=request.max_retries
            )
        except EffectFailed as error:  # the handler's own: the answer tells
            return pb.DispatchServiceResponse(success=False, error=text(error.message))
        return response_message(response)

    def _require_owner(self, name: str, caller: Caller) -> ServiceInfo:
        info = service_for(self._kernel, caller, name)
        if not caller.owns(service_owner(info)):
            raise Denied(f"service {name} belongs to another user")
        return info
