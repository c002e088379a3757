"""EngineService: envelopes kept by id, pipelines and agents run in the kernel."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import grpc
import grpc.aio
import pytest

from lyra.errors import ModelError
from lyra.server.generated import engine_pb2 as pb
from tests.server.grpc.client import ALICE, BOB, on_loop, rest, serving

PIPELINE = {"name": "tea", "agents": [{"name": "brew", "default_next": "pour"}, {"name": "pour"}]}
CONFIG = json.dumps(PIPELINE).encode()


# ------------------------------------------------------------------ envelopes


@on_loop
async def test_an_envelope_is_created_updated_and_cloned():
    """An update changes what it gives and keeps the rest; a clone goes its own way under a new id."""
    async with serving() as (_kernel, client):
        alice = client.as_(ALICE, session_id="s1")
        made = await alice(
            "EngineService/CreateEnvelope", raw_input="tea", metadata={"cup": "blue"}, stage_order=["a", "b"]
        )
        assert (made.user_id, made.session_id, list(made.stage_order)) == ("alice", "s1", ["a", "b"])
        changes = pb.Envelope(envelope_id=made.envelope_id, outputs={"a": b'{"n": 1}'}, metadata_str={"milk": "no"})
        await alice("EngineService/UpdateEnvelope", envelope=changes)
        more = pb.Envelope(envelope_id=made.envelope_id, outputs={"b": b'{"n": 2}'}, current_stage="b")
        updated = await alice("EngineService/UpdateEnvelope", envelope=more)
        assert {name: json.loads(output) for name, output in updated.outputs.items()} == {"a": {"n": 1}, "b": {"n": 2}}
        assert dict(updated.metadata_str) == {"cup": "blue", "milk": "no"}
        assert (updated.raw_input, updated.current_stage) == ("tea", "b")
        clone = await alice("EngineService/CloneEnvelope", envelope={"envelope_id": made.envelope_id})
        assert clone.envelope_id != made.envelope_id
        assert clone.outputs == updated.outputs


@on_loop
async def test_what_was_given_can_be_sent_back_whole():
    """A client that changes one field of the message that it got and sends it back changes that field."""
    async with serving() as (kernel, client):
        made = await client("EngineService/CreateEnvelope", raw_input="tea", user_id="alice")
        kernel.update_envelope({"envelope_id": made.envelope_id, "metadata": {"n": 3, "list": [1, 2]}})
        shown = await client("EngineService/UpdateEnvelope", envelope={"envelope_id": made.envelope_id})
        shown.iteration = 2
        again = await client("EngineService/UpdateEnvelope", envelope=shown)
        assert again.iteration == 2
        assert kernel.envelopes.get(made.envelope_id).metadata == {"n": 3, "list": [1, 2]}


@on_loop
async def test_updates_do_not_make_an_envelope_larger_than_a_message():
    async with serving() as (_kernel, client):
        made = await client("EngineService/CreateEnvelope", raw_input="tea", user_id="alice")
        codes = []
        for number in range(5):
            output = json.dumps({"text": "x" * 1_000_000}).encode()
            changes = pb.Envelope(envelope_id=made.envelope_id, outputs={f"a{number}": output})
            codes.append(await client.status("EngineService/UpdateEnvelope", envelope=changes))
        assert codes == ["OK", "OK", "OK", "OK", "RESOURCE_EXHAUSTED"]


@on_loop
async def test_bounds_are_checked_of_the_envelope_that_is_sent():
    async with serving() as (_kernel, client):
        within = await client("EngineService/CheckBounds", user_id="alice", max_llm_calls=5, llm_call_count=2)
        assert (within.can_continue, within.llm_calls_remaining) == (True, 3)
        assert not within.HasField("tokens_in_remaining")
        over = await client(
            "EngineService/CheckBounds", user_id="alice", max_llm_calls=5, llm_call_count=5, max_input_tokens=9
        )
        assert (over.can_continue, over.terminal_reason) == (False, pb.MAX_LLM_CALLS_EXCEEDED)
        assert over.tokens_in_remaining == 9


# ------------------------------------------------------------------ pipelines


async def _brew(_envelope: Any) -> dict[str, Any]:
    return {"cups": 2}


@on_loop
async def test_every_stage_event_of_a_pipeline_is_streamed():
    async with serving() as (kernel, client):
        kernel.register_agent("brew", _brew)
        kernel.register_agent("pour", _brew)
        events = [event async for event in client.as_(ALICE)("EngineService/ExecutePipeline", pipeline_config=CONFIG)]
        shown = [(pb.ExecutionEventType.Name(event.type), event.stage) for event in events]
        assert shown == [
            ("STAGE_STARTED", "brew"),
            ("STAGE_COMPLETED", "brew"),
            ("CHECKPOINT_CREATED", "brew"),
            ("STAGE_STARTED", "pour"),
            ("STAGE_COMPLETED", "pour"),
            ("PIPELINE_COMPLETED", "end"),
        ]
        last = events[-1]
        assert json.loads(last.payload)["reason"] == "completed"
        assert (last.envelope.user_id, last.envelope.terminal_reason) == ("alice", pb.COMPLETED)
        assert json.loads(last.envelope.outputs["brew"]) == {"cups": 2}
        assert last.timestamp_ms > 0
        pid = json.loads(last.payload)["pid"]
        assert (await client.as_(ALICE)("KernelService/GetProcess", pid=pid)).pid == pid
        assert await client.as_(BOB).status("KernelService/GetProcess", pid=pid) == "NOT_FOUND"


@on_loop
async def test_a_failing_stage_is_an_event_and_not_the_end_of_the_call():
    async def fails(_envelope: Any) -> None:
        raise ModelError("the model is out of tea", kind="bad_request")

    async with serving() as (kernel, client):
        kernel.register_agent("brew", fails)
        kernel.register_agent("pour", _brew)
        events = [event async for event in client("EngineService/ExecutePipeline", pipeline_config=CONFIG)]
        types = [event.type for event in events]
        assert types == [pb.STAGE_STARTED, pb.STAGE_FAILED, pb.PIPELINE_COMPLETED]
        assert "out of tea" in json.loads(events[1].payload)["error"]
        assert events[-1].envelope.terminal_reason in (pb.LLM_FAILED_FATALLY, pb.TOOL_FAILED_FATALLY)


@on_loop
async def test_a_run_goes_on_without_its_reader_and_can_be_read_again():
    """A client that goes away leaves the run as it is; the same thread_id reads on where it stands."""
    release = asyncio.Event()

    async def slow(_envelope: Any) -> dict[str, Any]:
        await release.wait()
        return {"cups": 1}

    async with serving() as (kernel, client):
        kernel.register_agent("brew", slow)
        kernel.register_agent("pour", _brew)
        fields = {"pipeline_config": CONFIG, "thread_id": "t1"}
        call = client("EngineService/ExecutePipeline", **fields)
        assert (await call.read()).type == pb.STAGE_STARTED
        call.cancel()
        again = client("EngineService/ExecutePipeline", **fields)
        assert (await again.read()).stage == "brew"
        release.set()
        assert (await rest(again))[-1].type == pb.PIPELINE_COMPLETED
        events = await rest(client("EngineService/ExecutePipeline", **fields))
        assert [json.loads(event.payload)["reason"] for event in events] == ["completed"]


@on_loop
async def test_a_reader_that_is_too_slow_is_told_to_begin_anew_and_the_run_goes_on(monkeypatch):
    """Unread events of a run are bounded: the stream ends with UNAVAILABLE, and the same thread_id reads on."""
    monkeypatch.setattr("lyra.kernel.pipelines.feeds.PIPELINE_EVENTS_UNREAD_MAX", 20)
    loop = {
        "name": "loop",
        "max_iterations": 100_000,
        "max_agent_hops": 300,
        "agents": [{"name": "brew", "default_next": "pour"}, {"name": "pour", "default_next": "brew"}],
    }

    first_was_read = asyncio.Event()

    async def large(_envelope: Any) -> dict[str, Any]:
        await first_was_read.wait()
        return {"text": "x" * 100_000}

    async with serving() as (kernel, client):
        kernel.register_agent("brew", large)
        kernel.register_agent("pour", large)
        fields = {"pipeline_config": json.dumps(loop).encode(), "thread_id": "t1"}
        call = client("EngineService/ExecutePipeline", **fields)
        await call.read()
        first_was_read.set()
        async with asyncio.timeout(60.0):
            while not kernel.get_process("t1").terminal:
                await asyncio.sleep(0.01)
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await rest(call)
        assert error.value.code() is grpc.StatusCode.UNAVAILABLE
        again = await rest(client("EngineService/ExecutePipeline", **fields))
        assert [event.type for event in again] == [pb.PIPELINE_COMPLETED]


@on_loop
async def test_terminating_its_process_ends_a_run():
    async def slow(_envelope: Any) -> None:
        await asyncio.Event().wait()

    async with serving() as (kernel, client):
        kernel.register_agent("brew", slow)
        kernel.register_agent("pour", _brew)
        call = client("EngineService/ExecutePipeline", pipeline_config=CONFIG, thread_id="t1")
        await call.read()
        await client("KernelService/TerminateProcess", pid="t1", force=True)
        events = await rest(call)
        assert events[-1].envelope.terminal_reason == pb.USER_CANCELLED


# ------------------------------------------------------------------ agents


@on_loop
async def test_an_agent_is_run_and_its_result_given():
    async with serving() as (kernel, client):
        kernel.register_agent("brew", _brew)
        result = await client.as_(ALICE)(
            "EngineService/ExecuteAgent", agent_name="brew", envelope={"raw_input": "tea"}, agent_config=b"{}"
        )
        assert result.success
        assert json.loads(result.output) == {"cups": 2}
        assert (result.envelope.raw_input, result.envelope.user_id) == ("tea", "alice")
        assert json.loads(result.envelope.outputs["brew"]) == {"cups": 2}


@on_loop
async def test_an_agent_that_fails_is_a_result_without_success():
    async def fails(_envelope: Any) -> None:
        raise ValueError("no water")

    async with serving() as (kernel, client):
        kernel.register_agent("brew", fails)
        result = await client("EngineService/ExecuteAgent", agent_name="brew")
        assert not result.success
        assert "no water" in result.error


@pytest.mark.parametrize("how", ["cancel", "deadline"])
def test_an_agent_is_ended_with_its_call(how: str):
    """A call that is cancelled, or whose deadline passes, ends the run: its result would have no reader."""
    begun, ended = asyncio.Event(), asyncio.Event()

    async def slow(_envelope: Any) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    @on_loop
    async def body():
        async with serving() as (kernel, client):
            kernel.register_agent("brew", slow)
            call = client("EngineService/ExecuteAgent", agent_name="brew", timeout=0.5 if how == "deadline" else 60.0)
            if how == "cancel":
                await begun.wait()
                call.cancel()
            with pytest.raises((asyncio.CancelledError, grpc.aio.AioRpcError)):
                await call
            if begun.is_set():  # else the deadline was over before the run began
                async with asyncio.timeout(30.0):
                    await ended.wait()

    body()


@on_loop
async def test_a_question_of_a_pipeline_is_told_with_its_id_and_answered_by_it():
    """INTERRUPT_RAISED comes once, and names the question in its payload and in its envelope."""
    config = {
        "name": "ask",
        "confirmation_resume_stage": "pour",
        "agents": [{"name": "brew", "default_next": "confirmation"}, {"name": "pour"}],
    }
    async with serving() as (kernel, client):
        for name in ("brew", "pour"):
            kernel.register_agent(name, _give_cups)
        alice = client.as_(ALICE)
        call = alice("EngineService/ExecutePipeline", thread_id="t1", pipeline_config=json.dumps(config).encode())
        raised = []
        while (event := await call.read()) is not grpc.aio.EOF:
            if event.type == pb.INTERRUPT_RAISED:
                raised.append(event)
                interrupt_id = json.loads(event.payload)["interrupt"]["id"]
                assert event.envelope.interrupt.id == interrupt_id
                await alice("SystemService/ResolveInterrupt", interrupt_id=interrupt_id, response={"approved": True})
        assert len(raised) == 1
        assert kernel.get_orchestration_state("t1").envelope.outputs["pour"] == {"cups": 2}


async def _give_cups(_envelope: Any) -> dict[str, Any]:
    return {"cups": 2}
