"""Where processes stood still, as Events tell it: between two tries of an effect, and while a person was asked.

`PauseHistory.add` takes Events in order, live ones or those of a store. A pause that is not over has no end. What a
process did between its pauses is in `calls`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from lyra.core.event import Event

_PAUSES_MAX: Final = 10_000  # kept by one fold; older ones are dropped first
_ASKED: Final = ("interrupt.created", "pcb.interrupt_created")
_ANSWERED: Final = ("interrupt.resolved", "interrupt.expired", "interrupt.cancelled", "pcb.interrupt_ended")


class Pause(msgspec.Struct):
    """A time without work: `kind` is retry or wait, `why` the error before it or the question."""

    pid: str
    kind: str
    started_at: float
    ended_at: float | None
    why: str = ""
    key: str = ""  # of the effect that is tried again


class PauseHistory:
    """The fold. `pauses` has them in the order of their start."""

    __slots__ = ("_open", "pauses")

    def __init__(self) -> None:
        self.pauses: list[Pause] = []
        self._open: dict[str, Pause] = {}  # questions without an answer, by id

    def add(self, event: Event) -> None:
        data = event.data
        if event.kind == "effect.retried":
            delay_s = data.get("delay_s")
            ended_at = event.time + (delay_s if isinstance(delay_s, (int, float)) else 0.0)
            why = str(data.get("error") or "")
            self._keep(Pause(event.pid, "retry", event.time, ended_at, why, str(data.get("key", ""))))
        elif event.kind in _ASKED:
            why = str(data.get("question") or data.get("message") or "")
            pause = self._open[str(data.get("id"))] = Pause(event.pid, "wait", event.time, None, why)
            self._keep(pause)
        elif event.kind in _ANSWERED:
            asked = self._open.pop(str(data.get("id")), None)
            if asked is not None:
                asked.ended_at = event.time

    def add_all(self, events: Iterable[Event]) -> None:
        for event in events:
            self.add(event)

    def _keep(self, pause: Pause) -> None:
        self.pauses.append(pause)
        if len(self.pauses) > _PAUSES_MAX:
            del self.pauses[0]
