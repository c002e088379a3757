"""The questions that hold a pipeline up: those of its stages, and those about its process.

A stage that leads to a question leaves it in the session, and its branch waits; each branch may ask. Where the kernel
knows the pid it becomes one of the kernel's questions, with an id and a time to live, and the answer comes from there;
otherwise only the session has it, and the worker that drives the pipeline answers with `resume`. A pipeline that this
kernel runs asks by itself (`runner`). `moves` interprets an answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from lyra.errors import InvalidTransition, NoSuchInterrupt, NoSuchProcess
from lyra.kernel.interrupts.service import Interrupt, InterruptService
from lyra.kernel.pipelines.instruction import interrupt_data, response_data
from lyra.kernel.pipelines.session import Question, Session

if TYPE_CHECKING:
    from lyra.kernel.base.core import Core
    from lyra.kernel.pipelines.orchestrator import Orchestrator
    from lyra.kernel.process.process import Process


NOBODY_WAITS: Final = "the answer is no longer needed"


class Questions:
    def __init__(self, core: Core[Process], interrupts: InterruptService, orchestrator: Orchestrator) -> None:
        self._core = core
        self._interrupts = interrupts
        self._orchestrator = orchestrator
        self._asks = False  # a stage's question is being put to the kernel
        self._answers = False  # a session's question is being answered in the kernel
        interrupts.on_asked.append(self._on_outside_question)
        interrupts.on_answered.append(self._on_outside_end)
        interrupts.is_needed.append(self._is_waited_for)

    def _is_waited_for(self, interrupt: Interrupt) -> bool:
        """Return whether its pipeline has not taken the answer up yet: that happens when a worker asks what comes
        next."""
        session = self._orchestrator.state.sessions.get(interrupt.pid)
        return session is not None and any(question.id == interrupt.id for question in session.waiting)

    def _on_outside_question(self, pid: str) -> None:
        """Have the pipeline of a process wait for a question that was raised about it, also when the question is over
        before a worker asks for the next instruction."""
        session = self._orchestrator.state.sessions.get(pid)
        if session is None or session.terminated or self._asks:
            return
        while (raised := self._find_raised_outside(session)) is not None:
            self._wait_for(pid, raised)

    def _on_outside_end(self, pid: str) -> None:
        """Note that a question about a process is over. A pipeline that this kernel runs knows at once, also while one
        of its agents works; one that a worker drives, when the worker asks what comes next."""
        session = self._orchestrator.state.sessions.get(pid)
        if session is not None and not session.terminated and pid in self._core.processes and not self._answers:
            self._clear_ended(session)

    def _wait_for(self, pid: str, raised: Interrupt) -> None:
        if raised.tainted:
            self._core.taint.mark(pid, "a question")
        self._orchestrator.fact(pid, "pipeline.waiting", {"interrupt": interrupt_data(raised), "question": 0})

    def hold_up(self, session: Session) -> bool:
        """Return whether a question about the whole session is open; ended ones are removed first, new ones are
        added."""
        pid = session.process_id
        if not session.waiting and not self._any_about(pid):
            return False
        raised = self._find_raised_outside(session)  # read first: reading an overdue question expires it
        self._clear_ended(session)
        if session.terminated:
            return True
        if raised is not None and not session.held_up:
            self._wait_for(pid, raised)  # raised under an earlier version, or before the pipeline began
        if pid not in self._core.processes:  # else its program asks
            for question in [question for question in session.waiting if question.token and not question.id]:
                self._ask_kernel(pid, question)
        return session.held_up

    def resume(self, session: Session, interrupt: Any, response: Any) -> None:
        """Answer a question in the session and, where the kernel has it, in the kernel."""
        pid = session.process_id
        if session.terminated or not session.waiting:
            raise InvalidTransition(f"pipeline {pid} has no pending interrupt to resume", pid=pid)
        given = interrupt_data(interrupt) if interrupt is not None else {}
        question = _find_question(session, given)
        answer = response_data(response)
        asked = self._look_up(question.id) if question.id else None
        if asked is not None and asked.status == "pending":
            given_fields = {name: value for name, value in answer.items() if value is not None}
            self._answers = True
            try:
                self._interrupts._answer(asked, given_fields)
            finally:
                self._answers = False
        self.over(pid, question, answer, given)

    def over(
        self,
        pid: str,
        question: Question,
        response: dict[str, Any] | None,
        given: Mapping[str, Any] | None = None,
        *,
        unanswered: str = "",
        ends: bool = False,
    ) -> None:
        """Write the end of a question; `unanswered` is why there is no response. `ends`: a confirmation about the whole
        pipeline that ran out, which ends it as a refusal does."""
        interrupt = {**question.interrupt, **(given or {})}
        interrupt.pop("response", None)
        row: dict[str, Any] = {"interrupt": interrupt, "response": response, "question": question.number}
        row.update({"unanswered": unanswered} if unanswered else {})
        row.update({"ends": True} if ends else {})
        self._orchestrator.fact(pid, "pipeline.resumed", row)

    def still_open(self, session: Session) -> list[Question]:
        """Return the questions that are pending, in the session and in the kernel."""
        known = [(question, self._look_up(question.id) if question.id else None) for question in session.waiting]
        return [question for question, interrupt in known if interrupt is None or interrupt.status == "pending"]

    def record_id(self, pid: str, number: int, interrupt_id: str) -> None:
        """Record the id under which the kernel has a question that the pipeline's program asked."""
        session = self._orchestrator.state.sessions.get(pid)
        question = session.question(number) if session is not None else None
        if question is None:
            self._interrupts._withdraw(interrupt_id, NOBODY_WAITS)
        elif question.id != interrupt_id:
            row = {"interrupt": {**question.interrupt, "id": interrupt_id}, "question": number}
            self._orchestrator.fact(pid, "pipeline.waiting", row)

    def cancel_dropped(self, before: Iterable[Question], after: Iterable[Question]) -> None:
        """Cancel questions whose branch or session has ended."""
        left = {question.id for question in after}
        for question in before:
            if question.token and question.id and question.id not in left:
                self.withdraw(question.id, NOBODY_WAITS)

    def withdraw(self, interrupt_id: str, reason: str) -> None:
        """Cancel a question of the kernel if it is pending."""
        asked = self._look_up(interrupt_id)
        if asked is not None and asked.status == "pending":
            self._interrupts._withdraw(asked.id, reason)

    def _any_about(self, pid: str) -> bool:
        interrupts = self._interrupts
        return pid in interrupts.state.by_pid or bool(interrupts._open_questions(pid))

    def _clear_ended(self, session: Session) -> None:
        """Remove questions that have ended in the kernel: resolved, expired or cancelled."""
        pid = session.process_id
        for question in session.waiting:
            if not question.id or (question.token and pid in self._core.processes):  # its program gets the answer
                continue
            interrupt = self._look_up(question.id)
            if interrupt is not None and interrupt.status == "pending":
                continue
            if session.question(question.number) is None:
                continue  # the end of another question removed it
            if interrupt is not None and interrupt.status == "resolved" and interrupt.response is not None:
                self.over(pid, question, response_data(interrupt.response))
            else:
                reason = interrupt.reason if interrupt is not None else ""
                taken_back = interrupt is not None and interrupt.status == "cancelled"
                unanswered = reason or f"no answer to the {question.kind} came"
                self.over(pid, question, None, unanswered=unanswered, ends=not question.token and not taken_back)

    def _look_up(self, interrupt_id: str) -> Interrupt | None:
        try:
            return self._interrupts._find(interrupt_id)
        except NoSuchInterrupt:
            return None  # it was never in the kernel, or ended too long ago

    def _find_raised_outside(self, session: Session) -> Interrupt | None:
        """Return the oldest open question about the process that neither its program nor its session asked."""
        interrupts, pid = self._interrupts, session.process_id
        asked = {question.id for question in session.waiting}
        first = interrupts._oldest(pid)
        if first is None or (first.id in interrupts.state.by_id and first.id not in asked):
            return first
        raised = interrupts._open_questions(pid, outside=True)
        return next((interrupt for interrupt in raised if interrupt.id not in asked), None)

    def _ask_kernel(self, pid: str, question: Question) -> None:
        """Make a stage's question one of the kernel's, where the kernel knows the pid."""
        asked = question.interrupt
        self._asks = True
        try:
            interrupt = self._interrupts.create_interrupt(
                pid, question.kind, str(asked.get("message", "")), question=str(asked.get("question", ""))
            )
        except NoSuchProcess:
            return  # a session without a process: its envelope carries the question
        finally:
            self._asks = False
        row = {"interrupt": {**asked, **interrupt_data(interrupt)}, "question": question.number}
        self._orchestrator.fact(pid, "pipeline.waiting", row)


def _find_question(session: Session, given: Mapping[str, Any]) -> Question:
    """Return the open question that an answer is for: by its id, else by its text, else the oldest."""
    waiting = session.waiting
    if given.get("id"):
        known = [question for question in waiting if given["id"] in (question.id, question.interrupt.get("id"))]
        matching = known or [question for question in waiting if not question.id and not question.interrupt.get("id")]
        if not matching:
            raise InvalidTransition(
                f"pipeline {session.process_id} does not wait for interrupt {given['id']}",
                hint=f"it waits for {', '.join(question.id or question.kind for question in waiting)}",
                pid=session.process_id,
                id=given["id"],
            )
        return matching[0]
    fields = {name: given[name] for name in ("kind", "question", "message") if name in given}
    alike = [question for question in waiting if all(question.interrupt.get(name) == fields[name] for name in fields)]
    return (alike or waiting)[0]
