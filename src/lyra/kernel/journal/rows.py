"""What each kind of journal row holds: one typed struct a kind, one table.

A row is (seq, time, pid, kind, data); `data` is one of these structs as msgpack. Values that belong to users
(arguments, results, messages) are stored as raw msgpack inside, so they are encoded once and decoded only by
the modules that need them. Fields may be added with a default; none is ever renamed or reused, because old journals are
replayed for ever.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Final, Protocol

import msgspec
from msgspec import Raw

from lyra.core.codec import to_plain
from lyra.core.naming import fixed_name

__all__ = [
    "ASIDE",
    "DECODERS",
    "NIL",
    "PASSING",
    "RIGHTS",
    "Checkpointed",
    "Created",
    "Finished",
    "InterruptEnded",
    "InterruptRaised",
    "Key",
    "Linked",
    "Monitored",
    "Raw",
    "Received",
    "Sent",
    "Started",
    "Stopping",
    "Terminated",
    "TimerSet",
    "Trapping",
    "answer_fault",
    "encode",
    "is_aside",
    "is_passing",
]

Key = int | str  # a number in the program itself; "0/3" in its first parallel branch
ASIDE: Final = "aside:"  # begins the key of what an effect under way asks and pays for: told, and never replayed
# Begins the key of an effect that a server performs for a client of its own, whose connection does not survive a crash:
# it is never replayed. What was set aside for one that was in flight at a crash is charged by the next kernel.
PASSING: Final = "passing:"
NIL: Final = Raw(b"\xc0")
# The rights that a version checks. 0: neither models, tools, processes, questions, events nor memories were checked.
RIGHTS: Final = 1


def is_aside(key: Key | None) -> bool:
    """Whether no replay asks for what has this key."""
    return isinstance(key, str) and key.startswith((ASIDE, PASSING))


def is_passing(key: Key | None) -> bool:
    return isinstance(key, str) and key.startswith(PASSING)


class Row(msgspec.Struct, omit_defaults=True):
    """Left-out fields take their default, so a row is as short as what it says."""


class Created(Row):
    program: str
    args: Raw = NIL
    parent: str = ""
    key: Key | None = None  # the parent's effect that made it
    hash: bytes = b""
    name: str = ""
    priority: Annotated[int, msgspec.Meta(ge=0, le=4)] = 2
    budget: dict[str, Any] | None = None  # None: it shares its parent's scope
    grant: Any = None  # None: it has its parent's
    blob: str = ""
    guarded: bool = False  # its parent is a guard: to the others it is known by that one's pid
    rights: int = 0  # RIGHTS of the version that wrote it
    chosen: bool = False  # a caller chose its pid, which another process may have had: its calls' keys tell them apart
    recovery_attempts: Annotated[int, msgspec.Meta(ge=0)] | None = None  # None: as its parent or its kernel has it
    fork: dict[str, Any] | None = None  # `of`, `at`: the run and step that it was forked from; what it does otherwise


class Terminated(Row):
    reason: str
    value: Raw = NIL
    blob: str = ""
    error: dict[str, Any] | None = None
    stopped: bool = False  # it was told to end, for this reason, which is a word of the one that ended it
    status: str = ""  # why the value is less than was asked for, such as `max_tokens`


class Stopping(Row):
    """It was told to end. It may tidy up first, but it does not come back after a restart."""

    reason: str
    error: dict[str, Any] | None = None  # why, if a link took it along


class Started(Row):
    key: Key
    name: str
    hash: bytes
    idempotent: bool = False
    cost: dict[str, int] | None = None
    lent: bool = False  # another program has got it, and may still have it after a restart
    generation: str = ""  # of the store, in the idempotency key of an effect that takes one


class Finished(Row):
    key: Key
    value: Raw = NIL
    blob: str = ""
    error: dict[str, Any] | None = None
    usage: dict[str, int] | None = None
    # Only when there was no `started` row: readings of the clock, effects refused before they began, calls cut short.
    name: str = ""
    hash: bytes = b""
    recorded: dict[str, int] | None = None  # in a fork: what it cost the run that the answer was copied from
    form: str = "do"  # do, read, wait, passage, refused; also sleep, receive, send, ask when cancelled while it waited


class Sent(Row):
    to: str
    message: Raw
    sender: str = ""
    key: Key | None = None
    hash: bytes = b""
    dropped: bool = False
    blob: str = ""
    form: str = ""  # exit, down or ready for the kernel's own signals


class Linked(Row):
    to: str


class Monitored(Row):
    target: str
    ref: str


class Trapping(Row):
    on: bool


class Received(Row):
    key: Key
    message: int = 0  # the seq of its `message.sent` row; 0 when time ran out


class TimerSet(Row):
    key: Key
    due: float
    hash: bytes = b""


class InterruptRaised(Row):
    id: str
    kind: str
    key: Key | None = None
    hash: bytes = b""
    question: str = ""
    message: str = ""
    expires_at: float | None = None


class InterruptEnded(Row):
    id: str
    response: Raw = NIL
    reason: str = ""


class Checkpointed(Row):
    key: int
    state: Raw = NIL
    blob: str = ""
    branches: int = 0  # parallel branches made so far: their numbers go on after a restart


_KINDS: Final[dict[str, type[Row]]] = {
    "process.created": Created,
    "process.stopping": Stopping,
    "process.terminated": Terminated,
    "effect.started": Started,
    "effect.finished": Finished,
    "process.linked": Linked,
    "process.unlinked": Linked,
    "process.monitored": Monitored,
    "process.demonitored": Monitored,
    "process.trapping": Trapping,
    "message.sent": Sent,
    "message.received": Received,
    "timer.set": TimerSet,
    "interrupt.created": InterruptRaised,
    "interrupt.resolved": InterruptEnded,
    "interrupt.expired": InterruptEnded,
    "interrupt.cancelled": InterruptEnded,
    "program.checkpoint": Checkpointed,
}


class RowDecoder(Protocol):
    def decode(self, data: bytes, /) -> Any: ...


class _CreatedDecoder:
    """Reads a row that an earlier version wrote as if it had the fixed name of its program."""

    __slots__ = ("_decode",)

    def __init__(self) -> None:
        self._decode = msgspec.msgpack.Decoder(Created).decode

    def decode(self, data: bytes, /) -> Created:
        row = self._decode(data)
        row.program = fixed_name(row.program)
        return row


DECODERS: Final[dict[str, RowDecoder]] = {
    **{kind: msgspec.msgpack.Decoder(row) for kind, row in _KINDS.items()},
    "process.created": _CreatedDecoder(),
}


class Ended(msgspec.Struct):
    """What a wait for another process gave."""

    reason: str
    result: Raw
    error: dict[str, Any] | None


_ENDED: Final = msgspec.msgpack.Decoder(Ended)
_READINGS: Final[dict[str, msgspec.msgpack.Decoder[Any]]] = {  # what a program reads, by the first word of its name
    "clock": msgspec.msgpack.Decoder(float),
    "seed": msgspec.msgpack.Decoder(int),
    "budget": msgspec.msgpack.Decoder(Annotated[int, msgspec.Meta(ge=0)] | None),
    "used": msgspec.msgpack.Decoder(Annotated[int, msgspec.Meta(ge=0)]),
    "parent": msgspec.msgpack.Decoder(str | None),
}


def answer_fault(form: str, name: str, value: Raw) -> str | None:
    """Return what is wrong with the answer to a wait, or with a reading of the clock, a seed or a budget, if something
    is."""
    decoder = _ENDED if form == "wait" else _READINGS.get(name.partition(".")[0])
    if decoder is None:
        return None
    try:
        answer = decoder.decode(value)
    except (msgspec.MsgspecError, RecursionError) as error:
        return str(error)
    return f"it is {answer}" if isinstance(answer, float) and not math.isfinite(answer) else None


encode = msgspec.msgpack.Encoder(enc_hook=to_plain).encode  # text of a subclass of str, such as a Reply, is its text
