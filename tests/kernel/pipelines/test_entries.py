"""A pipeline and the process table: a pid that was not submitted is known for as long as its pipeline is."""

from __future__ import annotations

import pytest

from lyra.errors import ConfigError, InvalidTransition, NameTaken, NoSuchProcess
from lyra.kernel import Kernel
from tests.kernel.conftest import crash, run, settle

LINE = {"name": "line", "agents": [{"name": "a", "default_next": "b"}, {"name": "b"}]}
ASKING = {
    "name": "asking",
    "agents": [{"name": "a", "default_next": "confirmation"}, {"name": "pay"}],
    "confirmation_resume_stage": "pay",
}
HOUR_S = 3600.0


def report(kernel, pid, agent, **more):
    return kernel.report_agent_result(pid, {"agent_name": agent, "output": {}, **more})


def test_a_pid_that_was_not_submitted_is_an_entry_at_work(target):
    """With the ids of its envelope, in no queue, until its pipeline ends; its stage is the pipeline's."""

    async def main():
        async with Kernel(target) as kernel:
            ids = {"request_id": "r1", "user_id": "ann", "session_id": "s1"}
            kernel.initialize_orchestration("job", LINE, {"raw_input": "tea", **ids})
            block = kernel.get_process("job")
            assert (block.state, block.request_id, block.user_id, block.session_id) == ("running", "r1", "ann", "s1")
            assert block.current_stage == "a"
            assert kernel.get_next_runnable() is None
            report(kernel, "job", "a")
            assert kernel.get_request_status("job").pcb.current_stage == "b"
            report(kernel, "job", "b")
            block = kernel.get_process("job")
            assert (block.state, block.termination_reason) == ("terminated", "completed")

    run(main())


def test_its_question_is_the_kernels_with_an_id_and_a_time_to_live(target, clock):
    """The entry waits while it is open and runs when it is answered; no worker takes it."""

    async def main():
        async with Kernel(target, clock) as kernel:
            kernel.initialize_orchestration("job", ASKING)
            told = report(kernel, "job", "a")
            asked = kernel.get_pending_interrupt("job")
            assert asked is not None
            assert (told.kind, told.interrupt.id, told.interrupt.kind) == ("wait_interrupt", asked.id, "confirmation")
            assert asked.expires_at == clock.now() + HOUR_S
            assert kernel.get_process("job").state == "waiting"
            kernel.resolve_interrupt(asked.id, {"approved": True}, user_id="eve")
            assert kernel.get_process("job").state == "running"
            assert kernel.get_next_runnable() is None
            assert kernel.get_next_instruction("job").agent_name == "pay"

    run(main())


def test_its_question_expires(target, clock):
    async def main():
        async with Kernel(target, clock) as kernel:
            kernel.initialize_orchestration("job", ASKING)
            report(kernel, "job", "a")
            clock.advance(HOUR_S + 1)
            told = kernel.get_next_instruction("job")
            assert (told.kind, told.terminal_reason) == ("terminate", "user_cancelled")
            assert kernel.get_process("job").state == "terminated"

    run(main())


def test_the_entry_and_its_question_survive_a_crash(path):
    """After a kill the worker finds both under the same pid and goes on."""

    async def before():
        kernel = Kernel(path)
        await kernel.start()
        kernel.initialize_orchestration("job", ASKING, {"user_id": "ann"})
        report(kernel, "job", "a")
        await kernel.durable()
        asked = kernel.get_pending_interrupt("job")
        crash(kernel)
        return asked.id

    async def after(asked):
        async with Kernel(path) as kernel:
            block = kernel.get_process("job")
            assert (block.state, block.user_id, block.pending_interrupt) == ("waiting", "ann", "confirmation")
            kernel.resolve_interrupt(asked, {"approved": True})
            assert kernel.get_next_instruction("job").agent_name == "pay"
            report(kernel, "job", "pay")
            assert kernel.get_process("job").state == "terminated"

    run(after(run(before())))


def test_a_submitted_entry_stays_what_it_is_and_lends_its_ids(target):
    """The envelope says whose it is where the caller did not; what it says itself counts."""

    async def main():
        async with Kernel(target) as kernel:
            for pid, given, expected in (
                ("e", {"raw_input": "tea"}, ("r1", "ann", "s1")),
                ("f", {"user_id": "bob", "request_id": "r2"}, ("r2", "bob", "s1")),
                ("g", None, ("r1", "ann", "s1")),
            ):
                kernel.submit(pid, request_id="r1", user_id="ann", session_id="s1")
                kernel.initialize_orchestration(pid, LINE, given)
                envelope = kernel.get_envelope(pid)
                assert (envelope.request_id, envelope.user_id, envelope.session_id) == expected
                assert kernel.get_process(pid).state == "new"
                assert kernel.get_process(pid).current_stage == "a"
                assert kernel.orchestrator.cleanup_session(pid)
                assert kernel.get_process(pid).user_id == "ann"

    run(main())


def test_the_entry_goes_with_its_pipeline(target):
    """Forgotten together, and the pid is free; an ended one makes way for another pipeline."""

    async def main():
        async with Kernel(target) as kernel:
            kernel.initialize_orchestration("job", LINE)
            report(kernel, "job", "a")
            report(kernel, "job", "b")
            kernel.initialize_orchestration("job", LINE, force=True)
            assert kernel.get_process("job").state == "running"
            assert kernel.orchestrator.cleanup_session("job")
            with pytest.raises(NoSuchProcess):
                kernel.get_process("job")
            kernel.initialize_orchestration("job", LINE)
            kernel.terminate("job", "enough", force=True)
            assert kernel.get_next_instruction("job").termination_message == "enough"
            kernel.cleanup_process("job")
            assert list(kernel.orchestrator.sessions()) == []

    run(main())


def test_one_that_is_not_driven_ends_and_is_kept_as_long_as_others(target, clock):
    async def main():
        async with Kernel(target, clock) as kernel:
            kernel.initialize_orchestration("job", LINE)
            clock.advance(HOUR_S + 1)
            assert kernel.cleanup()["sessions"] == 1
            assert kernel.get_process("job").state == "terminated"
            kernel.initialize_orchestration("job", LINE)
            assert kernel.get_process("job").state == "running"

    run(main())


def test_its_bounds_are_the_pipelines_until_it_is_given_a_quota(target):
    async def main():
        async with Kernel(target) as kernel:
            stages = [{"name": f"s{index}", "default_next": f"s{index + 1}"} for index in range(30)]
            config = {"name": "long", "agents": [*stages, {"name": "s30"}], "max_agent_hops": 100}
            for pid in ("free", "bound"):
                kernel.initialize_orchestration(pid, config)
            kernel.adjust_quota("bound", {"max_agent_hops": 2})
            ends = {}
            for pid in ("free", "bound"):
                told = kernel.get_next_instruction(pid)
                while told.kind == "run_agent":
                    told = report(kernel, pid, told.agent_name)
                ends[pid] = (str(told.terminal_reason), kernel.get_envelope(pid).agent_hop_count)
            assert ends == {"free": ("completed", 31), "bound": ("max_agent_hops_exceeded", 3)}

    run(main())


def test_a_mistake_makes_no_entry(target):
    async def main():
        async with Kernel(target) as kernel:
            for config, envelope in (({"name": "p", "agents": []}, None), (LINE, 5)):
                with pytest.raises(ConfigError):
                    kernel.initialize_orchestration("job", config, envelope)
                assert kernel.lifecycle.total == 0

    run(main())


def test_a_process_takes_the_pipeline_of_an_entry_over(target):
    """Its question is asked again, by the process; the worker outside is refused from then on, and listeners hear of
    the entry's end."""

    async def main():
        moved = []
        async with Kernel(target) as kernel:
            kernel.on_event(lambda event: moved.append(event.data), kinds=["process.state_changed"])
            for name in ("a", "pay"):
                kernel.register_agent(name, lambda _envelope: {})
            kernel.initialize_orchestration("job", ASKING)
            report(kernel, "job", "a")
            first = kernel.get_pending_interrupt("job")
            seen = []
            async for event in kernel.execute_pipeline(ASKING, pid="job"):
                seen.append(event.type)
                if event.type == "interrupt_raised":
                    await settle(kernel)
                    asked = kernel.get_pending_interrupt("job")
                    assert asked.id != first.id
                    assert kernel.interrupts.get_interrupt(first.id).status == "cancelled"
                    with pytest.raises(InvalidTransition, match="run by a process"):
                        kernel.initialize_orchestration("job", LINE, force=True)
                    kernel.resolve_interrupt(asked.id, {"approved": True})
            assert seen[-1] == "pipeline_completed"
            assert kernel.get_process("job").current_service
        reason = "a process of this kernel took its pipeline over"
        assert [row["new_state"] for row in moved if row.get("reason") == reason] == ["terminated"]

    run(main())


def test_the_end_of_a_pipeline_is_an_event_of_its_own(target):
    """However it came to its end, once, with the reason."""

    async def main():
        async with Kernel(target) as kernel:
            seen = []
            kernel.on_event(lambda event: seen.append((event.pid, event.data)) if event.kind == "pipeline.ended" else 0)
            for pid in ("done", "stopped"):
                kernel.initialize_orchestration(pid, LINE)
            report(kernel, "done", "a")
            report(kernel, "done", "b")
            kernel.orchestrator.terminate_session("stopped", "user_cancelled", "enough")
            report(kernel, "stopped", "a")
            await kernel.durable()
            await settle(kernel)
            assert [(pid, data["reason"], data["message"]) for pid, data in seen] == [
                ("done", "completed", "completed"),
                ("stopped", "user_cancelled", "enough"),
            ]

    run(main())


def test_a_checkpoint_that_waits_asks_anew_under_its_new_pid(target):
    async def main():
        async with Kernel(target) as kernel:
            kernel.initialize_orchestration("job", ASKING)
            report(kernel, "job", "a")
            kernel.orchestrator.resume_from_checkpoint("twin", kernel.orchestrator.checkpoint("job"))
            assert kernel.get_next_instruction("twin").kind == "wait_interrupt"
            first, second = (kernel.get_pending_interrupt(pid) for pid in ("job", "twin"))
            assert first.id != second.id
            kernel.resolve_interrupt(second.id, {"approved": True})
            assert kernel.get_next_instruction("twin").agent_name == "pay"
            assert kernel.get_next_instruction("job").kind == "wait_interrupt"

    run(main())


@pytest.mark.parametrize("ended", [False, True])
def test_a_run_under_the_pid_of_another_process_is_refused_and_leaves_nothing(target, ended):
    """An entry that a worker drives, or a program, keeps its pid: no session is begun under it."""

    async def a(_envelope):
        return {}

    async def program(ctx):
        if not ended:
            await ctx.receive()

    async def main():
        async with Kernel(target, programs=[program]) as kernel:
            kernel.register_agent("a", a)
            kernel.register_agent("b", a)
            kernel.submit("entry")
            if ended:
                kernel.terminate("entry")
            kernel.spawn(program, pid="program")
            await settle(kernel)
            for pid in ("entry", "program"):
                with pytest.raises(NameTaken):
                    async for _event in kernel.execute_pipeline(LINE, pid=pid):
                        pass
                with pytest.raises(NoSuchProcess):
                    kernel.get_orchestration_state(pid)

    run(main())
