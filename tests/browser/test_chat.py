"""A person talks to an agent in the page: the answer streams, tool calls are folded inline, Stop stops it."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.browser.conftest import SLOW, NewPage
from tests.browser.stage import Stage
from tests.browser.watched_page import WatchedPage


async def _say(page: WatchedPage, text: str) -> None:
    await page.page.get_by_role("textbox").fill(text)
    await page.page.keyboard.press("Enter")


def _running(stage: Stage) -> list[Any]:
    pids = [pid for pid in stage.kernel.processes if pid.startswith("chat")]
    return [pid for pid in pids if stage.kernel.agent(pid).current is not None]


async def test_an_answer_streams_with_its_tool_calls_and_its_cost(stage: Stage, browser_page: WatchedPage) -> None:
    """The answer grows word by word; the tool call is folded with its result; the turn has a cost."""
    page = browser_page.page
    await browser_page.go("/chat")
    await page.get_by_role("link", name="guide").click()
    await _say(browser_page, "How is the team?")
    await browser_page.shown("article.said.you >> text=How is the team?")
    await browser_page.shown("article.said.agent >> text=Let me look.")
    tool = await browser_page.shown("details.tool")
    assert "team_status" in await tool.inner_text()
    assert not await tool.get_by_text("processes alive").first.is_visible()
    await browser_page.shown("article.said.agent >> text=Everything is supervised")
    cost = page.locator("article.said.agent .cost")
    await cost.get_by_text("tokens in").wait_for()
    assert "$" in await cost.inner_text()
    await page.locator("#talk[data-running=no]").wait_for()
    await tool.locator("summary").click()
    await tool.locator("pre", has_text="processes alive").wait_for()
    await page.locator("#talks", has_text="How is the team?").wait_for()
    await page.reload()
    await browser_page.shown("article.said.agent >> text=Everything is supervised")
    assert "session_id=" in page.url


@SLOW
async def test_stop_stops_the_answer_on_the_server(stage: Stage, browser_page: WatchedPage) -> None:
    """Stop gives up the turn on the server, what was said stays, and the conversation goes on."""
    page = browser_page.page
    await browser_page.go("/chat/guide")
    stop = page.get_by_role("button", name="Stop")
    assert not await stop.is_visible()
    await _say(browser_page, "Tell me a long story")
    await browser_page.shown("article.said.agent >> text=Line 3 of a long answer")
    assert _running(stage)
    await stop.click()
    await stage.until(lambda: not _running(stage))
    await browser_page.shown("article.said.agent >> text=stopped by you")
    assert "Line 59" not in await page.locator("article.said.agent").inner_text()
    await _say(browser_page, "What is this?")
    await browser_page.shown("article.said.agent >> text=You are looking at a team of agents")
    await page.locator("#talk[data-running=no]").wait_for()


async def test_an_answer_goes_on_after_a_lost_connection(stage: Stage, browser_page: WatchedPage) -> None:
    """The browser reads on behind the last event that it has: nothing is missing and nothing is doubled."""
    browser_page.expected += ["ERR_INCOMPLETE_CHUNKED_ENCODING", "ERR_CONNECTION_RESET", "ERR_EMPTY_RESPONSE"]
    page = browser_page.page
    await browser_page.go("/chat/guide")
    await _say(browser_page, "Tell me a long story")
    await browser_page.shown("article.said.agent >> text=Line 3 of a long answer")
    for stream in list(stage.server._faces[0]._server.server_state.connections):  # type: ignore[attr-defined]
        stream.transport.abort()
    await browser_page.shown("article.said.agent >> text=Line 59 of a long answer")
    await page.locator("#talk[data-running=no]").wait_for()
    text = await page.locator("article.said.agent .text").inner_text()
    assert [line for line in range(1, 60) if text.count(f"Line {line} of") != 1] == []


@SLOW
async def test_a_page_that_is_opened_in_the_middle_shows_the_rest(stage: Stage, browser_page: WatchedPage) -> None:
    """A conversation that is loaded again while the agent answers goes on there, from the beginning of the answer."""
    page = browser_page.page
    await browser_page.go("/chat/guide")
    await _say(browser_page, "Tell me a long story")
    await browser_page.shown("article.said.agent >> text=Line 3 of a long answer")
    await page.reload()
    await browser_page.shown("article.said.agent >> text=Line 5 of a long answer")
    assert await page.locator("article.said").count() == 2
    await page.get_by_role("button", name="Stop").click()
    await stage.until(lambda: not _running(stage))
    await page.locator("#talk[data-running=no]").wait_for()


async def test_a_question_of_the_agent_is_answered_in_the_conversation(stage: Stage, browser_page: WatchedPage) -> None:
    """An agent that asks a person shows its question where the person talks to it."""
    page = browser_page.page
    await browser_page.go("/chat/support")
    await _say(browser_page, "Please pay order B-77 back")
    card = await browser_page.shown("#asked article.question")
    assert "Refund $120.00 for order B-77?" in await card.inner_text()
    await card.get_by_role("button", name="Approve").click()
    await browser_page.shown("article.said.agent >> text=Done: $120.00 paid back.")
    await page.locator("#talk[data-running=no]").wait_for()
    await page.locator("#asked article.question").wait_for(state="detached")


@SLOW
async def test_a_conversation_without_a_script(stage: Stage, new_page: NewPage) -> None:
    """The forms are ordinary forms: the message is sent, and the page has the answer when it is loaded again."""
    async with new_page(java_script_enabled=False) as page:
        await page.page.goto(stage.url + "/chat/guide")
        await page.page.get_by_role("textbox").fill("Tell me a long story")
        await page.page.get_by_role("button", name="Send").click()
        await page.page.get_by_role("button", name="Stop").click()
        await stage.until(lambda: not _running(stage))
        await page.page.get_by_role("textbox").fill("What is this?")
        await page.page.get_by_role("button", name="Send").click()
        await stage.until(lambda: not _running(stage))
        await page.page.reload()
        await page.page.get_by_text("You are looking at a team of agents").wait_for()


# ---------------------------------------------------------------- turns that were not begun in this page
@SLOW
async def test_a_turn_of_another_page_is_taken_up_and_stopped(stage: Stage, new_page: NewPage) -> None:
    """Two pages of one conversation: what is said in one is drawn in the other, which can stop it and go on."""
    async with new_page() as first, new_page() as second:
        await first.go("/chat/guide")
        await _say(first, "What is this?")
        await first.shown("article.said.agent >> text=You are looking at a team of agents")
        await first.page.locator("#talk[data-running=no]").wait_for()
        await second.page.goto(first.page.url)
        await second.page.locator("#live[data-live=open]").wait_for()
        await _say(first, "Tell me a long story")
        await second.shown("article.said.agent >> text=Line 3 of a long answer")
        assert await second.page.get_by_role("button", name="Send").is_disabled()
        await second.page.get_by_role("button", name="Stop").click()
        await stage.until(lambda: not _running(stage))
        for page in (first, second):
            await page.page.locator("#talk[data-running=no]").wait_for()
        await _say(second, "What is this?")
        await second.page.locator("article.said.you").nth(2).wait_for()
        await second.page.locator("#talk[data-running=no]").wait_for()


async def test_a_question_from_the_page_of_the_process_is_shown(stage: Stage, browser_page: WatchedPage) -> None:
    """It is no answer of before that is shown, and the conversation goes on afterwards."""
    page = browser_page.page
    await browser_page.go("/chat/guide")
    await _say(browser_page, "What is this?")
    await page.locator("#talk[data-running=no]").wait_for()
    await page.locator("#talk[data-pid^=chat]").wait_for()
    pid = await page.locator("#talk").get_attribute("data-pid")
    assert pid is not None
    stage.kernel.agent(pid).send_async("Tell me a long story")
    await browser_page.shown("article.said.you >> text=Tell me a long story")
    await page.locator("article.said.agent", has_text="Line 59 of a long answer").wait_for()
    await page.locator("#talk[data-running=no]").wait_for()
    assert await page.locator("article.said").count() == 4
    await _say(browser_page, "What is this?")
    await page.locator("article.said.agent", has_text="You are looking at").nth(1).wait_for()


async def test_the_end_of_an_answer_takes_the_focus_from_nothing(stage: Stage, browser_page: WatchedPage) -> None:
    """A person who has gone to a link while the agent answers stays there."""
    page = browser_page.page
    await browser_page.go("/chat/guide")
    await _say(browser_page, "How is the team?")
    await page.get_by_role("link", name="Costs").focus()
    await browser_page.shown("article.said.agent >> text=Everything is supervised")
    await page.locator("#talk[data-running=no]").wait_for()
    assert await page.evaluate("document.activeElement.textContent") == "Costs"


async def test_what_is_written_while_a_message_is_sent_is_kept(stage: Stage, browser_page: WatchedPage) -> None:
    """The next message is begun before the server has taken the last one; one that is not taken comes back."""
    page = browser_page.page
    sent, may_go = asyncio.Event(), asyncio.Event()

    async def hold(route: Any) -> None:
        sent.set()
        await may_go.wait()
        await route.continue_()

    await browser_page.go("/chat/guide")
    await page.route("**/acts/chat/**", hold)
    await _say(browser_page, "What is this?")
    await sent.wait()
    await page.keyboard.type("and now")
    may_go.set()
    await browser_page.shown("article.said.agent >> text=You are looking at a team of agents")
    await page.locator("#talk[data-running=no]").wait_for()
    assert await page.get_by_role("textbox").input_value() == "and now"
    await page.unroute("**/acts/chat/**")
    await page.route("**/acts/chat/**", lambda route: route.abort())
    browser_page.expected += ["net::ERR"]
    await page.keyboard.press("Enter")
    await page.locator("#announce", has_text="The server is not reached").wait_for()
    assert await page.get_by_role("textbox").input_value() == "and now"


@SLOW
async def test_stop_holds_before_the_conversation_is_known(stage: Stage, browser_page: WatchedPage) -> None:
    """Stop is pressed while the first message is on its way: the answer is given up as soon as there is one."""
    page = browser_page.page
    sent, may_go = asyncio.Event(), asyncio.Event()

    async def hold(route: Any) -> None:
        sent.set()
        await may_go.wait()
        await route.continue_()

    await browser_page.go("/chat/guide")
    await page.route("**/acts/chat/guide", hold)
    await _say(browser_page, "Tell me a long story")
    await sent.wait()
    await page.get_by_role("button", name="Stop").click()
    may_go.set()
    await browser_page.shown("article.said.agent >> text=stopped by you")
    await stage.until(lambda: not _running(stage))
