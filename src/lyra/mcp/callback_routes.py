"""Routing of a server's callbacks to the process whose call it works on, and the context that all servers share.

A callback names no call, so it goes to the process whose calls the server has at the moment; if several processes have
calls there, it is refused. Callbacks of the program (`SharedContext`) go first. While a callback waits for an answer,
the time limits of the calls are suspended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from lyra.core.clock import Clock, loop_clock
from lyra.core.ids import Entropy
from lyra.core.policies.policy import Backoff, Supervision
from lyra.core.rights.capability import Capability
from lyra.core.tool import Answering, answering
from lyra.kernel.base.tasks import Tasks
from lyra.mcp.approvals import Approvals
from lyra.mcp.settings import ServerSettings, sampling_name
from lyra.mcp.tools import Offered
from lyra.sandbox import Sandbox

START_S: Final = 30.0  # to start or reach a server and read what it offers
_BACKOFF: Final = Backoff(initial_s=0.25, max_s=10.0, jitter=0.2)


@dataclass(kw_only=True)
class SharedContext:
    """Every callback is optional; without it the answer is no.

    `consent(settings)` decides on a project's server, `reapprove(server, tool)` on a tool whose description changed.
    `elicit(server, message, schema)` fills in a form, `sample(server, request)` returns text of a model; without them
    the process that made the call answers (`callback_routes`). `authorize(server, url)` shows a login page.
    """

    workspace: str
    approvals: Approvals
    folder: str | None = None  # for tokens
    sandbox: Sandbox = field(default_factory=Sandbox)
    denied: tuple[Capability, ...] = ()  # paths that rules deny, for every program
    consent: Callable[[ServerSettings], Awaitable[bool]] | None = None
    reapprove: Callable[[str, Offered], Awaitable[bool]] | None = None
    elicit: Callable[[str, str, dict[str, Any]], Awaitable[dict[str, Any] | None]] | None = None
    sample: Callable[[str, dict[str, Any]], Awaitable[str | None]] | None = None
    authorize: Callable[[str, str], Awaitable[None]] | None = None
    supervision: Supervision = Supervision(max_restarts=3, window_s=60.0, backoff=_BACKOFF)  # noqa: RUF009 - frozen
    start_s: float = START_S
    clock: Clock = field(default_factory=loop_clock)
    entropy: Entropy = field(default_factory=Entropy)
    tasks: Tasks = field(default_factory=Tasks)


_ASKED_MAX: Final = 20  # callbacks during one call


class _Running(NamedTuple):
    who: Answering | None
    limit: asyncio.Timeout
    timeout_s: float
    asked: list[None]  # one for each callback


class CallbackRoutes:
    """The calls that one server works on; `key` represents it in the names of tools."""

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
