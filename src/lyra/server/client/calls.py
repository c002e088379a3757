"""The table of the kernel's methods over gRPC: the RPC of each, its parameters, and what of the answer is its value.

A parameter is written as the kernel names it, and `=field` where the contract has another name; those before `|` are
required. `may_repeat` marks calls that can be made again when the connection broke: they change nothing, or the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from inspect import Parameter, Signature
from typing import Any, Final

import msgspec

from lyra.errors import EffectFailed, NoSuchProcess


class RemoteCall(msgspec.Struct, frozen=True, dict=True):
    """One method."""

    rpc: str
    parameters: str = ""
    gives: str = ""  # a field of the answer; empty: all of it; `nothing`: None
    may_repeat: bool = False
    is_stream: bool = False
    is_long: bool = False  # has no deadline unless one is asked for
    arrange: Callable[[dict[str, Any]], Any] | None = None  # changes the fields before they are sent
    none_for: type[Exception] | None = None  # this error means that there is nothing

    @cached_property
    def fields(self) -> dict[str, str]:
        """The field of each parameter, in order."""
        words = self.parameters.replace("|", " ").split()
        return {name: field or name for name, _, field in (word.partition("=") for word in words)}

    @cached_property
    def signature(self) -> Signature:
        required, _, optional = self.parameters.partition("|")
        kind = Parameter.POSITIONAL_OR_KEYWORD
        parameters = [Parameter(word.partition("=")[0], kind) for word in required.split()]
        parameters += [Parameter(word.partition("=")[0], kind, default=None) for word in optional.split()]
        return Signature(parameters)

    def request_fields(self, args: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        """The fields of the request for these arguments; TypeError where they do not fit."""
        given = self.signature.bind(*args, **options).arguments
        fields = {self.fields[name]: value for name, value in given.items() if value is not None}
        return fields if self.arrange is None else self.arrange(fields)

    def value_in(self, answer: Any) -> Any:
        """The method's value in an answer; an answer that tells of a failure is raised."""
        if isinstance(answer, dict) and answer.get("success") is False and self.gives:
            raise EffectFailed(answer["error"] or f"{self.rpc} failed")
        if not self.gives:
            return answer
        return None if self.gives == "nothing" else answer[self.gives]


def _dispatch(fields: dict[str, Any]) -> dict[str, Any]:
    request = fields.pop("request", None)
    if request is None:
        return fields
    if not isinstance(request, Mapping):
        request = {name: getattr(request, name) for name in ("pid", "envelope", "metadata") if hasattr(request, name)}
    return {**fields, **{name: value for name, value in request.items() if value}}


def _report(fields: dict[str, Any]) -> dict[str, Any]:
    result = dict(fields.pop("result"))
    result.setdefault("success", not result.get("error"))
    return {**fields, **result}


def _milliseconds(fields: dict[str, Any]) -> dict[str, Any]:
    return {**fields, "timeout_ms": fields["timeout_ms"] * 1000} if "timeout_ms" in fields else fields


def _counted(fields: dict[str, Any]) -> dict[str, Any]:
    return {"record": True, **fields}


_USAGE: Final = "llm_calls tool_calls agent_hops tokens_in tokens_out inference_requests inference_input_chars"

CALLS: Final[dict[str, RemoteCall]] = {
    # processes
    "submit": RemoteCall(
        "KernelService/CreateProcess", "pid | request_id user_id session_id priority quota", may_repeat=True
    ),
    "get_process": RemoteCall("KernelService/GetProcess", "pid", may_repeat=True),
    "schedule": RemoteCall("KernelService/ScheduleProcess", "pid"),
    "get_next_runnable": RemoteCall("KernelService/GetNextRunnable", none_for=NoSuchProcess),
    "transition_state": RemoteCall("KernelService/TransitionState", "pid state=new_state | reason"),
    "terminate": RemoteCall("KernelService/TerminateProcess", "pid | reason force", may_repeat=True),
    "check_quota": RemoteCall("KernelService/CheckQuota", "pid", may_repeat=True),
    "record_usage": RemoteCall("KernelService/RecordUsage", f"pid | {_USAGE}"),
    "check_rate_limit": RemoteCall("KernelService/CheckRateLimit", "user=user_id | endpoint record", arrange=_counted),
    "list_processes": RemoteCall("KernelService/ListProcesses", "| state user_id", gives="processes", may_repeat=True),
    "get_process_counts": RemoteCall("KernelService/GetProcessCounts", may_repeat=True),
    # envelopes and runs
    "create_envelope": RemoteCall(
        "EngineService/CreateEnvelope", "| raw_input user_id session_id request_id metadata stage_order"
    ),
    "update_envelope": RemoteCall("EngineService/UpdateEnvelope", "envelope"),
    "clone_envelope": RemoteCall("EngineService/CloneEnvelope", "envelope"),
    "check_bounds": RemoteCall(
        "EngineService/CheckBounds", "envelope", arrange=lambda fields: fields["envelope"], may_repeat=True
    ),
    "execute_pipeline": RemoteCall(
        "EngineService/ExecutePipeline", "config=pipeline_config | envelope pid=thread_id", is_stream=True, is_long=True
    ),
    "execute_agent": RemoteCall(
        "EngineService/ExecuteAgent", "name=agent_name | envelope config=agent_config", is_long=True
    ),
    # pipelines whose agents run in the caller
    "initialize_orchestration": RemoteCall(
        "OrchestrationService/InitializeSession", "pid=process_id config=pipeline_config | envelope force"
    ),
    "get_next_instruction": RemoteCall(
        "OrchestrationService/GetNextInstruction",
        "pid=process_id | worker=worker_id lease_s=lease_seconds",
        may_repeat=True,
    ),
    "report_agent_result": RemoteCall(
        "OrchestrationService/ReportAgentResult", "pid=process_id result", arrange=_report, may_repeat=True
    ),
    "get_orchestration_state": RemoteCall("OrchestrationService/GetSessionState", "pid=process_id", may_repeat=True),
    # the message bus
    "publish": RemoteCall("CommBusService/Publish", "type=event_type | payload", gives="nothing"),
    "send": RemoteCall("CommBusService/Send", "type=command_type | payload", gives="nothing"),
    "query": RemoteCall(
        "CommBusService/Query",
        "type=query_type | payload timeout_s=timeout_ms",
        gives="result",
        arrange=_milliseconds,
        is_long=True,
    ),
    "subscribe": RemoteCall("CommBusService/Subscribe", "types=event_types", is_stream=True, is_long=True),
    # the state of the system, questions, services
    "get_system_status": RemoteCall("SystemService/GetSystemStatus", may_repeat=True),
    "get_request_status": RemoteCall("SystemService/GetRequestStatus", "pid", may_repeat=True),
    "create_interrupt": RemoteCall(
        "SystemService/CreateInterrupt", "pid kind | message question data ttl_s=ttl_seconds"
    ),
    "resolve_interrupt": RemoteCall("SystemService/ResolveInterrupt", "interrupt_id response"),
    "cancel_interrupt": RemoteCall("SystemService/CancelInterrupt", "interrupt_id | reason"),
    "list_interrupts": RemoteCall("SystemService/ListInterrupts", "| pid status", gives="interrupts", may_repeat=True),
    "register_service": RemoteCall("SystemService/RegisterService", "info=service"),
    "unregister_service": RemoteCall("SystemService/UnregisterService", "name"),
    "update_health": RemoteCall("SystemService/UpdateServiceHealth", "name status", may_repeat=True),
    "list_services": RemoteCall("SystemService/ListServices", "| service_type", gives="services", may_repeat=True),
    "dispatch": RemoteCall(
        "SystemService/DispatchService",
        "service | request timeout_s=timeout_seconds max_retries",
        arrange=_dispatch,
        is_long=True,
    ),
}
