"""The inbox on the server: which questions a person sees, what its forms do, and who may answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lyra.server.dashboard.pages.inbox import CHOICES, WAYS
from lyra.server.owners import make_owned_pid, spawn_for
from tests.server.dashboard.support import (
    ADA,
    BOB,
    VIEWER,
    Served,
    elements,
    logged_in,
    served,
    texts,
)


async def asks(ctx: Any, question: str, kind: str = "confirmation") -> str:
    answer = await ctx.ask(question, kind=kind, message="It is about money.")
    return f"{answer.approved} {answer.text}"


async def _asked(parts: Served, question: str, kind: str = "confirmation", user: str = "") -> Any:
    if user:
        spawn_for(parts.kernel, user, asks, question, kind, pid=make_owned_pid("run", user, "asks"))
    else:
        parts.kernel.spawn(asks, question, kind)
    while True:
        for interrupt in parts.kernel.interrupts.pending():
            if interrupt.question == question:
                return interrupt
        await asyncio.sleep(0.01)


def _buttons(page: str) -> list[str]:
    return [str(row["value"]) for row in elements(page, "button") if row.get("name") == "choice"]


@served(asks)
async def test_a_question_says_what_it_is_about_and_what_follows(parts: Served) -> None:
    """Question, message, who asks, what a yes and a no lead to, when it expires, and the buttons of its kind."""
    await _asked(parts, "Pay $5?")
    async with logged_in(parts) as browser:
        page = await browser.page("/inbox")
        said = texts(page)
        for part in ("Pay $5?", "It is about money.", "On yes", "On no", "No answer", "expires", "confirmation"):
            assert part in said
        assert _buttons(page) == ["approve", "deny"]
        region = await browser.page("/inbox", region="questions")
        assert region.startswith("<section")
        assert "<nav" not in region


@served(asks)
async def test_each_kind_has_its_choices(parts: Served) -> None:
    """What can be answered is the table of the module; a text answers a clarification."""
    question = await _asked(parts, "Which version?", "clarification")
    async with logged_in(parts) as browser:
        assert _buttons(await browser.page("/inbox")) == ["answer"]
        answer = await browser.post(f"/acts/inbox/{question.id}", {"choice": "answer", "text": "2.1"})
        assert (answer.status_code, answer.headers["location"]) == (303, "../../inbox")
        assert parts.kernel.interrupts.get(question.id).response.text == "2.1"
        assert "answered" in texts(await browser.page("/inbox"))
        assert {name for way in WAYS.values() for name in way.choices} == set(CHOICES)


@pytest.mark.parametrize(("choice", "approved"), [("approve", True), ("deny", False)])
def test_a_form_approves_and_denies(choice: str, approved: bool) -> None:
    """The remark goes with the answer, and the program goes on with both."""

    @served(asks)
    async def run(parts: Served) -> None:
        question = await _asked(parts, "Pay $5?")
        async with logged_in(parts) as browser:
            await browser.post(f"/acts/inbox/{question.id}", {"choice": choice, "text": "because"})
        ended = await parts.kernel.process(question.pid).wait()
        assert ended.result == f"{approved} because"

    run()


@served(asks)
async def test_a_choice_that_does_not_exist_is_refused(parts: Served) -> None:
    question = await _asked(parts, "Pay $5?")
    async with logged_in(parts) as browser:
        assert (await browser.post(f"/acts/inbox/{question.id}", {"choice": "maybe"})).status_code == 400
        assert (await browser.post("/acts/inbox/int_none", {"choice": "deny"})).status_code == 404
        assert parts.kernel.interrupts.get(question.id).status == "pending"


@served(asks)
async def test_a_person_sees_and_answers_only_their_own_questions(parts: Served) -> None:
    """Ada's question is in Ada's inbox and the operator's, not in Bob's; Bob is refused, and so is a viewer."""
    question = await _asked(parts, "Pay Ada's $5?", user="ada")
    path = f"/acts/inbox/{question.id}"
    async with logged_in(parts, BOB) as bob, logged_in(parts, VIEWER) as viewer, logged_in(parts, ADA) as ada:
        assert "Pay Ada" not in await bob.page("/inbox")
        assert "Pay Ada" in await ada.page("/inbox")
        assert "Pay Ada" in await viewer.page("/inbox")
        assert (await bob.post(path, {"choice": "approve"})).status_code == 404
        assert (await viewer.post(path, {"choice": "approve"})).status_code == 403
        assert parts.kernel.interrupts.get(question.id).status == "pending"
        assert (await ada.post(path, {"choice": "approve"})).status_code == 303


@served(asks)
async def test_an_answer_needs_the_token_of_the_form(parts: Served) -> None:
    """A form of another page, which has the cookie and not the token, answers nothing."""
    question = await _asked(parts, "Pay $5?")
    async with logged_in(parts) as browser:
        path = f"/acts/inbox/{question.id}"
        answer = await browser.http.post(path, data={"choice": "approve"}, headers={"sec-fetch-site": "same-origin"})
        assert answer.status_code == 403
        answer = await browser.post(path, {"choice": "approve"}, origin="http://evil.example")
        assert answer.status_code == 403
        assert parts.kernel.interrupts.get(question.id).status == "pending"


@served(asks)
async def test_what_cannot_be_seen_is_shown_by_its_code(parts: Served) -> None:
    """A question cannot say one thing and look like another: direction marks and controls are visible."""
    await _asked(parts, "Pay \u202e05$\x00?")
    async with logged_in(parts) as browser:
        assert "Pay ⟨U+202E⟩05$⟨U+0000⟩?" in texts(await browser.page("/inbox"))


@served(asks)
async def test_an_empty_inbox_says_what_would_be_there(parts: Served) -> None:
    async with logged_in(parts) as browser:
        page = await browser.page("/inbox")
        assert "No question waits for you" in texts(page)
        assert "ctx.ask" in page
