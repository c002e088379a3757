"""WorkerService over a socket: claims, renewals and results, and whose they are."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from lyra.kernel.kernel import Kernel
from lyra.server.generated import engine_pb2 as pb
from tests.server.grpc.client import ALICE, BOB, Client, on_loop, serving

CLAIM, RENEW, COMPLETE = "WorkerService/ClaimWork", "WorkerService/RenewWork", "WorkerService/CompleteWork"
CONFIG = json.dumps({"name": "p", "agents": [{"name": "write", "temperature": 0.5}]}).encode()


async def run_of(client: Client, user: str = "") -> None:
    """Begin a pipeline of one remote stage, and let it run."""
    envelope = pb.Envelope(raw_input="text", user_id=user, metadata_str={"tag": "x"})
    call = client("EngineService/ExecutePipeline", envelope=envelope, thread_id="run", pipeline_config=CONFIG)
    await call.read()
    call.cancel()


async def work(client: Client, **fields: Any) -> pb.WorkItem:
    given = {"worker_id": "w1", "agents": ["write"], "lease_seconds": 30, "wait_seconds": 20.0, **fields}
    item: pb.WorkItem = await client(CLAIM, **given)
    return item


async def state_of(kernel: Kernel, pid: str = "run") -> Any:
    while not kernel.get_orchestration_state(pid).terminated:
        await asyncio.sleep(0.01)
    return kernel.get_orchestration_state(pid)


@on_loop
async def test_work_has_all_that_a_worker_needs() -> None:
    """A claimed piece carries its stage, its envelope, its lease and a key; its result moves the pipeline on."""
    async with serving() as (kernel, client):
        await work(client, announce=True)
        await run_of(client)
        item = await work(client)
        assert (item.agent_name, item.service_name, item.process_id) == ("write", "", "run")
        assert (item.attempt, item.lease_seconds) == (1, 30)
        assert item.idempotency_key
        assert item.work_id.startswith(item.idempotency_key)
        assert json.loads(item.agent_config)["temperature"] == 0.5
        assert json.loads(item.envelope)["raw_input"] == "text"
        renewal = await client(RENEW, work_id=item.work_id, worker_id="w1", lease_seconds=30)
        assert (renewal.held, renewal.cancelled) == (True, False)
        metrics = pb.AgentExecutionMetrics(llm_calls=1, tool_calls=2, tokens_in=3, tokens_out=4, duration_ms=5)
        result = {
            "work_id": item.work_id,
            "worker_id": "w1",
            "output": b'{"n": 1}',
            "success": True,
            "metrics": metrics,
        }
        assert (await client(COMPLETE, **result)).accepted
        assert (await client(COMPLETE, **result)).accepted
        envelope = (await state_of(kernel)).envelope
        assert envelope.outputs == {"write": {"n": 1}}
        counts = (envelope.llm_call_count, envelope.tool_call_count, envelope.tokens_in, envelope.tokens_out)
        assert counts == (1, 2, 3, 4)


@on_loop
async def test_a_failure_keeps_the_code_of_its_error() -> None:
    """A reported failure ends the stage; the code of a model's error says that the model failed."""
    async with serving() as (kernel, client):
        await work(client, announce=True)
        await run_of(client)
        item = await work(client)
        fields = {"work_id": item.work_id, "worker_id": "w1", "error": "no answer", "error_code": "model_error"}
        assert (await client(COMPLETE, **fields)).accepted
        state = await state_of(kernel)
        assert str(state.terminal_reason) == "llm_failed_fatally"
        assert "no answer" in str(state.envelope.failed_stages)


@on_loop
async def test_no_work_is_an_empty_item() -> None:
    """A claim that finds nothing in its time gives an item without an id."""
    async with serving() as (_kernel, client):
        assert (await work(client, wait_seconds=0.05)).work_id == ""


@on_loop
async def test_unknown_work_is_not_taken() -> None:
    """A result for work that is not known is refused, once workers had the time to come back after a start."""
    async with serving() as (_kernel, client):
        client.face._services["WorkerService"]._desk._returned_at = 0.0
        fields = {"work_id": "nothing.1", "worker_id": "w1"}
        assert not (await client(COMPLETE, **fields, success=True)).accepted
        assert not (await client(RENEW, **fields)).held


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        (CLAIM, {"agents": ["write"]}),
        (CLAIM, {"worker_id": "w1"}),
        (CLAIM, {"worker_id": "w1", "agents": [""]}),
        (CLAIM, {"worker_id": "w1", "agents": ["a\nb"]}),
        (CLAIM, {"worker_id": "w1", "agents": ["x" * 10_000]}),
        (CLAIM, {"worker_id": "w" * 1_000, "agents": ["write"]}),
        (CLAIM, {"worker_id": "w1", "agents": [f"a{number}" for number in range(200)]}),
        (CLAIM, {"worker_id": "w1", "agents": ["write"], "wait_seconds": float("nan")}),
        (CLAIM, {"worker_id": "w1", "agents": ["write"], "lease_seconds": -1}),
        (RENEW, {"worker_id": "w1"}),
        (RENEW, {"work_id": "a.1"}),
        (RENEW, {"work_id": "a.1", "worker_id": "w1", "lease_seconds": -1}),
        (COMPLETE, {"worker_id": "w1"}),
        (COMPLETE, {"work_id": "a.1"}),
        (COMPLETE, {"work_id": "a.1", "worker_id": "w1", "success": True, "output": b"{"}),
        (COMPLETE, {"work_id": "a.1", "worker_id": "w1", "success": True, "output": b"[1]"}),
        (COMPLETE, {"work_id": "a.1", "worker_id": "w1", "success": True, "interrupt": b"7"}),
    ],
)
@on_loop
async def test_wrong_requests_are_refused(method: str, fields: dict[str, Any]) -> None:
    """A mistake in a request is INVALID_ARGUMENT and changes nothing."""
    async with serving() as (kernel, client):
        assert await client.status(method, **fields) == "INVALID_ARGUMENT"
        assert kernel.orchestrator.agents.names() == []


@pytest.mark.parametrize("method", [CLAIM, RENEW, COMPLETE])
@on_loop
async def test_a_token_is_needed(method: str) -> None:
    """Without a token nothing is claimed, renewed or completed."""
    async with serving() as (_kernel, client):
        assert await client.as_("").status(method, worker_id="w1") == "UNAUTHENTICATED"


@on_loop
async def test_work_of_another_user() -> None:
    """A worker of one user neither gets nor touches the work of another; the same worker id is another worker."""
    async with serving() as (kernel, client):
        alice, bob = client.as_(ALICE), client.as_(BOB)
        await work(alice, worker_id="hers", announce=True)
        await run_of(alice)
        assert (await work(bob, worker_id="his", wait_seconds=0.05)).work_id == ""
        item = await work(alice, worker_id="hers")
        client.face._services["WorkerService"]._desk._returned_at = 0.0  # workers of an earlier server are back
        for worker_id in ("hers", "his"):
            for work_id in (item.work_id, "unknown.1"):  # in the same words as what does not exist
                assert not (await bob(RENEW, work_id=work_id, worker_id=worker_id)).held
                assert not (await bob(COMPLETE, work_id=work_id, worker_id=worker_id, success=True)).accepted
        assert (await work(bob, worker_id="hers", wait_seconds=0.05)).work_id == ""  # his own worker of that id
        assert not kernel.get_orchestration_state("run").terminated
        assert (await alice(COMPLETE, work_id=item.work_id, worker_id="hers", success=True)).accepted


@on_loop
async def test_what_a_worker_of_one_user_announces_is_not_offered_to_others() -> None:
    """Alice runs what her worker serves. For bob and the operator there is no such agent and no such service, in the
    same words as for one that does not exist, neither in lists nor in hints; a worker of the operator serves all."""
    async with serving() as (kernel, client):
        alice, bob = client.as_(ALICE), client.as_(BOB)
        await work(alice, agents=["write"], services=["mail"], announce=True)
        assert kernel.orchestrator.agents.is_offered("write", "alice")
        for stranger in (bob, client):
            ends = []
            for name in ("write", "none"):
                config = json.dumps({"name": "p", "agents": [{"name": name}]}).encode()
                calls: list[tuple[str, dict[str, Any]]] = [
                    ("EngineService/ExecuteAgent", {"agent_name": name}),
                    ("EngineService/ExecutePipeline", {"pipeline_config": config}),
                    ("SystemService/DispatchService", {"service": {"write": "mail"}.get(name, name)}),
                ]
                told = [await stranger.error(method, **fields) for method, fields in calls]
                ends.append([(code, words.replace("mail", name).replace(name, "NAME")) for code, words in told])
            assert ends[0] == ends[1]
            assert [code for code, _ in ends[0]] == ["NOT_FOUND", "INVALID_ARGUMENT", "NOT_FOUND"]
        listed = [list((await caller("SystemService/ListServices")).services) for caller in (alice, bob, client)]
        assert [[service.name for service in services] for services in listed] == [["mail"], [], ["mail"]]
        health = {"name": "mail", "status": 2}
        assert await bob.error("SystemService/UpdateServiceHealth", **health) == ("NOT_FOUND", "no service 'mail'")
        await work(client, worker_id="all", agents=["write"], services=["mail"], announce=True)
        assert kernel.orchestrator.agents.is_offered("write", "bob")
        assert [service.name for service in (await bob("SystemService/ListServices")).services] == ["mail"]


@on_loop
async def test_names_of_the_server_are_not_taken() -> None:
    """A worker cannot stand in for an agent or a service that the server's own program registered."""
    async with serving() as (kernel, client):

        async def own(envelope: Any) -> dict[str, Any]:
            return {}

        kernel.register_agent("write", own)
        kernel.register_service({"name": "mail"})
        kernel.register_handler("mail", own)
        assert await client.status(CLAIM, worker_id="w1", agents=["write"]) == "ALREADY_EXISTS"
        assert await client.status(CLAIM, worker_id="w1", services=["mail"]) == "ALREADY_EXISTS"


@on_loop
async def test_a_dispatch_without_an_envelope_belongs_to_its_caller() -> None:
    """A worker of alice's gets what alice dispatches with no envelope; a worker of bob's does not."""
    async with serving() as (_kernel, client):
        alice, bob = client.as_(ALICE), client.as_(BOB)
        serves = {"agents": (), "services": ["mail"]}
        await work(alice, **serves, announce=True)
        await work(bob, **serves, worker_id="w2", announce=True)
        call = asyncio.ensure_future(alice("SystemService/DispatchService", service="mail"))
        assert (await work(bob, **serves, worker_id="w2", wait_seconds=0.2)).work_id == ""
        item = await work(alice, **serves)
        assert item.service_name == "mail"
        await alice(COMPLETE, work_id=item.work_id, worker_id="w1", output=b"{}", success=True)
        assert (await call).success
