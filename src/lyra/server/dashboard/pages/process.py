"""One process: who it is, what it does, its budget, mailbox and conversation, its trace, and what happened to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core.codec import to_plain
from lyra.errors import ConfigError, LyraError
from lyra.server.dashboard.html import Child, Html, join, tag
from lyra.server.dashboard.layout import link, page, region
from lyra.server.dashboard.process_acts import act_buttons
from lyra.server.dashboard.sentences import SENTENCES
from lyra.server.dashboard.views.budget import budget_bars
from lyra.server.dashboard.views.conversation import conversation, speaker
from lyra.server.dashboard.views.event_lines import EventSentences, lines_list
from lyra.server.dashboard.views.facts import facts_row
from lyra.server.dashboard.views.grant import grant_words
from lyra.server.dashboard.views.waterfall import WATERFALL_SCRIPT, waterfall
from lyra.server.dashboard.words import copied_id, moment, money, state
from lyra.server.http.api.traces import own_spans
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer
from lyra.server.http.processes.live_tree import TREE_EVENTS, LiveTree, ProcessRow
from lyra.server.owners import owner_if_known

if TYPE_CHECKING:
    from lyra.kernel.process.process import Process
    from lyra.observe.spans import Span


_LINES: Final = 40
_MESSAGES_SHOWN: Final = 20
_MESSAGE_CHARS: Final = 300
_SPANS_SHOWN: Final = 200
_TALK_EVENTS: Final = ("agent.answered", "agent.began", "message.received", "model.called", "tool.called")


async def _process(call: HttpCall) -> RawAnswer:
    pid = call.require_process(call.path["pid"])
    row = call.parts.shared(LiveTree).row(pid, call.caller)
    process = call.kernel.processes.get(pid)
    if process is not None and process.known_as != pid:  # the run of a guard: its page is the guard's
        return RawAnswer(b"", "text/plain", 303, {"location": link(call, "processes", process.known_as)})
    if row is None:  # an entry of the table that ended and was forgotten meanwhile
        raise ConfigError(f"process {pid} has no page")
    title, beside = (row.name, row.pid) if row.name not in ("", row.pid) else (row.pid, "")
    if process is None:
        who = region(call, "who", TREE_EVENTS, _who(call, row, None))
        return page(call, title, who, wide=True, beside=beside)
    run = process.stands_for or process
    return page(
        call,
        title,
        region(call, "who", TREE_EVENTS, _head(call, row), _who(call, row, process)),
        tag(
            "div",
            tag(
                "div", _conversation(call, process), _trace(call, process, await _spans(call, process)), class_="stack"
            ),
            tag(
                "div", _budget(call, process), _mailbox(call, run), _rights(process), _events(call, pid), class_="stack"
            ),
            class_="columns process",
        ),
        scripts=(WATERFALL_SCRIPT,),
        wide=True,
        beside=beside,
    )


# ---------------------------------------------------------------- who it is
def _head(call: HttpCall, row: ProcessRow) -> Html:
    doing = row.doing if row.state in ("working", "blocked", "dormant", "ended", "failed") else None
    return tag("div", tag("p", state(row.state, doing or None)), act_buttons(call, row.pid), class_="bar spread")


def _who(call: HttpCall, row: ProcessRow, process: Process | None) -> Html:
    now = call.now
    facts: list[tuple[str, Child]] = [
        ("Pid", copied_id(row.pid, chars_max=40)),
        ("Runs", tag("code", row.program)),
        ("Started by", _link_to(call, row.parent) if row.parent else "the outside"),
        *_supervision(call, row, process),
        ("User", owner_if_known(call.kernel, row.pid) or "–"),
        ("Since", moment(row.created_at, now)),
        ("Cost", money(row.cost_micro_usd)),
    ]
    if row.children:
        facts.append(("Started", _children(call, row)))
    if process is not None and process.exit is not None:
        error = process.exit.error
        reason = process.exit.reason if error is None else f"{process.exit.reason}: {error}"
        facts.append(("Ended", tag("span", moment(process.ended_at, now), " ", reason)))
        successor = _successor(process)
        if successor is not None:
            facts.append(("Started again as", tag("a", successor.pid, href=link(call, "processes", successor.pid))))
    if process is not None and call.kernel.taint.tainted(row.pid):
        facts.append(("Marked", "has read text from outside"))
    return facts_row(facts)


def _successor(process: Process) -> Process | None:
    """The live process that the supervisor started in the place of one that ended."""
    siblings = () if process.parent is None or not process.name else (process.parent.children or {}).values()
    return next((row for row in siblings if row.alive and row.name == process.name and row is not process), None)


def _supervision(call: HttpCall, row: ProcessRow, process: Process | None) -> list[tuple[str, Child]]:
    plans = call.kernel.supervisors.plans
    facts: list[tuple[str, Child]] = []
    parent = None if process is None else process.parent
    own = plans.get(row.pid)
    if own is not None and own.guards:
        facts.append(("Supervised", f"restarted when it fails, at most {own.max_restarts} times in {own.window_s:g} s"))
    elif parent is not None and parent.pid in plans:
        facts.append(("Supervisor", tag("span", _link_to(call, parent.pid), f" {row.restarts} restarts")))
    if row.strategy and own is not None:
        words = f"{row.strategy}, at most {own.max_restarts} restarts in {own.window_s:g} s, {row.restarts} so far"
        facts.append(("Supervises", words))
    return facts


def _children(call: HttpCall, row: ProcessRow) -> Html:
    children = call.parts.shared(LiveTree).children(row.pid, call.caller)
    shown = [[_link_to(call, child.pid), " "] for child in children[:12]]
    more = f"and {len(children) - 12} more" if len(children) > 12 else ""
    return tag("span", shown, more)


def _link_to(call: HttpCall, pid: str) -> Html:
    process = call.kernel.processes.get(pid)
    name = pid if process is None else process.name or pid
    return tag("a", name, href=link(call, "processes", pid), title=pid)


# ---------------------------------------------------------------- what it has
def _budget(call: HttpCall, process: Process) -> Html:
    return region(call, "budget", ("effect.started", "effect.finished"), tag("h2", "Budget"), budget_bars(process))


def _mailbox(call: HttpCall, run: Process) -> Html:
    waiting = list(run.inbox or ())
    rows = [tag("li", tag("code", _short(message)), data_key=seq) for seq, message in waiting[:_MESSAGES_SHOWN]]
    if len(waiting) > _MESSAGES_SHOWN:
        rows.append(tag("li", f"and {len(waiting) - _MESSAGES_SHOWN} more", class_="note"))
    content = tag("ol", rows, class_="mailbox") if rows else tag("p", "No message waits.", class_="note")
    return region(call, "mailbox", ("message.sent", "message.received"), tag("h2", "Mailbox"), content)


def _short(message: Any) -> str:
    try:
        text = message if isinstance(message, str) else msgspec.json.encode(message, enc_hook=to_plain).decode()
    except (TypeError, ValueError, msgspec.MsgspecError):
        text = type(message).__name__
    return text if len(text) <= _MESSAGE_CHARS else f"{text[: _MESSAGE_CHARS - 1]}…"


def _rights(process: Process) -> Html:
    return tag("section", tag("h2", "May do"), grant_words(process.grant))


def _events(call: HttpCall, pid: str) -> Html:
    lines = call.parts.shared(EventSentences).last(call.caller, _LINES, pid=pid)
    content = lines_list(lines, {}) if lines else tag("p", "Nothing happened since the server began.", class_="note")
    return region(call, "events", tuple(SENTENCES), tag("h2", "Events"), content)


# ---------------------------------------------------------------- what it said and did
def _conversation(call: HttpCall, process: Process) -> Html | None:
    try:
        agent = call.kernel.agent(process.pid)
    except LyraError:  # a program that is no agent, or whose agent is not known here
        return None
    messages = agent.messages
    name = (process.stands_for or process).program.partition(":")[2]
    talk = conversation(messages, (), agent=name, person=speaker(call, process), is_running=False)
    content = tag("div", talk, class_="talk") if messages else tag("p", "Nothing was said yet.", class_="note")
    return region(call, "conversation", _TALK_EVENTS, tag("h2", "Conversation"), content)


async def _spans(call: HttpCall, process: Process) -> list[Span]:
    pids = {process.pid, (process.stands_for or process).pid}
    return [span for span in await own_spans(call) if span.pid in pids][-_SPANS_SHOWN:]


def _trace(call: HttpCall, process: Process, spans: list[Span]) -> Html | None:
    """The newest trace of the process; an agent that did nothing yet has an empty place for it."""
    if not spans and not (process.stands_for or process).program.startswith("agent:"):
        return None

    def href(span: Span) -> str:
        return link(call, "traces", span.trace_id, query={"span": span.span_id}) + "#call"

    content: Child = tag("p", "It has called no model and no tool yet.", class_="note")
    if spans:
        newest = spans[-1].trace_id
        shown = [span for span in spans if span.trace_id == newest]
        whole = tag("p", tag("a", "The whole trace", href=link(call, "traces", newest)))
        content = join(waterfall(shown, href=href), whole)
    return region(
        call,
        "trace",
        ("model.called", "tool.called", "agent.answered"),
        tag("h2", "Trace"),
        content,
        every_ms=1_000,
    )


ENDPOINTS: Final = (
    Endpoint(
        name="pages.process",
        method="GET",
        path="/processes/{pid}",
        summary="One process",
        handler=_process,
        is_documented=False,
    ),
)
