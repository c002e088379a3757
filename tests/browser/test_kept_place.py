"""Data that comes in takes nothing from a person: neither the focus, nor a text, nor the place in a list."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.browser.conftest import NewPage
from tests.browser.stage import USER, Stage
from tests.browser.watched_page import WatchedPage

_FOCUSED = "document.activeElement.id || document.activeElement.textContent.trim()"
# Two versions of one list, the second read from the text of a page, as regions are.
_MORPH = """async ([before, after, focus]) => {
  const script = document.querySelector("script[type=module]").src.replace("site.js", "morph.js");
  const { morph } = await import(script);
  const parsed = (text) => new DOMParser().parseFromString(`<ul>${text}</ul>`, "text/html").querySelector("ul");
  const list = document.importNode(parsed(before), true);
  document.querySelector("main").append(list);
  list.querySelector(focus).focus();
  morph(list, parsed(after));
  const shown = [...list.children].map((child) => child.dataset.key ?? child.textContent);
  const kept = document.activeElement.id;
  list.remove();
  return [shown.join(" "), kept];
}"""


def _list(words: str) -> str:
    """`a b .c`: items with a key and a field each; `.c` is one without a key."""
    return "".join(
        f"<li>{word[1:]}</li>" if word.startswith(".") else f'<li data-key="{word}"><input id="{word}"></li>'
        for word in words.split()
    )


async def _waits(ctx: Any) -> None:
    await ctx.receive()


async def _starts(ctx: Any, count: int) -> None:
    for _ in range(count):
        ctx.spawn(_waits)
    await ctx.receive()


async def _live(page: WatchedPage) -> None:
    await page.page.locator('#live[data-live="open"]').wait_for()


async def test_a_list_that_changes_keeps_the_focus(browser_page: WatchedPage) -> None:
    """Wherever items come, go or change places, the list is as it should be, and the item with the focus keeps it."""
    cases = [
        ("a b c", "b c"),
        ("a b c", "c b"),
        ("a b c", "x c y b"),
        ("c a b", "a b c"),
        ("a b c d", "d b a"),
        (".x a .y b", "b .z a .x"),
        ("a .x b", "b"),
        ("b", "a b a"),
    ]
    for before, after in cases:
        shown = await browser_page.page.evaluate(_MORPH, [_list(before), _list(after), "#b"])
        assert shown == [after.replace(".", ""), "b"], (before, after)


async def test_a_question_that_goes_takes_no_focus_from_the_one_below(stage: Stage, browser_page: WatchedPage) -> None:
    """A person writes an answer while another question is answered elsewhere: the text goes on in its field."""
    await stage.kernel.send("refunds", {"text": "Please pay order A-1042 back."})
    first = await stage.question("Refund")
    stage.kernel.spawn(stage.scene.programs.release, 7, name="release 7")
    second = await stage.question("Change 7 ")
    await browser_page.go("/inbox")
    await _live(browser_page)
    card = browser_page.page.locator(f"article.question[data-key={second.id}]")
    await card.get_by_role("textbox").fill("2.")
    await stage.kernel.resolve_interrupt(first.id, {"approved": False})
    await browser_page.page.locator(f"article.question[data-key={first.id}]").wait_for(state="detached")
    await browser_page.page.keyboard.type("5.1")
    await browser_page.page.keyboard.press("Enter")
    answer = await stage.until(lambda: stage.kernel.interrupts.get(second.id).response)
    assert answer.text == "2.5.1"


async def test_a_question_that_comes_takes_no_focus_from_elsewhere(stage: Stage, browser_page: WatchedPage) -> None:
    """A question is chosen, and the person has gone to a link of the navigation: the focus stays there."""
    await stage.kernel.send("refunds", {"text": "Please pay order A-1042 back."})
    await stage.question("Refund")
    await browser_page.go("/inbox")
    await _live(browser_page)
    await browser_page.page.keyboard.press("j")
    await browser_page.shown("article.question[data-chosen]")
    await browser_page.page.get_by_role("link", name="Costs").focus()
    stage.kernel.spawn(stage.scene.programs.release, 8, name="release 8")
    await browser_page.page.locator("article.question").nth(1).wait_for()
    assert await browser_page.page.evaluate(_FOCUSED) == "Costs"


# ---------------------------------------------------------------- the tree of processes
async def test_the_tree_is_not_blank_when_it_gets_shorter(stage: Stage, browser_page: WatchedPage) -> None:
    """The person looks at the last rows of many, and those end: rows that are left are drawn at once."""
    many = stage.kernel.spawn(_starts, 400, name="many")
    await stage.until(lambda: stage.kernel.live >= 400)
    page = browser_page.page
    await browser_page.go("/processes")
    await browser_page.shown("table[role=treegrid]")
    await page.evaluate("document.querySelector('.grid-box').scrollTop = 1e6")
    await browser_page.shown('tr[aria-rowindex="400"]')
    await page.evaluate(
        """() => { const table = document.querySelector("table[role=treegrid]"); window.__drawn = [];
          new MutationObserver(() => window.__drawn.push(table.querySelectorAll("tbody tr[role=row]").length))
            .observe(table, { attributeFilter: ["aria-rowcount"] }); }"""
    )
    await many.kill("killed")
    await page.wait_for_function("() => document.querySelector('table[role=treegrid]').ariaRowCount < 100")
    drawn = await page.evaluate("window.__drawn")
    assert drawn
    assert min(drawn) > 0
    await browser_page.shown("tr[role=row] >> text=refunds")


async def test_the_tree_begins_with_the_first_process(stage: Stage, new_page: NewPage) -> None:
    """A page without processes becomes the tree when there is one, with its filter and its keys."""
    async with new_page(token=USER) as watched:
        await watched.go("/processes")
        await watched.shown("text=Every process is shown here")
        await _live(watched)
        handle = stage.kernel.as_user("ada").spawn(_waits, name="first of ada")
        await watched.shown("table[role=treegrid] >> text=first of ada")
        await watched.page.locator("#grid-count", has_text="1 process").wait_for()
        stage.kernel.as_user("ada").spawn(_waits, name="second of ada")
        await watched.shown("table[role=treegrid] >> text=second of ada")
        await handle.kill("killed")
        await watched.page.locator("tr", has_text="first of ada").wait_for(state="detached")


async def test_the_keys_of_the_tree_leave_those_of_the_browser_alone(stage: Stage, browser_page: WatchedPage) -> None:
    """Alt and an arrow is the browser's way back."""
    await browser_page.go("/processes")
    await browser_page.shown("table[role=treegrid]")
    taken = await browser_page.page.evaluate(
        """[{}, {altKey: true}, {ctrlKey: true}, {metaKey: true}].map((more) => !document.querySelector("table")
          .dispatchEvent(new KeyboardEvent("keydown", {key: "End", bubbles: true, cancelable: true, ...more})))"""
    )
    assert taken == [True, False, False, False]


async def test_the_address_of_the_tree_has_what_is_looked_for(stage: Stage, new_page: NewPage) -> None:
    """A filter is there again on the way back to the page, and for another person who gets its address."""
    async with new_page() as first, new_page() as second:
        await first.go("/processes")
        await first.shown("table[role=treegrid]")
        await first.page.locator("#q").fill("secur")
        await first.page.locator("#grid-count", has_text=" of ").wait_for()
        await second.page.goto(first.page.url)
        await second.shown("table[role=treegrid]")
        assert await second.page.locator("#q").input_value() == "secur"
        await second.page.locator("#grid-count", has_text=" of ").wait_for()
        assert "correctness" not in await second.page.locator("table[role=treegrid]").inner_text()


async def test_the_keys_go_on_where_a_process_ended(stage: Stage, browser_page: WatchedPage) -> None:
    """The chosen process ends: the next key goes to the one that took its place, not to the top."""
    handles = [stage.kernel.spawn(_waits, name=f"zz {number}") for number in range(4)]
    page = browser_page.page
    await browser_page.go("/processes")
    table = await browser_page.shown("table[role=treegrid]")
    await page.locator("#q").fill("zz ")
    await page.locator("#grid-count", has_text="4 of").wait_for()
    await table.focus()
    for _ in range(2):
        await table.press("ArrowDown")
    await handles[1].kill("killed")
    await page.locator("#grid-count", has_text="3 of").wait_for()
    await table.press("ArrowDown")
    assert "zz 2" in await page.locator('tr[aria-selected="true"]').inner_text()


async def test_a_choice_of_states_is_not_undone_by_an_answer_on_its_way(
    stage: Stage, browser_page: WatchedPage
) -> None:
    """The rows of the ended ones come late, after the person went back to the live ones: they are not shown."""
    page = browser_page.page
    held, may_go = asyncio.Event(), asyncio.Event()

    async def hold(route: Any) -> None:
        held.set()
        await may_go.wait()
        await route.continue_()

    process = stage.kernel.spawn(_waits, name="long gone")
    await process.kill("killed")
    await browser_page.go("/processes")
    await browser_page.shown("table[role=treegrid]")
    await page.route("**/api/tree?ended=true", hold)
    async with page.expect_response("**/api/tree?ended=true") as late:
        await page.locator("#state").select_option("ended")
        await held.wait()
        await page.locator("#state").select_option("")
        await page.wait_for_timeout(300)
        may_go.set()
    await (await late.value).finished()
    stage.kernel.spawn(_waits, name="newcomer")
    await browser_page.shown("table[role=treegrid] >> text=newcomer")
    assert await page.locator("tr", has_text="long gone").count() == 0


# ---------------------------------------------------------------- forms
async def test_a_form_is_sent_once(stage: Stage, browser_page: WatchedPage) -> None:
    """However often its button is pressed before the next page is there."""
    handle = stage.kernel.spawn(_waits, name="asked once")
    page = browser_page.page
    sent: list[str] = []
    may_go = asyncio.Event()

    async def hold(route: Any) -> None:
        sent.append(route.request.url)
        await may_go.wait()
        await route.continue_()

    await browser_page.go(f"/processes/{handle.pid}")
    await page.route("**/acts/**", hold)
    try:
        await page.evaluate(
            """() => { const button = document.querySelector("button.danger");
              for (const ms of [0, 100, 200]) setTimeout(() => button.click(), ms); }"""
        )
        await stage.until(lambda: sent)
        await asyncio.sleep(0.5)
    finally:
        may_go.set()
    await stage.until(lambda: not handle.alive)
    assert len(sent) == 1
    await browser_page.shown("dt:text('Ended')")
