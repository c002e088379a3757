"""Sealed data, which only a process with the user's key can read, and effects of an execution with sensitive values.

    sealer = Sealer(key)
    sealer.open(sealer.seal(value)) == value

Equal values are sealed to equal texts, because a process that goes on after a crash is compared with its journal; a
reader of the store learns that two sealed values are equal and how long they are, and nothing else. The cipher is
AES-SIV (RFC 5297), which is made for that. Its key, and one for digests, are derived from the user's own key, a file
with mode 0600 that sandboxes hide. `docs/explanation/decisions.md` gives the reasons.

With `PrivateEffects` the world gets sensitive values and the journal does not: answers and failures are journaled
sealed, since they may repeat them. Events and prompts of agents are journaled in plain by their receivers, so sensitive
values in them are replaced by `[redacted]`. An entity of a state machine, or an idempotency key, that holds a sensitive
value goes by a keyed digest of it. A node that is called treats the inputs that hold one as sensitive.
"""

from __future__ import annotations

import base64
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.errors import EffectFailed, LyraError, StoreError
from lyra.vesper.effects.performers import NodeWorld, perform
from lyra.vesper.effects.request import EffectError, EffectRequest
from lyra.vesper.values.json_values import from_json, to_json
from lyra.vesper.values.redaction import REDACTED, Redaction

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from lyra.core.rights.capability import Grant


_KEY_BYTES: Final = 64  # AES-256 for the vector, and for the data


class Sealer:
    """Seals and opens with one key."""

    __slots__ = ("_cipher", "_digests")

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESSIV  # here: most nodes have nothing to seal

        self._cipher = AESSIV(blake2b(key=key, digest_size=_KEY_BYTES, person=b"vesper seal").digest())
        self._digests = blake2b(key=key, digest_size=32, person=b"vesper digest").digest()

    def seal(self, value: Any) -> str:
        """Return a value of a node as a text that tells nothing about it."""
        data = msgspec.json.encode(to_json(value))
        return base64.b64encode(self._cipher.encrypt(data, None)).decode()

    def open(self, sealed: str) -> Any:
        """Return the value; StoreError where it was sealed with another key or changed since."""
        from cryptography.exceptions import InvalidTag

        try:
            data = self._cipher.decrypt(base64.b64decode(sealed, validate=True), None)
        except (InvalidTag, ValueError):
            raise StoreError(
                "sensitive values in the store cannot be read: they were sealed with another user's key",
                hint="copy store.key of the user who executed the node into this user's folder of settings",
            ) from None
        return from_json(msgspec.json.decode(data))

    def digest(self, value: Any) -> str:
        """Return a name for a value that cannot be guessed without the key."""
        return blake2b(msgspec.json.encode(to_json(value)), key=self._digests, digest_size=16).hexdigest()


_KEPT_IN_PLAIN: Final = frozenset({"event.publish", "agent.call"})  # by the bus, and by the agent's own process


class PrivateEffects:
    """How the effects of one execution are kept from its journal."""

    def __init__(
        self, redaction: Redaction, sealer: Sealer, derived: Mapping[str, Collection[str]] | None = None
    ) -> None:
        self.redaction = redaction
        self.sealer = sealer
        self._derived = derived or {}  # by step: the parts of its request that are computed from sensitive values

    async def perform(self, world: NodeWorld, request: EffectRequest, grant: Grant, key: str) -> Any:
        """Perform a request; receivers that journal in plain text are given no sensitive value."""
        payload, key, derived = request.payload, self.key(key), self._derived.get(request.step, ())
        if request.kind == "node.call":
            parameters = payload.get("parameters") or {}
            hidden = frozenset(
                name for name, value in parameters.items() if name in derived or self.redaction.has(value)
            )
            return await world.call_node(str(payload["node_id"]), parameters, key, grant, hidden)
        if request.kind in _KEPT_IN_PLAIN:
            payload = {name: self.redaction.value(value) for name, value in _hide_parts(payload, derived).items()}
        elif request.kind == "state.transition" and self.redaction.has(payload["entity"]):
            payload = {**payload, "entity": self.sealer.digest(payload["entity"])}
        return await perform(world, msgspec.structs.replace(request, payload=payload), grant, key)

    def key(self, key: str) -> str:
        """Return the key of an act as others may see it."""
        return f"sealed-{self.sealer.digest(key)}" if self.redaction.has(key) else key

    def effect_error(self, error: Exception) -> EffectError:
        """Return any other error as the node sees it; its text may hold a sensitive value."""
        if isinstance(error, LyraError):
            return EffectError(error.code, error.message)
        return EffectError("effect_failed", f"{type(error).__name__}: {error}")

    def seal_failure(self, error: EffectError, status: int) -> EffectFailed:
        """Return a failure as the journal keeps it."""
        return EffectFailed(
            self.redaction.text(error.message or error.kind),
            kind=self.redaction.text(error.kind),
            status=status,
            facts=self.sealer.seal([error.message, error.fields]),
        )


def _hide_parts(value: Any, names: Collection[str]) -> Any:
    """Return the value with `[redacted]` for each part of that name in its maps."""
    if not isinstance(value, dict):
        return value
    return {name: REDACTED if name in names else _hide_parts(item, names) for name, item in value.items()}
