"""The answers that the journal holds for a process that runs again: `process.replay`, by key.

After a restart a program runs from its beginning, and each of its calls asks here first (`take_entry`). A call that was
answered gets that answer, one that failed or was cut off ends as it did then (`raise_journaled`). A call that is not
the one in the journal is a Divergence: the program has changed, and its process stands still from then on (`Diverged`).
Which call has which key is in `call_keys`; how a row becomes an entry, in `journal.history`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, NoReturn

from lyra.core.effect import canonical_hash
from lyra.core.naming import fixed_name, old_names
from lyra.errors import Divergence
from lyra.kernel.base.waiting import suspend
from lyra.kernel.journal import rows
from lyra.kernel.journal.error_rows import error_from_row
from lyra.kernel.process.cut_short import CUT_OFF
from lyra.kernel.process.process import Process

if TYPE_CHECKING:
    from lyra.kernel.journal.history import Entry


class Diverged(dict[Any, Any]):
    """What a process remembers once it has diverged: only that. A program that catches the error gets it again."""

    def __init__(self, message: str, **fields: Any) -> None:
        super().__init__()
        self.error = Divergence(message, **fields)


def take_entry(
    process: Process,
    key: rows.Key,
    kind: str,
    name: str,
    digest: bytes,
    call: tuple[tuple[Any, ...], dict[str, Any]] | None = None,
) -> Entry | None:
    """Return what the journal holds under this key, if it is the same request; a different one is a Divergence.

    An empty `name` is not compared: a message's receiver goes by the hash, since its name may be another process's now.
    `call` has the arguments that the digest was made of, where an earlier version may have journaled an old name.
    """
    assert process.replay is not None
    if isinstance(process.replay, Diverged):
        raise process.replay.error
    entry: Entry | None = process.replay.pop(key, None)
    if not process.replay:
        process.replay = None
    if entry is None:
        return None
    if (
        entry.kind != kind or (name and entry.name != name) or (entry.hash and digest and entry.hash != digest)
    ) and not (call is not None and entry.kind == kind and _is_under_old_names(entry, name, digest, *call)):
        asked = f"{kind} {name}".strip()
        held = f"{entry.kind} {entry.name}".strip()
        detail = " with other arguments" if asked == held else ""
        process.replay = Diverged(
            f"process {process.pid} asked for {asked}{detail} where its journal has {held}",
            hint="the program changed under its journal; run the old one to its end, or start a new process",
            expected=held,
            actual=asked,
            at=str(key),
            pid=process.pid,
        )
        raise process.replay.error
    return entry


def _is_under_old_names(entry: Entry, name: str, digest: bytes, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an entry is the same request, journaled when Lyra's own functions had other names."""
    if fixed_name(entry.name) != fixed_name(name):
        return False
    if not entry.hash or entry.hash == digest:
        return True
    before = tuple(arg.under_old_names() if hasattr(arg, "under_old_names") else arg for arg in args)
    return any(entry.hash == canonical_hash(old, before, kwargs) for old in (*old_names(name), name))


def drop_doubt(process: Process, key: rows.Key) -> None:
    """Drop the answer about an effect in doubt that is finished: the replay does not ask for it."""
    replay, doubt = process.replay, f"doubt:{key}"
    if replay is not None and doubt in replay:
        del replay[doubt]
        if not replay:
            process.replay = None


async def raise_journaled(process: Process, error: dict[str, Any]) -> NoReturn:
    """On replay: raise what was journaled; where the call was cancelled then, wait to be cancelled now.

    A call whose caller gave up is not cancelled a second time, and one that ran out of time has waited already: both
    end here, as they did then.
    """
    code = error.get("code")
    if code in CUT_OFF:
        raise asyncio.CancelledError(CUT_OFF[code])
    if code == "cancelled":
        await suspend(process, [])
    raise error_from_row(error)


def as_replayed(live: BaseException, again: BaseException) -> BaseException:
    """The error itself if a replay makes the same of it (class, arguments, attributes), else what a replay makes."""
    if isinstance(live, BaseExceptionGroup):
        return again
    same = type(live) is type(again) and live.args == again.args
    return live if same and public_attributes(live) == public_attributes(again) else again


def public_attributes(error: BaseException) -> dict[str, Any]:
    return {name: value for name, value in getattr(error, "__dict__", {}).items() if not name.startswith("_")}
