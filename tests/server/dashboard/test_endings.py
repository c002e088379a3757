"""Ends and dead ends: how a process that has ended is shown, and what a wrong address leads to."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lyra.kernel import Child
from lyra.server.dashboard.sentences import sentence_of
from lyra.server.dashboard.words import STATES, end_state
from tests.agents.support import model_called
from tests.server.dashboard.support import Served, elements, logged_in, served, words
from tests.server.http.support import echo


async def waits(ctx: Any) -> None:
    await ctx.receive()


async def crashes(ctx: Any) -> None:
    await ctx.receive()
    raise RuntimeError("the model is overloaded")


@pytest.mark.parametrize(
    ("reason", "colour", "word"),
    [
        ("normal", "done", "done"),
        ("shutdown", "done", "stopped"),
        ("linked", "done", "ended with another"),
        ("error", "failed", "crashed"),
        ("no budget", "failed", "no budget"),
    ],
)
def test_only_a_failure_looks_like_one(reason: str, colour: str, word: str) -> None:
    """A process that was stopped in order has not failed; the words are those of people."""
    (row,) = [row for row in elements(end_state(reason), "span") if row.get("class") == "state"]
    assert row["data-state"] == colour
    assert words(end_state(reason)).endswith(word)


@served(waits, crashes)
async def test_runs_that_were_stopped_are_not_told_as_failed(parts: Served) -> None:
    stopped = parts.kernel.spawn(waits, name="was stopped")
    failed = parts.kernel.spawn(crashes, name="went wrong")
    idle = parts.kernel.spawn(waits, name="is idle")
    await stopped.kill("shutdown")
    await parts.kernel.send(failed.pid, "go")
    await failed.wait()
    async with logged_in(parts) as browser:
        text = words(await browser.page("/runs"))
        for name, state in (("was stopped", "■ stopped"), ("went wrong", "✕ crashed"), ("is idle", "● idle")):
            assert f"{name} program {state}" in text
        assert "✕ crashed" in words(await browser.page(f"/processes/{failed.pid}"))
        assert "■ stopped" in words(await browser.page(f"/processes/{stopped.pid}"))
    assert idle.alive


async def leaves(ctx: Any) -> None:
    ctx.exit("no budget")


@served(waits, leaves)
async def test_a_process_that_is_ended_for_a_reason_has_not_failed(parts: Served) -> None:
    """`TerminateProcess` with any reason: no page tells of a crash, and the header counts none. A program that leaves
    for a reason of its own has failed."""
    kernel = parts.kernel
    ended = kernel.spawn(waits, name="ended")
    entry = kernel.submit(pid="of-a-worker", request_id="r", user_id="ada", session_id="s")
    async with logged_in(parts) as browser:
        await browser.page("/")
        await kernel.terminate(ended.pid, "budget review", force=True)
        await ended.wait()
        await kernel.terminate(entry.pid, "not needed any more", force=True)
        await kernel.durable()
        assert "ended program ■ budget review" in words(await browser.page("/runs"))
        assert "crash" not in words(await browser.page(f"/processes/{ended.pid}")).replace("outlives a crash", "")
        assert "0 failed/min" in words(await browser.page("/figures"))
        await kernel.spawn(leaves, name="left").wait()
        assert "left program ✕ no budget" in words(await browser.page("/runs"))
        assert "1 failed/min" in words(await browser.page("/figures"))
        tree = (await browser.call("GET", "/api/tree?ended=true")).json()
        rows = [dict(zip(tree["columns"], row, strict=True)) for row in tree["rows"]]
        assert [row["state"] for row in rows if row["pid"] == ended.pid] == ["ended"]


def test_an_end_on_purpose_is_told_as_one() -> None:
    """The sentence about an event says what was done, and why; work that was cut off by it has not failed either."""
    ended = {"reason": "budget review", "error": None, "stopped": True}
    assert sentence_of("process.terminated", ended) == ("done", "was stopped: budget review")
    assert sentence_of("process.terminated", {"reason": "no budget"}) == ("failed", "crashed: no budget")
    for kind, data in (
        ("agent.answered", {"status": "cancelled"}),
        ("model.called", model_called(status="cancelled").to_data()),
        ("tool.called", {"status": "error", "error": "cancelled", "tool": "add"}),
    ):
        told = sentence_of(kind, data)
        assert told is not None, kind
        assert told.state == "done", kind


@served(waits, crashes)
async def test_the_page_of_a_crashed_process_leads_to_the_one_in_its_place(parts: Served) -> None:
    await parts.kernel.supervise([Child("s", crashes, name="style")], name="reviewers")
    first = next(row.pid for row in parts.kernel.processes.values() if row.name == "style")
    await parts.kernel.send(first, "go")
    while not (second := [row.pid for row in parts.kernel.processes.values() if row.name == "style" and row.alive]):
        await asyncio.sleep(0.01)
    while second == [first]:
        await asyncio.sleep(0.01)
        second = [row.pid for row in parts.kernel.processes.values() if row.name == "style" and row.alive]
    async with logged_in(parts) as browser:
        page = await browser.page(f"/processes/{first}")
        assert f"Started again as {second[0]}" in words(page)
        assert f"../processes/{second[0]}" in [row.get("href") for row in elements(page, "a")]
        assert "Started again" not in words(await browser.page(f"/processes/{second[0]}"))


@served()
async def test_a_wrong_address_leads_on_to_pages(parts: Served) -> None:
    """With the navigation and the list that the page would be of; no words for programmers."""
    async with logged_in(parts) as browser:
        for path, target in (
            ("/processes/nope", "../processes"),
            ("/traces/nope", "../traces"),
            ("/nodes/nope", "../nodes"),
            ("/chat/nope", "../chat"),
            ("/pipelines/nope", "../pipelines"),
            ("/no/such/page", "../../"),
            ("/nope", "./"),
        ):
            page = await browser.page(path, status=404)
            links = [row.get("href") for row in elements(page, "a")]
            assert links[-1] == target, path
            assert len(links) > 10, path
            assert "openapi" not in page, path
            assert "list_processes" not in page, path


# ---------------------------------------------------------------- pages of a server on which nothing has happened
_EMPTY = ("/", "/processes", "/runs", "/traces", "/costs")


@served(waits)
async def test_an_empty_page_says_how_this_server_gets_something(parts: Served) -> None:
    """Without an agent: how it is started with some. No command that fills another server alone."""
    async with logged_in(parts) as browser:
        for path in _EMPTY:
            text = words(await browser.page(path))
            assert "lyra serve --load FILE.py" in text, path
            assert "kernel.register_agent" in text, path
        pipelines = words(await browser.page("/pipelines"))
        assert f"http://{parts.address}/api/pipelines" in pipelines
        assert "Authorization: Bearer" in pipelines


@served(echo())
async def test_an_empty_page_leads_to_the_agents(parts: Served) -> None:
    """Where agents are known, the first step is to talk to one; then the page is not empty any more."""
    async with logged_in(parts) as browser:
        for path in _EMPTY:
            buttons = [row for row in elements(await browser.page(path), "a") if row.get("class") == "button"]
            assert "./chat" in [row["href"] for row in buttons], path
        await parts.operator.post("/api/agents/echo/chat", json={"message": "hello"})
        for path in ("/", "/processes", "/runs", "/traces"):
            assert "Talk to an agent" not in await browser.page(path), path


def test_a_shape_stands_for_one_colour() -> None:
    """States are told apart without colour: no shape is that of two of them, and each of the five has one."""
    colours: dict[str, set[str]] = {}
    for look in STATES.values():
        colours.setdefault(look.shape, set()).add(look.colour)
    assert {shape: names for shape, names in colours.items() if len(names) > 1} == {}
    assert set.union(*colours.values()) == {"running", "waiting", "needs-you", "failed", "done"}
