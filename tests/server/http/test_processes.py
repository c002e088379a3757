"""Processes over HTTP: listed by page, state and user, shown, ended, sent messages; each only to its owner."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from lyra.core.effect import Effect
from lyra.kernel import Kernel
from tests.kernel.conftest import Crash, settle
from tests.server.http.support import Served, echo, in_loop, served, serving


async def collect(ctx: Any) -> Any:
    return [await ctx.receive(), await ctx.receive()]


async def parent(ctx: Any) -> Any:
    child = await ctx.spawn(collect)
    return await child.wait()


@served()
async def test_pages_hold_every_process_once_and_only_the_callers(parts: Served) -> None:
    """A page says where the next begins; a user's pages have the user's processes alone."""
    for number in range(25):
        parts.kernel.submit(f"job{number}", user_id="ada" if number % 5 else "bob")
    seen: list[str] = []
    query: dict[str, Any] = {"limit": 7}
    while True:
        page = (await parts.ada.get("/api/processes", params=query)).json()
        assert page["total"] == 20
        seen += [process["pid"] for process in page["processes"]]
        if page["next"] is None:
            break
        query["after"] = page["next"]
    assert seen == [f"job{number}" for number in range(25) if number % 5]
    assert (await parts.operator.get("/api/processes")).json()["total"] == 25
    of_bob = await parts.operator.get("/api/processes", headers={"x-user-id": "bob"})
    assert of_bob.json()["total"] == 5


@served()
async def test_processes_are_listed_by_state(parts: Served) -> None:
    parts.kernel.submit("a", user_id="ada")
    parts.kernel.submit("b", user_id="ada")
    parts.kernel.schedule("b")
    page = (await parts.ada.get("/api/processes", params={"state": "ready"})).json()
    assert [process["pid"] for process in page["processes"]] == ["b"]
    wrong = await parts.ada.get("/api/processes", params={"state": "sleepy"})
    assert wrong.status_code == 400
    assert wrong.json()["error"]["code"] == "config"
    assert (await parts.ada.get("/api/processes", params={"after": "x"})).status_code == 400
    assert (await parts.ada.get("/api/processes", params={"limit": "0"})).status_code == 400


@served()
async def test_a_message_reaches_a_process_and_its_tree_is_shown(parts: Served) -> None:
    """What is sent over HTTP is in the mailbox; a process shows those that it started."""
    handle = parts.kernel.spawn(parent, pid="top")
    await handle
    tree = (await parts.operator.get("/api/processes/top/tree")).json()
    (child,) = tree["children"]
    for message in ("one", {"two": [2]}):
        sent = await parts.operator.post(f"/api/processes/{child['pid']}/messages", json={"message": message})
        assert sent.status_code == 202
    assert (await handle.wait()).result.result == ["one", {"two": [2]}]
    shown = (await parts.operator.get("/api/processes/top")).json()
    assert (shown["state"], shown["termination_reason"]) == ("terminated", "normal")


@served()
async def test_a_process_is_ended(parts: Served) -> None:
    """DELETE and terminate end it; without `force` one that runs goes on."""
    for pid in ("a", "b"):
        parts.kernel.submit(pid, user_id="ada")
        parts.kernel.schedule(pid)
    assert parts.kernel.get_next_runnable() is not None
    gentle = await parts.ada.post("/api/processes/a/terminate", json={"force": False})
    assert gentle.status_code == 409
    ended = await parts.ada.post("/api/processes/a/terminate", json={"reason": "enough"})
    assert (ended.json()["state"], ended.json()["termination_reason"]) == ("terminated", "enough")
    assert (await parts.ada.delete("/api/processes/b")).json()["state"] == "terminated"


@served(echo())
async def test_an_escaped_slash_is_part_of_a_pid(parts: Served) -> None:
    parts.kernel.submit("a/b c", user_id="ada")
    assert (await parts.ada.get("/api/processes/a%2Fb%20c")).json()["pid"] == "a/b c"


def test_a_process_shows_how_often_its_call_was_cut_off(tmp_path: Path) -> None:
    """After two crashes inside a call `attempts` says 2, in the list and alone; once the call is over, nothing."""
    store, is_open = str(tmp_path / "run.db"), asyncio.Event()

    async def wait() -> str:
        await is_open.wait()
        return "done"

    async def waits(ctx: Any) -> Any:
        await ctx.do(Effect(wait, name="wait", idempotent=True))
        return await ctx.receive()

    async def main() -> None:
        for _ in range(2):
            async with Crash(Kernel(store, programs=[waits])) as kernel:
                kernel.spawn(waits, pid="waits")
                await settle(kernel)
        async with serving(kernel=Kernel(store, programs=[waits])) as parts:
            await settle(parts.kernel)
            (listed,) = (await parts.operator.get("/api/processes")).json()["processes"]
            assert listed["attempts"] == {"0": 2}
            assert (await parts.operator.get("/api/processes/waits")).json()["attempts"] == {"0": 2}
            is_open.set()
            await settle(parts.kernel)
            assert (await parts.operator.get("/api/processes/waits")).json()["attempts"] == {}

    in_loop(main())
