"""What a run prints: the program's lines while it runs, or all of them in one JSON document at its end."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from lyra.cli.vega.files import error_data

if TYPE_CHECKING:
    import asyncio

    from lyra.cli.vega.call_records import CallRecords
    from lyra.cli.vega.live import Live
    from lyra.errors import VegaError


class ProgramOutput:
    """Writes the program's lines to stdout, or collects them for the JSON document.

    Lines are written as they come and flushed when the loop gets its turn: a pipe sees them while the program waits,
    and a thousand lines do not cost a thousand system calls.
    """

    def __init__(self, *, collect: bool) -> None:
        self.lines: list[str] | None = [] if collect else None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.live: Live | None = None
        self._failed: OSError | None = None
        self._flush_is_scheduled = False

    def write(self, line: str) -> None:
        if self.lines is not None:
            self.lines.append(line)
            return
        if self._failed is not None:
            raise self._failed
        if self.live is not None and self.live.write(line):
            return
        try:
            sys.stdout.write(line + "\n")
        except OSError as error:
            self._failed = error
            raise
        if self.loop is not None and not self._flush_is_scheduled:
            self._flush_is_scheduled = True
            self.loop.call_soon(self._flush)

    def warn(self, line: str) -> None:
        self._flush()
        if self.live is not None:
            self.live.warn(line)
        else:
            click.echo(line, err=True)

    def watch(self) -> None:
        """Show the run in a live view from now on; printed lines go through it."""
        from lyra.cli.vega.live import live_view
        from lyra.core.clock import SystemClock

        self.live = live_view(SystemClock())

    def end_watch(self) -> None:
        live, self.live = self.live, None
        if live is not None:
            self._flush()
            live.close()

    def _flush(self) -> None:
        self._flush_is_scheduled = False
        try:
            sys.stdout.flush()
        except OSError as error:
            self._failed = error

    def check(self) -> None:
        """Raise the error of the first write to a closed stdout, whatever the program made of it."""
        if self._failed is not None:
            raise self._failed

    def close(self) -> None:
        """Flush, so that everything printed stands before messages about the run."""
        if self.lines is None:
            sys.stdout.flush()


def print_result(
    file: str,
    output: ProgramOutput,
    calls: CallRecords,
    value: Any,
    failed: VegaError | None,
    run_id: str | None = None,
) -> None:
    """The document of `--json`: output, value, error, calls and cost."""
    from lyra.cli.render import document

    document(
        {
            **({} if run_id is None else {"run": run_id}),
            "file": file,
            "ok": failed is None,
            "output": output.lines,
            "value": value,
            "error": None if failed is None else error_data(failed),
            "calls": calls.count,
            "cost_usd": round(calls.cost_usd, 6),
            "speculative_calls": calls.speculative,
            "speculative_usd": round(calls.speculative_usd, 6),
        }
    )
