"""Workers outside: a run that is late fails, a worker that is silent loses its run, and none of it needs an asker."""

from __future__ import annotations

from typing import Any

import pytest

from lyra.errors import ConfigError, InvalidTransition
from lyra.kernel import Kernel
from lyra.testing import SimClock
from tests.kernel.conftest import Crash, run, settle

LINE = {"name": "line", "agents": [{"name": "a", "default_next": "b"}, {"name": "b"}], "default_timeout_seconds": 100}
REPEATABLE = {**LINE, "agents": [{"name": "a", "default_next": "b", "idempotent": True}, {"name": "b"}]}
FORK = {
    "name": "fork",
    "agents": [{"name": "f", "node_kind": "fork", "branches": ["x", "y"]}, {"name": "x"}, {"name": "y"}],
}


def report(kernel, agent, *, worker=None, **result):
    return kernel.report_agent_result("p", {"agent_name": agent, "output": {}, **result}, worker)


# ------------------------------------------------------------------ time


@pytest.mark.parametrize(
    ("keys", "stage", "reason"), [({}, "", "tool_failed_fatally"), ({"error_next": "b"}, "b", None)]
)
def test_the_default_time_limit_holds_without_an_asker(keys, stage, reason, target, clock):
    """A stage that is not reported in time has failed at that moment: its error_next is next, or the pipeline ended."""

    async def work():
        async with Kernel(target, clock) as kernel:
            config = {**LINE, "agents": [{"name": "a", **keys}, {"name": "b"}]}
            kernel.initialize_orchestration("p", config)
            kernel.get_next_instruction("p")
            clock.advance(99.9)
            assert kernel.get_orchestration_state("p").envelope.failed_stages == {}
            clock.advance(0.2)
            state = kernel.get_orchestration_state("p")
            assert state.envelope.failed_stages == {"a": "a took longer than 100 s"}
            assert state.terminal_reason == reason
            assert kernel.get_process("p").terminal == (reason is not None)
            told = report(kernel, "a", run_id=1, output={"late": True})
            assert (told.stage or "", told.envelope.outputs) == (stage, {})

    run(work())


def test_time_stands_still_while_a_question_is_open(clock):
    """A question about the whole pipeline stops the clock of its runs; afterwards they have what was left."""

    async def work():
        async with Kernel("memory", clock) as kernel:
            kernel.initialize_orchestration("p", LINE)
            kernel.get_next_instruction("p")
            clock.advance(60)
            asked = kernel.create_interrupt("p", "clarification", "which?")
            clock.advance(5_000)
            assert not kernel.get_orchestration_state("p").terminated
            kernel.resolve_interrupt(asked.id, {"text": "this"})
            assert kernel.get_next_instruction("p").kind == "run_agent"
            clock.advance(39)
            assert not kernel.get_orchestration_state("p").terminated
            clock.advance(2)
            assert kernel.get_orchestration_state("p").terminated

    run(work())


def test_a_restart_gives_a_run_its_time_again(path):
    """No worker could report while the kernel was down; the timer runs in the new life without an asker."""

    async def first_life():
        async with Crash(Kernel(path, SimClock(1_000.0))) as kernel:
            kernel.initialize_orchestration("p", LINE)
            kernel.get_next_instruction("p")
            await kernel.durable()

    async def second_life():
        clock = SimClock(9_000.0)
        async with Kernel(path, clock) as kernel:
            clock.advance(99)
            assert kernel.get_next_instruction("p").stage == "a"
            clock.advance(2)
            assert kernel.get_orchestration_state("p").terminal_reason == "tool_failed_fatally"

    run(first_life())
    run(second_life())


# ------------------------------------------------------------------ leases


def test_a_run_is_one_workers_at_a_time(target, clock):
    """The others, and workers without a name, are told to wait and until when; asking again renews, as a sign of life
    does."""

    async def work():
        async with Kernel(target, clock) as kernel:
            kernel.initialize_orchestration("p", LINE)
            first = kernel.get_next_instruction("p", "w1", 10)
            assert (first.kind, first.run_id, first.lease.worker, first.lease.lease_s) == ("run_agent", 1, "w1", 10)
            assert first.lease.expires_at == kernel.core.now() + 10
            for other in (("w2", 10), (None, None)):
                told = kernel.get_next_instruction("p", *other)
                assert (told.kind, told.interrupt_pending, told.interrupt) == ("wait_interrupt", False, None)
                assert told.lease == first.lease
            clock.advance(9)
            again = kernel.get_next_instruction("p", "w1", 10)
            assert (again.run_id, again.envelope.agent_hop_count) == (1, 1)
            clock.advance(9)
            [renewed] = kernel.renew_lease("p", "w1", 10)
            assert renewed.expires_at == kernel.core.now() + 10
            clock.advance(9)
            told = report(kernel, "a", worker="w1")
            assert (told.stage, told.lease.worker, told.lease.lease_s) == ("b", "w1", 30)
            assert kernel.get_next_instruction("p", "w2").kind == "wait_interrupt"
            assert report(kernel, "b", worker="w1").terminal_reason == "completed"

    run(work())


@pytest.mark.parametrize("how", ["declared", "retries", "registered"])
def test_a_stage_that_may_be_repeated_goes_to_the_next_worker(how, target, clock):
    """Under a new run, when the lease is over; what the first worker reports then changes nothing."""
    stages: dict[str, dict[str, Any]] = {
        "declared": {"idempotent": True},
        "retries": {"max_retries": 1},
        "registered": {},
    }
    stage = stages[how]

    async def work():
        async with Kernel(target, clock) as kernel:
            if how == "registered":
                kernel.register_agent("a", print, idempotent=True)
            kernel.initialize_orchestration("p", {**LINE, "agents": [{"name": "a", **stage}]})
            kernel.get_next_instruction("p", "w1", 10)
            clock.advance(10.1)
            with pytest.raises(InvalidTransition, match="w1 has no lease"):
                kernel.renew_lease("p", "w1")
            second = kernel.get_next_instruction("p", "w2", 10)
            assert (second.stage, second.run_id, second.lease.worker) == ("a", 2, "w2")
            for late in ({"run_id": 1}, {}):
                assert report(kernel, "a", worker="w1", output={"by": 1}, **late).kind == "wait_interrupt"
            done = report(kernel, "a", worker="w2", output={"by": 2})
            assert (done.terminal_reason, done.envelope.outputs["a"]) == ("completed", {"by": 2})
            statuses = [record.status for record in done.envelope.processing_history]
            assert statuses == ["skipped", "success"]

    run(work())


@pytest.mark.parametrize(
    ("answer", "end"),
    [
        ({"decision": "retry"}, "again"),
        ({"decision": "skip", "data": {"n": 7}}, "b"),
        ({"decision": "fail"}, "tool_failed_fatally"),
        (None, "tool_failed_fatally"),
    ],
)
def test_any_other_stage_is_in_doubt(answer, end, target, clock):
    """A person is asked at that moment, without an asker; the answer decides, and none is a failure."""

    async def work():
        async with Kernel(target, clock) as kernel:
            kernel.initialize_orchestration("p", LINE)
            kernel.get_next_instruction("p", "w1", 10)
            clock.advance(10.1)
            asked = kernel.get_pending_interrupt("p")
            assert (asked.kind, asked.pid) == ("in_doubt", "p")
            assert "stage a" in asked.question
            assert "w1" in asked.message
            assert kernel.get_process("p").state == "waiting"
            told = kernel.get_next_instruction("p", "w2", 10)
            assert (told.kind, told.interrupt_pending, told.interrupt.kind) == ("wait_interrupt", True, "in_doubt")
            clock.advance(1_000)  # it never expires
            if answer is None:
                kernel.interrupts.cancel_interrupt(asked.id, "no idea")
            else:
                kernel.resolve_interrupt(asked.id, answer)
            told = kernel.get_next_instruction("p", "w2", 10)
            if end == "again":
                assert (told.stage, told.run_id) == ("a", 2)
            elif end == "b":
                assert (told.stage, told.envelope.outputs["a"]) == ("b", {"n": 7})
            else:
                assert told.terminal_reason == end

    run(work())


@pytest.mark.parametrize("late", [{"run_id": 1}, {}])
def test_a_worker_that_is_back_settles_the_doubt(late, target, clock):
    """Its report counts, and the question is taken back; another worker's does not."""

    async def work():
        async with Kernel(target, clock) as kernel:
            kernel.initialize_orchestration("p", LINE)
            kernel.get_next_instruction("p", "w1", 10)
            clock.advance(10.1)
            asked = kernel.get_pending_interrupt("p")
            report(kernel, "a", worker="w2", output={"by": 2}, **late)
            assert kernel.interrupts.get_status(asked.id) == "pending"
            told = report(kernel, "a", worker="w1", output={"by": 1}, **late)
            assert (told.stage, told.envelope.outputs["a"]) == ("b", {"by": 1})
            assert kernel.interrupts.get_status(asked.id) == "cancelled"
            assert kernel.get_process("p").state == "running"

    run(work())


def test_a_worker_may_give_a_run_back(clock):
    """What it has not begun goes to the next at once, and is not in doubt."""

    async def work():
        async with Kernel("memory", clock) as kernel:
            kernel.initialize_orchestration("p", LINE)
            kernel.get_next_instruction("p", "w1", 10)
            assert kernel.release_lease("p", "w2") == 0
            assert kernel.release_lease("p", "w1") == 1
            assert kernel.release_lease("p", "w1") == 0
            assert kernel.get_next_instruction("p", "w2", 10).run_id == 2

    run(work())


def test_workers_share_the_branches_of_a_fork(clock):
    """Each is given a branch of its own; one in doubt does not hold up the other."""

    async def work():
        async with Kernel("memory", clock) as kernel:
            kernel.initialize_orchestration("p", FORK)
            first, second = (kernel.get_next_instruction("p", worker, 10) for worker in ("w1", "w2"))
            assert {first.stage, second.stage} == {"x", "y"}
            assert kernel.get_next_instruction("p", "w3", 10).kind == "wait_interrupt"
            clock.advance(6)
            kernel.renew_lease("p", "w2", 10)
            clock.advance(6)
            assert kernel.get_pending_interrupt("p").kind == "in_doubt"
            kernel.renew_lease("p", "w2", 10)
            report(kernel, second.stage, worker="w2")
            kernel.resolve_interrupt(kernel.get_pending_interrupt("p").id, {"decision": "skip", "data": {}})
            assert kernel.get_next_instruction("p", "w2", 10).terminal_reason == "completed"

    run(work())


def test_all_that_is_ready_may_be_leased_at_once(clock):
    """get_ready_instructions gives one worker every branch, and the next one nothing."""

    async def work():
        async with Kernel("memory", clock) as kernel:
            kernel.initialize_orchestration("p", FORK)
            ready = kernel.orchestrator.get_ready_instructions("p", "w1", 10)
            assert [told.stage for told in ready] == ["x", "y"]
            assert {told.lease.worker for told in ready} == {"w1"}
            [told] = kernel.orchestrator.get_ready_instructions("p", "w2", 10)
            assert told.kind == "wait_interrupt"
            assert len(kernel.renew_lease("p", "w1", 10)) == 2

    run(work())


@pytest.mark.parametrize("config", [LINE, REPEATABLE])
def test_leases_survive_their_kernel(config, path):
    """After kill -9 the worker still has its run, for the whole of its lease again; then it is lost as promised."""

    async def first_life():
        async with Crash(Kernel(path, SimClock(1_000.0))) as kernel:
            kernel.initialize_orchestration("p", config)
            kernel.get_next_instruction("p", "w1", 10)
            await kernel.durable()

    async def second_life(*, silent):
        clock = SimClock(2_000.0)
        async with Crash(Kernel(path, clock)) as kernel:
            assert kernel.get_next_instruction("p", "w2", 10).lease.worker == "w1"
            clock.advance(9)
            assert kernel.get_next_instruction("p", "w1", 10).run_id == 1
            if silent:
                clock.advance(10.1)
                await settle(kernel)
                await kernel.durable()

    async def third_life():
        async with Kernel(path, SimClock(3_000.0)) as kernel:
            if config is REPEATABLE:
                return kernel.get_next_instruction("p", "w2", 10).run_id
            asked = kernel.get_pending_interrupt("p")
            kernel.resolve_interrupt(asked.id, {"decision": "skip", "data": {"n": 1}})
            return kernel.get_next_instruction("p", "w2", 10).envelope.outputs["a"]

    run(first_life())
    run(second_life(silent=False))
    run(second_life(silent=True))
    assert run(third_life()) == (2 if config is REPEATABLE else {"n": 1})


def test_wrong_leases_are_named(clock):
    """A lease needs a worker with a name and a time above zero; nothing is started."""

    async def work():
        async with Kernel("memory", clock) as kernel:
            kernel.initialize_orchestration("p", LINE)
            wrong: list[Any] = [(None, 5), ("", 5), (7, 5), ("w", 0), ("w", -1), ("w", 10**9), ("w" * 10_000, 5)]
            for worker, lease_s in wrong:
                with pytest.raises(ConfigError):
                    kernel.get_next_instruction("p", worker, lease_s)
            assert kernel.get_envelope("p").agent_hop_count == 0

    run(work())


def test_nothing_is_kept_of_leases_that_are_over(clock):
    """Neither timers nor times, when pipelines end or are forgotten."""

    async def work():
        async with Kernel("memory", clock) as kernel:
            leases = kernel.orchestrator.leases
            for number in range(20):
                pid = f"p{number}"
                kernel.initialize_orchestration(pid, LINE)
                kernel.get_next_instruction(pid, "w1", 10)
                if number % 2:
                    kernel.terminate(pid, force=True)
                else:
                    kernel.orchestrator.cleanup_session(pid)
            assert (leases._timers, leases._ends) == ({}, {})

    run(work())
