"""The audit of a store: what its journal tells of rights, refusals, limits, questions and answers.

For a run without an audit log. A journal has the questions to humans and their answers, which processes began with
which rights and how they ended, and the effects that a right or a limit stopped. What permission rules decided about
the calls of tools is only in an audit log (`audit`). Fields are cleaned as there. Reads Events, opens nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from lyra import errors
from lyra.core.event import Event
from lyra.observe.audit import clean_fields

_STOPPED: Final = frozenset(
    error.code
    for error in vars(errors).values()
    if isinstance(error, type) and issubclass(error, (errors.Denied, errors.LimitExceeded))
)
_QUESTION: Final = ("id", "kind", "question", "message", "user_id")
_ANSWER: Final = ("id", "status", "response", "reason")
_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "process.created": ("program", "name", "parent", "budget", "grant"),
    "process.terminated": ("reason", "error"),
    "interrupt.created": _QUESTION,
    "interrupt.resolved": _ANSWER,
    "interrupt.expired": _ANSWER,
    "interrupt.cancelled": _ANSWER,
    "pcb.interrupt_created": _QUESTION,
    "pcb.interrupt_ended": _ANSWER,
    "process.tainted": ("by",),
    "person.acted": ("person", "role", "act", "target", "outcome", "user_id"),
}


class AuditRow(NamedTuple):
    seq: int
    at: float
    pid: str
    kind: str
    fields: dict[str, Any]


def audit_rows(events: Iterable[Event], level: str = "detailed") -> Iterator[AuditRow]:
    """The rows of a journal that an audit is about, oldest first."""
    names: dict[tuple[str, str], str] = {}  # of effects that have begun
    for event in events:
        fields: Mapping[str, Any] | None = None
        if event.kind == "effect.started":
            names[event.pid, str(event.data["key"])] = str(event.data["name"])
        elif event.kind == "effect.finished":
            fields = _stopped(event.data, names.pop((event.pid, str(event.data["key"])), ""))
        elif event.kind in _FIELDS:
            fields = {name: event.data.get(name) for name in _FIELDS[event.kind]}
        if fields is not None:
            shown = {name: value for name, value in fields.items() if value not in (None, "", b"")}
            kind = "effect.stopped" if event.kind == "effect.finished" else event.kind
            yield AuditRow(event.seq, event.time, event.pid, kind, clean_fields(shown, level, ()))


def _stopped(data: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """An effect that a right or a limit stopped; None for one that was performed."""
    error = data.get("error")
    if not error or error.get("code") not in _STOPPED:
        return None
    return {"effect": data.get("name") or name, "code": error["code"], "reason": error.get("message", "")}
