"""A run is scrubbed, forked and watched beside its fork, with the mouse and with the keyboard alone."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from lyra import Agent, tool
from lyra.models.sim import SimProvider
from tests.browser.axe import violations
from tests.browser.conftest import NewPage
from tests.browser.stage import VIEWER, Stage
from tests.browser.watched_page import PHONE, WatchedPage

pytestmark = pytest.mark.slow
made: list[str] = []


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    made.append(city)
    return f"sunny in {city}"


def traveller() -> Agent[Any]:
    calls = {"user": "weather in (\\w+)", "tool_calls": [{"name": "weather", "arguments": {"city": "{1}"}}]}
    replies = [{"tool": "weather", "text": "It is {result}."}, calls, {"text": "You said: {user}"}]
    return Agent("traveller", model=SimProvider(script={"replies": replies}), tools=[weather])


async def talked(stage: Stage) -> str:
    """A run of two turns; its address."""
    made.clear()
    agent = await stage.kernel.spawn(traveller(), pid="trip", name="trip")
    await agent.send("weather in Oslo")
    await agent.send("thanks")
    await stage.kernel.durable()
    return f"/runs/{quote(agent.pid, safe='')}"


async def value_of(page: WatchedPage) -> int:
    return int(await page.page.locator("#scrub").input_value())


async def test_a_run_is_scrubbed_by_the_handle_and_the_keyboard(stage: Stage, browser_page: WatchedPage) -> None:
    """At each step the conversation is as it was; the address has the place, and the page is not loaded again."""
    await browser_page.go(await talked(stage))
    page = browser_page.page
    await browser_page.shown("text=After step 9")
    await page.evaluate("window.__same = true")
    await page.locator("#scrub").fill("4")
    await browser_page.shown("h2:text('After step 4')")
    text = await page.locator("#moment .left").inner_text()
    assert "sunny in Oslo" in text
    assert "It is sunny in Oslo." not in text
    await page.locator("#scrub").focus()
    await page.keyboard.press("ArrowRight")
    await browser_page.shown("h2:text('After step 5')")
    assert "It is sunny in Oslo." in await page.locator("#moment .left").inner_text()
    await page.keyboard.press("Home")
    await browser_page.shown("h2:text('Before the first step')")
    await page.locator("main").focus()
    await page.keyboard.press("]")
    await page.keyboard.press("]")
    await browser_page.shown("h2:text('After step 2')")
    assert await value_of(browser_page) == 2
    assert page.url.endswith("at=2")
    await page.locator("#steps a[data-step='3']").click()
    await browser_page.shown("h2:text('After step 3')")
    for _ in range(2):
        await page.get_by_role("link", name="A step on").click()
    await browser_page.shown("h2:text('After step 5')")
    await page.get_by_role("link", name="A step back").click()
    await browser_page.shown("h2:text('After step 4')")
    assert await page.evaluate("window.__same") is True


async def test_the_marks_of_the_timeline_are_told(stage: Stage, browser_page: WatchedPage) -> None:
    """A legend has every kind that is drawn; no two kinds that a person may confuse have one shape."""
    await browser_page.go(await talked(stage))
    legend = browser_page.page.get_by_role("list", name="What the marks stand for")
    assert (await legend.inner_text()).split() == ["├", "began", "◆", "message", "●", "model", "■", "tool", "✓", "turn"]


async def test_a_fork_is_made_and_watched_beside_the_run(stage: Stage, browser_page: WatchedPage) -> None:
    """The first difference is marked, and nothing from before is performed again."""
    address = await talked(stage)
    await browser_page.go(f"{address}?at=5")
    page = browser_page.page
    await page.locator("#fork-what").select_option("reply")
    await page.locator("#fork-text").fill("It rains.")
    await page.get_by_role("button", name="Fork from here").click()
    await browser_page.shown("tr.first-difference")
    await browser_page.shown("#compared[data-first='5']")
    row = await page.locator("tr.first-difference").inner_text()
    assert "It is sunny in Oslo." in row
    assert "It rains." in row
    assert made == ["Oslo"]
    await browser_page.shown("#live[data-live=open]")
    fork = stage.kernel.agent("trip-fork-1")
    before = await page.locator("#compared tbody tr").count()
    await fork.send("and now?")
    await browser_page.shown("#compared", has_text="You said: and now?")
    assert await page.locator("#compared tbody tr").count() >= before


async def test_a_run_is_followed_while_it_goes_on(stage: Stage, browser_page: WatchedPage) -> None:
    """A page at the end stays at the end; one at an earlier step stays there."""
    address = await talked(stage)
    await browser_page.go(address)
    await browser_page.shown("#live[data-live=open]")
    await stage.kernel.agent("trip").send("more")
    await browser_page.shown("h2:text('After step 12')")
    assert await value_of(browser_page) == 12
    await browser_page.page.locator("#scrub").fill("3")
    await browser_page.shown("h2:text('After step 3')")
    await stage.kernel.agent("trip").send("still more")
    await browser_page.shown("#scrub[max='15']")
    assert await value_of(browser_page) == 3


async def test_the_list_of_steps_stays_where_a_person_scrolled_it(stage: Stage, browser_page: WatchedPage) -> None:
    """While the run goes on; a step that the person chooses is shown again."""
    address = await talked(stage)
    for number in range(20):
        await stage.kernel.agent("trip").send(f"and {number}")
    page = browser_page.page
    await browser_page.go(address)
    await browser_page.shown("#live[data-live=open]")
    await browser_page.shown("h2:text('After step 69')")
    top = "document.querySelector('.steps').scrollTop"
    await page.locator(".steps").hover()
    before = await page.evaluate(top)
    await page.mouse.wheel(0, -400)
    await page.wait_for_function(f"(before) => {top} < before", arg=before)
    await page.evaluate("document.querySelector('.steps').scrollTop = 40")
    await stage.kernel.agent("trip").send("more")
    await browser_page.shown("h2:text('After step 72')")
    assert await page.evaluate(top) < 100
    await page.locator("main").focus()
    await page.keyboard.press("[")
    await browser_page.shown("h2:text('After step 71')")
    assert await page.evaluate(top) > 200


async def test_the_end_is_followed_again_and_the_keys_are_told(stage: Stage, browser_page: WatchedPage) -> None:
    """`}` goes to the end, from where the page follows the run; `?` has the keys of the page."""
    await browser_page.go(f"{await talked(stage)}?at=2")
    page = browser_page.page
    await browser_page.shown("#live[data-live=open]")
    await page.keyboard.press("?")
    await browser_page.shown("dialog >> text=a step back")
    await page.keyboard.press("Escape")
    await page.keyboard.press("}")
    await browser_page.shown("h2:text('After step 9')")
    await stage.kernel.agent("trip").send("more")
    await browser_page.shown("h2:text('After step 12')")
    await browser_page.shown("h2:text('Fork from step 12')")
    assert await value_of(browser_page) == 12


async def test_the_page_of_a_run_suits_phones_readers_and_viewers(stage: Stage, new_page: NewPage) -> None:
    """No violation for axe, nothing sideways at 375 pixels, and the form of a viewer is disabled."""
    address = await talked(stage)
    for options in ({"color_scheme": "light"}, {"color_scheme": "dark", "viewport": PHONE}):
        async with new_page(**options) as page:
            for path in ("/runs", f"{address}?at=4&other=trip"):
                await page.go(path)
                await page.shown("#live[data-live=open]")
                assert await violations(page) == []
                assert await page.overflow_px() <= 0
    async with new_page(token=VIEWER) as page:
        await page.go(f"{address}?at=4")
        assert await page.page.get_by_role("button", name="Fork from here").is_disabled()


async def test_the_handle_is_dragged_with_the_mouse(stage: Stage, browser_page: WatchedPage) -> None:
    """Slowly, so that the parts of the page are read again while the button is down: the handle stays in the hand."""
    address = await talked(stage)
    for number in range(10):
        await stage.kernel.agent("trip").send(f"and {number}")
    await stage.kernel.durable()
    await browser_page.go(f"{address}?at=39")
    page = browser_page.page
    box = await page.locator("#scrub").bounding_box()
    assert box is not None
    middle = box["y"] + box["height"] / 2
    await page.mouse.move(box["x"] + box["width"] - 8, middle)
    await page.mouse.down()
    for part in (0.8, 0.6, 0.4, 0.2):
        await page.mouse.move(box["x"] + box["width"] * part, middle, steps=3)
        await page.wait_for_function(
            "() => document.getElementById('moment').dataset.at === document.getElementById('scrub').value"
        )
    await page.mouse.up()
    place = await value_of(browser_page)
    assert 4 <= place <= 12
    await browser_page.shown(f"h2:text('After step {place}')")
    await browser_page.shown(f"h2:text('Fork from step {place}')")
    assert page.url.endswith(f"at={place}")
