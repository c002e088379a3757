"""Outputs by name, questions as objects, and what a stage may gather."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import pytest

from lyra.core.envelope import Envelope
from lyra.errors import ConfigError
from lyra.kernel import Kernel
from tests.kernel.conftest import crash, run, settle

FIELD: dict[str, Any] = {"scope": "agent", "agent": "st1", "key": "n"}
TWINS: dict[str, Any] = {
    "name": "twins",
    "agents": [
        {"name": "f", "node_kind": "fork", "branches": ["st1", "st2"], "default_next": "g"},
        {"name": "st1", "agent": "real"},
        {"name": "st2", "agent": "real"},
        {
            "name": "g",
            "node_kind": "gate",
            "routing_rules": [{"expr": {"op": "eq", "field": FIELD, "value": 1}, "target": "one"}],
            "default_next": "two",
        },
        {"name": "one"},
        {"name": "two"},
    ],
}


def done(told, **more):
    return {"agent_name": told.agent_name, "run_id": told.run_id, "output": {}, **more}


def test_two_branches_with_the_same_agent_keep_their_outputs(target):
    """Each under its stage's name, the last under the agent's; a rule may name the stage."""

    async def main():
        async with Kernel(target) as kernel:
            kernel.initialize_orchestration("p", TWINS)
            first, second = kernel.orchestrator.get_ready_instructions("p")
            kernel.report_agent_result("p", done(first, output={"n": 1}))
            told = kernel.report_agent_result("p", done(second, output={"n": 2}))
            assert told.stage == "one"
            assert told.envelope.outputs == {"st1": {"n": 1}, "st2": {"n": 2}, "real": {"n": 2}}

    run(main())


def test_a_stage_called_like_anothers_agent_keeps_its_own_output(target):
    stages = [{"name": "real", "default_next": "again"}, {"name": "again", "agent": "real", "default_next": "z"}]

    async def main():
        async with Kernel(target) as kernel:
            kernel.initialize_orchestration("p", {"name": "p", "agents": [*stages, {"name": "z"}]})
            for number in (1, 2):
                told = kernel.get_next_instruction("p")
                told = kernel.report_agent_result("p", done(told, output={"n": number}))
            assert told.envelope.outputs == {"real": {"n": 1}, "again": {"n": 2}}

    run(main())


def test_an_output_counts_once_in_a_context(target):
    """Under however many names it is kept."""
    stages: list[dict[str, Any]] = [
        {"name": "a", "agent": "real", "output_key": "k", "default_next": "b"},
        {"name": "b", "max_context_tokens": 8},
    ]

    async def main():
        async with Kernel(target) as kernel:
            for overflow, names in (("fail", {"a", "real", "k"}), ("truncate_oldest", {"a", "real", "k"})):
                config = {"name": "p", "agents": [stages[0], {**stages[1], "context_overflow": overflow}]}
                kernel.initialize_orchestration(overflow, config)
                told = kernel.report_agent_result(
                    overflow, done(kernel.get_next_instruction(overflow), output={"n": "12345678901234567890"})
                )
                assert (told.stage, set(told.envelope.outputs)) == ("b", names)

    run(main())


@pytest.mark.parametrize("wrong", ["st3", "rael"])
def test_a_field_of_an_output_that_no_stage_gives_is_a_mistake(wrong):
    rule = {"expr": {"op": "not", "expr": {"op": "exists", "field": {**FIELD, "agent": wrong}}}, "target": "one"}
    agents = [{**TWINS["agents"][3], "routing_rules": [rule]}, *TWINS["agents"][1:3], *TWINS["agents"][4:]]
    with pytest.raises(ConfigError, match=f"no stage gives an output called {wrong!r}") as caught:
        asyncio.run(_begin({"name": "p", "agents": agents}))
    assert caught.value.key == "agents[0].routing_rules[0].expr.expr.field.agent"
    assert caught.value.hint.startswith("did you mean")


async def _begin(config):
    async with Kernel() as kernel:
        kernel.initialize_orchestration("p", config)


def test_merge_dict_joins_mappings_and_nothing_else(target):
    """What is no mapping fails the stage instead of replacing what is there."""
    config = {
        "name": "p",
        "agents": [{"name": "a", "default_next": "b"}, {"name": "b", "error_next": "c"}, {"name": "c"}],
        "state_schema": {"d": "merge_dict"},
    }

    async def main():
        async with Kernel(target) as kernel:
            kernel.initialize_orchestration("p", config)
            told = kernel.get_next_instruction("p")
            told = kernel.report_agent_result("p", done(told, output={"d": {"x": 1}}))
            told = kernel.report_agent_result("p", done(told, output={"d": [5]}))
            assert told.stage == "c"
            assert told.envelope.metadata["state"] == {"d": {"x": 1}}
            assert "merge_dict" in told.envelope.errors[0]["error"]

    run(main())


def test_a_question_reads_as_an_object_and_as_a_mapping(target):
    """In an instruction and in an envelope, before and after its answer; on a wire it is plain."""
    config = {"name": "p", "agents": [{"name": "a", "default_next": "clarification"}, {"name": "b"}]}

    async def main():
        async with Kernel(target) as kernel:
            kernel.initialize_orchestration("p", {**config, "clarification_resume_stage": "b"})
            told = kernel.report_agent_result("p", done(kernel.get_next_instruction("p")))
            assert told.interrupt is not None
            for asked in (told.interrupt, told.envelope.interrupt, kernel.get_envelope("p").interrupt):
                assert asked is not None
                assert (asked.kind, asked["kind"], asked.question) == ("clarification", "clarification", "a asks")
                assert asked.id == asked["id"] == kernel.get_pending_interrupt("p").id
                assert (asked.response, asked.data) == (None, None)
                with pytest.raises(AttributeError, match="has no 'knid'"):
                    _ = asked.knid
            assert json.dumps(told.to_data()["interrupt"]) == json.dumps(dict(told.interrupt))
            assert type(told.to_data()["interrupt"]) is dict
            kernel.resolve_interrupt(told.interrupt.id, {"text": "this"})
            envelope = kernel.get_next_instruction("p").envelope
            assert envelope is not None
            assert envelope.interrupt is not None
            assert (envelope.interrupt.response.text, envelope.interrupt["response"]["text"]) == ("this", "this")
            assert Envelope.from_data(envelope.to_data()).interrupt.kind == "clarification"

    run(main())


def test_a_question_in_one_branch_hides_no_other(target):
    config = {**TWINS, "agents": [*TWINS["agents"]]}

    async def main():
        async with Kernel(target) as kernel:
            kernel.initialize_orchestration("p", config)
            first, second = kernel.orchestrator.get_ready_instructions("p")
            kernel.report_agent_result("p", done(first, interrupt={"kind": "clarification", "question": "Which?"}))
            (left,) = kernel.orchestrator.get_ready_instructions("p")
            assert (left.kind, left.run_id) == ("run_agent", second.run_id)
            kernel.report_agent_result("p", done(left))
            (waits,) = kernel.orchestrator.get_ready_instructions("p")
            assert (waits.kind, waits.interrupt.question) == ("wait_interrupt", "Which?")

    run(main())


@pytest.mark.parametrize("listens", ["before", "after"])
def test_a_stage_in_doubt_is_told(path, listens):
    """To listeners when it is found out, and to listeners that come later."""
    config = {"name": "p", "agents": [{"name": "f", "default_next": "s"}, {"name": "s", "agent": "once"}]}
    began = asyncio.Event()

    async def once(_envelope):
        if not began.is_set():
            began.set()
            await asyncio.Event().wait()
        return {}

    def register(kernel):
        kernel.register_agent("once", once)
        kernel.register_agent("f", lambda _envelope: {})

    async def main():
        kernel = Kernel(path)
        await kernel.start()
        register(kernel)
        events = kernel.execute_pipeline(config, pid="x")
        async for event in events:
            if event.type == "stage_started" and event.stage == "s":
                break
        await began.wait()
        crash(kernel)
        with contextlib.suppress(BaseException):
            await events.aclose()
        async with Kernel(path) as kernel:
            register(kernel)
            if listens == "after":
                await settle(kernel)
            seen = []
            async for event in kernel.execute_pipeline(config, pid="x"):
                seen.append((event.type, event.stage))
                if event.type == "interrupt_raised":
                    assert event.data["interrupt"]["kind"] == "in_doubt"
                    kernel.resolve_interrupt(event.data["interrupt"]["id"], {"decision": "retry"})
            assert seen.count(("interrupt_raised", "s")) == 1
            assert seen[-1][0] == "pipeline_completed"

    run(main())
