"""The tree of processes as compact rows: all of them once, and then those that changed."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from lyra.server.http.endpoint import Endpoint, HttpCall, RequestQuery
from lyra.server.http.processes.live_tree import LiveTree, ProcessRow

_BATCH_ROWS: Final = 500  # after which other work gets its turn


class TreeQuery(RequestQuery):
    """`since` is the `mark` of an earlier answer; `ended` also shows processes that have ended."""

    since: str = ""
    ended: bool = False


class TreeView(msgspec.Struct, kw_only=True):
    """Rows in the order of `columns`, parents before their children. With `whole` they are all of them; otherwise they
    replace or add to those of the answer before, and `gone` has the pids of those that ended."""

    mark: str
    whole: bool
    columns: tuple[str, ...]
    rows: list[Any]
    gone: list[str]


async def get_tree(call: HttpCall) -> TreeView:
    tree, query = call.parts.shared(LiveTree), call.query
    mark = tree.mark
    changes = tree.since(query.since, call.caller) if query.since and not query.ended else None
    if changes is not None:
        return TreeView(mark=mark, whole=False, columns=ProcessRow._fields, rows=list(changes[0]), gone=changes[1])
    rows: list[Any] = []
    for row in tree.rows(call.caller, ended=query.ended):
        rows.append(row)
        if len(rows) % _BATCH_ROWS == 0:
            await asyncio.sleep(0)
    return TreeView(mark=mark, whole=True, columns=ProcessRow._fields, rows=rows, gone=[])


ENDPOINTS: Final = (
    Endpoint(
        name="processes.rows",
        method="GET",
        path="/api/tree",
        summary="The tree of processes as compact rows, or what changed in it",
        handler=get_tree,
        query=TreeQuery,
        answer=TreeView,
    ),
)
