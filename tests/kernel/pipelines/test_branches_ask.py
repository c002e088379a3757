"""Branches that ask: each waits for its own question, and each answer releases its own branch."""

from __future__ import annotations

import asyncio

import pytest

from lyra.errors import ConfigError, InvalidTransition
from lyra.kernel import AgentResult, Kernel
from lyra.kernel.pipelines.session import session_of
from lyra.kernel.pipelines.state import PipelineState
from tests.kernel.conftest import Crash, pass_time, run, settle

SPREAD = {"name": "spread", "node_kind": "fork", "branches": ["left", "right"], "default_next": "sum"}
STAGES = [
    {"name": "left", "default_next": "left2"},
    {"name": "left2"},
    {"name": "right", "default_next": "right2"},
    {"name": "right2"},
    {"name": "sum"},
]
PANEL = {"name": "panel", "agents": [SPREAD, *STAGES]}
FIRST_COMES = {**PANEL, "agents": [{**SPREAD, "join_strategy": "any"}, *STAGES]}
PARALLEL = {
    "name": "stages",
    "default_run_mode": "parallel",
    "agents": [
        {"name": "left"},
        {"name": "left2", "requires": ["left"]},
        {"name": "right"},
        {"name": "right2", "requires": ["right"]},
        {"name": "other"},
        {"name": "sum", "requires": ["left2", "right2"]},
    ],
}
ASKS = {"left": "Left?", "right": "Right?"}


class Panel:
    """The agents, and what they were called with: the answer that each stage saw."""

    def __init__(self, *asking, hold=()):
        self.asking = asking or tuple(ASKS)
        self.calls = []
        self.saw = {}
        self.go = {name: asyncio.Event() for name in hold}

    def register(self, kernel):
        for name in ("left", "left2", "right", "right2", "other", "sum"):
            kernel.register_agent(name, self.agent(name), idempotent=True)

    def agent(self, name):
        async def call(envelope):
            self.calls.append(name)
            asked = envelope.interrupt or {}
            self.saw[name] = (envelope.interrupt_pending, (asked.get("response") or {}).get("text"))
            if name in self.go:
                await self.go[name].wait()
            if name in self.asking:
                return AgentResult(output={"n": 1}, interrupt={"kind": "clarification", "question": ASKS[name]})
            return {"n": 1}

        return call


def open_questions(kernel, pid="x"):
    return {interrupt.question: interrupt for interrupt in kernel.interrupts.list_interrupts(pid, status="pending")}


def asked(told):
    return told.interrupt["question"]


def answer(told):
    return told.envelope.interrupt["response"]["text"]


def begin(kernel, config, pid="x"):
    async def listen():
        return [event async for event in kernel.execute_pipeline(config, pid=pid)]

    return asyncio.ensure_future(listen())


@pytest.mark.parametrize("config", [PANEL, PARALLEL], ids=["fork", "parallel"])
@pytest.mark.parametrize("order", [("Left?", "Right?"), ("Right?", "Left?")])
def test_each_answer_releases_its_own_branch(target, config, order):
    """Both questions stand open together; an answer lets its branch go on with it while the other still waits."""

    async def work():
        panel = Panel()
        async with Kernel(target) as kernel:
            panel.register(kernel)
            events = begin(kernel, config)
            await settle(kernel)
            assert set(open_questions(kernel)) == {"Left?", "Right?"}
            state = kernel.orchestrator.get_session_state("x")
            assert [interrupt["question"] for interrupt in state.interrupts] == ["Left?", "Right?"]
            assert {interrupt["id"] for interrupt in state.interrupts} == {
                interrupt.id for interrupt in open_questions(kernel).values()
            }
            for number, question in enumerate(order, start=1):
                kernel.resolve_interrupt(open_questions(kernel)[question].id, {"text": f"to {question}"})
                await settle(kernel)
                after = question.strip("?").lower() + "2"
                assert panel.calls.count(after) == 1
                assert panel.saw[after] == (False, f"to {question}")
                assert ("sum" in panel.calls) == (number == 2)
            assert (await events)[-1].envelope.terminal_reason == "completed"
            assert sorted(panel.calls) == sorted(stage["name"] for stage in config["agents"] if "branches" not in stage)
            assert not kernel.orchestrator.state.sessions["x"].waiting

    run(work())


def test_a_branch_asks_while_another_still_runs(target):
    """No question waits for a run that has nothing to do with it."""

    async def work():
        panel = Panel("left", hold=["right"])
        async with Kernel(target) as kernel:
            panel.register(kernel)
            events = begin(kernel, PANEL)
            await settle(kernel)
            kernel.resolve_interrupt(open_questions(kernel)["Left?"].id, {"text": "yes"})
            await settle(kernel)
            assert panel.calls == ["left", "right", "left2"]
            panel.go["right"].set()
            await events
            assert panel.calls == ["left", "right", "left2", "right2", "sum"]

    run(work())


def test_an_unanswered_question_expires_alone(target, clock):
    """Its branch goes on without an answer; the other one waits for its own."""

    async def work():
        panel = Panel()
        async with Kernel(target, clock) as kernel:
            kernel.interrupts.set_config("clarification", {"default_ttl": 60.0})
            panel.register(kernel)
            events = begin(kernel, PANEL)
            await settle(kernel)
            kernel.interrupts.cancel_interrupt(open_questions(kernel)["Right?"].id)
            await settle(kernel)
            assert panel.calls == ["left", "right", "right2"]
            assert set(open_questions(kernel)) == {"Left?"}
            await pass_time(kernel, clock, 61.0, step_s=10.0)
            assert (await events)[-1].envelope.terminal_reason == "completed"
            assert panel.calls == ["left", "right", "right2", "left2", "sum"]
            assert panel.saw["left2"] == (False, None)

    run(work())


def test_a_question_of_a_branch_that_is_over_is_taken_back(target):
    """join_strategy any: the first branch at its end cancels the other's question."""

    async def work():
        panel = Panel()
        async with Kernel(target) as kernel:
            panel.register(kernel)
            events = begin(kernel, FIRST_COMES)
            await settle(kernel)
            asked = open_questions(kernel)
            kernel.resolve_interrupt(asked["Right?"].id, {"text": "me"})
            assert (await events)[-1].envelope.terminal_reason == "completed"
            assert kernel.interrupts.get_status(asked["Left?"].id) == "cancelled"
            assert panel.calls == ["left", "right", "right2", "sum"]

    run(work())


def test_ending_the_pipeline_takes_every_question_back(target):
    """No question stays open about a pipeline that is over."""

    async def work():
        panel = Panel()
        async with Kernel(target) as kernel:
            panel.register(kernel)
            events = begin(kernel, PANEL)
            await settle(kernel)
            kernel.orchestrator.terminate_session("x")
            assert (await events)[-1].envelope.terminal_reason == "user_cancelled"
            await settle(kernel)
            assert not open_questions(kernel)

    run(work())


def test_a_question_from_outside_is_not_taken_for_a_branchs(target):
    """It holds everybody up until it is over, and its answer releases no branch that asked something else."""

    async def work():
        panel = Panel(hold=["right"])
        async with Kernel(target) as kernel:
            panel.register(kernel)
            events = begin(kernel, PANEL)
            await settle(kernel)
            outside = kernel.create_interrupt("x", "checkpoint", question="Stop?")
            panel.go["right"].set()
            await settle(kernel)
            assert set(open_questions(kernel)) == {"Left?", "Right?", "Stop?"}
            kernel.resolve_interrupt(open_questions(kernel)["Left?"].id, {"text": "yes"})
            await settle(kernel)
            assert panel.calls == ["left", "right"]
            kernel.resolve_interrupt(outside.id, {"text": "no"})
            await settle(kernel)
            assert panel.calls == ["left", "right", "left2"]
            kernel.resolve_interrupt(open_questions(kernel)["Right?"].id, {"text": "yes"})
            assert (await events)[-1].envelope.terminal_reason == "completed"

    run(work())


@pytest.mark.parametrize("answered", [(), ("Left?",), ("Right?",), ("Left?", "Right?")])
def test_questions_of_branches_come_back_after_a_crash(path, answered):
    """Whatever was answered before it: nothing is asked twice, and each answer finds its own branch."""

    async def work():
        panel = Panel()
        async with Crash(Kernel(path)) as kernel:
            panel.register(kernel)
            events = begin(kernel, PANEL)
            await settle(kernel)
            ids = {question: interrupt.id for question, interrupt in open_questions(kernel).items()}
            for question in answered:
                await kernel.resolve_interrupt(ids[question], {"text": f"to {question}"})
            events.cancel()
        for _ in range(2):  # it dies once more before it has the rest
            async with Crash(Kernel(path)) as kernel:
                panel.register(kernel)
                await settle(kernel)
                left = {question: interrupt.id for question, interrupt in open_questions(kernel).items()}
                assert left == {question: ids[question] for question in ids if question not in answered}
                await kernel.durable()
        async with Kernel(path) as kernel:
            panel.register(kernel)
            for question in open_questions(kernel):
                kernel.resolve_interrupt(ids[question], {"text": f"to {question}"})
            seen = [event async for event in kernel.execute_pipeline(PANEL, pid="x")]
            assert seen[-1].envelope.terminal_reason == "completed"
            assert (panel.saw["left2"][1], panel.saw["right2"][1]) == ("to Left?", "to Right?")
            assert panel.calls.count("left") == panel.calls.count("right") == 1
            assert len(kernel.interrupts.list_interrupts("x", status="pending")) == 0

    run(work())


def test_a_later_question_does_not_get_an_earlier_answer(path):
    """After a crash the program comes by its first question again; the second is open, and stays so."""
    line = {
        "name": "line",
        "agents": [{"name": "a", "default_next": "clarification"}, {"name": "b", "default_next": "confirmation"}],
        "clarification_resume_stage": "b",
    }

    async def nothing(envelope):
        return {}

    async def work():
        async with Crash(Kernel(path)) as kernel:
            for name in "ab":
                kernel.register_agent(name, nothing)
            events = begin(kernel, line)
            await settle(kernel)
            await kernel.resolve_interrupt(kernel.interrupts.pending("x")[0].id, {"text": "this"})
            await settle(kernel)
            await kernel.durable()
            events.cancel()
        async with Kernel(path) as kernel:
            for name in "ab":
                kernel.register_agent(name, nothing)
            await settle(kernel)
            (asked,) = kernel.interrupts.pending("x")
            assert asked.kind == "confirmation"
            assert not kernel.orchestrator.get_session_state("x").terminated
            kernel.resolve_interrupt(asked.id, {"approved": True})
            seen = [event async for event in kernel.execute_pipeline(line, pid="x")]
            assert seen[-1].envelope.terminal_reason == "completed"

    run(work())


@pytest.mark.parametrize("entry", [False, True])
def test_step_calls_answer_each_branch(entry):
    """A worker that drives the branches: one asks, the other is still to be run; answers find their branch by id."""

    async def work():
        async with Kernel() as kernel:
            if entry:
                kernel.submit("p", user_id="u")
            kernel.initialize_orchestration("p", PANEL)
            assert [instruction.stage for instruction in kernel.orchestrator.get_ready_instructions("p")] == [
                "left",
                "right",
            ]
            ask = {"kind": "clarification"}
            told = kernel.report_agent_result("p", {"agent_name": "left", "interrupt": {**ask, "question": "Left?"}})
            assert (told.kind, told.stage) == ("run_agent", "right")
            told = kernel.report_agent_result("p", {"agent_name": "right", "interrupt": {**ask, "question": "Right?"}})
            assert (told.kind, asked(told)) == ("wait_interrupt", "Left?")
            assert kernel.get_next_instruction("p") == told
            left, right = kernel.orchestrator.get_session_state("p").interrupts
            told = kernel.orchestrator.resume_after_interrupt("p", right, {"text": "r"})
            assert (told.kind, told.stage, answer(told)) == ("run_agent", "right2", "r")
            told = kernel.report_agent_result("p", {"agent_name": "right2"})
            assert (told.kind, asked(told)) == ("wait_interrupt", "Left?")
            if entry:
                assert set(open_questions(kernel, "p")) == {"Left?"}
                with pytest.raises(InvalidTransition):  # it was answered
                    kernel.orchestrator.resume_after_interrupt("p", right, {"text": "again"})
                kernel.resolve_interrupt(left["id"], {"text": "l"})
                told = kernel.get_next_instruction("p")
            else:
                told = kernel.orchestrator.resume_after_interrupt("p", left, {"text": "l"})
            assert (told.stage, answer(told)) == ("left2", "l")
            told = kernel.report_agent_result("p", {"agent_name": "left2"})
            assert told.stage == "sum"
            assert kernel.report_agent_result("p", {"agent_name": "sum"}).terminal_reason == "completed"

    run(work())


def test_step_calls_take_back_what_a_lost_branch_asked():
    """The question of an entry's branch that is over is cancelled with it."""

    async def work():
        async with Kernel() as kernel:
            kernel.submit("p", user_id="u")
            kernel.initialize_orchestration("p", FIRST_COMES)
            kernel.orchestrator.get_ready_instructions("p")
            ask = {"kind": "clarification", "question": "Left?"}
            kernel.report_agent_result("p", {"agent_name": "left", "interrupt": ask})
            (lost,) = open_questions(kernel, "p").values()
            kernel.report_agent_result("p", {"agent_name": "right"})
            told = kernel.report_agent_result("p", {"agent_name": "right2"})
            assert told.interrupt is not None or told.stage == "sum"
            assert (told.kind, told.stage) == ("run_agent", "sum")
            assert kernel.interrupts.get_status(lost.id) == "cancelled"

    run(work())


def test_a_session_with_room_for_one_question_is_still_read():
    """A checkpoint or snapshot from before: its question is the one in its envelope."""
    state = PipelineState()

    async def work():
        async with Kernel() as kernel:
            kernel.initialize_orchestration("p", PANEL)
            kernel.orchestrator.get_ready_instructions("p")
            ask = {"kind": "clarification", "question": "Left?"}
            kernel.report_agent_result("p", {"agent_name": "left", "interrupt": ask})
            return kernel.orchestrator.checkpoint("p")["session"]

    data = run(work())
    (question,) = data["waiting"]
    held = {"token": question["token"], "from": "left", "kind": "clarification", "id": question["id"], "own": True}
    before = {**{name: value for name, value in data.items() if name != "asks"}, "waiting": held}
    assert session_of(before) == session_of(data)
    state.load({"p": {**before, "waiting": None, "envelope": {**data["envelope"], "interrupt_pending": False}}})
    assert state.sessions["p"].waiting == []
    assert len(session_of({**before, "waiting": None}).waiting) == 1  # it came with a question
    state.apply("pipeline.resumed", "p", 0.0, {"interrupt": {}, "response": None})  # a row without a number


def test_a_question_of_no_known_kind_is_refused():
    """However it is handed in: a report is refused, an agent's is its stage's failure; no caller waits for ever."""

    async def work():
        async with Kernel() as kernel:
            kernel.initialize_orchestration("p", PANEL)
            kernel.orchestrator.get_ready_instructions("p")
            for wrong in ({"kind": "clarificaton"}, {"kind": 3}, ["clarification"]):
                with pytest.raises(ConfigError):
                    kernel.report_agent_result("p", {"agent_name": "left", "interrupt": wrong})
            told = kernel.report_agent_result("p", {"agent_name": "left", "interrupt": {"question": "Left?"}})
            assert kernel.orchestrator.get_session_state("p").interrupts[0]["kind"] == "clarification"
            assert told.stage == "right"
            kernel.register_agent("a", lambda envelope: AgentResult(interrupt={"kind": "clarificaton"}))
            events = await begin(kernel, {"name": "one", "agents": [{"name": "a"}]})
            assert events[-1].envelope.terminal_reason == "tool_failed_fatally"
            assert "clarificaton" in events[-1].envelope.termination_reason

    run(work())
