"""A served kernel with the whole site, and clients made with the official SDK."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from uuid import uuid4

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import a2a_pb2 as pb

from lyra import Agent, Kernel, tool
from lyra.core.address import Address
from lyra.models.sim import SimProvider
from lyra.server.http.face import HttpFace
from lyra.server.identity import TokenTable
from lyra.server.settings import ServeSettings
from lyra.server.site import site
from tests.server.http.support import ADA, BOB, OPERATOR, TOKENS, in_loop

__all__ = ["ADA", "BOB", "OPERATOR", "A2aServed", "Gated", "in_loop", "message", "scripted", "serving", "task_of"]


class A2aServed(NamedTuple):
    kernel: Kernel
    face: HttpFace
    url: str

    def http(self, token: str = ADA) -> httpx.AsyncClient:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=30)

    @asynccontextmanager
    async def client(
        self,
        agent: str = "echo",
        token: str = ADA,
        *,
        streaming: bool = False,
        polling: bool = False,
        version: str = "",
        binding: str = "",
    ) -> AsyncIterator[Any]:
        """The SDK's client for an agent, made from its card; `version` keeps only that interface of the card, and
        `binding` is the one that the client speaks."""
        async with self.http(token) as http:
            card = await A2ACardResolver(http, f"{self.url}/a2a/{agent}").get_agent_card()
            if version:
                interfaces = [row for row in card.supported_interfaces if row.protocol_version == version]
                del card.supported_interfaces[:]
                card.supported_interfaces.extend(interfaces)
            bindings = [binding] if binding else []
            config = ClientConfig(
                httpx_client=http, streaming=streaming, polling=polling, supported_protocol_bindings=bindings
            )
            yield ClientFactory(config).create(card)


@asynccontextmanager
async def serving(*agents: Any, store: Any = "memory", inside: tuple[str, ...] = ()) -> AsyncIterator[A2aServed]:
    kernel = Kernel(store, programs=agents or (Agent("echo", model="sim/echo", description="Says it again."),))
    async with kernel:
        settings = ServeSettings(tokens=TokenTable(TOKENS), http=Address("127.0.0.1", 0))
        face = HttpFace(kernel, settings, webhook_key=b"k" * 32, inside=inside, endpoints=site())
        address = await face.start()
        try:
            yield A2aServed(kernel, face, f"http://{address}")
        finally:
            await face.stop(0.3)
            await kernel.close(drain_s=0.3)


def scripted(name: str, *replies: Any, **settings: Any) -> Agent[Any]:
    return Agent(name, model=SimProvider(script={"replies": list(replies)}), **settings)


class Gated:
    """An agent whose answer comes when the test lets it: `open` is called in the loop of the kernel."""

    def __init__(self, name: str = "gated") -> None:
        self._open = asyncio.Event()

        @tool
        async def gate() -> str:
            """Waits."""
            await self._open.wait()
            return "open"

        replies = {"user": ".", "tool_calls": [{"name": "gate"}]}, {"tool": "gate", "text": "at last"}
        self.agent = scripted(name, *replies, tools=[gate])

    def open(self) -> None:
        self._open.set()


def message(text: str, *, task_id: str = "", context_id: str = "", message_id: str = "") -> pb.SendMessageRequest:
    return pb.SendMessageRequest(
        message=pb.Message(
            message_id=message_id or uuid4().hex,
            role=pb.ROLE_USER,
            parts=[pb.Part(text=text)],
            task_id=task_id,
            context_id=context_id,
        )
    )


async def task_of(client: Any, request: pb.SendMessageRequest) -> pb.Task:
    """The task that the last event of an exchange has."""
    task = pb.Task()
    async for event in client.send_message(request):
        if event.HasField("task"):
            task = event.task
    return task
