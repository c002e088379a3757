"""Everything that belongs to a user is denied to another one, on every route; the pid knows its owner."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lyra import Kernel
from lyra.server.http.routes import ENDPOINTS
from lyra.server.owners import OwnedPid, make_owned_pid, owner_of
from tests.server.http.support import Served, echo, in_loop, served
from tests.server.http.test_pipelines import TWO, stuck

# What stands in the path of an endpoint that concerns one user's things.
OWNED = ("pid", "session_id", "run_id", "interrupt_id", "trace_id", "webhook_id")
NOWHERE = "0123456789abcdef"  # an id that nothing has
BODIES: dict[str, dict[str, Any]] = {
    "runs.fork": {"at": 1},
    "processes.terminate": {},
    "processes.send": {"message": "x"},
    "interrupts.answer": {"text": "x"},
    "interrupts.cancel": {},
}


def kernel() -> Kernel:
    made = stuck()
    made.register(echo())
    return made


async def things_of_ada(parts: Served) -> dict[str, str]:
    """An id of each kind that is ada's."""
    parts.kernel.submit("hers", user_id="ada")
    interrupt = parts.kernel.create_interrupt("hers", "clarification", question="Which?")
    chat = (await parts.ada.post("/api/agents/echo/chat", json={"message": "x"})).json()
    run = (await parts.ada.post("/api/pipelines", json={"pipeline": TWO})).json()["run_id"]
    (trace,) = (await parts.ada.get("/api/traces")).json()["traces"]
    return {
        "pid": "hers",
        "session_id": chat["session_id"],
        "runs.run_id": chat["session_id"],
        "pipelines.run_id": run,
        "interrupt_id": interrupt.id,
        "trace_id": trace["trace_id"],
    }


@served(kernel=kernel())
async def test_another_user_gets_nothing_of_it(parts: Served) -> None:
    """404 on every route with an owner, in the same words as for what does not exist; afterwards all is as it was."""
    things = await things_of_ada(parts)
    tried = 0
    for endpoint in ENDPOINTS:
        names = [name for name in endpoint.parameters if name in OWNED]
        path = missing = endpoint.path
        for name in names:
            value = things.get(name) or things.get(f"{endpoint.group}.{name}")
            if value is None:
                continue
            path = path.replace(f"{{{name}}}", value)
            missing = missing.replace(f"{{{name}}}", NOWHERE)
        path = path.replace("{number}", "1").replace("{other}", things["pid"])
        missing = missing.replace("{number}", "1").replace("{other}", NOWHERE)
        if not names or "{" in path:
            continue
        tried += 1
        options: dict[str, Any] = {"json": BODIES.get(endpoint.name, {})} if endpoint.body is not None else {}
        refused = await parts.bob.request(endpoint.method, path, **options)
        assert refused.status_code == 404, (endpoint.name, refused.text)
        nothing = await parts.bob.request(endpoint.method, missing, **options)
        words = refused.text
        for value in things.values():
            words = words.replace(value, NOWHERE)
        assert (nothing.status_code, nothing.text) == (404, words), endpoint.name
    assert tried >= 18
    assert (await parts.ada.get("/api/processes/hers")).json()["state"] == "new"
    assert (await parts.ada.get(f"/api/sessions/{things['session_id']}")).json()["alive"]
    assert (await parts.ada.get(f"/api/interrupts/{things['interrupt_id']}")).json()["status"] == "pending"
    assert (await parts.ada.get(f"/api/pipelines/{things['pipelines.run_id']}")).json()["status"] == "running"
    for url, key in (("/api/processes", "processes"), ("/api/sessions", "sessions"), ("/api/pipelines", "runs")):
        assert (await parts.bob.get(url)).json()[key] == []
    assert (await parts.bob.get("/api/interrupts")).json()["interrupts"] == []
    status = (await parts.bob.get("/api/system")).json()
    assert (status["total_processes"], status["interrupts"]["pending"], status["resources"]["llm_calls"]) == (0, 0, 0)
    status = (await parts.ada.get("/api/system")).json()
    assert status["total_processes"] == (await parts.ada.get("/api/processes")).json()["total"] > 0
    assert status["interrupts"]["pending"] == 1


@served()
async def test_the_kernel_lists_what_was_started_for_a_user_as_theirs(parts: Served) -> None:
    """A conversation begun over HTTP is among the user's processes for gRPC and for the kernel, too."""
    session_id = (await parts.ada.post("/api/agents/echo/chat", json={"message": "hi"})).json()["session_id"]
    pid = make_owned_pid("chat", "ada", session_id)
    assert [block.pid for block in parts.kernel.list_processes(user_id="ada")] == [pid]
    assert parts.kernel.get_process(pid).user_id == "ada"
    assert parts.kernel.list_processes(user_id="bob") == []


@pytest.mark.parametrize("user", ["", "ada", "Ada Lovelace", "ünïcødé@example.org", "x" * 256, "a.b-c/d"])
def test_a_pid_carries_its_user(user: str) -> None:
    """It is read back, and is a pid that the kernel takes; a very long user is there as a hash."""
    pid = make_owned_pid("chat", user, "session-1")
    owned = OwnedPid.read(pid)
    assert owned is not None
    assert (owned.kind, owned.rest) == ("chat", "session-1")
    assert owned.belongs_to(user)
    assert not owned.belongs_to(f"{user}x")
    assert owned.user_id == user or len(user) > 72
    assert len(pid) <= 200


@pytest.mark.parametrize("pid", ["p-0123456789", "chat", "other-b1.x", "pipeline_x", "chat-b!.x", "chat-.", ""])
def test_other_pids_carry_none(pid: str) -> None:
    assert OwnedPid.read(pid) is None


async def spawns(ctx: Any) -> None:
    await ctx.spawn(spawned)
    await asyncio.Event().wait()


async def spawned(ctx: Any) -> None:
    await asyncio.Event().wait()


def test_a_process_belongs_to_the_user_of_the_one_that_started_it() -> None:
    async def main() -> None:
        async with Kernel() as kernel:
            top = await kernel.spawn(spawns, pid=make_owned_pid("run", "ada", "x"))
            while not (children := kernel.get_process(top.pid).child_pids):
                await asyncio.sleep(0)
            assert owner_of(kernel, children[0]) == "ada"
            assert owner_of(kernel, (await kernel.spawn(spawned)).pid) == ""

    in_loop(main())
