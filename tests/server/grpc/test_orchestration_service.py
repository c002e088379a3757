"""OrchestrationService: a worker drives a pipeline; asking and reporting twice changes nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lyra.kernel.kernel import Kernel
from lyra.server.generated import engine_pb2 as pb
from lyra.testing.clock import SimClock
from tests.server.grpc.client import ALICE, Client, on_loop, serving

LOOP = {
    "name": "review",
    "max_iterations": 5,
    "agents": [
        {"name": "draft", "default_next": "check"},
        {
            "name": "check",
            "routing_rules": [{"condition": "good", "value": False, "target": "draft"}],
            "default_next": "end",
        },
    ],
}


async def _begin(client: Client, pid: str = "p1", config: Any = LOOP, **fields: Any) -> Any:
    data = json.dumps(config).encode()
    return await client("OrchestrationService/InitializeSession", process_id=pid, pipeline_config=data, **fields)


async def _report(client: Client, instruction: Any, output: dict[str, Any], **fields: Any) -> Any:
    return await client(
        "OrchestrationService/ReportAgentResult",
        process_id="p1",
        agent_name=instruction.agent_name,
        run_id=instruction.run_id,
        output=json.dumps(output).encode(),
        **{"success": True, **fields},
    )


@on_loop
async def test_a_worker_drives_a_loop_to_its_end():
    """Instruction after instruction, as the rules lead, until TERMINATE; metrics are counted."""
    async with serving() as (kernel, client):
        alice = client.as_(ALICE)
        state = await _begin(alice, envelope=b'{"raw_input": "a text"}')
        assert (state.current_stage, list(state.stage_order)) == ("draft", ["draft", "check"])
        instruction = await alice("OrchestrationService/GetNextInstruction", process_id="p1")
        seen = []
        for output in ({"text": "one"}, {"good": False}, {"text": "two"}, {"good": True}):
            assert instruction.kind == pb.RUN_AGENT
            assert json.loads(instruction.envelope)["raw_input"] == "a text"
            assert json.loads(instruction.agent_config)["name"] == instruction.stage == instruction.agent_name
            seen.append(instruction.agent_name)
            metrics = {"llm_calls": 1, "tokens_in": 10}
            instruction = await _report(alice, instruction, output, metrics=metrics)
        assert seen == ["draft", "check", "draft", "check"]
        assert (instruction.kind, instruction.terminal_reason) == (pb.TERMINATE, pb.COMPLETED)
        state = await alice("OrchestrationService/GetSessionState", process_id="p1")
        assert state.terminated
        assert dict(state.edge_traversals) == {"draft->check": 2, "check->draft": 1}
        assert json.loads(state.envelope)["outputs"]["draft"] == {"text": "two"}
        assert kernel.get_process("p1").usage.llm_calls == 4
        assert kernel.get_process("p1").user_id == "alice"


@on_loop
async def test_asking_twice_changes_nothing():
    async with serving() as (kernel, client):
        await _begin(client)
        first = await client("OrchestrationService/GetNextInstruction", process_id="p1")
        again = await client("OrchestrationService/GetNextInstruction", process_id="p1")
        assert first == again
        assert kernel.get_orchestration_state("p1").envelope.agent_hop_count == 1


@on_loop
async def test_a_report_that_comes_twice_is_taken_once_also_in_a_loop():
    """A worker that repeats its report after a lost answer does not finish the next run of the same agent."""
    async with serving() as (kernel, client):
        await _begin(client)
        draft = await client("OrchestrationService/GetNextInstruction", process_id="p1")
        check = await _report(client, draft, {"text": "one"})
        back = await _report(client, check, {"good": False})
        assert back.agent_name == "draft"
        late = await _report(client, draft, {"text": "one, again"})
        assert (late.agent_name, late.run_id) == ("draft", back.run_id)
        assert kernel.get_orchestration_state("p1").envelope.outputs["draft"] == {"text": "one"}


@on_loop
async def test_a_session_begins_once_unless_by_force():
    async with serving() as (_kernel, client):
        await _begin(client)
        config = json.dumps(LOOP).encode()
        fields = {"process_id": "p1", "pipeline_config": config}
        assert await client.status("OrchestrationService/InitializeSession", **fields) == "ALREADY_EXISTS"
        assert await client.status("OrchestrationService/InitializeSession", **fields, force=True) == "OK"


@on_loop
async def test_a_failed_run_ends_the_pipeline_with_its_reason():
    async with serving() as (_kernel, client):
        await _begin(client)
        draft = await client("OrchestrationService/GetNextInstruction", process_id="p1")
        ended = await _report(client, draft, {}, success=False, error="no ink")
        assert (ended.kind, ended.terminal_reason) == (pb.TERMINATE, pb.TOOL_FAILED_FATALLY)
        assert "no ink" in ended.termination_message


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"success": False, "error": "overloaded", "error_code": "model_error"}, pb.LLM_FAILED_FATALLY),
        ({"break_loop": True}, pb.BREAK_REQUESTED),
    ],
)
@on_loop
async def test_a_report_says_why_a_run_ends_the_pipeline(fields: Any, reason: int):
    """A worker whose model failed says so with the code of the error; a run may ask for the end of the loop."""
    async with serving() as (_kernel, client):
        await _begin(client)
        draft = await client("OrchestrationService/GetNextInstruction", process_id="p1")
        ended = await _report(client, draft, {}, **fields)
        assert (ended.kind, ended.terminal_reason) == (pb.TERMINATE, reason)


@pytest.mark.parametrize(
    ("bound", "metric", "reason"),
    [
        ("max_input_tokens", "tokens_in", pb.MAX_INPUT_TOKENS_EXCEEDED),
        ("max_output_tokens", "tokens_out", pb.MAX_OUTPUT_TOKENS_EXCEEDED),
    ],
)
@on_loop
async def test_a_bound_of_tokens_ends_a_pipeline(bound: str, metric: str, reason: int):
    async with serving() as (_kernel, client):
        await _begin(client, config={**LOOP, bound: 10})
        draft = await client("OrchestrationService/GetNextInstruction", process_id="p1")
        ended = await _report(client, draft, {"text": "x"}, metrics={metric: 10})
        assert (ended.kind, ended.terminal_reason) == (pb.TERMINATE, reason)


@on_loop
async def test_a_question_holds_the_pipeline_up_until_it_is_answered():
    """A route to `confirmation` is WAIT_INTERRUPT with the question; the answer over SystemService goes on."""
    asking = {
        "name": "ask",
        "confirmation_resume_stage": "do",
        "agents": [{"name": "plan", "default_next": "confirmation"}, {"name": "do"}],
    }
    async with serving() as (_kernel, client):
        await _begin(client, config=asking)
        plan = await client("OrchestrationService/GetNextInstruction", process_id="p1")
        waits = await _report(client, plan, {"question": "Sure?"})
        assert (waits.kind, waits.interrupt_pending) == (pb.WAIT_INTERRUPT, True)
        assert (waits.interrupt.kind, waits.interrupt.question) == (pb.CONFIRMATION, "Sure?")
        listed = await client("SystemService/ListInterrupts", pid="p1", status=pb.INTERRUPT_PENDING)
        await client(
            "SystemService/ResolveInterrupt", interrupt_id=listed.interrupts[0].id, response={"approved": True}
        )
        following = await client("OrchestrationService/GetNextInstruction", process_id="p1")
        assert (following.kind, following.agent_name) == (pb.RUN_AGENT, "do")


@on_loop
async def test_the_bounds_of_a_pipeline_end_it():
    async with serving() as (_kernel, client):
        await _begin(client, config={**LOOP, "max_llm_calls": 1})
        draft = await client("OrchestrationService/GetNextInstruction", process_id="p1")
        ended = await _report(client, draft, {"text": "x"}, metrics={"llm_calls": 1})
        assert (ended.kind, ended.terminal_reason) == (pb.TERMINATE, pb.MAX_LLM_CALLS_EXCEEDED)


@on_loop
async def test_a_stage_is_lent_to_one_worker_at_a_time():
    """A named worker has a lease, which it is told; another waits; once the lease is over the other is given the stage,
    and the late report of the first changes nothing."""
    clock = SimClock(1_000.0)
    async with serving(Kernel(clock=clock)) as (kernel, client):
        await _begin(client, config={"name": "x", "agents": [{"name": "draft", "idempotent": True}]})
        ask = {"process_id": "p1", "lease_seconds": 30}
        first = await client("OrchestrationService/GetNextInstruction", worker_id="w1", **ask)
        assert (first.kind, first.lease_expires_at_ms) == (pb.RUN_AGENT, 1_030_000)
        other = await client("OrchestrationService/GetNextInstruction", worker_id="w2", **ask)
        assert (other.kind, other.interrupt_pending) == (pb.WAIT_INTERRUPT, False)
        assert other.lease_expires_at_ms == 1_030_000
        clock.advance(31.0)
        other = await client("OrchestrationService/GetNextInstruction", worker_id="w2", **ask)
        assert (other.kind, other.agent_name) == (pb.RUN_AGENT, "draft")
        await _report(client, first, {"text": "late"}, worker_id="w1")
        assert not kernel.get_orchestration_state("p1").terminated
        ended = await _report(client, other, {"text": "in time"}, worker_id="w2")
        assert ended.kind == pb.TERMINATE
        assert kernel.get_envelope("p1").outputs["draft"] == {"text": "in time"}
