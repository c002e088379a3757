"""Events as plain sentences: one table from the kind of an Event to what a person is told about it.

A kind that is not in the table is not told on the overview; `/api/events` has all of them. A sentence takes the data of
the Event and never raises: what is missing is left out, and long texts are cut.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lyra.core.event import Event, ModelCalled, is_failed_end
from lyra.server.dashboard.html import Html, tag
from lyra.server.dashboard.words import STATES, clock_time, duration, money
from lyra.server.owners import owner_if_known

if TYPE_CHECKING:
    from lyra.server.http.parts import HttpParts
    from lyra.server.identity import Caller


_CHARS_MAX: Final = 200
Data = Mapping[str, Any]


class Told(NamedTuple):
    """What an Event comes to: the colour of a state, and a sentence whose subject is the process."""

    state: str
    text: str


def sentence_of(kind: str, data: Data) -> Told | None:
    """Return the sentence of an Event; None for a kind that is not told."""
    row = SENTENCES.get(kind)
    if row is None:
        return None
    told = row(data)
    line = " ".join(told.text.split())
    return told._replace(text=line if len(line) <= _CHARS_MAX else f"{line[: _CHARS_MAX - 1]}…")


def _text(data: Data, *names: str) -> str:
    """Return the first of these fields that has a text."""
    return next((str(data[name]) for name in names if data.get(name) not in (None, "")), "")


def _error(data: Data) -> str:
    error = data.get("error")
    return _text(error, "message", "code") if isinstance(error, Mapping) else str(error or "")


def _with(words: str, more: str) -> str:
    return f"{words}: {more}" if more else words


def _cost(cost_usd: Any) -> str:
    return "" if not isinstance(cost_usd, (int, float)) else f", {money(round(cost_usd * 1_000_000))}"


def _describe_end(data: Data) -> Told:
    reason, error = _text(data, "reason"), _error(data)
    if reason == "normal":
        return Told("done", "ended")
    if reason in ("shutdown", "killed", "linked"):
        return Told("done", {"shutdown": "was stopped", "killed": "was killed", "linked": "ended with another"}[reason])
    if not is_failed_end(data):
        return Told("done", f"was stopped: {reason}")
    return Told("failed", _with("crashed", error or reason))


def _describe_answer(data: Data) -> Told:
    tokens = (data.get("input_tokens") or 0) + (data.get("output_tokens") or 0)
    if data.get("status") == "ok":
        return Told("done", f"answered, {tokens} tokens{_cost(data.get('cost_usd'))}")
    if data.get("status") == "cancelled":
        return Told("done", "was stopped before it answered")
    return Told("failed", _with("gave no answer", _text(data, "status")))


def _describe_model_call(data: Data) -> Told:
    try:
        call = ModelCalled.from_data(data)
    except msgspec.ValidationError:
        return Told("running", "asked a model")
    if call.status == "ok":
        return Told("running", f"asked {call.model}, {duration(call.latency_ms / 1000)}{_cost(call.cost_usd)}")
    if call.status == "cancelled":
        return Told("done", f"was stopped while it asked {call.model}")
    return Told("failed", f"{call.model} failed: {call.status}")


def _describe_tool_call(data: Data) -> Told:
    seconds = duration((data.get("latency_ms") or 0) / 1000)
    if data.get("status") == "ok":
        return Told("running", f"ran {_text(data, 'tool')}, {seconds}")
    if data.get("error") == "cancelled":
        return Told("done", f"was stopped while it ran {_text(data, 'tool')}")
    return Told("failed", _with(f"{_text(data, 'tool')} failed", _text(data, "status")))


def _over_budget(data: Data) -> Told:
    over = data.get("over")
    first = over[0] if isinstance(over, (list, tuple)) and over and isinstance(over[0], Mapping) else {}
    return Told("waiting", _with("passed a limit of its budget", _text(first, "dimension").replace("_", " ")))


def _describe_limit(data: Data) -> Told:
    return Told("failed", _with("was stopped by a limit", _text(data, "resource") or _error(data)))


def _restarting(data: Data) -> Told:
    return Told("waiting", _with(f"restart {data.get('starts') or 1} of {_text(data, 'id')}", _text(data, "reason")))


def _describe_act(data: Data) -> Told:
    words = f"{_text(data, 'act')} {_text(data, 'target')}".rstrip()
    outcome = _text(data, "outcome")
    return Told("done" if outcome == "ok" else "failed", words if outcome == "ok" else f"{words} ({outcome})")


def _fix_words(state: str, words: str, *fields: str) -> Callable[[Data], Told]:
    """Return a sentence of fixed words, with the first of these fields behind it."""
    return lambda data: Told(state, _with(words, _text(data, *fields)))


SENTENCES: Final[dict[str, Callable[[Data], Told]]] = {
    "process.created": _fix_words("running", "started"),
    "process.terminated": _describe_end,
    "process.diverged": _fix_words("failed", "stopped: its program no longer fits its journal"),
    "process.dormant": _fix_words("waiting", "waits for a program that is not known here", "program", "agent"),
    "process.tainted": _fix_words("waiting", "has read text from outside", "by"),
    "agent.answered": _describe_answer,
    "model.called": _describe_model_call,
    "tool.called": _describe_tool_call,
    "tool.refused": _fix_words("failed", "was refused a tool", "reason", "tool"),
    "capability.denied": _fix_words("failed", "has no right to", "effect"),
    "child.restarting": _restarting,
    "supervisor.gave_up": _fix_words("failed", "gave up: a child failed too often", "id"),
    "interrupt.created": _fix_words("needs-you", "waits for a person", "question", "message"),
    "interrupt.resolved": _fix_words("done", "has its answer"),
    "interrupt.expired": _fix_words("failed", "got no answer in time"),
    "interrupt.cancelled": _fix_words("done", "took its question back"),
    "pcb.interrupt_created": _fix_words("needs-you", "waits for a person", "question", "message"),
    "pcb.interrupt_ended": _fix_words("done", "question is over", "status"),
    "answer.continued": _fix_words("running", "goes on with an answer that was cut off"),
    "answer.cut": _fix_words("failed", "had an answer cut off at its longest"),
    "budget.cut": _fix_words("failed", "ran out of budget in the middle of an answer"),
    "budget.overrun": _fix_words("failed", "cost more than was set aside", "effect"),
    "budget.warning": _over_budget,
    "resource.exceeded": _describe_limit,
    "resource.warning": _fix_words("waiting", "used most of a quota", "resource"),
    "health.alert": _fix_words("failed", "needs a look", "alert", "message"),
    "pipeline.started": _fix_words("running", "began the stage", "stage"),
    "pipeline.ended": _fix_words("done", "came to the end of its pipeline", "reason"),
    "pipeline.waiting": _fix_words("needs-you", "pipeline waits for an answer"),
    "service.registered": _fix_words("running", "is a service here now"),
    "service.health_changed": _fix_words("waiting", "service is now", "status"),
    "vesper.mode": _fix_words("waiting", "node has another mode", "to", "mode"),
    "vesper.diverged": _fix_words("failed", "node: its two paths gave different answers"),
    "person.acted": _describe_act,
    "store.full": _fix_words("failed", "the store has no room: every process stands still"),
    "store.failed": _fix_words("failed", "the store is damaged or gone"),
}


# The last events as sentences, kept for the pages that show them. One listener for each server, a bounded list.

_LINES_KEPT: Final = 2_000
_SUBJECTS: Final = ("name", "agent", "service_name", "node", "pipeline")  # of events that are of no process
_SHAPES: Final = {look.colour: look.shape for look in reversed(STATES.values())}


class EventLine(NamedTuple):
    """One line; `number` tells it apart from the others."""

    number: int
    time: float
    pid: str
    name: str
    kind: str
    state: str
    text: str
    owner: str


class EventSentences:
    """See the module."""

    def __init__(self, parts: HttpParts) -> None:
        self._kernel = parts.kernel
        self._lines: deque[EventLine] = deque(maxlen=_LINES_KEPT)
        self._count = 0
        self._kernel.on_event(self._hear, kinds=tuple(SENTENCES))

    def _hear(self, event: Event) -> None:
        told = sentence_of(event.kind, event.data)
        if told is None:
            return
        self._count += 1
        pid = event.pid
        process = self._kernel.processes.get(pid)
        shown = None if process is None else self._kernel.processes.get(process.known_as) or process
        known = "" if shown is None else shown.name or shown.program.partition("agent:")[2]
        name = known or _event_text(event.data, *_SUBJECTS) or pid or event.kind.partition(".")[0]
        text = told.text
        if event.kind == "child.restarting":
            name, text = _event_text(event.data, "id") or name, self._restart_words(pid) or text
        elif event.kind == "pipeline.started":
            text = f"{text}: {self._stage(pid, event.data)}"
        elif event.kind == "person.acted":
            name = _event_text(event.data, "person")
        user = event.data.get("user_id")
        owner = user if isinstance(user, str) and user else owner_if_known(self._kernel, pid) if pid else ""
        known_as = pid if shown is None else shown.pid
        line = EventLine(self._count, event.time, known_as, name, event.kind, told.state, text, owner)
        self._lines.append(line)

    def _restart_words(self, pid: str) -> str:
        """`restart 2 of 3 in 60 s`: how many of the restarts that its supervisor allows are used up."""
        plan, table = self._kernel.supervisors.plans.get(pid), self._kernel.supervisors.tables.get(pid)
        if plan is None or table is None or plan.max_restarts < 0:
            return ""
        return f"restart {len(table.times)} of {plan.max_restarts} in {plan.window_s:g} s"

    def _stage(self, pid: str, data: Mapping[str, Any]) -> str:
        """Return the stage that a pipeline began."""
        session = self._kernel.orchestrator.state.sessions.get(pid)
        tokens = () if session is None else session.tokens
        return next((token.stage for token in tokens if token.id == data.get("token")), "")

    def last(self, caller: Caller, count: int, *, pid: str = "") -> list[EventLine]:
        """Return the last lines that a caller may see, the newest first; of one process, or of all."""
        lines: list[EventLine] = []
        for line in reversed(self._lines):
            if (not pid or line.pid == pid) and caller.owns(line.owner):
                lines.append(line)
                if len(lines) == count:
                    break
        return lines


def _event_text(data: Mapping[str, Any], *names: str) -> str:
    return next((str(data[name]) for name in names if data.get(name) not in (None, "")), "")


def lines_list(lines: list[EventLine], links: dict[str, str], *, label: str = "Events") -> Html:
    """Lines as a list; `links` has the address of each process that has a page."""
    rows = [
        tag(
            "li",
            clock_time(line.time),
            tag("span", _SHAPES.get(line.state, "○"), class_="shape", data_state=line.state, aria_hidden="true"),
            tag("a", line.name, href=links[line.pid], class_="who", title=line.pid)
            if line.pid in links
            else tag("span", line.name, class_="who"),
            tag("span", line.text, class_="what"),
            data_key=line.number,
        )
        for line in lines
    ]
    return tag("ol", rows, class_="events", aria_label=label)
