"""Every RPC of the contract: success, bad input, wrong owner, not found, no token."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc.aio
import pytest

from lyra.core import kernel_calls
from lyra.core.event import Event
from lyra.kernel.kernel import Kernel
from lyra.server.generated import engine_pb2 as pb
from lyra.server.grpc.face import SERVICES
from lyra.server.grpc.guard import ACTS, ERROR_KEY, READING
from tests.server.grpc.client import ALICE, BOB, OPERATOR, VIEWER, Client, on_loop, serving
from tests.server.grpc.world import RPCS, Rpc, furnish, with_question

BY_METHOD = pytest.mark.parametrize("rpc", RPCS, ids=lambda rpc: rpc.method)


def test_the_table_has_every_rpc_of_the_contract():
    """36 RPCs in five services, each with a row in the table of calls."""
    served = {f"{name}/{rpc.name}" for name in SERVICES for rpc in pb.DESCRIPTOR.services_by_name[name].methods}
    assert {rpc.method for rpc in RPCS} <= served
    assert served == kernel_calls.RPCS.keys(), (
        "an RPC of engine.proto and a row of lyra/core/kernel_calls.py are a pair"
    )
    own = {"KernelService": 11, "EngineService": 6, "OrchestrationService": 4, "CommBusService": 4, "SystemService": 11}
    assert {name: sum(method.startswith(f"{name}/") for method in served) for name in own} == own


async def _status(client: Client, rpc: Rpc, fields: Any) -> str:
    """The status of a call; of a subscription, that of its beginning."""
    if rpc.method == "CommBusService/Subscribe" and fields == rpc.good:
        call = client(rpc.method, **fields)
        first = asyncio.ensure_future(call.read())
        while not first.done():
            await client("CommBusService/Publish", event_type="e")
        call.cancel()
        return "OK" if first.result().event_type == "e" else "no event"
    if isinstance(fields, bytes):
        return await client.status(rpc.method, fields)
    return await client.status(rpc.method, **fields)


@BY_METHOD
def test_success(rpc: Rpc):
    """A good request of the owner is answered."""

    @on_loop
    async def body():
        async with serving() as (kernel, client):
            question = await furnish(kernel)
            assert await _status(client.as_(ALICE), rpc, with_question(rpc.good, question)) == "OK"

    body()


RUNS = ("EngineService/ExecutePipeline", "EngineService/ExecuteAgent")  # whose process ends after their answer


@pytest.mark.parametrize("rpc", [rpc for rpc in RPCS if rpc.method not in RUNS], ids=lambda rpc: rpc.method)
def test_an_answer_comes_when_the_store_has_the_change(rpc: Rpc, tmp_path):
    """No row is on its way when a call is answered."""

    @on_loop
    async def body():
        async with serving(Kernel(tmp_path / "server.db")) as (kernel, client):
            question = await furnish(kernel)
            await kernel.durable()
            fields = with_question(rpc.good, question)
            late: list[int] = []

            def look(_method: str, _code: str, _seconds: float) -> None:
                journal = kernel.core.journal
                assert journal is not None
                late.append(journal.seq - journal.durable_seq)

            client.face._guard._observe = look
            assert await _status(client.as_(ALICE), rpc, fields) == "OK"
            assert late[0] == 0

    body()


@BY_METHOD
def test_bad_input(rpc: Rpc):
    """A request that cannot be meant is INVALID_ARGUMENT, and so are bytes that are no message."""

    @on_loop
    async def body():
        async with serving() as (kernel, client):
            question = await furnish(kernel)
            for fields in (*rpc.bad, b"\xff\xff\xff"):
                status = await _status(client.as_(ALICE), rpc, with_question(fields, question))
                assert status == "INVALID_ARGUMENT", fields

    body()


BY_OTHERS = {"bound": {"token": BOB}, "named": {"token": OPERATOR, "user_id": "bob"}}


@pytest.mark.parametrize("other", BY_OTHERS)
@pytest.mark.parametrize("rpc", [rpc for rpc in RPCS if rpc.owned], ids=lambda rpc: rpc.method)
def test_wrong_owner(rpc: Rpc, other: str):
    """Another user is refused what is alice's, whether their token is bound or the operator's token names them: where
    the request names a thing of hers as if it did not exist, in the same words, and with the same error; where it names
    her, or chooses a pid of hers for something new, as PERMISSION_DENIED."""

    @on_loop
    async def body():
        async with serving() as (kernel, client):
            question = await furnish(kernel)
            kernel.submit("new", user_id="alice")
            if rpc.method == "EngineService/ExecutePipeline":
                assert await client.as_(ALICE).status(rpc.method, **rpc.good) == "OK"
            fields = with_question(rpc.good, question)
            bob = client.as_(**BY_OTHERS[other])
            if rpc.missing is None or rpc.method == "EngineService/ExecuteAgent":
                if other == "bound" or "user_id" not in str(fields):
                    assert await _status(bob, rpc, fields) == "PERMISSION_DENIED"
                return
            foreign, missing = await _end(bob, rpc, fields), await _end(bob, rpc, _renamed(rpc, fields))
            if rpc.method in SHARED:
                assert foreign[0] == "PERMISSION_DENIED"
            else:
                assert foreign[0] == "NOT_FOUND"
                assert [part.replace(NOWHERE, "") for part in missing] == [
                    part.replace(_named(rpc, fields), "") for part in foreign
                ]

    body()


SHARED = ("SystemService/UnregisterService", "SystemService/UpdateServiceHealth")  # every user sees every service
NOWHERE = "no-such-name"


def _named(rpc: Rpc, fields: dict[str, Any]) -> str:
    """The name of alice's thing in a request."""
    if "envelope" in fields and isinstance(fields["envelope"], dict):
        return str(fields["envelope"]["envelope_id"])
    return str(next(fields[key] for key in ("interrupt_id", "pid", "process_id", "name") if key in fields))


def _renamed(rpc: Rpc, fields: dict[str, Any]) -> dict[str, Any]:
    """The request with a name that nothing has in the place of the one of alice's thing."""
    if "envelope" in fields and isinstance(fields["envelope"], dict):
        return {**fields, "envelope": {**fields["envelope"], "envelope_id": NOWHERE}}
    return {key: NOWHERE if value == _named(rpc, fields) else value for key, value in fields.items()}


async def _end(client: Client, rpc: Rpc, fields: dict[str, Any]) -> tuple[str, str, str]:
    """How a call ends: the status, the sentence, and the error for clients of Lyra's."""
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await client(rpc.method, **fields)
    trailing = dict(raised.value.trailing_metadata() or ())
    return raised.value.code().name, raised.value.details() or "", str(trailing.get(ERROR_KEY))


@pytest.mark.parametrize("rpc", [rpc for rpc in RPCS if rpc.missing is not None], ids=lambda rpc: rpc.method)
def test_not_found(rpc: Rpc):
    """What does not exist is NOT_FOUND, for its would-be owner and for the operator."""

    @on_loop
    async def body():
        async with serving() as (kernel, client):
            await furnish(kernel)
            for caller in (client, client.as_(ALICE)):
                assert await _status(caller, rpc, rpc.missing) == "NOT_FOUND"

    body()


@BY_METHOD
def test_no_token(rpc: Rpc):
    """Without a token, and with one that is not known, every call is UNAUTHENTICATED."""

    @on_loop
    async def body():
        async with serving() as (_kernel, client):
            for token in ("", "wrong-token-0123456789"):
                assert await client.as_(token).status(rpc.method, **rpc.good) == "UNAUTHENTICATED"

    body()


def test_the_calls_that_only_read_are_of_the_contract():
    """A viewer's table names no call that does not exist."""
    served = {f"{name}/{rpc.name}" for name in SERVICES for rpc in pb.DESCRIPTOR.services_by_name[name].methods}
    assert served > READING
    assert {
        "CommBusService/Subscribe",
        "EngineService/CheckBounds",
        "KernelService/GetProcess",
        "KernelService/GetProcessCounts",
        "KernelService/ListProcesses",
        "OrchestrationService/GetSessionState",
        "SystemService/GetRequestStatus",
        "SystemService/GetSystemStatus",
        "SystemService/ListInterrupts",
        "SystemService/ListServices",
    } == READING, "a call has the mark `reads` in core/kernel_calls.py only if it changes nothing: say so here, too"


@on_loop
async def test_a_viewer_makes_the_calls_that_only_read_and_no_other():
    """Everything that may change something is PERMISSION_DENIED, also a call that is new and in no table."""
    async with serving() as (kernel, client):
        question = await furnish(kernel)
        before = len(kernel.lifecycle.state.entries)
        for rpc in RPCS:
            if rpc.method == "CommBusService/Subscribe":
                continue
            status = await client.as_(VIEWER).status(rpc.method, **with_question(rpc.good, question))
            assert (status == "PERMISSION_DENIED") is (rpc.method not in READING), (rpc.method, status)
        assert len(kernel.lifecycle.state.entries) == before


@on_loop
async def test_what_people_do_is_told_with_their_name_and_the_outcome():
    """To end a process and to answer or cancel a question are acts, also where they are refused; to read is none."""
    async with serving() as (kernel, client):
        question = await furnish(kernel)
        acts: list[Event] = []
        kernel.on_event(acts.append, kinds=("person.acted",))
        for token in (VIEWER, BOB, ALICE):
            for rpc in reversed(RPCS):  # the end of its process takes the question with it
                if rpc.method in ACTS or rpc.method == "KernelService/GetProcess":
                    await client.as_(token).status(rpc.method, **with_question(rpc.good, question))
        told = [(act.data["person"], act.data["act"], act.data["outcome"]) for act in acts]
        assert len(told) == 3 * len(ACTS)
        assert {outcome for person, _, outcome in told if person != "alice"} == {"denied"}
        assert ("alice", "KernelService/TerminateProcess", "ok") in told
        assert ("alice", "SystemService/CancelInterrupt", "ok") in told
        assert {act.data["target"] for act in acts} == {"waits", question}
