"""What the demo shows: the table of processes (`history.processes`) as a tree, with a sentence about each Event.

`Board` takes the lines that a worker writes (`team`), and after a kill the journal's own rows, which have the same
shape. A process that a supervisor starts again takes the place of the one
before it. `LiveView` draws the board with rich, `LineView` writes a line for what matters where there is no terminal.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

import click

from lyra.core.budgets.money import Money
from lyra.core.event import Event
from lyra.observe.history.processes import ProcessRecord, ProcessTable

if TYPE_CHECKING:
    from rich.console import Console, Group, RenderableType
    from rich.table import Table
    from rich.text import Text


TAIL_ROWS: Final = 8
_ERLANG: Final = {"restart": "one_for_one", "restart_all": "one_for_all"}


@dataclass(slots=True)
class BoardRow:
    """One process, as far as the demo shows it."""

    record: ProcessRecord
    name: str
    place: tuple[str, ...]  # the names from the root down to it: what a restart keeps
    doing: str = ""
    starts: int = 1  # of processes in this place
    messages: int = 0  # taken from its mailbox
    plan: Mapping[str, Any] | None = None  # of a supervisor


@dataclass(slots=True)
class Board:
    """Everything on the screen."""

    table: ProcessTable = field(default_factory=ProcessTable)
    rows: dict[str, BoardRow] = field(default_factory=dict)  # by pid
    places: dict[tuple[str, ...], BoardRow] = field(default_factory=dict)  # the newest in each
    tail: deque[tuple[int, str, str, str]] = field(default_factory=lambda: deque(maxlen=TAIL_ROWS))
    calls: Counter[str] = field(default_factory=Counter)
    phase: str = "starting"
    banner: str = ""
    last_seq: int = 0
    states: dict[str, str] = field(default_factory=dict)  # told before the row of the process itself is durable

    # ------------------------------------------------------------ folding
    def event(self, event: Mapping[str, Any]) -> str:
        """Take one Event; gives a sentence about it, empty when it is not worth one."""
        seq, pid, kind, data = event["seq"], event["pid"], event["kind"], event["data"]
        self.table.add(Event(seq, 0.0, pid, kind, data))
        if kind == "process.created":
            self._create(pid, data)
        row = self.rows.get(pid)
        if row is None:
            if kind == "process.state_changed":
                self.states[pid] = data["new_state"]
            return ""
        sentence = _SENTENCES[kind](row, data) if kind in _SENTENCES else ""
        if row.plan is not None and row.record.is_live:
            row.doing = f"{row.record.restarts} of {row.plan['max_restarts']} restarts"
        self.last_seq = max(self.last_seq, seq)
        if sentence:
            self.tail.append((seq, kind, row.name, sentence))
        return sentence

    def _create(self, pid: str, data: Mapping[str, Any]) -> None:
        record = self.table.records[pid]
        record.state = self.states.get(pid, "new")
        name, parent = record.name or pid, self.rows.get(record.parent)
        place = (*parent.place, name) if parent is not None else (name,)
        before = self.places.get(place)
        starts = before.starts + 1 if before is not None else 1
        self.rows[pid] = self.places[place] = BoardRow(record, name, place, starts=starts, plan=plan_of(data))

    def call(self, call: Mapping[str, Any]) -> None:
        """Take one line about a call at the service."""
        what = call["what"]
        self.calls[what] += 1
        row = self.rows.get(call["key"].rpartition(":")[0])
        if row is not None and what in _CALLS:
            row.doing = _CALLS[what](call)

    def killed(self) -> None:
        for row in self.rows.values():
            if row.record.is_live:
                row.record.state = "killed"
                row.doing = "" if row.plan is None else row.doing

    def resumed(self) -> None:
        """Live programs run again from their beginning, answered by the journal."""
        for row in self.rows.values():
            if row.record.state == "killed":
                row.record.state = "replaying"
                row.doing = f"answers kept: {row.record.answers}" if row.plan is None else row.doing

    # ------------------------------------------------------------ reading
    def tree(self) -> Iterator[tuple[str, BoardRow]]:
        """Every process that is shown, parents first, each with the branch that leads to it."""
        yield from self._below((), "")

    def _below(self, place: tuple[str, ...], indent: str) -> Iterator[tuple[str, BoardRow]]:
        children = [row for child_place, row in self.places.items() if child_place[:-1] == place]
        for row in children:
            last = row is children[-1]
            branch = "" if not place else "└ " if last else "├ "
            yield indent + branch, row
            yield from self._below(row.place, indent + ("" if not place else "  " if last else "│ "))


def plan_of(created: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return what a supervisor was told, from the arguments it was started with; None for other programs."""
    args = created.get("args")
    first = args[0] if isinstance(args, list) and args else None
    return first if isinstance(first, dict) and "max_restarts" in first else None


def strategy_of(plan: Mapping[str, Any]) -> str:
    """In Erlang's words, which more people know than the journal's."""
    return _ERLANG.get(plan["strategy"], str(plan["strategy"]))


# ---------------------------------------------------------------- one kind of Event each
def _created(row: BoardRow, data: Mapping[str, Any]) -> str:
    if row.plan is not None:
        return f"{strategy_of(row.plan)}, {row.plan['max_restarts']} restarts in {row.plan['window_s']:g} s"
    limit = f", budget {Money(row.record.budget_micro_usd)}" if row.record.budget_micro_usd is not None else ""
    again = f", start {row.starts}" if row.starts > 1 else ""
    return f"program {data['program'].rpartition(':')[2]}{limit}{again}"


def _terminated(row: BoardRow, data: Mapping[str, Any]) -> str:
    error, value = data.get("error"), data.get("value")
    more = "" if error is None and value is None else f": {error.get('message') if error else _short(value)}"
    row.doing = f"{data.get('reason')}{more}"
    return row.doing


def _started(row: BoardRow, data: Mapping[str, Any]) -> str:
    row.doing = _EFFECTS.get(data["name"], row.doing)
    return str(data["name"])


def _retried(row: BoardRow, data: Mapping[str, Any]) -> str:
    status = str(data["error"]).partition(" ")[0]
    reason = status if status.isdigit() else "silent"
    row.doing = f"{reason}: wait {data['delay_s']:.1f} s"
    return ""


def _finished(row: BoardRow, data: Mapping[str, Any]) -> str:
    form = data.get("form", "do")
    if form != "do":  # links, readings and the like are in the journal too, and not worth a line
        return f"end of {data['name']}" if form == "wait" else ""
    error = data.get("error")
    if error:
        row.doing = "out of budget" if error.get("code") == "budget_exceeded" else str(error.get("message"))
        return row.doing
    usd = (data.get("usage") or {}).get("usd", 0)
    return f"value {_short(data.get('value'))}" + (f", {Money(usd)}" if usd else "")


def _received(row: BoardRow, _data: Mapping[str, Any]) -> str:
    row.messages += 1
    row.doing = f"messages: {row.messages}"
    return ""


def _sent(_row: BoardRow, data: Mapping[str, Any]) -> str:
    if data.get("form"):  # what supervisors tell each other
        return ""
    return f"{data.get('sender', '')}: {_short(data.get('message'))}"


def _asked(row: BoardRow, data: Mapping[str, Any]) -> str:
    row.doing = f"asks: {data['question']}"
    return str(data["question"])


def _answered(row: BoardRow, data: Mapping[str, Any]) -> str:
    row.doing = "yes" if (data.get("response") or {}).get("approved") else "no"
    return f"the answer is {row.doing}"


def _restarting(_row: BoardRow, data: Mapping[str, Any]) -> str:
    return f"{data['id']} crashed" if data["reason"] == "error" else f"{data['id']} ended: {data['reason']}"


def _gave_up(_row: BoardRow, data: Mapping[str, Any]) -> str:
    return f"{data['id']} crashed once too often"


_SENTENCES: Final[dict[str, Callable[[BoardRow, Mapping[str, Any]], str]]] = {
    "process.created": _created,
    "process.terminated": _terminated,
    "effect.started": _started,
    "effect.retried": _retried,
    "effect.finished": _finished,
    "message.sent": _sent,
    "message.received": _received,
    "interrupt.created": _asked,
    "interrupt.resolved": _answered,
    "child.restarting": _restarting,
    "supervisor.gave_up": _gave_up,
}

_EFFECTS: Final = {
    "load_rules": "reads the rules",
    "log_in": "logs in",
    "stay": "in session",
    "open_index": "keeps the index",
}

_CALLS: Final[dict[str, Callable[[Mapping[str, Any]], str]]] = {
    "calling": lambda call: f"page {call['page']}" + (f", try {call['attempt']}" if call["attempt"] > 1 else ""),
    "held": lambda _: "in flight",
    "silent": lambda _: "no answer yet",
    "known": lambda _: "same key: known",
    "publishing": lambda _: "publishes",
}


def _short(value: Any) -> str:
    """A value in a few words."""
    if isinstance(value, dict):
        return ", ".join(f"{key} {_short(item)}" for key, item in value.items())
    if value is None or isinstance(value, bool):
        return {None: "nothing", True: "yes", False: "no"}[value]
    return str(value)


# ---------------------------------------------------------------- view


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
                row.record.pid,
                Text(branch, style="dim") + Text(row.name, style="bold" if row.plan is not None else ""),
                Text(row.record.state, style=_STATE_STYLES.get(row.record.state, "")),
                Text(row.doing),
                Text(str(row.starts), style="yellow" if row.starts > 1 else "dim"),
                str(row.record.retries or ""),
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
    limit = row.record.budget_micro_usd
    if limit is None:
        return ""
    below = (other.record for other in board.rows.values() if other.place[: len(row.place)] == row.place)
    return f"${sum(record.micro_usd for record in below) / 1_000_000:.4f} / {Money(limit)}"
