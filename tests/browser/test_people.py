"""People at work: what happens is watched, and what a person does in the page happens, under the person's name."""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import Any

import pytest

from tests.browser.conftest import NewPage
from tests.browser.stage import USER, Stage
from tests.browser.watched_page import WatchedPage
from tests.limits import within


async def _waits(ctx: Any) -> None:
    await ctx.receive()


def _pid(stage: Stage, name: str) -> str:
    return next(row.pid for row in stage.kernel.processes.values() if row.name == name and row.alive)


def _alive(stage: Stage, name: str) -> str:
    return next((row.pid for row in stage.kernel.processes.values() if row.name == name and row.alive), "")


async def test_a_crash_and_its_restart_are_watched(stage: Stage, browser_page: WatchedPage) -> None:
    """A reviewer that crashes is told among the events, and its restart is counted in the tree, without a reload."""
    await browser_page.go("/")
    await browser_page.shown("#tree >> text=security")
    before = _pid(stage, "security")
    job = {"text": "Change 1: a change (overloaded)", "to": "team"}
    await stage.kernel.send("security", job)
    await browser_page.shown("#events >> text=overloaded")
    await browser_page.shown("#tree >> text=1 restart")
    assert _pid(stage, "security") != before


def _is_another(stage: Stage, gone: set[str]) -> bool:
    return _alive(stage, "security") not in gone


async def test_nothing_of_the_tree_is_cut_off(stage: Stage, browser_page: WatchedPage) -> None:
    """The strategy, the state, the restarts and the cost are read whole on the overview."""
    for _ in range(2):
        gone = {"", _pid(stage, "security")}
        await stage.kernel.send("security", {"text": "Change 1: a change (overloaded)", "to": "team"})
        await stage.until(partial(_is_another, stage, gone))
    await browser_page.go("/")
    await browser_page.shown("#tree >> text=2 restarts")
    cut = await browser_page.page.evaluate(
        "[...document.querySelectorAll('.tree li > :not(:first-child)')]"
        ".filter((cell) => cell.scrollWidth > cell.clientWidth).map((cell) => cell.textContent)"
    )
    assert cut == []


async def test_the_figures_of_the_header_follow(stage: Stage, browser_page: WatchedPage) -> None:
    """What is alive, and what it costs, is in the header of every page."""
    await browser_page.go("/services")
    alive = browser_page.page.locator('[data-figure="alive"] .value')
    before = int(await alive.inner_text())
    stage.kernel.spawn(_waits, name="one more")
    await alive.get_by_text(str(before + 1), exact=True).wait_for()


async def test_a_process_is_restarted_and_stopped_in_its_page(stage: Stage, browser_page: WatchedPage) -> None:
    """Restart replaces the process, Stop ends it; the acts are told with the person's name."""
    acts: list[tuple[str, str]] = []
    stage.kernel.on_event(lambda event: acts.append((event.data["person"], event.data["act"])), kinds=("person.acted",))
    first = _pid(stage, "style")
    await browser_page.go(f"/processes/{first}")
    await browser_page.page.get_by_role("button", name="Restart").click()
    second = await stage.until(lambda: _pid(stage, "style") != first and _pid(stage, "style"))
    process = stage.kernel.spawn(_waits, name="to be stopped")
    await browser_page.go(f"/processes/{process.pid}")
    await browser_page.page.get_by_role("button", name="Stop").click()
    await stage.until(lambda: not process.alive)
    assert stage.kernel.processes[second].alive
    assert [person for person, _ in acts] == ["olga", "olga"]


async def test_the_trace_of_an_agent_appears_with_its_first_call(stage: Stage, browser_page: WatchedPage) -> None:
    """The page of an agent that has done nothing yet has a place for its trace, which fills while it works."""
    agent = await stage.kernel.spawn(stage.scene.cast["guide"], name="a new guide")
    await browser_page.go(f"/processes/{agent.pid}")
    await browser_page.shown("#trace >> text=called no model and no tool yet")
    await browser_page.page.locator("#live[data-live=open]").wait_for()
    await agent.send("What is this?")
    await browser_page.shown("#trace table.waterfall >> text=model")


async def test_a_question_is_answered_by_the_keyboard_alone(stage: Stage, browser_page: WatchedPage) -> None:
    """From the overview to the answer with Tab and Enter."""
    await stage.kernel.send("refunds", {"text": "Please pay order A-1042 back."})
    question = await stage.question("Refund")
    await browser_page.go("/")
    await _tab_to(browser_page, "Inbox")
    await browser_page.page.keyboard.press("Enter")
    await browser_page.page.wait_for_url("**/inbox")
    await browser_page.page.locator("#live[data-live=open]").wait_for()
    await _tab_to(browser_page, "Deny")
    await browser_page.page.keyboard.press("Enter")
    answer = await stage.until(lambda: stage.kernel.interrupts.get(question.id).response)
    assert answer.approved is False


async def _tab_to(page: WatchedPage, text: str) -> None:
    for _ in range(60):
        await page.page.keyboard.press("Tab")
        if (await page.page.evaluate("document.activeElement.innerText") or "").startswith(text):
            return
    pytest.fail(f"Tab does not lead to {text}")


async def test_the_theme_is_chosen_and_kept(browser_page: WatchedPage) -> None:
    """A person who wants the other theme chooses it in the settings, for all pages, before they are painted."""
    colour = "getComputedStyle(document.body).backgroundColor"
    await browser_page.go("/settings")
    light = await browser_page.page.evaluate(colour)
    await browser_page.page.get_by_label("dark").check()
    dark = await browser_page.page.evaluate(colour)
    await browser_page.go("/inbox")
    assert await browser_page.page.evaluate(colour) == dark != light


@pytest.mark.long
async def test_a_user_sees_only_their_own(stage: Stage, new_page: NewPage) -> None:
    """A user's pages show neither the processes nor the questions nor the figures of others."""
    await stage.office.bring(0)
    await stage.question("Refund")
    async with new_page(token=USER) as page:
        for path in ("/", "/processes", "/inbox", "/runs", "/traces"):
            await page.go(path)
            text = await page.page.locator("body").inner_text()
            for other in ("Refund", "security", "change 1042"):
                assert other not in text, (path, other)


async def test_the_explanation_is_closed_for_good(stage: Stage, browser_page: WatchedPage) -> None:
    """The demo says above its overview what it is, until a person has read it."""
    await browser_page.go("/")
    await browser_page.shown("text=This is a team of agents at work")
    await browser_page.page.get_by_role("button", name="Got it").click()
    await browser_page.page.get_by_text("This is a team of agents at work").wait_for(state="detached")
    await browser_page.go("/")
    assert await browser_page.page.get_by_text("This is a team of agents at work").count() == 0


@pytest.mark.timed
async def test_a_page_is_painted_within_300_ms(stage: Stage, browser_page: WatchedPage) -> None:
    """The first paint of the overview with its data, from the beginning of the navigation, by the median of five."""
    times = []
    for _ in range(5):
        await browser_page.go("/")
        entry = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
        handle = await browser_page.page.wait_for_function(entry)
        times.append((await handle.json_value()) / 1000)
    within(median(times), 0.3, "the first paint")
