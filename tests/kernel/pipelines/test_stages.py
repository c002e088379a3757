"""What a stage asks of its agent's context and output, and what it hands to its worker."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from lyra.core.effect import Effect
from lyra.errors import BudgetExceeded, ConfigError
from lyra.kernel import Kernel
from lyra.kernel.pipelines.declaration import PipelineConfig
from tests.kernel.conftest import Crash, pass_time, run, settle


def pipeline(*stages, **settings):
    return {"name": "p", "agents": list(stages), **settings}


def execute(config, agents, *, envelope=None, target="memory"):
    async def work():
        async with Kernel(target) as kernel:
            for name, agent in agents.items():
                kernel.register_agent(name, agent)
            return [event async for event in kernel.execute_pipeline(config, envelope)]

    return run(work())


def gives(output):
    async def agent(envelope):
        return output

    return agent


SCORED = {
    "name": "a",
    "output_schema": {
        "type": "object",
        "properties": {"score": {"type": "integer", "minimum": 0}},
        "required": ["score"],
    },
}


def test_an_output_fits_its_schema_or_the_stage_failed(target):
    """Run here or reported from outside; where it does not fit is in the error."""
    end = execute(pipeline(SCORED), {"a": gives({"score": "high"})}, target=target)[-1].envelope
    assert end.terminal_reason == "tool_failed_fatally"
    assert "score is string, not integer" in end.termination_reason
    assert execute(pipeline(SCORED), {"a": gives({"score": 7})})[-1].envelope.terminal_reason == "completed"

    async def work():
        async with Kernel(target + "2" if target != "memory" else target) as kernel:
            kernel.initialize_orchestration("x", pipeline({**SCORED, "error_next": "b"}, {"name": "b"}))
            told = kernel.report_agent_result("x", {"agent_name": "a", "output": {"score": -1}})
            assert told.agent_name == "b"
            assert told.envelope.failed_stages == {"a": "the output of a does not fit its schema: score is -1, below 0"}

    run(work())


def test_an_output_that_does_not_fit_is_tried_again():
    """A stage with retries gets another run."""
    outputs = [{"score": None}, {"score": 3}]

    async def agent(envelope):
        return outputs.pop(0)

    stage = {**SCORED, "retry_policy": {"max_retries": 1, "initial_ms": 0}}
    events = execute(pipeline(stage), {"a": agent})
    assert events[-1].envelope.outputs == {"a": {"score": 3}}


LONG = {"text": "x" * 400}  # 411 characters as JSON: 103 tokens


def test_a_context_that_is_too_large_fails_its_stage(target):
    """Four characters a token, of the input and the outputs the agent would get; it is not run."""
    ran = []

    async def second(envelope):
        ran.append(envelope.current_stage)
        return {}

    stages = ({"name": "a", "default_next": "b"}, {"name": "b", "max_context_tokens": 100})
    events = execute(pipeline(*stages), {"a": gives(LONG), "b": second}, target=target)
    assert "context_overflow: its context is 103 tokens, and may be 100" in events[-1].envelope.termination_reason
    assert [event.type for event in events if event.stage == "b"][:2] == ["stage_started", "stage_failed"]
    assert ran == []
    stages = ({"name": "a", "default_next": "b"}, {"name": "b", "max_context_tokens": 103})
    assert execute(pipeline(*stages), {"a": gives(LONG), "b": second})[-1].envelope.terminal_reason == "completed"
    assert ran == ["b"]


def test_a_context_that_is_too_large_takes_the_error_route():
    """error_next, as after any failure; asked twice, the answer is the same."""

    async def work():
        async with Kernel() as kernel:
            config = pipeline(
                {"name": "a", "default_next": "b"},
                {"name": "b", "max_context_tokens": 10, "error_next": "c"},
                {"name": "c"},
            )
            kernel.initialize_orchestration("x", config)
            told = kernel.report_agent_result("x", {"agent_name": "a", "output": LONG})
            assert (told.agent_name, list(told.envelope.failed_stages)) == ("c", ["b"])
            assert kernel.get_next_instruction("x") == told
            assert told.envelope.agent_hop_count == 3

    run(work())


def test_the_oldest_outputs_are_left_out_where_that_is_said(target):
    """truncate_oldest: the agent gets the last ones that fit; the pipeline keeps them all."""
    got = []

    async def last(envelope):
        got.append(list(envelope.outputs))
        return {}

    stages = (
        {"name": "a", "default_next": "b"},
        {"name": "b", "default_next": "c"},
        {"name": "c", "default_next": "d"},
        {"name": "d", "max_context_tokens": 105, "context_overflow": "truncate_oldest"},
    )
    agents = {"a": gives({"n": 1}), "b": gives(LONG), "c": gives({"n": 3}), "d": last}
    envelope = execute(pipeline(*stages), agents, target=target)[-1].envelope
    assert got == [["b", "c"]]
    assert list(envelope.outputs) == ["a", "b", "c", "d"]
    envelope = execute(pipeline(*stages), agents, envelope={"raw_input": "y" * 500})[-1].envelope
    assert "context_overflow" in envelope.termination_reason  # the input alone is too large


def test_a_branch_whose_context_is_too_large_fails_its_fork():
    """The other branch is dropped, the fork's error_next is taken."""
    config = pipeline(
        {"name": "a", "default_next": "f"},
        {"name": "f", "node_kind": "fork", "branches": ["b", "c"], "default_next": "d", "error_next": "e"},
        {"name": "b", "max_context_tokens": 10},
        {"name": "c"},
        {"name": "d"},
        {"name": "e"},
    )

    async def slow(envelope):
        await asyncio.Event().wait()

    events = execute(config, {"a": gives(LONG), "b": gives({}), "c": slow, "d": gives({}), "e": gives({})})
    assert events[-1].envelope.terminal_reason == "completed"
    assert "e" in events[-1].envelope.outputs
    assert "d" not in events[-1].envelope.outputs


class Ticks:
    """An awaitable that is a bare iterator: it gives way so often, then a value."""

    def __init__(self, times, value):
        self.left, self.value = times, value

    def __await__(self):
        return iter(self)

    def __iter__(self):
        return self

    def __next__(self):
        if self.left == 0:
            raise StopIteration(self.value)
        self.left -= 1


async def at_once(envelope):
    return {"n": 1}


async def after_a_while(envelope):
    for _ in range(3):
        await asyncio.sleep(0)
    return {"n": 1}


async def after_an_error(envelope):
    waiting = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(waiting.set_exception, ValueError("no"))
    try:
        await waiting
    except ValueError:
        await asyncio.sleep(0)
    return {"n": 1}


async def after_an_error_at_once(envelope):
    try:
        await asyncio.wait_for(asyncio.get_running_loop().create_future(), 0.001)
    except TimeoutError:
        return {"n": 1}


async def a_task(envelope):
    return await asyncio.ensure_future(after_a_while(envelope))


@pytest.mark.parametrize(
    "agent", [at_once, after_a_while, after_an_error, after_an_error_at_once, a_task, lambda _: Ticks(2, {"n": 1})]
)
def test_an_agent_may_wait_in_any_way(agent, target):
    """For nothing, for futures that succeed or fail, for a task, or as an iterator."""
    assert execute(pipeline({"name": "a"}), {"a": agent}, target=target)[-1].envelope.outputs == {"a": {"n": 1}}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [("raises", "tool_failed_fatally"), ("tidies up", "tool_failed_fatally"), ("goes on", "completed")],
)
def test_an_agent_that_is_late_is_told(answer, reason, clock):
    """CancelledError where it waits; it may tidy up, and what it gives all the same counts."""
    told = []

    async def slow(envelope):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            told.append(answer)
            if answer == "goes on":
                return {"n": 1}
            if answer == "tidies up":
                await asyncio.sleep(0)
            raise

    async def work():
        async with Kernel("memory", clock) as kernel:
            kernel.register_agent("a", slow)
            kernel.register_agent("b", after_a_while)
            config = pipeline({"name": "a", "timeout_seconds": 2, "default_next": "b"}, {"name": "b"})
            events = kernel.execute_pipeline(config)
            first = asyncio.ensure_future(anext(events))
            await pass_time(kernel, clock, 1.5)
            assert told == []
            await pass_time(kernel, clock, 1.0)
            assert told == [answer]
            return [await first, *[event async for event in events]][-1].envelope

    envelope = run(work())
    assert envelope.terminal_reason == reason
    assert ("took longer than 2 s" in envelope.termination_reason) == (reason != "completed")


def test_a_stage_of_text_may_give_a_text():
    """Kept under the key text; any other stage that gives one failed."""
    events = execute(pipeline({"name": "a", "output_mode": "text"}), {"a": gives("hello")})
    assert events[-1].envelope.outputs == {"a": {"text": "hello"}}
    assert "gave str" in execute(pipeline({"name": "a"}), {"a": gives("hello")})[-1].envelope.termination_reason


def test_what_is_the_workers_is_handed_to_it():
    """Each of these keys is in the instruction, as it was declared."""
    declared: dict[str, Any] = {
        "temperature": 0.5,
        "generation": {"stop": ["END"], "top_p": 0.9, "top_k": 4, "repeat_penalty": 1.1, "seed": 7},
        "token_stream": "authoritative",
        "streaming_prompt_key": "chatty",
        "prompt_key": "terse",
        "model_role": "writer",
        "has_llm": True,
        "has_tools": True,
        "has_policies": True,
        "tool_access": "read",
        "allowed_tools": ["search"],
        "max_tokens": 100,
    }

    async def work():
        async with Kernel() as kernel:
            kernel.initialize_orchestration("x", pipeline({"name": "a", **declared}))
            told = kernel.get_next_instruction("x").to_data()["agent_config"]
            assert {name: told[name] for name in declared} == {
                **declared,
                "allowed_tools": ("search",),
                "generation": {**declared["generation"], "stop": ("END",)},
            }

    run(work())


def test_what_an_agent_gives_is_plain_data_or_a_failed_stage(target):
    """With and without a journal; and what it keeps of it and changes later is its own."""
    end = execute(pipeline({"name": "a"}), {"a": gives({"x": object()})}, target=target)[-1].envelope
    assert "cannot be saved" in end.termination_reason
    kept = {"list": [1]}

    async def second(envelope):
        kept["list"].append(2)
        return {"seen": envelope.outputs["a"]["list"]}

    stages = ({"name": "a", "default_next": "b"}, {"name": "b"})
    other = target + "2" if target != "memory" else target
    end = execute(pipeline(*stages), {"a": gives(kept), "b": second}, target=other)[-1].envelope
    assert end.outputs == {"a": {"list": [1]}, "b": {"seen": [1]}}


def test_a_declaration_is_checked_once(monkeypatch):
    """What `of` made is taken as it is; what was made by hand, or handed in as a mapping, is checked."""
    looked = []

    def problems(data):
        looked.append(data)
        return iter(())

    config = PipelineConfig.of(pipeline({"name": "a"}))
    monkeypatch.setattr("lyra.kernel.pipelines.declaration.problems", problems)
    assert PipelineConfig.of(config) is config
    assert looked == []
    by_hand = PipelineConfig(name="p", agents=config.agents)
    assert PipelineConfig.of(by_hand) == config
    PipelineConfig.of(config.to_data())
    assert len(looked) == 2


def test_one_made_by_hand_is_checked():
    """Its mistakes are found as those of a mapping."""
    config = PipelineConfig.of(pipeline({"name": "a"}))
    with pytest.raises(ConfigError):
        PipelineConfig.of(PipelineConfig(name="", agents=config.agents))


def test_a_declaration_shares_nothing_with_what_was_handed_in():
    """Changing the mapping afterwards changes no pipeline, not even one without a journal."""
    values = ["x"]
    schema = {"enum": values}
    config = pipeline(
        {
            "name": "a",
            "routing_rules": [{"condition": "k", "value": values, "target": "end"}],
            "output_schema": {"properties": {"k": schema}},
        }
    )
    declared = PipelineConfig.of(config)
    values.append("y")
    assert declared.agents[0].routing_rules[0].value == ["x"]
    assert declared.agents[0].output_schema == {"properties": {"k": {"enum": ["x"]}}}
    with pytest.raises(ConfigError):
        PipelineConfig.of(
            pipeline({"name": "a", "routing_rules": [{"condition": "k", "value": {1, object()}, "target": "end"}]})
        )


def test_listeners_get_plain_data(target):
    """Every row of a pipeline, with and without a journal: nothing but what JSON knows."""

    async def work():
        async with Kernel(target) as kernel:
            heard = {}
            kernel.on_event(lambda event: heard.setdefault(event.kind, json.dumps(event.data)))
            kernel.initialize_orchestration("x", pipeline(SCORED), {"raw_input": "tea"})
            kernel.get_next_instruction("x")
            kernel.report_agent_result("x", {"agent_name": "a", "output": {"score": 1}})
            await kernel.durable()
            assert {"pipeline.initialized", "pipeline.started", "pipeline.reported"} <= set(heard)
            assert json.loads(heard["pipeline.initialized"])["envelope"]["raw_input"] == "tea"

    run(work())


def test_a_workers_stage_is_tried_again():
    """max_retries: a failed run is instructed once more, under another number; what is left over fails the stage."""
    stage = {"name": "a", "max_retries": 1, "default_next": "b"}

    async def work():
        async with Kernel() as kernel:
            for pid, fails, end in (("p", 1, "completed"), ("q", 2, "tool_failed_fatally")):
                kernel.initialize_orchestration(pid, {"name": pid, "agents": [stage, {"name": "b"}]})
                told = kernel.get_next_instruction(pid)
                for number in range(fails):
                    result = {"agent_name": "a", "run_id": told.run_id, "success": False, "error": "no luck"}
                    told = kernel.report_agent_result(pid, result)
                    assert kernel.report_agent_result(pid, result) == told
                    if number == 0:
                        assert (told.kind, told.stage, told.run_id) == ("run_agent", "a", 2)
                while told.kind == "run_agent":
                    told = kernel.report_agent_result(pid, {"agent_name": told.agent_name, "run_id": told.run_id})
                assert told.terminal_reason == end

    run(work())


def test_a_workers_run_that_takes_too_long_has_failed(clock):
    """timeout_seconds: its late report changes nothing; the next look goes on without it."""
    stage = {"name": "a", "timeout_seconds": 10, "max_retries": 1, "error_next": "b"}

    async def work():
        async with Kernel(clock=clock) as kernel:
            kernel.initialize_orchestration("p", {"name": "p", "agents": [stage, {"name": "b"}]})
            first = kernel.get_next_instruction("p")
            clock.advance(9.0)
            assert kernel.get_next_instruction("p") == first
            clock.advance(2.0)
            again = kernel.get_next_instruction("p")
            assert (again.stage, again.run_id) == ("a", 2)
            late = {"agent_name": "a", "run_id": 1, "output": {"n": 1}}
            assert kernel.report_agent_result("p", late) == again
            clock.advance(11.0)
            told = kernel.get_next_instruction("p")
            assert (told.stage, told.envelope.outputs) == ("b", {})
            assert "a took longer than 10 s" in str(told.envelope.errors)

    run(work())


class Buyer:
    """An agent whose stages are processes that buy until the quota of their pipeline ends."""

    budget = None

    def __init__(self) -> None:
        self.bought: list[str] = []
        self.is_open = False

    def __lyra_stage__(self, name: str, **_: Any) -> Any:
        async def buy(stage: str) -> None:
            self.bought.append(stage)
            if not self.is_open:
                await asyncio.Event().wait()

        purchase: Effect[Any, None] = Effect(buy, name="buy", cost={"tool_calls": 1}, idempotent=True)

        async def buys(ctx: Any, _pid: str, _run: int, stage: str) -> dict[str, Any]:
            done = 0
            try:
                while stage == "rest" or done < 2:
                    await ctx.do(purchase, stage)
                    done += 1
            except BudgetExceeded:
                pass
            return {"output": {}, "metrics": {"tool_calls": done}}

        buys.__qualname__ = f"{name}:buys"
        return buys


def test_calls_that_a_crash_cut_off_count_against_the_quota_of_the_pipeline(path):
    """The first stage is cut off once in its first purchase: of five, two remain for the second stage."""
    buyer = Buyer()
    config = pipeline({"name": "two", "default_next": "rest"}, {"name": "rest"})

    async def begin(kernel: Kernel) -> Any:
        if "shop" not in kernel.orchestrator.state.sessions:
            kernel.initialize_orchestration("shop", config, {"raw_input": ""})
            kernel.adjust_quota("shop", {"max_tool_calls": 5})
        for stage in ("two", "rest"):
            kernel.register_agent(stage, buyer)
        return asyncio.ensure_future(_last(kernel.execute_pipeline(config, pid="shop")))

    async def main() -> None:
        async with Crash(Kernel(path)) as kernel:
            reading = await begin(kernel)
            await settle(kernel)
            reading.cancel()
        buyer.is_open = True
        async with Kernel(path) as kernel:
            end = await (await begin(kernel))
            assert end.envelope.terminal_reason == "completed"
        assert buyer.bought == ["two"] * 3 + ["rest"] * 2

    run(main())


async def _last(events: Any) -> Any:
    return [event async for event in events][-1]
