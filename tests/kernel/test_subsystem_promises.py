"""What the subsystems promise each other and their callers, where two of them meet: with and without a journal."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import lyra.kernel as public
from lyra.core.event import Event
from lyra.errors import (
    ConfigError,
    DeadlineExceeded,
    InvalidTransition,
    LimitExceeded,
    LyraError,
    NameTaken,
    NoSuchInterrupt,
    NoSuchProcess,
    Overloaded,
    ProcessError,
)
from lyra.kernel import Envelope, Kernel, ResourceQuota, ServiceInfo, ServiceRequest, ServiceResponse
from lyra.kernel.process.process import PRIORITIES
from lyra.kernel.workers.entry import STATES
from lyra.testing.clock import SimClock
from tests.kernel.conftest import Crash, run, settle

PIPELINE = {
    "name": "line",
    "agents": [
        {
            "name": "a",
            "stage_order": 1,
            "routing_rules": [{"condition": "ask", "value": True, "target": "clarification"}],
            "default_next": "b",
        },
        {"name": "b", "stage_order": 2},
    ],
    "clarification_resume_stage": "b",
    "default_timeout_seconds": 10**6,
}
ASKS = {"agent_name": "a", "output": {"ask": True, "clarification_question": "which?"}}


def running(kernel: Kernel, pid: str = "p", **options: Any) -> None:
    kernel.submit(pid, **options)
    kernel.transition_state(pid, "ready")
    kernel.transition_state(pid, "running")


# ---------------------------------------------------------------- pipelines and their entries
def test_tidying_up_spares_a_pipeline_that_waits_for_a_human(target, clock):
    """A question lives a day, so the pipeline that asked is there when the answer comes, with an entry or without."""

    async def main():
        async with Kernel(target, clock, lease_s=3600.0) as kernel:  # a day of renewals takes seconds
            running(kernel, "entry")
            for pid in ("entry", "alone"):
                kernel.initialize_orchestration(pid, PIPELINE)
                kernel.get_next_instruction(pid)
                assert kernel.report_agent_result(pid, ASKS).kind == "wait_interrupt"
            clock.advance(2 * 3600)
            assert kernel.cleanup()["sessions"] == 0
            asked = kernel.get_pending_interrupt("entry")
            assert asked is not None
            kernel.resolve_interrupt(asked.id, {"text": "this"})
            assert kernel.get_next_instruction("entry").stage == "b"
            kernel.orchestrator.resume_after_interrupt("alone", None, {"text": "this"})
            assert kernel.get_next_instruction("alone").stage == "b"
            clock.advance(25 * 3600)
            assert kernel.cleanup()["sessions"] == 1  # no caller drives that one

    run(main())


def test_tidying_up_spares_a_pipeline_whose_agent_takes_long(target, clock):
    """An entry that runs is at work, however long it takes; a session without an entry is not."""

    async def main():
        async with Kernel(target, clock) as kernel:
            running(kernel)
            kernel.initialize_orchestration("p", PIPELINE)
            kernel.initialize_orchestration("stray", PIPELINE)
            kernel.get_next_instruction("p")
            clock.advance(2 * 3600)
            assert kernel.cleanup()["sessions"] == 1
            assert kernel.report_agent_result("p", {"agent_name": "a", "output": {}}).stage == "b"
            with pytest.raises(NoSuchProcess):
                kernel.get_next_instruction("stray")

    run(main())


def test_ending_a_process_ends_its_pipeline_and_forgetting_it_forgets_it(target):
    """No work goes on for an ended process, and the next owner of a pid sees nothing of the last."""

    async def main():
        async with Kernel(target) as kernel:
            running(kernel, user_id="alice")
            kernel.initialize_orchestration("p", PIPELINE, {"raw_input": "alice's secret"})
            kernel.get_next_instruction("p")
            kernel.terminate("p", "enough", force=True)
            told = kernel.get_next_instruction("p")
            assert (told.kind, told.terminal_reason, told.termination_message) == (
                "terminate",
                "user_cancelled",
                "enough",
            )
            assert kernel.report_agent_result("p", {"agent_name": "a", "output": {}}).kind == "terminate"
            assert kernel.resources.get_usage("p").agent_hops == 0
            with pytest.raises(InvalidTransition, match="has ended"):
                kernel.initialize_orchestration("p", PIPELINE, force=True)
            kernel.cleanup_process("p")
            kernel.submit("p", user_id="bob")
            assert kernel.get_request_status("p").envelope is None
            kernel.initialize_orchestration("p", PIPELINE, {"raw_input": "bob's"})
            assert kernel.get_request_status("p").envelope.raw_input == "bob's"

    run(main())


def test_a_pipeline_keeps_to_the_quota_of_its_entry(target):
    """No stage is begun past it, the pipeline says why, and the entry at work ends with its pipeline."""

    async def main():
        async with Kernel(target) as kernel:
            for pid, quota in (("calls", {"max_llm_calls": 1}), ("tools", {"max_tool_calls": 1})):
                running(kernel, pid, quota=quota)
                kernel.initialize_orchestration(pid, PIPELINE)
                kernel.get_next_instruction(pid)
            metrics = {"llm_calls": 5, "tool_calls": 5}
            calls = kernel.report_agent_result("calls", {"agent_name": "a", "output": {}, "metrics": metrics})
            assert (calls.kind, calls.terminal_reason) == ("terminate", "max_llm_calls_exceeded")
            tools = kernel.report_agent_result("tools", {"agent_name": "a", "output": {}, "metrics": metrics})
            assert (tools.terminal_reason, tools.termination_message) == (
                "policy_violation",
                "max_tool_calls_exceeded",
            )
            block = kernel.get_process("calls")
            assert (block.state, block.termination_reason) == ("terminated", "max_llm_calls_exceeded")

    run(main())


def test_an_entry_ends_with_its_pipeline(target):
    """The last report ends the entry that ran it; one that was never put to work stays as it is."""

    async def main():
        async with Kernel(target) as kernel:
            running(kernel, "worked")
            kernel.submit("new")
            for pid in ("worked", "new"):
                kernel.initialize_orchestration(pid, PIPELINE)
                for agent in "ab":
                    kernel.get_next_instruction(pid)
                    told = kernel.report_agent_result(pid, {"agent_name": agent, "output": {}})
                assert told.terminal_reason == "completed"
            assert kernel.get_process("worked").termination_reason == "completed"
            assert kernel.terminate("worked").state == "terminated"
            assert kernel.transition_state("worked", "terminated").termination_reason == "completed"
            assert kernel.get_process("new").state == "new"

    run(main())


# ---------------------------------------------------------------- going down
def test_a_shutdown_keeps_a_pipeline_that_waits(path, clock):
    """What a kill keeps, an orderly end keeps: entry, question and session are there, and the answer goes on."""

    async def main():
        kernel = Kernel(path, clock)
        await kernel.start()
        running(kernel)
        kernel.initialize_orchestration("p", PIPELINE)
        kernel.get_next_instruction("p")
        kernel.report_agent_result("p", ASKS)
        await kernel.shutdown("update")
        async with Kernel(path, clock) as kernel:
            assert kernel.get_process("p").state == "waiting"
            assert kernel.get_next_instruction("p").kind == "wait_interrupt"
            asked = kernel.get_pending_interrupt("p")
            assert asked is not None
            kernel.resolve_interrupt(asked.id, {"text": "this"})
            assert kernel.get_next_instruction("p").stage == "b"

    run(main())


def test_a_shutdown_waits_for_dispatches_and_messages(path):
    """What is in flight comes to its end and is counted; what is new is refused meanwhile."""

    async def main():
        release = asyncio.Event()
        answers: list[str] = []

        async def slow(_: object) -> dict[str, str]:
            await release.wait()
            answers.append("answered")
            return {}

        kernel = Kernel(path)
        await kernel.start()
        kernel.register_service({"name": "m", "service_type": "inference"})
        kernel.register_handler("m", slow)
        kernel.bus.register_handler("q", slow)
        kernel.bus.subscribe("t", slow)
        kernel.submit("p")
        work = [
            asyncio.ensure_future(call)
            for call in (
                kernel.dispatch_inference("m", "hi", pid="p"),
                kernel.bus.publish("t"),
                kernel.bus.query("q", timeout_s=None),
                kernel.bus.send("q"),
            )
        ]
        await asyncio.sleep(0)
        going = asyncio.ensure_future(kernel.shutdown())
        await asyncio.sleep(0)
        assert not going.done()
        for new in (
            lambda: kernel.submit("late"),
            lambda: kernel.initialize_orchestration("late", PIPELINE),
            lambda: kernel.execute_pipeline(PIPELINE),
            lambda: kernel.register_service({"name": "late"}),
            lambda: kernel.record_usage("late", llm_calls=1),
        ):
            with pytest.raises(ProcessError, match="shutting down"):
                new()
        release.set()
        await asyncio.gather(*work)
        await going
        assert answers == ["answered"] * 4
        async with Kernel(path) as kernel:
            assert kernel.resources.get_usage("p").inference_requests == 1

    run(main())


def test_a_shutdown_does_not_wait_for_ever(path, clock):
    """After `drain_s` a dispatch that does not end is cut short."""

    async def main():
        kernel = Kernel(path, clock)
        await kernel.start()
        kernel.register_service({"name": "s"})
        kernel.register_handler("s", lambda _: asyncio.Event().wait())
        work = asyncio.ensure_future(kernel.dispatch("s"))
        await asyncio.sleep(0)
        going = asyncio.ensure_future(kernel.shutdown(drain_s=2.0))
        await settle(kernel)
        assert not going.done()
        clock.advance(2.0)
        await going
        work.cancel()

    run(main())


@pytest.mark.parametrize("way", ["bus", "service"])
def test_a_handler_may_shut_the_kernel_down(target, clock, way):
    """It does not wait for itself; no time passes."""

    async def main():
        kernel = Kernel(target, clock)
        await kernel.start()
        kernel.register_service({"name": "s"})
        kernel.register_handler("s", lambda _: kernel.shutdown())
        kernel.bus.subscribe("stop", lambda _: kernel.shutdown())
        await (kernel.bus.publish("stop") if way == "bus" else kernel.dispatch("s"))
        with pytest.raises(ProcessError, match="closed"):
            kernel.submit("p")

    run(main())


def test_a_kernel_that_went_down_before_it_was_opened_stays_down():
    """A shutdown is final, whenever it comes."""

    async def main():
        kernel = Kernel()
        await kernel.shutdown()
        with pytest.raises(ProcessError, match="opened once"):
            await kernel.start()

    run(main())


# ---------------------------------------------------------------- questions
@pytest.mark.parametrize("kind", ["interrupt.created", "pcb.interrupt_created"])
def test_a_listener_may_answer_at_once(target, kind):
    """The process that waited goes on, whichever user answers and how quickly."""

    async def main():
        async with Kernel(target) as kernel:
            kernel.on_event(
                lambda event: kernel.resolve_interrupt(event.data["id"], {"text": "x"}) if event.kind == kind else None
            )
            running(kernel)
            kernel.create_interrupt("p", "clarification", "?")
            await settle(kernel)
            assert kernel.get_pending_interrupt("p") is None
            assert kernel.get_process("p").state == "ready"
            assert kernel.interrupts.get_counts()["resolved"] == 1

    run(main())


def test_a_programs_question_is_over_when_its_time_is(path):
    """Also when no kernel was there to see it pass, and when the wall clock was set: a late answer is refused."""

    async def asker(ctx):
        try:
            return (await ctx.ask("sure?", kind="confirmation")).text
        except DeadlineExceeded:
            return "no answer"

    async def main():
        clock = SimClock(1_000.0)
        async with Kernel(path, clock, [asker]) as kernel:
            await kernel.spawn(asker, pid="one")
            await settle(kernel)
            first = kernel.get_pending_interrupt("one")
        async with Kernel(path, SimClock(1_000.0 + 86_400), [asker]) as kernel:
            with pytest.raises(InvalidTransition, match="expired"):
                kernel.resolve_interrupt(first.id, {"text": "late"})
            assert (await kernel.process("one").wait()).result == "no answer"
        clock = SimClock(200_000.0)
        async with Kernel(path, clock, [asker]) as kernel:
            await kernel.spawn(asker, pid="two")
            await settle(kernel)
            second = kernel.get_pending_interrupt("two")
            clock.stall(7200)
            with pytest.raises(InvalidTransition, match="expired"):
                kernel.resolve_interrupt(second.id, {"text": "late"})

    run(main())


def test_no_process_runs_while_a_question_about_it_is_open(target):
    """One in line keeps its place and is passed over; no caller moves it by hand; an answer lets it go on."""

    async def main():
        async with Kernel(target) as kernel:
            for pid in ("first", "second"):
                kernel.submit(pid)
                kernel.schedule(pid)
            asked = kernel.create_interrupt("first", "clarification", "?")
            assert kernel.get_next_runnable().pid == "second"
            assert kernel.get_next_runnable() is None
            with pytest.raises(InvalidTransition, match="waits for an answer") as caught:
                kernel.transition_state("first", "running")
            assert asked.id in str(caught.value.hint)
            again = kernel.create_interrupt("second", "clarification", "?")
            assert kernel.get_process("second").state == "waiting"
            with pytest.raises(InvalidTransition, match="waits for an answer"):
                kernel.transition_state("second", "ready")
            kernel.resolve_interrupt(asked.id, {"text": "x"})
            assert kernel.get_next_runnable().pid == "first"
            kernel.interrupts.cancel_interrupt(again.id)
            assert kernel.get_next_runnable().pid == "second"

    run(main())


def test_one_passed_over_has_its_turn_without_an_answer_in_time(target, clock):
    """The end of a question's time is an end like another, also across a restart."""

    async def main():
        async with Kernel(target, clock) as kernel:
            kernel.submit("p")
            kernel.schedule("p")
            kernel.create_interrupt("p", "timeout", "?")
            assert kernel.get_next_runnable() is None
            clock.advance(300)
            assert kernel.get_next_runnable().pid == "p"

    run(main())


def test_an_answer_wakes_only_who_waited_for_it(target):
    """An entry that its worker put to wait stays there when a question about something else is answered."""

    async def main():
        async with Kernel(target) as kernel:
            running(kernel)
            kernel.transition_state("p", "waiting", "for a delivery")
            asked = kernel.create_interrupt("p", "clarification", "?")
            kernel.resolve_interrupt(asked.id, {"text": "x"})
            assert kernel.get_process("p").state == "waiting"
            assert kernel.transition_state("p", "ready").state == "ready"

    run(main())


# ---------------------------------------------------------------- events
def test_events_of_entries_come_when_their_rows_are_durable(path):
    """A listener that hears of it finds it after a kill at that moment: process, question and overrun alike."""

    async def main():
        heard: list[tuple[str, int]] = []
        async with Kernel(path) as kernel:
            kernel.on_event(lambda event: heard.append((event.kind, kernel.journal.durable_seq)))
            kernel.submit("p", quota={"max_llm_calls": 1})
            kernel.schedule("p")
            kernel.get_next_runnable()
            kernel.record_usage("p", llm_calls=2)
            kernel.create_interrupt("p", "timeout", "?")
            kernel.terminate("p")
            written = kernel.journal.seq
            assert heard == []
            await kernel.durable()
            kinds = [kind for kind, _ in heard]
            for kind in (
                "process.created",
                "process.state_changed",
                "resource.exceeded",
                "interrupt.created",
                "interrupt.cancelled",
                "process.terminated",
            ):
                assert kind in kinds
            assert kinds.index("pcb.submitted") < kinds.index("process.created") < kinds.index("pcb.moved")
            assert {seq for _, seq in heard} == {written}

    run(main())


def test_events_carry_the_block_and_the_question(target):
    """Document by document: `pcb` for processes, `interrupt` for questions, as plain data of one's own."""

    async def main():
        async with Kernel(target) as kernel:
            heard: dict[str, Any] = {}
            kernel.on_event(lambda event: event.data.get("pcb", {}).clear())
            kernel.on_event(lambda event: heard.__setitem__(event.kind, event.data))
            running(kernel, user_id="ada")
            asked = kernel.create_interrupt("p", "clarification", "?", data={"a": {"b": 1}})
            kernel.resolve_interrupt(asked.id, {"text": "x"})
            kernel.terminate("p", force=True)
            await kernel.durable()
            assert heard["process.created"]["pcb"]["user_id"] == "ada"
            assert heard["process.state_changed"]["pcb"]["pid"] == "p"
            assert heard["process.terminated"]["pcb"]["state"] == "terminated"
            assert heard["interrupt.created"]["interrupt"]["data"] == {"a": {"b": 1}}
            assert heard["interrupt.resolved"]["interrupt"]["response"]["text"] == "x"

    run(main())


def test_a_listener_that_tidies_up_does_not_disturb_who_caused_it(target):
    """What is said comes after the act: recording usage gives its sum although the process is gone by then."""

    async def main():
        async with Kernel(target) as kernel:

            def tidy(event):
                if event.kind == "resource.exceeded":
                    kernel.terminate(event.pid, force=True)
                    kernel.cleanup_process(event.pid)

            kernel.on_event(tidy)
            running(kernel, quota={"max_llm_calls": 1, "max_tool_calls": 1})
            assert kernel.record_usage("p", llm_calls=2, tool_calls=2).llm_calls == 2
            await settle(kernel)
            with pytest.raises(NoSuchProcess):
                kernel.get_process("p")

    run(main())


def test_who_may_listen(target):
    """Functions, plain or async; each registration is its own, and ends once."""

    async def main():
        async with Kernel(target) as kernel:
            not_callable: Any
            for not_callable in (None, 3, "print"):
                with pytest.raises(ConfigError):
                    kernel.on_event(not_callable)
            heard: list[str] = []

            async def later(event):
                await asyncio.sleep(0)
                heard.append(f"later {event.kind}")

            def now(event):
                heard.append(f"now {event.kind}")

            first = kernel.on_event(now)
            kernel.on_event(now)
            kernel.on_event(later)
            first()
            first()
            kernel.emit_event({"kind": "health.alert", "pid": "p", "data": {"alert": "test"}})
            await settle(kernel)
            assert heard == ["now health.alert", "later health.alert"]
            wrong: Any
            for wrong in ({"kind": "no.such"}, 5, {"kind": "health.alert", "data": 3}):
                with pytest.raises(ConfigError):
                    kernel.emit_event(wrong)

    run(main())


def test_a_listener_that_changes_an_event_changes_nothing_else():
    """Also where it is the only listener, and the Event was made by a caller."""

    async def main():
        async with Kernel() as kernel:
            kernel.on_event(lambda event: event.data["parts"].append("changed"))
            data = {"parts": ["mine"]}
            for kind in ("health.alert", "effect.started"):
                kernel.emit_event({"kind": kind, "data": data})
                kernel.emit_event(Event(0, 0.0, "p", kind, data))
            assert data == {"parts": ["mine"]}

    run(main())


# ---------------------------------------------------------------- values
def test_what_a_changing_call_gives_may_be_awaited(path):
    """Awaiting waits until the store has it, and gives the same value: a kill right after loses nothing."""

    async def main():
        async with Crash(Kernel(path)) as kernel:
            process = await kernel.submit("p", user_id="ada")
            assert process == kernel.get_process("p")
            await kernel.schedule("p")
            taken = kernel.get_next_runnable()
            assert taken is not None
            assert (await taken).state == "running"
            assert (await kernel.record_usage("p", llm_calls=1)).llm_calls == 1
            assert (await kernel.adjust_quota("p", {"max_llm_calls": 7})).max_llm_calls == 7
            assert (await kernel.initialize_orchestration("p", PIPELINE)).pipeline == "line"
            assert (await kernel.get_next_instruction("p")).stage == "a"
            assert (await kernel.check_rate_limit("ada")).allowed
            asked = await kernel.create_interrupt("p", "clarification", "?")
            assert asked.status == "pending"
            assert (await kernel.interrupts.cancel_interrupt(asked.id)).status == "cancelled"
            assert kernel.journal.durable_seq == kernel.journal.seq
        async with Kernel(path) as kernel:
            block = kernel.get_process("p")
            assert (block.state, block.usage.llm_calls, block.quota.max_llm_calls) == ("ready", 1, 7)
            assert (await kernel.transition_state("p", "running")).state == "running"
            assert (await kernel.terminate("p", force=True)).state == "terminated"
            assert await block is block

    run(main())


def test_values_are_pictures(target):
    """Changing what a question or a service holds changes nothing in the kernel."""

    async def main():
        async with Kernel(target) as kernel:
            kernel.submit("p")
            asked = kernel.create_interrupt("p", "clarification", "?", data={"a": {"b": 1}})
            asked.data["a"]["b"] = 99
            assert kernel.interrupts.get_interrupt(asked.id).data == {"a": {"b": 1}}
            kernel.resolve_interrupt(asked.id, {"data": {"a": [1]}})
            kernel.interrupts.get_interrupt(asked.id).response.data["a"].append(2)
            assert kernel.interrupts.get_interrupt(asked.id).response.data == {"a": [1]}
            kernel.register_service({"name": "s", "metadata": {"a": {"b": 1}}})
            kernel.services.get_service("s").metadata["a"]["b"] = 99
            assert kernel.services.get_service("s").metadata == {"a": {"b": 1}}

    run(main())


def test_further_public_names_of_the_same_classes():
    """Each is the real thing under that name."""
    assert public.KernelInterrupt is public.Interrupt
    assert public.InterruptResponse is public.Answer
    assert public.KernelEvent is public.Event
    assert public.OrchestrationSession is public.SessionState
    assert public.AgentExecutionResult is public.AgentResult
    assert public.DEFAULT_INTERRUPT_CONFIGS["clarification"].default_ttl == 24 * 3600
    assert [*public.ProcessState] == [*STATES]
    assert [*public.SchedulingPriority] == [*PRIORITIES]
    assert public.TerminalReason("completed") == "completed"
    assert public.AgentExecutionMetrics(llm_calls=1).llm_calls == 1
    for name in ("ServiceHandler", "KernelEventHandler", "Envelope"):
        assert hasattr(public, name)
    assert set(public.__all__) <= set(dir(public))


def test_an_envelope_can_be_read_and_replaced(target):
    """`get_envelope` is a copy, `store_envelope` puts another in its place; the pipeline stays where it is."""

    async def main():
        async with Kernel(target) as kernel:
            kernel.initialize_orchestration("p", PIPELINE, "one")
            kernel.get_envelope("p").raw_input = "changed"
            assert kernel.get_envelope("p").raw_input == "one"
            envelope = kernel.get_envelope("p")
            envelope.metadata["seen"] = True
            kernel.store_envelope("p", envelope)
            told = kernel.get_next_instruction("p")
            assert (told.stage, told.envelope.metadata) == ("a", {"seen": True})
            with pytest.raises(NoSuchProcess):
                kernel.store_envelope("missing", envelope)

    run(main())


# ---------------------------------------------------------------- quotas and rates
def test_inference_cannot_pass_its_quota(target):
    """Requests are counted before they run, so twenty at once are as many as the quota says; characters are, too."""

    async def main():
        async with Kernel(target) as kernel:
            events: list[Any] = []
            kernel.on_event(lambda event: events.append(event) if event.kind == "resource.exceeded" else None)
            release = asyncio.Event()
            ran: list[str] = []

            async def slow(request):
                ran.append(request.pid)
                await release.wait()

            kernel.register_service({"name": "m", "service_type": "inference", "max_concurrent": 50})
            kernel.register_handler("m", slow)
            kernel.submit("p", quota={"max_inference_requests": 1})
            work = [asyncio.ensure_future(kernel.dispatch_inference("m", "hi", pid="p")) for _ in range(20)]
            await asyncio.sleep(0)
            release.set()
            ends = await asyncio.gather(*work, return_exceptions=True)
            assert sum(isinstance(end, LimitExceeded) for end in ends) == 19
            assert ran == ["p"]
            kernel.submit("q", quota={"max_inference_input_chars": 5})
            with pytest.raises(LimitExceeded, match="max_inference_input_chars_exceeded") as caught:
                await kernel.dispatch_inference("m", "x" * 1_000_000, pid="q")
            assert caught.value.hint
            assert kernel.resources.get_usage("q").inference_requests == 0
            await kernel.durable()
            assert [(event.pid, event.data["resource"]) for event in events] == [
                ("p", "inference_requests"),
                ("q", "inference_input_chars"),
            ]

    run(main())


def test_waiting_for_a_human_does_not_cost_time(target, clock):
    """An entry's clock stands still meanwhile; its timers come back with its next turn."""

    async def main():
        async with Kernel(target, clock) as kernel:
            kinds: list[str] = []
            kernel.on_event(lambda event: kinds.append(event.kind) if event.kind.startswith("resource.") else None)
            running(kernel, quota={"timeout_seconds": 300, "soft_timeout_seconds": 200})
            clock.advance(100)
            asked = kernel.create_interrupt("p", "clarification", "?")
            clock.advance(3600)
            kernel.resolve_interrupt(asked.id, {"text": "x"})
            assert kernel.check_quota("p").within_bounds
            assert kernel.get_remaining_budget("p").time_remaining_seconds == 200
            kernel.transition_state("p", "running")
            clock.advance(150)
            await kernel.durable()
            assert kinds == ["resource.warning"]
            clock.advance(60)
            assert kernel.check_quota("p").exceeded_reason == "timeout_exceeded"

    run(main())


def test_time_in_waiting_is_remembered(path, clock):
    """A restart while a user thinks changes nothing, from the journal and from a snapshot."""

    async def main():
        async with Crash(Kernel(path, clock)) as kernel:
            running(kernel)
            clock.advance(10)
            asked = await kernel.create_interrupt("p", "clarification", "?")
            clock.advance(50)
            await kernel._snapshots.write()
        async with Kernel(path, clock) as kernel:
            clock.advance(50)
            kernel.resolve_interrupt(asked.id, {"text": "x"})
            clock.advance(5)
            assert kernel.get_process("p").usage.elapsed_seconds == 15

    run(main())


def test_a_programs_time_is_shown_and_its_budget_limits_it(target, clock):
    """It counts from its start; a quota's seconds are for entries."""

    async def forever(ctx):
        await ctx.receive()

    async def main():
        async with Kernel(target, clock) as kernel:
            await kernel.spawn(forever, pid="p")
            await kernel.spawn(forever, pid="limited", budget={"seconds": 5000})
            clock.advance(1000)
            assert kernel.get_process("p").usage.elapsed_seconds == 1000
            assert kernel.check_quota("p").within_bounds
            assert kernel.get_remaining_budget("limited").time_remaining_seconds == 4000

    run(main())


def test_a_quotas_rates_go_with_their_process(target, clock):
    """They tighten a user while the process lives, also after a restart, and leave nothing behind."""

    async def main():
        async with Kernel(target, clock) as kernel:
            kernel.submit("p", user_id="u", quota={"rate_limit_rpm": 1})
            assert kernel.rate_limiter.get_config("u").requests_per_minute == 1
            if target != "memory":
                await kernel.durable()
        async with Kernel(target, clock) as kernel:
            kernel.submit("p", user_id="u", quota={"rate_limit_rpm": 1})
            assert kernel.check_rate_limit("u").allowed
            assert not kernel.check_rate_limit("u").allowed
            kernel.terminate("p")
            assert kernel.check_rate_limit("u").allowed
            assert kernel.rate_limiter.state.users == {}

    run(main())


def test_a_quota_object_leaves_the_rest_to_the_kernel(target):
    """Fields left out take this kernel's default, written as an object or as a mapping; it survives a restart."""

    async def main():
        async with Kernel(target) as kernel:
            kernel.resources.set_default_quota({"max_tool_calls": 7})
            for pid, quota in (("object", ResourceQuota(max_llm_calls=5)), ("mapping", {"max_llm_calls": 5})):
                granted = kernel.submit(pid, quota=quota).quota
                assert (granted.max_llm_calls, granted.max_tool_calls) == (5, 7)

    run(main())


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("snapshot", [False, True])
def test_defaults_survive_a_restart(path, snapshot, early):
    """The default quota and how kinds of questions behave, also when they were set before the kernel was opened."""

    def say(kernel):
        kernel.resources.set_default_quota({"max_tool_calls": 7})
        kernel.interrupts.set_config("timeout", {"default_ttl": None, "auto_expire": False})

    async def main():
        kernel = Kernel(path)
        if early:
            say(kernel)
        async with Crash(kernel):
            if not early:
                say(kernel)
            await kernel.durable()
            if snapshot:
                await kernel._snapshots.write()
        async with Kernel(path) as kernel:
            kernel.submit("p")
            assert kernel.get_process("p").quota.max_tool_calls == 7
            assert kernel.create_interrupt("p", "timeout", "?").expires_at is None

    run(main())


def test_usage_from_before_the_submission_stays(target):
    """Usage that is counted before a pid is submitted is kept."""

    async def main():
        async with Kernel(target) as kernel:
            kernel.record_usage("p", llm_calls=3)
            assert kernel.submit("p", user_id="ada").usage.llm_calls == 3

    run(main())


# ---------------------------------------------------------------- services
def test_after_a_restart_only_who_has_a_handler_is_asked(path):
    """A service that is only remembered is not picked, and says that it takes nothing."""

    async def main():
        async with Kernel(path) as kernel:
            for name in ("one", "two"):
                kernel.register_service({"name": name, "service_type": "inference", "capabilities": ["m"]})
        async with Kernel(path) as kernel:
            kernel.register_handler("two", lambda _: {"by": "two"})
            assert (await kernel.dispatch_inference("m", "hi")).service == "two"
            assert (kernel.services.can_accept("one"), kernel.services.can_accept("two")) == (False, True)
            kernel.register_service({"name": "one", "service_type": "inference"})
            assert kernel.services.can_accept("one")

    run(main())


def test_each_try_gets_the_request_as_it_was(target):
    """What a failed try did to it is not the next one's to see; any error of a handler is tried again."""

    async def main():
        async with Kernel(target) as kernel:
            seen: list[Any] = []

            def handler(request):
                seen.append((dict(request.metadata), request.envelope.raw_input))
                request.metadata["spoilt"] = True
                request.envelope.raw_input = "spoilt"
                if len(seen) < 3:
                    raise (ValueError if len(seen) == 1 else KeyError)("not yet")

            kernel.register_service({"name": "s"})
            kernel.register_handler("s", handler)
            request = {"envelope": {"raw_input": "x"}, "metadata": {"n": 1}}
            answer = await kernel.dispatch("s", request, max_retries=2, backoff={"initial_s": 0.0})
            assert answer.retries == 2
            assert seen == [({"n": 1}, "x")] * 3

    run(main())


def test_an_envelope_may_be_a_mapping(target):
    """With as few fields as there are, in a request, in a request object and in an answer."""

    async def main():
        async with Kernel(target) as kernel:
            kernel.register_service({"name": "s"})
            kernel.register_handler("s", lambda request: request.envelope)
            for request in ({"envelope": {"raw_input": "x"}}, ServiceRequest(envelope={"raw_input": "x"})):  # type: ignore[arg-type]
                answer = await kernel.dispatch("s", request)
                assert isinstance(answer.envelope, Envelope)
                assert answer.envelope.raw_input == "x"
            kernel.register_handler("s", lambda _: ServiceResponse(envelope={"raw_input": "y"}))  # type: ignore[arg-type]
            assert (await kernel.dispatch("s")).envelope.raw_input == "y"

    run(main())


def test_answers_with_an_error_count_as_failed(target):
    """The figures say how many requests did not work, whichever way the handler said so."""

    async def main():
        async with Kernel(target) as kernel:
            kernel.register_service({"name": "s"})
            kernel.register_handler("s", lambda _: ServiceResponse(error="no"))
            await kernel.dispatch("s")
            assert kernel.services.get_stats()["failed"] == 1

    run(main())


def test_the_last_health_check_is_the_same_after_a_restart(path):
    """It is the row's own time."""

    async def main():
        async with Kernel(path) as kernel:
            kernel.register_service({"name": "s"})
            kernel.services.update_health("s", "degraded")
            seen = kernel.services.get_service("s").last_health_check
        async with Kernel(path) as kernel:
            assert kernel.services.get_service("s").last_health_check == seen

    run(main())


# ---------------------------------------------------------------- the table
def test_old_programs_are_forgotten_where_no_store_keeps_them(clock):
    """As entries are: a day after their end."""

    async def program(_ctx):
        return 1

    async def main():
        async with Kernel(clock=clock) as kernel:
            await kernel.spawn(program, pid="prog").wait()
            clock.advance(25 * 3600)
            assert kernel.cleanup()["processes"] == 1
            with pytest.raises(NoSuchProcess):
                kernel.get_process("prog")

    run(main())


def test_programs_and_entries_share_names_and_children(target, clock):
    """A name is no other process's pid, an entry may have a program for a parent, and the list is by age."""

    async def forever(ctx):
        await ctx.receive()

    async def main():
        async with Kernel(target, clock) as kernel:
            await kernel.spawn(forever, pid="program")
            clock.advance(1)
            kernel.submit("entry", parent_pid="program")
            with pytest.raises(NameTaken):
                kernel.spawn(forever, name="entry")
            assert kernel.get_process("program").child_pids == ("entry",)
            assert [process.pid for process in kernel.list_processes()] == ["program", "entry"]
            kernel.terminate("entry", "done")
            assert kernel.transition_state("entry", "zombie").termination_reason == "done"
            kernel.cleanup_process("entry")
            assert kernel.get_process("program").child_pids == ()
            assert kernel.terminate("program", "enough").termination_reason == "enough"

    run(main())


# ---------------------------------------------------------------- mistakes
@pytest.mark.parametrize(
    "call",
    [
        lambda kernel: kernel.submit("q", parent_pid=None),
        lambda kernel: kernel.submit("q", parent_pid=set()),
        lambda kernel: kernel.on_event(print, 5),
        lambda k: k.check_quota([]),
        lambda k: k.record_usage([], llm_calls=1),
        lambda k: k.adjust_quota([], {}),
        lambda k: k.resolve_interrupt([], {}),
        lambda k: k.interrupts.get_interrupt([]),
        lambda k: k.interrupts.get_status([]),
        lambda k: k.interrupts.list_interrupts([]),
        lambda k: k.interrupts.has_pending([]),
        lambda k: k.interrupts.get_pending_interrupt([]),
        lambda k: k.interrupts.cleanup_process_interrupts([]),
        lambda k: k.rate_limiter.get_usage([]),
        lambda k: k.rate_limiter.get_config([]),
        lambda k: k.rate_limiter.get_config("u", []),
        lambda k: k.check_rate_limit("\ud800"),
        lambda k: k.bus.subscribers([]),
        lambda k: k.bus.has_handler([]),
        lambda k: k.bus.unregister_handler([]),
        lambda k: k.initialize_orchestration("x", PIPELINE, 5),
        lambda k: ServiceInfo(),
        lambda k: k.create_interrupt("p", "timeout", "?", ttl=5),
    ],
)
def test_wrong_types_are_named(target, call):
    """A mistake of a caller is a LyraError, and never a bare exception of Python."""

    async def main():
        async with Kernel(target) as kernel:
            kernel.submit("p")
            with pytest.raises((ConfigError, NoSuchInterrupt)):
                call(kernel)

    run(main())


def test_wrong_requests_run_nothing(target):
    """A handler is not run for a request that cannot be counted or is misspelt."""

    async def main():
        async with Kernel(target) as kernel:
            ran: list[object] = []
            kernel.register_service({"name": "m", "service_type": "inference"})
            kernel.register_handler("m", ran.append)
            for options in ({"pid": 5}, {"pid": "~"}, {"timeout": 3}, {"max_retries": -1}):
                with pytest.raises(ConfigError):
                    await kernel.dispatch_inference("m", "hi", **options)
            with pytest.raises(ConfigError):
                await kernel.dispatch_inference("m", {"texts": None})
            with pytest.raises(ConfigError):
                await kernel.dispatch("m", timeout=3)
            assert ran == []

    run(main())


def test_refusals_say_what_to_do(target):
    """Each carries a hint."""

    async def main():
        async with Kernel(target, processes_max=1) as kernel:
            kernel.submit("p", user_id="ada")
            asked = kernel.create_interrupt("p", "clarification", "?")
            kernel.register_service({"name": "s", "status": "unhealthy"})

            def refused(call):
                with pytest.raises(LyraError) as caught:
                    call()
                assert caught.value.hint, caught.value

            refused(lambda: kernel.submit("q"))
            refused(lambda: kernel.resolve_interrupt(asked.id, {"text": "x"}, user_id="bob"))
            refused(lambda: kernel.register_service({"name": "s"}))
            refused(lambda: kernel.services.acquire_slot("s"))
            refused(lambda: kernel.services.release_slot("s"))
            kernel.resolve_interrupt(asked.id, {"text": "x"})
            refused(lambda: kernel.resolve_interrupt(asked.id, {"text": "x"}))
            refused(lambda: kernel.transition_state("p", "blocked"))
            refused(lambda: kernel.cleanup_process("p"))
            kernel.terminate("p")
            refused(lambda: kernel.create_interrupt("p", "timeout", "?"))
            with pytest.raises(Overloaded):
                await kernel.dispatch("s")

    run(main())
