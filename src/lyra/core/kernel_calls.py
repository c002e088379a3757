"""The table of the calls that others make of a kernel, from which each face of it is made.

A row has a call's name, who may make it (`needs`), the parameters that can be given over a wire with the fields of
their message, and what a server and a client have to know about it (`marks`). `as_user` checks what `needs` says,
`server/grpc/services.py` reads and answers messages by the row, `server/grpc/guard` admits calls by its marks, and
`server/client` sends it. A new call is a method of Kernel, a row here, and its messages in `engine.proto`.
"""

from __future__ import annotations

from functools import cached_property
from inspect import Parameter, Signature
from operator import attrgetter
from typing import Any, Final

import msgspec

NEEDS: Final[dict[str, str]] = {
    "process": "`pid` is a process of the caller's",
    "new process": "`pid` may be new; one that exists is the caller's; what is made is the user's",
    "question": "`interrupt_id` is a question about a process of the caller's",
    "user": "it is made for one user",
    "own": "it is about what is the caller's, or about all for an operator",
    "kernel": "it is about the whole kernel, which no user's view has",
}
MARKS: Final[dict[str, str]] = {
    "reads": "it changes nothing: a viewer may make it",
    "finishes": "it finishes what was begun, or only reads: it is taken while a server drains",
    "waits": "it only waits for something to do or to read: draining does not wait for it",
    "repeats": "it may be sent again when a connection broke",
    "streams": "its answers come one by one",
    "long": "it has no deadline unless one is asked for",
    "maybe": "there may be nothing, which is None here and NOT_FOUND over gRPC",
}
_USAGE: Final = "llm_calls tool_calls agent_hops tokens_in tokens_out inference_requests inference_input_chars"


class KernelCall(msgspec.Struct, frozen=True, dict=True):
    """One call. `parameters` are `name` or `name=field`; those behind the bar may be left out."""

    needs: str = "process"
    rpc: str = ""  # SERVICE/Name of the contract; empty: it is not made over gRPC
    parameters: str = ""
    marks: str = ""
    gives: str = ""  # a field of the answer; empty: all of it; `nothing`: None
    part: str = ""  # of the kernel, where the kernel itself has no such method
    acts_on: str = ""  # of an act of a person, which is told to the audit log: the field that names its target

    @cached_property
    def fields(self) -> dict[str, str]:
        """The field of each parameter, in order."""
        words = self.parameters.replace("|", " ").split()
        return {name: field or name for name, _, field in (word.partition("=") for word in words)}

    @cached_property
    def required(self) -> frozenset[str]:
        """The parameters that cannot be left out."""
        return frozenset(word.partition("=")[0] for word in self.parameters.partition("|")[0].split())

    @cached_property
    def signature(self) -> Signature:
        kind = Parameter.POSITIONAL_OR_KEYWORD
        empty = Parameter.empty
        return Signature(
            [Parameter(name, kind, default=empty if name in self.required else None) for name in self.fields]
        )

    def is_marked(self, word: str) -> bool:
        return word in self.marks.split()

    def method(self, kernel: Any, name: str) -> Any:
        """Return the method of a kernel, or of its part, that makes the call."""
        return attrgetter(f"{self.part}.{name}" if self.part else name)(kernel)


CALLS: Final[dict[str, KernelCall]] = {
    # processes
    "submit": KernelCall(
        "new process",
        "KernelService/CreateProcess",
        "pid | request_id user_id session_id priority quota",
        "repeats",
    ),
    "get_process": KernelCall("process", "KernelService/GetProcess", "pid", "reads finishes repeats"),
    "schedule": KernelCall("process", "KernelService/ScheduleProcess", "pid"),
    "get_next_runnable": KernelCall("own", "KernelService/GetNextRunnable", marks="maybe"),
    "transition_state": KernelCall(
        "process", "KernelService/TransitionState", "pid state=new_state | reason", "finishes"
    ),
    "terminate": KernelCall(
        "process", "KernelService/TerminateProcess", "pid | reason force", "finishes repeats", acts_on="pid"
    ),
    "check_quota": KernelCall("process", "KernelService/CheckQuota", "pid", "finishes repeats"),
    "record_usage": KernelCall("process", "KernelService/RecordUsage", f"pid | {_USAGE}", "finishes"),
    "check_rate_limit": KernelCall("user", "KernelService/CheckRateLimit", "user=user_id | endpoint record"),
    "list_processes": KernelCall(
        "own", "KernelService/ListProcesses", "| state user_id", "reads finishes repeats", "processes"
    ),
    "get_process_counts": KernelCall("own", "KernelService/GetProcessCounts", marks="reads finishes repeats"),
    "cleanup_process": KernelCall(),
    "record_tool_call": KernelCall(),
    "record_agent_hop": KernelCall(),
    "get_remaining_budget": KernelCall(),
    "adjust_quota": KernelCall(),
    # envelopes and runs
    "create_envelope": KernelCall(
        "user", "EngineService/CreateEnvelope", "| raw_input user_id session_id request_id metadata stage_order"
    ),
    "update_envelope": KernelCall("user", "EngineService/UpdateEnvelope", "envelope"),
    "clone_envelope": KernelCall("user", "EngineService/CloneEnvelope", "envelope"),
    "check_bounds": KernelCall("user", "EngineService/CheckBounds", "envelope", "reads repeats"),
    "execute_pipeline": KernelCall(
        "new process",
        "EngineService/ExecutePipeline",
        "config=pipeline_config | envelope pid=thread_id",
        "streams long",
    ),
    "execute_agent": KernelCall(
        "new process", "EngineService/ExecuteAgent", "name=agent_name | envelope config=agent_config", "long"
    ),
    # pipelines whose agents run in the caller
    "initialize_orchestration": KernelCall(
        "new process",
        "OrchestrationService/InitializeSession",
        "pid=process_id config=pipeline_config | envelope force",
    ),
    "get_next_instruction": KernelCall(
        "process",
        "OrchestrationService/GetNextInstruction",
        "pid=process_id | worker=worker_id lease_s=lease_seconds",
        "repeats",
    ),
    "report_agent_result": KernelCall(
        "process", "OrchestrationService/ReportAgentResult", "pid=process_id result", "finishes repeats"
    ),
    "get_orchestration_state": KernelCall(
        "process", "OrchestrationService/GetSessionState", "pid=process_id", "reads finishes repeats"
    ),
    "renew_lease": KernelCall(),
    "release_lease": KernelCall(),
    "get_envelope": KernelCall(),
    "store_envelope": KernelCall(),
    # the message bus
    "publish": KernelCall("own", "CommBusService/Publish", "type=event_type | payload", gives="nothing", part="bus"),
    "send": KernelCall("own", "CommBusService/Send", "type=command_type | payload", gives="nothing", part="bus"),
    "query": KernelCall(
        "own", "CommBusService/Query", "type=query_type | payload timeout_s=timeout_ms", "long", "result", "bus"
    ),
    "subscribe": KernelCall(
        "own", "CommBusService/Subscribe", "types=event_types", "reads waits streams long", part="bus"
    ),
    # the state of the system, questions, services
    "get_system_status": KernelCall("kernel", "SystemService/GetSystemStatus", marks="reads finishes repeats"),
    "get_request_status": KernelCall("process", "SystemService/GetRequestStatus", "pid", "reads finishes repeats"),
    "create_interrupt": KernelCall(
        "process", "SystemService/CreateInterrupt", "pid kind | message question data ttl_s=ttl_seconds"
    ),
    "resolve_interrupt": KernelCall(
        "question", "SystemService/ResolveInterrupt", "interrupt_id response", "finishes", acts_on="interrupt_id"
    ),
    "cancel_interrupt": KernelCall(
        "question",
        "SystemService/CancelInterrupt",
        "interrupt_id | reason",
        "finishes",
        part="interrupts",
        acts_on="interrupt_id",
    ),
    "list_interrupts": KernelCall(
        "own", "SystemService/ListInterrupts", "| pid status", "reads finishes repeats", "interrupts", "interrupts"
    ),
    "get_interrupt": KernelCall("question", part="interrupts"),
    "get_pending_interrupt": KernelCall(),
    "register_service": KernelCall("kernel", "SystemService/RegisterService", "info=service"),
    "unregister_service": KernelCall("kernel", "SystemService/UnregisterService", "name"),
    "update_health": KernelCall(
        "kernel", "SystemService/UpdateServiceHealth", "name status", "repeats", part="services"
    ),
    "list_services": KernelCall(
        "kernel", "SystemService/ListServices", "| service_type", "reads repeats", "services", "services"
    ),
    "dispatch": KernelCall(
        "own", "SystemService/DispatchService", "service | request timeout_s=timeout_seconds max_retries", "long"
    ),
    "dispatch_inference": KernelCall("own"),
}

# RPCs of programs that run agents and services for a server: no call of a kernel, and admitted as the others.
WORK_CALLS: Final[dict[str, KernelCall]] = {
    "claim_work": KernelCall("own", "WorkerService/ClaimWork", marks="finishes waits"),  # runs in flight need workers
    "renew_work": KernelCall("own", "WorkerService/RenewWork", marks="finishes"),
    "complete_work": KernelCall("own", "WorkerService/CompleteWork", marks="finishes"),
}
RPCS: Final = {call.rpc: (name, call) for name, call in (CALLS | WORK_CALLS).items() if call.rpc}


def list_marked(word: str) -> frozenset[str]:
    """Return the RPCs of the calls with a mark."""
    return frozenset(rpc for rpc, (_, call) in RPCS.items() if call.is_marked(word))
