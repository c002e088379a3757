"""What each kind of journal row holds: one typed struct a kind, one table.

A row is (seq, time, pid, kind, data); `data` is one of these structs as msgpack. Values that belong to users
(arguments, results, messages) are stored as raw msgpack inside, so they are encoded once and decoded only by
the modules that need them. Fields may be added with a default; none is ever renamed or reused, because old journals are
replayed for ever.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Final, Protocol, Self, TypeVar

import msgspec

from lyra.core.codec import to_plain
from lyra.core.naming import find_thing, get_qualified_name, main_name, to_fixed_name
from lyra.core.policies.retry import error_text
from lyra.core.secrets.process_keys import mask_process_keys
from lyra.errors import EffectFailed, LyraError, error_from_data, error_to_data

if TYPE_CHECKING:
    from lyra.kernel.base.core import AnyJournal, Core


Raw = msgspec.Raw
Key = int | str  # a number in the program itself; "0/3" in its first parallel branch
ASIDE: Final = "aside:"  # begins the key of what an effect under way asks and pays for: told, and never replayed
# Begins the key of an effect that a server performs for its own client, whose connection does not survive a crash:
# it is never replayed. What was set aside for one that was in flight at a crash is charged by the next kernel.
PASSING: Final = "passing:"
NIL: Final = Raw(b"\xc0")
# The rights that a version checks. 0: neither models, tools, processes, questions, events nor memories were checked.
RIGHTS: Final = 1


def is_aside(key: Key | None) -> bool:
    """Return whether no replay asks for what has this key."""
    return isinstance(key, str) and key.startswith((ASIDE, PASSING))


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
    branches: int = 0  # parallel branches made so far: their numbers continue after a restart


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
        row.program = to_fixed_name(row.program)
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


# ---------------------------------------------------------------- durable value
# Values that changing calls give, and that may be awaited: `await kernel.submit(…)` waits until the store has it.

T = TypeVar("T", bound="DurableValue")


class DurableValue:
    """Mixed into a Struct with `dict=True`: what it waits for is no field, and is not compared, copied or saved."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, Self]:
        return self._durable().__await__()

    async def _durable(self) -> Self:
        row: tuple[AnyJournal, int] | None = self.__dict__.get("_row")
        if row is not None:
            await row[0].wait_until_durable(row[1])
        return self


def durable_value(core: Core[Any], value: T) -> T:
    """Return the value; awaiting it waits for everything that is written so far."""
    if core.journal is not None:
        msgspec.structs.force_setattr(value, "_row", (core.journal, core.journal.seq))  # type: ignore[arg-type]
    return value


# ---------------------------------------------------------------- errors as rows, and back

# Classes made inside functions cannot be looked up by name; those seen in this OS process are remembered. After a
# restart elsewhere they come back as EffectFailed, so a durable program catches classes of a module.
_local: dict[tuple[str, str], type[BaseException]] = {}
_LOCAL_MAX: Final = 1_000
_DEPTH_MAX: Final = 20  # groups in groups, lists in lists
_TEXT_MAX: Final = 100_000
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1


class _NotPlain(Exception):
    """A value that a row does not hold."""


def error_to_row(error: BaseException, depth: int = 0) -> dict[str, Any]:
    if isinstance(error, LyraError):
        data = error_to_data(error)
        return {key: _or_text(value) for key, value in data.items()}
    cls = type(error)
    module, _, kind = get_qualified_name(cls).partition(":")
    if "<locals>" in kind and len(_local) < _LOCAL_MAX:
        _local[module, kind] = cls
    row: dict[str, Any] = {
        "code": "python",
        "type": kind,
        "module": module,
        "message": text_of(error),
        "args": _arguments(error),
    }
    state = _attributes(error)
    if state:
        row["state"] = state
    if isinstance(error, BaseExceptionGroup) and depth < _DEPTH_MAX:
        row["errors"] = [error_to_row(inner, depth + 1) for inner in error.exceptions]
        row["args"] = [text_of(error.message)]
    return row


def error_from_row(data: Any, depth: int = 0) -> BaseException:
    if not isinstance(data, dict) or depth > _DEPTH_MAX:
        return EffectFailed("an error that its journal does not describe")
    if data.get("code") != "python":
        return error_from_data(data)
    args = data.get("args")
    inner = data.get("errors")
    message = str(data.get("message", ""))
    if isinstance(inner, list) and inner:
        parts = [error_from_row(row, depth + 1) for row in inner]
        failures = [part for part in parts if isinstance(part, Exception)]
        return ExceptionGroup(str(args[0]) if isinstance(args, list) and args else message, failures)
    cls = _find_exception(str(data.get("module")), str(data.get("type")))
    error = _rebuilt_exception(cls, args) if cls is not None and isinstance(args, list) else None
    if error is None:
        return EffectFailed(message, type=str(data.get("type")), module=str(data.get("module")))
    state = data.get("state")
    if isinstance(state, dict) and hasattr(error, "__dict__"):
        error.__dict__.update({str(key): value for key, value in state.items()})
    return error


def without_keys(error: Exception) -> Exception:
    """Return the error; where its text holds a known key, the error that its row describes."""
    if isinstance(error, LyraError) and mask_process_keys(error.message) == error.message:
        return error
    clean = error_from_row(error_to_row(error))
    return clean if isinstance(clean, Exception) else error


def text_of(error: object) -> str:
    """Its text, as far as it has one that can be written, without keys that this process knows."""
    return mask_process_keys(error_text(error)[:_TEXT_MAX].encode("utf-8", "replace").decode())


def _rebuilt_exception(cls: type[Exception], args: list[Any]) -> Exception | None:
    """Return the exception again: without its __init__ when that wants what no journal holds."""
    ways: tuple[Callable[[], Any], ...] = (
        lambda: cls(*args),
        lambda: cls.__new__(cls, *args),
        lambda: cls.__new__(cls),
    )
    for make in ways:
        with suppress(Exception):  # the class is the user's, and so is what it may raise
            error = make()
            if isinstance(error, cls):
                error.args = tuple(args)
                return error
    return None


def _arguments(error: BaseException) -> list[Any]:
    try:
        return [_to_plain(arg) for arg in error.args]
    except _NotPlain:
        return [text_of(error)]


def _attributes(error: BaseException) -> dict[str, Any]:
    """Return what a program may look at in an `except` clause: `error.status`, say. Private names and objects stay
    behind."""
    attributes: dict[str, Any] = {}
    for name, value in getattr(error, "__dict__", {}).items():
        if isinstance(name, str) and not name.startswith("_"):
            try:
                attributes[name] = _to_plain(value)
            except _NotPlain:
                continue
    return attributes


def _or_text(value: Any) -> Any:
    try:
        return _to_plain(value)
    except _NotPlain:
        return text_of(value)


def _to_plain(value: Any, depth: int = 0) -> Any:
    """Return the value in types that every row holds, or `_NotPlain`."""
    if value is None or type(value) in (bool, float):
        return value
    if isinstance(value, int):
        if _INT_MIN <= value <= _INT_MAX:
            return int(value)
        raise _NotPlain
    if isinstance(value, str):
        return text_of(str(value))
    if depth < _DEPTH_MAX and isinstance(value, (list, tuple)):
        return [_to_plain(item, depth + 1) for item in value]
    if depth < _DEPTH_MAX and isinstance(value, dict):
        return {text_of(key): _to_plain(item, depth + 1) for key, item in value.items()}
    raise _NotPlain


def _find_exception(module: str, name: str) -> type[Exception] | None:
    candidate: Any = _local.get((module, name)) or find_thing(f"{module}:{name}")
    if candidate is None:
        candidate = sys.modules.get("__main__" if module == main_name() else module)
        for part in name.split("."):
            candidate = getattr(candidate, part, None)
    if isinstance(candidate, type) and issubclass(candidate, Exception) and not issubclass(candidate, LyraError):
        return candidate
    return None
