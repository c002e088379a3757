"""The events of the kernel as they happen."""

from __future__ import annotations

from typing import Final

from lyra.core.checking.check import one_of
from lyra.core.event import KINDS
from lyra.server.http.endpoint import Endpoint, HttpCall, RequestQuery, Streamed


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
        name="events.follow",
        method="GET",
        path="/api/events",
        summary="The events of the caller's processes as they happen",
        handler=follow,
        query=EventQuery,
        streams=True,
        statuses=(404,),
        about="The header `Last-Event-ID` reads on after an event; `missed` says how many are not kept any more.",
    ),
)
