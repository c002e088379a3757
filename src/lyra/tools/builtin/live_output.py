"""The output of a command while it runs: its last lines as progress reports of the tool, a few times a second.

Nothing is reported where no progress is listened to, and the command then runs as without this module.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from lyra.core.tool import progress

if TYPE_CHECKING:
    from lyra.sandbox import Job, Result

__all__ = ["wait_reporting"]

_EVERY_S: Final = 0.25
_BYTES: Final = 2_000  # of the end of the output


async def wait_reporting(job: Job) -> Result:
    """Wait for the end of a command, and report its output on the way. When cancelled, everything the command started
    is killed before the cancellation goes on."""
    listener = progress.get()
    try:
        if listener is not None:
            await _report_until_end(job, listener)
        return await job.wait()
    except asyncio.CancelledError:
        await job.end()
        raise


async def _report_until_end(job: Job, listener: Callable[[str, float | None], None]) -> None:
    reported = 0
    while job.running:
        await asyncio.wait({job.done}, timeout=_EVERY_S)
        total = job.output.total_bytes
        if total != reported and not job.done.done():
            reported = total
            tail = job.since(max(0, total - _BYTES), most_bytes=_BYTES)
            listener(tail.decode("utf-8", "replace"), None)
