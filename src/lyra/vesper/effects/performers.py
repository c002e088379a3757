"""How each kind of effect is performed: the table of kinds, and what they work with.

`NodeWorld` holds what nodes may reach: a database, addresses of providers, the kernel's bus, functions for operations
of the embedding program (`custom.NAMESPACE.OPERATION`), agents, other nodes. A performer is an async function of the
request's payload and a key that is the same when the act is repeated after a crash. Its errors are `EffectError`s.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.agents.session.replies import Reply
from lyra.core.codec import to_plain
from lyra.core.rights.capability import Grant
from lyra.errors import LyraError
from lyra.vesper.effects.database import Database
from lyra.vesper.effects.denied import check_address
from lyra.vesper.effects.http import call_api
from lyra.vesper.effects.request import EffectError, EffectRequest

if TYPE_CHECKING:
    from lyra.kernel import Kernel
    from lyra.vesper.effects.machines import Machines


# Kinds that may be repeated after a crash: reading, and changes that are made once for their key.
IDEMPOTENT: Final = frozenset(
    {"db.query", "db.write", "db.update", "state.transition", "node.call", "event.publish", "event.subscribe"}
)
_READS: Final = frozenset({"GET", "HEAD", "PUT", "DELETE"})
Custom = Callable[..., Any]
PUBLISHED_KEY: Final[ContextVar[str]] = ContextVar("vesper_published_key", default="")


class NodeWorld:
    """What the nodes of one runtime may reach."""

    def __init__(
        self,
        *,
        database: Database | None = None,
        providers: Mapping[str, str] | None = None,
        custom: Mapping[str, Custom] | None = None,
        agents: Mapping[str, Any] | None = None,
    ) -> None:
        self.database = database
        self.providers = dict(providers or {})
        self.custom = dict(custom or {})
        self.agents = dict(agents or {})
        self.kernel: Kernel  # set when the runtime has started
        self.machines: Machines
        self.call_node: Callable[[str, Mapping[str, Any], str, Grant, frozenset[str]], Awaitable[Any]]

    def may_repeat(self, request: EffectRequest) -> bool:
        """Whether an act that a crash interrupted is simply made again."""
        if request.kind == "http.call":
            method = str(request.payload.get("method") or "POST").upper()
            return method in _READS or _has_key(request.payload)
        return request.kind in IDEMPOTENT


def _has_key(payload: Mapping[str, Any]) -> bool:
    """Whether the server is given a key by which it knows a repeated request."""
    names = [*(payload.get("headers") or {}), *(payload.get("parameters") or {})]
    return any(str(name).lower().replace("-", "_") == "idempotency_key" for name in names)


async def perform(world: NodeWorld, request: EffectRequest, grant: Grant, key: str) -> Any:
    """Perform one request."""
    kind = request.kind
    performer = _CUSTOM if kind.startswith("custom.") else _PERFORMERS.get(kind)
    if performer is None:
        raise EffectError("effect_failed", f"no performer for {kind}")
    try:
        return await performer(world, request, grant, key)
    except EffectError:
        raise
    except LyraError as error:
        raise EffectError(error.code, error.message) from error


async def _query(world: NodeWorld, request: EffectRequest, grant: Grant, key: str) -> Any:  # noqa: ARG001 (one signature)
    payload = request.payload
    return await asyncio.to_thread(_database(world).query, payload["query"], payload.get("values") or {})


async def _write(world: NodeWorld, request: EffectRequest, grant: Grant, key: str) -> Any:  # noqa: ARG001
    payload = request.payload
    return await asyncio.to_thread(_database(world).write, payload["table"], payload["data"], key)


async def _update(world: NodeWorld, request: EffectRequest, grant: Grant, key: str) -> Any:  # noqa: ARG001
    payload = request.payload
    return await asyncio.to_thread(_database(world).update, payload["table"], payload["where"], payload["set"], key)


async def _http(world: NodeWorld, request: EffectRequest, grant: Grant, key: str) -> Any:
    check_address(grant, world.providers.get(str(request.payload.get("provider") or ""), ""))
    return await call_api(request.payload, world.providers, key=key, timeout_s=request.timeout_s)


async def _publish(world: NodeWorld, request: EffectRequest, grant: Grant, key: str) -> Any:  # noqa: ARG001
    """Publish an event; while its handlers run, the key of the act tells whether it was published before."""
    payload = request.payload
    token = PUBLISHED_KEY.set(key)
    try:
        await world.kernel.bus.publish(str(payload["event_type"]), payload.get("data"))
    finally:
        PUBLISHED_KEY.reset(token)


async def _subscribe(world: NodeWorld, request: EffectRequest, grant: Grant, key: str) -> Any:
    """A subscription belongs to the node, not to one execution: the runtime makes it when the node is loaded."""


async def _transition(world: NodeWorld, request: EffectRequest, grant: Grant, key: str) -> Any:  # noqa: ARG001
    return world.machines.move(request.payload, key)


async def _call_node(world: NodeWorld, request: EffectRequest, grant: Grant, key: str) -> Any:
    payload = request.payload
    return await world.call_node(str(payload["node_id"]), payload.get("parameters") or {}, key, grant, frozenset())


async def _agent(world: NodeWorld, request: EffectRequest, grant: Grant, key: str) -> Any:  # noqa: ARG001
    payload = request.payload
    name = str(payload.get("agent") or "")
    agent = world.agents.get(name)
    if agent is None:
        raise EffectError("unknown_agent", f"no agent {name!r} was handed in")
    handle = world.kernel.spawn(agent, pid=f"vesper-agent-{key}")
    reply = await handle.send(str(payload.get("prompt") or ""))
    if isinstance(reply, Reply) and reply.status != "success":
        raise EffectError(reply.status, f"the answer of agent {name!r} was cut off at its longest")
    return str(reply) if isinstance(reply, str) else msgspec.to_builtins(reply, enc_hook=to_plain)


async def _custom(world: NodeWorld, request: EffectRequest, grant: Grant, key: str) -> Any:  # noqa: ARG001
    name = request.kind.removeprefix("custom.")
    function = world.custom.get(name)
    if function is None:
        raise EffectError("unknown_operation", f"no function is registered for custom.{name}")
    try:
        result = function(**request.payload)
        return await result if inspect.isawaitable(result) else result
    except (EffectError, LyraError):
        raise
    except Exception as error:
        raise EffectError("effect_failed", f"custom.{name}: {type(error).__name__}: {error}"[:500]) from error


def _database(world: NodeWorld) -> Database:
    if world.database is None:
        raise EffectError("database_unavailable", "no database was named")
    return world.database


_Performer = Callable[[NodeWorld, EffectRequest, Grant, str], Awaitable[Any]]
_CUSTOM: Final[_Performer] = _custom
_PERFORMERS: Final[dict[str, _Performer]] = {
    "db.query": _query,
    "db.write": _write,
    "db.update": _update,
    "http.call": _http,
    "event.publish": _publish,
    "event.subscribe": _subscribe,
    "state.transition": _transition,
    "node.call": _call_node,
    "agent.call": _agent,
}
