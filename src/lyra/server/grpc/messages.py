"""Envelopes, their bounds, and the events and results of runs.

Fields of an envelope that the contract has no place for (history, prior plans, errors …) stay in the kernel. Metadata
that is no text is JSON text on the way out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from lyra.core.envelope import BoundsResult, Envelope
from lyra.kernel.interrupts.interrupt import Answer, Interrupt
from lyra.kernel.pipelines.events import PipelineEvent
from lyra.kernel.pipelines.single_agent import AgentRun
from lyra.kernel.workers.entry import ProcessControlBlock
from lyra.kernel.workers.quota import QuotaResult, RemainingBudget, ResourceQuota, ResourceUsage, SystemUsage
from lyra.kernel.workers.rate_limits import RateLimitResult, RateLimitUsage
from lyra.server.generated import engine_pb2 as pb
from lyra.server.grpc.fields import (
    EVENT_TYPE,
    INTERRUPT_KIND,
    INTERRUPT_STATUS,
    PRIORITY,
    PROCESS_STATE,
    TERMINAL_REASON,
    int32,
    int64,
    json_bytes,
    json_mapping,
    json_value,
    milliseconds,
    seconds,
    text,
    texts,
)

_FIELDS: Final = pb.Envelope.DESCRIPTOR.fields
_TIMES: Final = ("received_at", "completed_at", "created_at")
_OWN_FORM: Final = {"terminal_reason", "interrupt", "outputs", "metadata_str", *(f"{name}_ms" for name in _TIMES)}
_LIKE: Final = frozenset(Envelope.__struct_fields__)
# Fields that are the same on both sides, by their form.
_SAME: Final = [field for field in _FIELDS if field.name not in _OWN_FORM and field.name in _LIKE]
_TEXTS: Final = [field.name for field in _SAME if field.type == field.TYPE_STRING and not field.is_repeated]
_INT32: Final = [field.name for field in _SAME if field.type == field.TYPE_INT32]
_INT64: Final = [field.name for field in _SAME if field.type == field.TYPE_INT64]
_FLAGS: Final = [field.name for field in _SAME if field.type == field.TYPE_BOOL]
_LISTS: Final = [field.name for field in _SAME if field.type == field.TYPE_STRING and field.is_repeated]
_MAPS: Final = [field.name for field in _SAME if field.type == field.TYPE_MESSAGE]


# ------------------------------------------------------------------ out
def envelope_message(envelope: Envelope) -> pb.Envelope:
    message = pb.Envelope(
        outputs={text(name): json_bytes(output) for name, output in envelope.outputs.items()},
        metadata_str=texts(envelope.metadata),
        terminal_reason=TERMINAL_REASON.number(envelope.terminal_reason),
    )
    for name in _TIMES:
        setattr(message, f"{name}_ms", milliseconds(getattr(envelope, name)))
    for name in _TEXTS:
        setattr(message, name, text(getattr(envelope, name)))
    for name in _INT32:
        setattr(message, name, int32(getattr(envelope, name) or 0))
    for name in _INT64:
        setattr(message, name, int64(getattr(envelope, name) or 0))
    for name in _FLAGS:
        setattr(message, name, bool(getattr(envelope, name)))
    for name in _LISTS:
        getattr(message, name).extend(map(text, getattr(envelope, name)))
    for name in _MAPS:
        shown = getattr(message, name)
        for key, value in getattr(envelope, name).items():
            shown[text(key)] = value if isinstance(value, bool) else text(value)
    if envelope.interrupt is not None:
        message.interrupt.CopyFrom(question_message(envelope.interrupt, pending=envelope.interrupt_pending))
    return message


def bounds_message(bounds: BoundsResult) -> pb.BoundsResult:
    left_in, left_out = bounds.tokens_in_remaining, bounds.tokens_out_remaining
    return pb.BoundsResult(
        can_continue=bounds.can_continue,
        terminal_reason=TERMINAL_REASON.number(bounds.terminal_reason),
        llm_calls_remaining=int32(bounds.llm_calls_remaining),
        agent_hops_remaining=int32(bounds.agent_hops_remaining),
        iterations_remaining=int32(bounds.iterations_remaining),
        tokens_in_remaining=None if left_in is None else int64(left_in),
        tokens_out_remaining=None if left_out is None else int64(left_out),
    )


def agent_result_message(run: AgentRun) -> pb.AgentResult:
    return pb.AgentResult(
        success=run.success,
        output=json_bytes(run.output),
        error=text(run.error),
        duration_ms=int32(run.duration_ms),
        llm_calls=int32(run.llm_calls),
        envelope=envelope_message(run.envelope),
    )


def event_message(event: PipelineEvent, now: float) -> pb.ExecutionEvent | None:
    """An event of a pipeline; None for one that the contract has no type for."""
    number = EVENT_TYPE.number(event.type)
    if not number:
        return None
    facts = {name: value for name, value in event.data.items() if name != "seq"}
    return pb.ExecutionEvent(
        type=number,
        stage=text(event.stage),
        timestamp_ms=milliseconds(now),
        payload=json_bytes({"pid": event.pid, **facts}),
        envelope=envelope_message(event.envelope),
    )


# ------------------------------------------------------------------ in
def envelope_fields(message: pb.Envelope) -> dict[str, Any]:
    """The fields of an envelope that a message gives; those at their default are left out."""
    given: dict[str, Any] = {}
    for field, value in message.ListFields():
        name = field.name
        if name in _TEXTS or name in _INT32 or name in _INT64 or name in _FLAGS:
            given[name] = value
        elif name in _LISTS:
            given[name] = list(value)
        elif name in _MAPS:
            given[name] = dict(value)
        elif name == "terminal_reason":
            given[name] = TERMINAL_REASON.word(value)
        elif name == "interrupt":
            given[name] = interrupt_fields(value)
        elif name == "outputs":
            given[name] = {key: json_mapping(output, f"outputs.{key}") or {} for key, output in value.items()}
        elif name == "metadata_str":
            given["metadata"] = dict(value)
        elif name.removesuffix("_ms") in _TIMES:
            given[name.removesuffix("_ms")] = seconds(value)
    return given


def changed_fields(given: Mapping[str, Any], held: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the given fields, and of mappings those keys, that differ from what an envelope holds: a client may send
    back what it was given, with its times in milliseconds and its metadata as text."""
    changed: dict[str, Any] = {}
    for name, value in given.items():
        before = held.get(name)
        if isinstance(value, dict) and isinstance(before, Mapping) and name != "interrupt":
            items = {key: item for key, item in value.items() if key not in before or before[key] != item}
            if items:
                changed[name] = items
        elif value != before:
            changed[name] = value
    return changed


def json_envelope(data: bytes) -> dict[str, Any] | None:
    """An envelope in bytes: JSON with the kernel's field names."""
    value = json_value(data, "envelope")
    if isinstance(value, str):
        return {"raw_input": value}
    return json_mapping(data, "envelope")


# ---------------------------------------------------------------- processes
# Processes, quotas, usage, rates.

_QUOTA: Final = tuple(field.name for field in pb.ResourceQuota.DESCRIPTOR.fields)
_USAGE: Final = tuple(field.name for field in pb.ResourceUsage.DESCRIPTOR.fields if field.name != "elapsed_seconds")
_AMOUNTS: Final = tuple(field.name for field in pb.RecordUsageRequest.DESCRIPTOR.fields if field.name != "pid")
_REMAINING: Final = tuple(
    field.name for field in pb.RemainingBudget.DESCRIPTOR.fields if field.name != "time_remaining_seconds"
)
_NOTHING_USED: Final = ResourceUsage()
_last_quota: Final[dict[str, Any]] = {"quota": None, "message": None}


def quota_message(quota: ResourceQuota) -> pb.ResourceQuota:
    """The message of a quota; most processes share the default, whose message is made once."""
    if quota is not _last_quota["quota"]:
        message = pb.ResourceQuota(**{name: int32(getattr(quota, name)) for name in _QUOTA})
        _last_quota.update(quota=quota, message=message)
    shared: pb.ResourceQuota = _last_quota["message"]
    return shared


def quota_fields(message: pb.ResourceQuota) -> dict[str, int]:
    """The fields that were given; those left out, or 0, take the kernel's defaults."""
    return {field.name: value for field, value in message.ListFields()}


def usage_message(usage: ResourceUsage | SystemUsage) -> pb.ResourceUsage:
    """Return what one process, one user or all have used; only a process has a time."""
    message = pb.ResourceUsage(elapsed_seconds=getattr(usage, "elapsed_seconds", 0.0))
    for name in _USAGE:
        amount = getattr(usage, name)
        if amount:
            setattr(message, name, int32(amount))
    return message


def usage_amounts(request: pb.RecordUsageRequest) -> dict[str, int]:
    return {name: amount for name in _AMOUNTS if (amount := getattr(request, name))}


def process_message(block: ProcessControlBlock) -> pb.ProcessControlBlock:
    message = pb.ProcessControlBlock()
    fill_process(message, block)
    return message


def fill_process(message: pb.ProcessControlBlock, block: ProcessControlBlock) -> None:
    """Write a process into an empty message. Lists have thousands: a field at its default is not set."""
    message.pid = text(block.pid)
    message.state = PROCESS_STATE.numbers[block.state]
    message.priority = PRIORITY.numbers[block.priority]
    message.created_at_ms = int((block.created_at or 0.0) * 1000)
    message.quota.CopyFrom(quota_message(block.quota))
    if block.usage == _NOTHING_USED:
        message.usage.SetInParent()
    else:
        message.usage.CopyFrom(usage_message(block.usage))
    if block.user_id:
        message.user_id = text(block.user_id)
    if block.request_id or block.session_id:
        message.request_id, message.session_id = text(block.request_id), text(block.session_id)
    if block.started_at is not None or block.completed_at is not None:
        message.started_at_ms = milliseconds(block.started_at)
        message.completed_at_ms = milliseconds(block.completed_at)
        message.last_scheduled_at_ms = milliseconds(block.last_scheduled_at)
    if block.current_stage or block.current_service or block.parent_pid:
        message.current_stage, message.current_service = text(block.current_stage), text(block.current_service)
        message.parent_pid = text(block.parent_pid)
    if block.pending_interrupt is not None or block.interrupt_data is not None:
        message.pending_interrupt = text(block.pending_interrupt or "")
        message.interrupt_data = json_bytes(block.interrupt_data)
    if block.child_pids:
        message.child_pids.extend(map(text, block.child_pids))


def quota_result_message(result: QuotaResult) -> pb.QuotaResult:
    return pb.QuotaResult(
        within_bounds=result.within_bounds,
        exceeded_reason=result.exceeded_reason,
        usage=usage_message(result.usage),
        quota=quota_message(result.quota),
    )


def rate_limit_message(result: RateLimitResult) -> pb.RateLimitResult:
    return pb.RateLimitResult(
        allowed=result.allowed,
        exceeded=result.exceeded,
        reason=text(result.reason),
        limit_type=result.limit_type,
        current_count=int32(result.current_count),
        limit=int32(result.limit),
        retry_after_seconds=result.retry_after_seconds,
        remaining=int32(result.remaining),
    )


def rate_usage_message(usage: RateLimitUsage) -> pb.RateLimitUsage:
    return pb.RateLimitUsage(minute=int32(usage.minute), hour=int32(usage.hour), day=int32(usage.day))


def remaining_message(budget: RemainingBudget) -> pb.RemainingBudget:
    message = pb.RemainingBudget(time_remaining_seconds=budget.time_remaining_seconds)
    for field in pb.RemainingBudget.DESCRIPTOR.fields:
        if field.name in _REMAINING:
            fit = int32 if field.type == field.TYPE_INT32 else int64
            setattr(message, field.name, fit(getattr(budget, field.name)))
    return message


# ---------------------------------------------------------------- interrupts
# Questions to people, and their answers. In the kernel a question is an `Interrupt`, in an envelope a mapping.

_INTERRUPT_TEXTS: Final = (
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
_INTERRUPT_TIMES: Final = ("created_at", "expires_at", "resolved_at")
_YES_OR_NO: Final = "confirmation"  # of these, `approved` left out is a no


# ------------------------------------------------------------------ out
def interrupt_message(interrupt: Interrupt) -> pb.FlowInterrupt:
    message = pb.FlowInterrupt(
        kind=INTERRUPT_KIND.number(interrupt.kind),
        status=INTERRUPT_STATUS.number(interrupt.status),
        data=json_bytes(interrupt.data),
    )
    for name in _INTERRUPT_TEXTS:
        setattr(message, name, text(getattr(interrupt, name)))
    for name in _INTERRUPT_TIMES:
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
    for name in _INTERRUPT_TEXTS:
        if isinstance(question.get(name), str):
            setattr(message, name, text(question[name]))
    for name in _INTERRUPT_TIMES:
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
    question: dict[str, Any] = {name: value for name in _INTERRUPT_TEXTS if (value := getattr(message, name))}
    if message.kind:
        question["kind"] = INTERRUPT_KIND.word(message.kind)
    if message.status:
        question["status"] = INTERRUPT_STATUS.word(message.status)
    if message.data:
        question["data"] = json_value(message.data, "interrupt.data")
    for name in _INTERRUPT_TIMES:
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
