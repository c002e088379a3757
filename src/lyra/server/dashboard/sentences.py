"""Events as plain sentences: one table from the kind of an Event to what a person is told about it.

A kind that is not in the table is not told on the overview; `/api/events` has all of them. A sentence takes the data of
the Event and never raises: what is missing is left out, and long texts are cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from lyra.core.event import ModelCalled, is_failed_end
from lyra.server.dashboard.words import duration, money

_CHARS_MAX: Final = 200
Data = Mapping[str, Any]


class Told(NamedTuple):
    """What an Event comes to: the colour of a state, and a sentence whose subject is the process."""

    state: str
    text: str


def sentence_of(kind: str, data: Data) -> Told | None:
    """The sentence of an Event; None for a kind that is not told."""
    row = SENTENCES.get(kind)
    if row is None:
        return None
    told = row(data)
    return told._replace(text=_cut(told.text))


def _cut(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _CHARS_MAX else f"{line[: _CHARS_MAX - 1]}…"


def _text(data: Data, *names: str) -> str:
    """The first of these fields that has a text."""
    return next((str(data[name]) for name in names if data.get(name) not in (None, "")), "")


def _error(data: Data) -> str:
    error = data.get("error")
    return _text(error, "message", "code") if isinstance(error, Mapping) else str(error or "")


def _with(words: str, more: str) -> str:
    return f"{words}: {more}" if more else words


def _cost(cost_usd: Any) -> str:
    return "" if not isinstance(cost_usd, (int, float)) else f", {money(round(cost_usd * 1_000_000))}"


def _ended(data: Data) -> Told:
    reason, error = _text(data, "reason"), _error(data)
    if reason == "normal":
        return Told("done", "ended")
    if reason in ("shutdown", "killed", "linked"):
        return Told("done", {"shutdown": "was stopped", "killed": "was killed", "linked": "ended with another"}[reason])
    if not is_failed_end(data):
        return Told("done", f"was stopped: {reason}")
    return Told("failed", _with("crashed", error or reason))


def _answered(data: Data) -> Told:
    tokens = (data.get("input_tokens") or 0) + (data.get("output_tokens") or 0)
    if data.get("status") == "ok":
        return Told("done", f"answered, {tokens} tokens{_cost(data.get('cost_usd'))}")
    if data.get("status") == "cancelled":
        return Told("done", "was stopped before it answered")
    return Told("failed", _with("gave no answer", _text(data, "status")))


def _called_model(data: Data) -> Told:
    try:
        call = ModelCalled.from_data(data)
    except msgspec.ValidationError:
        return Told("running", "asked a model")
    if call.status == "ok":
        return Told("running", f"asked {call.model}, {duration(call.latency_ms / 1000)}{_cost(call.cost_usd)}")
    if call.status == "cancelled":
        return Told("done", f"was stopped while it asked {call.model}")
    return Told("failed", f"{call.model} failed: {call.status}")


def _called_tool(data: Data) -> Told:
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


def _stopped_by_limit(data: Data) -> Told:
    return Told("failed", _with("was stopped by a limit", _text(data, "resource") or _error(data)))


def _restarting(data: Data) -> Told:
    return Told("waiting", _with(f"restart {data.get('starts') or 1} of {_text(data, 'id')}", _text(data, "reason")))


def _acted(data: Data) -> Told:
    words = f"{_text(data, 'act')} {_text(data, 'target')}".rstrip()
    outcome = _text(data, "outcome")
    return Told("done" if outcome == "ok" else "failed", words if outcome == "ok" else f"{words} ({outcome})")


def _plain(state: str, words: str, *fields: str) -> Callable[[Data], Told]:
    """A sentence of fixed words, with the first of these fields behind it."""
    return lambda data: Told(state, _with(words, _text(data, *fields)))


SENTENCES: Final[dict[str, Callable[[Data], Told]]] = {
    "process.created": _plain("running", "started"),
    "process.terminated": _ended,
    "process.diverged": _plain("failed", "stopped: its program no longer fits its journal"),
    "process.dormant": _plain("waiting", "waits for a program that is not known here", "program", "agent"),
    "process.tainted": _plain("waiting", "has read text from outside", "by"),
    "agent.answered": _answered,
    "model.called": _called_model,
    "tool.called": _called_tool,
    "tool.refused": _plain("failed", "was refused a tool", "reason", "tool"),
    "capability.denied": _plain("failed", "has no right to", "effect"),
    "child.restarting": _restarting,
    "supervisor.gave_up": _plain("failed", "gave up: a child failed too often", "id"),
    "interrupt.created": _plain("needs-you", "waits for a person", "question", "message"),
    "interrupt.resolved": _plain("done", "has its answer"),
    "interrupt.expired": _plain("failed", "got no answer in time"),
    "interrupt.cancelled": _plain("done", "took its question back"),
    "pcb.interrupt_created": _plain("needs-you", "waits for a person", "question", "message"),
    "pcb.interrupt_ended": _plain("done", "question is over", "status"),
    "answer.cut": _plain("failed", "had an answer cut off at its longest"),
    "budget.cut": _plain("failed", "ran out of budget in the middle of an answer"),
    "budget.overrun": _plain("failed", "cost more than was set aside", "effect"),
    "budget.warning": _over_budget,
    "resource.exceeded": _stopped_by_limit,
    "resource.warning": _plain("waiting", "used most of a quota", "resource"),
    "health.alert": _plain("failed", "needs a look", "alert", "message"),
    "pipeline.started": _plain("running", "began the stage", "stage"),
    "pipeline.ended": _plain("done", "came to the end of its pipeline", "reason"),
    "pipeline.waiting": _plain("needs-you", "pipeline waits for an answer"),
    "service.registered": _plain("running", "is a service here now"),
    "service.health_changed": _plain("waiting", "service is now", "status"),
    "vesper.mode": _plain("waiting", "node has another mode", "to", "mode"),
    "vesper.diverged": _plain("failed", "node: its two paths gave different answers"),
    "person.acted": _acted,
    "store.full": _plain("failed", "the store has no room: every process stands still"),
    "store.failed": _plain("failed", "the store is damaged or gone"),
}
