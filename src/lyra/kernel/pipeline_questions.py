"""A pipeline and the questions that hold it up: those its stages ask, and the kernel's own about its process.

A stage that leads to a question leaves it in the envelope. Where the kernel knows the pid it becomes one of the
kernel's, with an id and a time to live, and the answer is found there; otherwise the envelope alone carries it, and
whoever drives the pipeline answers with `resume`. A pipeline that this kernel runs asks by itself (`pipeline_runner`).
What an answer means is `pipeline_moves`' to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lyra.errors import InvalidTransition, NoSuchProcess
from lyra.kernel.instruction import interrupt_data, response_data
from lyra.kernel.interrupts import Interrupt
from lyra.kernel.pipeline_session import Session

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel
    from lyra.kernel.orchestrator import Orchestrator

__all__ = ["Questions"]


class Questions:
    def __init__(self, kernel: Kernel, orchestrator: Orchestrator) -> None:
        self._kernel = kernel
        self._orchestrator = orchestrator

    def hold_up(self, session: Session) -> bool:
        """Whether a question is open; one that is over is cleared first."""
        pid = session.process_id
        if session.waiting is None and not session.envelope.interrupt_pending and not self._any_about(pid):
            return False
        pending = self._pending(pid)  # looked at first: it may be over by now, and looking says so
        self._clear_ended(session)
        if session.terminated:
            return True
        if pending is not None:
            if not session.envelope.interrupt_pending or not (session.envelope.interrupt or {}).get("id"):
                self._orchestrator.fact(pid, "pipeline.waiting", {"interrupt": interrupt_data(pending)})
        elif session.waiting is not None and not session.waiting["id"] and pid not in self._kernel.processes:
            self._ask_kernel(session)
        return session.envelope.interrupt_pending

    def resume(self, session: Session, interrupt: Any, response: Any) -> None:
        """The question was answered: here, and where it is one of the kernel's, there too."""
        pid = session.process_id
        if session.terminated or not session.envelope.interrupt_pending:
            raise InvalidTransition(f"pipeline {pid} has no pending interrupt to resume", pid=pid)
        held = session.envelope.interrupt or {}
        given = interrupt_data(interrupt) if interrupt is not None else held
        if given.get("id") and held.get("id") and given["id"] != held["id"]:
            raise InvalidTransition(
                f"pipeline {pid} does not wait for interrupt {given['id']}", pid=pid, id=given["id"]
            )
        answer = response_data(response)
        pending = self._known(str(held["id"])) if held.get("id") else self._pending(pid)
        if pending is not None and pending.status == "pending":
            said = {name: value for name, value in answer.items() if value is not None}
            self._kernel.interrupts.resolve(pending.id, said)
        self.over(pid, {**held, **given}, answer)

    def over(self, pid: str, interrupt: dict[str, Any], response: dict[str, Any] | None) -> None:
        interrupt.pop("response", None)
        self._orchestrator.fact(pid, "pipeline.resumed", {"interrupt": interrupt, "response": response})

    def _any_about(self, pid: str) -> bool:
        interrupts = self._kernel.interrupts
        return pid in interrupts.state.by_pid or bool(interrupts.pending(pid))

    def _clear_ended(self, session: Session) -> None:
        """A question that the kernel knows by its id and that is over: resolved, expired or cancelled."""
        interrupt_id = session.waiting["id"] if session.waiting is not None else ""
        if not interrupt_id:
            return
        found = self._known(interrupt_id)
        if found is not None and found.status == "pending":
            return
        answer = found.response if found is not None and found.status == "resolved" else None
        response = response_data(answer) if answer is not None else None
        self.over(session.process_id, dict(session.envelope.interrupt or {}), response)

    def _known(self, interrupt_id: str) -> Interrupt | None:
        try:
            return self._kernel.interrupts.get(interrupt_id)
        except InvalidTransition:
            return None  # never one of the kernel's, or ended so long ago that nobody remembers it

    def _pending(self, pid: str) -> Interrupt | None:
        found = self._kernel.interrupts.get_pending_interrupt(pid)
        if found is None or (found.kind == "in_doubt" and pid in self._kernel.processes):
            return None  # an effect in doubt is between its process and the human
        return found

    def _ask_kernel(self, session: Session) -> None:
        """A stage led to a question: make it one of the kernel's, where the kernel knows the pid."""
        pid = session.process_id
        asked = session.envelope.interrupt or {}
        try:
            made = self._kernel.create_interrupt(
                pid, asked["kind"], str(asked.get("message", "")), question=str(asked.get("question", ""))
            )
        except NoSuchProcess:
            return  # a session without a process: its envelope carries the question
        self._orchestrator.fact(pid, "pipeline.waiting", {"interrupt": {**asked, **interrupt_data(made)}})
