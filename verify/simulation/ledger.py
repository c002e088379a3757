"""A second set of books on supervisors and subsystems, kept from the rows that reached the store.

`invariants.Ledger` keeps the books of programs and hands every row on to `Parts.add`. Each book below counts again, in
the plainest way there is, what a part of the kernel says about itself: restarts in a window, links and who had to be
told, the line of entries, runs of pipelines, requests in a window. None of them asks the kernel, so a kernel that
counts wrongly is told from one that counts well. `at_rest` says what was promised in a row and never came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from lyra.core import codec
from lyra.core.limits import RATE_DEFAULTS
from lyra.kernel.journal import rows

__all__ = ["MOVES", "Parts", "Violation"]


class Violation(NamedTuple):
    name: str
    detail: str


# Written again here on purpose: a table that is checked against itself proves nothing.
MOVES: Final = {
    ("new", "ready"), ("new", "terminated"),
    ("ready", "running"), ("ready", "terminated"),
    ("running", "ready"), ("running", "waiting"), ("running", "blocked"), ("running", "terminated"),
    ("waiting", "ready"), ("waiting", "terminated"),
    ("blocked", "ready"), ("blocked", "terminated"),
    ("terminated", "zombie"),
}  # fmt: skip
_SUPERVISE: Final = ":supervise"
_SLACK_S: Final = 1e-6


class _Window:
    """The restarts of one supervisor: each is one reading of the clock in its journal."""

    __slots__ = ("most", "over", "times", "window_s")

    def __init__(self, most: int, window_s: float) -> None:
        self.most = most
        self.window_s = window_s
        self.times: list[float] = []
        self.over = 0  # the row of the restart that was one too many

    def restart(self, seq: int, now: float) -> None:
        # A later life of the kernel may have an earlier clock: what lies in its future does not count.
        self.times = [then for then in (*self.times, now) if 0 <= now - then <= self.window_s]
        if len(self.times) > self.most >= 0 and not self.over:
            self.over = seq


class Supervised:
    """Restarts against intensity and period. Supervisors with a back-off read the clock for that, too: not counted."""

    def __init__(self) -> None:
        self.windows: dict[str, _Window] = {}
        self.excused: set[str] = set()  # told to stop, or free to: a `shutdown` of theirs proves nothing
        self.loose: set[str] = set()  # those whose children may stand still: by their strategy, or by an order

    def created(self, seq: int, pid: str, row: rows.Created) -> Iterator[Violation]:
        above = self.windows.get(row.parent)
        if above is not None and above.over:
            yield Violation(
                "supervisor_window",
                f"row {seq}: {row.parent} starts {pid} after restart {len(above.times)} of {above.most} "
                f"in {above.window_s:g} s (row {above.over})",
            )
        if row.program.endswith(_SUPERVISE) and not row.blob:
            plan = codec.decode(bytes(row.args))[0]
            if plan.get("backoff") is None:
                self.windows[pid] = _Window(plan["max_restarts"], plan["window_s"])
            if plan.get("auto_shutdown", "never") != "never" or plan.get("guards"):
                self.excused.add(pid)
            if plan["strategy"] == "stop":
                self.loose.add(pid)

    def read(self, seq: int, pid: str, row: rows.Finished) -> None:
        window = self.windows.get(pid)
        if window is not None and row.form == "read" and row.name == "clock":
            window.restart(seq, codec.decode(bytes(row.value)))

    def excuse(self, pid: str) -> None:
        self.excused.add(pid)

    def ended(self, seq: int, pid: str, row: rows.Terminated) -> Iterator[Violation]:
        window = self.windows.get(pid)
        if window is not None and row.reason == "shutdown" and not window.over and pid not in self.excused:
            yield Violation(
                "supervisor_window",
                f"row {seq}: {pid} gave up, after {len(window.times)} of {window.most} in {window.window_s:g} s",
            )


class Ties:
    """Links and monitors: who must hear of an end, and who must end with it."""

    def __init__(self) -> None:
        self.links: dict[str, set[str]] = {}
        self.monitors: dict[str, tuple[str, str]] = {}  # ref → (watcher, watched)
        self.traps: set[str] = set()
        self.live: set[str] = set()
        self.stopping: set[str] = set()
        self.owed: dict[tuple[str, str, str], int] = {}  # (form, to, about) → row that made it due
        self.doomed: dict[str, int] = {}

    def linked(self, pid: str, other: str) -> None:
        self.links.setdefault(pid, set()).add(other)
        self.links.setdefault(other, set()).add(pid)

    def unlinked(self, pid: str, other: str) -> None:
        self.links.get(pid, set()).discard(other)
        self.links.get(other, set()).discard(pid)

    def ended(self, seq: int, pid: str, reason: str) -> None:
        self.live.discard(pid)
        self.doomed.pop(pid, None)
        if self.owed:
            self.owed = {key: row for key, row in self.owed.items() if key[1] != pid}
        for other in self.links.pop(pid, set()):
            self.links.get(other, set()).discard(pid)
            if other not in self.live:
                continue
            if other in self.traps:
                self.owed["exit", other, pid] = seq
            elif reason != "normal" and other not in self.stopping:
                self.doomed.setdefault(other, seq)
        for ref, (watcher, watched) in list(self.monitors.items()):
            if watched == pid and watcher in self.live:
                self.owed["down", watcher, ref] = seq
            if pid in (watcher, watched):
                del self.monitors[ref]

    def told(self, to: str, form: str, message: dict[str, Any]) -> None:
        self.owed.pop((form, to, message["ref"] if form == "down" else message["pid"]), None)

    def committed(self) -> Iterator[Violation]:
        """An end and what it does to others become durable together: between the two a crash would lose it."""
        for (form, to, about), seq in self.owed.items():
            yield Violation("links", f"row {seq} ended what {to} was tied to ({about}), and it was sent no {form}")
        for pid, seq in self.doomed.items():
            yield Violation("links", f"row {seq} ended what {pid} was linked to, and it lives on")
        self.owed.clear()
        self.doomed.clear()


class Entries:
    """The table of entries without a program, and their line."""

    def __init__(self) -> None:
        self.states: dict[str, str] = {}
        self.places: dict[str, tuple[int, int]] = {}  # (priority, order)
        self.asking: dict[str, set[str]] = {}  # pid → its open questions
        self._orders = 0

    def _place(self, pid: str, priority: int) -> None:
        self._orders += 1
        self.places[pid] = (priority, self._orders)

    def submitted(self, seq: int, pid: str, data: dict[str, Any]) -> Iterator[Violation]:
        if pid in self.states:
            yield Violation("transitions", f"row {seq} submits {pid} a second time")
        self.states[pid] = "new"
        self._place(pid, data["priority"])

    def moved(self, seq: int, pid: str, data: dict[str, Any]) -> Iterator[Violation]:
        old, new = self.states.get(pid, ""), data["new_state"]
        if (old, new) not in MOVES or data["old_state"] != old:
            yield Violation("transitions", f"row {seq} moves {pid} from {data['old_state']} (it was {old}) to {new}")
        if data["reason"] == "its turn":
            ready = [
                self.places[entry_id]
                for entry_id, state in self.states.items()
                if state == "ready" and not self.asking.get(entry_id)  # who waits for an answer is passed over
            ]
            if self.places[pid] != min(ready, default=self.places[pid]):
                yield Violation("turns", f"row {seq} gives {pid} its turn, and others were before it")
        if new == "running" and self.asking.get(pid):
            yield Violation("interrupt_waiting", f"row {seq} runs {pid}, which waits for an answer")
        self.states[pid] = new
        if new == "ready" and old != "new":
            self._place(pid, self.places[pid][0])

    def forgotten(self, seq: int, pid: str, _data: dict[str, Any]) -> Iterator[Violation]:
        if self.states.pop(pid, "") not in ("terminated", "zombie"):
            yield Violation("transitions", f"row {seq} forgets {pid}, which has not ended")
        self.places.pop(pid, None)

    def asked(self, _seq: int, pid: str, data: dict[str, Any]) -> Iterator[Violation]:
        self.asking.setdefault(pid, set()).add(data["id"])
        yield from ()

    def answered(self, seq: int, pid: str, data: dict[str, Any]) -> Iterator[Violation]:
        if data["id"] not in self.asking.get(pid, set()):
            yield Violation("transitions", f"row {seq} ends question {data['id']}, which {pid} does not ask")
        self.asking.get(pid, set()).discard(data["id"])


class _Pipeline:
    """One session, as its rows tell it."""

    __slots__ = ("finished", "hops_max", "reported", "runs", "tokens")

    def __init__(self, hops_max: int) -> None:
        self.hops_max = hops_max
        self.runs = 0
        self.tokens: dict[int, int] = {}  # token → its run in progress
        self.reported: set[int] = set()
        self.finished: set[int] = set()  # runs whose answer is durable


class Pipelines:
    """Runs of stages: each reported once, none performed after its answer is durable, no more than there may be."""

    def __init__(self) -> None:
        self.sessions: dict[str, _Pipeline] = {}
        self.starts: dict[tuple[str, str], int] = {}  # (pid, effect name) → starts
        self._names: dict[tuple[str, rows.Key], str] = {}

    def initialized(self, _seq: int, pid: str, data: dict[str, Any]) -> Iterator[Violation]:
        self.sessions[pid] = _Pipeline(data["config"]["max_agent_hops"])
        yield from ()

    def started(self, seq: int, pid: str, data: dict[str, Any]) -> Iterator[Violation]:
        session = self.sessions[pid]
        session.runs += 1
        session.tokens[data["token"]] = session.runs
        if session.runs > session.hops_max:
            yield Violation(
                "pipeline_bounds", f"row {seq}: run {session.runs} of {pid}, which may have {session.hops_max}"
            )

    def reported(self, seq: int, pid: str, data: dict[str, Any]) -> Iterator[Violation]:
        session, token = self.sessions[pid], data["token"]
        if token not in session.tokens:  # reported before anybody asked what to do
            yield from self.started(seq, pid, data)
        run = session.tokens.pop(token)
        if run in session.reported or (data["run_id"] and data["run_id"] != run):
            yield Violation("stage_once", f"row {seq} reports run {data['run_id']} of {pid} where run {run} was due")
        session.reported.add(run)

    def effect_started(self, pid: str, row: rows.Started) -> None:
        if row.name.startswith("pipeline:"):
            self.starts[pid, row.name] = self.starts.get((pid, row.name), 0) + 1
            self._names[pid, row.key] = row.name

    def effect_finished(self, pid: str, row: rows.Finished) -> None:
        if (pid, row.key) not in self._names or row.error is not None or row.blob:
            return
        value = codec.decode(bytes(row.value))
        run = value.get("output", {}).get("run") if isinstance(value, dict) else None
        if isinstance(run, int) and pid in self.sessions:
            self.sessions[pid].finished.add(run)

    def judge(self, pid: str, request: dict[str, Any], performed: int) -> Iterator[Violation]:
        """A stage's agent was called: was it allowed to, as far as the journal knows?"""
        session, run = self.sessions.get(pid), request["run"]
        if session is not None and (run in session.finished or run in session.reported):
            yield Violation(
                "never_again", f"run {run} of {pid} ({request['stage']}) is finished and was performed again"
            )
        starts = self.starts.get((pid, f"pipeline:{request['agent']}"), 0)
        if not request["idempotent"] and performed > starts:
            yield Violation(
                "at_most_once", f"{request['stage']} of {pid} was performed {performed} times in {starts} starts"
            )


class Rates:
    """Requests of each user at each endpoint, none of them forgotten before its time."""

    WINDOWS: Final = {
        "requests_per_minute": 60.0, "requests_per_hour": 3600.0, "requests_per_day": 86400.0, "burst_size": 10.0,
    }  # fmt: skip

    def __init__(self) -> None:
        self.times: dict[tuple[str, str], list[float]] = {}
        self.limits: dict[tuple[str, str], dict[str, int] | None] = {}

    def limited(self, _seq: int, _pid: str, data: dict[str, Any]) -> Iterator[Violation]:
        self.limits[data["scope"], data["name"]] = data["config"]
        yield from ()

    def counted(self, seq: int, _pid: str, data: dict[str, Any]) -> Iterator[Violation]:
        user, endpoint = data["user"], data["endpoint"]
        times = self.times.setdefault((user, endpoint), [])
        time_at = data["at"]
        self._set_back(times, time_at)
        times.append(time_at)
        scopes = (("endpoint", endpoint), ("user", user), ("default", ""))
        config = next((self.limits[scope] for scope in scopes if self.limits.get(scope)), None) or RATE_DEFAULTS
        for name, seconds in self.WINDOWS.items():
            most = config.get(name, 0)
            count = sum(1 for then in times if then + seconds - time_at > _SLACK_S)
            if 0 < most < count:
                yield Violation("rates", f"row {seq}: request {count} of {user} within {seconds:g} s, limit {most}")

    def set_back(self, _seq: int, _pid: str, data: dict[str, Any]) -> Iterator[Violation]:
        for times in self.times.values():
            self._set_back(times, data["at"])
        yield from ()

    def _set_back(self, times: list[float], now: float) -> None:
        """Requests in the future keep their distances: a wall clock that goes back makes no room."""
        ahead_s = times[-1] - now if times else 0.0
        if ahead_s > 0:
            times[:] = [then - ahead_s for then in times]

    def reset(self, _seq: int, _pid: str, data: dict[str, Any]) -> Iterator[Violation]:
        for key in [key for key in self.times if key[0] == data["user"]]:
            del self.times[key]
        yield from ()

    def forgotten(self, _seq: int, _pid: str, data: dict[str, Any]) -> Iterator[Violation]:
        for key, times in list(self.times.items()):
            if times[-1] + max(self.WINDOWS.values()) <= data["at"] + _SLACK_S:
                del self.times[key]
        yield from ()


class Parts:
    """All the books above, and which row goes into which."""

    def __init__(self) -> None:
        self.supervised = Supervised()
        self.ties = Ties()
        self.entries = Entries()
        self.pipelines = Pipelines()
        self.rates = Rates()
        self.members: dict[str, set[str]] = {}
        self._facts: dict[str, Callable[[int, str, dict[str, Any]], Iterator[Violation]]] = {
            "pcb.submitted": self.entries.submitted,
            "pcb.moved": self.entries.moved,
            "pcb.forgotten": self.entries.forgotten,
            "pcb.interrupt_created": self.entries.asked,
            "pcb.interrupt_ended": self.entries.answered,
            "pipeline.initialized": self.pipelines.initialized,
            "pipeline.started": self.pipelines.started,
            "pipeline.reported": self.pipelines.reported,
            "rate.counted": self.rates.counted,
            "rate.limited": self.rates.limited,
            "rate.reset": self.rates.reset,
            "rate.forgotten": self.rates.forgotten,
            "rate.set_back": self.rates.set_back,
            "group.joined": self._joined,
            "group.left": self._left,
        }

    def fact(self, seq: int, pid: str, kind: str, data: bytes) -> Iterator[Violation]:
        """A row of a subsystem."""
        if kind in self._facts:
            yield from self._facts[kind](seq, pid, codec.decode(data))

    def _joined(self, seq: int, pid: str, data: dict[str, Any]) -> Iterator[Violation]:
        if pid not in self.ties.live:
            yield Violation("groups", f"row {seq}: {pid} joins {data['group']} and does not live")
        self.members.setdefault(pid, set()).add(data["group"])

    def _left(self, seq: int, pid: str, data: dict[str, Any]) -> Iterator[Violation]:
        if data["group"] not in self.members.get(pid, set()):
            yield Violation("groups", f"row {seq}: {pid} leaves {data['group']} and was not in it")
        self.members.get(pid, set()).discard(data["group"])

    def process(self, seq: int, pid: str, kind: str, row: Any) -> Iterator[Violation]:
        """A row of a process."""
        ties, supervised = self.ties, self.supervised
        if kind == "process.created":
            ties.live.add(pid)
            yield from supervised.created(seq, pid, row)
        elif kind == "process.terminated":
            yield from supervised.ended(seq, pid, row)
            ties.ended(seq, pid, row.reason)
        elif kind == "process.stopping":
            supervised.excuse(pid)
            ties.stopping.add(pid)
            ties.doomed.pop(pid, None)
        elif kind == "process.linked":
            ties.linked(pid, row.to)
        elif kind == "process.unlinked":
            ties.unlinked(pid, row.to)
        elif kind == "process.monitored":
            ties.monitors[row.ref] = (pid, row.target)
        elif kind == "process.demonitored":
            ties.monitors.pop(row.ref, None)
        elif kind == "process.trapping":
            (ties.traps.add if row.on else ties.traps.discard)(pid)
        elif kind == "effect.started":
            self.pipelines.effect_started(pid, row)
        elif kind == "effect.finished":
            supervised.read(seq, pid, row)
            self.pipelines.effect_finished(pid, row)
        elif kind == "message.sent":
            self._sent(row)

    def _sent(self, row: rows.Sent) -> None:
        if row.form in ("exit", "down"):
            message = codec.decode(bytes(row.message))
            self.ties.told(row.to, row.form, message)
            if row.form == "exit" and message["reason"] != "normal":  # a supervisor goes with its parent
                self.supervised.excuse(row.to)
        elif row.form == "supervisor":
            verb = codec.decode(bytes(row.message)).get("verb")
            if verb == "stop":
                self.supervised.excuse(row.to)
            elif verb == "terminate_child":
                self.supervised.loose.add(row.to)

    def at_rest(self) -> Iterator[Violation]:
        for pid, groups in self.members.items():
            if groups and pid not in self.ties.live:
                yield Violation("groups", f"{pid} has ended and is still in {', '.join(sorted(groups))}")
