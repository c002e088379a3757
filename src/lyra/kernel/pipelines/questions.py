"""A pipeline and the questions that hold it up: those its stages ask, and the kernel's own about its process.

A stage that leads to a question leaves it in the session, and its branch waits; each branch may ask. Where the kernel
knows the pid it becomes one of the kernel's, with an id and a time to live, and the answer is found there; otherwise
the session alone carries it, and whoever drives the pipeline answers with `resume`. A pipeline that this kernel runs
asks by itself (`pipeline_runner`). What an answer means is `pipeline_moves`' to say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from lyra.errors import InvalidTransition, NoSuchInterrupt, NoSuchProcess
from lyra.kernel.interrupts.service import Interrupt
from lyra.kernel.pipelines.instruction import interrupt_data, response_data
from lyra.kernel.pipelines.session import Question, Session

if TYPE_CHECKING:
    from lyra.kernel.base.core import Core
    from lyra.kernel.interrupts.service import InterruptService
    from lyra.kernel.pipelines.orchestrator import Orchestrator
    from lyra.kernel.process.process import Process

__all__ = ["Questions"]

NOBODY_WAITS: Final = "nobody waits for the answer any more"


class Questions:
    def __init__(self, core: Core[Process], interrupts: InterruptService, orchestrator: Orchestrator) -> None:
        self._core = core
        self._interrupts = interrupts
        self._orchestrator = orchestrator

    def hold_up(self, session: Session) -> bool:
        """Whether a question about the whole session is open; those that are over are cleared first, new ones noted."""
        pid = session.process_id
        if not session.waiting and not self._any_about(pid):
            return False
        raised = self._raised_outside(session)  # looked at first: it may be over by now, and looking says so
        self._clear_ended(session)
        if session.terminated:
            return True
        if raised is not None and not session.held_up:
            self._orchestrator.fact(pid, "pipeline.waiting", {"interrupt": interrupt_data(raised), "question": 0})
        if pid not in self._core.processes:  # else its program asks
            for question in [each for each in session.waiting if each.token and not each.id]:
                self._ask_kernel(pid, question)
        return session.held_up

    def resume(self, session: Session, interrupt: Any, response: Any) -> None:
        """A question was answered: here, and where it is one of the kernel's, there too."""
        pid = session.process_id
        if session.terminated or not session.waiting:
            raise InvalidTransition(f"pipeline {pid} has no pending interrupt to resume", pid=pid)
        given = interrupt_data(interrupt) if interrupt is not None else {}
        question = _meant(session, given)
        answer = response_data(response)
        asked = self._known(question.id) if question.id else None
        if asked is not None and asked.status == "pending":
            said = {name: value for name, value in answer.items() if value is not None}
            self._interrupts.resolve(asked.id, said)
        self.over(pid, question, answer, given)

    def over(
        self,
        pid: str,
        question: Question,
        response: dict[str, Any] | None,
        given: Mapping[str, Any] | None = None,
        *,
        unanswered: str = "",
    ) -> None:
        """`unanswered`: why there is no response."""
        interrupt = {**question.interrupt, **(given or {})}
        interrupt.pop("response", None)
        row = {"interrupt": interrupt, "response": response, "question": question.number}
        self._orchestrator.fact(pid, "pipeline.resumed", {**row, **({"unanswered": unanswered} if unanswered else {})})

    def still_open(self, session: Session) -> list[Question]:
        """Those that nobody has answered yet, here or where the kernel has them."""
        known = [(question, self._known(question.id) if question.id else None) for question in session.waiting]
        return [question for question, found in known if found is None or found.status == "pending"]

    def known_as(self, pid: str, number: int, interrupt_id: str) -> None:
        """The program of a pipeline asked: the kernel has the question under this id."""
        session = self._orchestrator.state.sessions.get(pid)
        question = session.question(number) if session is not None else None
        if question is None:
            self._interrupts.cancel(interrupt_id, NOBODY_WAITS)
        elif question.id != interrupt_id:
            row = {"interrupt": {**question.interrupt, "id": interrupt_id}, "question": number}
            self._orchestrator.fact(pid, "pipeline.waiting", row)

    def take_back(self, before: Iterable[Question], after: Iterable[Question]) -> None:
        """Questions whose branch is over, or whose session is, are no longer put to anybody."""
        left = {question.id for question in after}
        for question in before:
            if question.token and question.id and question.id not in left:
                self.withdraw(question.id, NOBODY_WAITS)

    def withdraw(self, interrupt_id: str, reason: str) -> None:
        """Nobody is to answer it any more."""
        asked = self._known(interrupt_id)
        if asked is not None and asked.status == "pending":
            self._interrupts.cancel(asked.id, reason)

    def _any_about(self, pid: str) -> bool:
        interrupts = self._interrupts
        return pid in interrupts.state.by_pid or bool(interrupts.pending(pid))

    def _clear_ended(self, session: Session) -> None:
        """Questions that the kernel knows by their ids and that are over: resolved, expired or cancelled."""
        pid = session.process_id
        for question in session.waiting:
            if not question.id or (question.token and pid in self._core.processes):  # its program gets the answer
                continue
            found = self._known(question.id)
            if found is not None and found.status == "pending":
                continue
            if session.question(question.number) is None:
                continue  # the end of another one took it back
            if found is not None and found.status == "resolved" and found.response is not None:
                self.over(pid, question, response_data(found.response))
            else:
                reason = found.reason if found is not None else ""
                self.over(pid, question, None, unanswered=reason or f"nobody answered the {question.kind}")

    def _known(self, interrupt_id: str) -> Interrupt | None:
        try:
            return self._interrupts.get(interrupt_id)
        except NoSuchInterrupt:
            return None  # never one of the kernel's, or ended so long ago that nobody remembers it

    def _raised_outside(self, session: Session) -> Interrupt | None:
        """The oldest open question about the process that neither its program nor its session asked."""
        interrupts, pid = self._interrupts, session.process_id
        asked = {question.id for question in session.waiting}
        first = interrupts.get_pending_interrupt(pid)
        if first is None or (first.id in interrupts.state.by_id and first.id not in asked):
            return first
        pending = interrupts.list_interrupts(pid, status="pending")
        return next((one for one in pending if one.id in interrupts.state.by_id and one.id not in asked), None)

    def _ask_kernel(self, pid: str, question: Question) -> None:
        """A stage led to a question: make it one of the kernel's, where the kernel knows the pid."""
        asked = question.interrupt
        try:
            made = self._interrupts.create_interrupt(
                pid, question.kind, str(asked.get("message", "")), question=str(asked.get("question", ""))
            )
        except NoSuchProcess:
            return  # a session without a process: its envelope carries the question
        row = {"interrupt": {**asked, **interrupt_data(made)}, "question": question.number}
        self._orchestrator.fact(pid, "pipeline.waiting", row)


def _meant(session: Session, given: Mapping[str, Any]) -> Question:
    """The open question that an answer is for: by its id, else by what is asked, else the oldest."""
    waiting = session.waiting
    if given.get("id"):
        known = [each for each in waiting if given["id"] in (each.id, each.interrupt.get("id"))]
        found = known or [each for each in waiting if not each.id and not each.interrupt.get("id")]
        if not found:
            raise InvalidTransition(
                f"pipeline {session.process_id} does not wait for interrupt {given['id']}",
                hint=f"it waits for {', '.join(each.id or each.kind for each in waiting)}",
                pid=session.process_id,
                id=given["id"],
            )
        return found[0]
    said = {name: given[name] for name in ("kind", "question", "message") if name in given}
    alike = [each for each in waiting if all(each.interrupt.get(name) == said[name] for name in said)]
    return (alike or waiting)[0]
