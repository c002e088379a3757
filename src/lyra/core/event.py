"""An Event: an immutable fact. Everything that can be observed about Lyra is a fold over these.

Owns the shape and the table of kinds. A journal row becomes an Event when it is published; traces, metrics,
audit and `lyra ps` read nothing else. Never holds a secret, and never decides anything: `observe` and the
kernel do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from lyra.core.codec import to_plain

__all__ = ["KINDS", "Event"]

KINDS: Final[dict[str, str]] = {
    "process.created": "a process is in the table",
    "process.state_changed": "a process moved from one state to another",
    "process.terminated": "a process ended, with a reason and a result or an error",
    "process.diverged": "a replay asked for something its journal does not hold; the process is stopped",
    "process.dormant": "a process waits for a program that this kernel does not know",
    "effect.started": "an effect is about to be performed",
    "effect.retried": "an effect failed and will be tried again after a pause",
    "effect.finished": "an effect ended, with a value or an error, and its cost",
    "message.sent": "a process sent a message",
    "message.received": "a process took a message from its mailbox",
    "message.dropped": "a message was not delivered, and why",
    "timer.set": "a process asked to be woken",
    "interrupt.created": "a question was put to a human",
    "interrupt.resolved": "a human answered",
    "interrupt.expired": "nobody answered in time",
    "interrupt.cancelled": "the question was taken back",
    "budget.overrun": "an effect cost more than was reserved for it",
    "budget.warning": "a limit that only warns was passed",
    "resource.exceeded": "a quota or a limit stopped something",
    "program.checkpoint": "a program saved its state, and needs no journal before this",
    "process.stopping": "a process was told to end; it may tidy up, and does not come back",
    "snapshot.failed": "a snapshot could not be written; the next restart is slower, nothing is lost",
    "store.full": "the store has no room; every process stands still until it has",
    "store.failed": "the store is damaged or gone; this kernel writes no more",
    "store.fenced": "another kernel owns the store now; this one writes no more",
}

_encode: Final = msgspec.json.Encoder(enc_hook=to_plain).encode


class Event(msgspec.Struct, frozen=True):
    """`seq` orders the facts of one store, `time` is the wall clock, `pid` is "" for the kernel's own."""

    seq: int
    time: float
    pid: str
    kind: str
    data: Mapping[str, Any]

    def to_json(self) -> str:
        """One line of JSON; bytes as base64."""
        return _encode(self).decode()
