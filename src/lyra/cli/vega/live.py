"""`vega run --live`: shows a run on stderr while it runs.

`LiveTable` is for a terminal: it redraws a table at the bottom of the screen a few times a second and prints the
program's output above it. `EventLines` is for every other stream: one line for each event. Both show the `Picture` of
the run. stdout belongs to the program; this module writes nothing of its own to it.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, TextIO

import click

from lyra.cli.render import note, printable
from lyra.vega.runtime.picture import Picture, PictureRow, Total

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    from lyra.core.clock import Clock, Timer


_FRAME_S: Final = 0.15
_PAUSES: Final = 5  # a frame is followed by at least so many times what it took: most of the time is the program's
_FRAME_ROWS: Final = 4  # the titles, the line below, one for "more" and the one of the cursor
_WIDE: Final = 100
_HELD_LINES_MAX: Final = 5_000
_STYLES: Final = {
    "working": "green",
    "running": "green",
    "waiting": "cyan",
    "restarting": "bold yellow",
    "failed": "bold red",
    "ended": "dim",
    "idle": "dim",
    "watching": "dim",
}


class Live(Protocol):
    """A view of a run: the `Picture` that it shows, and methods for lines that the program prints meanwhile."""

    picture: Picture

    def write(self, line: str) -> bool:
        """Take a line for stdout; False where the view takes none and the caller has to write it."""

    def warn(self, line: str) -> None: ...

    def start(self) -> None: ...

    def close(self) -> None: ...


def live_view(clock: Clock) -> Live:
    """Return a table where stderr is a terminal that can show one and stdout is not a pipe; lines otherwise."""
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    if not is_terminal or os.environ.get("TERM", "dumb") == "dumb" or _is_pipe(sys.stdout):
        return EventLines(clock)
    from rich.console import Console

    return LiveTable(clock, Console(stderr=True, highlight=False, emoji=False, markup=False), sys.stdout, sys.stderr)


def _is_pipe(stream: TextIO) -> bool:
    """Return whether the stream is a pipe or a socket: its reader, such as `less`, may draw on this very terminal."""
    try:
        kind = os.fstat(stream.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)


class EventLines:
    """One line for each thing that happens."""

    def __init__(self, clock: Clock) -> None:
        self.picture = Picture(self._print_event)
        self._clock = clock
        self._began = clock.monotonic()

    def write(self, line: str) -> bool:  # noqa: ARG002 - as a view has it
        return False

    def warn(self, line: str) -> None:
        click.echo(line, err=True)

    def start(self) -> None:
        """Nothing to prepare: lines are written as events happen."""

    def close(self) -> None:
        sys.stdout.flush()
        self._print_event("total", _total(self.picture.total()))

    def _print_event(self, name: str, sentence: str) -> None:
        with suppress(OSError):  # stderr is closed; the program continues
            note(f"{self._clock.monotonic() - self._began:7.2f} s  {name:<14} {sentence}")


class LiveTable:
    """Draws the busiest processes in a table. Printed lines are held until the next frame, which puts them above it."""

    def __init__(self, clock: Clock, console: Console, out: TextIO, err: TextIO) -> None:
        self.picture = Picture()
        self._clock = clock
        self._console = console
        self._out = out
        self._err = err
        self._takes_out = out.isatty()
        self._began = clock.monotonic()
        self._held: list[tuple[TextIO, str]] = []
        self._widths: list[int] = []  # of the lines on the screen
        self._timer: Timer | None = None
        self._terminal_is_closed = False

    def write(self, line: str) -> bool:
        if self._takes_out:
            self._hold(self._out, line)
        return self._takes_out

    def warn(self, line: str) -> None:
        self._hold(self._err, line)

    def start(self) -> None:
        self._draw()  # which takes longer than others: much is imported
        self._timer = self._clock.call_at(self._clock.monotonic() + _FRAME_S, self._frame)

    def close(self) -> None:
        """Stop drawing; the last frame stays."""
        if self._timer is not None:
            self._timer.cancel()
        self._draw()

    def _hold(self, stream: TextIO, line: str) -> None:
        self._held.append((stream, line))
        if len(self._held) >= _HELD_LINES_MAX:
            self._draw()

    def _frame(self) -> None:
        began = self._clock.monotonic()
        self._draw()
        ended = self._clock.monotonic()
        self._timer = self._clock.call_at(ended + max(_FRAME_S, _PAUSES * (ended - began)), self._frame)

    # ------------------------------------------------------------ the screen

    def _draw(self) -> None:
        if self._terminal_is_closed:
            return
        try:
            from rich.cells import cell_len

            lines = self._lines()
            # Moves the cursor to the first line of the table; a window that became narrower wraps lines into several.
            width = max(1, self._console.width)
            rows = sum(max(1, -(-line_width // width)) for line_width in self._widths)
            text = f"\r\x1b[{rows}A" if rows else "\r"
            if self._held:
                self._write_flushed(self._err, f"{text}\x1b[J")
                self._print_held()
                text = ""
            self._write_flushed(self._err, text + "".join(f"{line}\x1b[K\n" for line in lines) + "\x1b[J")
            self._widths = [cell_len(click.unstyle(line)) for line in lines]
        except OSError:  # The terminal was closed. Drawing stops here; the next printed line raises and ends the run.
            self._terminal_is_closed = True
            self._takes_out = False

    def _print_held(self) -> None:
        held, self._held = self._held, []
        stream = held[0][0]
        lines: list[str] = []
        for line_stream, line in held:
            if line_stream is not stream:
                self._write_flushed(stream, "".join(lines))
                stream, lines = line_stream, []
            lines.append(f"{line}\n")
        self._write_flushed(stream, "".join(lines))

    @staticmethod
    def _write_flushed(stream: TextIO, text: str) -> None:
        stream.write(text)
        stream.flush()

    def _lines(self) -> list[str]:
        """Return the table as it is now, never higher than the screen."""
        from rich.console import Group

        console = self._console
        room = max(1, console.height - _FRAME_ROWS)
        rows, more = self.picture.rows(room)
        with console.capture() as captured:
            console.print(Group(_table(rows, console.width), *self._below(more)), no_wrap=True, overflow="ellipsis")
        return captured.get().splitlines()[: max(1, console.height - 1)]

    def _below(self, more: int) -> list[Text]:
        from rich.text import Text

        seconds = self._clock.monotonic() - self._began
        lines = [Text(f"… and {more:,} more", style="dim")] if more else []
        return [*lines, Text(f"{seconds:.1f} s · {_total(self.picture.total())}", style="bold")]


class _Column(NamedTuple):
    title: str
    cell: Callable[[PictureRow], str]
    columns_min: int = 0  # of the window, for this one to be shown
    justify: Literal["left", "right"] = "left"
    width: int | None = None  # at least
    ratio: int | None = None  # of the room that is left


_COLUMNS: Final = (
    _Column("pid", lambda row: row.pid, 60),
    _Column("process", lambda row: row.name),
    _Column("state", lambda row: row.state, width=len("restarting")),
    _Column("calls", lambda row: str(row.calls or ""), 50, "right"),
    _Column("tokens", lambda row: f"{row.tokens:,}" if row.calls else "", 70, "right"),
    _Column("cost", lambda row: f"${row.cost / 1_000_000:.6f}" if row.calls else "", 0, "right", len("$0.000000")),
    _Column("restarts", lambda row: str(row.restarts or ""), 60, "right"),
    _Column("waits for", lambda row: row.waits_for, 60, ratio=1),
)


def _table(rows: list[PictureRow], width: int) -> RichTable:
    from rich.table import Table as RichTable
    from rich.text import Text

    columns = [column for column in _COLUMNS if width >= column.columns_min]
    view = RichTable(
        box=None, expand=True, padding=(0, 1 if width < _WIDE else 2, 0, 0), pad_edge=False, header_style="bold"
    )
    for column in columns:
        view.add_column(
            column.title,
            no_wrap=True,
            overflow="ellipsis",
            justify=column.justify,
            min_width=column.width,
            ratio=column.ratio,
        )
    for row in rows:
        style = _STYLES.get(row.state, "")
        view.add_row(
            *(
                Text(printable(column.cell(row)), style=style if column.title in ("state", "waits for") else "")
                for column in columns
            )
        )
    return view


def _total(total: Total) -> str:
    parts = [str(total.cost), _render_count(total.calls, "call"), f"{total.tokens:,} tokens"]
    if total.limit is not None:
        of_budget = f"of {total.limit} ({100 * total.spent / total.limit if total.limit else 100:.0f} %)"
        if total.spent == total.cost:
            parts[0] += f" {of_budget}"
        else:  # not everything was spent inside it
            parts.insert(1, f"budget {total.spent} {of_budget}")
    if total.restarts:
        parts.append(_render_count(total.restarts, "restart"))
    if total.ended:
        parts.append(f"{total.ended:,} ended")
    return " · ".join(parts)


def _render_count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
