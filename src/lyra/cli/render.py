"""How results and errors are printed.

`document` writes one JSON document, `table` rows for a person, `report` an error: `error[code]: sentence`,
its place, its hint. A terminal gets colour and wrapping (through rich, imported here and only then) unless
NO_COLOR says otherwise; a pipe gets plain lines, never cut. Text from outside is shown with its control
characters escaped and passwords masked. Decides nothing: what to print is the command's business.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TextIO

import click

from lyra.core.secrets.secret import mask_url
from lyra.errors import CODES, LyraError

_USAGE_EXIT: Final = 2
_PROGRESS_S: Final = 1.0  # before progress is shown
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_STATE_COLOURS: Final = {"ok": "green", "missing": "yellow", "problem": "red"}


def document(data: Any) -> None:
    """One JSON document. ASCII only, so that it is valid in any locale."""
    import json

    click.echo(json.dumps(data, indent=2, allow_nan=False, default=str))


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Columns: wrapped to the terminal for a person, one line a row for a pipe."""
    cells = [[printable(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _rich_table(titles, cells)
    else:
        _print_table(titles, cells)


def _print_table(titles: Sequence[str], rows: list[list[str]]) -> None:
    widths = [max(len(row[column]) for row in [list(titles), *rows]) for column in range(len(titles))]
    for row in [list(titles), *rows]:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        click.echo(line.rstrip())


def _rich_table(titles: Sequence[str], rows: list[list[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    view = Table(box=None, pad_edge=False, header_style="bold")
    for title in titles:
        view.add_column(title, overflow="fold")
    for row in rows:
        view.add_row(*(Text(cell, style=_STATE_COLOURS.get(cell, "")) for cell in row))
    Console(highlight=False, markup=False, emoji=False).print(view)


def moment(time: float) -> str:
    """Return a time of the clock, as people here read it."""
    from datetime import datetime

    return datetime.fromtimestamp(time).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def note(text: str, *, err: bool = True) -> None:
    """Print a sentence beside the result, on stderr; a terminal gets it broken between words."""
    text = printable(text)
    if _is_terminal(sys.stderr if err else sys.stdout):
        import shutil
        import textwrap

        columns = shutil.get_terminal_size().columns
        indent = " " * (len(text) - len(text.lstrip(" ")))
        how: Any = {"subsequent_indent": indent, "break_long_words": False, "break_on_hyphens": False}
        text = "\n".join(textwrap.fill(row, columns, **how) for row in text.split("\n"))
    click.echo(text, err=err)


def colour_state() -> str:
    """Tell whether results are coloured here, and why not."""
    if os.environ.get("NO_COLOR"):
        return "off: NO_COLOR is set"
    if not _is_terminal(sys.stdout):
        return "off: the output is not a terminal"
    if os.environ.get("TERM", "dumb") == "dumb":
        return "off: TERM is dumb or not set"
    return "on"


def _is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and stream.isatty()  # there is none where the program was started with it closed


def wants_colour(stream: TextIO | None) -> bool:
    return _is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "dumb") != "dumb"


@contextmanager
def show_progress(text: str) -> Iterator[Callable[[int], None]]:
    """Give a function that shows on stderr, where that is a terminal, how far something is that takes over a second:
    the number that it is called with, and the text."""
    from lyra.core.clock import SystemClock  # it loads asyncio

    shown, is_terminal = False, _is_terminal(sys.stderr)
    due = SystemClock.monotonic() + _PROGRESS_S

    def show(number: int) -> None:
        nonlocal shown, due
        if is_terminal and (now := SystemClock.monotonic()) >= due:
            shown, due = True, now + _PROGRESS_S / 4
            click.echo(f"\r{number} {printable(text)}\x1b[K", err=True, nl=False)

    try:
        yield show
    finally:
        if shown:
            click.echo("\r\x1b[K", err=True, nl=False)


def printable(text: str) -> str:
    """Control characters escaped: a file name or a key must not write to the terminal on its own."""
    return _CONTROL.sub(lambda match: match.group().encode("unicode_escape").decode("ascii"), text)


def report(error: Exception, *, debug: bool) -> int:
    """Print an error to stderr and return the exit code that its code has."""
    if debug:
        import traceback

        click.echo(mask_url("".join(traceback.format_exception(error))), err=True, nl=False)
    if isinstance(error, LyraError):
        from lyra.core.secrets.redact import redact

        _error(error.code, redact(error.message), place=error.place, hint=error.hint, also=error.fields.get("also", ()))
        return CODES[error.code].exit
    if isinstance(error, click.UsageError):
        # click puts its own "did you mean" into the sentence; ours stands in the hint, as everywhere
        sentence = error.message if getattr(error, "possibilities", None) else error.format_message()
        _error("usage", sentence, hint=_usage_hint(error))
        return _USAGE_EXIT
    if isinstance(error, click.ClickException):
        _error("usage", error.format_message())
        return _USAGE_EXIT
    words = " ".join(str(error).split())
    sentence = f"{type(error).__name__}: {words}" if words else type(error).__name__
    _error(
        "internal", sentence, hint=None if debug else "this is a bug in Lyra; run it again with --debug to see where"
    )
    return CODES["internal"].exit


def _usage_hint(error: click.UsageError) -> str:
    hint = getattr(error, "hint", None)
    near = getattr(error, "possibilities", None)
    if hint:
        return str(hint)
    if near:
        return f"did you mean {' or '.join(sorted(near))}?"
    return f"see {error.ctx.command_path if error.ctx else 'lyra'} --help"


def _error(
    code: str, message: str, *, place: str | None = None, hint: str | None = None, also: Iterable[str] = ()
) -> None:
    head = f"error[{code}]:"
    if wants_colour(sys.stderr):
        head = click.style(head, fg="red", bold=True)
    lines = [f"{head} {_safe(message)}"]
    lines += [f"  at {_safe(place)}"] if place else []
    lines += [f"  hint: {_safe(hint)}"] if hint else []
    lines += [f"  also: {_safe(other)}" for other in also]
    click.echo("\n".join(lines), err=True)


def _safe(text: str) -> str:
    return printable(mask_url(text))
