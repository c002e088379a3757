"""What the demo shows: one fold over Events, drawn as a live table or told in plain lines.

`Board` keeps what is known of each process from the lines a worker writes (`demo_team`), and after a kill
from the journal's own rows, which have the same shape. `LiveView` draws it with rich, `LineView` writes a
line for what matters where there is no terminal, `QuietView` says nothing. Decides nothing.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

import click

from lyra.core.money import Money

if TYPE_CHECKING:
    from rich.console import Console, Group, RenderableType
    from rich.table import Table
    from rich.text import Text

__all__ = ["Board", "LineView", "LiveView", "QuietView", "View"]

_TAIL_ROWS: Final = 8


@dataclass(slots=True)
class Row:
    """One process, as far as the demo shows it."""

    pid: str
    name: str
    state: str = "new"
    doing: str = ""
    retries: int = 0
    answers: int = 0  # finished effects in the journal
    messages: int = 0  # taken from its mailbox
    spent: int = 0
    limit: int | None = None


@dataclass(slots=True)
class Board:
    """Everything on the screen."""

    rows: dict[str, Row] = field(default_factory=dict)
    tail: deque[tuple[int, str, str, str]] = field(default_factory=lambda: deque(maxlen=_TAIL_ROWS))
    calls: Counter[str] = field(default_factory=Counter)
    phase: str = "starting"
    banner: str = ""
    last_seq: int = 0
    states: dict[str, str] = field(default_factory=dict)  # told before the row of the process itself is durable

    # ------------------------------------------------------------ folding
    def event(self, event: Mapping[str, Any]) -> str:
        """Take one Event; gives a sentence about it, empty when it is not worth one."""
        seq, pid, kind, data = event["seq"], event["pid"], event["kind"], event["data"]
        if kind == "process.created":
            limits = (data.get("budget") or {}).get("limits", {})
            state = self.states.get(pid, "new")
            self.rows[pid] = Row(pid, data.get("name") or pid, state, limit=limits.get("usd"))
        row = self.rows.get(pid)
        if row is None:
            if kind == "process.state_changed":
                self.states[pid] = data["new_state"]
            return ""
        told = _FOLDS[kind](row, data) if kind in _FOLDS else ""
        if seq:
            self.last_seq = max(self.last_seq, seq)
            self.tail.append((seq, kind, row.name, told))
        return told

    def call(self, call: Mapping[str, Any]) -> None:
        """Take one line about a call at the service."""
        what = call["what"]
        self.calls[what] += 1
        row = self.rows.get(call["key"].rpartition(":")[0])
        if row is not None and what in _CALLS:
            row.doing = _CALLS[what](call)

    def killed(self) -> None:
        for row in self.rows.values():
            if row.state != "terminated":
                row.state, row.doing = "killed", ""

    def resumed(self) -> None:
        """Live programs run again from their beginning, answered by the journal."""
        for row in self.rows.values():
            if row.state == "killed":
                row.state, row.doing = "replaying", f"{row.answers} answers in journal"

    @property
    def spent(self) -> Money:
        return Money(sum(row.spent for row in self.rows.values()))


def _created(row: Row, data: Mapping[str, Any]) -> str:
    limit = f", budget {Money(row.limit)}" if row.limit is not None else ""
    return f"program {data['program'].rpartition(':')[2]}{limit}"


def _state(row: Row, data: Mapping[str, Any]) -> str:
    row.state = data["new_state"]
    return ""


def _terminated(row: Row, data: Mapping[str, Any]) -> str:
    row.state = "terminated"
    row.doing = f"{data.get('reason')}: {_short(data.get('value'))}"
    return row.doing


def _started(row: Row, data: Mapping[str, Any]) -> str:
    row.doing = row.doing or str(data["name"])
    return str(data["name"])


def _retried(row: Row, data: Mapping[str, Any]) -> str:
    row.retries += 1
    status = str(data["error"]).partition(" ")[0]
    reason = status if status.isdigit() else "no answer"
    row.doing = f"{reason}; again in {data['delay_s']:.1f} s"
    return ""


def _finished(row: Row, data: Mapping[str, Any]) -> str:
    if data.get("form", "do") != "do":
        return f"end of {data['name']}"
    error = data.get("error")
    if error:
        row.doing = "out of budget" if error.get("code") == "budget_exceeded" else str(error.get("message"))
        return row.doing
    row.answers += 1
    usd = (data.get("usage") or {}).get("usd", 0)
    row.spent += usd
    return f"value {_short(data.get('value'))}" + (f", {Money(usd)}" if usd else "")


def _received(row: Row, _data: Mapping[str, Any]) -> str:
    row.messages += 1
    row.doing = f"reports in: {row.messages}"
    return ""


def _sent(_row: Row, data: Mapping[str, Any]) -> str:
    return f"{data.get('sender', '')}: {_short(data.get('message'))}"


def _asked(row: Row, data: Mapping[str, Any]) -> str:
    row.doing = f"asks: {data['question']}"
    return str(data["question"])


def _answered(row: Row, data: Mapping[str, Any]) -> str:
    row.doing = "yes" if (data.get("response") or {}).get("approved") else "no"
    return f"the answer is {row.doing}"


_FOLDS: Final[dict[str, Callable[[Row, Mapping[str, Any]], str]]] = {
    "process.created": _created,
    "process.state_changed": _state,
    "process.terminated": _terminated,
    "effect.started": _started,
    "effect.retried": _retried,
    "effect.finished": _finished,
    "message.sent": _sent,
    "message.received": _received,
    "interrupt.created": _asked,
    "interrupt.resolved": _answered,
}

_CALLS: Final[dict[str, Callable[[Mapping[str, Any]], str]]] = {
    "calling": lambda call: f"page {call['page']}" + (f", try {call['attempt']}" if call["attempt"] > 1 else ""),
    "held": lambda _: "in flight",
    "silent": lambda _: "no answer yet",
    "known": lambda _: "same key: the service knew it",
    "publishing": lambda _: "publishes the report",
}


def _short(value: Any) -> str:
    """A value in a few words."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_short(item)}" for key, item in value.items())
    if value is None or isinstance(value, bool):
        return {None: "nothing", True: "yes", False: "no"}[value]
    return str(value)


# ---------------------------------------------------------------- views
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
        if sentence and event["seq"]:
            name = board.rows[event["pid"]].name
            self.say(f"{event['seq']:>4}  {event['kind']:<20} {name:<10} {sentence}")

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
_KIND_STYLES: Final = {"effect": "green", "process": "blue", "message": "magenta", "interrupt": "yellow"}


class LiveView:
    """A table that moves. Fits 80 columns and 24 lines; uses more where there is more."""

    def __init__(self, console: Console, elapsed: Callable[[], float]) -> None:
        from rich.live import Live

        self._console = console
        self._elapsed = elapsed
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="crop")
        self._live.start()

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
        view.add_column("pid", no_wrap=True, width=5)
        view.add_column("name", no_wrap=True, width=10)
        view.add_column("state", no_wrap=True, width=10)
        view.add_column("doing", no_wrap=True, ratio=1, overflow="ellipsis")
        view.add_column("retries", no_wrap=True, justify="right", width=7)
        view.add_column("spent / limit", no_wrap=True, justify="right", width=18)
        for row in board.rows.values():
            view.add_row(
                row.pid,
                row.name,
                Text(row.state, style=_STATE_STYLES.get(row.state, "")),
                Text(row.doing),
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
        fits = max(3, min(_TAIL_ROWS, self._console.height - len(board.rows) - 6))
        for seq, kind, name, sentence in list(board.tail)[-fits:]:
            style = _KIND_STYLES.get(kind.partition(".")[0], "")
            view.add_row(Text(str(seq), style="dim"), Text(kind, style=style), name, Text(sentence, style="dim"))
        return view


def _spent(row: Row, board: Board) -> str:
    """A parent's budget holds its children's spending."""
    if row.limit is None:
        return ""
    spent = board.spent if row.pid == "lead" else Money(row.spent)
    return f"{spent} / {Money(row.limit)}"
