"""SystemService: status, questions to people, services."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from lyra.server.generated import engine_pb2 as pb
from tests.server.grpc.client import ALICE, BOB, on_loop, serving


@on_loop
async def test_the_status_of_the_system_shows_a_user_their_own():
    async with serving() as (kernel, client):
        for pid, user in (("a", "alice"), ("b", "bob"), ("c", "bob")):
            kernel.submit(pid, user_id=user)
        kernel.record_usage("a", llm_calls=3)
        kernel.record_usage("b", llm_calls=4)
        kernel.check_rate_limit("bob", "e")
        kernel.check_rate_limit("alice", "e")
        kernel.create_interrupt("b", "clarification", question="?")
        await kernel.register_service({"name": "s", "service_type": "inference"})
        whole = await client("SystemService/GetSystemStatus")
        assert (whole.total_processes, whole.usage.llm_calls, whole.pending_interrupts) == (3, 7, 1)
        assert set(whole.rate_limit_usage) == {"alice", "bob"}
        assert whole.service_counts == {"inference": 1}
        assert whole.uptime_seconds > 0
        own = await client.as_(ALICE)("SystemService/GetSystemStatus")
        assert (own.total_processes, own.usage.llm_calls, own.pending_interrupts) == (1, 3, 0)
        assert set(own.rate_limit_usage) == {"alice"}
        assert own.process_counts["new"] == 1


@on_loop
async def test_the_status_of_a_request_has_its_parts():
    async with serving() as (kernel, client):
        kernel.initialize_orchestration("p", {"name": "x", "agents": [{"name": "a"}]}, {"user_id": "alice"})
        question = kernel.create_interrupt("p", "confirmation", question="Sure?")
        status = await client.as_(ALICE)("SystemService/GetRequestStatus", pid="p")
        assert (status.pid, status.has_interrupt, status.pending_interrupt.id) == ("p", True, question.id)
        assert (status.current_stage, status.envelope.current_stage) == ("a", "a")
        assert status.state == kernel.get_process("p").state
        assert status.remaining_budget.llm_calls_remaining == 100


@on_loop
async def test_a_question_is_asked_listed_and_answered_by_its_owner():
    async with serving() as (kernel, client):
        alice, bob = client.as_(ALICE), client.as_(BOB)
        await alice("KernelService/CreateProcess", pid="p")
        asked = await alice(
            "SystemService/CreateInterrupt",
            pid="p",
            kind=pb.CONFIRMATION,
            question="Sure?",
            message="It costs",
            data=b'{"usd": 3}',
            ttl_seconds=60,
        )
        assert (asked.status, asked.user_id, asked.pid) == (pb.INTERRUPT_PENDING, "alice", "p")
        assert asked.expires_at_ms - asked.created_at_ms == 60_000
        assert json.loads(asked.data) == {"usd": 3}
        listed = await alice("SystemService/ListInterrupts", status=pb.INTERRUPT_PENDING)
        assert [interrupt.id for interrupt in listed.interrupts] == [asked.id]
        assert not (await bob("SystemService/ListInterrupts")).interrupts
        answered = await alice("SystemService/ResolveInterrupt", interrupt_id=asked.id, response={"approved": False})
        assert (answered.status, answered.response.approved) == (pb.INTERRUPT_RESOLVED, False)
        assert kernel.interrupts.get_interrupt(asked.id).response.approved is False
        again = await alice.status("SystemService/ResolveInterrupt", interrupt_id=asked.id, response={"text": "x"})
        assert again == "FAILED_PRECONDITION"


@on_loop
async def test_a_question_is_taken_back_with_its_reason():
    async with serving() as (kernel, client):
        kernel.submit("p", user_id="alice")
        question = kernel.create_interrupt("p", "clarification", question="?")
        cancelled = await client("SystemService/CancelInterrupt", interrupt_id=question.id, reason="too late")
        assert cancelled.status == pb.INTERRUPT_CANCELLED
        assert kernel.interrupts.get_interrupt(question.id).reason == "too late"


@on_loop
async def test_a_service_is_registered_reported_on_and_dispatched_to():
    """The owner changes a service; every user may call it; its handler's failure is an answer, its absence an error."""
    async with serving() as (kernel, client):
        alice, bob = client.as_(ALICE), client.as_(BOB)
        info = await alice(
            "SystemService/RegisterService", service={"name": "echo", "capabilities": ["say"], "metadata": {"k": "v"}}
        )
        assert (info.max_concurrent, info.status, info.service_type) == (10, pb.HEALTH_HEALTHY, "worker")
        assert dict(info.metadata) == {"k": "v", "owner": "alice"}
        registered = await alice.status("SystemService/RegisterService", service={"name": "echo"})
        assert registered == "ALREADY_EXISTS"
        assert await bob.status("SystemService/RegisterService", service={"name": "echo"}) == "PERMISSION_DENIED"

        async def handler(request: Any) -> Any:
            if request.metadata.get("fail"):
                raise ValueError("no voice")
            return {"said": request.envelope.raw_input}

        kernel.register_handler("echo", handler)
        answer = await bob("SystemService/DispatchService", service="echo", envelope=b'{"raw_input": "hello"}')
        assert (answer.success, json.loads(answer.metadata)) == (True, {"said": "hello"})
        assert json.loads(answer.envelope)["user_id"] == "bob"
        failed = await bob("SystemService/DispatchService", service="echo", metadata=b'{"fail": true}')
        assert (failed.success, "no voice" in failed.error) == (False, True)
        worse = await alice("SystemService/UpdateServiceHealth", name="echo", status=pb.HEALTH_UNHEALTHY)
        assert worse.status == pb.HEALTH_UNHEALTHY
        assert await bob.status("SystemService/DispatchService", service="echo") == "UNAVAILABLE"
        await alice("SystemService/UnregisterService", name="echo")
        assert not (await client("SystemService/ListServices")).services


@on_loop
async def test_a_dispatch_runs_out_of_time():
    async with serving() as (kernel, client):

        async def never(_request: Any) -> None:
            await asyncio.Event().wait()

        await kernel.register_service({"name": "slow"})
        kernel.register_handler("slow", never)
        late = await client.status("SystemService/DispatchService", service="slow", timeout_seconds=0.05)
        assert late == "DEADLINE_EXCEEDED"
        assert kernel.services.get_service("slow").current_load == 0
        await client.status("SystemService/DispatchService", service="slow", timeout=0.2)
        async with asyncio.timeout(30.0):
            while kernel.services.get_service("slow").current_load:
                await asyncio.sleep(0.01)
