"""The sessions of all pipelines, by pid: the fold of their rows (see `kernel.base.subsystem`), and their snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Final

import msgspec

from lyra.core import codec
from lyra.core.envelope import Envelope
from lyra.kernel.pipelines.declaration import PipelineConfig
from lyra.kernel.pipelines.moves import Move, Tell
from lyra.kernel.pipelines.session import Session, session_data, session_of

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
                ends = bool(data.get("ends"))  # rows of earlier versions have none, and went on
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
