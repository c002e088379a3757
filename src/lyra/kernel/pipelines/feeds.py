"""The listeners of pipelines: callers of `execute_pipeline`, each with its own feed, and what they are told.

A feed gets the changes of the session as their rows are applied (`state.PipelineState.tell`), pieces of answers, and
the questions of the stages' processes. One that is opened late is told first where the pipeline stands. Nothing here is
kept: after a restart the caller listens again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from lyra.core.envelope import Envelope
from lyra.core.limits import PIPELINE_EVENTS_UNREAD_MAX
from lyra.core.naming import STAGE_PROGRAM
from lyra.kernel.pipelines.instruction import interrupt_data
from lyra.kernel.pipelines.runner import effect_name

if TYPE_CHECKING:
    from lyra.kernel.base.core import Core
    from lyra.kernel.interrupts.interrupt import Interrupt
    from lyra.kernel.interrupts.service import InterruptService
    from lyra.kernel.pipelines.questions import Questions
    from lyra.kernel.pipelines.session import Session
    from lyra.kernel.pipelines.state import PipelineState
    from lyra.kernel.process.process import Process


class PipelineEvent:
    """Something that happened in a pipeline, with the envelope as it was then."""

    __slots__ = ("_envelope", "_then", "data", "pid", "stage", "type")

    def __init__(self, kind: str, stage: str, pid: str, envelope: Envelope, data: dict[str, Any]) -> None:
        self.type = kind
        self.stage = stage
        self.pid = pid
        self.data = data
        self._then = envelope.snapshot()
        self._envelope: Envelope | None = None

    @property
    def envelope(self) -> Envelope:
        if self._envelope is None:  # copied only when it is read: most listeners read few envelopes
            self._envelope = self._then.copy()
        return self._envelope

    def __repr__(self) -> str:
        return f"<PipelineEvent {self.type} {self.stage}>"

    def to_data(self) -> dict[str, Any]:
        envelope = self.envelope.to_data()
        return {"type": self.type, "stage": self.stage, "pid": self.pid, "envelope": envelope, "data": self.data}


class Feed:
    """The unread events of one listener; None among them marks the end of the pipeline's process. A listener that is
    too slow is `overrun`: its events are dropped, and it has to begin anew."""

    __slots__ = ("_waiter", "events", "overrun")

    def __init__(self) -> None:
        self.events: deque[PipelineEvent | None] = deque()
        self.overrun = False
        self._waiter: asyncio.Future[None] | None = None

    def put(self, event: PipelineEvent | None) -> None:
        if len(self.events) >= PIPELINE_EVENTS_UNREAD_MAX:
            self.overrun = True
            self.events.clear()
        self.events.append(event)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def more(self) -> None:
        """Wait until there is an event."""
        while not self.events:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter


class PipelineFeeds:
    def __init__(
        self, core: Core[Process], state: PipelineState, interrupts: InterruptService, questions: Questions
    ) -> None:
        self._core = core
        self._state = state
        self._interrupts = interrupts
        self._questions = questions
        self._by_pid: dict[str, list[Feed]] = {}
        state.tell = self._tell_row

    def open(self, pid: str) -> Feed:
        """Return a feed of what happens in a pipeline from now on."""
        feed = Feed()
        self._by_pid.setdefault(pid, []).append(feed)
        return feed

    def close(self, pid: str, feed: Feed) -> None:
        self._by_pid[pid].remove(feed)
        if not self._by_pid[pid]:
            del self._by_pid[pid]

    def tell_where_it_stands(self, session: Session, feed: Feed) -> None:
        """Put the running stages and the open questions into the feed of a new listener."""
        pid, envelope = session.process_id, session.envelope
        for token in session.tokens:
            if token.state == "running":
                agent = session.pipeline_config.by_name[token.stage].agent_name
                data = {"run_id": token.run, "agent": agent}
                feed.put(PipelineEvent("stage_started", token.stage, pid, envelope, data))
        for question in self._questions.still_open(session):
            if not question.id:
                continue  # told when it has one
            asked = {"interrupt": dict(question.interrupt)}
            feed.put(PipelineEvent("interrupt_raised", question.stage, pid, envelope, asked))
        for interrupt in self._interrupts._open_questions(pid):
            if interrupt.kind == "in_doubt":
                asked = {"interrupt": interrupt_data(interrupt)}
                feed.put(PipelineEvent("interrupt_raised", _stage_in_doubt(session, interrupt), pid, envelope, asked))

    def tell_doubt(self, interrupt: Interrupt) -> None:
        """It is unknown whether a stage was performed; the door asked, and its row is the last that was written."""
        session = self._state.sessions.get(interrupt.pid)
        if session is not None:
            facts = {"interrupt": interrupt_data(interrupt), "seq": self._last_seq()}
            self._put(interrupt.pid, "interrupt_raised", _stage_in_doubt(session, interrupt), facts)

    def tell_question(self, interrupt: Interrupt) -> None:
        """Tell the listeners of a pipeline that the process of a stage, or one below it, asks."""
        process = self._core.processes.get(interrupt.pid)
        above = process.parent if process is not None else None
        while above is not None and above.pid not in self._state.sessions:
            process, above = above, above.parent
        if process is None or above is None or above.pid not in self._by_pid:
            return
        session = self._state.sessions[above.pid]
        running = [session.pipeline_config.by_name[token.stage] for token in session.tokens if token.state == "running"]
        asks = [stage.name for stage in running if f"agent:{stage.agent_name}{STAGE_PROGRAM}" == process.program]
        stage = asks[0] if asks else session.envelope.current_stage
        facts = {"interrupt": interrupt_data(interrupt), "seq": self._last_seq()}
        self._put(above.pid, "interrupt_raised", stage, facts)

    def _tell_row(self, pid: str, kind: str, stage: str, facts: dict[str, Any]) -> None:
        if pid in self._by_pid:
            journal = self._core.journal
            facts["seq"] = journal.seq + 1 if journal is not None else 0  # the row that is being applied
            self._put(pid, kind, stage, facts)

    def tell_token(self, pid: str, stage: str, delta: str, *, debug: bool) -> None:
        """Pass a piece of an answer to the listeners of a pipeline; it is not kept."""
        if pid in self._by_pid and pid in self._state.sessions:
            self._put(pid, "token", stage, {"delta": delta, "debug": debug})

    def _put(self, pid: str, kind: str, stage: str, facts: dict[str, Any]) -> None:
        event = PipelineEvent(kind, stage, pid, self._state.sessions[pid].envelope, facts)
        for feed in self._by_pid.get(pid, ()):
            feed.put(event)

    def _last_seq(self) -> int:
        journal = self._core.journal
        return journal.seq if journal is not None else 0


def last_event(session: Session) -> PipelineEvent:
    """Return what is told of a pipeline that is over."""
    envelope = session.envelope
    reason = envelope.terminal_reason.value if envelope.terminal_reason is not None else ""
    data = {"reason": reason, "message": envelope.termination_reason}
    return PipelineEvent("pipeline_completed", envelope.current_stage, session.process_id, envelope, data)


def _stage_in_doubt(session: Session, interrupt: Interrupt) -> str:
    """Return the stage that runs the agent of the effect that the question names."""
    stages = [session.pipeline_config.by_name[token.stage] for token in session.tokens if token.state == "running"]
    meant = [stage.name for stage in stages if f" {effect_name(stage)} " in interrupt.question]
    return meant[0] if meant else session.envelope.current_stage
