"""Envelopes without a session: made, changed step by step, copied."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from verify.crash.server.callers import Scene, ServerLost

__all__ = ["Envelopes"]

_CHANGES: Final = 4
_COMPARED_MAX: Final = 15


class _Kept:
    __slots__ = ("acknowledged", "id", "text", "tried")

    def __init__(self, envelope_id: str, text: str) -> None:
        self.id = envelope_id
        self.text = text
        self.acknowledged = self.tried = 0


class Envelopes(Scene):
    name = "envelopes"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._kept: list[_Kept] = []

    async def unit(self) -> None:
        text = self.next_name()
        try:
            envelope = await self.ask("create_envelope", text, user_id=self.user)
        except ServerLost:
            return  # its id is not known
        kept = _Kept(str(envelope.envelope_id), text)
        self._kept.append(kept)
        for number in range(1, _CHANGES + 1):
            kept.tried = number
            change = {"envelope_id": kept.id, "iteration": number}
            await self.until_done(partial(self.ask, "update_envelope", change))
            kept.acknowledged = number

    async def compare(self) -> None:
        for kept in self._kept[-_COMPARED_MAX:]:
            envelope = await self.ask("update_envelope", {"envelope_id": kept.id})
            self.expect(envelope.raw_input == kept.text, f"envelope {kept.id} has lost its text")
            self.expect(
                kept.acknowledged <= envelope.iteration <= kept.tried,
                f"envelope {kept.id} is at {envelope.iteration} after change {kept.acknowledged}",
            )
