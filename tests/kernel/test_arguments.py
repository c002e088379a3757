"""Arguments and results of the kernel's calls for servers and workers, and the Events that tell of these calls."""

from __future__ import annotations

from typing import Any

from lyra import Agent, tool
from lyra.kernel import Kernel, ServiceRequest
from lyra.testing import SimClock
from tests.agents.support import calls, says
from tests.kernel.conftest import run, settle

LINE = {"name": "line", "agents": [{"name": "a", "default_next": "b"}, {"name": "b"}]}
REPEATABLE = {"name": "line", "agents": [{"name": "a", "idempotent": True}]}
FORK = {
    "name": "fork",
    "agents": [{"name": "f", "node_kind": "fork", "branches": ["x", "y"]}, {"name": "x"}, {"name": "y"}],
}


@tool
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


async def idle(ctx: Any) -> None:
    await ctx.receive()


def test_one_agent_says_for_which_request_it_ran_and_what_it_used() -> None:
    """The ids of the request are in the envelope, and calls of tools are counted; `to_data` has the same."""

    async def main() -> None:
        async with Kernel() as kernel:
            kernel.register_agent("coder", Agent("coder", model=says(calls("add", a=1, b=2), "done"), tools=[add]))
            done = await kernel.execute_agent("coder", "tea", request_id="r", session_id="s")
            assert (done.envelope.request_id, done.envelope.session_id) == ("r", "s")
            assert (done.llm_calls, done.tool_calls) == (2, 1)
            data = done.to_data()
            assert (data["success"], data["tool_calls"], data["envelope"]["request_id"]) == (True, 1, "r")

    run(main())


def test_one_agent_says_how_long_it_ran() -> None:
    """In milliseconds of the kernel's clock."""
    clock = SimClock(1_000.0)

    async def slow(_envelope: Any) -> dict[str, Any]:
        clock.advance(1.5)
        return {}

    async def main() -> None:
        async with Kernel("memory", clock) as kernel:
            kernel.register_agent("slow", slow)
            assert (await kernel.execute_agent("slow", "tea")).duration_ms == 1500

    run(main())


def test_a_lease_is_as_long_as_the_worker_asks() -> None:
    """Of the next run after a report, and of all that are ready."""

    async def main() -> None:
        async with Kernel("memory", SimClock(1_000.0)) as kernel:
            kernel.initialize_orchestration("line", LINE)
            kernel.get_next_instruction("line", "w1", 10)
            told = kernel.report_agent_result("line", {"agent_name": "a", "output": {}}, "w1", 20)
            assert (told.stage, told.lease.lease_s) == ("b", 20)
            kernel.initialize_orchestration("fork", FORK)
            ready = kernel.orchestrator.get_ready_instructions("fork", "w1", 17)
            assert {instruction.lease.lease_s for instruction in ready} == {17}

    run(main())


def test_counts_have_the_length_of_the_line() -> None:
    """`queue_depth` of all, and of one user."""

    async def main() -> None:
        async with Kernel() as kernel:
            for pid, user in (("a", "ann"), ("b", "bob"), ("c", "ann")):
                kernel.submit(pid, user_id=user)
                kernel.schedule(pid)
            assert (kernel.get_process_counts().queue_depth, kernel.get_process_counts().total) == (3, 3)
            assert kernel.get_process_counts(user_id="ann").queue_depth == 2

    run(main())


def test_a_service_is_told_who_asks() -> None:
    """`user_id` of a request, also of one without an envelope."""

    async def main() -> None:
        async with Kernel() as kernel:
            kernel.register_service({"name": "mail", "service_type": "worker"})
            kernel.register_handler("mail", lambda request: {"for": request.user_id})
            assert (await kernel.dispatch("mail", ServiceRequest(user_id="ann"))).metadata == {"for": "ann"}
            assert (await kernel.dispatch("mail", {"user_id": "bob"})).metadata == {"for": "bob"}

    run(main())


def test_listeners_are_told_of_owners_leases_and_envelopes() -> None:
    """Each change is an Event: of the owner of a program, of a worker's lease, of an envelope without a pipeline."""
    told: list[str] = []
    clock = SimClock(1_000.0)

    async def main() -> None:
        async with Kernel("memory", clock) as kernel:
            kernel.on_event(lambda event: told.append(event.kind))
            ann = kernel.as_user("ann")
            ann.spawn(idle, pid="program")
            await ann.kill("program")
            await settle(kernel)
            ann.cleanup_process("program")
            kernel.initialize_orchestration("p", REPEATABLE)
            kernel.get_next_instruction("p", "w1", 10)
            clock.advance(11)
            kernel.get_orchestration_state("p")
            envelope = kernel.create_envelope({"raw_input": "tea"})
            kernel.update_envelope({"envelope_id": envelope.envelope_id, "iteration": 1})
            kernel.envelopes.forget(envelope.envelope_id)
            await settle(kernel)

    run(main())
    wanted = ["pcb.owned", "pcb.disowned", "pipeline.leased", "pipeline.lease_lost"]
    wanted += ["envelope.created", "envelope.updated", "envelope.forgotten"]
    assert [kind for kind in told if kind in wanted] == wanted
