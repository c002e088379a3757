"""The inbox: the questions that wait for a person, each with what it is about and what every answer leads to.

`CHOICES` is the table of the answers; `WAYS` says which of them a kind of question takes and what a yes and a no mean.
Each question is a form that works without a script; `static/inbox.js` adds the keys and answers without loading the
page again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lyra.core.checking.check import one_of
from lyra.core.codec import to_plain
from lyra.core.ids import to_address
from lyra.core.secrets.visible import visible
from lyra.kernel.interrupts.service import unknown_interrupt
from lyra.server.dashboard.gathering import PageSource, Told, gather
from lyra.server.dashboard.html import Child, Html, join, tag
from lyra.server.dashboard.layout import act_form, link, page, region
from lyra.server.dashboard.words import empty, moment, render_copyable_id, state
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer
from lyra.server.owners import owner_if_known

if TYPE_CHECKING:
    from lyra.kernel.interrupts.interrupt import Interrupt


EVENTS: Final = ("interrupt.created", "interrupt.resolved", "interrupt.expired", "interrupt.cancelled")
_ENDED_SHOWN: Final = 12
_TEXT_CHARS_MAX: Final = 100_000


class AnswerChoice(NamedTuple):
    """One answer: the label of its button, what it sets in the answer, and how it looks."""

    label: str
    answer: dict[str, Any]
    look: str = ""


CHOICES: Final[dict[str, AnswerChoice]] = {
    "approve": AnswerChoice("Approve", {"approved": True}, "primary"),
    "deny": AnswerChoice("Deny", {"approved": False}),
    "answer": AnswerChoice("Answer", {}, "primary"),
    "retry": AnswerChoice("Retry", {"decision": "retry"}, "primary"),
    "skip": AnswerChoice("Skip", {"decision": "skip"}),
    "fail": AnswerChoice("Fail", {"decision": "fail"}, "danger"),
}


class Way(NamedTuple):
    """How questions of a kind are answered: the choices, and what happens on a yes and on a no, in words."""

    choices: tuple[str, ...]
    consequences: tuple[tuple[str, str], ...]
    field: str = "A remark (may stay empty)"


_YES_NO: Final = (
    ("On yes", "It goes on as it asked."),
    ("On no", "It does not do this; it is told no, with your remark, and goes on from there."),
)
WAYS: Final[dict[str, Way]] = {
    "confirmation": Way(("approve", "deny"), _YES_NO),
    "agent_review": Way(("approve", "deny"), _YES_NO),
    "checkpoint": Way(("approve", "deny"), _YES_NO),
    "clarification": Way(("answer",), (("Your answer", "It goes on with the text that you write."),), "Your answer"),
    "in_doubt": Way(
        ("retry", "skip", "fail"),
        (
            ("Retry", "It is done again. Right if it was not done before the crash."),
            ("Skip", "It counts as done, and what you write is its result."),
            ("Fail", "It counts as failed, and the process handles the error."),
        ),
        "The result, for Skip",
    ),
}
# Enter in a field presses the first button of its form. Where that decides something, the first is one that cannot be
# pressed, so that a remark is never a yes.
_NO_DEFAULT: Final = tag("button", type="submit", disabled=True, hidden=True)
_OTHER: Final = Way(("approve", "deny", "answer"), _YES_NO, "An answer or a remark")


def _list_visible(call: HttpCall) -> list[Interrupt]:
    rows = call.kernel.interrupts.list_interrupts(None)
    return [row for row in rows if call.caller.owns(row.user_id or owner_if_known(call.kernel, row.pid))]


def _render_visible(text: str) -> str:
    """Text that a person decides by: characters that cannot be seen, or turn the text around, as their codes."""
    return "\n".join(map(visible, text.split("\n")))


class ShownQuestion(msgspec.Struct, kw_only=True):
    """A question as it is shown: `asker` is the name of the process, "" where that is gone; `above` is the process that
    it works for."""

    id: str
    pid: str
    kind: str
    question: str
    message: str
    status: str
    created_at: float
    due: float | None
    resolved_at: float | None
    data: str  # what came with it, as JSON
    answer: str
    asker: str = ""
    above: str = ""
    above_name: str = ""


def describe_question(call: HttpCall, interrupt: Interrupt) -> ShownQuestion:
    """Return a question with who asks it."""
    question = ShownQuestion(
        id=interrupt.id,
        pid=interrupt.pid,
        kind=interrupt.kind,
        question=interrupt.question,
        message=interrupt.message,
        status=interrupt.status,
        created_at=interrupt.created_at,
        due=interrupt.due,
        resolved_at=interrupt.resolved_at,
        data=""
        if interrupt.data in (None, {}, [])
        else msgspec.json.encode(interrupt.data, enc_hook=to_plain).decode(),
        answer=_answer_words(interrupt),
    )
    process = call.kernel.processes.get(interrupt.pid)
    if process is not None:
        question.asker = process.name or process.program.partition("agent:")[2] or process.pid
        if process.parent is not None:
            question.above, question.above_name = process.parent.pid, process.parent.name or process.parent.pid
        elif call.kernel.core.remote is not None:
            question.above = question.above_name = call.kernel.core.remote.acts.parents.get(process.pid, "")
    return question


def _asker(call: HttpCall, question: ShownQuestion) -> Html:
    """Who asks: the process by its name, and the process that it works for."""
    if not question.asker:
        return render_copyable_id(question.pid)
    above = join(" for ", _process_link(call, question.above, question.above_name)) if question.above else None
    return join(_process_link(call, question.pid, question.asker), above)


def _process_link(call: HttpCall, pid: str, name: str) -> Html:
    return tag("a", name, href=link(call, "processes", pid))


def _facts(call: HttpCall, interrupt: ShownQuestion, way: Way, now: float) -> Html:
    rows: list[Child] = [tag("dt", "Asks"), tag("dd", _asker(call, interrupt))]
    for label, words in way.consequences:
        rows += [tag("dt", label), tag("dd", words)]
    if interrupt.due is None:
        ending: Child = "It waits for you as long as it takes."
    else:
        ending = join("The question expires ", moment(interrupt.due, now), " and counts as not answered.")
    rows += [tag("dt", "No answer"), tag("dd", ending)]
    return tag("dl", *rows, class_="facts")


def _data(interrupt: ShownQuestion) -> Html | None:
    if not interrupt.data:
        return None
    plain = msgspec.json.format(interrupt.data, indent=2)
    return tag("details", tag("summary", "What came with it"), tag("pre", tag("code", plain)))


def question_card(call: HttpCall, interrupt: ShownQuestion, now: float) -> Html:
    """One question that waits, as a form."""
    way = WAYS.get(interrupt.kind, _OTHER)
    buttons = [
        tag(
            "button",
            CHOICES[name].label,
            name="choice",
            value=name,
            class_=CHOICES[name].look or None,
            data_answer=msgspec.json.encode(CHOICES[name].answer).decode(),
        )
        for name in way.choices
    ]
    field_id = f"text-{interrupt.id}"
    is_text = way.choices == ("answer",)
    text = tag(
        "input",
        id=field_id,
        name="text",
        autocomplete="off",
        maxlength=_TEXT_CHARS_MAX,
        required=is_text,
        class_="remark",
    )
    label = tag("label", way.field, for_=field_id, class_="unseen" if len(way.choices) == 1 else None)
    form = act_form(
        call,
        link(call, "acts/inbox", interrupt.id),
        None if is_text else _NO_DEFAULT,
        tag("div", label, text, class_="field"),
        tag("div", buttons, class_="bar"),
        class_="answer",
        data_question=interrupt.id,
    )
    heading = f"q-{interrupt.id}"
    return tag(
        "article",
        tag(
            "p",
            state("pending", interrupt.kind.replace("_", " ")),
            tag("span", "asked ", moment(interrupt.created_at, now), class_="note"),
            class_="bar spread top",
        ),
        tag("h2", _render_visible(interrupt.question or interrupt.message or interrupt.kind), id=heading),
        tag("p", _render_visible(interrupt.message), class_="about")
        if interrupt.question and interrupt.message
        else None,
        _facts(call, interrupt, way, now),
        _data(interrupt),
        form,
        class_="card question",
        data_key=interrupt.id,
        tabindex="-1",
        aria_labelledby=heading,
    )


def _answer_words(interrupt: Interrupt) -> str:
    given = interrupt.response
    if given is None:
        return interrupt.reason
    word = given.decision or ("" if given.approved is None else "approved" if given.approved else "denied")
    return ": ".join(part for part in (word, given.text) if part)


def _render_ended_row(call: HttpCall, interrupt: ShownQuestion, now: float) -> Html:
    return tag(
        "tr",
        tag("td", state(interrupt.status)),
        tag("td", _render_visible(interrupt.question or interrupt.message)),
        tag("td", interrupt.answer),
        tag("td", _asker(call, interrupt)),
        tag("td", moment(interrupt.resolved_at, now), class_="figure-cell"),
        data_key=interrupt.id,
    )


def _render_ended_table(call: HttpCall, rows: list[ShownQuestion], now: float) -> Html | None:
    if not rows:
        return None
    head = tag("tr", [tag("th", text, scope="col") for text in ("", "Question", "Answer", "Asked by", "When")])
    body = tag("tbody", [_render_ended_row(call, row, now) for row in rows])
    table = tag("table", tag("caption", "InboxContent that have ended", class_="unseen"), tag("thead", head), body)
    scroll = tag("div", table, class_="scroll", tabindex="0", role="region", aria_label="InboxContent that have ended")
    return join(tag("h2", "Answered lately"), scroll)


class InboxContent(msgspec.Struct):
    waiting: list[ShownQuestion]
    ended: list[ShownQuestion]  # the last ones


async def _read(call: HttpCall) -> InboxContent:
    rows = _list_visible(call)
    ended = sorted((row for row in rows if row.status != "pending"), key=lambda row: -(row.resolved_at or 0.0))
    waiting = [describe_question(call, row) for row in rows if row.status == "pending"]
    return InboxContent(waiting, [describe_question(call, row) for row in ended[:_ENDED_SHOWN]])


def _join(_call: HttpCall, told: Sequence[Told[InboxContent]]) -> InboxContent:
    for shard, questions in told:
        for row in (*questions.waiting, *questions.ended):
            row.pid, row.above = to_address(shard, row.pid), to_address(shard, row.above)
    waiting = sorted((row for _, questions in told for row in questions.waiting), key=lambda row: row.created_at)
    ended = sorted((row for _, questions in told for row in questions.ended), key=lambda row: -(row.resolved_at or 0.0))
    return InboxContent(waiting, ended[:_ENDED_SHOWN])


SOURCE: Final = PageSource("questions", InboxContent, _read, _join)


async def _inbox(call: HttpCall) -> RawAnswer:
    now = call.now
    questions = await gather(call, SOURCE)
    waiting, ended = questions.waiting, questions.ended
    what = "No question waits for you. Agents that ask a person, or need a permission, show up here."
    cards = [question_card(call, row, now) for row in waiting] or empty(what, "await ctx.ask('Publish?')")
    keys = [tag("kbd", key) for key in "jkyne"]
    hint = tag("p", keys[0], " ", keys[1], " move, ", keys[2], " yes, ", keys[3], " no, ", keys[4], " write")
    return page(
        call,
        "Inbox: interrupts",
        tag("div", hint, class_="note keys-hint"),
        region(call, "questions", EVENTS, tag("div", cards, class_="questions"), aria_label="InboxContent that wait"),
        region(call, "ended", EVENTS, _render_ended_table(call, ended, now), aria_label="Ended questions"),
        scripts=("inbox.js",),
    )


async def _answer(call: HttpCall) -> RawAnswer:
    interrupt = call.kernel.interrupts.get_interrupt(call.path["interrupt_id"])
    call.caller.require_owner(
        interrupt.user_id or owner_if_known(call.kernel, interrupt.pid), unknown_interrupt, interrupt.id
    )
    name = one_of(call.form.get("choice", ""), CHOICES, "a choice")
    text = call.form.get("text", "")[:_TEXT_CHARS_MAX]
    answer: dict[str, Any] = {**CHOICES[name].answer, "text": text}
    if name == "skip":
        answer["data"] = text
    await call.kernel.resolve_interrupt(interrupt.id, answer)
    return RawAnswer(b"", "text/plain", 303, {"location": link(call, "inbox")})


ENDPOINTS: Final = (
    Endpoint("pages.inbox", "GET", "/inbox", "The questions that wait for a person", _inbox),
    Endpoint("acts.answer", "POST", "/acts/inbox/{interrupt_id}", "Answer a question", _answer),
)
