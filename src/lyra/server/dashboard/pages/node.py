"""One node: its confidence over time, its divergences with their inputs, and the buttons Promote and Roll back."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from lyra.errors import ConfigError, Denied
from lyra.server.dashboard.html import Child, Html, TableColumn, TableRow, facts_row, join, table, tag
from lyra.server.dashboard.layout import act_form, link, page, region, role_refusal, see_other
from lyra.server.dashboard.words import PLOT_SCRIPT, PlotColumn, PlotStep, empty, moment, plot, state
from lyra.server.http.api.nodes import roll_back
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer
from lyra.server.http.mounted_nodes import MountedNodes, NodeFacts, NodeNews, get_mounted_nodes, read_node, read_nodes
from lyra.server.http.problems import HttpRefusal

_DIVERGENCES_SHOWN: Final = 20
_TEXT_CHARS_MAX: Final = 4_000


def _require_nodes(call: HttpCall) -> MountedNodes:
    mounted = get_mounted_nodes(call.kernel)
    if mounted is None:
        raise HttpRefusal(404, "this server has no nodes", hint="lyra.server.mount_nodes(kernel, runtime, nodes)")
    return mounted


async def _node(call: HttpCall) -> RawAnswer:
    facts = await asyncio.to_thread(read_node, _require_nodes(call), call.path["node_id"])
    await call.parts.get_shared(NodeNews).open()
    return page(
        call,
        facts.node_id,
        region(call, "node", NODE_EVENTS, _head(call, facts), _buttons(call, facts), every_ms=1_000),
        region(call, "evidence", NODE_EVENTS, _evidence(facts), every_ms=1_000),
        region(call, "divergences", NODE_EVENTS, _divergences(call, facts), every_ms=1_000),
        region(call, "changes", NODE_EVENTS, _changes(call, facts), every_ms=1_000),
        scripts=(PLOT_SCRIPT,),
    )


def _head(call: HttpCall, facts: NodeFacts) -> Html:
    del call
    executions = ", ".join(f"{count:,} {path}" for path, count in sorted(facts.executions.items())) or "none"
    rows: list[tuple[str, Child]] = [
        ("Mode", mode_words(facts)),
        ("Traffic", traffic_bar(facts)),
        ("Confidence", _confidence_words(facts)),
        ("Reach", _reach_words(facts) + " steps, branches and errors" if facts.goals else "not searched"),
        ("Successes", f"{facts.successes:,} of {facts.accepted:,} accepted inputs" if facts.accepted else "none"),
        ("Compared", f"{facts.compared:,}" + (f", {facts.distinct:,} distinct inputs" if facts.distinct else "")),
        ("Divergences", _divergence_words(facts)),
        ("Executions", executions),
        ("Errors", f"{facts.errors:,}"),
        *((("Routes", ", ".join(facts.routes)),) if facts.routes else ()),
    ]
    return join(
        tag("p", facts.intent, class_="note"),
        facts_row(rows),
        tag("p", f"{facts.mode}: {MODE_WORDS[facts.mode]}.", class_="note"),
    )


def _confidence_words(facts: NodeFacts) -> str:
    if not facts.compared:
        return "nothing compared"
    if facts.is_complete and not facts.divergences:
        return "100 %: all inputs that the node takes were compared"
    return f"{facts.low * 100:.4f} % to {facts.high * 100:.4f} %"


# ---------------------------------------------------------------- buttons
def _buttons(call: HttpCall, facts: NodeFacts) -> Html:
    not_operator = "" if call.caller.is_operator else "The mode of a node is for the operator"
    not_allowed = role_refusal(call) or not_operator
    lack = facts.lack if facts.next_mode is not None else f"{facts.mode} is the highest mode"
    promote = act_form(
        call,
        link(call, "acts/nodes", facts.node_id, "promote"),
        tag("button", f"Promote to {facts.next_mode}" if facts.next_mode else "Promote", class_="primary"),
        why_not=not_allowed or lack,
    )
    back = act_form(
        call,
        link(call, "acts/nodes", facts.node_id, "rollback"),
        tag("button", f"Roll back to {facts.rollback_mode}" if facts.rollback_mode else "Roll back", class_="danger"),
        why_not=not_allowed or ("" if facts.rollback_mode else f"{facts.mode} is the lowest mode"),
    )
    reason = not_allowed or lack
    return tag("div", promote, back, tag("span", reason, class_="note") if reason else None, class_="bar")


async def _promote(call: HttpCall) -> RawAnswer:
    if not call.caller.is_operator:
        raise Denied("the mode of a node is for the operator", hint="use a token that is bound to no user")
    mounted, node_id = _require_nodes(call), call.path["node_id"]
    facts = await asyncio.to_thread(read_node, mounted, node_id)
    if facts.lack:
        raise ConfigError(f"{node_id} is not promoted: {facts.lack}", hint="compare more: `vesper verify`")
    await asyncio.to_thread(mounted.runtime.promote, mounted.get(node_id))
    return see_other(call, "nodes", node_id)


async def _roll_back(call: HttpCall) -> RawAnswer:
    await roll_back(call)
    return see_other(call, "nodes", call.path["node_id"])


# ---------------------------------------------------------------- evidence
def _evidence(facts: NodeFacts) -> Html:
    if not facts.timeline:
        return join(
            tag("h2", "Confidence"),
            empty("How sure the comparisons make it that both paths agree, over time.", "vesper verify NODE.vsp"),
        )
    return join(confidence_plot(facts), _reach(facts))


def _reach_words(facts: NodeFacts) -> str:
    return f"{facts.goals - len(facts.unreached):,} of {facts.goals:,}" if facts.goals else "–"


def _reach(facts: NodeFacts) -> Html:
    """Name what the comparisons have reached, what they have not, and what none can."""
    rows = [
        TableRow(name, (tag("code", name), "not reached yet: add a test case that leads there"))
        for name in facts.unreached
    ]
    rows += [TableRow(name, (tag("code", name), why)) for name, why in sorted(facts.unreachable.items())]
    if not facts.goals:
        return empty("Which steps, branches and errors the comparisons reached.", "vesper verify NODE.vsp")
    head = tag("h2", "Reach")
    words = tag(
        "p", f"The comparisons reached {_reach_words(facts)} steps, branches and declared errors.", class_="note"
    )
    missing = table("What the comparisons have not reached", ("Part", "Why"), rows) if rows else None
    names = tag("ul", *(tag("li", tag("code", name)) for name in facts.reached), class_="reached")
    return join(
        head,
        words,
        missing,
        tag("details", tag("summary", "What they have reached"), names, class_="card", data_key="reached"),
    )


def _divergence_words(facts: NodeFacts) -> str:
    """Return how many there are, and of how many of those that are kept it is known that they happen again."""
    again = sum(1 for row in facts.found if row.get("reproducible"))
    if again == 0 and facts.is_blocked:
        return f"{facts.divergences:,}, an earlier one can be reproduced"
    return f"{facts.divergences:,}" + (f", {again:,} can be reproduced" if again else "")


def _divergences(call: HttpCall, facts: NodeFacts) -> Html:
    head = tag("h2", "Divergences")
    if not call.caller.is_operator:
        return join(head, tag("p", "They have the inputs of all users, and are shown to the operator.", class_="note"))
    if not facts.found:
        return join(head, tag("p", "Both paths have agreed on everything that was compared.", class_="note"))
    now = call.now
    newest = facts.found[: -_DIVERGENCES_SHOWN - 1 : -1]
    return join(head, *(_divergence(row, now, index) for index, row in enumerate(newest)))


def _divergence(row: dict[str, Any], now: float, index: int) -> Html:
    words = "can be reproduced" if row.get("reproducible") else "did not happen again"
    return tag(
        "details",
        tag("summary", moment(row.get("time"), now), f" in {row.get('mode', '')}: {words}"),
        tag(
            "div",
            tag("div", tag("h3", "Inputs"), tag("pre", _json(row.get("inputs")), tabindex="0")),
            tag("div", tag("h3", "Python and direct path"), _differences(row.get("differences") or [])),
            class_="call-parts",
        ),
        class_="card divergence",
        open=index == 0,
        data_key=f"{row.get('time')}-{row.get('trace_id', '')}",
    )


def _differences(differences: list[dict[str, Any]]) -> Html:
    if not differences:
        return tag("p", "What differed was not kept.", class_="note")
    rows = [
        TableRow(
            str(number),
            (
                tag(
                    "span",
                    tag("code", _json(row.get("path", ""))),
                    " ",
                    tag("span", row.get("kind", ""), class_="note"),
                ),
                tag("code", _json(row.get("python"))),
                tag("code", _json(row.get("direct"))),
            ),
        )
        for number, row in enumerate(differences)
    ]
    return table("What differed", ("Where", "Python", "Direct"), rows)


def _json(value: Any) -> str:
    if isinstance(value, str):
        return value[:_TEXT_CHARS_MAX]
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=repr), indent=2).decode()[:_TEXT_CHARS_MAX]


def _changes(call: HttpCall, facts: NodeFacts) -> Html:
    if not facts.changes:
        return join(tag("h2", "Changes of the mode"), tag("p", "None yet.", class_="note"))
    now = call.now
    rows = [
        TableRow(str(change["time"]), (moment(change["time"], now), change["from"], change["to"], change["why"]))
        for change in reversed(facts.changes)
    ]
    return join(tag("h2", "Changes of the mode"), table("Changes of the mode", ("When", "From", "To", "Why"), rows))


# ---------------------------------------------------------------- nodes
# The Vesper nodes of the server: mode, traffic split, confidence, divergences.

# Told by the runtime to the kernel that its nodes are mounted in.
NODE_EVENTS: Final = ("vesper.mode", "vesper.diverged", "vesper.compared", "vesper.executed", "person.acted")

_LEAD: Final = (
    "A node is one step with a contract and two ways to run: the Python path and the direct path. Its traffic moves to "
    "the direct path only as far as comparisons show that both agree."
)


async def _nodes(call: HttpCall) -> RawAnswer:
    mounted = get_mounted_nodes(call.kernel)
    known = [] if mounted is None else await asyncio.to_thread(read_nodes, mounted)
    await call.parts.get_shared(NodeNews).open()
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
            for name in ("confidence", "reach", "successes", "compared", "divergences", "executions", "errors")
        ),
        "Next mode",
    ]
    return table("Nodes", columns, [_row(call, facts) for facts in known], name="nodes-table")


def _row(call: HttpCall, facts: NodeFacts) -> TableRow:
    step = "highest mode" if facts.next_mode is None else facts.lack or f"{facts.next_mode} is allowed"
    name = tag("a", facts.node_id, href=link(call, "nodes", facts.node_id))
    cells = (
        tag("span", name, " ", tag("span", facts.intent, class_="note"), class_="named"),
        mode_words(facts),
        traffic_bar(facts),
        f"≥ {facts.low * 100:.3f} %" if facts.compared else "–",
        _reach_words(facts),
        f"{facts.successes:,}",
        f"{facts.compared:,}",
        f"{facts.divergences:,}",
        f"{sum(facts.executions.values()):,}",
        f"{facts.errors:,}",
        tag("span", step, class_="note"),
    )
    return TableRow(facts.node_id, cells)


ENDPOINTS: Final = (
    Endpoint("pages.node", "GET", "/nodes/{node_id}", "One node", _node, statuses=(404,)),
    Endpoint(
        "acts.promote_node",
        "POST",
        "/acts/nodes/{node_id}/promote",
        "Move a node one mode up, if its evidence allows it",
        _promote,
        statuses=(404,),
    ),
    Endpoint(
        "acts.roll_back_node",
        "POST",
        "/acts/nodes/{node_id}/rollback",
        "Take a node back to a mode that does not rely on the direct path",
        _roll_back,
        statuses=(404,),
    ),
    Endpoint("pages.nodes", "GET", "/nodes", "The Vesper nodes", _nodes),
)


# ---------------------------------------------------------------- nodes
# How the pages show a node: its mode in words, the split of its traffic, its confidence over time.

# What each mode does with an execution, in words.
MODE_WORDS: Final[dict[str, str]] = {
    "python_only": "the Python path answers; nothing is compared",
    "shadow_direct": "the Python path answers; the direct path is compared behind it",
    "canary_direct": "the direct path answers for a small share; every execution is compared",
    "dual_verify": "the Python path answers; every execution is compared at once",
    "direct_only": "the direct path answers; every hundredth execution is compared",
}


# How the axis writes times, by the seconds that it covers at least.
_TIME_FORMS: Final = ((2 * 86_400, "%m-%d"), (3_600, "%H:%M"), (0, "%H:%M:%S"))


def mode_words(facts: NodeFacts) -> Html:
    """Return the mode as a state: a blocked node failed, one on the way is running."""
    look = "failed" if facts.is_blocked else "running" if facts.direct_share else "waiting"
    word = f"{facts.mode}, forced" if facts.is_forced else facts.mode
    return state(look, word)


def traffic_bar(facts: NodeFacts) -> Html:
    """Return the split of traffic between the two paths, as a bar and in words."""
    direct = facts.direct_share * 100
    words = f"{100 - direct:g} % Python, {direct:g} % direct"
    return tag(
        "span",
        tag(
            "svg",
            tag("title", words),
            tag("rect", x=0, y=0, width=100, height=10, class_="split-python"),
            tag("rect", x=f"{100 - direct:.2f}", y=0, width=f"{direct:.2f}", height=10, class_="split-direct"),
            viewBox="0 0 100 10",
            preserveAspectRatio="none",
            role="img",
            class_="split",
        ),
        tag("span", words, class_="note"),
        class_="traffic",
    )


def confidence_plot(facts: NodeFacts) -> Html:
    """Return the share of agreement with its interval, at each moment when comparisons were counted."""
    from lyra.vesper.confidence import interval

    length_s = facts.timeline[-1][0] - facts.timeline[0][0]
    form = next(form for seconds, form in _TIME_FORMS if length_s >= seconds)
    needs = [] if facts.needed is None else [facts.needed]
    steps = []
    for time, compared, divergences in facts.timeline:
        if not compared:  # executions of a mode that compares nothing
            continue
        moment = datetime.fromtimestamp(time, UTC)
        low, high = interval(compared, divergences)
        label = f"{moment:%Y-%m-%d %H:%M:%S} UTC, {compared:,} compared"
        values = [low, (compared - divergences) / compared, high, *needs]
        steps.append(PlotStep(label, moment.strftime(form), values, at=time))
    columns = [PlotColumn("lower end", "line low"), PlotColumn("agreed"), PlotColumn("upper end", "high")]
    columns += [PlotColumn(f"needed for {facts.next_mode}") for _ in needs]
    needed = "" if facts.needed is None else f" {facts.next_mode} needs a lower end of {facts.needed * 100:g} %."
    about = f"Share of compared executions that agreed, with its interval at 99.9 %.{needed}"
    least = min((step.values[0] or 0.0 for step in steps), default=0.0)
    least = min(least, *needs) if needs else least
    return plot(
        "confidence", "Confidence", about, columns, steps, unit="share", low=max(0.0, least - (1 - least) * 0.2)
    )
