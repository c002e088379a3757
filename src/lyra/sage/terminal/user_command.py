"""`!command`: a command of the user, run in their own shell with their own rights.

The model has no way to start one: only a line that the person at the terminal submits begins with `!`. The output is
shown as it comes; its end, bounded, goes with the next prompt to the model, marked as text from outside.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from typing import Final, NamedTuple

_KEPT_CHARS_MAX: Final = 20_000  # of the output, for the model
_READ_BYTES: Final = 1 << 16
_GRACE_S: Final = 1.0  # between the polite signal and the other


class UserCommandOutcome(NamedTuple):
    command: str
    exit_code: int
    output: str
    is_cut: bool

    @property
    def for_model(self) -> str:
        """The command and its output, as the model is told of it."""
        cut = "(only the end of its output)\n" if self.is_cut else ""
        return f"I ran a command in my shell: {self.command}\nexit code {self.exit_code}\n{cut}{self.output}"


class UserCommand:
    """A command that runs until it ends or is stopped."""

    def __init__(self, command: str, folder: str) -> None:
        self._command = command
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None
        self._is_stopped = False

    async def run(self, tell: Callable[[str], None]) -> UserCommandOutcome:
        """Run it to its end; `tell` is called with pieces of its output."""
        shell = os.environ.get("SHELL") or "/bin/sh"
        process = self._process = await asyncio.create_subprocess_exec(
            shell,
            "-c",
            self._command,
            cwd=self._folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        kept, is_cut = "", False
        assert process.stdout is not None
        try:
            while data := await process.stdout.read(_READ_BYTES):
                piece = data.decode("utf-8", "replace")
                tell(piece)
                kept += piece
                if len(kept) > 2 * _KEPT_CHARS_MAX:
                    kept, is_cut = kept[-_KEPT_CHARS_MAX:], True
            code = await process.wait()
        finally:
            await self.stop()
        if len(kept) > _KEPT_CHARS_MAX:
            kept, is_cut = kept[-_KEPT_CHARS_MAX:], True
        return UserCommandOutcome(self._command, code if code >= 0 else 128 - code, kept, is_cut)

    async def stop(self) -> None:
        """End it and all that it started in its session."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_GRACE_S):
                    await process.wait()
                    return
