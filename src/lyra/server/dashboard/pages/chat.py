"""Chat: a person talks to an agent. The conversation list, one conversation, and the forms that say something or stop.

A conversation is a session of `http.chats`. The page has all that was said; `static/chat.js` reads the answer that is
on its way as server-sent events and draws it as `conversation` does. Without a script the forms work all the same, and
the page shows the answer when it is loaded again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lyra.errors import ConfigError, NoSuchSession
from lyra.server.dashboard.conversation import conversation, speaker
from lyra.server.dashboard.gathering import PageSource, Told, gather
from lyra.server.dashboard.html import Child, Html, join, tag
from lyra.server.dashboard.layout import act_form, link, page, region
from lyra.server.dashboard.pages.inbox import EVENTS as QUESTION_EVENTS
from lyra.server.dashboard.pages.inbox import describe_question, question_card
from lyra.server.dashboard.words import empty, moment, money
from lyra.server.http.directory import KnownAgent, refuse_if_draining
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer, RequestQuery

if TYPE_CHECKING:
    from lyra.agents.session.agent_process import AgentProcess


_LISTED_MAX: Final = 50
_TITLE_CHARS: Final = 60
_MESSAGE_CHARS_MAX: Final = 100_000


class ConversationQuery(RequestQuery):
    session_id: str = ""


class ChatContent(msgspec.Struct):
    """The agents, each with what it is for, and the conversations, the newest first."""

    agents: list[tuple[str, str]]
    talks: list[Talk]


class Talk(NamedTuple):
    """A conversation as the list shows it."""

    session_id: str
    pid: str
    agent: str
    title: str
    created_at: float
    alive: bool
    cost_micro_usd: int
    shard: str = ""  # of a cluster: where it is


# ---------------------------------------------------------------- the list
def _talks(call: HttpCall) -> list[Talk]:
    """Return the conversations of the caller, the newest first."""
    rows = []
    for session_id, process in call.parts.chats.sessions.list_for(call.caller):
        run = process.stands_for or process
        handle = None if call.kernel.missing_program(process) is not None else call.kernel.agent(process.pid)
        messages = () if handle is None else handle.messages
        title = next((message.text for message in messages if message.role == "user"), "")
        spent = int(process.spent.usd)
        agent = run.program.partition(":")[2]
        rows.append(Talk(session_id, process.pid, agent, title, process.created_at, process.alive, spent))
    return sorted(rows, key=lambda talk: -talk.created_at)[:_LISTED_MAX]


def _agents(call: HttpCall) -> list[KnownAgent]:
    return [agent for agent in call.parts.chats.directory.agents().values() if agent.declaration is not None]


async def _read(call: HttpCall) -> ChatContent:
    agents = [(row.name, "" if row.declaration is None else row.declaration.description) for row in _agents(call)]
    return ChatContent(agents, _talks(call))


def _join(_call: HttpCall, told: Sequence[Told[ChatContent]]) -> ChatContent:
    agents = {name: about for _, told_here in told for name, about in told_here.agents}
    talks = [talk._replace(shard=shard) for shard, told_here in told for talk in told_here.talks]
    return ChatContent(list(agents.items()), sorted(talks, key=lambda talk: -talk.created_at)[:_LISTED_MAX])


SOURCE: Final = PageSource("conversations", ChatContent, _read, _join)


def _agent_row(call: HttpCall, name: str, about: str, chosen: str) -> Html:
    current = "true" if name == chosen else None
    named = tag("a", name, href=link(call, "chat", name), aria_current=current)
    return tag("li", named, tag("p", about, class_="note") if about else None, data_key=name)


def _talk_row(call: HttpCall, talk: Talk, now: float, chosen: str) -> Html:
    title = talk.title if len(talk.title) <= _TITLE_CHARS else f"{talk.title[: _TITLE_CHARS - 1]}…"
    there = [f"shards/{talk.shard}/chat"] if talk.shard else ["chat"]
    address = link(call, *there, talk.agent, query={"session_id": talk.session_id})
    current = "true" if talk.session_id == chosen else None
    figures = tag(
        "p", talk.agent, " · ", moment(talk.created_at, now), " · ", money(talk.cost_micro_usd), class_="note"
    )
    name = tag("a", title or "(nothing said yet)", href=address, aria_current=current)
    return tag("li", name, figures, data_key=talk.session_id)


def _side(call: HttpCall, known: ChatContent, *, agent: str = "", session_id: str = "") -> Html:
    now = call.now
    talks = [_talk_row(call, talk, now, session_id) for talk in known.talks]
    agents = [_agent_row(call, name, about, "" if session_id else agent) for name, about in known.agents]
    listed = tag("ul", talks, class_="plain") if talks else tag("p", "None yet.", class_="note")
    body = join(
        tag("h2", "Agents"),
        tag("ul", agents, class_="plain") if agents else tag("p", "None.", class_="note"),
        tag("h2", "Conversations"),
        listed,
    )
    kinds = ("agent.began", "agent.answered")
    return region(
        call, "talks", kinds, body, every_ms=1_000, element="aside", class_="side", aria_label="Conversations"
    )


# ---------------------------------------------------------------- one conversation
def _handle(call: HttpCall, session_id: str) -> AgentProcess[Any] | None:
    """Return the session, if there is one already; the caller's own."""
    try:
        return call.parts.chats.handle(session_id, call.caller) if session_id else None
    except NoSuchSession:
        return None


def _composer(call: HttpCall, agent: str, session_id: str, *, is_running: bool) -> Html:
    session = tag("input", type="hidden", name="session_id", value=session_id)
    text = tag(
        "textarea",
        name="message",
        id="message",
        rows=2,
        required=True,
        maxlength=_MESSAGE_CHARS_MAX,
        placeholder=f"Say something to {agent}",
        autofocus=True,
    )
    say = act_form(
        call,
        link(call, "acts/chat", agent),
        session,
        tag("label", f"Your message to {agent}", for_="message", class_="unseen"),
        text,
        tag("button", "Send", class_="primary"),
        class_="say",
        id="say",
    )
    stop = act_form(
        call,
        link(call, "acts/chat", agent, "stop"),
        tag("input", type="hidden", name="session_id", value=session_id),
        tag("button", "Stop", class_="danger"),
        class_="stop",
        id="stop",
        hidden=not is_running,
    )
    return tag("div", say, stop, class_="composer")


def _head(call: HttpCall, known: KnownAgent, handle: AgentProcess[Any] | None) -> Html:
    models = tag("span", ", ".join(known.models) or "no model", class_="note")
    if handle is None:
        return tag("div", models, class_="bar spread")
    process = call.kernel.processes[handle.pid]
    spent = tag("span", "this conversation: ", tag("strong", money(int(process.spent.usd))))
    about = tag("a", "its process", href=link(call, "processes", handle.pid))
    return tag("div", models, tag("span", spent, " · ", about, class_="note"), class_="bar spread")


def _questions(call: HttpCall, pid: str) -> Html:
    """Return what the agent asks a person in this conversation, answered here as in the inbox."""
    now = call.now
    asked = call.kernel.interrupts.pending(pid) if pid else ()
    cards = [question_card(call, describe_question(call, row), now) for row in asked]
    return region(call, "asked", QUESTION_EVENTS, tag("div", cards, class_="questions"), aria_label="Questions to you")


def _talk(call: HttpCall, known: KnownAgent, session_id: str, handle: AgentProcess[Any] | None) -> Html:
    is_running = handle is not None and handle.current is not None
    content: Child
    failed: Child = None
    if handle is None:
        about = "" if known.declaration is None else known.declaration.description
        content = empty(
            f"{about or known.name}. Say something below: a conversation is a process and outlives a crash."
        )
    else:
        costs = [
            span.model_call
            for _, span in call.parts.records.spans()
            if span.kind == "model" and span.pid == handle.pid and span.status == "ok"
        ]
        failure = "" if is_running else call.parts.chats.last_failure(session_id, call.caller)
        failed = tag("p", "The last message has no answer: ", failure, class_="problem") if failure else None
        person = speaker(call, call.kernel.processes[handle.pid])
        content = conversation(handle.messages, costs, agent=known.name, person=person, is_running=is_running)
    again = tag("noscript", tag("p", tag("a", "Show the answer", href=_address(call, known.name, session_id))))
    return region(
        call,
        "talk",
        (),
        _head(call, known, handle),
        tag("div", content, failed, class_="log", role="log", aria_label="What was said", tabindex="0"),
        again if is_running else None,
        data_agent=known.name,
        data_session=session_id,
        data_pid="" if handle is None else handle.pid,
        data_running="yes" if is_running else "no",
        aria_label=f"Conversation with {known.name}",
    )


def _address(call: HttpCall, agent: str, session_id: str) -> str:
    return link(call, "chat", agent, query={"session_id": session_id})


_LEAD: Final = (
    "Talk to an agent. A conversation is a process: it has a budget, its tool calls are shown, it outlives a crash."
)


async def _chat(call: HttpCall) -> RawAnswer:
    known = await gather(call, SOURCE)
    agents = known.agents
    what = "Choose an agent to talk to it." if agents else "Agents that can be talked to are listed here."
    command = "" if agents else "kernel.register_agent('helper', Agent('helper', model=…))"
    place = tag("section", empty(what, command))
    return page(call, "Chat", tag("div", _side(call, known), place, class_="chat"), scripts=("chat.js",), lead=_LEAD)


async def _conversation(call: HttpCall) -> RawAnswer:
    query: ConversationQuery = call.query
    known = call.parts.chats.directory.get(call.path["agent"])
    handle = _handle(call, query.session_id)
    session_id = query.session_id if handle is not None else ""
    is_running = handle is not None and handle.current is not None
    body = tag(
        "section",
        _talk(call, known, session_id, handle),
        _questions(call, "" if handle is None else handle.pid),
        _composer(call, known.name, session_id, is_running=is_running),
        class_="conversation",
    )
    side = _side(call, await _read(call), agent=known.name, session_id=session_id)
    scripts = ("chat.js", "inbox.js")
    return page(call, known.name, tag("div", side, body, class_="chat"), scripts=scripts)


# ---------------------------------------------------------------- the forms
async def _say(call: HttpCall) -> RawAnswer:
    """Put a message to the agent. A script is told the session, a browser is sent to the conversation."""
    refuse_if_draining(call.parts.is_draining)
    message = call.form.get("message", "")[:_MESSAGE_CHARS_MAX]
    if not message.strip():
        raise ConfigError("the message is empty", hint="write something", key="message")
    chats = call.parts.chats
    agent = chats.directory.get(call.path["agent"]).name
    session_id, process = await chats.open(agent, call.caller, call.form.get("session_id", ""))
    await chats.begin(session_id, call.caller, process, message)
    if "application/json" in call.headers.get("accept", ""):
        return RawAnswer(msgspec.json.encode({"session_id": session_id}))
    return RawAnswer(b"", "text/plain", 303, {"location": _address(call, agent, session_id)})


async def _stop(call: HttpCall) -> RawAnswer:
    """Give up the answer that is on its way; the conversation continues."""
    session_id = call.form.get("session_id", "")
    call.parts.chats.cancel(session_id, call.caller)
    await call.kernel.durable()
    address = _address(call, call.path["agent"], session_id)
    return RawAnswer(b"", "text/plain", 303, {"location": address})


ENDPOINTS: Final = (
    Endpoint("pages.chat", "GET", "/chat", "The agents to talk to, and the conversations", _chat),
    Endpoint(
        "pages.conversation",
        "GET",
        "/chat/{agent}",
        "A conversation with an agent",
        _conversation,
        query=ConversationQuery,
    ),
    Endpoint("acts.chat", "POST", "/acts/chat/{agent}", "Say something to an agent", _say, is_work=True),
    Endpoint("acts.stop_answer", "POST", "/acts/chat/{agent}/stop", "Stop the answer that is on its way", _stop),
)
