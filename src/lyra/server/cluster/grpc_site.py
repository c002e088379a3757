"""GrpcSite: the engine's services of one shard, without a port of their own.

A call is its method, the bytes of its request, and what the client said of itself. The answer comes in pieces, which
are messages as bytes; a call that fails raises CallRefused with the status that the client is given.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from lyra.observe import attach_metrics
from lyra.server.grpc.face import SERVICES, behavior_of, methods_of
from lyra.server.grpc.guard import CallGuard
from lyra.server.grpc.services import WorkerCalls
from lyra.server.identity import Caller, record_act
from lyra.server.token_limit import TokenLimit

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.server.settings import ServeSettings


class CallRefused(Exception):
    """The status of a call that failed: the name of its code, a sentence, and the trailing metadata."""

    def __init__(self, code: str, details: str, metadata: Any = ()) -> None:
        super().__init__(details)
        self.code = code
        self.details = details
        self.metadata = tuple((str(key), value) for key, value in metadata)

    def to_data(self) -> list[Any]:
        return [self.code, self.details, [list(pair) for pair in self.metadata]]


class PassedContext:
    """What the guard reads of a call that came by another way than gRPC's own."""

    def __init__(self, metadata: Any, peer: str) -> None:
        self._metadata = tuple((str(key), value) for key, value in metadata)
        self._peer = peer

    def invocation_metadata(self) -> Any:
        return self._metadata

    def peer(self) -> str:
        return self._peer

    async def abort(self, code: Any, details: str = "", metadata: Any = ()) -> None:
        raise CallRefused(code.name, details, metadata)


class GrpcSite:
    """See the module."""

    def __init__(self, kernel: Kernel, settings: ServeSettings) -> None:
        self._kernel = kernel
        guard = CallGuard(
            settings.tokens,
            kernel.clock,
            token_limit=TokenLimit.get_shared(kernel),
            observe=attach_metrics(kernel).grpc_request,
            tell_act=self._tell_act,
        )
        # Workers are served by the desk of the shard (`shared_work.open_desk`).
        self._services = {name: make(kernel) for name, make in SERVICES.items() if make is not WorkerCalls}
        self._behaviors = {
            method.name: (behavior_of(method, service, guard, streams=streams), streams)
            for name, service in self._services.items()
            for method, streams in methods_of(name)
        }

    async def _tell_act(self, caller: Caller, method: str, target: dict[str, str], outcome: str) -> None:
        record_act(self._kernel, caller, method, target, outcome)
        await self._kernel.durable()

    async def read(self, method: str, data: bytes, metadata: Any, peer: str) -> AsyncGenerator[bytes, None]:
        """Yield the messages of an answer."""
        behavior, streams = self._behaviors[method]
        context = PassedContext(metadata, peer)
        if not streams:
            yield await behavior(data, context)
            return
        async with aclosing(behavior(data, context)) as messages:
            async for message in messages:
                yield message

    async def close(self) -> None:
        """End what waits: claims of work, subscriptions."""
        for service in self._services.values():
            if hasattr(service, "drain"):
                await service.drain()
            if hasattr(service, "close"):
                service.close()
