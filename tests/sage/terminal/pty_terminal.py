"""A program in a real pseudo-terminal, and its screen as a person would see it. Shared by the tests of the terminal."""

from __future__ import annotations

import os
import re
import signal
import termios
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pexpect
import pyte

from tests.source import KEPT, PYTHONPATH

SAGE = "lyra.cli.main:sage"
WAIT_S = 60.0  # for what takes a second on a machine that has nothing else to do
WORKING = re.compile(r"^  esc interrupts", re.MULTILINE)
STATUS = re.compile(r"^ sage  ", re.MULTILINE)


class PtyTerminal:
    """A terminal of so many columns and rows with a program in it."""

    def __init__(
        self, command: list[str], *, folder: Path, env: dict[str, str], columns: int = 100, rows: int = 40
    ) -> None:
        kept = {name: os.environ[name] for name in KEPT if name in os.environ}
        settings = {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "PYTHONPATH": PYTHONPATH}
        self.columns, self.rows = columns, rows
        self.screen = pyte.HistoryScreen(columns, rows, history=5_000, ratio=1.0)
        self._stream = pyte.ByteStream(self.screen)
        self._rows: defaultdict[int, str] = defaultdict(str)  # as `display` last read them
        self.raw = b""  # everything that was written to the terminal
        self._process = pexpect.spawn(
            command[0],
            command[1:],
            cwd=str(folder),
            env={**kept, **settings, **env},
            dimensions=(rows, columns),
            timeout=WAIT_S,
        )
        self._process.delaybeforesend = None

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    def echoes(self) -> bool:
        """Whether the terminal itself shows what is typed, as at a shell."""
        return bool(termios.tcgetattr(self._process.child_fd)[3] & termios.ECHO)

    # ------------------------------------------------------------ reading
    def read(self, seconds: float = 0.0) -> bool:
        """Take what the program has written, and wait for it so long; whether there was anything."""
        end = time.monotonic() + seconds
        before = len(self.raw)
        while True:
            try:
                data = self._process.read_nonblocking(1 << 16, timeout=max(0.0, end - time.monotonic()))
            except (pexpect.TIMEOUT, pexpect.EOF):
                break
            self.raw += data
            self._stream.feed(data)
            if time.monotonic() >= end:
                break
        return len(self.raw) > before

    def read_raw(self, seconds: float) -> None:
        """The same without the screen, whose own work takes time."""
        try:
            self.raw += self._process.read_nonblocking(1 << 16, timeout=seconds)
        except (pexpect.TIMEOUT, pexpect.EOF):
            return

    @property
    def display(self) -> str:
        """The visible rows. Only those that have changed are read from the screen again."""
        for row in self.screen.dirty:
            self._rows[row] = self._read_row(self.screen.buffer[row])
        self.screen.dirty.clear()
        return "\n".join(self._rows[row] for row in range(self.rows)).rstrip()

    def _read_row(self, cells: Any) -> str:
        return "".join(cells[column].data for column in range(self.columns)).rstrip()

    @property
    def text(self) -> str:
        """The scrollback and the visible rows."""
        rows = self.screen.history.top
        return "\n".join([*map(self._read_row, rows), self.display])

    def wait_for(self, wanted: str, *, seconds: float = WAIT_S) -> PtyTerminal:
        """Wait until a pattern is on the screen or in the scrollback."""
        pattern = re.compile(wanted, re.MULTILINE)
        self._wait(lambda: pattern.search(self.text) is not None, f"{wanted!r} is not on the screen", seconds)
        return self

    def wait_until_gone(self, words: str) -> PtyTerminal:
        """Wait until some words are on the screen no more."""
        self._wait(lambda: words not in self.display, f"{words!r} is still on the screen", WAIT_S)
        return self

    def wait_for_prompt(self) -> PtyTerminal:
        """Wait until the prompt is there and nothing runs."""
        self._wait(lambda: bool(STATUS.search(self.display) and not WORKING.search(self.display)), "no prompt", WAIT_S)
        return self

    def _wait(self, is_there: Callable[[], bool], problem: str, seconds: float) -> None:
        end = time.monotonic() + seconds
        is_new = True
        while time.monotonic() < end:
            if is_new and is_there():
                return
            is_new = self.read(0.02)
            if not is_new and not self._process.isalive():
                break
        raise AssertionError(f"{problem}:\n{self.text}")

    # ------------------------------------------------------------ writing
    def send(self, text: str) -> PtyTerminal:
        self._process.send(text)
        return self

    def line(self, text: str) -> PtyTerminal:
        return self.send(f"{text}\r")

    def paste(self, text: str) -> PtyTerminal:
        return self.send(f"\x1b[200~{text}\x1b[201~")

    def resize(self, columns: int, rows: int) -> PtyTerminal:
        self.columns, self.rows = columns, rows
        self.screen.resize(rows, columns)
        self.screen.dirty.update(range(rows))
        self._process.setwinsize(rows, columns)
        return self

    # ------------------------------------------------------------ ending
    def wait_for_end(self, seconds: float = WAIT_S) -> int:
        """Wait until the program has ended; its exit code."""
        end = time.monotonic() + seconds
        while self._process.isalive() and time.monotonic() < end:
            self.read(0.05)
        self.read(0.05)
        assert not self._process.isalive(), f"it still runs:\n{self.text}"
        return int(self._process.exitstatus if self._process.exitstatus is not None else -self._process.signalstatus)

    def kill(self) -> None:
        if self._process.isalive():
            self._process.kill(signal.SIGKILL)

    def __enter__(self) -> PtyTerminal:
        return self

    def __exit__(self, *_: Any) -> None:
        self._process.close(force=True)
