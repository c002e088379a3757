"""A kernel with one thing of everything, owned by alice, and a table of every RPC: a good request, bad ones, and one
that names what does not exist."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from lyra.kernel.kernel import Kernel

PIPELINE = {"name": "tea", "agents": [{"name": "brew", "default_next": "pour"}, {"name": "pour"}]}
CONFIG = json.dumps(PIPELINE).encode()
UNKNOWN_AGENT = json.dumps({"name": "tea", "agents": [{"name": "unknown"}]}).encode()
ENVELOPE = json.dumps({"raw_input": "tea"}).encode()


class Rpc(NamedTuple):
    """One RPC. `owned`: the good request is refused to another user; `missing` names what does not exist (None: the RPC
    names nothing)."""

    method: str
    good: dict[str, Any]
    bad: tuple[dict[str, Any] | bytes, ...]
    owned: bool = True
    missing: dict[str, Any] | None = None


_ID = {"envelope_id": "env_alice", "user_id": "alice"}
_ELSEWHERE = {"envelope_id": "env_none", "user_id": "alice"}

RPCS: tuple[Rpc, ...] = (
    Rpc("KernelService/CreateProcess", {"pid": "new"}, ({"pid": ""}, {"pid": "x", "priority": 9}), missing=None),
    Rpc("KernelService/GetProcess", {"pid": "waits"}, ({"pid": ""},), missing={"pid": "none"}),
    Rpc("KernelService/ScheduleProcess", {"pid": "fresh"}, ({"pid": ""},), missing={"pid": "none"}),
    Rpc("KernelService/GetNextRunnable", {}, (b"\xff\xff",), owned=False),
    Rpc(
        "KernelService/TransitionState",
        {"pid": "runs", "new_state": 4},
        ({"pid": "runs"}, {"pid": "runs", "new_state": 99}, {"new_state": 2}),
        missing={"pid": "none", "new_state": 2},
    ),
    Rpc("KernelService/TerminateProcess", {"pid": "waits", "force": True}, ({"pid": ""},), missing={"pid": "none"}),
    Rpc("KernelService/CheckQuota", {"pid": "waits"}, ({"pid": ""},), missing={"pid": "none"}),
    Rpc(
        "KernelService/RecordUsage",
        {"pid": "waits", "llm_calls": 1},
        ({"pid": ""}, {"pid": "waits", "llm_calls": -1}),
        missing={"pid": "none", "llm_calls": 1},
    ),
    Rpc(
        "KernelService/CheckRateLimit",
        {"user_id": "alice", "endpoint": "e"},
        ({"user_id": "alice", "endpoint": "e" * 5_000},),
    ),
    Rpc("KernelService/ListProcesses", {"user_id": "alice"}, ({"state": 99},)),
    Rpc("KernelService/GetProcessCounts", {}, (b"\xff",), owned=False),
    Rpc("EngineService/CreateEnvelope", {"raw_input": "x", "user_id": "alice"}, (b"\x0a\xff",)),
    Rpc(
        "EngineService/UpdateEnvelope",
        {"envelope": {**_ID, "outputs": {"a": b'{"b": 1}'}}},
        ({}, {"envelope": {**_ID, "outputs": {"a": b"{"}}}, {"envelope": {**_ID, "outputs": {"a": b"[1]"}}}),
        missing={"envelope": _ELSEWHERE},
    ),
    Rpc("EngineService/CheckBounds", _ID, ({**_ID, "terminal_reason": 99}, {**_ID, "outputs": {"a": b"!"}})),
    Rpc(
        "EngineService/ExecutePipeline",
        {"envelope": {"user_id": "alice"}, "thread_id": "run", "pipeline_config": CONFIG},
        (
            {},
            {"pipeline_config": UNKNOWN_AGENT},
            {"pipeline_config": b"nope"},
            {"pipeline_config": b"{}"},
            {"pipeline_config": b"[]"},
        ),
    ),
    Rpc(
        "EngineService/ExecuteAgent",
        {"envelope": {"user_id": "alice"}, "agent_name": "brew"},
        ({}, {"agent_name": "brew", "agent_config": b"x"}, {"agent_name": "brew", "agent_config": b'{"no": 1}'}),
        missing={"agent_name": "none"},
    ),
    Rpc("EngineService/CloneEnvelope", {"envelope": _ID}, ({},), missing={"envelope": _ELSEWHERE}),
    Rpc(
        "OrchestrationService/InitializeSession",
        {"process_id": "fresh", "pipeline_config": CONFIG, "envelope": ENVELOPE},
        (
            {"pipeline_config": CONFIG},
            {"process_id": "s", "pipeline_config": b"{"},
            {"process_id": "s", "pipeline_config": b'{"name": 1}'},
            {"process_id": "s", "pipeline_config": CONFIG, "envelope": b"\xff"},
            {"process_id": "s", "pipeline_config": CONFIG, "envelope": b'{"unknown": 1}'},
        ),
    ),
    Rpc(
        "OrchestrationService/GetNextInstruction",
        {"process_id": "session"},
        (
            {"process_id": ""},
            {"process_id": "session", "lease_seconds": 5},
            {"process_id": "session", "worker_id": "w", "lease_seconds": -1},
        ),
        missing={"process_id": "none"},
    ),
    Rpc(
        "OrchestrationService/ReportAgentResult",
        {"process_id": "session", "agent_name": "brew", "output": b"{}", "success": True},
        ({}, {"process_id": "session", "agent_name": "brew", "output": b"nope"}, {"process_id": "session"}),
        missing={"process_id": "none", "agent_name": "brew"},
    ),
    Rpc(
        "OrchestrationService/GetSessionState",
        {"process_id": "session"},
        ({"process_id": ""},),
        missing={"process_id": "none"},
    ),
    Rpc(
        "CommBusService/Publish",
        {"event_type": "e", "payload": b"{}"},
        ({}, {"event_type": "e", "payload": b"{"}),
        False,
    ),
    Rpc(
        "CommBusService/Send",
        {"command_type": "known", "payload": b"1"},
        ({}, {"command_type": "known", "payload": b"nope"}),
        owned=False,
        missing={"command_type": "none"},
    ),
    Rpc(
        "CommBusService/Query",
        {"query_type": "known", "payload": b"[2]"},
        ({}, {"query_type": "known", "payload": b"nope"}, {"query_type": "known", "timeout_ms": -1}),
        owned=False,
        missing={"query_type": "none"},
    ),
    Rpc("CommBusService/Subscribe", {"event_types": ["e"]}, ({}, {"event_types": [""]}), owned=False),
    Rpc("SystemService/GetSystemStatus", {}, (b"\xff",), owned=False),
    Rpc("SystemService/GetRequestStatus", {"pid": "waits"}, ({"pid": ""},), missing={"pid": "none"}),
    Rpc(
        "SystemService/CreateInterrupt",
        {"pid": "waits", "kind": 1, "question": "why?"},
        ({"kind": 1}, {"pid": "waits"}, {"pid": "waits", "kind": 1, "data": b"{"}, {"pid": "waits", "kind": 77}),
        missing={"pid": "none", "kind": 1},
    ),
    Rpc(
        "SystemService/ResolveInterrupt",
        {"interrupt_id": "ASKED", "response": {"text": "because"}},
        ({}, {"interrupt_id": "ASKED"}, {"interrupt_id": "ASKED", "response": {}}),
        missing={"interrupt_id": "int_none", "response": {"text": "x"}},
    ),
    Rpc(
        "SystemService/CancelInterrupt",
        {"interrupt_id": "ASKED", "reason": "old"},
        ({},),
        missing={"interrupt_id": "int_none"},
    ),
    Rpc("SystemService/ListInterrupts", {"pid": "waits"}, ({"status": 99},), missing={"pid": "none"}),
    Rpc(
        "SystemService/RegisterService",
        {"service": {"name": "new", "max_concurrent": 2}},
        ({}, {"service": {"name": "n", "service_type": "none"}}, {"service": {"name": "n", "max_concurrent": -1}}),
        owned=False,
    ),
    Rpc("SystemService/UnregisterService", {"name": "hers"}, ({},), missing={"name": "none"}),
    Rpc(
        "SystemService/UpdateServiceHealth",
        {"name": "hers", "status": 2},
        ({}, {"name": "hers"}, {"name": "hers", "status": 66}),
        missing={"name": "none", "status": 1},
    ),
    Rpc("SystemService/ListServices", {"service_type": "worker"}, ({"service_type": "none"},), owned=False),
    Rpc(
        "SystemService/DispatchService",
        {"service": "double", "pid": "waits", "metadata": b'{"n": 2}'},
        (
            {},
            {"service": "double", "metadata": b"["},
            {"service": "double", "envelope": b"7"},
            {"service": "double", "timeout_seconds": -1},
            {"service": "double", "max_retries": -1},
        ),
        missing={"service": "none"},
    ),
)


async def furnish(kernel: Kernel) -> str:
    """Put the things in; gives the id of the question."""
    for pid in ("fresh", "runs", "waits"):
        await kernel.submit(pid, user_id="alice")
    for pid in ("runs", "waits"):
        kernel.schedule(pid)
        kernel.get_next_runnable()
    await kernel.submit("ready", user_id="alice")
    kernel.schedule("ready")
    kernel.initialize_orchestration("session", PIPELINE, {"raw_input": "x", "user_id": "alice"})
    kernel.get_next_instruction("session")
    kernel.create_envelope({"envelope_id": "env_alice", "raw_input": "x"}, user_id="alice")
    question = await kernel.create_interrupt("waits", "clarification", question="which?")

    async def brew(_envelope: Any) -> dict[str, Any]:
        return {"cups": 2}

    kernel.register_agent("brew", brew)
    kernel.register_agent("pour", brew)
    kernel.bus.register_handler("known", lambda message: message.payload)
    await kernel.register_service({"name": "hers", "metadata": {"owner": "alice"}})
    await kernel.register_service({"name": "double"})
    kernel.register_handler("double", lambda request: {"n": request.metadata["n"] * 2})
    return question.id


def with_question(fields: Any, question: str) -> Any:
    """The fields of a request with the id of the question in the place of ASKED."""
    if isinstance(fields, dict) and fields.get("interrupt_id") == "ASKED":
        return {**fields, "interrupt_id": question}
    return fields
