"""Taint: which processes have read text from outside, and so may be following a stranger's instructions.

Owns one mark a process, which is durable and never taken off while the process is known. What marks a process first is
the agents' affair (a tool that reads a file, a page, a command's output). From there the kernel carries the mark
wherever text can go: with a message or a signal to its receiver, with a spawn to the child, with a child's end to the
process that waited for it, with a memory or a value of a blackboard to the process that reads it, over the bus and
through a service to the process that handles it, back with the answer, with a question to the process that reads it,
and with an Event to the process that listens. Never decides anything: permission rules do, which ask `is_tainted(pid)`.

A supervisor hands nothing of one child to the next: a command to start a child marks that child and not the supervisor,
and the end of a child marks the supervisor only where it ends with that child's words.

An entry of a worker and a pipeline have a pid, too, and their mark represents the text that is kept under it: ids, an
envelope, a reason. A process that reads such text takes the mark from there.

A mark may say that all its text is `own`: of files of the user's own project, which the agents decide. Own text goes
the same ways; text from anywhere else makes the mark a full one, and nothing makes it an own one again.

A mark is written before the row that passes the text on, so that no crash can separate the two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final

from lyra.core.naming import SUPERVISE
from lyra.errors import ConfigError
from lyra.kernel.base.acting import act_as, acting
from lyra.kernel.base.subsystem import Subsystem
from lyra.kernel.process.process import PLAIN_ENDS, TRANSITIONS, Process

if TYPE_CHECKING:
    from lyra.core.event import Event
    from lyra.kernel.base.core import Core


_BY_CHARS_MAX: Final = 200  # of the origin of the text
_OWN_WORDS: Final = PLAIN_ENDS | TRANSITIONS.keys()  # of the kernel: a process that makes it say one tells nothing


class TaintState:
    """What survives: pid → where the text came from that marked it first; `own` are those with own text alone."""

    NAME: ClassVar[str] = "labels"
    KINDS: ClassVar[frozenset[str]] = frozenset({"process.tainted", "process.unlabelled"})

    def __init__(self) -> None:
        self.pids: dict[str, str] = {}
        self.own: set[str] = set()

    def apply(self, kind: str, pid: str, time: float, data: dict[str, Any]) -> None:  # noqa: ARG002 (one signature)
        if kind == "process.tainted":
            self.pids[pid] = str(data["by"])
            (self.own.add if data.get("own") else self.own.discard)(pid)
        else:
            del self.pids[pid]
            self.own.discard(pid)

    def dump(self) -> Any:
        return {pid: {"by": by, "own": True} if pid in self.own else by for pid, by in self.pids.items()}

    def load(self, data: Any) -> None:
        rows = {str(pid): by if isinstance(by, dict) else {"by": by} for pid, by in data.items()}
        self.pids = {pid: str(row["by"]) for pid, row in rows.items()}
        self.own = {pid for pid, row in rows.items() if row.get("own")}


class Taint(Subsystem):
    """`kernel.taint`."""

    def __init__(self, core: Core[Process]) -> None:
        self._core = core
        self.state = TaintState()
        core.taint = self

    def process_started(self, parent: Process, process: Process) -> None:
        if self.state.pids:
            self.pass_on(parent.pid, process.pid, "its parent")

    def forgotten(self, process: Process) -> None:
        if process.pid in self.state.pids:
            parent = process.parent
            if parent is not None and parent.exit is None and parent.program != SUPERVISE:  # it may still ask
                self.pass_on(process.pid, parent.pid, "what came of")
            self.forget(process.pid)

    def is_tainted(self, pid: str) -> bool:
        return pid in self.state.pids

    def is_from_outside(self, pid: str) -> bool:
        """Return whether a process has text that is not of the user's own project."""
        return pid in self.state.pids and pid not in self.state.own

    def mark(self, pid: str, by: str, *, own: bool = False) -> None:
        """Mark a process that has text from outside; `by` is the origin. `own`: the text is of the user's own project.
        A second mark changes nothing, unless it is the first that is not of own text."""
        if not isinstance(by, str):
            raise ConfigError(f"an origin is text, not {by!r}", key="by")
        if pid not in self.state.pids or (pid in self.state.own and not own):
            data = {"by": by[:_BY_CHARS_MAX], "own": True} if own else {"by": by[:_BY_CHARS_MAX]}
            self._core.fact(self.state, pid, "process.tainted", data)
            process = dict.get(self._core.processes, pid)
            if process is not None and process.exit is None:  # its tasks and threads carry the mark, too
                act_as(process) if process.stepping else process.context.run(act_as, process)

    def mark_new(self, process: Process, by: str) -> None:
        """Mark a process that is not in the table yet."""
        self.mark(process.pid, by)
        process.context.run(act_as, process)

    def pass_on(self, giver: str, taker: str, how: str) -> None:
        """Copy the mark when text of the first process reaches the second."""
        if giver in self.state.pids:
            self.mark(taker, f"{how} {giver}", own=giver in self.state.own)

    def pass_on_from_here(self, taker: str, how: str) -> None:
        """Copy the mark of the process that runs here, if one does, to one that gets text from it."""
        if self.state.pids and (pid := self._get_acting_pid()):
            self.pass_on(pid, taker, how)

    def pass_on_to_here(self, giver: str, how: str) -> None:
        """Copy a mark to the process that runs here, if one does, which gets text of another."""
        if giver in self.state.pids and (pid := self._get_acting_pid()):
            self.pass_on(giver, pid, how)

    @property
    def is_here(self) -> bool:
        """Whether the process that runs here, if one does, has a mark."""
        return bool(self.state.pids) and self._get_acting_pid() in self.state.pids

    def is_marked_here(self, pid: str) -> bool:
        """Return whether this process runs here and has a mark."""
        return pid in self.state.pids and pid == self._get_acting_pid()

    def mark_here(self, by: str) -> None:
        """Mark the process that runs here, if one does."""
        if pid := self._get_acting_pid():
            self.mark(pid, by)

    def listener(self, function: Callable[[Event], Any]) -> Callable[[Event], Any]:
        """Return the function as a listener of the process that runs here, if one does: an Event with text of a marked
        process marks it."""
        if not self._get_acting_pid():
            return function

        def mark_and_call(event: Event) -> Any:
            if (event.pid in self.state.pids or event.data.get("tainted") is True) and _has_text(event):
                self.mark_here(f"an Event of kind {event.kind}")
            return function(event)

        return mark_and_call

    def _get_acting_pid(self) -> str:
        process = acting()
        return process.pid if process is not None and process.core is self._core else ""

    def forget(self, pid: str) -> None:
        """Take the mark off: the process is gone from the table. One that lives keeps it."""
        process = self._core.processes.get(pid)
        if pid in self.state.pids and (process is None or process.exit is not None):
            self._core.fact(self.state, pid, "process.unlabelled", {})


def _has_text(event: Event) -> bool:
    """Return whether an Event says more than numbers and words of the kernel. What marked a process is no text of that
    one."""
    return event.kind != "process.tainted" and not all(
        not value or isinstance(value, int | float) or (isinstance(value, str) and value in _OWN_WORDS)
        for value in event.data.values()
    )


# Withdrawals: the questions to agent processes whose sender was told that they failed.


class WithdrawalState:
    """What survives: pid → the ids of the questions that it must not answer."""

    NAME: ClassVar[str] = "withdrawals"
    KINDS: ClassVar[frozenset[str]] = frozenset({"message.withdrawn", "message.passed"})

    def __init__(self) -> None:
        self.requests: dict[str, dict[str, None]] = {}

    def apply(self, kind: str, pid: str, time: float, data: dict[str, Any]) -> None:  # noqa: ARG002 (one signature)
        if kind == "message.withdrawn":
            self.requests.setdefault(pid, {})[str(data["request"])] = None
            return
        request_id = data["request"]
        if request_id is None:  # the process has ended
            del self.requests[pid]
            return
        del self.requests[pid][request_id]
        if not self.requests[pid]:
            del self.requests[pid]

    def dump(self) -> Any:
        return {pid: list(requests) for pid, requests in self.requests.items()}

    def load(self, data: Any) -> None:
        self.requests = {str(pid): {str(request_id): None for request_id in requests} for pid, requests in data.items()}


class Withdrawals(Subsystem):
    """`kernel.withdrawals`."""

    def __init__(self, core: Core[Process]) -> None:
        self._core = core
        self.state = WithdrawalState()

    def process_ended(self, process: Process, how: Any) -> None:  # noqa: ARG002 (one signature)
        if process.pid in self.state.requests and not self._core.stopping:
            self._core.fact(self.state, process.pid, "message.passed", {"request": None})

    def withdraw(self, process: Process, request_id: str) -> int:
        """Journal that a question to a process must not be carried out; gives the row's seq, 0 where there is none."""
        journal = self._core.journal
        if journal is None or journal.frozen or process.exit is not None or self.holds(process, request_id):
            return 0
        return self._core.fact(self.state, process.known_as, "message.withdrawn", {"request": request_id})

    def holds(self, process: Process, request_id: str) -> bool:
        """Return whether a question to a process was withdrawn."""
        requests = self.state.requests
        return bool(requests) and request_id in requests.get(process.known_as, ())

    def forget_withdrawn(self, process: Process, request_id: str) -> None:
        """Forget that a question was withdrawn: the process is past it, or is asked it again."""
        if self.state.requests and self.holds(process, request_id):
            self._core.fact(self.state, process.known_as, "message.passed", {"request": request_id})


# Acts of people: who changed what from outside the kernel, or was refused it, journaled for the audit.


class PersonActsState:
    """What survives: how many acts there were."""

    NAME: ClassVar[str] = "person_acts"
    KINDS: ClassVar[frozenset[str]] = frozenset({"person.acted"})

    def __init__(self) -> None:
        self.count = 0

    def apply(self, kind: str, pid: str, time: float, data: dict[str, Any]) -> None:  # noqa: ARG002 (one signature)
        self.count += 1

    def dump(self) -> Any:
        return self.count

    def load(self, data: Any) -> None:
        self.count = int(data)


class PersonActs(Subsystem):
    """`kernel.person_acts`."""

    def __init__(self, core: Core[Process]) -> None:
        self._core = core
        self.state = PersonActsState()

    def record(self, pid: str, act: dict[str, Any]) -> None:
        """Journal and publish one act; `pid` is the process that it was about, or "". A kernel that closes writes no
        more rows: then it is only published."""
        core = self._core
        if core.stopping or (core.journal is not None and core.journal.frozen):
            core.publish(pid, "person.acted", act)
        else:
            core.fact(self.state, pid, "person.acted", act)
