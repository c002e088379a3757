"""The run of a Vega program is scrubbed with its variables, forked, and watched beside its fork."""

from __future__ import annotations

from pathlib import Path

import pytest

from lyra import vega
from lyra.models.client import LLMClient
from lyra.store.space import Space
from lyra.vega.durable.durable_run import RunExecution
from lyra.vega.runtime.world import RunOptions
from tests.browser.axe import violations
from tests.browser.conftest import NewPage
from tests.browser.stage import Stage
from tests.browser.watched_page import PHONE, WatchedPage

pytestmark = pytest.mark.slow

SOURCE = """\
agent Poet { model "sim/echo" }
let poet = spawn Poet;
fn asked(topic) {
    let words = "of ${topic}";
    return poet <- words;
}
let poem = asked("<b>the sea</b>");
print(poem);
if poem == "stones" { for n in [1, 2, 3] { process::sleep(400ms); print(poet <- "again ${n}"); } }
print(poet <- "last");
"""


async def ran(stage: Stage) -> str:
    """A durable run in the file of the server's store; its address."""
    store = stage.kernel.open_reader()
    assert store is not None
    path, folder = store.location, str(Path(store.location).parent)
    store.close()
    facts = {"id": "poems", "file": "p.vega", "sources": {"p.vega": SOURCE}, "model": None, "budget": None, "args": []}
    space = Space(path, "poems")
    options = RunOptions(write=lambda _: None, warn=lambda _: None, folder=folder)
    execution = RunExecution(space, vega.compile(SOURCE, "p.vega"), options)
    execution.world.runtime.models.client = LLMClient()
    await execution.run({**facts, "folder": folder, "settings": []})
    space.close()
    return "/runs/poems"


@pytest.mark.long
async def test_a_vega_run_is_scrubbed_with_its_variables(stage: Stage, browser_page: WatchedPage) -> None:
    """Once they were asked for they are there at every step; the page is not loaded again."""
    await browser_page.go(f"{await ran(stage)}?at=5")
    page = browser_page.page
    await page.get_by_role("link", name="Run the program up to here").click()
    await browser_page.shown("#moment", has_text="asked, line 5 of p.vega")
    await page.evaluate("window.__same = true")
    await page.locator("#scrub").focus()
    for _ in range(4):
        await page.keyboard.press("ArrowRight")
    await browser_page.shown("h2:text('After step 9')")
    await browser_page.shown("#moment", has_text="<b>the sea</b>")
    assert "cannot be run again" not in await page.locator("#moment").inner_text()
    assert await page.locator("#moment b").count() == 0
    assert "of <b>the sea</b>" in await page.locator("#moment section:has(h3:text('Output')) pre").inner_text()
    assert await page.evaluate("window.__same") is True


async def test_a_vega_run_is_forked_and_both_are_watched(stage: Stage, browser_page: WatchedPage) -> None:
    """What the fork does comes into the page while it does it."""
    await browser_page.go(f"{await ran(stage)}?at=5")
    page = browser_page.page
    await page.locator("#fork-text").fill("stones")
    await page.get_by_role("button", name="Fork from here").click()
    await browser_page.shown("#compared[data-first='5']")
    await browser_page.shown("tr.first-difference", has_text="stones")
    await page.evaluate("window.__same = true")
    await browser_page.shown("#compared", has_text="again 3")
    await browser_page.shown("#compared", has_text="main ended: normal")
    await browser_page.shown("#compared:not([data-refresh])")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.headers.get("x-region", "")))
    await page.wait_for_timeout(3_500)
    assert asked.count("compared") <= 1  # it was read every second while the fork ran
    assert await page.evaluate("window.__same") is True
    await page.locator("#compared td a", has_text="again 3").first.click()
    await browser_page.shown("h1:text('Run of poems-fork-1')")
    await browser_page.shown("#steps", has_text="finished")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_its_page_can_be_used_by_all(stage: Stage, new_page: NewPage, scheme: str) -> None:
    """axe finds nothing, on a phone either, and the page does not scroll sideways."""
    address = await ran(stage)
    async with new_page(viewport=PHONE, color_scheme=scheme) as page:
        await page.go(f"{address}?at=5&frames=1&other=poems")
        assert await violations(page) == []
        assert await page.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        both = "document.querySelector('table.two').parentElement"
        assert await page.page.evaluate(f"{both}.scrollWidth <= {both}.clientWidth")  # both runs are in sight
