"""The time before the server began, on pages that count calls: a first look does not wait until it has been read.

The journal of a large store takes seconds to read. A page is shown after at most `_PAGE_WAIT_S`, with the last traces
and a note where the reading goes on. Its regions are fetched once more when the page has opened its stream of events,
and wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lyra.server.dashboard.html import Html, tag

if TYPE_CHECKING:
    from lyra.server.http.endpoint import HttpCall


_PAGE_WAIT_S: Final = 0.05


async def past_note(call: HttpCall) -> Html | None:
    """Have the past read; a sentence where the page is shown before that is done."""
    records = call.parts.records
    if call.headers.get("x-region"):
        await records.load_past()
        return None
    if await records.load_past_within(_PAGE_WAIT_S):
        return None
    await records.load_recent()
    return tag("p", "Older calls are still being read. They appear here by themselves.", class_="note", role="status")
