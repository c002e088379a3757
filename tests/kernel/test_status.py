"""Pictures of the whole kernel and of one request."""

from __future__ import annotations

import json

import pytest

from lyra.errors import NoSuchProcess
from lyra.kernel import Kernel
from lyra.kernel.workers.lifecycle import STATES
from tests.kernel.conftest import Crash, run, settle


async def asks(ctx):
    return (await ctx.ask("go on?")).text


def test_an_empty_kernel():
    """Everything is there, and 0."""

    async def main():
        async with Kernel() as kernel:
            status = kernel.get_system_status()
            assert status.process_counts == dict.fromkeys(STATES, 0)
            assert (status.total_processes, status.queue_depth, status.rate_limit_usage) == (0, 0, {})
            assert status.resources.total_processes == 0
            assert set(status.interrupts.values()) == {0}

    run(main())


def test_the_system(target, clock):
    """Uptime, processes by state, the line, services by type, rates by user, resources and questions."""

    async def main():
        async with Kernel(target, clock) as kernel:
            for pid in "abc":
                kernel.submit(pid, user_id="ada")
                kernel.schedule(pid)
            kernel.get_next_runnable()
            kernel.create_interrupt("a", "clarification", "?")
            kernel.record_usage("b", llm_calls=4, tokens_out=9)
            kernel.check_rate_limit("ada", "run")
            kernel.check_rate_limit("ada", "look")
            kernel.spawn(asks, pid="program")
            await settle(kernel)
            clock.advance(12.5)
            status = kernel.get_system_status()
            assert status.uptime_seconds == 12.5
            assert (status.process_counts["waiting"], status.process_counts["ready"]) == (2, 2)
            assert (status.total_processes, status.queue_depth) == (4, 2)
            assert status.rate_limit_usage["ada"].hour == 2
            assert (status.resources.llm_calls, status.resources.tokens_out) == (4, 9)
            assert (status.resources.total_processes, status.resources.active_processes) == (3, 3)
            assert status.interrupts["pending"] == 2
            assert json.loads(json.dumps(status.to_data()))["rate_limit_usage"]["ada"]["minute"] == 2

    run(main())


def test_services_are_counted_by_type(target):
    """The registry's services, by their type."""

    async def main():
        async with Kernel(target) as kernel:
            for name, kind in (("a", "worker"), ("b", "flow"), ("c", "worker")):
                kernel.register_service({"name": name, "service_type": kind})
            assert kernel.get_system_status().service_counts == {"worker": 2, "flow": 1}

    run(main())


def test_one_request(target):
    """Its block, its envelope if a pipeline drives it, its oldest question, what is left of its quota."""

    async def main():
        async with Kernel(target) as kernel:
            kernel.submit("p", user_id="ada", quota={"max_llm_calls": 5})
            kernel.schedule("p")
            kernel.get_next_runnable()
            kernel.record_usage("p", llm_calls=2)
            asked = kernel.create_interrupt("p", "confirmation", "sure?")
            status = kernel.get_request_status("p")
            assert (status.pcb.pid, status.pcb.state, status.pcb.pending_interrupt) == ("p", "waiting", "confirmation")
            assert status.pending_interrupt == asked
            assert status.remaining_budget.llm_calls_remaining == 3
            assert status.envelope is None
            assert json.loads(json.dumps(status.to_data()))["pcb"]["quota"]["max_llm_calls"] == 5
            with pytest.raises(NoSuchProcess):
                kernel.get_request_status("missing")

    run(main())


def test_the_envelope_is_the_pipelines(target):
    """Where a pipeline drives the pid, its envelope is shown; where none does, there is none."""

    async def main():
        async with Kernel(target) as kernel:
            for pid in ("driven", "alone"):
                kernel.submit(pid)
            config = {"name": "line", "agents": [{"name": "plan", "stage_order": 1}]}
            kernel.initialize_orchestration("driven", config, {"raw_input": "hello"})
            assert kernel.get_request_status("driven").envelope.raw_input == "hello"
            assert kernel.get_request_status("alone").envelope is None

    run(main())


def test_a_program_has_a_status_too(target):
    """A program process is a request like any other."""

    async def main():
        async with Kernel(target) as kernel:
            kernel.spawn(asks, pid="program")
            await settle(kernel)
            status = kernel.get_request_status("program")
            assert (status.pcb.state, status.pending_interrupt.question) == ("waiting", "go on?")

    run(main())


@pytest.mark.parametrize("snapshot", [False, True])
def test_pictures_survive_a_kill(path, clock, snapshot):
    """After kill -9 both pictures are the same, but for the uptime, which begins again."""

    async def main():
        async with Crash(Kernel(path, clock)) as kernel:
            kernel.submit("p", user_id="ada")
            kernel.schedule("p")
            kernel.check_rate_limit("ada")
            kernel.create_interrupt("p", "checkpoint", "saved")
            if snapshot:
                await settle(kernel)
                await kernel._snapshots.write()
            kernel.record_tool_call("p")
            await settle(kernel)
            before = kernel.get_system_status().to_data(), kernel.get_request_status("p")
        async with Kernel(path, clock) as kernel:
            assert (kernel.get_system_status().to_data(), kernel.get_request_status("p")) == before
            clock.advance(3)
            assert kernel.get_system_status().uptime_seconds == 3.0

    run(main())


def test_a_kernel_says_whether_it_was_started():
    """Not when it is made, only when it is opened: until then nothing can be spawned."""

    async def main():
        kernel = Kernel()
        before = kernel.started
        async with kernel:
            return before, kernel.started

    assert run(main()) == (False, True)


def test_counts_have_a_total_and_a_depth():
    """Of all processes, and of those of one user: entries in line are the depth of the queue."""

    async def main():
        async with Kernel() as kernel:
            for pid, user in (("a", "ann"), ("b", "ann"), ("c", "bob")):
                kernel.submit(pid, user_id=user)
                kernel.schedule(pid)
            kernel.get_next_runnable()
            counts = kernel.get_process_counts()
            assert (counts.total, counts.queue_depth, counts["ready"], counts["running"]) == (3, 2, 2, 1)
            own = kernel.get_process_counts("ann")
            assert (own.total, own.queue_depth, own["running"]) == (2, 1, 1)

    run(main())
