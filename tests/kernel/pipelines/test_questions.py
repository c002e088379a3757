"""Questions that hold a pipeline up: answered once, known in one place, waited for without looking again and again."""

from __future__ import annotations

import asyncio

import pytest

from lyra.errors import ConfigError, InvalidTransition
from lyra.kernel import Kernel
from lyra.testing import SimClock
from tests.kernel.conftest import Crash, pass_time, run, settle

LINE = {"name": "line", "agents": [{"name": "a", "default_next": "b"}, {"name": "b"}]}
ASKING = {
    "name": "asking",
    "agents": [{"name": "a", "default_next": "clarification"}, {"name": "b"}],
    "clarification_resume_stage": "b",
}


async def nothing(envelope):
    return {}


def test_an_answer_through_the_pipeline_is_the_kernels_too():
    """resume_after_interrupt on an entry of the process table: the kernel's question is resolved with it."""

    async def work():
        async with Kernel() as kernel:
            kernel.submit("p", user_id="u")
            kernel.schedule("p")
            kernel.get_next_runnable()
            kernel.initialize_orchestration("p", ASKING)
            kernel.get_next_instruction("p")
            told = kernel.report_agent_result("p", {"agent_name": "a"})
            asked = kernel.get_pending_interrupt("p")
            assert told.interrupt is not None
            assert (told.kind, told.interrupt["id"]) == ("wait_interrupt", asked.id)
            assert kernel.get_process("p").state == "waiting"
            told = kernel.orchestrator.resume_after_interrupt("p", None, {"text": "this"})
            assert (told.kind, told.agent_name) == ("run_agent", "b")
            assert kernel.get_pending_interrupt("p") is None
            answered = kernel.interrupts.get_interrupt(asked.id)
            assert (answered.status, answered.response.text) == ("resolved", "this")
            assert kernel.get_process("p").state == "ready"
            assert kernel.get_next_instruction("p") == told

    run(work())


@pytest.mark.parametrize("ending", ["resolved", "cancelled"])
def test_a_question_from_outside_that_ends_while_an_agent_works_is_over_for_the_pipeline(target, ending):
    """The pipeline that this kernel runs waits for it no longer, though its runner waits for the agent."""

    async def work():
        async with Kernel(target) as kernel:
            begun, goes_on = asyncio.Event(), asyncio.Event()

            async def slow(envelope):
                begun.set()
                await goes_on.wait()
                return {}

            kernel.register_agent("a", slow)
            kernel.register_agent("b", nothing)
            events = asyncio.ensure_future(_all_of(kernel.execute_pipeline(LINE, pid="x")))
            await begun.wait()
            asked = kernel.create_interrupt("x", "checkpoint", question="stop for a moment?")
            assert kernel.get_envelope("x").interrupt_pending
            if ending == "resolved":
                kernel.resolve_interrupt(asked.id, {"text": "no"})
            else:
                kernel.interrupts.cancel_interrupt(asked.id)
            assert kernel.interrupts.get_status(asked.id) == ending
            assert not kernel.get_envelope("x").interrupt_pending
            goes_on.set()
            assert (await events)[-1].envelope.terminal_reason.outcome() == "completed"

    run(work())


async def _all_of(events):
    return [event async for event in events]


def test_an_answer_that_the_kernel_refuses_changes_nothing():
    """An empty answer to a question that needs one: the pipeline still waits, and so does the question."""

    async def work():
        async with Kernel() as kernel:
            kernel.submit("p")
            kernel.initialize_orchestration("p", ASKING)
            told = kernel.report_agent_result("p", {"agent_name": "a"})
            with pytest.raises(ConfigError):
                kernel.orchestrator.resume_after_interrupt("p", None, {})
            assert kernel.get_next_instruction("p") == told
            assert kernel.get_pending_interrupt("p").status == "pending"

    run(work())


def test_an_answer_through_the_pipeline_reaches_the_process_that_asked(target):
    """A pipeline that this kernel runs asks by itself; answered from outside the question, it goes on as well."""

    async def work():
        async with Kernel(target) as kernel:
            kernel.register_agent("a", nothing)
            kernel.register_agent("b", nothing)
            seen = []
            async for event in kernel.execute_pipeline(ASKING, pid="x"):
                seen.append(event.type)
                if event.type == "interrupt_raised":
                    await settle(kernel)
                    told = kernel.orchestrator.resume_after_interrupt("x", None, {"text": "this"})
                    assert told.agent_name == "b"
            assert seen.count("interrupt_raised") == 1
            assert event.envelope.terminal_reason == "completed"
            assert event.envelope.interrupt is not None
            assert event.envelope.interrupt["response"]["text"] == "this"
            assert kernel.interrupts.list_interrupts("x", status="pending") == []

    run(work())


def held_up(target, clock, end):
    """A pipeline that a question from outside holds up for an hour; `end` says how the question is over."""

    async def work():
        go = asyncio.Event()

        async def first(envelope):
            await go.wait()
            return {}

        async with Kernel(target, clock) as kernel:
            kernel.register_agent("a", first)
            kernel.register_agent("b", nothing)
            events = kernel.execute_pipeline(LINE, pid="x")
            listening = asyncio.ensure_future(collect(events))
            await settle(kernel)
            asked = kernel.create_interrupt("x", "confirmation", "hm", question="Go on?", ttl_s=3600.0)
            go.set()
            await settle(kernel)
            assert kernel.orchestrator.get_session_state("x").interrupt_pending
            before = kernel.scheduler.steps, kernel.journal.seq if kernel.journal else 0
            await pass_time(kernel, clock, 3599.0, step_s=600.0)
            assert before == (kernel.scheduler.steps, kernel.journal.seq if kernel.journal else 0)
            await end(kernel, clock, asked)
            await settle(kernel)
            return await listening

    return run(work())


async def collect(events):
    return [event async for event in events]


def test_a_held_up_pipeline_waits_without_looking(target, clock):
    """It takes no step and writes no row, and goes on in the moment of the answer, without time passing."""

    async def answer(kernel, clock, asked):
        kernel.resolve_interrupt(asked.id, {"approved": True})

    events = held_up(target, clock, answer)
    assert [event.stage for event in events if event.type == "stage_completed"] == ["a", "b"]


def test_a_held_up_pipeline_ends_when_no_consent_comes_in_time(target, clock):
    """A confirmation whose time is over is no consent: the pipeline is cancelled."""

    async def expire(kernel, clock, asked):
        await pass_time(kernel, clock, 2.0)

    assert held_up(target, clock, expire)[-1].envelope.terminal_reason == "user_cancelled"


def test_a_held_up_pipeline_goes_on_when_the_question_is_taken_back(target, clock):
    """Cancelled by the program that raised it."""

    async def cancel(kernel, clock, asked):
        kernel.interrupts.cancel_interrupt(asked.id)

    assert held_up(target, clock, cancel)[-1].envelope.terminal_reason == "completed"


def test_a_held_up_pipeline_ends_with_a_refusal(target, clock):
    """A confirmation that is not given ends it."""

    async def refuse(kernel, clock, asked):
        kernel.orchestrator.resume_after_interrupt("x", None, {"approved": False})

    assert held_up(target, clock, refuse)[-1].envelope.terminal_reason == "user_cancelled"


def test_a_held_up_pipeline_can_be_ended(target, clock):
    """terminate_session reaches a runner that waits."""

    async def stop(kernel, clock, asked):
        kernel.orchestrator.terminate_session("x")

    assert held_up(target, clock, stop)[-1].envelope.terminal_reason == "user_cancelled"


@pytest.mark.parametrize("answered_before_another_crash", [False, True])
def test_a_held_up_pipeline_comes_back_held_up(path, answered_before_another_crash):
    """After a crash it waits again, however often it dies; the answer is found whenever it comes."""
    log = []

    def register(kernel, go, *, with_second=True):
        async def first(envelope):
            log.append("a")
            await go.wait()
            return {}

        async def second(envelope):
            log.append("b")
            return {}

        kernel.register_agent("a", first)
        if with_second:
            kernel.register_agent("b", second)

    async def work():
        go = asyncio.Event()
        async with Crash(Kernel(path)) as kernel:
            register(kernel, go)
            events = kernel.execute_pipeline(LINE, pid="x")
            listening = asyncio.ensure_future(collect(events))
            await settle(kernel)
            asked = kernel.create_interrupt("x", "clarification", question="Which?")
            go.set()
            await settle(kernel)
            await kernel.durable()
            listening.cancel()
        async with Crash(Kernel(path)) as kernel:
            # The second agent is not there: called in the moment of the crash, its effect would be in doubt.
            register(kernel, go, with_second=False)
            await settle(kernel)
            assert kernel.interrupts.get_interrupt(asked.id).status == "pending"
            assert kernel.process("x").alive
            if answered_before_another_crash:
                await kernel.resolve_interrupt(asked.id, {"text": "that"})
        async with Kernel(path) as kernel:
            register(kernel, go)
            await settle(kernel)
            if not answered_before_another_crash:
                assert log == ["a"]
                await kernel.resolve_interrupt(asked.id, {"text": "that"})
            seen = [event async for event in kernel.execute_pipeline(LINE, pid="x")]
            assert seen[-1].envelope.terminal_reason == "completed"
            assert log == ["a", "b"]

    run(work())


CONFIRMED = {
    "name": "confirmed",
    "agents": [{"name": "a", "routing_rules": [{"target": "confirmation"}], "default_next": "b"}, {"name": "b"}],
    "confirmation_resume_stage": "b",
}


@pytest.mark.parametrize("end", ["expires", "cancelled"])
@pytest.mark.parametrize("driven", ["worker", "kernel"])
def test_a_confirmation_that_is_not_given_is_none(clock, driven, end):
    """It ran out or was taken back: no user consented, so the pipeline is cancelled and says why."""

    async def work():
        async with Kernel(clock=clock) as kernel:
            for name in "ab":
                kernel.register_agent(name, nothing)
            if driven == "worker":
                kernel.submit("x")
                kernel.initialize_orchestration("x", CONFIRMED)
                kernel.report_agent_result("x", {"agent_name": "a"})
            else:
                listening = asyncio.ensure_future(collect(kernel.execute_pipeline(CONFIRMED, pid="x")))
            await settle(kernel)
            asked = kernel.get_pending_interrupt("x")
            if end == "expires":
                await pass_time(kernel, clock, 3601.0, step_s=600.0)
            else:
                kernel.interrupts.cancel_interrupt(asked.id, "not today")
            await settle(kernel)
            told = kernel.get_next_instruction("x")
            assert (told.kind, told.terminal_reason) == ("terminate", "user_cancelled")
            why = "not today" if end == "cancelled" else "no answer to the confirmation came in time"
            assert told.termination_message == why
            if driven == "kernel":
                assert [event.stage for event in await listening if event.type == "stage_completed"] == ["a"]

    run(work())


def test_a_listener_that_comes_later_is_told_where_it_stands(path):
    """After a crash: the question that is open, or the stage that runs, before anything else."""

    async def forever(envelope):
        await asyncio.Event().wait()

    async def first_event(kernel, config, pid):
        events = kernel.execute_pipeline(config, pid=pid)
        first = await anext(events)
        await events.aclose()
        return first

    async def work():
        async with Crash(Kernel(path)) as kernel:
            kernel.register_agent("a", nothing)
            kernel.register_agent("b", forever, idempotent=True)
            listening = [
                asyncio.ensure_future(collect(kernel.execute_pipeline(config, pid=pid)))
                for config, pid in ((ASKING, "x"), (LINE, "y"))
            ]
            await settle(kernel)
            await kernel.durable()
            for listener in listening:
                listener.cancel()
        async with Kernel(path) as kernel:
            kernel.register_agent("a", nothing)
            kernel.register_agent("b", forever, idempotent=True)
            event = await first_event(kernel, ASKING, "x")
            assert (event.type, event.data["interrupt"]["id"]) == (
                "interrupt_raised",
                kernel.get_pending_interrupt("x").id,
            )
            event = await first_event(kernel, LINE, "y")
            assert (event.type, event.stage, event.data["run_id"]) == ("stage_started", "b", 2)

    run(work())


def test_what_a_process_runs_no_other_caller_drives():
    """Reports and replacements from outside are refused while execute_pipeline runs it."""

    async def work():
        async with Kernel() as kernel:
            kernel.register_agent("a", nothing)
            kernel.register_agent("b", nothing)
            listening = asyncio.ensure_future(collect(kernel.execute_pipeline(ASKING, pid="x")))
            await settle(kernel)
            kept = kernel.orchestrator.checkpoint("x")
            for act in (
                lambda: kernel.report_agent_result("x", {"agent_name": "b"}),
                lambda: kernel.initialize_orchestration("x", LINE, force=True),
                lambda: kernel.orchestrator.resume_from_checkpoint("x", kept, force=True),
            ):
                with pytest.raises(InvalidTransition, match="run by a process of this kernel"):
                    act()
            kernel.resolve_interrupt(kernel.get_pending_interrupt("x").id, {"text": "go"})
            assert (await listening)[-1].envelope.terminal_reason == "completed"

    run(work())


def test_what_stands_beside_the_session_in_a_checkpoint_counts():
    """Its envelope and its counts are resumed from, and checked."""

    async def work():
        async with Kernel() as kernel:
            kernel.initialize_orchestration("p", LINE)
            kept = kernel.orchestrator.checkpoint("p")
            kept["envelope"] = {**kept["envelope"], "raw_input": "changed"}
            kept["stage_visits"] = {"a": 7}
            state = kernel.orchestrator.resume_from_checkpoint("q", kept)
            assert (state.envelope.raw_input, state.stage_visits) == ("changed", {"a": 7})
            for wrong in ({"envelope": 3}, {"edge_traversals": []}, {"stage_visits": {"a": "x"}}):
                with pytest.raises(ConfigError):
                    kernel.orchestrator.resume_from_checkpoint("r", {**kept, **wrong})

    run(work())


OUTSIDE = {
    "name": "outside",
    "agents": [{"name": "a", "default_next": "b"}, {"name": "b"}, {"name": "again"}],
    "clarification_resume_stage": "again",
    "confirmation_resume_stage": "again",
    "agent_review_resume_stage": "again",
}
ENDS = ["answered", "denied", "expired", "cancelled"]


def expected(kind, end):
    """The stage that a pipeline goes on with after a question that was raised while `a` ran, or how it ends."""
    if kind == "confirmation" and end in ("denied", "expired"):
        return "user_cancelled"
    return "again" if end in ("answered", "denied") else "b"


async def end_question(kernel, clock, asked, end):
    if end == "expired":
        clock.advance(61.0)
        await settle(kernel)
        assert kernel.interrupts.get_status(asked.id) == "expired"
    elif end == "cancelled":
        await kernel.interrupts.cancel_interrupt(asked.id)
    else:
        await kernel.resolve_interrupt(asked.id, {"text": "so", "approved": end == "answered"})


@pytest.mark.parametrize("crashed", [False, True])
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", ["confirmation", "clarification", "agent_review"])
def test_a_question_that_ends_between_two_polls_counts(path, clock, kind, end, crashed):
    """Raised and over while a worker runs its stage: the next instruction is what the answer, or its lack, says."""

    async def work():
        async with (Crash if crashed else _same)(Kernel(path, clock)) as kernel:
            await kernel.submit("p")
            await kernel.initialize_orchestration("p", OUTSIDE)
            assert kernel.get_next_instruction("p").agent_name == "a"
            asked = kernel.create_interrupt("p", kind, question="May it?", ttl_s=60.0)
            await end_question(kernel, clock, asked, end)
            await kernel.durable()
        async with Kernel(path, clock) as kernel:
            told = kernel.report_agent_result("p", {"agent_name": "a"})
            assert (told.agent_name or told.terminal_reason) == expected(kind, end)
            assert kernel.get_next_instruction("p") == told

    run(work())


@pytest.mark.parametrize("end", ["answered", "denied"])
@pytest.mark.parametrize("kind", ["confirmation", "clarification", "agent_review"])
def test_an_answer_outlives_the_cleanup_until_a_worker_asks(clock, kind, end):
    async def work():
        async with Kernel(clock=clock) as kernel:
            kernel.submit("p")
            kernel.schedule("p")
            kernel.get_next_runnable()
            kernel.initialize_orchestration("p", OUTSIDE)
            kernel.get_next_instruction("p")
            asked = kernel.create_interrupt("p", kind, question="May it?")
            await end_question(kernel, clock, asked, end)
            clock.advance(90_000.0)
            kernel.cleanup()
            told = kernel.report_agent_result("p", {"agent_name": "a"})
            assert (told.agent_name or told.terminal_reason) == expected(kind, end)
            assert kernel.cleanup()["interrupts"] == 1  # it is taken up, and goes now

    run(work())


def test_a_stage_ends_in_time_though_the_clock_was_ahead(path):
    """The first life's clock was a year ahead: the stage's time runs from the opening of the second."""
    year_s = 365 * 86_400.0
    config = {"name": "timed", "agents": [{"name": "a", "timeout_seconds": 10}, {"name": "b"}]}

    async def first():
        async with Crash(Kernel(path, SimClock(1_800_000_000.0 + year_s))) as kernel:
            await kernel.submit("p")
            await kernel.initialize_orchestration("p", config)
            assert kernel.get_next_instruction("p").agent_name == "a"
            await kernel.durable()

    async def second():
        clock = SimClock(1_800_000_000.0)
        async with Kernel(path, clock) as kernel:
            clock.advance(9.0)
            assert kernel.get_next_instruction("p").kind == "run_agent"
            clock.advance(2.0)
            told = kernel.get_next_instruction("p")
            assert told.kind == "terminate"
            assert "took longer than 10 s" in told.envelope.termination_reason

    run(first())
    run(second())


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", ["confirmation", "clarification", "agent_review"])
def test_a_question_that_ends_while_a_stage_runs_counts(target, clock, kind, end):
    """The same for a pipeline that the kernel runs."""

    async def work():
        go = asyncio.Event()

        async def first(envelope):
            await go.wait()
            return {}

        async with Kernel(target, clock) as kernel:
            kernel.register_agent("a", first)
            kernel.register_agent("b", nothing)
            kernel.register_agent("again", nothing)
            listening = asyncio.ensure_future(collect(kernel.execute_pipeline(OUTSIDE, pid="x")))
            await settle(kernel)
            asked = kernel.create_interrupt("x", kind, question="May it?", ttl_s=60.0)
            await end_question(kernel, clock, asked, end)
            go.set()
            events = await listening
            stages = [event.stage for event in events if event.type == "stage_completed" and event.stage != "a"]
            assert (stages[0] if stages else events[-1].envelope.terminal_reason) == expected(kind, end)

    run(work())


def test_a_second_question_that_is_denied_while_the_first_is_open_counts():
    """Each question about a pipeline is known to it, not only the oldest."""

    async def work():
        async with Kernel() as kernel:
            kernel.initialize_orchestration("p", OUTSIDE)
            kernel.get_next_instruction("p")
            first = kernel.create_interrupt("p", "clarification", question="Which?")
            second = kernel.create_interrupt("p", "confirmation", question="May it?")
            kernel.resolve_interrupt(second.id, {"approved": False})
            kernel.resolve_interrupt(first.id, {"text": "this"})
            assert kernel.get_next_instruction("p").terminal_reason == "user_cancelled"

    run(work())


def _same(kernel):
    return kernel
