"""A client of the contract, made from its descriptor, and a server in this process to talk to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any

import grpc
import grpc.aio
from google.protobuf.message_factory import GetMessageClass

from lyra.core.address import Address
from lyra.kernel.kernel import Kernel
from lyra.server.generated import engine_pb2 as pb
from lyra.server.grpc.face import GrpcFace
from lyra.server.grpc.guard import Observe
from lyra.server.identity import TokenHolder, TokenTable
from lyra.server.settings import ServeSettings

OPERATOR = "operator-token-0123456789"
ALICE = "alice-token-0123456789abc"
BOB = "bob-token-0123456789abcdef"
VIEWER = "viewer-token-0123456789ab"
TOKENS: dict[str, str | TokenHolder] = {OPERATOR: "", ALICE: "alice", BOB: "bob", VIEWER: TokenHolder("vera", "viewer")}
TIMEOUT_S = 60.0


class Client:
    """Calls by name: `await client("KernelService/GetProcess", pid="p")`; a stream is iterated instead."""

    face: GrpcFace  # of a server in this process
    address: Address

    def __init__(self, channel: Any, token: str = OPERATOR, **metadata: str) -> None:
        self.channel = channel
        self.metadata = [("authorization", f"Bearer {token}")] if token else []
        self.metadata += list(metadata.items())

    def as_(self, token: str, **metadata: str) -> Client:
        """The same connection with another token."""
        return Client(self.channel, token, **metadata)

    def __call__(self, method: str, request: Any = None, *, timeout: Any = TIMEOUT_S, **fields: Any) -> Any:
        rpc, call = self._call(method)
        message = request if request is not None else GetMessageClass(rpc.input_type)(**fields)
        data = message if isinstance(message, bytes) else message.SerializeToString()
        return call(data, metadata=self.metadata, timeout=timeout)

    def _call(self, method: str) -> tuple[Any, Any]:
        service, name = method.split("/")
        rpc = pb.DESCRIPTOR.services_by_name[service].methods_by_name[name]
        make = self.channel.unary_stream if rpc.server_streaming else self.channel.unary_unary
        read = GetMessageClass(rpc.output_type).FromString
        return rpc, make(f"/lyra.engine.v1.{method}", response_deserializer=read)

    async def status(self, method: str, request: Any = None, **fields: Any) -> str:
        """The status code with which a call ends."""
        return (await self.error(method, request, **fields))[0]

    async def error(self, method: str, request: Any = None, **fields: Any) -> tuple[str, str]:
        """The status code and the details with which a call ends."""
        try:
            call = self(method, request, **fields)
            if hasattr(call, "read"):
                async for _ in call:
                    pass
            else:
                await call
        except grpc.aio.AioRpcError as error:
            return error.code().name, error.details() or ""
        return "OK", ""


async def rest(call: Any) -> list[Any]:
    """What a stream still gives; its beginning was `read`."""
    messages = []
    while (message := await call.read()) is not grpc.aio.EOF:
        messages.append(message)
    return messages


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test on a loop of its own."""

    @wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def settings(**changes: Any) -> ServeSettings:
    return ServeSettings(**{"tokens": TokenTable(TOKENS), "grpc": Address("127.0.0.1", 0), **changes})


@asynccontextmanager
async def serving(
    kernel: Kernel | None = None, *, observe: Observe | None = None, **changes: Any
) -> AsyncIterator[tuple[Kernel, Client]]:
    """A kernel, a face and a client that are open."""
    kernel = kernel if kernel is not None else Kernel()
    await kernel.start()
    face = GrpcFace(kernel, settings(**changes), observe=observe)
    try:
        address = await face.start()
        async with grpc.aio.insecure_channel(str(address)) as channel:
            client = Client(channel)
            client.face, client.address = face, address
            yield kernel, client
    finally:
        await face.stop(5.0)
        await kernel.shutdown("test over")
