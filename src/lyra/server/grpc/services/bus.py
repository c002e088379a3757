"""CommBusService: events to all subscribers, commands and queries to one handler.

A subscription has room for a hundred unread events; of a slower reader the oldest go, and each event tells how many of
its stream are gone. A publisher never waits for a subscriber over gRPC. A message is the caller's user's: a user hears
and sends messages of their own alone; the operator hears all, or those of the user that the call names.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Final

from lyra.core.limits import BUS_QUERY_TIMEOUT_S
from lyra.errors import ConfigError, LyraError, Overloaded
from lyra.kernel.bus.stream import BusStream
from lyra.kernel.journal.error_rows import text_of
from lyra.server.generated import engine_pb2 as pb
from lyra.server.grpc.fields import json_bytes, json_value, milliseconds, required, text

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.server.identity import Caller


_TYPES_MAX: Final = 1_000  # of one subscription


class BusCalls:
    """See the module."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._streams: set[BusStream] = set()

    async def drain(self) -> None:
        """End the subscriptions: the server stops."""
        for stream in list(self._streams):
            await stream.aclose()

    async def publish(self, request: pb.CommBusPublishRequest, caller: Caller) -> pb.CommBusPublishResponse:
        event_type = required(request.event_type, "event_type")
        await self._kernel.bus.publish(event_type, json_value(request.payload, "payload"), user_id=caller.user_id)
        return pb.CommBusPublishResponse(success=True)

    async def send(self, request: pb.CommBusSendRequest, caller: Caller) -> pb.CommBusSendResponse:
        command_type = required(request.command_type, "command_type")
        payload = json_value(request.payload, "payload")
        try:
            await self._kernel.bus.send(command_type, payload, user_id=caller.user_id)
        except LyraError:
            raise
        except Exception as error:  # noqa: BLE001 - of the handler: the answer tells
            return pb.CommBusSendResponse(success=False, error=text(text_of(error)))
        return pb.CommBusSendResponse(success=True)

    async def query(self, request: pb.CommBusQueryRequest, caller: Caller) -> pb.CommBusQueryResponse:
        query_type = required(request.query_type, "query_type")
        payload = json_value(request.payload, "payload")
        timeout_s = request.timeout_ms / 1000 if request.timeout_ms else BUS_QUERY_TIMEOUT_S
        try:
            result = await self._kernel.bus.query(query_type, payload, timeout_s=timeout_s, user_id=caller.user_id)
        except LyraError:
            raise
        except Exception as error:  # noqa: BLE001 - as above
            return pb.CommBusQueryResponse(success=False, error=text(text_of(error)))
        return pb.CommBusQueryResponse(success=True, result=json_bytes(result))

    async def subscribe(
        self, request: pb.CommBusSubscribeRequest, caller: Caller
    ) -> AsyncGenerator[pb.CommBusEvent, None]:
        if not 0 < len(request.event_types) <= _TYPES_MAX:
            raise ConfigError(f"event_types has 1 to {_TYPES_MAX} types", key="event_types")
        stream = self._kernel.bus.stream(list(request.event_types), user_id=caller.user_id)
        self._streams.add(stream)
        try:
            async for message in stream:
                yield pb.CommBusEvent(
                    event_type=text(message.type),
                    payload=json_bytes(message.payload),
                    timestamp_ms=milliseconds(message.timestamp),
                    dropped=stream.dropped,
                    user_id=text(message.user_id),
                )
        finally:
            self._streams.discard(stream)
            await stream.aclose()
        raise Overloaded("the server is stopping", hint="subscribe again when it is back")
