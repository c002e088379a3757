"""Routes a callback of a server to the process whose call the server is working on.

A callback names no call, so it goes to the process whose calls the server has at the moment; if several processes have
calls there, it is refused. Callbacks of the program (`SharedContext`) go first. While a callback waits for an answer,
the time limits of the calls are suspended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final, NamedTuple

from lyra.core.tool import Answering, answering
from lyra.mcp.client.shared import SharedContext
from lyra.mcp.names import sampling_name

_ASKED_MAX: Final = 20  # callbacks during one call


class _Running(NamedTuple):
    who: Answering | None
    limit: asyncio.Timeout
    timeout_s: float
    asked: list[None]  # one for each callback


class CallbackRoutes:
    """The calls that one server works on; `key` stands for it in the names of tools."""

    def __init__(self, server: str, key: str, shared: SharedContext) -> None:
        self._server = server
        self._key = key
        self._shared = shared
        self._running: list[_Running] = []
        self._open = 0

    @asynccontextmanager
    async def call(self, timeout_s: float) -> AsyncIterator[None]:
        """Note a call of the current process, and limit its time."""
        async with asyncio.timeout(timeout_s) as limit:
            mine = _Running(answering.get(), limit, timeout_s, [])
            self._running.append(mine)
            try:
                yield
            finally:
                self._running = [running_call for running_call in self._running if running_call is not mine]

    async def elicit(self, message: str, schema: dict[str, Any]) -> dict[str, Any] | None:
        with self._thinking():
            if self._shared.elicit is not None:
                return await self._shared.elicit(self._server, message, schema)
            who = self._who()
            return None if who is None else await who.elicit(self._server, message, schema)

    async def sample(self, request: dict[str, Any]) -> str | None:
        with self._thinking():
            if self._shared.sample is not None:
                return await self._shared.sample(self._server, request)
            who = self._who()
            return None if who is None else await who.sample(self._server, sampling_name(self._key), request)

    def _who(self) -> Answering | None:
        if len({running_call.who.pid if running_call.who is not None else "" for running_call in self._running}) != 1:
            return None
        mine = self._running[0]
        mine.asked.append(None)
        return mine.who if len(mine.asked) <= _ASKED_MAX else None

    @contextmanager
    def _thinking(self) -> Iterator[None]:
        self._open += 1
        self._arm(running=False)
        try:
            yield
        finally:
            self._open -= 1
            if not self._open:
                self._arm(running=True)

    def _arm(self, *, running: bool) -> None:
        now = asyncio.get_running_loop().time()
        for running_call in self._running:
            with suppress(RuntimeError):  # its time-out has expired already
                running_call.limit.reschedule(now + running_call.timeout_s if running else None)
