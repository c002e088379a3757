"""Effects of an execution with sensitive values: the world gets the values, the journal does not.

Databases, servers and functions of the embedding program are given real values. What they answer, and how they fail, is
journaled sealed, since it may repeat them. Events and prompts of agents are journaled in plain by their receivers, so
sensitive values in them are replaced by `[redacted]`. An entity of a state machine, or an idempotency key, that holds a
sensitive value goes by a keyed digest of it. A node that is called treats the inputs that hold one as sensitive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.errors import EffectFailed, LyraError
from lyra.vesper.effects.performers import NodeWorld, perform
from lyra.vesper.effects.request import EffectError, EffectRequest

if TYPE_CHECKING:
    from lyra.kernel.programs.context import Context
    from lyra.vesper.effects.sealing import Sealer
    from lyra.vesper.values.redaction import Redaction

__all__ = ["PrivateEffects"]

_KEPT_IN_PLAIN: Final = frozenset({"event.publish", "agent.call"})  # by the bus, and by the agent's own process


class PrivateEffects:
    """How the effects of one execution are kept from its journal."""

    def __init__(self, redaction: Redaction, sealer: Sealer) -> None:
        self.redaction = redaction
        self.sealer = sealer

    def act(self, request: EffectRequest, world: NodeWorld, ctx: Context) -> Any:
        """What the kernel performs: it is given the sealed request and gives a sealed response."""

        async def act(sealed: str, *, idempotency_key: str) -> str:  # noqa: ARG001 (the journal compares it)
            key = self.key(request.idempotency_key or idempotency_key)
            try:
                return self.sealer.seal(await self._performed(request, world, ctx, key))
            except EffectError as error:
                raise self._failed(error) from None
            except LyraError as error:
                raise self._failed(EffectError(error.code, error.message)) from None
            except Exception as error:  # noqa: BLE001 - its text may hold a sensitive value
                text = f"{type(error).__name__}: {error}"
                raise self._failed(EffectError("effect_failed", text)) from None

        return act

    def key(self, key: str) -> str:
        return f"sealed-{self.sealer.digest(key)}" if self.redaction.has(key) else key

    async def _performed(self, request: EffectRequest, world: NodeWorld, ctx: Context, key: str) -> Any:
        payload = request.payload
        if request.kind == "node.call":
            parameters = payload.get("parameters") or {}
            hidden = frozenset(name for name, value in parameters.items() if self.redaction.has(value))
            return await world.call_node(str(payload["node_id"]), parameters, key, hidden)
        if request.kind in _KEPT_IN_PLAIN:
            payload = self.redaction.value(payload)
        elif request.kind == "state.transition" and self.redaction.has(payload["entity"]):
            payload = {**payload, "entity": self.sealer.digest(payload["entity"])}
        return await perform(world, msgspec.structs.replace(request, payload=payload), ctx.grant, key)

    def _failed(self, error: EffectError) -> EffectFailed:
        return EffectFailed(
            self.redaction.text(error.message or error.kind),
            kind=self.redaction.text(error.kind),
            status=error.fields.get("status"),
            facts=self.sealer.seal([error.message, error.fields]),
        )
