"""Agents as stages of pipelines, and one agent by itself: processes with the stage's settings that survive crashes."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from lyra import Agent, Context, Kernel, tool
from lyra.errors import ConfigError, Denied, InvalidTransition, ModelError, NoSuchAgent
from lyra.kernel import AgentResult
from tests.agents.support import calls, run, says
from tests.kernel.conftest import Crash, settle


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "run.db")


@pytest.fixture(params=["memory", "journal"])
def target(request: pytest.FixtureRequest, path: str) -> str:
    """The same promise with and without a journal."""
    return "memory" if request.param == "memory" else path


async def last_envelope(kernel: Kernel, *stages: Any, given: Any = None, **settings: Any) -> Any:
    config = {"name": "p", "agents": list(stages), **settings}
    return [event async for event in kernel.execute_pipeline(config, given or {"raw_input": "tea"})][-1].envelope


@tool(needs=["fs.read:/data/**"])
def look(place: str) -> str:
    """Look."""
    return f"seen {place}"


@tool
def save(text: str) -> str:
    """Save."""
    return "saved"


@tool(needs=["process.exec:make"])
def build(target: str) -> str:
    """Build."""
    return "built"


TOOLS = [look, save, build]


# ------------------------------------------------------------------ stages


def test_an_agent_runs_a_stage_and_sees_what_was_before(target: str) -> None:
    """Its task is the input and the outputs of earlier stages; its answer is the stage's output; its use is counted."""

    async def main() -> None:
        model = says("green")
        async with Kernel(target) as kernel:
            kernel.register_agent("first", gives_leaf)
            kernel.register_agent("second", Agent("taster", model=model))
            envelope = await last_envelope(kernel, {"name": "first", "default_next": "second"}, {"name": "second"})
            assert envelope.terminal_reason == "completed"
            assert envelope.outputs["second"] == {"text": "green"}
            asked = model.requests[0].messages[0].text
            assert asked.startswith("tea")
            assert '"leaf": "whole"' in asked
            assert (envelope.llm_call_count, envelope.tokens_in > 0, envelope.tokens_out > 0) == (1, True, True)

    run(main())


async def gives_leaf(envelope: Any) -> dict[str, Any]:
    return {"leaf": "whole"}


def test_a_stage_sets_how_the_model_is_asked() -> None:
    """temperature, max_tokens, generation, prompt_key and model_role replace the agent's own for that run."""

    async def main() -> None:
        own, other = says("own"), says("other")
        agent = Agent("a", model=own, system="Be kind.", temperature=1.0, top_p=0.9)
        generation = {"stop": ["END"], "top_p": 0.5, "top_k": 7, "seed": 11, "repeat_penalty": 1.5}
        stage = {"name": "a", "temperature": 0.1, "max_tokens": 55, "generation": generation}
        async with Kernel() as kernel:
            kernel.register_agent("a", agent, prompts={"strict": "Be strict."}, models={"critic": other})
            keys = {"prompt_key": "strict", "model_role": "critic", "has_llm": True}
            envelope = await last_envelope(kernel, {**stage, **keys})
            assert envelope.outputs["a"] == {"text": "other"}
            assert (await last_envelope(kernel, {"name": "a"})).outputs["a"] == {"text": "own"}
        sent, plain = other.requests[0], own.requests[0]
        assert (sent.temperature, sent.max_tokens, sent.top_p, sent.stop) == (0.1, 55, 0.5, ("END",))
        assert (sent.top_k, sent.seed, sent.repeat_penalty, sent.system) == (7, 11, 1.5, "Be strict.")
        assert (plain.temperature, plain.top_p, plain.stop, plain.system) == (1.0, 0.9, (), "Be kind.")

    run(main())


def test_a_key_that_was_not_registered_fails_the_stage() -> None:
    """A prompt or a model that the registration does not have is not replaced by another; a function takes none."""

    async def main() -> None:
        async with Kernel() as kernel:
            kernel.register_agent("a", Agent("a", model=says("x")), prompts={"one": ""}, models={"big": says("y")})
            for keys in ({"prompt_key": "two"}, {"model_role": "small"}):
                envelope = await last_envelope(kernel, {"name": "a", **keys})
                assert envelope.terminal_reason == "tool_failed_fatally"
                assert next(iter(keys.values())) in envelope.termination_reason
            with pytest.raises(ConfigError, match="are for an Agent"):
                kernel.register_agent("b", gives_leaf, prompts={})

    run(main())


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        ({}, ["look", "save", "build"]),
        ({"tool_access": "none"}, []),
        ({"tool_access": "read"}, ["look"]),
        ({"tool_access": "write"}, ["look", "save"]),
        ({"tool_access": "all"}, ["look", "save", "build"]),
        ({"allowed_tools": ["save", "fly"]}, ["save"]),
        ({"allowed_tools": ["save", "build"], "tool_access": "write"}, ["save"]),
    ],
)
def test_a_stage_narrows_the_tools(keys: dict[str, Any], names: list[str]) -> None:
    """allowed_tools and tool_access take tools away, also those of a source, and a call of one is no call."""

    class Source:
        def __lyra_tools__(self) -> Any:
            return (build,)

    async def main() -> None:
        given: tuple[list[Any], ...] = ([look, save, build], [look, save, Source()])
        for tools in given:
            model = says(calls("build", target="all"), "done")
            async with Kernel() as kernel:
                kernel.register_agent("a", Agent("a", model=model, tools=tools))
                await last_envelope(kernel, {"name": "a", **keys})
            assert [tool.name for tool in model.requests[0].tools] == names
            [result] = model.requests[1].messages[-1].tool_results
            assert result.is_error == ("build" not in names)

    run(main())


def test_a_schema_of_the_stage_types_the_answer() -> None:
    """An agent without an output type is asked for what the stage wants; text stays text where the stage says so."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}

    async def main() -> None:
        model = says('{"n": 3}')
        async with Kernel() as kernel:
            kernel.register_agent("a", Agent("a", model=model))
            kernel.register_agent("b", Agent("b", model=says("[1, 2]"), output=list[int]))
            assert (await last_envelope(kernel, {"name": "a", "output_schema": schema})).outputs["a"] == {"n": 3}
            assert model.requests[0].output_schema is not None
            assert (await last_envelope(kernel, {"name": "b"})).outputs["b"] == {"value": [1, 2]}
            text = await last_envelope(kernel, {"name": "b", "output_mode": "text"})
            assert text.outputs["b"] == {"text": "[1, 2]"}

    run(main())


@pytest.mark.parametrize(("mode", "debug"), [("debug", True), ("authoritative", False), ("off", None)])
def test_tokens_are_told_as_they_come(mode: str, debug: bool | None) -> None:
    """token_stream tells the pieces of the answer, in order, with the prompt of streaming_prompt_key."""

    async def main() -> None:
        model = says("one two three four")
        async with Kernel() as kernel:
            kernel.register_agent("a", Agent("a", model=model), prompts={"plain": "P", "stream": "S"})
            stage = {"name": "a", "token_stream": mode, "prompt_key": "plain", "streaming_prompt_key": "stream"}
            config = {"name": "p", "agents": [stage]}
            events = [event async for event in kernel.execute_pipeline(config, {"raw_input": "tea"})]
        tokens = [event for event in events if event.type == "token"]
        assert "".join(event.data["delta"] for event in tokens) == ("" if debug is None else "one two three four")
        assert all(event.data["debug"] is debug and event.stage == "a" for event in tokens)
        assert model.requests[0].system == ("P" if debug is None else "S")

    run(main())


def test_a_model_that_fails_is_a_reason_of_its_own() -> None:
    """llm_failed_fatally where a stage failed by its model and nothing follows; its error_next is followed."""

    async def main() -> None:
        async with Kernel() as kernel:
            kernel.register_agent("a", Agent("a", model=says({"error": {"kind": "auth"}}), retry=None))
            kernel.register_agent("b", gives_leaf)
            kernel.register_agent("c", fails_by_model)
            for stage in ({"name": "a"}, {"name": "c"}):
                envelope = await last_envelope(kernel, stage)
                assert envelope.terminal_reason == "llm_failed_fatally"
            routed = await last_envelope(kernel, {"name": "a", "error_next": "b"}, {"name": "b"})
            assert routed.terminal_reason == "completed"

    run(main())


async def fails_by_model(envelope: Any) -> Any:
    raise ModelError("no", kind="auth")


def test_a_failed_stage_is_tried_again_and_bounded_in_time(target: str) -> None:
    """max_retries begins another process for the run; timeout_seconds ends one."""

    async def main() -> None:
        model = says({"error": {"kind": "bad_request"}}, "better")
        async with Kernel(target) as kernel:
            kernel.register_agent("a", Agent("a", model=model, retry=None))
            retry = {"max_retries": 1, "retry_policy": {"initial_ms": 1}}
            assert (await last_envelope(kernel, {"name": "a", **retry})).outputs["a"] == {"text": "better"}
            kernel.register_agent("b", Agent("b", model=says(calls("wait"), "late"), tools=[wait]))
            envelope = await last_envelope(kernel, {"name": "b", "timeout_seconds": 0.05})
            assert envelope.terminal_reason == "tool_failed_fatally"
            assert "longer than 0.05 s" in envelope.termination_reason

    run(main())


@tool
async def wait() -> str:
    """Wait."""
    await asyncio.Event().wait()
    return ""


def test_an_agent_goes_on_after_a_crash(path: str) -> None:
    """After kill -9 in the middle of a stage, calls of the model that were answered are not made again."""
    config = {"name": "p", "agents": [{"name": "a", "default_next": "b"}, {"name": "b"}]}

    async def first_life() -> Any:
        at_the_tool = asyncio.Event()

        @tool(idempotent=True)
        async def slow() -> str:
            """Slow."""
            at_the_tool.set()
            await asyncio.Event().wait()
            return ""

        model = says(calls("slow"), "done")
        async with Crash(Kernel(path)) as kernel:
            kernel.register_agent("a", Agent("a", model=model, tools=[slow]))
            kernel.register_agent("b", gives_leaf)
            events = kernel.execute_pipeline(config, {"raw_input": "tea"}, pid="job")
            task = asyncio.ensure_future(_drain(events))
            await at_the_tool.wait()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await kernel.durable()
        return model

    async def second_life() -> Any:
        @tool(idempotent=True)
        async def slow() -> str:
            """Slow."""
            return "quick now"

        model = says("done")
        async with Kernel(path) as kernel:
            kernel.register_agent("a", Agent("a", model=model, tools=[slow]))
            kernel.register_agent("b", gives_leaf)
            last = (await _drain(kernel.execute_pipeline(config, pid="job")))[-1]
        return model, last.envelope

    assert len(run(first_life()).requests) == 1
    model, envelope = run(second_life())
    assert envelope.terminal_reason == "completed"
    assert [len(request.messages) for request in model.requests] == [3]  # the task, the call and its result
    assert envelope.outputs["a"] == {"text": "done"}


async def _drain(events: Any) -> list[Any]:
    return [event async for event in events]


def test_a_question_of_a_stages_agent_is_told(target: str) -> None:
    """The listeners of the pipeline hear of it, by stage; the answer lets the stage go on."""

    @tool
    async def which(ctx: Context) -> str:
        """Ask."""
        return str((await ctx.ask("which tea?")).text)

    async def main() -> None:
        model = says(calls("which"), "done")
        async with Kernel(target) as kernel:
            kernel.register_agent("a", Agent("a", model=model, tools=[which]))
            asked = []
            async for event in kernel.execute_pipeline({"name": "p", "agents": [{"name": "a"}]}, "tea"):
                if event.type == "interrupt_raised":
                    asked.append((event.stage, event.data["interrupt"]["question"]))
                    kernel.resolve_interrupt(event.data["interrupt"]["id"], {"text": "green"})
            assert asked == [("a", "which tea?")]
            assert event.envelope.outputs["a"] == {"text": "done"}
            assert model.requests[-1].messages[-1].tool_results[0].output == "green"

    run(main())


# ------------------------------------------------------------------ functions


def test_a_function_may_take_the_stage() -> None:
    """By the name `stage`, or as a second argument; a second one with a default is left alone."""

    async def by_name(envelope: Any, *, stage: Any) -> dict[str, Any]:
        return {"t": stage.temperature}

    async def second(envelope: Any, settings: Any) -> dict[str, Any]:
        return {"t": settings.temperature}

    async def own_default(envelope: Any, times: int = 3) -> dict[str, Any]:
        return {"t": times}

    async def main() -> None:
        async with Kernel() as kernel:
            for function, expected in ((by_name, 0.5), (second, 0.5), (own_default, 3)):
                kernel.register_agent("a", function)
                envelope = await last_envelope(kernel, {"name": "a", "temperature": 0.5})
                assert envelope.outputs["a"] == {"t": expected}

    run(main())


def test_a_function_that_blocks_does_not_hold_up_the_loop() -> None:
    """One that is not async runs in a thread: two that wait for one another come to an end, and errors fail a stage."""
    meeting = threading.Barrier(2, timeout=20)

    def meets(envelope: Any) -> dict[str, Any]:
        meeting.wait()
        return {"thread": threading.current_thread().name}

    def fails(envelope: Any) -> Any:
        raise StopIteration("no")

    async def main() -> None:
        async with Kernel() as kernel:
            kernel.register_agent("a", meets)
            kernel.register_agent("b", meets)
            kernel.register_agent("c", fails)
            fork = {"name": "f", "node_kind": "fork", "branches": ["a", "b"]}
            envelope = await last_envelope(kernel, fork, {"name": "a"}, {"name": "b"})
            assert envelope.terminal_reason == "completed"
            assert all(output["thread"].startswith("lyra-stage") for output in envelope.outputs.values())
            assert (await last_envelope(kernel, {"name": "c"})).terminal_reason == "tool_failed_fatally"

    run(main())


# ------------------------------------------------------------------ one agent by itself


def test_one_agent_by_itself(target: str) -> None:
    """execute_agent gives the output, what was used, and the envelope with that added and nothing else changed."""

    async def main() -> None:
        async with Kernel(target) as kernel:
            kernel.register_agent("taster", Agent("taster", model=says("green")))
            kernel.register_agent("leaf", gives_leaf)
            before = kernel.orchestrator.envelope_of({"raw_input": "tea", "stage_order": ["x"], "current_stage": "x"})
            done = await kernel.execute_agent("leaf", before, user_id="ann")
            assert (done.success, done.output, done.error, done.error_code) == (True, {"leaf": "whole"}, "", "")
            assert (done.envelope.stage_order, done.envelope.current_stage) == (["x"], "x")
            assert (done.envelope.terminated, done.envelope.outputs) == (False, {"leaf": {"leaf": "whole"}})
            assert (done.envelope.user_id, done.envelope.agent_hop_count) == ("ann", 1)
            assert kernel.get_process(done.pid).state == "terminated"
            second = await kernel.execute_agent("taster", done.envelope, {"max_tokens": 9})
            assert (second.output, second.llm_calls, second.envelope.llm_call_count) == ({"text": "green"}, 1, 1)
            assert list(second.envelope.outputs) == ["leaf", "taster"]
            assert second.tokens_out == second.envelope.tokens_out > 0

    run(main())


def test_the_failure_of_an_agent_is_a_result(target: str) -> None:
    """An exception, an AgentResult with an error, a model that fails, a time limit: none is raised."""

    async def breaks(envelope: Any) -> Any:
        raise ValueError("broken")

    async def says_no(envelope: Any) -> Any:
        return AgentResult(success=False, error="no")

    async def waits(envelope: Any) -> Any:
        await asyncio.Event().wait()

    async def main() -> None:
        async with Kernel(target) as kernel:
            kernel.register_agent("breaks", breaks)
            kernel.register_agent("says_no", says_no)
            kernel.register_agent("waits", waits)
            kernel.register_agent("model", Agent("model", model=says({"error": {"kind": "auth"}}), retry=None))
            for name, words, code in (
                ("breaks", "broken", "effect_failed"),
                ("says_no", "no", "agent_failed"),
                ("model", "the key is", "model_error"),
                ("waits", "longer than 0.05 s", "deadline_exceeded"),
            ):
                done = await kernel.execute_agent(name, "tea", {"timeout_seconds": 0.05} if name == "waits" else None)
                assert (done.success, done.output, done.error_code) == (False, {}, code)
                assert words in done.error
                assert done.envelope.failed_stages[name] == done.error

    run(main())


def test_a_quota_bounds_one_agent() -> None:
    """Calls of the model beyond the quota are refused, whoever makes them; usage is counted for pid and user."""

    async def main() -> None:
        async with Kernel() as kernel:
            agent = Agent("a", model=says(calls("save", text="x"), calls("save", text="y"), "done"), tools=[save])
            kernel.register_agent("a", agent)
            done = await kernel.execute_agent("a", "tea", quota={"max_llm_calls": 2}, user_id="ann", pid="one")
            assert (done.success, done.error_code, done.llm_calls) == (False, "budget_exceeded", 2)
            assert kernel.resources.get_usage("one").llm_calls == 2
            assert kernel.resources.get_user_usage("ann").llm_calls == 2

    run(main())


def test_the_bounds_of_the_envelope_hold() -> None:
    """An envelope whose bound is reached runs no agent; one that is over is refused."""

    async def main() -> None:
        async with Kernel() as kernel:
            kernel.register_agent("leaf", gives_leaf)
            done = await kernel.execute_agent("leaf", {"llm_call_count": 10})
            assert (done.success, done.error_code) == (False, "max_llm_calls_exceeded")
            with pytest.raises(InvalidTransition):
                await kernel.execute_agent("leaf", {"terminated": True})

    run(main())


def test_what_the_caller_gets_wrong_is_raised() -> None:
    """An unknown agent, settings that no stage has, another user's envelope."""

    async def main() -> None:
        async with Kernel() as kernel:
            kernel.register_agent("leaf", gives_leaf)
            with pytest.raises(NoSuchAgent, match="leef"):
                await kernel.execute_agent("leef")
            with pytest.raises(ConfigError, match="temprature"):
                await kernel.execute_agent("leaf", config={"temprature": 1})
            with pytest.raises(Denied):
                await kernel.execute_agent("leaf", {"user_id": "bob"}, user_id="ann")

    run(main())


def test_a_caller_that_gives_up_ends_a_run_that_only_it_knows(target: str) -> None:
    """A run with a pid of the caller's goes on, and its result can be had later."""
    go, began = asyncio.Event(), asyncio.Event()

    async def waits(envelope: Any) -> dict[str, Any]:
        began.set()
        await go.wait()
        return {"n": 1}

    async def main() -> None:
        async with Kernel(target) as kernel:
            kernel.register_agent("waits", waits)
            for pid in (None, "mine"):
                began.clear()
                call = asyncio.ensure_future(kernel.execute_agent("waits", pid=pid))
                await began.wait()
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)
            await settle(kernel)
            states = {block.pid: block.state for block in kernel.list_processes()}
            assert states.pop("mine") != "terminated"
            assert list(states.values()) == ["terminated"]
            go.set()
            assert (await kernel.execute_agent("waits", pid="mine")).output == {"n": 1}

    run(main())


def test_one_agent_survives_its_kernel(path: str) -> None:
    """The same pid after kill -9 gives the result of the run, and does not make it again."""
    ran: list[str] = []

    async def counted(envelope: Any) -> dict[str, Any]:
        ran.append(envelope.raw_input)
        return {"n": len(ran)}

    async def life(*, crashes: bool) -> Any:
        kernel = Kernel(path)
        async with Crash(kernel) if crashes else kernel:
            kernel.register_agent("a", counted)
            return await kernel.execute_agent("a", {"raw_input": "tea", "envelope_id": "env"}, pid="job")

    first, second = run(life(crashes=True)), run(life(crashes=False))
    assert ran == ["tea"]
    assert first.output == second.output == {"n": 1}
