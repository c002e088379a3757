"""What holds for every page of the table: its data is there without a script, in both themes, on a phone, for a
keyboard and for a screen reader. It has no inline script and writes nothing to the console."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any, Final, Literal

import httpx
import pytest

from tests.browser.addresses import WORDS, addresses
from tests.browser.axe import violations
from tests.browser.conftest import PAST, NewPage
from tests.browser.stage import Stage
from tests.browser.watched_page import PHONE, SCREEN, WatchedPage

pytestmark = PAST

_INLINE = re.compile(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=|<style|javascript:", re.IGNORECASE)
_FOCUS_STYLE = """() => {
  const element = document.activeElement, style = getComputedStyle(element);
  const halo = element.querySelector(".halo");  // of a mark in a picture, which has no box for an outline
  const [line, width] = halo && getComputedStyle(halo).stroke !== "none"
    ? ["halo", parseFloat(getComputedStyle(halo).strokeWidth)]
    : [style.outlineStyle, parseFloat(style.outlineWidth)];
  return [element.tagName, element.textContent.trim().slice(0, 30), line, width];
}"""


_VIEWPORTS: Final[Sequence[Any]] = (SCREEN, PHONE)
_THEMES: Final[Sequence[Literal["light", "dark"]]] = ("light", "dark")


_NAVIGATION = """() => {
  const box = document.querySelector('nav a[aria-current="page"]').getBoundingClientRect();
  document.getElementById("live").textContent = "○ reconnecting";
  return [box.left, box.right, document.querySelector("header.site").getBoundingClientRect().height];
}"""


@pytest.fixture
def busy_stage(stage: Stage, loop_runner: asyncio.Runner) -> Stage:
    """A stage whose team has worked: a crash, a restart, a question, a pipeline, a conversation."""

    async def work() -> None:
        for number in (0, 2, 1):
            await stage.office.bring(number)
        await stage.question("Refund")
        await stage.until(lambda: _has_ended(stage, "change 1042") and _has_ended(stage, "change 1044"))

    loop_runner.run(work())
    return stage


def _has_ended(stage: Stage, name: str) -> bool:
    return any(process.name == name and not process.alive for process in stage.kernel.processes.values())


async def test_every_page_has_its_data_without_a_script(busy_stage: Stage, new_page: NewPage) -> None:
    """A page is complete before any script runs, and has one heading, a navigation and a skip link."""
    missing: dict[str, Any] = {}
    async with new_page(java_script_enabled=False) as page:
        for path, address in addresses(busy_stage).items():
            await page.go(address)
            text = await page.page.locator("main").inner_text()
            lacks = [word for word in WORDS.get(path, ()) if word not in text]
            counts = [await page.page.locator(name).count() for name in ("h1", "nav", "main", "a.skip")]
            if lacks or counts != [1, 1, 1, 1]:
                missing[path] = (lacks, counts, text[:300])
    assert missing == {}


@pytest.mark.slow
async def test_every_page_suits_all_people(busy_stage: Stage, browser_page: WatchedPage) -> None:
    """axe-core finds nothing by any of its rules, on any page, light and dark, on a screen and on a phone."""
    problems: list[str] = []
    for path, address in addresses(busy_stage).items():
        await browser_page.page.set_viewport_size(_VIEWPORTS[0])
        await browser_page.go(address)
        await browser_page.page.locator("#live[data-live=open]").wait_for()
        for viewport in _VIEWPORTS:
            await browser_page.page.set_viewport_size(viewport)
            for theme in _THEMES:
                await browser_page.page.emulate_media(color_scheme=theme)
                problems += [
                    f"{path} {viewport['width']} px {theme}: {line}" for line in await violations(browser_page)
                ]
    assert problems == [], "\n".join(problems)


async def test_every_page_fits_a_phone(busy_stage: Stage, new_page: NewPage) -> None:
    """No page scrolls sideways at 375 pixels, and its links and buttons are there."""
    too_wide: dict[str, int] = {}
    async with new_page(viewport=PHONE, has_touch=True, is_mobile=True) as page:
        for path, address in addresses(busy_stage).items():
            await page.go(address)
            if (pixels := await page.overflow_px()) > 0:
                too_wide[path] = pixels
    assert too_wide == {}


async def test_a_phone_shows_where_it_is(busy_stage: Stage, new_page: NewPage) -> None:
    """The link of the page that is shown is in sight, and the header takes little room, also without the server."""
    hidden: dict[str, Any] = {}
    async with new_page(viewport=PHONE, has_touch=True, is_mobile=True) as page:
        for path, address in addresses(busy_stage).items():
            await page.go(address)
            await page.page.locator("#live[data-live=open]").wait_for()
            left, right, height = await page.page.evaluate(_NAVIGATION)
            if left < 0 or right > PHONE["width"] or height > 112:
                hidden[path] = (left, right, height)
    assert hidden == {}


async def test_every_page_is_used_by_the_keyboard(busy_stage: Stage, browser_page: WatchedPage) -> None:
    """The first key leads to the skip link, and what has the focus shows it."""
    unmarked: dict[str, Any] = {}
    keyboard = browser_page.page.keyboard
    for path, address in addresses(busy_stage).items():
        await browser_page.go(address)
        await browser_page.page.locator("#live[data-live=open]").wait_for()
        if path.startswith("/chat/"):  # the focus is in the message
            await browser_page.page.evaluate("document.activeElement.blur()")
        await keyboard.press("Tab")
        first = await browser_page.page.evaluate(_FOCUS_STYLE)
        if not path.startswith("/chat/") and first[1] != "Skip to content":
            unmarked[f"{path} first"] = first
        for _ in range(20):
            await keyboard.press("Tab")
            tag, text, style, width = await browser_page.page.evaluate(_FOCUS_STYLE)
            if tag not in ("BODY", "HTML") and (style == "none" or width < 1):
                unmarked[path] = (tag, text, style, width)
    assert unmarked == {}


async def test_no_page_has_a_script_or_a_style_in_it(busy_stage: Stage) -> None:
    """Each page forbids what is not a file of the server, and needs nothing else."""
    async with httpx.AsyncClient(base_url=busy_stage.url, follow_redirects=True) as client:
        await client.get("/", params={"token": busy_stage.token})
        for address in addresses(busy_stage).values():
            answer = await client.get(address)
            assert answer.status_code == 200, address
            policy = answer.headers["content-security-policy"]
            assert "script-src 'self'" in policy
            assert "unsafe" not in policy
            assert _INLINE.search(answer.text) is None, (address, _INLINE.search(answer.text))
