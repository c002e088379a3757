"""Links, monitors and exit signals: how one process learns that another has ended.

    link      two-way. When one ends abnormally, the other is ended too (reason `linked`, and an error that says who
              died of what), unless it traps exits: then it gets an `ExitSignal` message instead, also for normal ends.
    monitor   one-way and never deadly: the watcher gets a `Down` message, once.

As in Erlang: linking or monitoring the dead is answered at once (reason `noproc`), links are made once however
often asked for, and ending one end removes the link. All of it is journaled; messages to a process that traps or
watches are ordinary rows in its mailbox, so a restart neither loses nor repeats one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core import codec
from lyra.core.naming import SUPERVISE
from lyra.errors import ProcessExit
from lyra.kernel.journal import rows
from lyra.kernel.journal.rows import text_of
from lyra.kernel.process.process import PLAIN_ENDS, Exit, Process

if TYPE_CHECKING:
    from lyra.kernel.base.core import Core
    from lyra.kernel.process.mailbox import Mailboxes


NO_PROCESS: Final = "noproc"
LINKED: Final = "linked"


class ExitSignal(msgspec.Struct, frozen=True):
    """A linked process ended, and this one traps exits."""

    pid: str
    reason: str
    message: str = ""  # the text of its error, if it had one


class Down(msgspec.Struct, frozen=True):
    """A monitored process ended."""

    ref: str
    pid: str
    reason: str
    message: str = ""


class Ready(msgspec.Struct, frozen=True):
    """A child has called `ctx.ready()`."""

    pid: str


class Started(msgspec.Struct, frozen=True):
    """A child on another shard has begun, or was refused."""

    pid: str
    error: dict[str, Any] | None = None


_SIGNALS: Final[dict[str, type[msgspec.Struct]]] = {
    "exit": ExitSignal,
    "down": Down,
    "ready": Ready,
    "started": Started,
}
_FORMS: Final[dict[type[msgspec.Struct], str]] = {signal: form for form, signal in _SIGNALS.items()}


def register_signal(form: str, signal: type[msgspec.Struct]) -> None:
    """One more kind of message that only the kernel's own parts send; `form` marks its rows."""
    _SIGNALS[form] = signal
    _FORMS[signal] = form


def form_of(message: Any) -> str:
    """Return what a message row says about its message: empty for what users send."""
    return _FORMS.get(type(message), "")


def read_signal(form: str, data: bytes) -> Any:
    """Return a message as its receiver sees it."""
    signal = _SIGNALS.get(form)
    return codec.decode(data) if signal is None else codec.decoder_for(signal)(data)


class Links:
    def __init__(self, core: Core[Process], mailboxes: Mailboxes) -> None:
        self._core = core
        self._mailboxes = mailboxes
        self._links: dict[str, dict[str, None]] = {}
        self._monitors: dict[str, tuple[str, str]] = {}  # ref → (watcher, watched)
        self._watched: dict[str, dict[str, None]] = {}  # watched → refs
        self._watching: dict[str, dict[str, None]] = {}  # watcher → refs

    # ------------------------------------------------------------------ making and unmaking

    def link(self, left: Process, right: Process) -> None:
        """Tie two ends together; a dead end is a signal to the other at once."""
        if left is right or right.pid in self._links.get(left.pid, ()):
            return
        if right.exit is not None:
            self.signal(left, ExitSignal(right.pid, NO_PROCESS))
            return
        self._core.record(left.pid, "process.linked", rows.Linked(right.pid))
        self.restore_link(left.pid, right.pid)

    def unlink(self, left: Process, right: Process) -> None:
        if right.pid in self._links.get(left.pid, ()):
            self._core.record(left.pid, "process.unlinked", rows.Linked(right.pid))
            self._cut(left.pid, right.pid)

    @property
    def has_any(self) -> bool:
        return bool(self._links or self._monitors)

    def list_linked(self, pid: str) -> list[str]:
        return list(self._links.get(pid, ()))

    def monitor(self, watcher: Process, watched: Process, ref: str) -> None:
        if watched.exit is not None:
            self._mailboxes.deliver(watcher, Down(ref, watched.pid, NO_PROCESS))
            return
        self._core.record(watcher.pid, "process.monitored", rows.Monitored(watched.pid, ref))
        self.restore_monitor(watcher.pid, watched.pid, ref)

    def demonitor(self, watcher: Process, ref: str) -> bool:
        if self._monitors.get(ref, ("", ""))[0] != watcher.pid:
            return False
        self._core.record(watcher.pid, "process.demonitored", rows.Monitored("", ref))
        self._forget(ref)
        return True

    def watches(self, watcher: str, watched: str) -> bool:
        return any(self._monitors[ref][0] == watcher for ref in self._watched.get(watched, ()))

    def trap(self, process: Process, on: bool) -> None:
        if process.traps != on:
            self._core.record(process.pid, "process.trapping", rows.Trapping(on))
            process.traps = on

    def restore_link(self, left: str, right: str) -> None:
        self._links.setdefault(left, {})[right] = None
        self._links.setdefault(right, {})[left] = None

    def restore_monitor(self, watcher: str, watched: str, ref: str) -> None:
        self._monitors[ref] = (watcher, watched)
        self._watched.setdefault(watched, {})[ref] = None
        self._watching.setdefault(watcher, {})[ref] = None

    # ------------------------------------------------------------------ the end of one

    def notify_end(self, process: Process, how: Exit) -> None:
        """Tell every process tied to it, in the order they were tied."""
        text = text_of(how.error) if how.error is not None else ""
        is_told = bool(text) or how.reason not in PLAIN_ENDS  # words of the process, or of the one that ended it
        for pid in self.list_linked(process.pid):
            self._cut(process.pid, pid)
            other = self._core.processes.get(pid)
            if other is not None and other.exit is None:
                # A supervisor hands nothing of a child that ended to the next one.
                if is_told and not (other is process.parent and other.program == SUPERVISE):
                    self._core.taint.pass_on(process.pid, pid, "the end of")
                self.signal(other, ExitSignal(process.pid, how.reason, text), how.error)
        for ref in list(self._watched.get(process.pid, ())):
            watcher = self._core.processes.get(self._monitors[ref][0])
            self._forget(ref)
            if watcher is not None and watcher.exit is None:
                if is_told:
                    self._core.taint.pass_on(process.pid, watcher.pid, "the end of")
                self._mailboxes.deliver(watcher, Down(ref, process.pid, how.reason, text))
        for ref in list(self._watching.get(process.pid, ())):
            self._forget(ref)

    def signal(self, process: Process, signal: ExitSignal, error: BaseException | None = None) -> None:
        """Tell a linked process of an end: a message where it traps exits, its own end elsewhere."""
        if process.traps:
            self._mailboxes.deliver(process, signal)
        elif signal.reason != "normal":
            self._core.stop_process(process, LINKED, cause=_make_linked_exit(process.pid, signal, error))

    def _cut(self, left: str, right: str) -> None:
        _drop(self._links, left, right)
        _drop(self._links, right, left)

    def _forget(self, ref: str) -> None:
        watcher, watched = self._monitors.pop(ref)
        _drop(self._watched, watched, ref)
        _drop(self._watching, watcher, ref)


def _make_linked_exit(pid: str, signal: ExitSignal, error: BaseException | None) -> ProcessExit:
    """Return why a link ended a process: in a chain of links the first process that ended, so that the text does not
    grow with the chain. The text names no pids, since they differ between a plain and a durable run; the fields have
    them."""
    first = {"origin": signal.pid, "origin_reason": signal.reason, "cause": signal.message}
    if signal.reason == LINKED and isinstance(error, ProcessExit):
        first = {key: str(error.fields.get(key, "")) for key in first}
    told = f": {first['cause']}" if first["cause"] else ""
    return ProcessExit(
        f"a linked process ended: {first['origin_reason']}{told}",
        pid=pid,
        reason=LINKED,
        linked=signal.pid,
        **first,
    )


def _drop(table: dict[str, dict[str, None]], key: str, item: str) -> None:
    items = table.get(key)
    if items is not None:
        items.pop(item, None)
        if not items:
            del table[key]
