"""The open questions of a thread as interrupts of AG-UI, and the resume entries of a run as their answers.

A run that continues answers every open interrupt once and no other, as the protocol says. Calls of the front end's own
tools are open questions to the kernel, too; for the protocol they are no interrupts (`QuestionsToPage.calls`).
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lyra.agents.session.shared import questions_below
from lyra.agents.session.toolset import client_answer, client_call_id
from lyra.errors import ConfigError, InvalidTransition
from lyra.kernel.interrupts.interrupt import DECISIONS_IN_DOUBT, KINDS, Answer, Interrupt
from lyra.server.protocols.agui.input import agui_types, tool_output
from lyra.tools.permissions.decision import ANSWERS

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel


_NO_RESULT: Final = "the front end gave no result"
_FIELDS: Final = ("text", "approved", "decision", "data")
_SCHEMAS: Final[dict[str, dict[str, Any]]] = {
    "confirmation": {
        "type": "object",
        "properties": {
            "approved": {"type": "boolean"},
            "decision": {"type": "string", "enum": list(ANSWERS)},
            "text": {"type": "string"},
            "data": {"type": "object", "properties": {"arguments": {"type": "object"}}},
        },
    },
    "in_doubt": {
        "type": "object",
        "properties": {"decision": {"type": "string", "enum": list(DECISIONS_IN_DOUBT)}, "data": {}},
        "required": ["decision"],
    },
}
_ANY_ANSWER: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "approved": {"type": "boolean"}, "data": {}},
}


class QuestionsToPage(NamedTuple):
    """What a thread waits for."""

    interrupts: list[Interrupt]  # a person has to answer
    calls: dict[str, Interrupt]  # by the id of the tool call that the front end has to run

    @property
    def total(self) -> int:
        return len(self.interrupts) + len(self.calls)


def open_questions(kernel: Kernel, pid: str) -> QuestionsToPage:
    """Return the open questions of a process and of those below it."""
    interrupts: list[Interrupt] = []
    calls: dict[str, Interrupt] = {}
    for interrupt in questions_below(kernel, pid):
        call_id = client_call_id(interrupt)
        if call_id:
            calls[call_id] = interrupt
        else:
            interrupts.append(interrupt)
    return QuestionsToPage(interrupts, calls)


async def answer_interrupts(kernel: Kernel, interrupts: list[Interrupt], entries: Iterable[Any]) -> None:
    """Answer the interrupts of a thread; InvalidTransition where the entries do not cover them exactly."""
    entries_by_id: dict[str, Any] = {}
    for entry in entries:
        if entry.interrupt_id in entries_by_id:
            raise InvalidTransition(f"the interrupt {entry.interrupt_id[:80]!r} is answered twice")
        entries_by_id[entry.interrupt_id] = entry
    known = {interrupt.id for interrupt in interrupts}
    unknown = [interrupt_id for interrupt_id in entries_by_id if interrupt_id not in known]
    if unknown:
        raise InvalidTransition(f"no open interrupt {unknown[0][:80]!r} in this thread")
    left = [interrupt_id for interrupt_id in known if interrupt_id not in entries_by_id]
    if left:
        raise InvalidTransition(
            f"{len(left)} open interrupts have no answer", hint=f"a run resumes all of them: {', '.join(sorted(left))}"
        )
    answers = {interrupt.id: _answer(interrupt, entries_by_id[interrupt.id]) for interrupt in interrupts}
    for interrupt_id, answer in answers.items():  # all of them are valid by now
        if answer is None:
            await kernel.interrupts.cancel_interrupt(interrupt_id, "cancelled in the front end")
        else:
            await kernel.resolve_interrupt(interrupt_id, answer)


def _answer(interrupt: Interrupt, entry: Any) -> Answer | None:
    """Return the answer that an entry gives; None where the question is to be cancelled."""
    if entry.status == "cancelled":
        return Answer(approved=False) if interrupt.kind == "confirmation" else None
    answer = Answer.of(_fields(interrupt, entry.payload))
    if interrupt.kind == "in_doubt" and answer.decision not in DECISIONS_IN_DOUBT:
        raise ConfigError(f"the answer is one of {', '.join(DECISIONS_IN_DOUBT)}", key="resume")
    if answer.empty and KINDS[interrupt.kind].require_response:
        raise ConfigError(f"the answer to {interrupt.id} is empty", key="resume")
    return answer


def _fields(interrupt: Interrupt, payload: Any) -> dict[str, Any]:
    if isinstance(payload, bool):
        return {"approved": payload}
    if isinstance(payload, str):
        is_word = payload in (ANSWERS if interrupt.kind == "confirmation" else DECISIONS_IN_DOUBT)
        return {"decision": payload} if is_word and interrupt.kind in _SCHEMAS else {"text": payload}
    if isinstance(payload, Mapping) and payload and set(payload) <= set(_FIELDS):
        return dict(payload)
    return {"data": payload}


async def answer_calls(kernel: Kernel, calls: Mapping[str, Interrupt], messages: Mapping[str, Any]) -> None:
    """Give the results of the front end's tools to the calls that wait for them; one without a result fails."""
    for call_id, interrupt in calls.items():
        message = messages.get(call_id)
        if message is None:
            await kernel.resolve_interrupt(interrupt.id, client_answer("", _NO_RESULT))
        else:
            await kernel.resolve_interrupt(interrupt.id, client_answer(tool_output(message), message.error or ""))


def interrupt_of(interrupt: Interrupt, call_id: str) -> Any:
    """Return the interrupt in the form of the protocol."""
    expires_at = interrupt.due
    return agui_types().Interrupt(
        id=interrupt.id,
        reason=f"lyra:{interrupt.kind}",
        message=f"{interrupt.question}\n{interrupt.message}".strip(),
        tool_call_id=call_id or None,
        response_schema=_SCHEMAS.get(interrupt.kind, _ANY_ANSWER),
        expires_at=None if expires_at is None else _iso(expires_at),
    )


def _iso(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat()
