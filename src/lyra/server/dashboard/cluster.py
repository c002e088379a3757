"""The cluster: its hosts and shards, who has what since when, what is wrong in sentences, and draining a host.

Only the site of all shards has this page, and only operators and viewers see it: it tells of the work of all users.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lyra.errors import Denied
from lyra.server.dashboard.gathering import NOTHING, gather
from lyra.server.dashboard.html import Child, Html, TableColumn, TableRow, table, tag
from lyra.server.dashboard.layout import act_form, link, page, region, see_other
from lyra.server.dashboard.words import duration, state
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer

if TYPE_CHECKING:
    from lyra.cluster.report import ClusterReport, HostReport, ShardReport

_REFRESH_MS: Final = 3_000
_STATES: Final = {"up": "running", "draining": "waiting", "late": "degraded", "gone": "failed"}
_OPEN: Final = {True: ("running", "open"), False: ("failed", "open on no host"), None: ("unknown", "not known")}


async def hosts_region(call: HttpCall) -> Html | None:
    """Return what is wrong and how the hosts are, for the overview; None for a person who sees only their own work."""
    if not call.caller.is_operator:
        return None
    report = await call.parts.whole.report()
    open_here = sum(row.open is True for row in report.shards)
    words = f"{open_here} of {len(report.shards)} shards are open on {len(report.hosts)} hosts"
    rows = [
        tag(
            "li",
            tag("strong", row.name),
            state(_STATES[row.state], row.state),
            tag("span", _count(len(row.shards), "shard", "shards"), class_="note"),
            tag("span", _count(row.processes, "process", "processes"), class_="note"),
            data_key=row.name,
        )
        for row in report.hosts
    ]
    heading = tag("div", tag("h2", "Cluster"), tag("a", words, href=link(call, "cluster")), class_="bar spread")
    return region(
        call, "hosts", (), heading, _sentences(report), tag("ul", rows, class_="hosts"), data_refresh=_REFRESH_MS
    )


def _count(number: int | None, singular: str, plural: str) -> str:
    return f"– {plural}" if number is None else f"{number:,} {singular if number == 1 else plural}"


def _sentences(report: ClusterReport) -> list[Child]:
    problems = [tag("p", _begin_sentence(text), class_="problem", role="status") for text in report.problems]
    return [*problems, *(tag("p", _begin_sentence(text), class_="note") for text in report.remarks)]


def _begin_sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


async def _cluster(call: HttpCall) -> RawAnswer:
    if not call.caller.is_operator:
        raise Denied("the page of the cluster is for operators", hint="use a token that is bound to no user")
    await gather(call, NOTHING)
    report = await call.parts.whole.report()
    well = tag("p", state("ok", "All is well")) if report.is_well else None
    return page(
        call,
        "Cluster",
        region(call, "report", (), well, _sentences(report), data_refresh=_REFRESH_MS),
        region(call, "host-rows", (), tag("h2", "Hosts"), _hosts(call, report), data_refresh=_REFRESH_MS),
        region(call, "shard-rows", (), tag("h2", "Shards"), _shards(call, report), data_refresh=_REFRESH_MS),
        wide=True,
        lead="Each shard is a part of the work with a store of its own, and one host at a time runs it. If a host "
        f"dies, the others take its shards over when its lease, {report.lease_s:g} s, is over.",
    )


def _hosts(call: HttpCall, report: ClusterReport) -> Html:
    columns: list[TableColumn | str] = [
        *("Host", "State", "Shards"),
        TableColumn("processes", is_figure=True),
        TableColumn("renewed", is_figure=True),
        *("Reached at", "Resources", "Version", ""),
    ]
    is_alone = sum(row.state in ("up", "late") for row in report.hosts) < 2
    return table(
        "Hosts", columns, [TableRow(row.name, _host_cells(call, row, is_alone=is_alone)) for row in report.hosts]
    )


def _host_cells(call: HttpCall, row: HostReport, *, is_alone: bool) -> tuple[Child, ...]:
    return (
        tag("strong", row.name),
        state(_STATES[row.state], row.state),
        [[tag("a", shard, href=link(call, f"shards/{shard}/")), " "] for shard in row.shards],
        "–" if row.processes is None else f"{row.processes:,}",
        f"{duration(row.renewed_s_ago)} ago",
        tag("code", row.address),
        ", ".join(f"{name} {amount:g}" for name, amount in row.resources.items()),
        row.version,
        _drain_form(call, row, is_alone=is_alone),
    )


def _drain_form(call: HttpCall, row: HostReport, *, is_alone: bool) -> Html | None:
    if row.state == "gone":
        return None
    is_draining = row.state == "draining"
    why_not = "No other host would take its shards" if is_alone and not is_draining else ""
    title = "It takes shards again" if is_draining else "Its shards move to the other hosts; it runs on without any"
    button = tag("button", "Take shards again" if is_draining else "Drain", title=title)
    act = "undrain" if is_draining else "drain"
    return act_form(call, link(call, "acts/cluster", row.name, act), button, why_not=why_not)


def _shards(call: HttpCall, report: ClusterReport) -> Html:
    columns: list[TableColumn | str] = [
        *("Shard", "State", "Host"),
        TableColumn("open for", is_figure=True),
        TableColumn("processes", is_figure=True),
        *("Posts that wait", "Note"),
    ]
    return table("Shards", columns, [TableRow(row.name, _shard_cells(call, row)) for row in report.shards])


def _shard_cells(call: HttpCall, row: ShardReport) -> tuple[Child, ...]:
    return (
        tag("a", row.name, href=link(call, f"shards/{row.name}/")),
        state(*_OPEN[row.open]),
        row.host or "–",
        duration(row.open_s),
        "–" if row.processes is None else f"{row.processes:,}",
        ", ".join(f"{count} for {to}" for to, count in row.waiting_posts.items()),
        row.note,
    )


async def _set_draining(call: HttpCall) -> RawAnswer:
    if not call.caller.is_operator:
        raise Denied("hosts are drained by operators", hint="use a token that is bound to no user")
    await call.parts.whole.drain(call.path["host"], undo=call.endpoint.name == "acts.undrain")
    return see_other(call, "cluster")


ENDPOINTS: Final = (
    Endpoint("pages.cluster", "GET", "/cluster", "The hosts and shards of the cluster", _cluster),
    Endpoint("acts.drain", "POST", "/acts/cluster/{host}/drain", "Have a host give its shards away", _set_draining),
    Endpoint("acts.undrain", "POST", "/acts/cluster/{host}/undrain", "Let a host take shards again", _set_draining),
)
