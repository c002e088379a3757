"""The chat on the server: the list, a conversation with its tool calls and costs, and the forms."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from lyra import Agent, tool
from lyra.models.sim import SimProvider
from tests.server.dashboard.support import ADA, BOB, VIEWER, Browser, Served, elements, logged_in, served, texts
from tests.server.http.support import echo, scripted

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>"


@tool
def look(what: str) -> str:
    """Look something up."""
    return f"{HOSTILE} for {what}"


def looker() -> Agent[Any]:
    replies = [
        {"tool": "look", "text": f"It says {HOSTILE}"},
        {"text": "I look.", "tool_calls": [{"name": "look", "arguments": {"what": HOSTILE}}]},
    ]
    script = {"replies": replies, "price": {"input_usd_per_mtok": "3", "output_usd_per_mtok": "15"}}
    return Agent("looker", model=SimProvider(script), tools=[look], description=HOSTILE)


def slow() -> Agent[Any]:
    reply = {"text": "word " * 1_000, "chunk_s": 1.0}
    return Agent("slow", model=SimProvider({"replies": [reply]}))


async def _said(browser: Browser, agent: str, message: str, session: str = "") -> str:
    """Say something and wait for the end of the answer; the address of the conversation."""
    answer = await browser.post(f"/acts/chat/{agent}", {"message": message, "session_id": session})
    assert answer.status_code == 303, answer.text
    address = answer.headers["location"].replace("../../", "/")
    while 'data-running="yes"' in await browser.page(address):
        await asyncio.sleep(0.01)
    return address


@served(echo(), looker())
async def test_a_conversation_has_its_tool_calls_and_its_cost_as_text(parts: Served) -> None:
    """What model, tool and person said is text; the call is folded; the turn has a cost; the list has the title."""
    async with logged_in(parts) as browser:
        address = await _said(browser, "looker", f"What is {HOSTILE}?")
        page = await browser.page(address)
        said = texts(page)
        assert f"What is {HOSTILE}?" in said
        assert f"It says {HOSTILE}" in said
        assert f"{HOSTILE} for {HOSTILE}" in said
        assert "tokens in" in said
        assert "this conversation: $0.00" in said
        assert [row for row in elements(page, "img") if row.get("onerror")] == []
        assert [row.get("open") for row in elements(page, "details")] == [None]
        assert "What is <script>alert(1)</script>" in texts(await browser.page("/chat"))


@served(echo())
async def test_a_conversation_goes_on(parts: Served) -> None:
    """The second message of a session belongs to the first."""
    async with logged_in(parts) as browser:
        address = await _said(browser, "echo", "one")
        session = address.partition("session_id=")[2]
        assert await _said(browser, "echo", "two", session) == address
        said = texts(await browser.page(address))
        assert said.index("one") < said.index("two")


@served(slow())
async def test_stop_gives_the_answer_up(parts: Served) -> None:
    """The page of a running answer has Stop and a link for browsers without a script; Stop ends it on the server."""
    async with logged_in(parts) as browser:
        answer = await browser.post("/acts/chat/slow", {"message": "speak"})
        address = answer.headers["location"].replace("../../", "/")
        page = await browser.page(address)
        assert 'data-running="yes"' in page
        assert "Show the answer" in page
        session = address.partition("session_id=")[2]
        pid = next(pid for pid in parts.kernel.processes if pid.startswith("chat"))
        assert parts.kernel.agent(pid).current is not None
        stopped = await browser.post("/acts/chat/slow/stop", {"session_id": session})
        assert stopped.headers["location"] == f"../../../chat/slow?session_id={session}"
        while parts.kernel.agent(pid).current is not None:
            await asyncio.sleep(0.01)
        assert 'data-running="no"' in await browser.page(address)


@served(echo())
async def test_a_script_is_told_the_session(parts: Served) -> None:
    """With `accept: application/json` the form answers with the session in place of a page."""
    async with logged_in(parts) as browser:
        answer = await browser.post("/acts/chat/echo", {"message": "hello"}, accept="application/json")
        session = answer.json()["session_id"]
        assert "hello" in texts(await browser.page(f"/chat/echo?session_id={session}"))


@served(echo())
async def test_conversations_are_their_users(parts: Served) -> None:
    """Bob neither sees nor goes on with Ada's conversation, and a viewer says nothing."""
    async with logged_in(parts, ADA) as ada, logged_in(parts, BOB) as bob, logged_in(parts, VIEWER) as viewer:
        address = await _said(ada, "echo", "a secret")
        session = address.partition("session_id=")[2]
        assert "a secret" not in await bob.page("/chat")
        assert "a secret" not in await bob.page(address)  # the page of an id that was not used yet
        answer = await bob.post("/acts/chat/echo", {"message": "x", "session_id": session})
        assert answer.status_code == 403
        assert (await bob.post("/acts/chat/echo/stop", {"session_id": session})).status_code == 404
        assert (await viewer.post("/acts/chat/echo", {"message": "x"})).status_code == 403
        assert [row for row in elements(await viewer.page("/chat/echo"), "fieldset") if "disabled" not in row] == []


@served(echo())
async def test_mistakes_are_told(parts: Served) -> None:
    """An empty message, an agent that does not exist."""
    async with logged_in(parts) as browser:
        assert (await browser.post("/acts/chat/echo", {"message": "  "})).status_code == 400
        assert (await browser.post("/acts/chat/nobody", {"message": "x"})).status_code == 404
        await browser.page("/chat/nobody", status=404)


@served(scripted("fails", {"error": {"kind": "bad_request", "message": "no"}}, retry=1))
async def test_an_answer_that_fails_says_why(parts: Served) -> None:
    """Also after the page is loaded again."""
    async with logged_in(parts) as browser:
        address = await _said(browser, "fails", "will you answer?")
        assert "The last message has no answer: " in texts(await browser.page(address))


@served(echo())
async def test_only_the_words_of_the_viewer_are_said_to_be_theirs(parts: Served) -> None:
    """A user's own words are "You"; the operator who reads them sees the user's name, in the chat and on the page of
    the process, and a viewer sees that the operator's are the operator's."""
    async with logged_in(parts, ADA) as ada, logged_in(parts) as operator, logged_in(parts, VIEWER) as viewer:
        hers = await _said(ada, "echo", "hello")
        own = await _said(operator, "echo", "good morning")
        (mine,) = (await parts.ada.get("/api/sessions")).json()["sessions"]
        assert _speakers(await ada.page(hers)) == ["You", "echo"]
        assert _speakers(await operator.page(hers)) == ["ada", "echo"]
        assert _speakers(await ada.page(f"/processes/{mine['pid']}")) == ["You", "echo"]
        assert _speakers(await operator.page(f"/processes/{mine['pid']}")) == ["ada", "echo"]
        assert _speakers(await operator.page(own)) == ["You", "echo"]
        assert _speakers(await viewer.page(own)) == ["Operator", "echo"]
        process = await parts.kernel.spawn(echo())
        await process.send("by a program")
        assert _speakers(await operator.page(f"/processes/{process.pid}")) == ["Program", "echo"]


def _speakers(page: str) -> list[str]:
    return re.findall(r'<article class="said \w+"><h3>([^<]*)</h3>', page)
