"""The overview: what is alive, and what happens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from lyra.core.ids import to_address
from lyra.server.dashboard.cluster import hosts_region
from lyra.server.dashboard.gathering import NOTHING, PageSource, Told, gather
from lyra.server.dashboard.html import Child, Html, join, tag
from lyra.server.dashboard.layout import (
    PAGE_HEADERS,
    act_form,
    figures_region,
    link,
    missing_region,
    nothing_yet,
    page,
    region,
)
from lyra.server.dashboard.pages.processes import join_rows
from lyra.server.dashboard.sentences import SENTENCES, EventLine, EventSentences, lines_list
from lyra.server.dashboard.words import empty, money, state
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer
from lyra.server.http.live_tree import TREE_EVENTS, LiveTree, ProcessRow

if TYPE_CHECKING:
    from lyra.kernel.kernel import Kernel


_ROWS_MAX: Final = 40
_CHILDREN_MAX: Final = 12  # of one process; the others are a number
_DEPTH_MAX: Final = 6
_LINES: Final = 60


async def _overview(call: HttpCall) -> RawAnswer:
    wanted = call.headers.get("x-region", "")  # each region costs something: render the one that is asked for
    seen = await gather(call, SOURCE)
    parts: list[Child] = []
    if wanted in ("", "tree"):
        heading = _heading("Processes", tag("a", "All processes", href=link(call, "processes")))
        parts.append(region(call, "tree", TREE_EVENTS, heading, _excerpt(call, seen), every_ms=300, data_hold=True))
    if wanted in ("", "events"):
        links = {pid: link(call, "processes", pid) for pid in seen.pages}
        listed = lines_list(seen.lines, links) if seen.lines else empty("What happens is told here, as it happens.")
        heading = _heading("Events", tag("span", "newest first", class_="note"))
        parts.append(region(call, "events", tuple(SENTENCES), heading, listed, data_hold=True))
    above = welcome(call) if not wanted else None
    if call.parts.whole is not None and wanted in ("", "hosts"):
        above = await hosts_region(call)
    return page(call, "Overview", above, tag("div", parts, class_="columns overview"), wide=True)


def _heading(words: str, beside: Html) -> Html:
    return tag("div", tag("h2", words), beside, class_="bar spread")


class OverviewContent(msgspec.Struct):
    """What the overview shows: rows of the tree with their depth, how many it has besides, and what happened. `pages`
    are the processes that have a page."""

    rows: list[tuple[int, ProcessRow]] = []
    left: int = 0
    lines: list[EventLine] = []
    pages: list[str] = []


async def _read(call: HttpCall) -> OverviewContent:
    wanted, seen = call.headers.get("x-region", ""), OverviewContent()
    if wanted in ("", "tree"):
        seen.rows, seen.left = _walk(call, call.parts.get_shared(LiveTree))
    if wanted in ("", "events"):
        seen.lines = call.parts.get_shared(EventSentences).last(call.caller, _LINES)
        seen.pages = [line.pid for line in seen.lines if line.pid in call.kernel.processes]
    return seen


def _join(_call: HttpCall, told: Sequence[Told[OverviewContent]]) -> OverviewContent:
    rows = join_rows((shard, seen.rows) for shard, seen in told)
    lines = [
        line._replace(pid=to_address(shard, line.pid), number=line.number * len(told) + index)
        for index, (shard, seen) in enumerate(told)
        for line in seen.lines
    ]
    return OverviewContent(
        rows[:_ROWS_MAX],
        sum(seen.left for _, seen in told) + max(0, len(rows) - _ROWS_MAX),
        sorted(lines, key=lambda line: -line.time)[:_LINES],
        [to_address(shard, pid) for shard, seen in told for pid in seen.pages],
    )


SOURCE: Final = PageSource("overview", OverviewContent, _read, _join)


def _excerpt(call: HttpCall, seen: OverviewContent) -> Html:
    if not seen.rows:
        return nothing_yet(call, "Live processes are shown here.")
    lines = [_line(call, row, depth) for depth, row in seen.rows]
    if seen.left:
        lines.append(tag("li", f"and {seen.left} more", class_="note", data_depth=0, data_key="more"))
    return tag("ul", lines, class_="tree", tabindex="0", aria_label="Processes")


def _walk(call: HttpCall, tree: LiveTree) -> tuple[list[tuple[int, ProcessRow]], int]:
    """Return rows of the tree, parents before their children, until there are enough; and how many are left. The number
    of a large family stands beside its parent."""
    roots, total = tree.roots(call.caller, _ROWS_MAX)
    todo = [(0, row) for row in reversed(roots)]
    rows: list[tuple[int, ProcessRow]] = []
    while todo and len(rows) < _ROWS_MAX:
        depth, row = todo.pop()
        rows.append((depth, row))
        if row.children and depth < _DEPTH_MAX:
            children = tree.children(row.pid, call.caller, _CHILDREN_MAX)
            todo += [(depth + 1, child) for child in reversed(children)]
    return rows, len(todo) + total - len(roots)


def _line(call: HttpCall, row: ProcessRow, depth: int) -> Html:
    restarts = f"{row.restarts} restart{'s' if row.restarts != 1 else ''}" if row.restarts else ""
    return tag(
        "li",
        tag(
            "span",
            tag("a", row.name or row.pid, href=link(call, "processes", row.pid)),
            f" ({row.children})" if row.children > _CHILDREN_MAX else None,
            tag("span", row.strategy or ("" if row.name else row.program), class_="note"),
            class_="who",
        ),
        state(row.state, row.doing or None) if row.state in ("working", "blocked") else state(row.state),
        tag("span", restarts, class_="restarts"),
        tag("span", money(row.cost_micro_usd) if row.cost_micro_usd else "", class_="cost"),
        data_depth=depth,
        data_key=row.pid,
    )


# The figures of the header alone: what a page fetches to keep them current.


async def _figures(call: HttpCall) -> RawAnswer:
    await gather(call, NOTHING)
    return RawAnswer(
        join(figures_region(call), missing_region(call)).encode(), "text/html; charset=utf-8", 200, PAGE_HEADERS
    )


# A short explanation above the overview, for a kernel that is shown to people who do not know it, such as a demo.

_PART: Final = "dashboard.welcome"

WelcomeLine = tuple[str, str, str, str]  # a word, a sentence, the path of a page, the words of the link to it


class WelcomeText:
    """What is shown: a title, and lines of a word, a sentence, the page that shows it and the words of the link."""

    __slots__ = ("lines", "title")

    def __init__(self, title: str, lines: Sequence[WelcomeLine]) -> None:
        self.title = title
        self.lines = tuple(lines)

    async def close(self) -> None:
        """Called with the kernel; nothing is open."""


def set_welcome(kernel: Kernel, title: str, lines: Sequence[WelcomeLine]) -> None:
    """Show this above the overview."""
    kernel.parts[_PART] = WelcomeText(title, lines)


def welcome(call: HttpCall) -> Html | None:
    """Return the explanation, or None where there is none, or it was closed."""
    text = call.kernel.parts.get(_PART)
    if not isinstance(text, WelcomeText):
        return None
    rows: list[Child] = [
        tag("li", tag("strong", word), " ", tag("span", sentence), " ", tag("a", words, href=link(call, path)))
        for word, sentence, path, words in text.lines
    ]
    close = act_form(call, link(call, "acts/welcome"), tag("button", "Got it"), class_="dismiss")
    return tag(
        "section",
        tag("div", tag("h2", text.title), close, class_="bar spread"),
        tag("ul", rows),
        class_="welcome card",
        aria_label="What this is",
    )


async def _dismiss(call: HttpCall) -> RawAnswer:
    call.kernel.parts.pop(_PART, None)
    return RawAnswer(b"", "text/plain", 303, {"location": link(call)})


ENDPOINTS: Final = (
    Endpoint("pages.overview", "GET", "/", "The overview", _overview),
    Endpoint("pages.figures", "GET", "/figures", "The figures of the header", _figures),
    Endpoint("acts.welcome", "POST", "/acts/welcome", "Close the explanation above the overview", _dismiss),
)
