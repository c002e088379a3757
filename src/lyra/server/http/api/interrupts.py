"""Interrupts: questions to a person, listed, answered and taken back by the user that they are for."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lyra.kernel.interrupts.interrupt import Interrupt, InterruptStatus
from lyra.server.http.endpoint import Endpoint, HttpCall, RequestBody, RequestQuery
from lyra.server.owners import interrupt_owner, require_question


class GivenAnswer(msgspec.Struct):
    text: str
    approved: bool | None
    decision: str
    data: Any
    received_at: float | None


class InterruptView(msgspec.Struct, kw_only=True):
    """A question; `response` is set once it is answered."""

    id: str
    pid: str
    kind: str
    question: str
    message: str
    status: str
    user_id: str
    session_id: str
    request_id: str
    created_at: float
    expires_at: float | None
    resolved_at: float | None
    data: Any
    reason: str
    response: GivenAnswer | None


class InterruptList(msgspec.Struct):
    interrupts: list[InterruptView]


class InterruptQuery(RequestQuery):
    status: InterruptStatus | None = None
    pid: str = ""


class AnswerBody(RequestBody):
    """What the person says; a question in doubt wants `decision`: retry, skip or fail."""

    text: str = ""
    approved: bool | None = None
    decision: str = ""
    data: Any = None


class ReasonBody(RequestBody):
    reason: str = "cancelled"


def _view(call: HttpCall, interrupt: Interrupt) -> InterruptView:
    names = [name for name in InterruptView.__struct_fields__ if name not in ("user_id", "response")]
    given = interrupt.response
    return InterruptView(
        **{name: getattr(interrupt, name) for name in names},
        user_id=interrupt_owner(call.kernel, interrupt),
        response=None if given is None else GivenAnswer(**msgspec.structs.asdict(given)),
    )


def _require(call: HttpCall) -> Interrupt:
    return require_question(call.kernel, call.caller, call.path["interrupt_id"])


async def list_interrupts(call: HttpCall) -> InterruptList:
    query: InterruptQuery = call.query
    asked = call.kernel.interrupts.list_interrupts(query.pid or None, status=query.status)
    return InterruptList([_view(call, row) for row in asked if call.caller.owns(interrupt_owner(call.kernel, row))])


async def get_interrupt(call: HttpCall) -> InterruptView:
    return _view(call, _require(call))


async def answer(call: HttpCall) -> InterruptView:
    interrupt, body = _require(call), call.body
    response = {"text": body.text, "approved": body.approved, "decision": body.decision, "data": body.data}
    await call.kernel.resolve_interrupt(interrupt.id, response)
    return _view(call, call.kernel.interrupts.get_interrupt(interrupt.id))


async def cancel(call: HttpCall) -> InterruptView:
    interrupt = _require(call)
    return _view(call, await call.kernel.interrupts.cancel_interrupt(interrupt.id, call.body.reason))


_PATH: Final = "/api/interrupts/{interrupt_id}"

ENDPOINTS: Final = (
    Endpoint(
        "interrupts.list",
        "GET",
        "/api/interrupts",
        "The questions to the caller, the oldest first",
        list_interrupts,
        query=InterruptQuery,
        answer=InterruptList,
    ),
    Endpoint("interrupts.get", "GET", _PATH, "One question", get_interrupt, answer=InterruptView, statuses=(404,)),
    Endpoint(
        "interrupts.answer",
        "POST",
        f"{_PATH}/answer",
        "Answer a question; what waits for it goes on",
        answer,
        body=AnswerBody,
        answer=InterruptView,
        statuses=(404, 409),
    ),
    Endpoint(
        "interrupts.cancel",
        "POST",
        f"{_PATH}/cancel",
        "Take a question back",
        cancel,
        body=ReasonBody,
        answer=InterruptView,
        statuses=(404, 409),
    ),
)
