"""A command whose stdin and stdout the caller uses as streams; everything else is as with any `Job`.

`Sandbox.pipes` starts one. The beginning and the end of its stderr are kept (`output`). It runs until it ends by
itself, until `close` has closed its stdin and the grace period is over, or until `kill`; then everything it started is
killed, too. Output that it wrote before can still be read.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any, Self

from lyra.sandbox.job import Job, LaunchPlan, Result
from lyra.sandbox.output import Capture
from lyra.sandbox.profile import Limits


class Pipes(Job):
    """`reader` gives what the command writes on stdout, `writer` takes what it reads on stdin."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    _transports: tuple[Any, Any]

    @classmethod
    async def open(cls, plan: LaunchPlan, limits: Limits, *, line_bytes_max: int) -> Self:
        """Start the command. A line of its stdout that is longer than `line_bytes_max` cannot be read as a line."""
        pipes = cls(plan, limits, stdin=None, timeout_s=limits.wall_s, apart=True, spill=None)
        try:
            await pipes._connect(line_bytes_max)
        except BaseException:
            pipes.kill()
            raise
        return pipes

    async def _connect(self, line_bytes_max: int) -> None:
        loop = asyncio.get_running_loop()
        self.reader = asyncio.StreamReader(limit=line_bytes_max, loop=loop)
        protocol = asyncio.StreamReaderProtocol(self.reader, loop=loop)
        reading, _ = await loop.connect_read_pipe(lambda: protocol, os.fdopen(self._reading, "rb", 0))
        writing, flow = await loop.connect_write_pipe(_Flow, os.fdopen(self._writing, "wb", 0))
        self.writer = asyncio.StreamWriter(writing, flow, None, loop)
        self._transports = (reading, writing)

    async def close(self, grace_s: float = 1.0) -> Result:
        """Close its stdin, wait up to `grace_s` for it to end, then kill it. A caller that is cancelled meanwhile is
        held until the command is gone: its protection of the workspace ends with it."""
        self._transports[1].close()
        try:
            async with asyncio.timeout(grace_s):
                await self.wait()
        except TimeoutError:
            pass
        finally:
            result = await self.end()
            self._transports[0].close()
        return result

    def _capture(self, limits: Limits, spill: str | None, copy: str | None) -> Capture:
        """A capture of stderr without a file and without a limit: only its beginning and end are kept."""
        del spill, copy
        return Capture(kept_bytes=limits.output_kept_bytes, most_bytes=sys.maxsize, has_file=False)

    def _start(self, stdin: bytes | None, *, apart: bool) -> Any:
        """The two pipes are taken from the process before the `Job` would read and write them itself."""
        process = super()._start(stdin or b"-", apart=apart)
        assert process.stdin is not None
        assert process.stdout is not None
        self._reading, self._writing = os.dup(process.stdout.fileno()), os.dup(process.stdin.fileno())
        process.stdin.close()
        process.stdout.close()
        process.stdin = process.stdout = None
        return process


class _Flow(asyncio.streams.FlowControlMixin):
    """Flow control of the writer: when more may be written, and when the pipe is closed."""

    def __init__(self) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self._gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)  # type: ignore[arg-type]
        if not self._gone.done():
            self._gone.set_result(None)

    def _get_close_waiter(self, _stream: asyncio.StreamWriter) -> asyncio.Future[None]:
        return self._gone
