"""Pages stay current: an event is on screen at once, nothing that a person does there is lost, ten thousand processes
scroll."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.browser.conftest import NewPage
from tests.browser.stage import Stage
from tests.browser.watched_page import WatchedPage

# Notes when the text is first on screen, on the clock that the server's events are told by.
_WATCH = """
(text) => new Promise((seen) => {
  const look = () => document.body.innerText.includes(text) && (seen(Date.now() / 1000), true);
  if (look()) return;
  const observer = new MutationObserver(() => look() && observer.disconnect());
  observer.observe(document.body, { subtree: true, childList: true, characterData: true });
})
"""


async def _rests(ctx: Any) -> None:
    await ctx.receive()


async def _starts(ctx: Any, count: int) -> None:
    for _ in range(count):
        ctx.spawn(_rests)
    await ctx.receive()


async def _live(page: WatchedPage) -> None:
    await page.page.locator('#live[data-live="open"]').wait_for()


@pytest.mark.timed
async def test_an_event_is_on_screen_within_a_quarter_of_a_second(stage: Stage, browser_page: WatchedPage) -> None:
    """From the event's own time until the overview shows it; the median of ten."""
    await browser_page.go("/")
    await _live(browser_page)
    delays = []
    for number in range(10):
        seen = asyncio.ensure_future(browser_page.page.evaluate(_WATCH, f"newcomer {number}"))
        await asyncio.sleep(0.4)  # apart from the one before
        began = stage.kernel.clock.now()
        stage.kernel.spawn(_rests, name=f"newcomer {number}")
        delays.append(await seen - began)
    assert sorted(delays)[5] <= 0.25, delays


async def test_a_refresh_keeps_focus_selection_and_open_parts(stage: Stage, browser_page: WatchedPage) -> None:
    """A region that is fetched again while a person types changes nothing of what the person does there."""
    handle = stage.kernel.spawn(_rests, name="patient")
    page = browser_page.page
    await browser_page.go(f"/processes/{handle.pid}")
    await _live(browser_page)
    field = page.locator("#ask-message")
    await field.fill("half a question")
    await page.evaluate("document.getElementById('ask-message').setSelectionRange(2, 6)")
    for number in range(3):
        stage.kernel.spawn(_rests, name=f"other {number}")
        await page.evaluate(
            "import(document.querySelector('script[type=module]').src.replace('site.js', 'live.js'))"
            ".then((live) => live.refreshAll())"
        )
    await asyncio.sleep(1)
    assert await field.input_value() == "half a question"
    place = await page.evaluate(
        "[document.activeElement.id, document.activeElement.selectionStart, document.activeElement.selectionEnd]"
    )
    assert place == ["ask-message", 2, 6]


async def test_what_happens_before_the_stream_is_open_is_shown(stage: Stage, browser_page: WatchedPage) -> None:
    """Between the page and its stream no event is told: all regions are read again when it opens."""
    page = browser_page.page
    asked, may_open = asyncio.Event(), asyncio.Event()

    async def hold(route: Any) -> None:
        asked.set()
        await may_open.wait()
        await route.continue_()

    await page.route("**/api/events?*", hold)
    await browser_page.go("/")
    await asked.wait()
    stage.kernel.spawn(_rests, name="early bird")
    may_open.set()
    await browser_page.shown("text=early bird")


async def test_a_stream_that_is_lost_is_told_and_found_again(stage: Stage, browser_page: WatchedPage) -> None:
    """The dot says so, and what happened meanwhile is shown when the server is back."""
    page = browser_page.page
    await browser_page.go("/")
    await _live(browser_page)
    browser_page.expected += ["ERR_INTERNET_DISCONNECTED", "request failed"]
    await page.context.set_offline(True)
    await page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    face: Any = stage.server._faces[0]
    face.app.parts.feed.log.end()  # as when the connection breaks
    await page.locator('#live[data-live="lost"]').wait_for()
    stage.kernel.spawn(_rests, name="meanwhile")
    face.app.parts.feed.log.ended = False
    await page.context.set_offline(False)
    await _live(browser_page)
    await page.get_by_text("meanwhile").first.wait_for()


@pytest.mark.slow
async def test_ten_thousand_processes_scroll(stage: Stage, new_page: NewPage) -> None:
    """Only the rows that are seen are drawn; keys go through all, a filter finds one, and a new process appears."""
    stage.kernel.processes_max = 20_000
    for number in range(100):
        stage.kernel.spawn(_starts, 99, name=f"family {number}")
    await stage.until(lambda: stage.kernel.live >= 10_000)
    async with new_page() as watched:
        page = watched.page
        await watched.go("/processes")
        await page.locator("table[role=treegrid]").wait_for()
        count = int(await page.locator("table[role=treegrid]").get_attribute("aria-rowcount") or 0)
        assert count > 10_000
        assert await page.locator(".grid-box tbody tr").count() < 100
        table = page.locator("table[role=treegrid]")
        await table.focus()
        await table.press("End")
        last = page.locator('tr[aria-selected="true"]')
        assert int(await last.get_attribute("aria-rowindex") or 0) >= 10_000
        assert await last.is_visible()
        assert await page.locator(".grid-box tbody tr").count() < 100
        await table.press("Home")
        await page.locator("#q").fill("family 57")
        await page.locator("tr", has_text="family 57").first.wait_for()
        row = page.locator("tr", has_text="family 57").first
        assert await row.get_attribute("aria-expanded") == "true"
        await page.locator("#q").fill("latecomer")
        await page.locator("#grid-count", has_text="0 of").wait_for()
        stage.kernel.spawn(_rests, name="latecomer")
        await page.locator("tr", has_text="latecomer").wait_for()


async def test_arrows_fold_and_open_the_tree(stage: Stage, browser_page: WatchedPage) -> None:
    stage.kernel.spawn(_starts, 3, name="aaa family")
    page = browser_page.page
    await browser_page.go("/processes")
    await page.locator("table[role=treegrid]").wait_for()
    await page.locator("#q").fill("")
    table = page.locator("table[role=treegrid]")
    before = int(await table.get_attribute("aria-rowcount") or 0)
    await page.locator("tr", has_text="aaa family").locator("td").nth(1).click()
    await table.focus()
    await table.press("ArrowLeft")
    assert int(await table.get_attribute("aria-rowcount") or 0) == before - 3
    await table.press("ArrowRight")
    assert int(await table.get_attribute("aria-rowcount") or 0) == before
    await table.press("ArrowRight")
    child = page.locator('tr[aria-selected="true"]')
    assert await child.get_attribute("aria-level") == "2"
    await table.press("Enter")
    await page.wait_for_url("**/processes/*")


async def test_headings_stand_over_their_columns(stage: Stage, browser_page: WatchedPage) -> None:
    """Also where rows are scrolled; the room above and below the drawn rows shows no line."""
    stage.kernel.spawn(_starts, 200, name="many")
    await browser_page.go("/processes")
    await browser_page.shown("table[role=treegrid]")
    await browser_page.page.evaluate("document.querySelector('.grid-box').scrollTop = 2000")
    await browser_page.shown('tr[aria-rowindex="70"]')
    edges = await browser_page.page.evaluate(
        """[".grid-box thead tr", '.grid-box tr[aria-rowindex="70"]'].map((line) =>
          [...document.querySelector(line).cells].map((cell) => Math.round(cell.getBoundingClientRect().right)))"""
    )
    assert edges[0] == edges[1]
    borders = await browser_page.page.evaluate(
        "[...document.querySelectorAll('.spacer')].map((line) => getComputedStyle(line).borderBottomWidth)"
    )
    assert set(borders) == {"0px"}


# Where the parts of a page stand: its headings, its navigation, its columns.
_LANDMARKS = """() => Object.fromEntries(
  [...document.querySelectorAll("header.site, nav a, h1, h2, main > *, .columns > *, thead th")].map((part, index) => {
    const { left, top, width } = part.getBoundingClientRect();
    return [`${index} ${part.tagName} ${part.id}`, [left, top, part.tagName === "A" ? 0 : width].map(Math.round)];
  }))"""


@pytest.mark.parametrize("path", ["/", "/processes", "/runs", "/traces"])
async def test_nothing_jumps_while_the_team_works(stage: Stage, browser_page: WatchedPage, path: str) -> None:
    """Headings, navigation and columns stay where they are while processes come, crash and go and a question comes."""
    await stage.office.bring(0)
    await stage.question("Refund")
    await browser_page.go(path)
    await _live(browser_page)
    if path == "/processes":
        await browser_page.shown("table[role=treegrid]")
    await asyncio.sleep(0.5)
    before = await browser_page.page.evaluate(_LANDMARKS)
    await stage.kernel.send("security", {"text": "Change 1: a change (overloaded)", "to": "team"})
    await stage.office.bring(1)
    for number in range(20):
        stage.kernel.spawn(_rests, name=f"one more with a rather long name {number}")
    if path == "/traces":
        agent = await stage.kernel.spawn(stage.scene.cast["guide"])
        await agent.send("What is this?")
        await browser_page.shown("#traces >> text=guide")
    else:
        await browser_page.shown("main >> text=one more with a rather long name 3")
    after = await browser_page.page.evaluate(_LANDMARKS)
    assert {name: (box, after.get(name)) for name, box in before.items() if after.get(name) != box} == {}
