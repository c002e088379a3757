"""The pages of runs: the list, a run as it was at a step, the fork form and two runs side by side."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from html import escape
from pathlib import Path
from typing import Any

from lyra import Agent
from lyra.models.sim import SimProvider
from lyra.server.owners import make_owned_pid
from tests.server.dashboard.support import ADA, BOB, OPERATOR, VIEWER, Browser, Served, logged_in, serving
from tests.server.http.support import in_loop
from tests.server.http.test_timelines import guide, made

HOSTILE = "<img src=x onerror=alert(1)> \"'&<script>alert(2)</script>"
RUN = make_owned_pid("chat", "ada", "s")


def with_run(test: Callable[[Served, Browser], Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
    """A test with a server on a store, a run of ada's, and the operator in a browser."""

    def run(tmp_path: Path) -> None:
        async def main() -> None:
            made.clear()
            async with serving(guide(), store=str(tmp_path / "run.db")) as parts:
                body = {"message": "weather in Oslo", "session_id": "s"}
                await parts.ada.post("/api/agents/echo/chat", json=body)
                async with logged_in(parts, OPERATOR) as browser:
                    await test(parts, browser)

        in_loop(main())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@with_run
async def test_the_list_has_the_runs_by_kind_and_text(parts: Served, browser: Browser) -> None:
    page = await browser.page("/runs")
    assert f'runs/{RUN}"' in page
    assert "agent" in page
    assert "idle" in page
    assert RUN in await browser.page("/runs?kind=agent&text=ECHO")
    assert f'runs/{RUN}"' not in await browser.page("/runs?kind=program")
    assert "No run fits" in await browser.page("/runs?text=nowhere")


@with_run
async def test_a_run_is_shown_as_it_was_at_a_step(parts: Served, browser: Browser) -> None:
    """Complete without a script: the lanes, the handle in a form, the conversation, budget and tree of then."""
    page = await browser.page(f"/runs/{RUN}?at=4")
    assert 'type="range"' in page
    assert 'value="4"' in page
    assert "After step 4" in page
    assert "sunny in Oslo" in page
    assert "It is sunny in Oslo." not in _region(page, "moment").split("<ol")[0]
    assert 'data-state="running"' in page
    assert page.count('class="mark ') == 6
    last = await browser.page(f"/runs/{RUN}")
    assert "After step 6" in last
    assert "It is sunny in Oslo." in _region(last, "moment")
    assert "Before the first step" in await browser.page(f"/runs/{RUN}?at=0")


def _region(page: str, name: str) -> str:
    match = re.search(rf"<!--region {name}-->(.*?)<!--end {name}-->", page, re.DOTALL)
    assert match is not None
    return match[1]


@with_run
async def test_a_fork_is_made_by_the_form_and_shown_beside_the_run(parts: Served, browser: Browser) -> None:
    """The first difference is marked; the tool was not called again."""
    fields = {"at": "5", "what": "reply", "text": "It rains."}
    answer = await browser.post(f"/acts/runs/{RUN}/fork", fields)
    assert answer.status_code == 303
    address = answer.headers["location"]
    assert f"other={RUN}-fork-1" in address
    async with asyncio.timeout(30):
        while "Step 5 is the first that differs." not in (
            page := await browser.page(f"/runs/{RUN}?at=5&other={RUN}-fork-1")
        ):
            await asyncio.sleep(0.02)
    assert 'class="first-difference"' in page
    assert "It rains." in page
    assert made == ["Oslo"]
    fork = await browser.page(f"/runs/{RUN}-fork-1")
    assert "Fork of" in fork
    assert "recorded" in fork
    assert f"fork of {RUN} at step 5" in await browser.page("/runs")


@with_run
async def test_every_change_of_the_form_works(parts: Served, browser: Browser) -> None:
    """Another message, model, system prompt, result, or none; without a text it is refused."""
    for what, text, at in (
        ("prompt", "hello", "5"),
        ("model", "sim/echo", "5"),
        ("system", "short", "5"),
        ("result", '"snow"', "4"),
        ("none", "", "5"),
    ):
        answer = await browser.post(f"/acts/runs/{RUN}/fork", {"at": at, "what": what, "text": text})
        assert answer.status_code == 303, answer.text
    for fields in (
        {"at": "5", "what": "reply", "text": ""},
        {"at": "4", "what": "reply", "text": "x"},
        {"at": "x", "what": "none"},
        {"at": "5", "what": "nonsense", "text": "x"},
    ):
        assert (await browser.post(f"/acts/runs/{RUN}/fork", fields)).status_code == 400


@with_run
async def test_only_the_owner_and_those_who_may_change_fork(parts: Served, browser: Browser) -> None:
    """Another user sees nothing; a viewer sees the run, with the form disabled, and is refused."""
    fields = {"at": "5", "what": "reply", "text": "x"}
    async with logged_in(parts, BOB) as bob:
        await bob.page(f"/runs/{RUN}", status=404)
        assert RUN not in await bob.page("/runs")
        assert (await bob.post(f"/acts/runs/{RUN}/fork", fields)).status_code == 404
    async with logged_in(parts, VIEWER) as viewer:
        assert "<fieldset disabled" in await viewer.page(f"/runs/{RUN}?at=5")
        assert (await viewer.post(f"/acts/runs/{RUN}/fork", fields)).status_code == 403
    async with logged_in(parts, ADA) as ada:
        assert (await ada.post(f"/acts/runs/{RUN}/fork", fields)).status_code == 403  # a reply needs an operator
        assert 'value="reply"' not in await ada.page(f"/runs/{RUN}?at=5")
        own = {"at": "5", "what": "prompt", "text": "hello"}
        assert (await ada.post(f"/acts/runs/{RUN}/fork", own)).status_code == 303
    forged = await browser.http.post(f"/acts/runs/{RUN}/fork", data=fields, headers={"sec-fetch-site": "same-origin"})
    assert forged.status_code == 403
    assert f"{RUN}-fork-2" not in parts.kernel.processes


def test_hostile_text_is_shown_as_text(tmp_path: Path) -> None:
    """Of messages, answers, errors and names."""

    async def main() -> None:
        agent = Agent("echo", model=SimProvider(script={"replies": [{"text": HOSTILE}]}))
        async with serving(agent, store=str(tmp_path / "run.db")) as parts, logged_in(parts) as browser:
            await parts.operator.post("/api/agents/echo/chat", json={"message": HOSTILE, "session_id": "s"})
            pid = make_owned_pid("chat", "", "s")
            for at in range(5):
                page = await browser.page(f"/runs/{pid}?at={at}&other={pid}")
                assert "<img" not in page
                assert "<script>alert" not in page
            assert escape(HOSTILE) in page

    in_loop(main())


@with_run
async def test_a_process_called_main_is_forked_too(parts: Served, browser: Browser) -> None:
    """The main process of a Vega run has this pid in the run's own journal; here it is a pid like any other."""
    agent = await parts.kernel.spawn(guide(), pid="main")
    await agent.send("weather in Oslo")
    await parts.kernel.durable()
    assert "Fork from here" in await browser.page("/runs/main?at=5")
    assert (await browser.post("/acts/runs/main/fork", {"at": "5", "what": "none"})).status_code == 303


@with_run
async def test_a_budget_with_a_name_is_shown(parts: Served, browser: Browser) -> None:
    """A scope's name is no amount: the page of such a process is a page."""
    handle = await parts.kernel.spawn(guide(), pid="named", budget={"usd": "$1", "name": "of the team"})
    assert "of $1" in await browser.page(f"/runs/{handle.pid}")


async def price(word: str) -> int:
    made.append(f"price-{word}")
    return len(word)


async def seller(ctx: Any, words: list[str]) -> int:
    total = 0
    for word in words:
        total += await ctx.do(price, word)
    await ctx.receive()
    return total


@with_run
async def test_the_variables_of_a_program_are_shown_when_an_operator_asks(parts: Served, browser: Browser) -> None:
    """The program is run again up to the step and performs nothing; on the page and over HTTP. Others are refused."""
    parts.kernel.spawn(seller, ["<b>apple</b>", "pear"], pid="seller")
    while "price-pear" not in made:
        await asyncio.sleep(0.01)
    await parts.kernel.durable()
    before = list(made)
    offered = await browser.page("/runs/seller?at=2")
    assert "Run the program up to here" in offered
    assert "<dt>total</dt>" not in offered
    shown = await browser.page("/runs/seller?at=2&frames=1")
    assert "seller, line" in shown
    assert "<dt>total</dt><dd><code>12</code></dd>" in shown
    assert "&lt;b&gt;apple" in shown
    assert "<b>apple" not in shown
    told = (await parts.operator.get("/api/runs/seller/at/3", params={"frames": "true"})).json()
    assert told["frames"][0]["variables"]["total"] == 16
    assert "frames" not in (await parts.operator.get("/api/runs/seller/at/3")).json()
    assert made == before
    async with logged_in(parts, VIEWER) as viewer:
        page = await viewer.page("/runs/seller?at=2&frames=1")
        assert "<dt>total</dt>" not in page
        assert "Run the program" not in page
    assert (await parts.ada.get(f"/api/runs/{RUN}/at/2", params={"frames": "true"})).status_code == 403
    assert "Run the program" not in await browser.page(f"/runs/{RUN}?at=2")  # an agent has none


@with_run
async def test_a_page_that_is_scrubbed_asks_for_the_variables_once(parts: Served, browser: Browser) -> None:
    """Its parts are read at the same time; only the one that shows the variables runs the program."""
    parts.kernel.spawn(seller, ["apple"], pid="seller")
    while "price-apple" not in made:
        await asyncio.sleep(0.01)
    await parts.kernel.durable()
    for _ in range(5):
        names = ("steps", "moment", "fork")
        pages = await asyncio.gather(*(browser.page("/runs/seller?at=2&frames=1", region=name) for name in names))
        assert "<dt>total</dt>" in pages[1]


@with_run
async def test_a_program_that_is_not_known_any_more_says_so(parts: Served, browser: Browser) -> None:
    parts.kernel.spawn(seller, ["apple"], pid="seller")
    while "price-apple" not in made:
        await asyncio.sleep(0.01)
    await parts.kernel.durable()
    known = parts.kernel.programs._by_name
    name = next(name for name in known if name.endswith(":seller"))
    del known[name]
    assert "cannot be run again" in await browser.page("/runs/seller?at=2&frames=1")
