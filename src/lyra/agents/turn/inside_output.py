"""The output of a tool that is a part of the program (it takes `ctx`), on record.

Such a tool has no effect of its own that would hold its output: a replay runs it again, over the journaled answers to
its acts, and takes nothing from this row. It is for readers of a turn that was cut off (`unfinished`), who run nothing.
A journal of an older version has no such rows, and its replay goes on without them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.agents.declaration.content import parts_of, plain_or_text
from lyra.errors import Divergence, StoreError
from lyra.kernel.process.call_keys import next_key, upcoming
from lyra.kernel.process.cut_short import cut_short
from lyra.kernel.programs.journaled_wait import journaled_wait

if TYPE_CHECKING:
    from lyra.kernel.process.process import Process


OUTPUT: Final = "output"  # the row


async def recorded_output(process: Process, work: Awaitable[Any], clean: Callable[[Any], Any]) -> Any:
    """The output of the tool, once its row is written; an error has a row, too. `clean` masks keys in plain data."""
    try:
        output = parts_of(await work)
    except (Divergence, StoreError):  # no outcome of the tool: the process stands still
        raise
    except Exception as error:
        if _has_row(process):
            cut_short(process, next_key(process), error, form="read", name=OUTPUT)
        raise
    if process.core.journal is not None and _has_row(process):

        async def row() -> Any:
            return clean(_plain(output))

        await journaled_wait(process, OUTPUT, row)
    return output


def _plain(output: Any) -> Any:
    try:
        return msgspec.to_builtins(output, enc_hook=plain_or_text)
    except (TypeError, ValueError, RecursionError):
        return str(output)


def _has_row(process: Process) -> bool:
    """Whether a row is to be written, or the journal has it next."""
    entry = upcoming(process)
    return entry is None or (entry.kind, entry.name) == ("read", OUTPUT)
