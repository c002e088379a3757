"""Questions are answered in the page: with the mouse, the keyboard, or without a script."""

from __future__ import annotations

from typing import Any

import pytest

from tests.browser.conftest import NewPage
from tests.browser.stage import VIEWER, Stage
from tests.browser.watched_page import WatchedPage


async def _ask(stage: Stage) -> Any:
    await stage.kernel.send("refunds", {"text": "Please pay order A-1042 back."})
    return await stage.question("Refund")


async def _release(stage: Stage, number: int) -> Any:
    stage.kernel.spawn(stage.scene.programs.release, number, name=f"release {number}")
    return await stage.question(f"Change {number} ")


def _response(stage: Stage, question: Any) -> Any:
    return stage.kernel.interrupts.get(question.id).response


async def test_a_question_that_comes_up_is_shown_and_approved(stage: Stage, browser_page: WatchedPage) -> None:
    """A question appears without a reload, says who asks and what follows, and Approve lets the agent go on."""
    await browser_page.go("/inbox")
    await browser_page.shown("text=No question waits for you")
    question = await _ask(stage)
    card = await browser_page.shown("article.question")
    text = await card.inner_text()
    for part in ("Refund $120.00 for order A-1042?", "support", "refunds", "On yes", "On no", "expires"):
        assert part in text
    await browser_page.page.locator("nav .count", has_text="1").wait_for()
    await card.get_by_role("button", name="Approve").click()
    answer = await stage.until(lambda: _response(stage, question))
    assert answer.approved is True
    await browser_page.shown("#ended >> text=approved")
    await browser_page.shown("text=No question waits for you")
    await browser_page.page.locator("nav .count").wait_for(state="hidden")


async def test_the_keys_choose_and_answer(stage: Stage, browser_page: WatchedPage) -> None:
    """`j` and `k` choose, the first `y` only shows what is meant, `n` denies, `e` writes and Enter answers."""
    refund, release = await _ask(stage), await _release(stage, 7)
    await browser_page.go("/inbox")
    keys = browser_page.page.keyboard
    await keys.press("n")
    chosen = await browser_page.shown("article.question[data-chosen]")
    assert "Refund" in await chosen.inner_text()
    assert _response(stage, refund) is None
    await keys.press("j")
    await keys.press("e")
    await keys.type("2.0 j k y n")
    await keys.press("Enter")
    answer = await stage.until(lambda: _response(stage, release))
    assert answer.text == "2.0 j k y n"
    await browser_page.page.locator("article.question").nth(1).wait_for(state="detached")
    await keys.press("Escape")
    await keys.press("k")
    await keys.press("n")
    answer = await stage.until(lambda: _response(stage, refund))
    assert answer.approved is False


async def test_the_chosen_question_stays_chosen_when_the_list_changes(stage: Stage, browser_page: WatchedPage) -> None:
    """A question that comes up beside it takes neither the mark nor the keys away."""
    refund = await _ask(stage)
    await browser_page.go("/inbox")
    await browser_page.page.keyboard.press("j")
    await browser_page.shown("article.question[data-chosen]")
    await _release(stage, 8)
    await browser_page.page.locator("article.question").nth(1).wait_for()
    chosen = browser_page.page.locator("article.question[data-chosen]")
    assert await chosen.count() == 1
    assert "Refund" in await chosen.inner_text()
    await browser_page.page.keyboard.press("n")
    answer = await stage.until(lambda: _response(stage, refund))
    assert answer.approved is False


async def test_a_question_in_doubt_offers_retry_skip_and_fail(stage: Stage, browser_page: WatchedPage) -> None:
    """An effect whose outcome is unknown is decided by a person; Skip gives its result."""
    process = stage.kernel.spawn(stage.scene.programs.release, 9)
    await stage.question("Change 9 ")
    question = stage.kernel.interrupts.create_interrupt(
        process.pid, "in_doubt", question="Was charge performed? retry, skip or fail"
    )
    await browser_page.go("/inbox")
    card = browser_page.page.locator(f"article.question[data-key={question.id}]")
    await card.wait_for()
    assert [await button.inner_text() for button in await card.get_by_role("button").all()] == ["Retry", "Skip", "Fail"]
    await card.get_by_role("textbox").fill("charge 77")
    await card.get_by_role("button", name="Skip").click()
    answer = await stage.until(lambda: _response(stage, question))
    assert (answer.decision, answer.data) == ("skip", "charge 77")


async def test_a_question_is_answered_without_a_script(stage: Stage, new_page: NewPage) -> None:
    """The form of a question is an ordinary form."""
    question = await _release(stage, 12)
    async with new_page(java_script_enabled=False) as page:
        await page.page.goto(stage.url + "/inbox")
        await page.page.get_by_role("textbox").fill("3.1")
        await page.page.get_by_role("button", name="Answer").click()
        await page.page.get_by_text("No question waits for you").wait_for()
        assert page.page.url == stage.url + "/inbox"
    assert _response(stage, question).text == "3.1"


async def test_a_question_that_was_answered_elsewhere_goes_away(stage: Stage, browser_page: WatchedPage) -> None:
    """The page of one person follows what another one, or a program, answers."""
    question = await _ask(stage)
    await browser_page.go("/inbox")
    await browser_page.shown("article.question")
    await stage.kernel.resolve_interrupt(question.id, {"approved": False, "text": "no, thanks"})
    await browser_page.shown("#ended >> text=denied: no, thanks")
    await browser_page.page.locator("article.question").wait_for(state="detached")


@pytest.mark.long
async def test_a_viewer_answers_nothing(stage: Stage, new_page: NewPage) -> None:
    """A viewer sees the question; its buttons are disabled and say why, and the keys do nothing."""
    question = await _ask(stage)
    async with new_page(token=VIEWER) as page:
        await page.go("/inbox")
        button = page.page.get_by_role("button", name="Approve")
        assert await button.is_disabled()
        assert "viewer" in (await page.page.locator("form.answer fieldset").get_attribute("title") or "")
        await page.page.keyboard.press("j")
        await page.page.keyboard.press("y")
        await page.page.keyboard.press("y")
    assert _response(stage, question) is None


@pytest.mark.parametrize("key", ["g i", "?"])
async def test_the_keys_of_every_page(browser_page: WatchedPage, key: str) -> None:
    """`g i` opens the inbox from anywhere, and `?` lists the keys."""
    for press in key.split():
        await browser_page.page.keyboard.press(press)
    if key == "?":
        await browser_page.shown("dialog >> text=all keys")
    else:
        await browser_page.page.wait_for_url("**/inbox")


# ---------------------------------------------------------------- what no key may do
@pytest.mark.parametrize("has_script", [True, False])
async def test_enter_in_a_remark_decides_nothing(stage: Stage, new_page: NewPage, has_script: bool) -> None:
    """Enter in a field presses the first button of a form, which is Approve or Retry: here it presses none."""
    question = await _ask(stage)
    doubt = stage.kernel.interrupts.create_interrupt(question.pid, "in_doubt", question="Was it charged?")
    async with new_page(java_script_enabled=has_script) as page:
        await page.page.goto(stage.url + "/inbox")
        for row in (question, doubt):
            field = page.page.locator(f"article.question[data-key={row.id}]").get_by_role("textbox")
            await field.fill("no, not before Monday")
            await field.press("Enter")
        await page.page.wait_for_timeout(300)
        assert await page.page.locator("article.question").count() == 2
    assert (_response(stage, question), _response(stage, doubt)) == (None, None)


async def test_a_key_that_is_held_down_answers_one_question(stage: Stage, browser_page: WatchedPage) -> None:
    """The next question gets the mark, and its answer needs a press of its own, after it could be seen."""
    refund = await _ask(stage)
    another = stage.kernel.interrupts.create_interrupt(refund.pid, "confirmation", question="Really?")
    await browser_page.go("/inbox")
    page = browser_page.page
    await page.keyboard.press("j")
    await browser_page.shown("article.question[data-chosen]")
    await page.evaluate(
        """() => new MutationObserver((changes) => changes.forEach(({ target }) => target.hasAttribute("data-chosen") &&
          document.dispatchEvent(new KeyboardEvent("keydown", { key: "y", bubbles: true }))))
          .observe(document.body, { subtree: true, attributeFilter: ["data-chosen"] })"""
    )
    await page.keyboard.down("y")
    await stage.until(lambda: _response(stage, refund))
    await page.locator(f"article.question[data-key={refund.id}]").wait_for(state="detached")
    for _ in range(10):
        await page.keyboard.down("y")  # as long as it is held down, the browser repeats it
    await page.wait_for_timeout(700)
    for _ in range(3):
        await page.keyboard.down("y")
    await page.keyboard.up("y")
    assert _response(stage, another) is None


async def test_a_key_sends_no_empty_answer(stage: Stage, browser_page: WatchedPage) -> None:
    """A question for a text: `y` leads to its field, and Answer wants something written."""
    release = await _release(stage, 22)
    await browser_page.go("/inbox")
    await browser_page.page.keyboard.press("j")
    await browser_page.page.keyboard.press("y")
    await browser_page.page.keyboard.type("4.2")
    assert await browser_page.page.get_by_role("textbox").input_value() == "4.2"
    assert _response(stage, release) is None


async def test_no_key_answers_behind_the_list_of_keys(stage: Stage, browser_page: WatchedPage) -> None:
    question = await _ask(stage)
    await browser_page.go("/inbox")
    await browser_page.page.keyboard.press("j")
    await browser_page.page.keyboard.press("?")
    await browser_page.shown("dialog >> text=all keys")
    await browser_page.page.keyboard.press("y")
    await browser_page.page.keyboard.press("Escape")
    await browser_page.page.locator("dialog[open]").wait_for(state="detached")
    assert _response(stage, question) is None
    await browser_page.page.keyboard.press("n")
    answer = await stage.until(lambda: _response(stage, question))
    assert answer.approved is False


async def test_an_answered_question_goes_without_a_stream(stage: Stage, browser_page: WatchedPage) -> None:
    """The events do not come: the page reads its questions again after an answer all the same."""
    browser_page.expected += ["ERR_FAILED", "net::ERR"]
    question = await _ask(stage)
    await browser_page.page.route("**/api/events?*", lambda route: route.abort())
    await browser_page.go("/inbox")
    await browser_page.page.get_by_role("button", name="Approve").click()
    await browser_page.page.locator("article.question").wait_for(state="detached")
    assert _response(stage, question).approved is True
