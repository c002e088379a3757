"""The orchestrator: instructions, reports, and pipelines that survive their kernel."""

from __future__ import annotations

import asyncio
import contextlib
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lyra.core.envelope import Envelope
from lyra.errors import ConfigError, InvalidTransition, NameTaken, NoSuchProcess
from lyra.kernel import AgentExecutionMetrics, AgentExecutionResult, InstructionKind, Kernel, PipelineConfig
from lyra.kernel.base.core import Core
from lyra.kernel.pipelines.agents import AgentResult
from lyra.kernel.pipelines.instruction import metrics_data
from lyra.kernel.pipelines.session import session_data
from lyra.testing import SimClock, run_in_virtual_time
from tests.kernel.conftest import Crash, crash, pass_time, run, settle

LINE = {
    "name": "line",
    "agents": [{"name": "a", "default_next": "b"}, {"name": "b", "default_next": "c"}, {"name": "c"}],
}


def pipeline(*stages, **settings):
    return {"name": "p", "agents": list(stages), **settings}


def step(kernel, agent, output=None, **more):
    return kernel.report_agent_result("p", {"agent_name": agent, "output": output or {}, **more})


def drive(config, outputs, *, envelope=None, limit=60):
    """Run a pipeline by the step calls; `outputs` gives each agent's outputs in turn (an Exception fails it)."""

    async def work():
        order = []
        async with Kernel() as kernel:
            kernel.initialize_orchestration("p", config, envelope)
            for _ in range(limit):
                told = kernel.get_next_instruction("p")
                assert told == kernel.get_next_instruction("p")
                if told.kind != "run_agent":
                    return order, told, kernel.get_orchestration_state("p")
                order.append(told.agent_name)
                output = outputs.get(told.agent_name, {})
                output = output.pop(0) if isinstance(output, list) else output
                if isinstance(output, Exception):
                    step(kernel, told.agent_name, success=False, error=str(output))
                else:
                    step(kernel, told.agent_name, output)
            raise AssertionError("no end")

    return run(work())


def test_an_instruction_is_of_one_of_three_kinds(target):
    """To run an agent, to wait for an answer, to end: the words of `InstructionKind`, in any case."""

    async def main():
        async with Kernel(target) as kernel:
            kernel.initialize_orchestration("p", pipeline({"name": "a", "default_next": "b"}, {"name": "b"}))
            kinds = [kernel.get_next_instruction("p").kind]
            asks = {"agent_name": "a", "output": {}, "interrupt": {"kind": "clarification", "question": "which?"}}
            kinds.append(kernel.report_agent_result("p", asks).kind)
            kernel.orchestrator.resume_after_interrupt("p", None, {"text": "this"})
            kernel.get_next_instruction("p")
            kinds.append(step(kernel, "b").kind)
            assert kinds == [InstructionKind.RUN_AGENT, InstructionKind.WAIT_INTERRUPT, InstructionKind.TERMINATE]
            assert InstructionKind("RUN_AGENT") is InstructionKind.RUN_AGENT

    run(main())


def execute(config, agents, *, envelope=None, target="memory", pid=None, clock=None):
    """Run a pipeline with agents of this kernel; gives its events."""

    async def work():
        async with Kernel(target, clock) as kernel:
            for name, agent in agents.items():
                kernel.register_agent(name, agent)
            return [event async for event in kernel.execute_pipeline(config, envelope, pid=pid)]

    return run(work())


def gives(output=None, log=None):
    async def agent(envelope):
        if log is not None:
            log.append(envelope.current_stage)
        return output or {}

    return agent


# ------------------------------------------------------------------ the step calls


def test_a_line_of_stages(target):
    """From the first stage to the end; each agent sees what came before."""

    async def work():
        async with Kernel(target) as kernel:
            kernel.initialize_orchestration("p", LINE, {"raw_input": "hi"})
            told = kernel.get_next_instruction("p")
            assert (told.kind, told.agent_name, told.agent_config.name) == ("run_agent", "a", "a")
            assert told.envelope.raw_input == "hi"
            told = step(kernel, "a", {"x": 1}, metrics={"llm_calls": 2, "tokens_in": 5})
            assert (told.agent_name, told.envelope.outputs) == ("b", {"a": {"x": 1}})
            told = step(kernel, "b")
            told = step(kernel, "c")
            assert (told.kind, told.terminal_reason) == ("terminate", "completed")
            state = kernel.get_orchestration_state("p")
            assert (state.terminated, state.current_stage, state.envelope.llm_call_count) == (True, "end", 2)
            assert (state.envelope.agent_hop_count, state.envelope.tokens_in) == (3, 5)
            assert step(kernel, "a").kind == "terminate"

    run(work())


def test_asking_twice_and_reporting_twice_change_nothing():
    """An instruction is the same until its run is reported; a run counts once."""

    async def work():
        async with Kernel() as kernel:
            kernel.initialize_orchestration("p", LINE)
            first = kernel.get_next_instruction("p")
            assert [kernel.get_next_instruction("p") for _ in range(5)] == [first] * 5
            after = step(kernel, "a", {"x": 1})
            before = kernel.get_orchestration_state("p").to_data()
            assert step(kernel, "a", {"x": 2}) == after
            assert step(kernel, "a", {"x": 2}, run_id=first.run_id) == after
            assert kernel.get_orchestration_state("p").to_data() == before

    run(work())


def test_what_is_refused_changes_nothing():
    """Unknown sessions, wrong agents, duplicates, malformed results: each has its error."""

    async def work():
        async with Kernel() as kernel:
            with pytest.raises(NoSuchProcess):
                kernel.get_next_instruction("p")
            kernel.initialize_orchestration("p", LINE)
            before = session_data(kernel.orchestrator.state.sessions["p"])
            with pytest.raises(NameTaken):
                kernel.initialize_orchestration("p", LINE)
            with pytest.raises(ConfigError):
                kernel.initialize_orchestration("q", {"name": "p", "agents": []})
            for wrong in ("b", "missing"):
                with pytest.raises(InvalidTransition):
                    step(kernel, wrong)
            results: list[Any] = [{}, {"agent_name": "a", "ouput": {}}, {"agent_name": "a", "output": 3}, "a"]
            for result in results:
                with pytest.raises(ConfigError):
                    kernel.report_agent_result("p", result)
            wrong_metrics: list[Any] = [
                {"llm_calls": -1},
                {"calls": 1},
                {"llm_calls": "x"},
                {"llm_calls": float("nan")},
                5,
            ]
            for metrics in wrong_metrics:
                with pytest.raises(ConfigError):
                    step(kernel, "a", metrics=metrics)
            with pytest.raises(ConfigError):
                step(kernel, "a", {"x": object()})
            with pytest.raises(InvalidTransition):
                kernel.report_agent_result("p", {"run_id": 7})
            with pytest.raises(InvalidTransition):
                kernel.orchestrator.resume_after_interrupt("p", None, {})
            with pytest.raises(ConfigError):
                kernel.orchestrator.terminate_session("p", "bored")
            assert session_data(kernel.orchestrator.state.sessions["p"]) == before
            assert "q" not in kernel.orchestrator.state.sessions
            kernel.initialize_orchestration("p", LINE, force=True)

    run(work())


def test_sessions_end_and_are_forgotten():
    """terminate_session is final; cleanup_session says whether there was one."""

    async def work():
        async with Kernel() as kernel:
            kernel.initialize_orchestration("p", LINE)
            await kernel.orchestrator.terminate_session("p", "POLICY_VIOLATION", "no")
            kernel.orchestrator.terminate_session("p")
            told = kernel.get_next_instruction("p")
            assert (told.kind, told.terminal_reason, told.termination_message) == (
                "terminate",
                "policy_violation",
                "no",
            )
            assert kernel.orchestrator.cleanup_session("p")
            assert not kernel.orchestrator.cleanup_session("p")
            kernel.initialize_orchestration("q", LINE)
            assert kernel.orchestrator.cleanup_stale_sessions(60.0) == 0
            assert kernel.orchestrator.cleanup_stale_sessions(-1.0) == 1

    run(work())


def test_the_current_stage_of_an_envelope_is_kept_if_the_pipeline_has_it():
    """Else the first stage."""
    assert drive(LINE, {}, envelope={"current_stage": "c"})[0] == ["c"]
    assert drive(LINE, {}, envelope={"current_stage": "elsewhere"})[0] == ["a", "b", "c"]
    assert drive(LINE, {}, envelope={"current_stage": "end"})[0] == []


# ------------------------------------------------------------------ routes and bounds


def test_rules_come_before_the_default():
    """The first rule that holds; plain ones and expressions."""
    rules = [
        {"condition": "go", "value": "c", "target": "c"},
        {"expr": {"op": "gte", "field": {"scope": "current", "key": "n"}, "value": 3}, "target": "end"},
    ]
    config = pipeline({"name": "a", "routing_rules": rules, "default_next": "b"}, {"name": "b"}, {"name": "c"})
    assert drive(config, {"a": {"go": "c"}})[0] == ["a", "c"]
    assert drive(config, {"a": {"n": 3}})[0] == ["a"]
    assert drive(config, {"a": {"n": 2}})[0] == ["a", "b"]


def test_errors_have_their_own_route():
    """error_next, or the end of the pipeline."""
    config = pipeline({"name": "a", "default_next": "end", "error_next": "b"}, {"name": "b"})
    order, told, state = drive(config, {"a": ValueError("boom")})
    assert (order, told.terminal_reason, state.envelope.failed_stages) == (["a", "b"], "completed", {"a": "boom"})
    _, told, _ = drive(LINE, {"b": ValueError("boom")})
    assert (told.terminal_reason, told.termination_message) == ("tool_failed_fatally", "b: boom")


def test_required_output_fields():
    """An output without them is a failed stage."""
    config = pipeline({"name": "a", "required_output_fields": ["x"]})
    assert drive(config, {"a": {"y": 1}})[1].terminal_reason == "tool_failed_fatally"
    assert drive(config, {"a": {"x": 1}})[1].terminal_reason == "completed"


@pytest.mark.parametrize(
    ("settings", "runs", "reason"),
    [
        ({"max_iterations": 2}, 4, "max_iterations_exceeded"),
        ({"max_iterations": 50, "max_agent_hops": 5}, 5, "max_agent_hops_exceeded"),
        ({"max_iterations": 50, "edge_limits": [{"from": "b", "to": "a", "max_count": 2}]}, 6, "max_loop_exceeded"),
        ({"max_iterations": 50, "edge_limits": {"a->b": 1}}, 3, "edge_limit_exceeded"),
    ],
)
def test_loops_are_bounded(settings, runs, reason):
    """By iterations (at the limit), hops (at the limit) and edges (above it): back to an earlier stage, or onward."""
    config = pipeline({"name": "a", "default_next": "b"}, {"name": "b", "default_next": "a"}, **settings)
    order, told, _ = drive(config, {})
    assert (len(order), told.terminal_reason) == (runs, reason)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"max_input_tokens": 60}, "max_input_tokens_exceeded"),
        ({"max_output_tokens": 10}, "max_output_tokens_exceeded"),
        ({}, "max_agent_hops_exceeded"),
    ],
)
def test_tokens_are_bounded(settings, reason, path):
    """Reached means stop: by the pipeline's bound, or the envelope's own; without one there is none."""

    async def work(config, envelope, reason):
        async with Kernel(path) as kernel:
            kernel.initialize_orchestration("p", config, envelope, force=True)
            told = kernel.get_next_instruction("p")
            runs = 0
            while told.kind == "run_agent":
                used = {"tokens_in": 30, "tokens_out": 5}
                told = step(kernel, told.agent_name, metrics=used)
                runs += 1
            assert told.terminal_reason == reason
            return runs

    loop = pipeline({"name": "a", "default_next": "b"}, {"name": "b", "default_next": "a"}, max_iterations=50)
    expected = 2 if settings else 21
    assert run(work({**loop, **settings}, None, reason)) == expected
    assert run(work(loop, settings, reason)) == expected
    assert run(work({**loop, "max_input_tokens": 30}, settings, "max_input_tokens_exceeded")) == 1


def test_model_calls_are_bounded():
    """Reached means stop."""

    async def work():
        async with Kernel() as kernel:
            kernel.initialize_orchestration("p", {**LINE, "max_llm_calls": 2})
            kernel.get_next_instruction("p")
            assert step(kernel, "a", metrics={"llm_calls": 2}).terminal_reason == "max_llm_calls_exceeded"

    run(work())


def test_visits_are_bounded():
    """A stage that leads to itself runs max_visits times."""
    order, told, _ = drive(pipeline({"name": "a", "default_next": "a", "max_visits": 3}), {})
    assert (order, told.terminal_reason) == (["a"] * 3, "max_stage_visits_exceeded")


def test_gates_only_route():
    """They are passed at once, and a ring of them ends at the step limit."""
    rule = {"expr": {"op": "eq", "field": {"scope": "agent", "agent": "a", "key": "x"}, "value": 1}, "target": "b"}
    config = pipeline(
        {"name": "a", "default_next": "g"},
        {"name": "g", "node_kind": "gate", "routing_rules": [rule], "default_next": "c"},
        {"name": "b"},
        {"name": "c"},
    )
    assert drive(config, {"a": {"x": 1}})[0] == ["a", "b"]
    assert drive(config, {"a": {"x": 2}})[0] == ["a", "c"]
    ring = [
        {"name": "g", "node_kind": "gate", "default_next": "h"},
        {"name": "h", "node_kind": "gate", "default_next": "g"},
    ]
    assert drive(pipeline(*ring), {})[1].terminal_reason == "max_loop_exceeded"


def test_state_is_merged_as_declared():
    """replace, append and merge_dict; rules see it."""
    config = pipeline(
        {"name": "a", "default_next": "b"},
        {"name": "b", "output_key": "whole"},
        state_schema={"r": "replace", "l": "append", "d": "merge_dict", "whole": "replace"},
    )
    outputs = {"a": {"r": 1, "l": 1, "d": {"x": 1}}, "b": {"r": 2, "l": [2, 3], "d": {"y": 2}}}
    state = drive(config, outputs)[2]
    assert state.envelope.metadata["state"] == {"r": 2, "l": [1, 2, 3], "d": {"x": 1, "y": 2}, "whole": outputs["b"]}
    assert state.envelope.outputs["whole"] == state.envelope.outputs["b"]


FORK = pipeline(
    {"name": "f", "node_kind": "fork", "branches": ["a", "b"], "default_next": "j"},
    {"name": "a", "default_next": "a2"},
    {"name": "a2"},
    {"name": "b", "default_next": "j"},
    {"name": "j"},
)


def test_a_fork_runs_its_branches_and_joins():
    """Branches see their own line of work, the join sees all of it."""

    async def work():
        async with Kernel() as kernel:
            kernel.initialize_orchestration("p", FORK)
            assert [instruction.agent_name for instruction in kernel.orchestrator.get_ready_instructions("p")] == [
                "a",
                "b",
            ]
            step(kernel, "b", {"n": 1})
            told = step(kernel, "a")
            assert (told.agent_name, set(told.envelope.outputs)) == ("a2", {"a"})
            told = step(kernel, "a2")
            assert (told.agent_name, set(told.envelope.outputs)) == ("j", {"a", "a2", "b"})
            assert step(kernel, "j").terminal_reason == "completed"

    run(work())


def test_a_fork_that_waits_for_any_drops_the_others():
    """The first branch that is done goes on; a late report changes nothing; a failed branch is no end."""

    async def work():
        async with Kernel() as kernel:
            stages = [{**FORK["agents"][0], "join_strategy": "any"}, *FORK["agents"][1:]]
            kernel.initialize_orchestration("p", pipeline(*stages))
            kernel.orchestrator.get_ready_instructions("p")
            assert step(kernel, "b").agent_name == "j"
            assert step(kernel, "a").agent_name == "j"
            assert kernel.get_orchestration_state("p").envelope.processing_history[0].status == "skipped"
            kernel.initialize_orchestration("p", pipeline(*stages), force=True)
            kernel.orchestrator.get_ready_instructions("p")
            assert step(kernel, "b", error="no").agent_name == "a"
            assert step(kernel, "a", error="no").terminal_reason == "tool_failed_fatally"

    run(work())


def test_a_branch_that_fails_ends_its_fork():
    """Unless the fork has an error route."""
    assert drive(FORK, {"b": ValueError("x")})[1].terminal_reason == "tool_failed_fatally"
    stages = [{**FORK["agents"][0], "error_next": "r"}, *FORK["agents"][1:], {"name": "r"}]
    order, told, _ = drive(pipeline(*stages), {"a": ValueError("x")})
    assert (order, told.terminal_reason) == (["a", "r"], "completed")


def test_forks_inside_forks_and_branches_by_rules():
    """Every rule that holds is a branch; an inner fork joins before the outer one."""
    config = pipeline(
        {"name": "a", "default_next": "f"},
        {
            "name": "f",
            "node_kind": "fork",
            "routing_rules": [
                {"condition": "x", "value": 1, "target": "b"},
                {"condition": "x", "value": 2, "target": "c"},
                {"target": "g"},
            ],
            "default_next": "j",
        },
        {"name": "b"},
        {"name": "c"},
        {"name": "g", "node_kind": "fork", "branches": ["d", "e"], "default_next": "h"},
        {"name": "d"},
        {"name": "e"},
        {"name": "h"},
        {"name": "j"},
    )
    assert drive(config, {"a": {"x": 1}})[0] == ["a", "b", "d", "e", "h", "j"]


def test_breaking_out():
    """A pipeline, or only the branch that asks for it."""

    async def work():
        async with Kernel() as kernel:
            kernel.initialize_orchestration("p", LINE)
            assert step(kernel, "a", break_loop=True).terminal_reason == "break_requested"
            kernel.initialize_orchestration("p", FORK, force=True)
            assert step(kernel, "a", break_loop=True).agent_name == "b"
            assert step(kernel, "b").agent_name == "j"

    run(work())


DAG: dict[str, Any] = {
    "name": "dag",
    "default_run_mode": "parallel",
    "agents": [
        {"name": "a"},
        {"name": "b", "requires": ["a"]},
        {"name": "c", "after": ["a"]},
        {"name": "d", "requires": ["b", "c"]},
    ],
}


def test_parallel_mode_follows_requirements():
    """requires and after; all of them, or any."""
    assert drive(DAG, {})[0] == ["a", "b", "c", "d"]
    either = {**DAG, "agents": [*DAG["agents"][:3], {**DAG["agents"][3], "join_strategy": "any"}]}

    async def work():
        async with Kernel() as kernel:
            kernel.initialize_orchestration("p", either)
            kernel.orchestrator.get_ready_instructions("p")
            step(kernel, "a")
            assert [instruction.agent_name for instruction in kernel.orchestrator.get_ready_instructions("p")] == [
                "b",
                "c",
            ]
            step(kernel, "c")
            assert [instruction.agent_name for instruction in kernel.orchestrator.get_ready_instructions("p")] == [
                "b",
                "d",
            ]

    run(work())
    ring = {**DAG, "agents": [{"name": "a", "requires": ["b"]}, {"name": "b", "requires": ["a"]}]}
    with pytest.raises(ConfigError, match="wait for one another: a, b"):
        drive(ring, {})
    assert drive(DAG, {"b": ValueError("x")})[1].terminal_reason == "tool_failed_fatally"


# ------------------------------------------------------------------ questions


ASKING = pipeline(
    {
        "name": "a",
        "routing_rules": [{"condition": "ask", "value": True, "target": "clarification"}],
        "default_next": "b",
    },
    {"name": "b", "default_next": "confirmation"},
    {"name": "c"},
    clarification_resume_stage="b",
    confirmation_resume_stage="c",
)


def test_a_stage_may_lead_to_a_question():
    """The pipeline waits, goes on at the stage named for the kind, and ends when consent is refused."""

    async def work(approved):
        async with Kernel() as kernel:
            kernel.initialize_orchestration("p", ASKING)
            told = step(kernel, "a", {"ask": True, "question": "Which one?"})
            assert told.interrupt is not None
            assert (told.kind, told.interrupt["kind"], told.interrupt["question"]) == (
                "wait_interrupt",
                "clarification",
                "Which one?",
            )
            assert kernel.get_next_instruction("p") == told
            told = kernel.orchestrator.resume_after_interrupt("p", told.interrupt, {"text": "this"})
            assert told.envelope is not None
            assert told.envelope.interrupt is not None
            assert (told.agent_name, told.envelope.interrupt["response"]["text"]) == ("b", "this")
            told = step(kernel, "b")
            assert told.interrupt["kind"] == "confirmation"
            return kernel.orchestrator.resume_after_interrupt("p", None, {"approved": approved})

    assert run(work(True)).agent_name == "c"
    denied = run(work(False))
    assert (denied.kind, denied.termination_message) == ("terminate", "User denied confirmation")


def test_an_envelope_may_bring_its_question():
    """An interrupt that is pending holds the pipeline up until it is answered."""

    async def work():
        async with Kernel() as kernel:
            envelope = {"interrupt_pending": True, "interrupt": {"kind": "agent_review"}}
            kernel.initialize_orchestration("p", {**LINE, "agent_review_resume_stage": "c"}, envelope)
            assert kernel.get_next_instruction("p").kind == "wait_interrupt"
            told = kernel.orchestrator.resume_after_interrupt("p", None, {"decision": "fine"})
            assert told.agent_name == "c"

    run(work())


def test_a_question_of_the_kernel_holds_the_pipeline_up():
    """One about the pid, asked by anybody; its answer is found by itself."""

    async def work():
        async with Kernel() as kernel:
            kernel.submit("p", user_id="u")
            kernel.initialize_orchestration("p", {**LINE, "clarification_resume_stage": "c"})
            kernel.get_next_instruction("p")
            asked = kernel.create_interrupt("p", "clarification", "hm", question="Which?")
            told = step(kernel, "a")
            assert (told.kind, told.interrupt["id"]) == ("wait_interrupt", asked.id)
            kernel.resolve_interrupt(asked.id, {"text": "that"})
            assert kernel.get_next_instruction("p").agent_name == "c"

    run(work())


def test_a_question_of_a_pipeline_becomes_one_of_the_kernel():
    """Where the kernel knows the pid, people find it among their questions."""

    async def work():
        async with Kernel() as kernel:
            kernel.submit("p", user_id="u")
            kernel.initialize_orchestration("p", ASKING)
            told = step(kernel, "a", {"ask": True})
            pending = kernel.get_pending_interrupt("p")
            assert told.kind == "wait_interrupt"
            assert pending.kind == "clarification"
            kernel.resolve_interrupt(pending.id, {"text": "that"})
            assert kernel.get_next_instruction("p").agent_name == "b"

    run(work())


# ------------------------------------------------------------------ running


def test_execute_runs_and_tells(target):
    """The events of a run, in order, each with its envelope."""
    events = execute(LINE, {name: gives({"from": name}) for name in "abc"}, envelope={"raw_input": "x"}, target=target)
    assert [event.type for event in events if event.stage == "a"] == [
        "stage_started",
        "stage_completed",
        "routing_decision",
        "checkpoint_created",
    ]
    assert events[-1].type == "pipeline_completed"
    assert events[-1].envelope.outputs == {name: {"from": name} for name in "abc"}
    assert events[0].envelope.outputs == {}


def test_execute_needs_its_agents():
    """A pipeline whose agents are not registered is refused and leaves nothing behind."""

    async def work():
        async with Kernel() as kernel:
            kernel.register_agent("a", gives())
            with pytest.raises(ConfigError, match="no agent is registered as 'b'"):
                async for _ in kernel.execute_pipeline(LINE):
                    pass
            assert not list(kernel.orchestrator.sessions())
            with pytest.raises(ConfigError):
                kernel.register_agent("x", 3)

    run(work())


def test_execute_runs_branches_at_the_same_time(target):
    """Forks and parallel mode: two agents that wait for each other both end."""
    met = []

    async def meet(envelope):
        met.append(envelope.current_stage)
        while len(met) < 2:
            await asyncio.sleep(0)
        return {}

    events = execute(FORK, {"a": meet, "b": meet, "a2": gives(), "j": gives()}, target=target)
    assert events[-1].envelope.terminal_reason == "completed"
    met.clear()
    events = execute(DAG, {"a": gives(), "b": meet, "c": meet, "d": gives()}, target=target)
    assert events[-1].envelope.terminal_reason == "completed"


def test_the_branches_that_no_stage_waits_for_are_cancelled(target):
    """With `any`, the slow branch ends as soon as the quick one is done."""
    seen = []

    async def slow(envelope):
        try:
            await asyncio.sleep(20)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    stages = [{**FORK["agents"][0], "join_strategy": "any"}, *FORK["agents"][1:]]
    events = execute(pipeline(*stages), {"a": slow, "b": gives(), "a2": gives(), "j": gives()}, target=target)
    assert (events[-1].envelope.terminal_reason, seen) == ("completed", ["cancelled"])


def test_a_failing_agent_is_retried_and_then_fails_its_stage(clock):
    """max_retries more runs, with pauses; then error_next or the end."""
    tries = []

    async def flaky(envelope):
        tries.append(1)
        if len(tries) < 3:
            raise ValueError("boom")
        return {"n": len(tries)}

    async def work(retries):
        tries.clear()
        async with Kernel("memory", clock) as kernel:
            kernel.register_agent("a", flaky)
            config = pipeline({"name": "a", "retry_policy": {"max_retries": retries, "initial_ms": 500}})
            events = kernel.execute_pipeline(config)
            task = asyncio.ensure_future(anext(events))
            await pass_time(kernel, clock, 5.0)
            return [await task, *[event async for event in events]]

    events = run(work(2))
    assert (events[-1].envelope.terminal_reason, len(tries)) == ("completed", 3)
    events = run(work(1))
    assert (events[-1].envelope.terminal_reason, len(tries)) == ("tool_failed_fatally", 2)
    assert [event.type for event in events if event.type == "stage_failed"] == ["stage_failed"]


def test_a_slow_agent_runs_out_of_time(clock):
    """timeout_seconds of the stage, or the pipeline's default."""

    async def never(envelope):
        await asyncio.Event().wait()

    async def work(config):
        async with Kernel("memory", clock) as kernel:
            kernel.register_agent("a", never)
            events = kernel.execute_pipeline(config)
            task = asyncio.ensure_future(anext(events))
            await pass_time(kernel, clock, 3.0)
            return [await task, *[event async for event in events]][-1].envelope

    for config in (pipeline({"name": "a", "timeout_seconds": 2}), pipeline({"name": "a"}, default_timeout_seconds=2)):
        envelope = run(work(config))
        assert "took longer than 2 s" in envelope.termination_reason


def test_what_an_agent_may_give():
    """A mapping, nothing, an AgentResult; anything else, or a missing field, is a failed stage."""

    class Object:
        async def run(self, envelope):
            return AgentResult(output={"x": 1}, metrics={"llm_calls": 3})

    def end(agent, **stage):
        return execute(pipeline({"name": "a", **stage}), {"a": agent})[-1].envelope

    assert end(Object()).llm_call_count == 3
    assert end(gives()).outputs == {"a": {}}
    assert "gave int" in end(lambda envelope: 3).termination_reason
    assert "has no y" in end(Object(), required_output_fields=["y"]).termination_reason
    assert "told so" in end(lambda envelope: AgentResult(error="told so")).termination_reason
    assert "no setting 'calls'" in end(lambda envelope: AgentResult(metrics={"calls": 1})).termination_reason
    assert end(lambda envelope: AgentResult(break_loop=True)).terminal_reason == "break_requested"


def test_what_an_agent_does_to_its_envelope_changes_nothing():
    """It has a copy."""

    async def vandal(envelope):
        envelope.outputs["c"] = {"x": 1}
        envelope.terminated = True
        return {}

    events = execute(LINE, {"a": vandal, "b": gives(), "c": gives()})
    assert events[-1].envelope.outputs == {"a": {}, "b": {}, "c": {}}


def test_usage_is_recorded():
    """What agents use counts against their process's quota."""

    async def work():
        async with Kernel() as kernel:
            kernel.submit("p", user_id="u")
            kernel.initialize_orchestration("p", LINE)
            step(kernel, "a", metrics={"llm_calls": 2, "tool_calls": 1, "tokens_in": 10})
            usage = kernel.get_process("p").usage
            assert (usage.llm_calls, usage.tool_calls, usage.tokens_in, usage.agent_hops) == (2, 1, 10, 1)

    run(work())


def test_a_killed_pipeline_says_so():
    """The pipeline is over with its process, and every listener is told; the pid of something else is refused."""

    async def work():
        async with Kernel() as kernel:
            kernel.register_agent("a", lambda envelope: asyncio.Event().wait())
            seen = []
            async for event in kernel.execute_pipeline(pipeline({"name": "a"}), pid="x"):
                seen.append(event.type)
                if event.type == "stage_started":
                    kernel.kill("x")
            assert seen == ["stage_started", "pipeline_completed"]
            assert event.envelope.terminal_reason == "user_cancelled"
            assert event.envelope.termination_reason == "its process ended: killed"
            assert kernel.get_next_instruction("x").kind == "terminate"
            with pytest.raises(NameTaken):
                async for _ in kernel.execute_pipeline(LINE | {"agents": [{"name": "a", "max_visits": 1}]}, pid="x"):
                    pass

    run(work())


# ------------------------------------------------------------------ across restarts


def test_instructions_survive_a_crash_and_a_snapshot(path):
    """After kill -9 the same instruction, from the journal and from a snapshot."""

    async def work():
        async with Crash(Kernel(path)) as kernel:
            kernel.initialize_orchestration("p", FORK)
            kernel.orchestrator.get_ready_instructions("p")
            told = step(kernel, "b", {"n": 1})
            state = session_data(kernel.orchestrator.state.sessions["p"])
            await kernel.journal.wait_until_durable(kernel.journal.seq)
        for _ in range(2):
            async with Crash(Kernel(path)) as kernel:
                assert session_data(kernel.orchestrator.state.sessions["p"]) == state
                assert kernel.get_next_instruction("p") == told
                await kernel._snapshots.write()

    run(work())


def test_finished_stages_are_not_run_again(path):
    """A pipeline whose kernel dies in its third stage comes back there; the others ran once."""
    log = []
    gate = asyncio.Event()

    async def stuck(envelope):
        log.append("c")
        await gate.wait()
        return {"seen": sorted(envelope.outputs)}

    async def work():
        kernel = Kernel(path)
        await kernel.start()
        for name in "ab":
            kernel.register_agent(name, gives({"by": name}, log))
        kernel.register_agent("c", stuck, idempotent=True)
        events = kernel.execute_pipeline(LINE, pid="x")
        async for event in events:
            if (event.type, event.stage) == ("stage_started", "c"):
                break
        await settle(kernel)
        crash(kernel)
        with contextlib.suppress(BaseException):
            await events.aclose()
        gate.set()
        async with Kernel(path) as kernel:
            await settle(kernel)
            assert kernel.process("x").alive  # it waits for its agents
            for name in "ab":
                kernel.register_agent(name, gives({"by": name}, log))
            kernel.register_agent("c", stuck, idempotent=True)
            told = [event async for event in kernel.execute_pipeline(LINE, pid="x")]
            assert told[-1].envelope.outputs["c"] == {"seen": ["a", "b"]}
            assert log == ["a", "b", "c", "c"]
            again = [event.type async for event in kernel.execute_pipeline(LINE, pid="x")]
            assert again == ["pipeline_completed"]
            with pytest.raises(NameTaken):
                async for _ in kernel.execute_pipeline({**LINE, "name": "other"}, pid="x"):
                    pass

    run(work())


def test_a_fork_comes_back_with_its_finished_branch(path):
    """Replay: what ended before the crash is not run again, whatever the order was."""
    log = []
    gate = asyncio.Event()

    async def stuck(envelope):
        log.append("a")
        await gate.wait()
        return {}

    def register(kernel):
        kernel.register_agent("a", stuck, idempotent=True)
        for name in ("a2", "b", "j"):
            kernel.register_agent(name, gives({}, log))

    async def work():
        kernel = Kernel(path)
        await kernel.start()
        register(kernel)
        events = kernel.execute_pipeline(FORK, pid="x")
        async for event in events:
            if (event.type, event.stage) == ("checkpoint_created", "b"):
                break
        await settle(kernel)
        crash(kernel)
        with contextlib.suppress(BaseException):
            await events.aclose()
        gate.set()
        async with Kernel(path) as kernel:
            register(kernel)
            told = [event async for event in kernel.execute_pipeline(FORK, pid="x")]
            assert told[-1].envelope.terminal_reason == "completed"
        assert sorted(log) == ["a", "a", "a2", "b", "j"]

    run(work())


@pytest.mark.parametrize("config", [LINE, FORK, DAG], ids=["line", "fork", "dag"])
def test_a_crash_after_any_event(config, tmp_path):
    """Wherever the kernel dies, the pipeline comes to the same end, and no stage that ended runs again."""

    async def attempt(file, after):
        ended, runs = set(), []

        def register(kernel):
            def make(name):
                async def agent(envelope):
                    assert name not in ended, name
                    runs.append(name)
                    await asyncio.sleep(0)
                    return {"by": name}

                return agent

            for stage in config["agents"]:
                kernel.register_agent(stage["name"], make(stage["name"]), idempotent=True)

        kernel = Kernel(file)
        await kernel.start()
        register(kernel)
        events = kernel.execute_pipeline(config, pid="x")
        count = 0
        async for event in events:
            count += 1
            if event.type == "stage_completed":
                ended.add(event.stage)
            if count == after:
                break
        else:
            await kernel.close()
            return None
        crash(kernel)
        with contextlib.suppress(BaseException):
            await events.aclose()
        async with Kernel(file) as kernel:
            register(kernel)
            told = [event async for event in kernel.execute_pipeline(config, pid="x")]
        return told[-1].envelope

    async def work():
        after = 1
        while (envelope := await attempt(str(tmp_path / f"{after}.db"), after)) is not None:
            assert envelope.terminal_reason == "completed", after
            names = {stage["name"] for stage in config["agents"] if stage.get("node_kind") != "fork"}
            assert set(envelope.outputs) == names, after
            after += 1
        assert after > 8

    run(work())


def test_a_stage_in_flight_is_asked_about(path):
    """An agent that may not be repeated is in doubt after a crash; its run is repeated only when a user says so."""
    log = []
    gate = asyncio.Event()

    async def once(envelope):
        log.append("a")
        await gate.wait()
        return {}

    async def work():
        config = pipeline({"name": "a"})
        kernel = Kernel(path)
        await kernel.start()
        kernel.register_agent("a", once)
        events = kernel.execute_pipeline(config, pid="x")
        await anext(events)
        while not log:
            await asyncio.sleep(0.001)
        crash(kernel)
        with contextlib.suppress(BaseException):
            await events.aclose()
        gate.set()
        async with Kernel(path) as kernel:
            kernel.register_agent("a", once)
            await settle(kernel)
            (doubt,) = kernel.interrupts.pending("x")
            assert doubt.kind == "in_doubt"
            assert log == ["a"]
            kernel.resolve_interrupt(doubt.id, {"decision": "retry"})
            told = [event async for event in kernel.execute_pipeline(config, pid="x")]
            assert told[-1].envelope.terminal_reason == "completed"
        assert log == ["a", "a"]

    run(work())


def test_an_agent_may_ask_by_itself(target):
    """AgentResult(interrupt=…): the answer is there when its route is chosen."""
    rule = {"expr": {"op": "eq", "field": {"scope": "interrupt", "key": "text"}, "value": "b"}, "target": "b"}
    config = pipeline({"name": "a", "routing_rules": [rule], "default_next": "c"}, {"name": "b"}, {"name": "c"})

    async def work():
        async with Kernel(target) as kernel:
            asks = {"kind": "clarification", "question": "b or c?"}
            kernel.register_agent("a", lambda envelope: AgentResult(interrupt=asks))
            for name in "bc":
                kernel.register_agent(name, gives())
            async for event in kernel.execute_pipeline(config, pid="x"):
                if event.type == "interrupt_raised":
                    await settle(kernel)
                    assert kernel.get_next_instruction("x").kind == "wait_interrupt"  # looking changes nothing
                    kernel.resolve_interrupt(kernel.interrupts.pending("x")[0].id, {"text": "b"})
            assert list(event.envelope.outputs) == ["a", "b"]

    run(work())


def test_a_pipeline_can_be_ended_while_it_runs():
    """terminate_session: every listener hears the end, and the run under way is not waited for."""

    async def work():
        async with Kernel() as kernel:
            kernel.register_agent("a", lambda envelope: asyncio.Event().wait())
            seen = []
            async for event in kernel.execute_pipeline(pipeline({"name": "a"}), pid="x"):
                seen.append(event.type)
                if event.type == "stage_started":
                    with pytest.raises(InvalidTransition):
                        kernel.orchestrator.cleanup_session("x")
                    kernel.orchestrator.terminate_session("x", message="enough")
            assert seen == ["stage_started", "pipeline_completed"]
            assert event.envelope.termination_reason == "enough"
            await settle(kernel)
            assert not kernel.process("x").alive

            async def suicidal(envelope):
                kernel.orchestrator.terminate_session("y", "policy_violation")
                return {}

            kernel.register_agent("b", suicidal)
            told = [instruction async for instruction in kernel.execute_pipeline(pipeline({"name": "b"}), pid="y")]
            assert told[-1].envelope.terminal_reason == "policy_violation"

    run(work())


def test_a_pipeline_waits_for_its_answer_across_restarts(path):
    """A question to a person is asked once; the answer after a crash goes to the resume stage."""
    log = []

    def register(kernel):
        kernel.register_agent("a", gives({"ask": True, "question": "Which?"}, log))
        for name in "bc":
            kernel.register_agent(name, gives({}, log))

    async def work():
        kernel = Kernel(path)
        await kernel.start()
        register(kernel)
        events = kernel.execute_pipeline(ASKING, pid="x")
        async for event in events:
            if event.type == "interrupt_raised":
                break
        await settle(kernel)
        await kernel.journal.wait_until_durable(kernel.journal.seq)
        crash(kernel)
        with contextlib.suppress(BaseException):
            await events.aclose()
        async with Kernel(path) as kernel:
            register(kernel)
            (pending,) = kernel.interrupts.pending("x")
            assert (pending.kind, pending.question) == ("clarification", "Which?")
            kernel.resolve_interrupt(pending.id, {"text": "this"})
            async for event in kernel.execute_pipeline(ASKING, pid="x"):
                if event.type == "interrupt_raised":
                    await settle(kernel)
                    kernel.resolve_interrupt(kernel.interrupts.pending("x")[0].id, {"approved": True})
            assert event.envelope.terminal_reason == "completed"
        assert log == ["a", "b", "c"]

    run(work())


def test_checkpoints_are_plain_data_to_resume_from():
    """Under another pid, in another kernel."""

    async def work():
        async with Kernel() as kernel:
            kernel.initialize_orchestration("p", LINE)
            step(kernel, "a", {"x": 1})
            kept = kernel.orchestrator.checkpoint("p")
        async with Kernel() as kernel:
            kernel.orchestrator.resume_from_checkpoint("p", kept)
            told = kernel.get_next_instruction("p")
            assert (told.agent_name, told.envelope.outputs) == ("b", {"a": {"x": 1}})
            for wrong in ({}, {"version": "1.0", "session": {"x": 1}}):
                with pytest.raises(ConfigError):
                    kernel.orchestrator.resume_from_checkpoint("q", wrong)
            with pytest.raises(NameTaken):
                kernel.orchestrator.resume_from_checkpoint("p", kept)

    run(work())


def test_an_envelope_object_is_taken_as_it_is():
    """Its ids stay."""

    async def work():
        async with Kernel() as kernel:
            envelope = Envelope.create(kernel.entropy, now=1.0, raw_input="x")
            state = kernel.initialize_orchestration("p", LINE, envelope)
            assert state.envelope.envelope_id == envelope.envelope_id
            assert kernel.orchestrator.evaluate_routing("p", "a") == "b"

    run(work())


# ------------------------------------------------------------------ any order of calls


class Sessions(RuleBasedStateMachine):
    """Any order of asking, reporting, stopping: bounds hold, asking is idempotent, the fold gives the same state."""

    CONFIGS = (
        {**LINE, "max_agent_hops": 4},
        FORK,
        DAG,
        ASKING,
        pipeline({"name": "a", "default_next": "b"}, {"name": "b", "default_next": "a"}, max_iterations=2),
    )

    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.kernel = Kernel(clock=SimClock(1000.0))  # its timers need no loop
        self.loop.run_until_complete(self.kernel.start())
        self.rows = []
        fact = Core.fact

        def remember(core, state, pid, kind, data):
            if state is self.kernel.orchestrator.state:
                self.rows.append((kind, pid, data))
            return fact(core, state, pid, kind, data)

        self.recording = patch.object(Core, "fact", remember)
        self.recording.start()

    @property
    def session(self):
        return self.kernel.orchestrator.state.sessions.get("p")

    @rule(config=st.sampled_from(CONFIGS))
    def begin(self, config):
        if self.session is None:
            self.kernel.initialize_orchestration("p", config)
        else:
            with pytest.raises(NameTaken):
                self.kernel.initialize_orchestration("p", config)

    @precondition(lambda self: self.session is not None)
    @rule()
    def ask(self):
        first = self.kernel.get_next_instruction("p")
        assert self.kernel.get_next_instruction("p") == first

    @precondition(lambda self: self.session is not None)
    @rule()
    def ask_all(self):
        first = self.kernel.orchestrator.get_ready_instructions("p")
        assert self.kernel.orchestrator.get_ready_instructions("p") == first

    @precondition(lambda self: self.session is not None)
    @rule(
        agent=st.sampled_from(["a", "a2", "b", "c", "d", "j", "x"]),
        success=st.booleans(),
        output=st.sampled_from([{}, {"ask": True}, {"n": 1}]),
        calls=st.integers(0, 3),
    )
    def report(self, agent, success, output, calls):
        before = session_data(self.session)
        try:
            step(self.kernel, agent, output, success=success, metrics={"llm_calls": calls})
        except InvalidTransition:
            assert session_data(self.session) == before

    @precondition(lambda self: self.session is not None and self.session.envelope.interrupt_pending)
    @rule(approved=st.booleans())
    def answer(self, approved):
        self.kernel.orchestrator.resume_after_interrupt("p", None, {"approved": approved})

    @precondition(lambda self: self.session is not None)
    @rule()
    def forget(self):
        if self.session.terminated:
            self.kernel.orchestrator.cleanup_session("p")

    @invariant()
    def bounds_hold(self):
        if self.session is None:
            return
        envelope = self.session.envelope
        assert envelope.agent_hop_count <= envelope.max_agent_hops
        assert self.session.terminated == (not self.session.tokens)
        if self.session.terminated:
            assert envelope.terminal_reason is not None
            assert not envelope.interrupt_pending
        assert len({token.run for token in self.session.tokens if token.run}) == sum(
            1 for token in self.session.tokens if token.run
        )

    def teardown(self):
        from lyra.kernel.pipelines.state import PipelineState

        self.recording.stop()
        again = PipelineState()
        for kind, pid, data in self.rows:
            again.apply(kind, pid, 0.0, data)
        loaded = PipelineState()
        loaded.load(again.dump())
        assert loaded.dump() == self.kernel.orchestrator.state.dump()
        self.loop.run_until_complete(self.kernel.close())
        self.loop.close()


TestSessions = Sessions.TestCase
TestSessions.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)


# ------------------------------------------------------------------ as plain data


def test_what_a_worker_is_told_is_plain_data():
    """A stage, a session and an entry of the table can be sent to a worker in another program as JSON."""

    async def work():
        async with Kernel() as kernel:
            kernel.submit("p", request_id="r", user_id="u")
            kernel.initialize_orchestration("p", pipeline({"name": "a", "default_next": "b"}, {"name": "b"}))
            stage = kernel.get_next_instruction("p").agent_config
            step(kernel, "a", {"x": 1})
            session = kernel.get_orchestration_state("p")
            return stage.to_data(), session.to_data(), kernel.get_process("p").to_data()

    stage, session, entry = run(work())
    assert (stage["name"], stage["default_next"], stage["node_kind"]) == ("a", "b", "agent")
    assert PipelineConfig.of(pipeline(stage, {"name": "b"})).agents[0].default_next == "b"
    assert (session["process_id"], session["pipeline"], session["current_stage"]) == ("p", "p", "b")
    assert session["envelope"]["outputs"] == {"a": {"x": 1}}
    assert (entry["pid"], entry["request_id"], entry["user_id"]) == ("p", "r", "u")


def test_an_event_of_a_pipeline_as_data():
    """Its kind, its stage, its process and the envelope of that moment."""
    events = [event.to_data() for event in execute(LINE, {name: gives({"by": name}) for name in "abc"}, pid="p")]
    completed = [event for event in events if event["type"] == "stage_completed"]
    assert [event["stage"] for event in completed] == ["a", "b", "c"]
    assert {event["pid"] for event in events} == {"p"}
    assert completed[0]["envelope"]["outputs"] == {"a": {"by": "a"}}


# ------------------------------------------------------------------ what workers and readers are told
TOLD: dict[str, Any] = {
    "stage_order": 3,
    "has_llm": True,
    "has_tools": True,
    "has_policies": True,
    "tool_access": "read",
    "allowed_tools": ("Read",),
    "model_role": "planner",
    "prompt_key": "plan",
    "temperature": 0.5,
    "max_tokens": 77,
    "token_stream": "debug",
    "streaming_prompt_key": "plan aloud",
}


@pytest.mark.parametrize("key", TOLD)
def test_a_worker_is_told_the_settings_of_its_stage(target, key):
    """What Lyra leaves to the worker: the kernel checks it, keeps it and hands it out with each instruction."""

    async def work():
        async with Kernel(target) as kernel:
            kernel.initialize_orchestration("p", pipeline({"name": "a", **TOLD}))
            return kernel.get_next_instruction("p")

    told = run(work())
    assert getattr(told.agent_config, key) == TOLD[key]


@pytest.mark.parametrize(
    ("key", "value"), [("stop", ("END",)), ("repeat_penalty", 1.5), ("top_p", 0.25), ("top_k", 4), ("seed", 7)]
)
def test_a_worker_is_told_how_to_sample(target, key, value):
    """The settings of `generation` come with the stage; what is not said is left to the model."""

    async def work():
        async with Kernel(target) as kernel:
            said = {key: list(value) if isinstance(value, tuple) else value}
            kernel.initialize_orchestration("p", pipeline({"name": "a", "generation": said}))
            return kernel.get_next_instruction("p").agent_config.generation

    told = run(work())
    given = {name: getattr(told, name) for name in told.__struct_fields__ if getattr(told, name) not in (None, ())}
    assert given == {key: value}


def test_stages_run_by_their_number(target):
    """The stage of the lowest `stage_order` is the first, wherever it is written."""

    async def work():
        async with Kernel(target) as kernel:
            stages = ({"name": "a", "stage_order": 2}, {"name": "b", "stage_order": 1})
            state = kernel.initialize_orchestration("p", pipeline(*stages))
            return state.stage_order, kernel.get_next_instruction("p").agent_config.stage_order

    assert run(work()) == (["b", "a"], 1)


def test_the_metrics_of_a_run_are_counted(target, clock):
    """Calls and tokens by the envelope and the quota, the time by the record of the run."""

    async def work():
        async with Kernel(target, clock) as kernel:
            kernel.initialize_orchestration("p", pipeline({"name": "a"}))
            kernel.get_next_instruction("p")
            clock.advance(9.0)
            metrics = AgentExecutionMetrics(llm_calls=1, tool_calls=2, tokens_in=3, tokens_out=4, duration_ms=50)
            step(kernel, "a", metrics=metrics)
            return kernel.get_envelope("p"), kernel.get_process("p").usage

    envelope, usage = run(work())
    assert (envelope.llm_call_count, envelope.tool_call_count) == (1, 2)
    assert (envelope.tokens_in, envelope.tokens_out) == (3, 4)
    assert (usage.tool_calls, usage.tokens_in, usage.tokens_out) == (2, 3, 4)
    assert envelope.processing_history[-1].duration_ms == 50


def test_an_agent_may_say_that_it_failed():
    """`success=False` in an AgentResult fails the stage, as an exception does; `error` says why."""

    def end(**result):
        async def agent(envelope):
            return AgentResult(**result)

        return execute(pipeline({"name": "a"}), {"a": agent})[-1].envelope

    assert end(success=False, output={"x": 1}).failed_stages == {"a": "a failed"}
    assert end(success=False, error="no paper").failed_stages == {"a": "no paper"}
    assert end(success=False).terminal_reason == "tool_failed_fatally"
    assert end(output={"x": 1}).failed_stages == {}


def test_an_agent_sees_the_trace_of_the_work(target):
    """The ids that the caller gave come with the envelope to every stage."""
    seen: list[Any] = []

    async def agent(envelope):
        seen.append((envelope.trace_id, envelope.span_id))

    execute(LINE, dict.fromkeys("abc", agent), envelope={"trace_id": "t", "span_id": "s"}, target=target)
    assert seen == [("t", "s")] * 3


@pytest.mark.parametrize("mode", ["sequential", "parallel"])
def test_an_envelope_says_whether_stages_run_side_by_side(mode):
    """By the run mode of its pipeline."""
    envelope = execute(pipeline({"name": "a"}, run_mode=mode), {"a": gives()})[-1].envelope
    assert envelope.parallel_mode is (mode == "parallel")


def test_the_state_of_a_session(target, clock):
    """Whose it is, its stages, those that run, the edges taken, and when anything happened last."""

    async def work():
        async with Kernel(target, clock) as kernel:
            kernel.initialize_orchestration("p", LINE)
            kernel.get_next_instruction("p")
            clock.advance(5.0)
            step(kernel, "a")
            return kernel.get_orchestration_state("p")

    state = run(work())
    assert (state.process_id, state.stage_order, state.active_stages) == ("p", ["a", "b", "c"], ["b"])
    assert list(state.edge_traversals.values()) == [1]
    assert (state.created_at, state.last_activity_at) == (1_000.0, 1_005.0)


def test_an_instruction_says_that_a_question_is_open(target):
    """Until it is answered."""

    async def work():
        async with Kernel(target) as kernel:
            kernel.initialize_orchestration("p", pipeline({"name": "a", "default_next": "b"}, {"name": "b"}))
            first = kernel.get_next_instruction("p").interrupt_pending
            asks = {"agent_name": "a", "output": {}, "interrupt": {"kind": "clarification", "question": "which?"}}
            asked = kernel.report_agent_result("p", asks).interrupt_pending
            kernel.orchestrator.resume_after_interrupt("p", None, {"text": "this"})
            return first, asked, kernel.get_next_instruction("p").interrupt_pending

    assert run(work()) == (False, True, False)


def test_the_route_of_a_stage_that_is_not_the_current_one():
    """By its name; without one, that of the current stage."""

    async def work():
        async with Kernel() as kernel:
            kernel.initialize_orchestration("p", LINE)
            routing = kernel.orchestrator.evaluate_routing
            return routing("p"), routing("p", "b")

    assert run(work()) == ("b", "c")


def test_the_pauses_of_a_stage_that_is_retried():
    """The first pause, each one longer by the factor, none longer than the longest."""
    times: list[float] = []

    async def fails(_envelope):
        times.append(asyncio.get_running_loop().time())
        raise ConnectionError("down")

    policy = {"max_retries": 3, "initial_ms": 4_000, "multiplier": 3, "max_ms": 20_000}

    async def work():
        async with Kernel() as kernel:
            kernel.register_agent("a", fails)
            async for _ in kernel.execute_pipeline(pipeline({"name": "a", "retry_policy": policy})):
                pass

    run_in_virtual_time(work())
    assert [round(after - before, 3) for before, after in pairwise(times)] == [4.0, 12.0, 20.0]


def test_a_pipeline_works_on_the_envelope_that_is_given():
    async def work():
        async with Kernel() as kernel:
            kernel.register_agent("a", lambda envelope: {"seen": envelope.raw_input})
            events = kernel.execute_pipeline(pipeline({"name": "a"}), {"raw_input": "hello"}, pid="x")
            return [event async for event in events]

    events = run(work())
    assert events[-1].envelope.outputs["a"] == {"seen": "hello"}
    assert {event.pid for event in events} == {"x"}


def test_an_agent_may_say_its_result_whole():
    """Its output is the stage's."""

    async def work():
        async with Kernel() as kernel:
            kernel.register_agent("a", lambda _: AgentExecutionResult(output={"x": 1}))
            return [event async for event in kernel.execute_pipeline(pipeline({"name": "a"}))][-1].envelope

    assert run(work()).outputs["a"] == {"x": 1}


def test_the_state_of_a_pipeline_has_its_reason():
    """None until it has ended."""

    async def work():
        async with Kernel() as kernel:
            assert kernel.initialize_orchestration("p", pipeline({"name": "a"})).terminal_reason is None
            kernel.get_next_instruction("p")
            step(kernel, "a")
            return kernel.get_orchestration_state("p")

    assert run(work()).terminal_reason == "completed"


def test_state_may_be_declared_as_a_list():
    """Each with its key, and how it is merged."""
    stages = ({"name": "a", "default_next": "b"}, {"name": "b"})
    config = pipeline(*stages, state_schema=[{"key": "log", "merge": "append"}, {"key": "last", "merge": "replace"}])
    state = drive(config, {"a": {"log": 1, "last": 1, "other": 1}, "b": {"log": 2, "last": 2}})[2]
    assert state.envelope.metadata["state"] == {"log": [1, 2], "last": 2}


def test_metrics_may_be_rounded_and_may_be_missing():
    counted = metrics_data({"llm_calls": None, "duration_ms": 12.6})
    assert (counted["llm_calls"], counted["duration_ms"], counted["tokens_in"]) == (0, 13, 0)
