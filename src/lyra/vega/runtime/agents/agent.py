"""Agents as processes: what a declaration becomes, and the process that stands for it.

`AgentPlan` is the lyra Agent made from the settings, and what Vega adds: memory, concurrency, a time-out and a budget
for each call. It is made once for equal settings, so that all processes of it share concurrency, rate limits and
circuit breaker.
`agent_front` is the process: it lives, crashes and is restarted as supervision says. Calls do not run in it: without
memory each is a process of its own, so they may overlap; with memory one process holds the conversation. The `Cell` is
where callers find the process that stands for the agent now, and wait while it is restarted.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from lyra.agents.declaration.agent import Agent
from lyra.core.limits import VEGA_AHEAD_CALLS_MAX
from lyra.core.naming import VEGA_AGENT, named
from lyra.core.policies.policy import CircuitBreaker, RateLimit, Retry
from lyra.errors import AgentFailed, ConfigError
from lyra.kernel.programs.registry import program_of
from lyra.vega.runtime.agents.setting_versions import made_with
from lyra.vega.runtime.agents.tools import tools_of
from lyra.vega.runtime.agents.undeclared_tools import is_foreign
from lyra.vega.runtime.output import parsed_type, schema_of_type
from lyra.vega.runtime.supervision import backoff, seconds
from lyra.vega.runtime.world import world_of
from lyra.vega.values.values import Duration, Money

if TYPE_CHECKING:
    from lyra.kernel.process.process import Process as KernelProcess
    from lyra.kernel.programs.context import Context
    from lyra.vega.runtime.world import World

__all__ = ["CRASH", "AgentPlan", "Cell", "Turn", "agent_front", "leave", "models_of"]

CRASH: Final = "vega.crash"  # the key of the message that ends an agent's process


class AgentPlan:
    __slots__ = ("agent", "budget", "concurrency", "keeps", "name", "older", "output", "priority", "timeout_s", "turns")

    def __init__(self, world: World, name: str, settings: Mapping[str, Any]) -> None:
        self.name = name
        self.older: dict[str, AgentPlan] = {}  # before its settings were renewed, by the names of their calls
        memory = settings.get("memory", "none")
        self.keeps = memory != "none"
        self.concurrency: int | None = settings.get("concurrency")
        self.turns = None if self.concurrency is None else asyncio.Semaphore(self.concurrency)
        self.priority: str | None = settings.get("priority")
        self.budget: Money | None = settings.get("budget")
        self.timeout_s = seconds(settings["timeout"], "timeout") if "timeout" in settings else None
        self.output = parsed_type(settings["output"]) if "output" in settings else None
        self.agent = Agent(name, **_options(world, name, settings, memory))


def _options(world: World, name: str, settings: Mapping[str, Any], memory: Any) -> dict[str, Any]:
    """The settings as lyra's Agent takes them."""
    models = models_of(world, settings)
    if not models and name in world.mocks:
        models = ["sim/echo"]  # it will not be asked
    if not models:
        raise ConfigError(f"agent {name} has no model", hint=f'say `model "…"` in agent {name}, or run with --model')
    model, *fallback = models
    for model_name in models:
        world.runtime.settings.need(model_name)  # from here on its keys are known, and kept out of what it is asked
    found: dict[str, Any] = {
        "model": model,
        "fallback": fallback,
        "system": str(settings.get("system", "")),
        "tools": [] if name in world.mocks else tools_of(world, name, settings),
    }
    if any(is_foreign(tool) for tool in found["tools"]):
        found["permissions"] = world.foreign.permissions(found["tools"])
    for plain in ("temperature", "max_tokens"):
        if plain in settings:
            found[plain] = settings[plain]
    if "retry" in settings:
        found["retry"] = _retry(settings["retry"])
    if "circuit_breaker" in settings:
        found["circuit_breaker"] = CircuitBreaker(per="call", **_in_seconds(settings["circuit_breaker"]))
    if "rate_limit" in settings:
        found["rate_limit"] = RateLimit(**settings["rate_limit"])
    if "output" in settings:
        found["output"] = schema_of_type(settings["output"])
    if isinstance(memory, list):  # window(n): so many messages, of which the last is the user's
        found["context"] = {"kind": "sliding", "turns": (int(memory[1]) + 1) // 2}
    return found


def models_of(world: World, settings: Mapping[str, Any]) -> list[Any]:
    """The model of an agent, and those that it falls back to."""
    models = settings.get("model") if world.options.model is None else world.options.model
    return models if isinstance(models, list) else [models] if models else []


def _retry(settings: Mapping[str, Any]) -> Retry:
    found: dict[str, Any] = {"max_attempts": settings.get("max_attempts", 3)}
    if "backoff" in settings:
        found["backoff"] = backoff(settings["backoff"])
    if "on" in settings:
        found["on"] = tuple(settings["on"])
    return Retry(**found)


def _in_seconds(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.seconds if type(value) is Duration else value for name, value in settings.items()}


class Turn:
    """A call that is under way, for the process `asker`. What its own tools ask of the agent runs in its turn, one
    after the other (`inner`): it waits for them, and they must not wait for it."""

    __slots__ = ("asker", "cell", "expire", "inner")

    def __init__(self, cell: Cell, asker: KernelProcess) -> None:
        self.cell = cell
        self.asker = asker
        self.inner = asyncio.Semaphore(1)
        self.expire: Callable[[], None] | None = None  # ends the time that it has, if it has one


class Cell:
    """An agent as its callers find it: `front` is the process that stands for it now, None while it is restarted."""

    __slots__ = ("_gone", "_waiters", "ahead", "front", "is_promised", "plan", "session")

    def __init__(self, plan: AgentPlan) -> None:
        self.plan = plan
        self.front: KernelProcess | None = None
        self.session: KernelProcess | None = None  # of an agent that remembers
        self.is_promised = False  # the program has not come to its spawn, and asks it already
        self._gone: str | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self.ahead = asyncio.Semaphore(VEGA_AHEAD_CALLS_MAX)  # of calls that are made ahead of their turn

    def up(self, front: KernelProcess, session: KernelProcess | None) -> None:
        self.front, self.session = front, session
        self._wake()

    def keep(self, other: Cell | None) -> None:
        """The program has spawned what was promised; `other` stood for it, in a run that comes back."""
        self.is_promised = False
        if other is not None:
            self.front, self.session = other.front, other.session

    def down(self) -> None:
        self.front = self.session = None

    def gone(self, process: KernelProcess) -> None:
        """The process ended for good: its supervision gave up, or it was stopped."""
        self.down()
        ended = process.exit
        why = "" if ended is None else f": {ended.error or ended.reason}"
        self._gone = f"agent {self.plan.name} is gone{why}"
        self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def ready(self) -> None:
        """Wait until there is a process; AgentFailed when there will be none."""
        while self.front is None and not self.is_promised:
            if self._gone is not None:
                raise AgentFailed(self._gone, status="gone")
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    async def conversation(self) -> KernelProcess:
        """The process that remembers, of an agent that does."""
        await self.ready()
        assert self.session is not None
        return self.session

    def room(self, outer: Turn | None) -> asyncio.Semaphore | None:
        """Where a call waits for its turn: with all others, or with those of the call whose tool makes it."""
        return self.plan.turns if self.plan.turns is None or outer is None else outer.inner

    async def enter(self, outer: Turn | None) -> asyncio.Semaphore | None:
        """Wait for a call's turn: once the agent is there, and not too many others are running. Gives what to leave."""
        room = await self.enter_again(outer)
        try:
            await self.ready()
        except BaseException:
            leave(room)
            raise
        return room

    async def enter_again(self, outer: Turn | None) -> asyncio.Semaphore | None:
        """The turn of a call that had it in an earlier life; whether the agent is there now is another matter."""
        room = self.room(outer)
        if room is not None:
            await room.acquire()
        return room

    @asynccontextmanager
    async def turn(self, outer: Turn | None) -> AsyncIterator[None]:
        """While a call is made."""
        room = await self.enter(outer)
        try:
            yield
        finally:
            leave(room)

    @asynccontextmanager
    async def again(self, outer: Turn | None, *, is_open: bool) -> AsyncIterator[None]:
        """The same, of a call that is under way."""
        if not is_open:
            yield
            return
        room = await self.enter_again(outer)
        try:
            yield
        finally:
            leave(room)


def leave(room: asyncio.Semaphore | None) -> None:
    if room is not None:
        room.release()


@named(VEGA_AGENT)
async def agent_front(ctx: Context, run_id: str, name: str, settings: Any) -> None:
    """The process of an agent. It waits to be told that a call failed, and crashes with it."""
    world = world_of(ctx, run_id)
    plan = world.plan(name, world.read(settings))
    cell = world.cell(ctx.pid, plan)
    session = None
    if plan.keeps:
        session = ctx.spawn(program_of(made_with(ctx.own_process, plan).agent))
    cell.up(ctx.own_process, None if session is None else session._found())
    if world.picture is not None:
        world.picture.agent(ctx.own_process, cell)
    while True:
        message = await ctx.receive()
        if isinstance(message, dict) and CRASH in message:
            if session is not None:
                ctx.stop(session, grace_s=1.0)
            raise AgentFailed(str(message[CRASH]), status="crashed")
