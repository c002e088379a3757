"""Nothing jumps while a page is live: figures that get a digit more, rows that come in and questions that appear move
nothing beside them."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from lyra.server.dashboard.layout import FiguresNow, HeaderFigures
from tests.browser.conftest import NewPage
from tests.browser.stage import Stage
from tests.browser.watched_page import PHONE, SCREEN, WatchedPage

SIZES = pytest.mark.parametrize("viewport", [SCREEN, PHONE], ids=["screen", "phone"])
# Where the browser says that something moved by itself, and what it was.
_OBSERVE: Final = """() => {
  window.__shifts = [];
  const words = (node) => (node?.nodeType === Node.ELEMENT_NODE ? node : node?.parentElement);
  const isRow = (element) => element?.closest("ul.tree > li, ol.events > li, tbody > tr") !== null;
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      for (const { node, previousRect, currentRect } of entry.sources) {
        const element = words(node);
        if (!element || isRow(element)) continue;  // a row makes room for a new one in the box of its list
        window.__shifts.push([element.tagName, element.className, element.textContent.slice(0, 40),
          ...[previousRect.x, previousRect.y, currentRect.x, currentRect.y].map(Math.round)]);
      }
    }
  }).observe({ type: "layout-shift" });
}"""
# Where everything of the header stands: values, labels, the dot, the links; and the headings below it.
_PLACES: Final = """() => Object.fromEntries(
  [...document.querySelectorAll("nav a, .figure, .label, #live, h1, h2, main > *, .overview > *")].map((element, i) => {
    const box = element.getBoundingClientRect();
    const name = `${i} ${element.tagName} ${element.id || element.className} ${element.dataset.figure ?? ""}`;
    const isLabel = element.matches(".label");
    return [name, [box.left, box.top, isLabel ? 0 : box.width, box.height].map(Math.round)];
  }))"""
_FIGURES: Final = (
    FiguresNow(9, 0, 9, 990_000, None, None, (1,), 0.009),
    FiguresNow(10, 9, 10, 10_000_000, None, None, (1,), 0.010),
    FiguresNow(99, 10, 99, 99_990_000, None, None, (1,), 0.999),
    FiguresNow(100, 99, 100, 100_000_000, None, None, (1,), 1.0),
    FiguresNow(9_999, 0, 0, 999_990_000, None, None, (1,), 59.94),
    FiguresNow(10_000, 3, 1, 1_234_560_000, None, None, (1,), 75.0),
    FiguresNow(9, 0, 0, 0, None, None, (1,), None),
    FiguresNow(9, 0, 0, 213, None, None, (1,), None),
)


async def _rests(ctx: Any) -> None:
    await ctx.receive()


async def _live(page: WatchedPage) -> None:
    await page.page.locator('#live[data-live="open"]').wait_for()
    await page.page.evaluate("document.fonts.ready")


async def _shown(page: WatchedPage, figures: FiguresNow) -> None:
    """Have the header fetched again, and wait until it shows these figures."""
    await page.page.evaluate(
        """(alive) => import(document.querySelector("script[type=module]").src.replace("site.js", "live.js")).then(
          (live) => { const bar = document.getElementById("figures"); bar.dataset.every = "0"; live.refresh(bar); })""",
        figures.alive,
    )
    words = f"{figures.alive:,} processes are alive"
    await page.page.locator(f'[data-figure="alive"][title="{words}"]').wait_for(state="attached")


@SIZES
async def test_a_figure_that_gets_a_digit_more_moves_nothing(
    stage: Stage, new_page: NewPage, viewport: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 9 to 10, from 99 to 100, from $0.99 to $10.00 and on: links, labels and headings stay where they are."""
    now = [_FIGURES[0]]
    monkeypatch.setattr(HeaderFigures, "read", lambda _self, _caller: now[0])
    monkeypatch.setattr(HeaderFigures, "questions", lambda _self, _caller: now[0].waiting)
    async with new_page(viewport=viewport) as page:
        for path in ("/", "/services"):
            now[0] = _FIGURES[0]
            await page.go(path)
            await _live(page)
            await _shown(page, now[0])
            await page.page.evaluate(_OBSERVE)
            places = await page.page.evaluate(_PLACES)
            for now[0] in _FIGURES[1:]:
                await _shown(page, now[0])
                moved = {
                    name: (places[name], place)
                    for name, place in (await page.page.evaluate(_PLACES)).items()
                    if places[name] != place
                }
                assert moved == {}, (path, now[0])
            assert await page.page.evaluate("window.__shifts") == [], path


@SIZES
async def test_work_that_comes_in_moves_only_the_rows_of_its_lists(
    stage: Stage, new_page: NewPage, viewport: Any
) -> None:
    """While processes start, crash, ask and end, headings, panels and columns stay where they are."""
    async with new_page(viewport=viewport) as page:
        await page.go("/")
        await _live(page)
        await asyncio.sleep(0.5)  # the regions are fetched once more when the stream is open
        await page.page.evaluate(_OBSERVE)
        places = await page.page.evaluate(_PLACES)
        for number in (0, 2):
            await stage.office.bring(number)
        stage.kernel.spawn(_rests, name="the last one")
        await page.shown("#events >> text=the last one")
        await page.page.locator("nav .count", has_text="1").wait_for()
        assert await page.page.evaluate(_PLACES) == places
        assert await page.page.evaluate("window.__shifts") == []


async def test_a_list_stays_while_a_person_points_at_its_rows(stage: Stage, browser_page: WatchedPage) -> None:
    """The row under the pointer is the one that was aimed at; what happened meanwhile comes when the pointer rests."""
    page = browser_page.page
    await browser_page.go("/")
    await _live(browser_page)
    await asyncio.sleep(0.5)
    row = page.locator("#tree li").first
    box = await row.bounding_box()
    assert box is not None
    await page.mouse.move(box["x"] + 20, box["y"] + 10)
    stage.kernel.spawn(_rests, name="a newcomer")
    await browser_page.shown("#events >> text=a newcomer")
    for step in range(8):
        await page.mouse.move(box["x"] + 20 + step, box["y"] + 10)
        await asyncio.sleep(0.1)
    assert await page.locator("#tree >> text=a newcomer").count() == 0
    await browser_page.shown("#tree >> text=a newcomer")
