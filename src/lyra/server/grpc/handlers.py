"""From the contract to handlers: each RPC of a service is the method of its class in snake case.

`SERVICES` is the table of classes. A class without a method for one of its RPCs is an error when the server starts, not
when it is called.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

import grpc
from google.protobuf.message_factory import GetMessageClass

from lyra.server.generated import engine_pb2 as pb
from lyra.server.grpc.guard import CallGuard, Method
from lyra.server.grpc.services.kernel import EngineCalls, KernelCalls, OrchestrationCalls
from lyra.server.grpc.services.system import BusCalls, SystemCalls
from lyra.server.grpc.services.workers import WorkerCalls

PACKAGE: Final = pb.DESCRIPTOR.package
SERVICES: Final[Mapping[str, Any]] = {
    "KernelService": KernelCalls,
    "EngineService": EngineCalls,
    "OrchestrationService": OrchestrationCalls,
    "CommBusService": BusCalls,
    "SystemService": SystemCalls,
    "WorkerService": WorkerCalls,
}


def method_name(rpc: str) -> str:
    """The name of an RPC's method: CheckQuota is check_quota."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", rpc).lower()


def service_names() -> list[str]:
    """The full names of the services that are served."""
    return [f"{PACKAGE}.{name}" for name in SERVICES]


def handlers_of(name: str, service: Any, guard: CallGuard) -> grpc.GenericRpcHandler:
    """The handlers of one service: an object with a method for each RPC."""
    handlers: dict[str, Any] = {}
    for rpc in pb.DESCRIPTOR.services_by_name[name].methods:
        method = Method(f"{name}/{rpc.name}", GetMessageClass(rpc.input_type), GetMessageClass(rpc.output_type))
        call = getattr(service, method_name(rpc.name))
        if rpc.server_streaming:
            handlers[rpc.name] = grpc.unary_stream_rpc_method_handler(guard.stream(method, call))
        else:
            handlers[rpc.name] = grpc.unary_unary_rpc_method_handler(guard.unary(method, call))
    return grpc.method_handlers_generic_handler(f"{PACKAGE}.{name}", handlers)
