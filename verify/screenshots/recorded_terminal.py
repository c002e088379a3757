"""RecordedTerminal: a program in a pseudo-terminal, driven by keys, and its screen as rows to draw.

Owns nothing of the program's: the folder and the environment are the caller's. Never takes times: a caller waits for
texts.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import pexpect
import pyte

from verify.screenshots.screen_svg import Cell

__all__ = ["RecordedTerminal"]

_WAIT_S: Final = 30.0
_STILL_S: Final = 0.4
_SGR: Final = re.compile(rb"\x1b\[([0-9;]*)m")
_DIM: Final = re.compile(rb"(?<![0-9;])2(?=;|$)|(?<=^0;)2(?=;|$)")  # not the 2 of 38;2;R;G;B
_SECONDS: Final = re.compile(r"(?<= )\d+ s(?= *$)")  # at the right edge: how long a call took


class RecordedTerminal:
    """`shown_as` gives the texts that stand in the pictures in place of others, such as a temporary folder."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        folder: Path,
        env: Mapping[str, str],
        columns: int,
        rows: int,
        shown_as: Mapping[str, str],
    ) -> None:
        self.columns = columns
        self._shown_as = shown_as
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self._process = pexpect.spawn(
            command[0], list(command[1:]), cwd=str(folder), env=dict(env), dimensions=(rows, columns), timeout=_WAIT_S
        )
        self._process.delaybeforesend = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.close(force=True)

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self._screen.display)

    def send(self, keys: str) -> Self:
        self._process.send(keys)
        return self

    def wait_for(self, pattern: str) -> Self:
        """Wait until the screen shows the pattern and its text has not changed for a moment."""
        wanted = re.compile(pattern, re.MULTILINE)
        text, now_s = self.text, time.monotonic()
        end_s, changed_s = now_s + _WAIT_S, now_s
        while now_s < end_s:
            self._read(0.05)
            now_s = time.monotonic()
            if self.text != text:
                text, changed_s = self.text, now_s
            elif now_s - changed_s >= _STILL_S and wanted.search(text):
                return self
        raise TimeoutError(f"{pattern!r} is not on the screen:\n{self.text}")

    def wait_for_end(self) -> Self:
        """Wait until the program has ended by itself."""
        end = time.monotonic() + _WAIT_S
        while self._process.isalive() and time.monotonic() < end:
            self._read(0.05)
        return self

    def _read(self, seconds: float) -> bool:
        try:
            data = self._process.read_nonblocking(1 << 16, timeout=seconds)
        except (pexpect.TIMEOUT, pexpect.EOF):
            return False
        self._stream.feed(_SGR.sub(_with_dim_as_grey, data))
        return True

    def rows(self) -> list[list[Cell]]:
        """The rows from the first to the last that is not empty, without times."""
        rows = [self._row(number) for number in range(self._screen.lines)]
        written = [number for number, row in enumerate(rows) if row]
        return rows[written[0] : written[-1] + 1]

    def _row(self, number: int) -> list[Cell]:
        columns = self._screen.buffer[number]
        cells = [_cell(columns[column]) for column in range(self.columns)]
        text = "".join(cell.text for cell in cells)
        for hidden, shown in self._shown_as.items():
            begin = text.find(hidden)
            if begin >= 0:
                cells[begin : begin + len(hidden)] = [cells[begin]._replace(text=letter) for letter in shown]
                text = text.replace(hidden, shown, 1)
        seconds = _SECONDS.search(text)
        if seconds:
            cells[seconds.start() : seconds.end()] = [Cell(" ")] * (seconds.end() - seconds.start())
        while cells and cells[-1].text == " ":
            cells.pop()
        return cells


def _cell(char: Any) -> Cell:
    return Cell(char.data or " ", char.fg, char.bold, char.underscore, char.italics)


def _with_dim_as_grey(match: re.Match[bytes]) -> bytes:
    """pyte does not know dim text: it is drawn grey."""
    return b"\x1b[%sm" % _DIM.sub(b"90", match[1])
