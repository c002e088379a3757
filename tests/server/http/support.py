"""A served kernel for tests: real sockets, agents on the simulated model, an operator and two users."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx

from lyra import Agent, Kernel
from lyra.core.address import Address
from lyra.models.sim import SimProvider
from lyra.server.dashboard.login import problem_page
from lyra.server.http.app import ConnectionLimits
from lyra.server.http.face import HttpFace
from lyra.server.identity import TokenHolder, TokenTable
from lyra.server.settings import ServeSettings
from lyra.server.site import site

OPERATOR = "operator-token-0123456789"
ADA = "ada-token-0123456789abcdef"
BOB = "bob-token-0123456789abcdef"
VIEWER = "viewer-token-0123456789ab"
TOKENS: dict[str, str | TokenHolder] = {OPERATOR: "", ADA: "ada", BOB: "bob", VIEWER: TokenHolder("vera", "viewer")}


class Served(NamedTuple):
    """A kernel behind HTTP, and clients of its callers."""

    kernel: Kernel
    face: HttpFace
    address: Address
    operator: httpx.AsyncClient
    ada: httpx.AsyncClient
    bob: httpx.AsyncClient
    stranger: httpx.AsyncClient

    @property
    def url(self) -> str:
        return f"http://{self.address}"


def echo(**settings: Any) -> Agent[Any]:
    return Agent("echo", **{"model": "sim/echo", **settings})


def scripted(name: str, *replies: Any, **settings: Any) -> Agent[Any]:
    """An agent whose model answers by a script."""
    return Agent(name, model=SimProvider(script={"replies": list(replies)}), **settings)


@asynccontextmanager
async def serving(
    *agents: Any,
    store: Any = "memory",
    kernel: Kernel | None = None,
    limits: ConnectionLimits | None = None,
    stop_s: float = 5.0,
    inside: tuple[str, ...] = (),
    **settings: Any,
) -> AsyncIterator[Served]:
    """A kernel that knows these agents, behind HTTP."""
    served_kernel = kernel or Kernel(store, programs=agents or (echo(),))
    async with served_kernel:
        options = {"tokens": TokenTable(TOKENS), "http": Address("127.0.0.1", 0), **settings}
        face = HttpFace(
            served_kernel,
            ServeSettings(**options),
            limits=limits,
            webhook_key=b"k" * 32,
            inside=inside,
            endpoints=site(),
            problem_page=problem_page,
        )
        address = await face.start()
        try:
            async with (
                client(address) as stranger,
                client(address, OPERATOR) as operator,
                client(address, ADA) as ada,
                client(address, BOB) as bob,
            ):
                yield Served(served_kernel, face, address, operator, ada, bob, stranger)
        finally:
            await face.stop(stop_s)
            await served_kernel.close(drain_s=0.3)


def client(address: Address, token: str = "", **headers: str) -> httpx.AsyncClient:
    if token:
        headers["authorization"] = f"Bearer {token}"
    limits = httpx.Limits(max_connections=None)
    return httpx.AsyncClient(base_url=f"http://{address}", headers=headers, timeout=30, limits=limits)


def served(*agents: Any, **options: Any) -> Callable[[Callable[[Served], Awaitable[None]]], Callable[[], None]]:
    """A test that is an async function of a Served."""

    def decorate(test: Callable[[Served], Awaitable[None]]) -> Callable[[], None]:
        async def main() -> None:
            async with serving(*agents, **options) as parts:
                await test(parts)

        def run() -> None:
            in_loop(main())

        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return decorate


def in_loop(work: Coroutine[Any, Any, Any], timeout_s: float = 120) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(timeout_s):
            return await work

    return asyncio.run(bounded())


class Event(NamedTuple):
    id: str
    word: str
    data: Any


def events_of(text: str) -> list[Event]:
    """The server-sent events of a whole stream."""
    events = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "data" in fields:
            data = fields["data"]
            events.append(
                Event(fields.get("id", ""), fields.get("event", ""), data if data == "[DONE]" else json.loads(data))
            )
    return events


def text_of(events: list[Event]) -> str:
    return "".join(event.data["delta"] for event in events if event.word == "text_delta")
