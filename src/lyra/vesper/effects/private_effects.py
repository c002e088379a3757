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
    from lyra.core.rights.capability import Grant
    from lyra.vesper.effects.sealing import Sealer
    from lyra.vesper.values.redaction import Redaction


_KEPT_IN_PLAIN: Final = frozenset({"event.publish", "agent.call"})  # by the bus, and by the agent's own process


class PrivateEffects:
    """How the effects of one execution are kept from its journal."""

    def __init__(self, redaction: Redaction, sealer: Sealer) -> None:
        self.redaction = redaction
        self.sealer = sealer

    async def perform(self, world: NodeWorld, request: EffectRequest, grant: Grant, key: str) -> Any:
        """Do what a request asks for; receivers that journal in plain are given no sensitive value."""
        payload, key = request.payload, self._key(key)
        if request.kind == "node.call":
            parameters = payload.get("parameters") or {}
            hidden = frozenset(name for name, value in parameters.items() if self.redaction.has(value))
            return await world.call_node(str(payload["node_id"]), parameters, key, grant, hidden)
        if request.kind in _KEPT_IN_PLAIN:
            payload = {name: self.redaction.value(value) for name, value in payload.items()}
        elif request.kind == "state.transition" and self.redaction.has(payload["entity"]):
            payload = {**payload, "entity": self.sealer.digest(payload["entity"])}
        return await perform(world, msgspec.structs.replace(request, payload=payload), grant, key)

    def _key(self, key: str) -> str:
        return f"sealed-{self.sealer.digest(key)}" if self.redaction.has(key) else key

    def effect_error(self, error: Exception) -> EffectError:
        """Any other error as the node sees it; its text may hold a sensitive value."""
        if isinstance(error, LyraError):
            return EffectError(error.code, error.message)
        return EffectError("effect_failed", f"{type(error).__name__}: {error}")

    def failed(self, error: EffectError, status: int) -> EffectFailed:
        """A failure as the journal keeps it."""
        return EffectFailed(
            self.redaction.text(error.message or error.kind),
            kind=self.redaction.text(error.kind),
            status=status,
            facts=self.sealer.seal([error.message, error.fields]),
        )
