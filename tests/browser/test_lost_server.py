"""A server that is not reached, a login that has ended, a clock that is wrong: the page says so and loses nothing."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.browser.conftest import NewPage
from tests.browser.stage import Stage
from tests.browser.watched_page import WatchedPage

_REFRESH = """async () => {
  const script = document.querySelector("script[type=module]").src.replace("site.js", "live.js");
  (await import(script)).refreshAll();
}"""


async def _waits(ctx: Any) -> None:
    await ctx.receive()


async def _live(page: WatchedPage) -> None:
    await page.page.locator('#live[data-live="open"]').wait_for()


def _log_out_all(stage: Stage) -> None:
    face: Any = stage.server._faces[0]
    face.app.guard.logins._logins.clear()


async def test_a_stream_that_only_looks_open_is_opened_anew(stage: Stage, browser_page: WatchedPage) -> None:
    """The connection of the stream has died without a word: a region that is not answered tells it."""
    page = browser_page.page
    streams: list[str] = []
    page.on("request", lambda request: streams.append(request.url) if "/api/events" in request.url else None)
    await browser_page.go("/")
    await _live(browser_page)
    before = len(streams)
    browser_page.expected += ["net::ERR"]
    await page.route("**/figures", lambda route: route.abort())
    await page.evaluate(_REFRESH)
    await stage.until(lambda: len(streams) > before)
    await page.unroute("**/figures")
    await _live(browser_page)
    stage.kernel.spawn(_waits, name="after that")
    await browser_page.shown("text=after that")


async def test_a_login_that_has_ended_leads_to_the_form_and_back(stage: Stage, browser_page: WatchedPage) -> None:
    """A page on which nothing was written becomes the form; after it the page is there again."""
    browser_page.expected += ["401"]
    page = browser_page.page
    await browser_page.go("/runs?kind=agent")
    await _live(browser_page)
    _log_out_all(stage)
    await page.evaluate(_REFRESH)
    await page.get_by_label("Token").fill(stage.token)
    await page.get_by_role("button", name="Log in").click()
    await browser_page.shown("h1:text('Runs')")
    assert page.url.endswith("/runs?kind=agent")


async def test_a_login_that_has_ended_takes_no_text(stage: Stage, browser_page: WatchedPage) -> None:
    """What a person has written and not sent stays on the page, which says what to do."""
    browser_page.expected += ["401"]
    page = browser_page.page
    await browser_page.go("/chat/guide")
    await _live(browser_page)
    await page.get_by_role("textbox").fill("a long and well thought out question")
    _log_out_all(stage)
    await page.evaluate(_REFRESH)
    await page.get_by_role("alert").get_by_text("Your login has ended").wait_for()
    assert await page.get_by_role("textbox").input_value() == "a long and well thought out question"
    await page.evaluate(_REFRESH)
    await asyncio.sleep(0.3)
    assert await page.get_by_role("alert").count() == 1


async def test_times_are_told_by_the_clock_of_the_server(stage: Stage, new_page: NewPage) -> None:
    """A device whose clock is an hour behind shows no times in the future."""
    stage.kernel.spawn(_waits, name="on time")
    async with new_page() as page:
        await page.page.add_init_script(
            """const now = Date.now.bind(Date); Date.now = () => now() - 3_600_000;
            Object.defineProperty(performance, "timeOrigin", { value: performance.timeOrigin - 3_600_000 });"""
        )
        await page.go("/runs")
        await page.page.wait_for_timeout(2_500)  # the script writes the times once a second
        times = await page.page.locator("#runs time").all_inner_texts()
        assert times
        assert [text for text in times if text.startswith("in ")] == []
