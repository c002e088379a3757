"""How the clients of the crash harness reach the server: calls over gRPC and HTTP that know when a server was killed.

A call that fails because its server was killed raises `ServerLost`; the client then waits for the next life with
`World.settled`. Any other failure is a defect and is kept in `World.failures`. `Scene` is what the clients have in
common.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import httpx

import lyra
from lyra.core.ids import ProcessRandom
from lyra.errors import LyraError, Overloaded
from verify.crash.server.outside import ActLog
from verify.served import OPERATOR, ServedProcess

__all__ = ["Scene", "ServerLost", "SseEvent", "World"]

_CALL_S: Final = 60.0


class ServerLost(Exception):
    """The server was killed while it was asked: whether it did what it was asked is not known."""


class SseEvent:
    """One server-sent event."""

    __slots__ = ("data", "id", "word")

    def __init__(self, fields: dict[str, str]) -> None:
        self.id = fields.get("id", "")
        self.word = fields.get("event", "")
        self.data = json.loads(fields["data"])


class World:
    """What the clients of one campaign share: the server, whether it is up, what went wrong."""

    def __init__(self, served: ServedProcess, log_file: Path) -> None:
        self.served = served
        self.log = ActLog(log_file)
        self.failures: list[str] = []
        self.acknowledged = 0
        self.is_ending = False  # clients end when their unit of work has ended
        self.turns: dict[str, str] = {}  # session → the unit of its current turn
        self._up = asyncio.Event()
        self._waiting = 0
        self._clients: dict[str, Any] = {}
        self.http = httpx.AsyncClient(timeout=_CALL_S, headers={"authorization": f"Bearer {OPERATOR}"})

    def open(self) -> None:
        self._up.set()

    def shut(self) -> None:
        self._up.clear()

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()
        await self.http.aclose()
        self.log.close()

    async def settled(self) -> None:
        """Wait until the server is up and what it says was compared."""
        self._waiting += 1
        try:
            await self._up.wait()
        finally:
            self._waiting -= 1

    @property
    def waiting(self) -> int:
        """How many clients wait for the next life."""
        return self._waiting

    def fail(self, failure: str) -> None:
        self.failures.append(failure)

    def kernel(self, user: str) -> Any:
        """The server over gRPC, for a user."""
        if user not in self._clients:
            self._clients[user] = lyra.connect(
                self.served.grpc, token=OPERATOR, user_id=user or None, timeout_s=_CALL_S, reconnect_s=0.0
            )
        return self._clients[user]

    async def reconnect(self) -> None:
        """Wait until every connection reaches the new server: a connection that failed waits before it tries again."""
        async with asyncio.timeout(_CALL_S):
            for client in self._clients.values():
                while True:
                    try:
                        await client.get_process_counts()
                        break
                    except Overloaded:
                        await asyncio.sleep(0.05)

    async def asked(self, what: str, call: Callable[[], Awaitable[Any]]) -> Any:
        """The answer of a call; ServerLost where the server was killed under it."""
        pid = self.served.running_pid
        try:
            answer = await call()
        except (LyraError, httpx.HTTPError) as error:
            await self._judge(what, error, pid)
            raise ServerLost from None
        self.acknowledged += 1
        return answer

    async def _judge(self, what: str, error: Exception, pid: int | None) -> None:
        """A failed call of a server that goes on to live is a defect."""
        await asyncio.sleep(0.2)  # the death of a process is seen a moment later than the end of its connections
        if pid is not None and self.served.running_pid == pid:
            self.fail(f"{what}: {type(error).__name__}: {error}")

    async def request(self, method: str, path: str, *, user: str, **options: Any) -> Any:
        """The JSON of an HTTP answer; a refusal is a defect."""
        url = f"http://{self.served.http}{path}"

        async def call() -> Any:
            response = await self.http.request(method, url, headers={"x-user-id": user}, **options)
            if response.is_error:
                raise LyraError(f"{response.status_code} {response.text[:300]}")
            return response.json()

        return await self.asked(f"{method} {path}", call)

    async def events(self, method: str, path: str, *, user: str, **options: Any) -> AsyncIterator[SseEvent]:
        """The server-sent events of an answer."""
        pid = self.served.running_pid
        headers = {"x-user-id": user, **options.pop("headers", {})}
        try:
            url = f"http://{self.served.http}{path}"
            async with self.http.stream(method, url, headers=headers, **options) as response:
                if response.is_error:
                    raise LyraError(f"{response.status_code} {(await response.aread())[:300]!r}")
                fields: dict[str, str] = {}
                async for line in response.aiter_lines():
                    name, _, value = line.partition(": ")
                    if line and name:
                        fields[name] = value
                    elif not line and "data" in fields:
                        yield SseEvent(fields)
                        fields = {}
        except (LyraError, httpx.HTTPError) as error:
            await self._judge(f"{method} {path}", error, pid)
            raise ServerLost from None


class Scene:
    """A client: `unit` does one piece of work, `compare` holds what was acknowledged against the server."""

    name = ""

    def __init__(self, world: World, number: int, rng: ProcessRandom) -> None:
        self.world = world
        self.user = f"{self.name}-{number}"
        self.rng = rng
        self.units = 0

    @property
    def kernel(self) -> Any:
        return self.world.kernel(self.user)

    def next_name(self) -> str:
        self.units += 1
        return f"{self.user}-{self.units}"

    async def ask(self, method: str, *args: Any, **options: Any) -> Any:
        """A method of the kernel over gRPC."""
        return await self.world.asked(method, lambda: getattr(self.kernel, method)(*args, **options))

    async def request(self, method: str, path: str, **options: Any) -> Any:
        return await self.world.request(method, path, user=self.user, **options)

    def expect(self, condition: Any, failure: str) -> None:
        if not condition:
            self.world.fail(f"{self.user}: {failure}")

    async def live(self) -> None:
        """Do units of work until the campaign ends."""
        while not self.world.is_ending:
            await self.world.settled()
            await self.unit()

    async def unit(self) -> None:
        raise NotImplementedError

    async def compare(self) -> None:
        raise NotImplementedError

    async def until_done(self, step: Callable[[], Awaitable[Any]]) -> Any:
        """Repeat a step that may be repeated until a server has answered it."""
        while True:
            try:
                return await step()
            except ServerLost:
                await self.world.settled()
