"""One process: who it is, what it does, its budget, mailbox and conversation, its trace, and what happened to it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from lyra.core.budgets.budget import DIMENSIONS
from lyra.core.codec import to_plain
from lyra.core.ids import to_address
from lyra.core.rights.capability import ANY_NAME, VERBS, Capability, Grant
from lyra.errors import ConfigError, LyraError
from lyra.server.dashboard.conversation import conversation, speaker
from lyra.server.dashboard.html import Child, Html, facts_row, join, tag
from lyra.server.dashboard.layout import act_form, link, page, region, see_other
from lyra.server.dashboard.sentences import SENTENCES, EventSentences, lines_list
from lyra.server.dashboard.waterfall import WATERFALL_SCRIPT, waterfall
from lyra.server.dashboard.words import moment, money, render_copyable_id, state
from lyra.server.http.api.processes import restart_process, why_no_restart
from lyra.server.http.api.traces import list_own_spans
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer
from lyra.server.http.live_tree import TREE_EVENTS, LiveTree, ProcessRow
from lyra.server.owners import owner_if_known

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lyra.kernel.process.process import Process
    from lyra.observe.spans import Span


_LINES: Final = 40
_MESSAGES_SHOWN: Final = 20
_MESSAGE_CHARS: Final = 300
_SPANS_SHOWN: Final = 200
_TALK_EVENTS: Final = ("agent.answered", "agent.began", "message.received", "model.called", "tool.called")


async def _process(call: HttpCall) -> RawAnswer:
    pid = call.require_process(call.path["pid"])
    row = call.parts.get_shared(LiveTree).row(pid, call.caller)
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


def _head(call: HttpCall, row: ProcessRow) -> Html:
    doing = row.doing if row.state in ("working", "blocked", "dormant", "ended", "failed") else None
    return tag("div", tag("p", state(row.state, doing or None)), act_buttons(call, row.pid), class_="bar spread")


def _who(call: HttpCall, row: ProcessRow, process: Process | None) -> Html:
    now = call.now
    facts: list[tuple[str, Child]] = [
        ("Pid", render_copyable_id(to_address(call.shard, row.pid) if call.shard else row.pid, chars_max=40)),
        ("Runs", tag("code", row.program)),
        ("Started by", _link_to(call, row.parent) if row.parent else "the outside"),
        *_supervision(call, row, process),
        ("User", owner_if_known(call.kernel, row.pid) or "–"),
        ("Since", moment(row.created_at, now)),
        ("Cost", money(row.cost_micro_usd)),
    ]
    if row.children:
        children = call.parts.get_shared(LiveTree).children(row.pid, call.caller)
        shown = [[_link_to(call, child.pid), " "] for child in children[:12]]
        more = f"and {len(children) - 12} more" if len(children) > 12 else ""
        facts.append(("Started", tag("span", shown, more)))
    if process is not None and process.exit is not None:
        error = process.exit.error
        reason = process.exit.reason if error is None else f"{process.exit.reason}: {error}"
        facts.append(("Ended", tag("span", moment(process.ended_at, now), " ", reason)))
        successor = _successor(process)
        if successor is not None:
            facts.append(("Started again as", tag("a", successor.pid, href=link(call, "processes", successor.pid))))
    if process is not None and call.kernel.taint.is_tainted(row.pid):
        facts.append(("Marked", "has read text from outside"))
    return facts_row(facts)


def _successor(process: Process) -> Process | None:
    """Return the live process that the supervisor started in the place of one that ended."""
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


def _link_to(call: HttpCall, pid: str) -> Html:
    process = call.kernel.processes.get(pid)
    name = pid if process is None else process.name or pid
    return tag("a", name, href=link(call, "processes", pid), title=pid)


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
    lines = call.parts.get_shared(EventSentences).last(call.caller, _LINES, pid=pid)
    content = lines_list(lines, {}) if lines else tag("p", "Nothing happened since the server began.", class_="note")
    return region(call, "events", tuple(SENTENCES), tag("h2", "Events"), content)


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
    return [span for span in await list_own_spans(call) if span.pid in pids][-_SPANS_SHOWN:]


def _trace(call: HttpCall, process: Process, spans: list[Span]) -> Html | None:
    """Return the newest trace of the process; an agent that did nothing yet has an empty place for it."""
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


# What a person can do with a process: Stop, Restart and Ask, as forms of its page.

_RESTART_S: Final = 10.0  # a form waits this long for the process to stop; the supervisor continues
_MESSAGE_CHARS_MAX: Final = 100_000


def act_buttons(call: HttpCall, pid: str) -> Html:
    """Return the forms of one process."""
    process = call.kernel.processes.get(pid)
    ended = "" if process is not None and process.alive else "It has ended"
    return tag(
        "div",
        _ask_form(call, pid, ended),
        act_form(
            call,
            link(call, "acts/processes", pid, "restart"),
            tag("button", "Restart", type="submit"),
            why_not=ended or why_no_restart(call.kernel, pid),
        ),
        act_form(
            call,
            link(call, "acts/processes", pid, "stop"),
            tag("button", "Stop", type="submit", class_="danger"),
            why_not=ended,
        ),
        class_="bar acts",
    )


def _ask_form(call: HttpCall, pid: str, why_not: str) -> Html:
    return act_form(
        call,
        link(call, "acts/processes", pid, "ask"),
        tag("label", "Message", for_="ask-message", class_="unseen"),
        tag(
            "input",
            id="ask-message",
            name="message",
            required=True,
            maxlength=_MESSAGE_CHARS_MAX,
            placeholder="Ask or tell it something",
            autocomplete="off",
        ),
        tag("button", "Ask", type="submit"),
        why_not=why_not,
        class_="bar ask",
    )


async def _stop(call: HttpCall) -> RawAnswer:
    pid = call.require_process(call.path["pid"])
    await call.kernel.terminate(pid, call.form.get("reason") or "stopped by a person", force=True)
    return see_other(call, "processes", pid)


async def _restart(call: HttpCall) -> RawAnswer:
    pid = call.require_process(call.path["pid"])
    process = call.kernel.processes.get(pid)
    above = "" if process is None or process.parent is None else process.parent.pid
    with suppress(TimeoutError):
        async with asyncio.timeout(_RESTART_S):
            return see_other(call, "processes", await restart_process(call.kernel, pid))
    return see_other(call, "processes", above or pid)


async def _ask(call: HttpCall) -> RawAnswer:
    pid = call.require_process(call.path["pid"])
    message = call.form.get("message", "").strip()
    if not message or len(message) > _MESSAGE_CHARS_MAX:
        raise ConfigError("the message is empty or too long", key="message")
    try:
        agent = call.kernel.agent(pid)
    except LyraError:  # a program that is no agent takes the text as it is
        await call.kernel.send(pid, message)
    else:
        agent.send_async(message, wait_for_person=True)  # the answer is shown in its conversation
    return see_other(call, "processes", pid)


ENDPOINTS: Final = (
    Endpoint("pages.process", "GET", "/processes/{pid}", "One process", _process),
    Endpoint("acts.process_stop", "POST", "/acts/processes/{pid}/stop", "Stop a process", _stop),
    Endpoint(
        "acts.process_restart",
        "POST",
        "/acts/processes/{pid}/restart",
        "Have its supervisor start a process again",
        _restart,
    ),
    Endpoint("acts.process_ask", "POST", "/acts/processes/{pid}/ask", "Put a question or a message to a process", _ask),
)


# A budget as bars: what was used, what is set aside for calls under way, and what is left, for each limit.

_WIDTH: Final = 400
_HEIGHT: Final = 12
_WORDS: Final = {
    "usd": "money",
    "input_tokens": "tokens in",
    "output_tokens": "tokens out",
    "llm_calls": "model calls",
    "tool_calls": "tool calls",
    "hops": "hops",
    "iterations": "iterations",
}


def budget_bars(process: Process) -> Html:
    """Return a line for each dimension that has a limit or was used. A limit that is shared with others has no bar:
    what they used of it is not shown."""
    rows = [line for dimension in DIMENSIONS if (line := _line(process, dimension)) is not None]
    seconds = process.budget.seconds
    if seconds is not None:
        rows.append(tag("li", tag("span", "time"), tag("span", f"at most {seconds:g} s", class_="figure-cell")))
    if not rows:
        return tag("p", "No limit, and nothing spent yet.", class_="note")
    return tag("ul", rows, class_="budget")


def _line(process: Process, dimension: str) -> Html | None:
    budget, is_own = process.budget, process.has_own_budget
    used = int(budget.used(dimension)) if is_own else process.spent[dimension]
    aside = int(budget.reserved(dimension)) if is_own else 0
    limit = budget.limit(dimension)
    if limit is None and not used:
        return None
    amount = money if dimension == "usd" else "{:,}".format
    words, bar = amount(used), None
    if limit is not None and is_own:
        words += f" of {amount(int(limit))}"
        bar = _bar(used, aside, int(limit), f"{_WORDS[dimension]}: {words}")
    elif limit is not None:
        words += f"; with others at most {amount(int(limit))}"
    if aside:
        words += f", {amount(aside)} set aside"
    return tag(
        "li",
        tag("span", _WORDS[dimension]),
        bar,
        tag("span", words, class_="figure-cell"),
        data_key=dimension,
    )


def _bar(used: int, aside: int, limit: int, label: str) -> Html:
    whole = max(limit, used + aside, 1)
    used_px, aside_px = _WIDTH * used / whole, _WIDTH * aside / whole
    return tag(
        "svg",
        tag("rect", x=0, y=0, width=_WIDTH, height=_HEIGHT, rx=2, class_="budget-whole"),
        tag("rect", x=0, y=0, width=f"{used_px:.1f}", height=_HEIGHT, rx=2, class_="budget-used"),
        tag("rect", x=f"{used_px:.1f}", y=0, width=f"{aside_px:.1f}", height=_HEIGHT, class_="budget-aside"),
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
        class_="budget-bar",
        data_over="true" if used + aside >= limit else None,
    )


# A grant in words: what a process may do, and what it may not.

_SHOWN_MAX: Final = 30


def grant_words(grant: Grant) -> Html:
    """Return the rules of a grant; of one that was narrowed on its way, each step that still holds."""
    layers = [layer for layer in grant.layers if not any(str(rule) == ANY_NAME for rule in layer)]
    parts: list[Html] = []
    if not layers:
        parts.append(tag("p", "Everything" + (", except:" if grant.deny else ".")))
    for layer in layers:
        parts.append(_rules(layer) if layer else tag("p", "Nothing."))
        if layer is not layers[-1]:
            parts.append(tag("p", "and of these only:", class_="note"))
    if grant.deny:
        parts.append(tag("p", "Never:", class_="note") if layers else tag("span", ""))
        parts.append(_rules(grant.deny))
    return tag("div", parts, class_="grant")


def _rules(rules: Iterable[Capability]) -> Html:
    listed = list(rules)
    rows = [_rule(rule) for rule in listed[:_SHOWN_MAX]]
    if len(listed) > _SHOWN_MAX:
        rows.append(tag("li", f"and {len(listed) - _SHOWN_MAX} more", class_="note"))
    return tag("ul", rows)


def _rule(rule: Capability) -> Html:
    text = str(rule)
    verb = VERBS.get(text.partition(":")[0])
    return tag("li", tag("code", text), f" {verb.sentence}" if verb is not None else None)
