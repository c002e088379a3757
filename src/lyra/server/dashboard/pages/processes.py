"""The processes: the whole tree, with what each does, its restarts and its cost.

The page has the first rows with links to the next ones; its script puts the whole tree in their place and draws only
the rows that are seen (`static/process_grid.js`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Final
from urllib.parse import urlencode

import msgspec

from lyra.core.ids import to_address
from lyra.server.dashboard.gathering import PageSource, Told, gather
from lyra.server.dashboard.html import Html, tag
from lyra.server.dashboard.layout import link, nothing_yet, page, region
from lyra.server.dashboard.words import money, state
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer, RequestQuery
from lyra.server.http.live_tree import TREE_EVENTS, LiveTree, ProcessRow

_PAGE_ROWS: Final = 100
_STATES: Final = {
    "": "alive",
    "running": "running",
    "working": "working",
    "idle": "idle",
    "blocked": "needs you",
    "dormant": "dormant",
    "ended": "ended",
    "failed": "failed",
}
_COLUMNS: Final = (("Process", "w-name"), ("State", "w-state"), ("Restarts", "w-small"), ("Cost", "w-small"))


class ProcessesQuery(RequestQuery):
    """`q` is a part of a name, pid or program; `page` counts from 1."""

    q: str = ""
    state: str = ""
    page: int = 1


async def _processes(call: HttpCall) -> RawAnswer:
    query: ProcessesQuery = call.query
    listed = await gather(call, SOURCE)
    total, shown = listed.total, listed.rows
    if not total and not query.q and not query.state:
        content = nothing_yet(call, "Every process is shown here, below the one that started it.")
    else:
        content = tag("div", _grid(call, shown, total), _pages(call, query, total), id="grid")
    # The script keeps its own rows current; without rows yet, the region waits for the first process.
    events = () if total else TREE_EVENTS
    return page(
        call,
        "Processes",
        _filter(call, query),
        region(call, "processes", events, content),
        scripts=("process_grid.js",),
        wide=True,
        lead="Every process below the one that started it. A supervisor starts again what crashes below it. Open a "
        "process to see its budget and what it does, to ask it something or to stop it.",
    )


class ProcessesContent(msgspec.Struct):
    """Rows of one page of the list with their depth, and how many there are."""

    rows: list[tuple[int, ProcessRow]]
    total: int


async def _read(call: HttpCall) -> ProcessesContent:
    query: ProcessesQuery = call.query
    last = max(1, query.page) * _PAGE_ROWS
    first = 0 if call.endpoint.group == "data" else last - _PAGE_ROWS  # rows of other shards may stand between
    if query.q or query.state:
        rows = tree_order(_select_rows(call, query))
        return ProcessesContent(rows[first:last], len(rows))
    tree = call.parts.get_shared(LiveTree)
    return ProcessesContent(list(islice(tree.walk(call.caller), first, last)), tree.count(call.caller))


def _join(call: HttpCall, told: Sequence[Told[ProcessesContent]]) -> ProcessesContent:
    last = max(1, call.query.page) * _PAGE_ROWS
    rows = join_rows((shard, listed.rows) for shard, listed in told)
    return ProcessesContent(rows[last - _PAGE_ROWS : last], sum(listed.total for _, listed in told))


SOURCE: Final = PageSource("processes", ProcessesContent, _read, _join, ProcessesQuery)


def join_rows(told: Iterable[Told[list[tuple[int, ProcessRow]]]]) -> list[tuple[int, ProcessRow]]:
    """Return the rows of several shards under their addresses, each below its parent, wherever that is."""
    return tree_order(
        [
            row._replace(pid=to_address(shard, row.pid), parent=to_address(shard, row.parent))
            for shard, rows in told
            for _, row in rows
        ]
    )


def _select_rows(call: HttpCall, query: ProcessesQuery) -> list[ProcessRow]:
    tree = call.parts.get_shared(LiveTree)
    needle = query.q.strip().lower()
    ended = query.state in ("ended", "failed")
    rows = tree.rows(call.caller, ended=ended)
    return [
        row
        for row in rows
        if (not query.state or row.state == query.state)
        and (not needle or needle in f"{row.name} {row.pid} {row.program}".lower())
    ]


def tree_order(rows: list[ProcessRow]) -> list[tuple[int, ProcessRow]]:
    """Rows with their depth, each below its parent."""
    below: dict[str, list[ProcessRow]] = {}
    known = {row.pid for row in rows}
    for row in rows:
        below.setdefault(row.parent if row.parent in known and row.parent != row.pid else "", []).append(row)
    ordered: list[tuple[int, ProcessRow]] = []
    todo = [(0, row) for row in reversed(below.get("", ()))]
    while todo:
        depth, row = todo.pop()
        ordered.append((depth, row))
        todo += [(depth + 1, child) for child in reversed(below.get(row.pid, ()))]
    return ordered


def _filter(call: HttpCall, query: ProcessesQuery) -> Html:
    options = [tag("option", label, value=name, selected=name == query.state) for name, label in _STATES.items()]
    return tag(
        "form",
        tag("label", "Filter", for_="q"),
        tag("input", type="search", id="q", name="q", value=query.q, placeholder="name, pid or program"),
        tag("label", "State", for_="state"),
        tag("select", options, id="state", name="state"),
        tag("button", "Show", type="submit", class_="script-hidden"),
        tag("span", "", id="grid-count", class_="note", role="status"),
        method="get",
        action=link(call, "processes"),
        class_="bar",
        role="search",
        id="grid-filter",
    )


def _grid(call: HttpCall, rows: list[tuple[int, ProcessRow]], total: int) -> Html:
    heads = [tag("th", label, scope="col", class_=name) for label, name in _COLUMNS]
    return tag(
        "div",
        tag(
            "table",
            tag("caption", "Processes, each below the one that started it", class_="unseen"),
            tag("thead", tag("tr", heads)),
            tag("tbody", [_row(call, depth, row) for depth, row in rows]),
            data_total=total,
            data_source=link(call, "api/tree"),
            data_page=link(call, "processes") + "/",
        ),
        class_="grid-box",
        tabindex="0",
        role="region",
        aria_label="Processes",
    )


def _row(call: HttpCall, depth: int, row: ProcessRow) -> Html:
    name = tag("a", row.name or row.pid, href=link(call, "processes", row.pid), title=f"{row.pid} {row.program}")
    more = tag("span", f" {row.strategy or row.program}", class_="note")
    return tag(
        "tr",
        tag("td", tag("span", "· " * depth, aria_hidden="true", class_="note"), name, more),
        tag("td", state(row.state, row.doing or None)),
        tag("td", row.restarts or "", class_="figure-cell"),
        tag("td", money(row.cost_micro_usd) if row.cost_micro_usd else "", class_="figure-cell"),
        data_key=row.pid,
    )


def _pages(call: HttpCall, query: ProcessesQuery, total: int) -> Html | None:
    """Links to the rows before and after; the script has no need of them."""
    if total <= _PAGE_ROWS and query.page <= 1:
        return None
    last = -(-total // _PAGE_ROWS)

    def to(number: int, words: str) -> Html:
        rest = urlencode({"q": query.q, "state": query.state, "page": number})
        return tag("a", words, href=f"{link(call, 'processes')}?{rest}")

    return tag(
        "p",
        to(query.page - 1, "Previous") if query.page > 1 else None,
        f" Page {query.page} of {last} ",
        to(query.page + 1, "Next") if query.page < last else None,
        class_="script-hidden",
    )


ENDPOINTS: Final = (
    Endpoint("pages.processes", "GET", "/processes", "The processes", _processes, query=ProcessesQuery),
)
