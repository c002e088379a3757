"""The Vesper nodes of the server: mode, traffic split, confidence, divergences."""

from __future__ import annotations

import asyncio
from typing import Final

from lyra.server.dashboard.html import Html, tag
from lyra.server.dashboard.layout import link, page, region
from lyra.server.dashboard.table import TableColumn, TableRow, table
from lyra.server.dashboard.views.nodes import mode_words, traffic_bar
from lyra.server.dashboard.words import empty
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer
from lyra.server.http.mounted_nodes import mounted_nodes
from lyra.server.http.nodes.facts import NodeFacts, read_nodes
from lyra.server.http.nodes.news import NodeNews

# Told by the runtime to the kernel that its nodes are mounted in.
NODE_EVENTS: Final = ("vesper.mode", "vesper.diverged", "vesper.compared", "vesper.executed", "person.acted")

_LEAD: Final = (
    "A node is one step with a contract and two ways to run: the Python path and the direct path. Its traffic moves to "
    "the direct path only as far as comparisons show that both agree."
)


async def _nodes(call: HttpCall) -> RawAnswer:
    mounted = mounted_nodes(call.kernel)
    known = [] if mounted is None else await asyncio.to_thread(read_nodes, mounted)
    await call.parts.shared(NodeNews).open()
    listed = region(call, "nodes", NODE_EVENTS, _list(call, known), every_ms=1_000)
    return page(call, "Nodes", listed, wide=True, lead=_LEAD)


def _list(call: HttpCall, known: list[NodeFacts]) -> Html:
    if not known:
        return empty(
            "The Vesper nodes of this server stand here, with their mode and how sure the evidence is.",
            "lyra.server.mount_nodes(kernel, runtime, nodes)   # in a file for lyra serve --load FILE",
        )
    columns: list[TableColumn | str] = [
        *("Node", "Mode", "Traffic"),
        *(
            TableColumn(name, is_figure=True)
            for name in ("confidence", "compared", "divergences", "executions", "errors")
        ),
        "Next mode",
    ]
    return table("Nodes", columns, [_row(call, facts) for facts in known], name="nodes-table")


def _row(call: HttpCall, facts: NodeFacts) -> TableRow:
    step = "highest mode" if facts.next_mode is None else facts.lack or f"{facts.next_mode} is allowed"
    cells = (
        _named(call, facts),
        mode_words(facts),
        traffic_bar(facts),
        f"≥ {facts.low * 100:.3f} %" if facts.compared else "–",
        f"{facts.compared:,}",
        f"{facts.divergences:,}",
        f"{sum(facts.executions.values()):,}",
        f"{facts.errors:,}",
        tag("span", step, class_="note"),
    )
    return TableRow(facts.node_id, cells)


def _named(call: HttpCall, facts: NodeFacts) -> Html:
    name = tag("a", facts.node_id, href=link(call, "nodes", facts.node_id))
    return tag("span", name, " ", tag("span", facts.intent, class_="note"), class_="named")


ENDPOINTS: Final = (
    Endpoint(
        name="pages.nodes",
        method="GET",
        path="/nodes",
        summary="The Vesper nodes",
        handler=_nodes,
        is_documented=False,
    ),
)
