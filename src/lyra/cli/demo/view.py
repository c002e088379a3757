"""How the demo is shown: the `Board` drawn as a live tree, told in plain lines, or not at all.

`LiveView` draws it with rich, `LineView` writes a line for what matters where there is no terminal, `QuietView` says
nothing. Decides nothing; what there is to show is `board`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

import click

from lyra.cli.demo.board import TAIL_ROWS, Board, BoardRow
from lyra.core.budgets.money import Money

if TYPE_CHECKING:
    from rich.console import Console, Group, RenderableType
    from rich.table import Table
    from rich.text import Text


class View(Protocol):
    def draw(self, board: Board) -> None: ...

    def say(self, sentence: str, *, loud: bool = False) -> None: ...

    def told(self, board: Board, event: Mapping[str, Any], sentence: str) -> None: ...

    def close(self, board: Board) -> None: ...


class QuietView:
    """For --json: nothing but the document at the end."""

    def draw(self, board: Board) -> None:
        """Nothing."""

    def say(self, sentence: str, *, loud: bool = False) -> None:
        """Nothing."""

    def told(self, board: Board, event: Mapping[str, Any], sentence: str) -> None:
        """Nothing."""

    def close(self, board: Board) -> None:
        """Nothing."""


class LineView:
    """Where there is no terminal: one line for each fact that is in the journal."""

    def __init__(self, elapsed: Callable[[], float]) -> None:
        self._elapsed = elapsed

    def draw(self, board: Board) -> None:
        """Lines are written as things happen."""

    def say(self, sentence: str, *, loud: bool = False) -> None:
        click.echo(f"{self._elapsed():6.2f} s  {'== ' if loud else ''}{sentence}")

    def told(self, board: Board, event: Mapping[str, Any], sentence: str) -> None:
        if sentence:
            name = board.rows[event["pid"]].name
            self.say(f"{event['seq'] or '':>4}  {event['kind']:<20} {name:<10} {sentence}")

    def close(self, board: Board) -> None:
        """Nothing is held back."""


_STATE_STYLES: Final = {
    "running": "green",
    "ready": "green",
    "waiting": "cyan",
    "terminated": "dim",
    "killed": "bold red",
    "replaying": "yellow",
}
_KIND_STYLES: Final = {
    "effect": "green",
    "process": "blue",
    "message": "magenta",
    "interrupt": "yellow",
    "child": "bold yellow",
    "supervisor": "bold red",
}


class LiveView:
    """A table that moves. Fits 80 columns and 24 lines; uses more where there is more."""

    def __init__(self, console: Console, elapsed: Callable[[], float]) -> None:
        self._console = console
        self._elapsed = elapsed
        self.go_on()

    def draw(self, board: Board) -> None:
        self._live.update(self._picture(board), refresh=True)

    def say(self, sentence: str, *, loud: bool = False) -> None:
        """The board's phase and banner say it."""

    def told(self, board: Board, event: Mapping[str, Any], sentence: str) -> None:
        """The board shows it."""

    def close(self, board: Board) -> None:
        self.draw(board)
        self._live.stop()

    def pause(self, board: Board) -> None:
        """Leave the terminal to a question."""
        self.close(board)

    def go_on(self) -> None:
        """Draw from here on: what is above belongs to the past."""
        from rich.live import Live

        self._live = Live(console=self._console, auto_refresh=False, vertical_overflow="crop")
        self._live.start()

    def _picture(self, board: Board) -> Group:
        from rich.console import Group
        from rich.rule import Rule

        parts: list[RenderableType] = [
            Rule(f"lyra demo · {board.phase} · {self._elapsed():.1f} s", style="dim"),
            self._processes(board),
            self._banner(board),
            self._tail(board),
        ]
        return Group(*parts)

    def _processes(self, board: Board) -> Table:
        from rich.table import Table
        from rich.text import Text

        view = Table(box=None, expand=True, padding=(0, 1, 0, 0), header_style="bold")
        view.add_column("pid", no_wrap=True, width=4)
        view.add_column("process", no_wrap=True, width=14)
        view.add_column("state", no_wrap=True, width=10)
        view.add_column("doing", no_wrap=True, ratio=1, overflow="ellipsis")
        view.add_column("starts", no_wrap=True, justify="right", width=6)
        view.add_column("retries", no_wrap=True, justify="right", width=7)
        view.add_column("spent / limit", no_wrap=True, justify="right", width=15)
        for branch, row in board.tree():
            view.add_row(
                row.pid,
                Text(branch, style="dim") + Text(row.name, style="bold" if row.plan is not None else ""),
                Text(row.state, style=_STATE_STYLES.get(row.state, "")),
                Text(row.doing),
                Text(str(row.starts), style="yellow" if row.starts > 1 else "dim"),
                str(row.retries or ""),
                _spent(row, board),
            )
        return view

    def _banner(self, board: Board) -> Text:
        from rich.text import Text

        if board.banner:
            return Text(f" {board.banner} ".center(self._console.width), style="bold white on red", no_wrap=True)
        calls = board.calls
        return Text(
            f"service: {calls['calling']} calls, {calls['429']} × 429, {calls['503']} × 503, "
            f"{calls['silent']} without answer",
            style="dim",
            no_wrap=True,
        )

    def _tail(self, board: Board) -> Table:
        from rich.table import Table
        from rich.text import Text

        view = Table(box=None, expand=True, padding=(0, 1, 0, 0), header_style="bold")
        view.add_column("seq", no_wrap=True, justify="right", width=5)
        view.add_column("journal", no_wrap=True, width=20)
        view.add_column("process", no_wrap=True, width=10)
        view.add_column("", no_wrap=True, ratio=1, overflow="ellipsis")
        fits = max(3, min(TAIL_ROWS, self._console.height - len(board.places) - 6))
        for seq, kind, name, sentence in list(board.tail)[-fits:]:
            style = _KIND_STYLES.get(kind.partition(".")[0], "")
            view.add_row(Text(str(seq or ""), style="dim"), Text(kind, style=style), name, Text(sentence, style="dim"))
        return view


def _spent(row: BoardRow, board: Board) -> str:
    """A parent's budget holds its children's spending."""
    if row.limit is None:
        return ""
    spent = Money(sum(other.spent for other in board.rows.values() if other.place[: len(row.place)] == row.place))
    return f"${spent / 1_000_000:.4f} / {Money(row.limit)}"
