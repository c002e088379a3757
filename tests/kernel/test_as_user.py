"""The kernel as one user may use it: what is theirs, and nothing else."""

from __future__ import annotations

import asyncio
import inspect

import pytest

from lyra.errors import ConfigError, Denied, NoSuchEnvelope, NoSuchInterrupt, NoSuchProcess
from lyra.kernel import Kernel, ServiceRequest
from lyra.kernel.as_user import UserKernel
from tests.kernel.conftest import Crash, run, settle

LINE = {"name": "line", "agents": [{"name": "a", "default_next": "b"}, {"name": "b"}]}

# Each call that names a process: as it is made for a pid.
CALLS = {
    "schedule": lambda kernel, pid: kernel.schedule(pid),
    "transition_state": lambda kernel, pid: kernel.transition_state(pid, "ready"),
    "terminate": lambda kernel, pid: kernel.terminate(pid),
    "get_process": lambda kernel, pid: kernel.get_process(pid),
    "cleanup_process": lambda kernel, pid: kernel.cleanup_process(pid),
    "get_request_status": lambda kernel, pid: kernel.get_request_status(pid),
    "check_quota": lambda kernel, pid: kernel.check_quota(pid),
    "record_usage": lambda kernel, pid: kernel.record_usage(pid, llm_calls=1),
    "record_tool_call": lambda kernel, pid: kernel.record_tool_call(pid),
    "record_agent_hop": lambda kernel, pid: kernel.record_agent_hop(pid),
    "get_remaining_budget": lambda kernel, pid: kernel.get_remaining_budget(pid),
    "adjust_quota": lambda kernel, pid: kernel.adjust_quota(pid, {"max_llm_calls": 5}),
    "create_interrupt": lambda kernel, pid: kernel.create_interrupt(pid, "clarification", "?"),
    "get_pending_interrupt": lambda kernel, pid: kernel.get_pending_interrupt(pid),
    "list_interrupts": lambda kernel, pid: kernel.list_interrupts(pid),
    "get_next_instruction": lambda kernel, pid: kernel.get_next_instruction(pid),
    "report_agent_result": lambda kernel, pid: kernel.report_agent_result(pid, {"agent_name": "a"}),
    "renew_lease": lambda kernel, pid: kernel.renew_lease(pid, "w"),
    "release_lease": lambda kernel, pid: kernel.release_lease(pid, "w"),
    "store_envelope": lambda kernel, pid: kernel.store_envelope(pid, {}),
    "get_envelope": lambda kernel, pid: kernel.get_envelope(pid),
    "get_orchestration_state": lambda kernel, pid: kernel.get_orchestration_state(pid),
    "process": lambda kernel, pid: kernel.process(pid),
    "agent": lambda kernel, pid: kernel.agent(pid),
    "kill": lambda kernel, pid: kernel.kill(pid),
    "send": lambda kernel, pid: kernel.send(pid, "hello"),
    "dispatch": lambda kernel, pid: kernel.dispatch("s", ServiceRequest(pid=pid)),
    "dispatch_inference": lambda kernel, pid: kernel.dispatch_inference("m", "text", pid=pid),
}
# Calls for a pid that may be new: another's is refused, an unknown one is not.
BEGINNING = {
    "submit": lambda kernel, pid: kernel.submit(pid),
    "spawn": lambda kernel, pid: kernel.spawn(idle, pid=pid),
    "initialize_orchestration": lambda kernel, pid: kernel.initialize_orchestration(pid, LINE, force=True),
    "execute_pipeline": lambda kernel, pid: kernel.execute_pipeline(LINE, pid=pid),
    "execute_agent": lambda kernel, pid: kernel.execute_agent("a", pid=pid),
}
# Calls that name no process, each with a test of its own below.
OTHERS = {
    *("check", "get_next_runnable", "list_processes", "get_process_counts", "check_rate_limit", "get_interrupt"),
    *("resolve_interrupt", "cancel_interrupt", "create_envelope", "update_envelope", "clone_envelope", "check_bounds"),
}


async def idle(ctx):
    await ctx.receive()


async def answers(envelope):
    return {"n": 1}


async def outcome(call, kernel, pid):
    value = call(kernel, pid)
    return await value if inspect.iscoroutine(value) else value


def test_every_call_of_the_view_is_tried_below():
    """A call that is added has to be added to the tables."""
    public = {name for name in vars(UserKernel) if not name.startswith("_")} - set(UserKernel.__slots__)
    assert public == {*CALLS, *BEGINNING, *OTHERS}


@pytest.mark.parametrize("name", [*CALLS, *BEGINNING])
def test_another_users_process_is_denied(name, target):
    """Of an entry, of a pipeline, of a program, and of one that is no user's; nothing changes."""

    async def main():
        async with Kernel(target) as kernel:
            bob, ann = kernel.as_user("bob"), kernel.as_user("ann")
            bob.submit("entry")
            bob.initialize_orchestration("pipeline", LINE, {"raw_input": "tea"})
            bob.spawn(idle, pid="program")
            kernel.submit("unowned")
            await settle(kernel)
            before = [(block.pid, block.state, block.usage.llm_calls) for block in kernel.list_processes()]
            for pid in ("entry", "pipeline", "program", "unowned"):
                with pytest.raises(Denied, match="not ann's"):
                    await outcome((CALLS | BEGINNING)[name], ann, pid)
            await settle(kernel)
            assert before == [(block.pid, block.state, block.usage.llm_calls) for block in kernel.list_processes()]

    run(main())


@pytest.mark.parametrize("name", CALLS)
def test_an_unknown_process_is_not_found(name):
    """Also where the kernel itself would begin to count."""

    async def main():
        async with Kernel() as kernel:
            with pytest.raises(NoSuchProcess):
                await outcome(CALLS[name], kernel.as_user("ann"), "nowhere")
            assert not kernel.resources.is_tracked("nowhere")

    run(main())


def test_what_a_user_makes_is_theirs_also_after_a_crash(path):
    """Entries, pipelines driven outside or run here, programs and what these start, agents by themselves."""

    async def starts(ctx):
        ctx.spawn(idle, pid="child")
        await ctx.receive()

    async def first_life():
        async with Crash(Kernel(path, programs=[idle, starts])) as kernel:
            kernel.register_agent("a", answers)
            kernel.register_agent("b", answers)
            ann = kernel.as_user("ann")
            ann.submit("entry")
            ann.initialize_orchestration("driven", LINE)
            ann.spawn(starts, pid="program")
            assert [event async for event in ann.execute_pipeline(LINE, pid="run")][-1].type == "pipeline_completed"
            assert (await ann.execute_agent("a", pid="single")).envelope.user_id == "ann"
            await settle(kernel)
            await kernel.durable()

    async def later_life():
        async with Kernel(path, programs=[idle, starts]) as kernel:
            ann, bob = kernel.as_user("ann"), kernel.as_user("bob")
            pids = ("entry", "driven", "program", "child", "run", "single")
            assert {ann.get_process(pid).pid for pid in pids} == set(pids)
            assert {block.pid for block in ann.list_processes()} == set(pids)
            assert ann.get_process_counts().total == 6
            assert bob.list_processes() == []
            assert bob.get_process_counts().total == 0

    run(first_life())
    run(later_life())
    run(later_life())  # from the snapshot


def test_an_owner_is_forgotten_with_the_process():
    """A pid that is free again has no owner."""

    async def main():
        async with Kernel() as kernel:
            ann = kernel.as_user("ann")
            ann.spawn(idle, pid="program")
            await ann.kill("program")
            await settle(kernel)
            ann.cleanup_process("program")
            assert kernel.lifecycle.state.owners == {}
            kernel.as_user("bob").spawn(idle, pid="program")

    run(main())


def test_a_user_takes_their_own_entries(clock):
    """The first in line of the user; one with an open question keeps its place, as do those of others."""

    async def main():
        async with Kernel("memory", clock) as kernel:
            ann, bob = kernel.as_user("ann"), kernel.as_user("bob")
            for user, pid in ((bob, "b1"), (ann, "a1"), (ann, "a2"), (bob, "b2")):
                user.submit(pid)
                user.schedule(pid)
            asked = ann.create_interrupt("a1", "clarification", "?")
            assert ann.get_next_runnable().pid == "a2"
            assert ann.get_next_runnable() is None
            ann.resolve_interrupt(asked.id, {"text": "so"})
            assert [kernel.get_next_runnable().pid for _ in range(3)] == ["b1", "a1", "b2"]

    run(main())


def test_questions_are_their_owners(target):
    """Seen, answered and taken back by the owner of the process alone, also those that a program asks."""

    async def asks(ctx):
        return (await ctx.ask("which?")).text

    async def main():
        async with Kernel(target) as kernel:
            ann, bob = kernel.as_user("ann"), kernel.as_user("bob")
            handle = ann.spawn(asks, pid="program")
            ann.submit("entry")
            ann.create_interrupt("entry", "clarification", "?")
            await settle(kernel)
            ids = {interrupt.pid: interrupt.id for interrupt in ann.list_interrupts()}
            assert set(ids) == {"program", "entry"}
            assert bob.list_interrupts() == []
            for interrupt_id in ids.values():
                for call in (
                    lambda: bob.get_interrupt(interrupt_id),  # noqa: B023 (called at once)
                    lambda: bob.resolve_interrupt(interrupt_id, {"text": "x"}),  # noqa: B023
                    lambda: bob.cancel_interrupt(interrupt_id),  # noqa: B023
                ):
                    with pytest.raises(Denied):
                        call()
            with pytest.raises(NoSuchInterrupt):
                bob.get_interrupt("int_x")
            ann.resolve_interrupt(ids["program"], {"text": "this"})
            assert (await asyncio.wait_for(handle.wait(), 10)).result == "this"
            assert ann.get_interrupt(ids["entry"]).status == "pending"
            assert ann.cancel_interrupt(ids["entry"]).status == "cancelled"

    run(main())


def test_envelopes_and_rates_are_the_users():
    """Envelopes are made, changed and copied as the user; requests count for the user."""

    async def main():
        async with Kernel() as kernel:
            kernel.rate_limiter.set_default_config({"burst_size": 1})
            ann, bob = kernel.as_user("ann"), kernel.as_user("bob")
            envelope = ann.create_envelope({"raw_input": "tea"}, session_id="s")
            assert (envelope.user_id, envelope.session_id) == ("ann", "s")
            assert ann.update_envelope({"envelope_id": envelope.envelope_id, "iteration": 1}).iteration == 1
            assert ann.clone_envelope(envelope).user_id == "ann"
            assert ann.check_bounds(envelope.envelope_id).can_continue
            for call in (
                lambda: bob.update_envelope({"envelope_id": envelope.envelope_id}),
                lambda: bob.clone_envelope(envelope),
                lambda: bob.check_bounds(envelope.envelope_id),
                lambda: bob.initialize_orchestration("p", LINE, envelope),
            ):
                with pytest.raises(Denied):
                    call()
            with pytest.raises(NoSuchEnvelope):
                ann.clone_envelope("env_x")
            assert (ann.check_rate_limit("e").allowed, ann.check_rate_limit("e").allowed) == (True, False)
            assert bob.check_rate_limit("e").allowed
            with pytest.raises(ConfigError):
                kernel.as_user("")

    run(main())
