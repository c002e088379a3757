"""What happened before: the rows of the journal, in order, a page at a time."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from lyra.core.checking.check import one_of
from lyra.core.codec import to_plain
from lyra.core.event import KINDS, Event
from lyra.server.http.endpoint import Endpoint, HttpCall, RequestQuery, Streamed
from lyra.server.owners import owner_if_known

_PAGE_MAX: Final = 10_000


class HistoryQuery(RequestQuery):
    """`after` is the number of a row; `kind` is a word of the table of events, `pid` one process."""

    after: Annotated[int, msgspec.Meta(ge=0, le=2**62)] = 0
    limit: Annotated[int, msgspec.Meta(ge=1, le=_PAGE_MAX)] = 1_000
    kind: str = ""
    pid: str = ""


class HistoryEvent(msgspec.Struct):
    """One row: `seq` orders them, `time` is wall-clock seconds, `pid` is "" for the kernel's own."""

    seq: int
    time: float
    pid: str
    kind: str
    data: Any


class HistoryAnswer(msgspec.Struct):
    """`last_seq` is where the next page begins; `more` says that there is one."""

    events: list[HistoryEvent]
    last_seq: int
    more: bool


async def read(call: HttpCall) -> HistoryAnswer:
    query: HistoryQuery = call.query
    kind = one_of(query.kind, KINDS, "an event's kind") if query.kind else None
    pid = call.require_process(query.pid) if query.pid else None
    page = await call.parts.history.page(query.after, query.limit, pid=pid, kind=kind)
    shown = [_to_history_event(event) for event in page.events if _is_owned(call, event)]
    return HistoryAnswer(shown, page.last_seq, page.more)


def _is_owned(call: HttpCall, event: Event) -> bool:
    if call.caller.is_operator:
        return True
    return bool(event.pid) and call.caller.owns(owner_if_known(call.kernel, event.pid))


def _to_history_event(event: Event) -> HistoryEvent:
    data = msgspec.to_builtins(event.data, enc_hook=to_plain, str_keys=True)
    return HistoryEvent(event.seq, event.time, event.pid, event.kind, data)


# The events of the kernel as they happen.


class EventQuery(RequestQuery):
    """`kinds` are words of the table of events, with commas between them; `pid` is one process."""

    kinds: str = ""
    pid: str = ""


async def follow(call: HttpCall) -> Streamed:
    query: EventQuery = call.query
    kinds = frozenset(one_of(kind.strip(), KINDS, "an event's kind") for kind in query.kinds.split(",") if kind.strip())
    pid = call.require_process(query.pid) if query.pid else ""
    event_id = call.headers.get("last-event-id", "")
    return Streamed(call.parts.feed.read(call.caller, event_id, kinds, pid))


ENDPOINTS: Final = (
    Endpoint(
        "history.read",
        "GET",
        "/api/history",
        "The rows of the journal, a page at a time",
        read,
        answer=HistoryAnswer,
        query=HistoryQuery,
        statuses=(404,),
        about="`lyra ps`, `trace`, `cost`, `events` and `top` read this. A kernel without a store keeps the last rows.",
    ),
    Endpoint(
        "events.follow",
        "GET",
        "/api/events",
        "The events of the caller's processes as they happen",
        follow,
        query=EventQuery,
        streams=True,
        statuses=(404,),
        about="The header `Last-Event-ID` reads on after an event; `missed` says how many are not kept any more.",
    ),
)
