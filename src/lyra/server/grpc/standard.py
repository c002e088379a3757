"""The standard services of gRPC: health, and reflection under both of its names.

`Health.Check` takes no token. `Health.Watch` and reflection do: they hold a stream open, or tell what there is. A watch
sees NOT_SERVING while the server drains, and ends with it.

It stands alone beside the modules of Lyra's own services.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1.health import SERVICE_NAME
from grpc_reflection.v1alpha import reflection, reflection_pb2

from lyra.errors import LyraError
from lyra.server.grpc.guard import CallGuard, end_of

_REFLECTION: Final = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")


def health_handlers(servicer: Any, guard: CallGuard) -> grpc.GenericRpcHandler:
    async def watch(request: Any, context: Any) -> None:
        await _require_token(guard, context)
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(servicer.Watch(request, context))
            await guard.stopped.wait()
            watching.cancel()

    serving = {
        "Check": grpc.unary_unary_rpc_method_handler(
            servicer.Check, health_pb2.HealthCheckRequest.FromString, health_pb2.HealthCheckResponse.SerializeToString
        ),
        "Watch": grpc.unary_stream_rpc_method_handler(
            watch, health_pb2.HealthCheckRequest.FromString, health_pb2.HealthCheckResponse.SerializeToString
        ),
    }
    return grpc.method_handlers_generic_handler(SERVICE_NAME, serving)


def reflection_handlers(names: Sequence[str], guard: CallGuard) -> list[grpc.GenericRpcHandler]:
    """The handlers of reflection: version 1 has the messages of its alpha, under another name."""
    servicer = reflection.aio.ReflectionServicer((*names, *_REFLECTION))

    async def info(requests: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        await _require_token(guard, context)
        async for response in servicer.ServerReflectionInfo(requests, context):
            yield response

    handler = grpc.stream_stream_rpc_method_handler(
        info,
        reflection_pb2.ServerReflectionRequest.FromString,
        reflection_pb2.ServerReflectionResponse.SerializeToString,
    )
    return [grpc.method_handlers_generic_handler(name, {"ServerReflectionInfo": handler}) for name in _REFLECTION]


async def _require_token(guard: CallGuard, context: Any) -> None:
    try:
        guard.caller(context)
    except LyraError as error:
        ended = end_of(error, "token")
        await context.abort(ended.code, ended.details, ended.metadata)
