"""A wait for something outside the program whose outcome is journaled as a reading: a replay gets the same value.

Unlike an effect it is not in flight: a kernel that closes does not wait for it, and a program that was waiting when its
kernel ended waits again. So what it waits for has to be told again after a restart: it is a fact in the store, such as
the answer of another process, and never an act.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from lyra.core import codec
from lyra.core.limits import BLOB_INLINE_BYTES_MAX
from lyra.kernel.journal import rows
from lyra.kernel.process.call_keys import next_key
from lyra.kernel.process.cut_short import cut_short
from lyra.kernel.process.process import Process
from lyra.kernel.process.replay import raise_journaled, take_entry

_FORM: Final = "read"  # the word in the journal


async def journaled_wait(process: Process, what: str, wait: Callable[[], Awaitable[Any]]) -> Any:
    """The value that `wait` gives, plain data; on a replay the one that it gave then. The journal names it `what`."""
    core = process.core
    key = next_key(process)
    if process.replay is not None:
        entry = take_entry(process, key, _FORM, what, b"")
        if entry is not None:
            if entry.error is not None:
                await raise_journaled(process, entry.error)
            return codec.decode(await core.value_of(entry))
    try:
        value = await wait()
    except BaseException as error:
        cut_short(process, key, error, form=_FORM, name=what)
        raise
    if core.journal is None:
        return value
    data = codec.encode(value)
    blob = core.put_blob_now(data) if len(data) > BLOB_INLINE_BYTES_MAX else ""
    row = rows.Finished(key, rows.NIL if blob else rows.Raw(data), blob, name=what, form=_FORM)
    core.journal.write(process.pid, "effect.finished", rows.encode(row))
    return codec.decode(data)
