"""KernelService: processes, quotas and rates over the wire. `test_every_rpc` has what all RPCs share."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lyra.server.generated import engine_pb2 as pb
from lyra.server.owners import KINDS, make_owned_pid
from tests.server.grpc.client import ALICE, BOB, Client, on_loop, serving


@on_loop
async def test_a_process_is_created_for_its_user_with_default_quota():
    """CreateProcess gives the new entry; quota fields of 0 take the default."""
    async with serving() as (kernel, client):
        quota = pb.ResourceQuota(max_llm_calls=7)
        block = await client("KernelService/CreateProcess", pid="p1", user_id="alice", quota=quota)
        assert block.state == pb.PROCESS_STATE_NEW
        assert block.priority == pb.SCHEDULING_PRIORITY_NORMAL
        assert (block.quota.max_llm_calls, block.quota.max_tool_calls) == (7, 200)
        assert kernel.get_process("p1").user_id == "alice"


@on_loop
async def test_user_and_session_come_from_the_request_or_the_metadata():
    """What the request names wins; else the metadata `user_id` and `session_id` count; without a user there is none."""
    async with serving() as (_kernel, client):
        named = Client(client.channel, user_id="carol", session_id="s1")
        block = await named("KernelService/CreateProcess", pid="p1")
        assert (block.user_id, block.session_id) == ("carol", "s1")
        block = await named("KernelService/CreateProcess", pid="p2", user_id="dora", session_id="s2")
        assert (block.user_id, block.session_id) == ("dora", "s2")
        assert await client.status("KernelService/CreateProcess", pid="p3") == "UNAUTHENTICATED"


@on_loop
async def test_a_bound_token_acts_for_its_user_alone():
    """A token of alice's is alice without saying so, and PERMISSION_DENIED for another user, however that is named."""
    async with serving() as (_kernel, client):
        alice = client.as_(ALICE)
        assert (await alice("KernelService/CreateProcess", pid="p1")).user_id == "alice"
        assert await alice.status("KernelService/CreateProcess", pid="p2", user_id="bob") == "PERMISSION_DENIED"
        as_bob = client.as_(ALICE, user_id="bob")
        assert await as_bob.status("KernelService/GetProcess", pid="p1") == "PERMISSION_DENIED"
        assert await alice.status("KernelService/ListProcesses", user_id="bob") == "PERMISSION_DENIED"
        assert await alice.status("KernelService/CheckRateLimit", user_id="bob") == "PERMISSION_DENIED"


@on_loop
async def test_a_pid_that_carries_another_user_is_refused():
    """Pids of chats, runs and webhooks carry their user: with such a pid of bob's, alice can neither take the place of
    a conversation that bob has not begun yet, nor put a run among his."""
    config = json.dumps({"name": "tea", "agents": [{"name": "brew"}]}).encode()
    async with serving() as (kernel, client):
        alice = client.as_(ALICE)
        for kind in sorted(KINDS):
            pid = make_owned_pid(kind, "bob", "s1")
            assert await alice.status("KernelService/CreateProcess", pid=pid) == "PERMISSION_DENIED"
            session = {"process_id": pid, "pipeline_config": config}
            assert await alice.status("OrchestrationService/InitializeSession", **session) == "PERMISSION_DENIED"
            run = {"thread_id": pid, "pipeline_config": config}
            assert await alice.status("EngineService/ExecutePipeline", **run) == "PERMISSION_DENIED"
        assert not kernel.list_processes()
        block = await alice("KernelService/CreateProcess", pid=make_owned_pid("run", "alice", "s1"))
        assert block.user_id == "alice"


@on_loop
async def test_a_process_lives_through_its_states():
    """Created, scheduled, taken, moved, ended: each call gives the block as it then is."""
    async with serving() as (_kernel, client):
        await client("KernelService/CreateProcess", pid="p1", user_id="alice")
        assert (await client("KernelService/ScheduleProcess", pid="p1")).state == pb.PROCESS_STATE_READY
        taken = await client("KernelService/GetNextRunnable")
        assert (taken.pid, taken.state) == ("p1", pb.PROCESS_STATE_RUNNING)
        assert taken.started_at_ms >= taken.created_at_ms > 0
        blocked = await client(
            "KernelService/TransitionState", pid="p1", new_state=pb.PROCESS_STATE_BLOCKED, reason="disk"
        )
        assert b'"disk"' in blocked.interrupt_data
        ended = await client("KernelService/TerminateProcess", pid="p1", reason="done")
        assert ended.state == pb.PROCESS_STATE_TERMINATED
        assert ended.completed_at_ms > 0


@on_loop
async def test_the_refusals_of_the_lifecycle_have_their_codes():
    async with serving() as (_kernel, client):
        assert await client.error("KernelService/GetNextRunnable") == ("NOT_FOUND", "no runnable process")
        assert await client.error("KernelService/CreateProcess") == ("INVALID_ARGUMENT", "pid is required")
        await client("KernelService/CreateProcess", pid="p1", user_id="alice", quota={"max_llm_calls": 1})
        moved = await client.status("KernelService/TransitionState", pid="p1", new_state=pb.PROCESS_STATE_WAITING)
        assert moved == "FAILED_PRECONDITION"
        await client("KernelService/RecordUsage", pid="p1", llm_calls=2)
        assert await client.status("KernelService/ScheduleProcess", pid="p1") == "RESOURCE_EXHAUSTED"
        checked = await client("KernelService/CheckQuota", pid="p1")
        assert (checked.within_bounds, checked.exceeded_reason) == (False, "max_llm_calls_exceeded")
        assert checked.usage.llm_calls == 2


@on_loop
async def test_a_running_process_is_ended_by_force_alone():
    async with serving() as (_kernel, client):
        await client("KernelService/CreateProcess", pid="p1", user_id="alice")
        await client("KernelService/ScheduleProcess", pid="p1")
        await client("KernelService/GetNextRunnable")
        assert await client.status("KernelService/TerminateProcess", pid="p1") == "FAILED_PRECONDITION"
        assert (await client("KernelService/TerminateProcess", pid="p1", force=True)).state == 6


@on_loop
async def test_a_second_create_gives_what_is_there():
    """A pid that exists gives its process unchanged to its owner, and nothing to another user."""
    async with serving() as (_kernel, client):
        alice, bob = client.as_(ALICE), client.as_(BOB)
        await alice("KernelService/CreateProcess", pid="p1", priority=pb.SCHEDULING_PRIORITY_HIGH)
        again = await alice("KernelService/CreateProcess", pid="p1", priority=pb.SCHEDULING_PRIORITY_LOW)
        assert again.priority == pb.SCHEDULING_PRIORITY_HIGH
        assert await bob.status("KernelService/CreateProcess", pid="p1") == "PERMISSION_DENIED"


@on_loop
async def test_a_user_takes_only_their_own_processes():
    """GetNextRunnable gives a user the next of theirs, past those of others; the operator gets the next of all."""
    async with serving() as (_kernel, client):
        for pid, user in (("a", "alice"), ("b", "bob"), ("c", "carol")):
            await client("KernelService/CreateProcess", pid=pid, user_id=user)
            await client("KernelService/ScheduleProcess", pid=pid)
        assert (await client.as_(BOB)("KernelService/GetNextRunnable")).pid == "b"
        assert await client.as_(BOB).status("KernelService/GetNextRunnable") == "NOT_FOUND"
        assert (await client("KernelService/GetNextRunnable")).pid == "a"


@on_loop
async def test_lists_and_counts_show_a_user_their_own():
    async with serving() as (_kernel, client):
        for pid, user in (("a", "alice"), ("b", "bob"), ("c", "bob")):
            await client("KernelService/CreateProcess", pid=pid, user_id=user)
        await client("KernelService/ScheduleProcess", pid="c")
        assert _pids(await client("KernelService/ListProcesses")) == ["a", "b", "c"]
        assert _pids(await client("KernelService/ListProcesses", user_id="bob")) == ["b", "c"]
        assert _pids(await client.as_(BOB)("KernelService/ListProcesses", state=pb.PROCESS_STATE_READY)) == ["c"]
        counts = await client("KernelService/GetProcessCounts")
        assert (counts.total, counts.queue_depth, counts.counts_by_state["new"]) == (3, 1, 2)
        counts = await client.as_(ALICE)("KernelService/GetProcessCounts")
        assert (counts.total, counts.queue_depth, counts.counts_by_state["new"]) == (1, 0, 1)


def _pids(response: Any) -> list[str]:
    return [block.pid for block in response.processes]


@on_loop
async def test_rates_are_checked_and_counted():
    """`record` counts the request; without it nothing changes. The refusal says how long to wait."""
    async with serving() as (kernel, client):
        kernel.rate_limiter.set_default_config({"requests_per_minute": 2, "burst_size": 100})
        for _ in range(3):
            assert (await client("KernelService/CheckRateLimit", user_id="alice", endpoint="e")).allowed
        for _ in range(2):
            assert (await client("KernelService/CheckRateLimit", user_id="alice", endpoint="e", record=True)).allowed
        refused = await client("KernelService/CheckRateLimit", user_id="alice", endpoint="e", record=True)
        assert (refused.allowed, refused.limit_type, refused.current_count) == (False, "minute", 2)
        assert refused.retry_after_seconds > 0


@pytest.mark.parametrize(
    ("method", "fields"),
    [
        ("KernelService/CreateProcess", {"pid": "p", "user_id": "a", "priority": 99}),
        ("KernelService/CreateProcess", {"pid": "p", "user_id": "a", "quota": {"max_llm_calls": -1}}),
        ("KernelService/CreateProcess", {"pid": "~p", "user_id": "a"}),
        ("KernelService/CreateProcess", {"pid": "p" * 5_000, "user_id": "a"}),
        ("KernelService/TransitionState", {"pid": "known"}),
        ("KernelService/TransitionState", {"pid": "known", "new_state": 42}),
        ("KernelService/RecordUsage", {"pid": "known", "tokens_in": -5}),
        ("KernelService/ListProcesses", {"state": 77}),
        ("KernelService/CheckRateLimit", {"user_id": "a" * 1_000}),
    ],
)
def test_values_that_do_not_fit_are_invalid_arguments(method: str, fields: dict[str, Any]):
    @on_loop
    async def body():
        async with serving() as (_kernel, client):
            await client("KernelService/CreateProcess", pid="known", user_id="alice")
            assert await client.status(method, **fields) == "INVALID_ARGUMENT"

    body()


@on_loop
async def test_usage_beyond_32_bits_is_shown_as_the_largest_number():
    """A counter that outgrew its field is clamped; the call does not fail."""
    async with serving() as (kernel, client):
        await client("KernelService/CreateProcess", pid="p1", user_id="alice")
        kernel.record_usage("p1", tokens_in=2**40)
        usage = await client("KernelService/RecordUsage", pid="p1", tokens_in=1)
        assert usage.tokens_in == 2**31 - 1
