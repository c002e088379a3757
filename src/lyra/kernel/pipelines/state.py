"""The sessions of all pipelines (`PipelineState`), and the time of runs that workers outside have (`WorkerLeases`).

A run that is late fails, and a worker that is silent loses its run. A run's time is its stage's `timeout_seconds`, else
the pipeline's default; it stands still while a question about the whole pipeline is open, and begins again when the
kernel was restarted, since no worker could report meanwhile. A worker that asks by name has a lease on what it is
given: asking again or `renew_lease` keeps it. When a lease is over, the stage is given to the next worker that asks, if
it may be run twice (it is `idempotent`, has retries, or its agent was registered as idempotent); otherwise it is in
doubt, and a person says what became of it. That a lease was granted or lost is a row; how long it still lasts is not: a
restart gives each the whole of it again.

One timer for each pipeline rings at the next of these moments, so that nothing waits until a worker asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec

from lyra.core import codec
from lyra.core.checking.check import real, sendable_text, short_text
from lyra.core.envelope import Envelope
from lyra.core.limits import NAME_LENGTH_MAX, WORKER_LEASE_S, WORKER_LEASE_S_MAX
from lyra.errors import ConfigError, InvalidTransition
from lyra.kernel.pipelines.declaration import PipelineConfig
from lyra.kernel.pipelines.instruction import WorkerLease, report_row
from lyra.kernel.pipelines.moves import Move, Tell
from lyra.kernel.pipelines.session import Session, Token, session_data, session_of

if TYPE_CHECKING:
    from lyra.core.clock import Timer
    from lyra.kernel.base.core import Core
    from lyra.kernel.pipelines.orchestrator import Orchestrator
    from lyra.kernel.process.process import Process


_GRAIN_S: Final = 0.001  # a run is late when it took longer than its time, so the timer rings this much later


class LeaseRequest(msgspec.Struct, frozen=True):
    """The worker that asks, and how long a lease it wants."""

    worker: str
    lease_s: float

    @classmethod
    def check(cls, worker: str | None, lease_s: float | None) -> LeaseRequest | None:
        """None for a worker without a name, which has no lease."""
        if worker is None:
            if lease_s is not None:
                raise ConfigError("a lease needs the name of its worker", hint='worker="…"', key="worker")
            return None
        name = short_text(sendable_text(worker, "a worker"), "a worker", most=NAME_LENGTH_MAX)
        if not name:
            raise ConfigError("a worker needs a name", key="worker")
        wanted_s = WORKER_LEASE_S if lease_s is None else lease_s
        return cls(name, real(wanted_s, "lease_s", above=0.0, most=WORKER_LEASE_S_MAX))


class WorkerLeases:
    def __init__(self, core: Core[Process], orchestrator: Orchestrator) -> None:
        self._core = core
        self._orchestrator = orchestrator
        self._ends: dict[str, dict[int, float]] = {}  # pid → run → when its lease is over, by `Core.now`
        self._timers: dict[str, tuple[float, Timer]] = {}  # pid → (when it rings, the timer)
        self._opened_at = float("-inf")  # when this kernel restored its sessions

    def grant(self, session: Session, token: Token, wanted: LeaseRequest) -> WorkerLease:
        """Give a worker the run of a token, or more time for it."""
        pid = session.process_id
        if (token.worker, token.lease_s) != (wanted.worker, wanted.lease_s):
            row = {"token": token.id, "worker": wanted.worker, "lease_s": wanted.lease_s}
            self._orchestrator.fact(pid, "pipeline.leased", row)
        self._ends.setdefault(pid, {})[token.run] = self._core.now() + token.lease_s
        self.watch(pid)
        lease = self.lease_of(session, token)
        assert lease is not None
        return lease

    def lease_of(self, session: Session, token: Token) -> WorkerLease | None:
        if not token.worker:
            return None
        return WorkerLease(token.worker, token.lease_s, self._lease_end(session.process_id, token))

    def renew(self, session: Session, wanted: LeaseRequest) -> list[WorkerLease]:
        """More time for everything that a worker has; InvalidTransition if it has nothing (any more)."""
        tokens = self._list_held(session, wanted.worker)
        if not tokens:
            raise InvalidTransition(
                f"worker {wanted.worker} has no lease of pipeline {session.process_id}",
                hint="get_next_instruction gives one; its last may be over",
                pid=session.process_id,
                worker=wanted.worker,
            )
        return [self.grant(session, token, wanted) for token in tokens]

    def release(self, session: Session, worker: str) -> int:
        """Take back what a worker has not begun: the next that asks is given it. Gives how many runs."""
        tokens = self._list_held(session, worker)
        for token in tokens:
            self._lose(session, token, in_doubt=False)
        return len(tokens)

    @staticmethod
    def _list_held(session: Session, worker: str) -> list[Token]:
        return [token for token in session.tokens if token.state == "running" and token.worker == worker]

    def end_late(self, session: Session) -> None:
        """Fail the runs whose time is up, and take those away whose workers are silent."""
        pid = session.process_id
        if self._orchestrator.is_run_here(pid) or session.terminated or session.held_up:
            return
        now = self._core.now()
        for token in [running for running in session.tokens if running.state == "running"]:
            if token not in session.tokens:  # the end of another run ended it
                continue
            timeout_s = self._timeout_s(session, token)
            if now - self._began_at(token, now) > timeout_s:
                error = f"{token.stage} took longer than {timeout_s:g} s"
                failed = {"agent_name": token.stage, "run_id": token.run, "success": False, "error": error}
                row = {**report_row({**failed, "error_code": "deadline_exceeded"}), "retry": True}
                self._orchestrator.record_report(pid, token, row)
            elif token.worker and now > self._lease_end(pid, token):
                self._lose(session, token, in_doubt=not self._orchestrator.may_repeat(session, token))

    def _lose(self, session: Session, token: Token, *, in_doubt: bool) -> None:
        self._orchestrator.fact(session.process_id, "pipeline.lease_lost", {"token": token.id, "in_doubt": in_doubt})
        if in_doubt:
            self._orchestrator.questions.hold_up(session)  # puts the question to a person now

    def _began_at(self, token: Token, now: float) -> float:
        """When a run began for the limit of its time: not before this kernel opened, and not in the future."""
        return self._opened_at if token.began_at > now else max(token.began_at, self._opened_at)

    def _timeout_s(self, session: Session, token: Token) -> float:
        config = session.pipeline_config
        return config.by_name[token.stage].timeout_seconds or config.default_timeout_seconds

    def _lease_end(self, pid: str, token: Token) -> float:
        granted_again = max(token.began_at, self._opened_at) + token.lease_s  # by a kernel before this one
        return self._ends.get(pid, {}).get(token.run, granted_again)

    def watch(self, pid: str) -> None:
        """Set the timer of a pipeline that changed."""
        session = self._orchestrator.state.sessions.get(pid)
        if pid in self._ends:
            # Forget the leases of runs that are over.
            tokens = session.tokens if session is not None else ()
            running = {token.run for token in tokens if token.state == "running"}
            self._ends[pid] = {run: end for run, end in self._ends[pid].items() if run in running}
            if not self._ends[pid]:
                del self._ends[pid]
        due = self._next_due(session) if session is not None else None
        known = self._timers.get(pid)
        if known is not None:
            if known[0] == due:
                return
            del self._timers[pid]
            known[1].cancel()
        if due is not None and not self._core.stopping:
            clock = self._core.clock
            rings_at = clock.monotonic() + max(0.0, due - self._core.now()) + _GRAIN_S
            self._timers[pid] = due, clock.call_at(rings_at, lambda: self._ring(pid))

    def _next_due(self, session: Session) -> float | None:
        """When the next run is late or the next lease is over; None while nothing runs outside or time stands still."""
        if session.terminated or session.held_up or self._orchestrator.is_run_here(session.process_id):
            return None
        now = self._core.now()
        running = [token for token in session.tokens if token.state == "running"]
        ends = [self._began_at(token, now) + self._timeout_s(session, token) for token in running]
        ends += [self._lease_end(session.process_id, token) for token in running if token.worker]
        return min(ends, default=None)

    def _ring(self, pid: str) -> None:
        self._timers.pop(pid, None)
        core, session = self._core, self._orchestrator.state.sessions.get(pid)
        if session is None or core.stopping or core.draining or core.failure is not None:
            return
        self.end_late(session)
        self.watch(pid)

    def on_restored(self) -> None:
        self._opened_at = self._core.now()
        for pid in self._orchestrator.state.sessions:
            self.watch(pid)

    def stop(self) -> None:
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()


# The sessions of all pipelines, by pid: the fold of their rows (see `kernel.base.subsystem`), and their snapshot.

_read: Final = msgspec.msgpack.Decoder(Envelope).decode


def _no_listener(_pid: str, _kind: str, _stage: str, _facts: dict[str, Any]) -> None:
    """Ignore the event: while rows are folded there is no listener."""


class PipelineState:
    """All sessions, by pid: the fold of these rows."""

    NAME: ClassVar[str] = "pipelines"
    KINDS: ClassVar[frozenset[str]] = frozenset(
        {
            "pipeline.initialized",
            "pipeline.started",
            "pipeline.leased",
            "pipeline.lease_lost",
            "pipeline.reported",
            "pipeline.waiting",
            "pipeline.resumed",
            "pipeline.terminated",
            "pipeline.ended",
            "pipeline.restored",
            "pipeline.forgotten",
        }
    )

    def __init__(self) -> None:
        self.sessions: dict[str, Session] = {}
        self.tell: Tell = _no_listener

    def apply(self, kind: str, pid: str, time: float, data: dict[str, Any]) -> None:
        now = float(data.get("at", time))
        if kind == "pipeline.initialized":
            self._begin(pid, data, now)
        elif kind == "pipeline.restored":
            self.sessions[pid] = session_of({**data["session"], "process_id": pid})
        elif kind == "pipeline.forgotten":
            del self.sessions[pid]
        elif kind != "pipeline.ended":  # which only reports what an earlier row did
            move = Move(self.sessions[pid], now, self.tell)
            if kind == "pipeline.started":
                move.start(int(data["token"]))
            elif kind == "pipeline.leased":
                move.lease(int(data["token"]), str(data["worker"]), float(data["lease_s"]))
            elif kind == "pipeline.lease_lost":
                move.lose_lease(int(data["token"]), in_doubt=bool(data["in_doubt"]))
            elif kind == "pipeline.reported":
                move.report(int(data["token"]), data)
            elif kind == "pipeline.waiting":
                move.wait(data["interrupt"], data.get("question"))
            elif kind == "pipeline.resumed":
                interrupt, unanswered = data.get("interrupt") or {}, str(data.get("unanswered") or "")
                ends = bool(data.get("ends"))  # rows of earlier versions have none, and continued
                move.resume(interrupt, data.get("response"), data.get("question"), unanswered, ends=ends)
            else:
                move.terminate(data["reason"], str(data.get("message") or ""))

    def _begin(self, pid: str, data: dict[str, Any], now: float) -> None:
        session = Session(
            process_id=pid,
            pipeline_config=msgspec.convert(data["config"], PipelineConfig),
            envelope=_read(codec.encode(data["envelope"])),  # a copy: rows are not changed
            created_at=now,
            last_activity_at=now,
        )
        self.sessions[pid] = session
        Move(session, now, self.tell).begin()

    def dump(self) -> Any:
        return {pid: session_data(session) for pid, session in self.sessions.items()}

    def load(self, data: Any) -> None:
        self.sessions = {pid: session_of(session) for pid, session in data.items()}

    def idle_since(self, moment: float, corrected: Callable[[float], float]) -> Iterable[str]:
        """Sessions that ended, or without activity since `moment`; `corrected` gives the time of the last activity."""
        return [
            pid
            for pid, session in self.sessions.items()
            if session.terminated or corrected(session.last_activity_at) < moment
        ]
