"""Questions to people, and their answers. In the kernel a question is an `Interrupt`, in an envelope a mapping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lyra.kernel.interrupts.interrupt import Answer, Interrupt
from lyra.server.generated import engine_pb2 as pb
from lyra.server.grpc.messages.enums import INTERRUPT_KIND, INTERRUPT_STATUS
from lyra.server.grpc.messages.fields import json_bytes, json_value, milliseconds, seconds, text

_TEXTS: Final = (
    "id",
    "request_id",
    "user_id",
    "session_id",
    "envelope_id",
    "question",
    "message",
    "trace_id",
    "span_id",
    "pid",
)
_TIMES: Final = ("created_at", "expires_at", "resolved_at")
_YES_OR_NO: Final = "confirmation"  # of these, `approved` left out is a no


# ------------------------------------------------------------------ out
def interrupt_message(interrupt: Interrupt) -> pb.FlowInterrupt:
    message = pb.FlowInterrupt(
        kind=INTERRUPT_KIND.number(interrupt.kind),
        status=INTERRUPT_STATUS.number(interrupt.status),
        data=json_bytes(interrupt.data),
    )
    for name in _TEXTS:
        setattr(message, name, text(getattr(interrupt, name)))
    for name in _TIMES:
        setattr(message, f"{name}_ms", milliseconds(getattr(interrupt, name)))
    if interrupt.response is not None:
        message.response.CopyFrom(_answer_message(interrupt.response))
    return message


def _answer_message(answer: Answer) -> pb.InterruptResponse:
    return pb.InterruptResponse(
        text=text(answer.text),
        approved=answer.approved is True,
        decision=text(answer.decision),
        data=json_bytes(answer.data),
        resolved_at_ms=milliseconds(answer.received_at),
    )


def question_message(question: Mapping[str, Any], *, pending: bool) -> pb.FlowInterrupt:
    """The question of an envelope; a field that does not fit its place in the contract is left out."""
    status = question.get("status") or ("pending" if pending else "resolved")
    message = pb.FlowInterrupt(
        kind=INTERRUPT_KIND.number(_word(question.get("kind"))),
        status=INTERRUPT_STATUS.number(_word(status)),
        data=json_bytes(question.get("data")),
    )
    for name in _TEXTS:
        if isinstance(question.get(name), str):
            setattr(message, name, text(question[name]))
    for name in _TIMES:
        setattr(message, f"{name}_ms", milliseconds(_number(question.get(name))))
    response = question.get("response")
    if isinstance(response, Mapping):
        message.response.text = text(response.get("text") or "")
        message.response.approved = response.get("approved") is True
        message.response.decision = text(response.get("decision") or "")
        message.response.data = json_bytes(response.get("data"))
        message.response.resolved_at_ms = milliseconds(_number(response.get("received_at")))
    return message


def _word(value: Any) -> str | None:
    return value.lower() if isinstance(value, str) else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) else None


# ------------------------------------------------------------------ in
def interrupt_fields(message: pb.FlowInterrupt) -> dict[str, Any]:
    """The question of an envelope as the kernel keeps it."""
    question: dict[str, Any] = {name: value for name in _TEXTS if (value := getattr(message, name))}
    if message.kind:
        question["kind"] = INTERRUPT_KIND.word(message.kind)
    if message.status:
        question["status"] = INTERRUPT_STATUS.word(message.status)
    if message.data:
        question["data"] = json_value(message.data, "interrupt.data")
    for name in _TIMES:
        moment = seconds(getattr(message, f"{name}_ms"))
        if moment is not None:
            question[name] = moment
    if message.HasField("response"):
        question["response"] = answer_fields(message.response, str(question.get("kind", "")))
    return question


def answer_fields(message: pb.InterruptResponse, kind: str) -> dict[str, Any]:
    """An answer to a question of that kind. The contract cannot tell a no from an answer that was left out: for a
    confirmation it is a no."""
    approved = True if message.approved else False if kind == _YES_OR_NO else None
    return {
        "text": message.text,
        "approved": approved,
        "decision": message.decision,
        "data": json_value(message.data, "response.data"),
    }
