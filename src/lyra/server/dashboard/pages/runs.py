"""The runs: conversations with agents, programs, pipelines and Vega programs, each to be stepped through."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nlargest
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from lyra.core.ids import to_address
from lyra.core.naming import SUPERVISE
from lyra.server.dashboard.gathering import PageSource, Told, gather
from lyra.server.dashboard.html import Child, Html, TableColumn, TableRow, join, table, tag
from lyra.server.dashboard.layout import link, nothing_yet, page, region
from lyra.server.dashboard.words import empty, end_state, moment, money, render_copyable_id, state
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer, RequestQuery
from lyra.server.http.past.timelines import Timelines
from lyra.server.owners import owner_if_known

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lyra.kernel.process.process import Process


KINDS: Final = {
    "agent": "Agents",
    "program": "Programs",
    "supervisor": "Supervisors",
    "pipeline": "Pipelines",
    "vega": "Vega",
}
_EVENTS: Final = ("process.created", "process.terminated", "model.called", "interrupt.created", "interrupt.resolved")
_SHOWN: Final = 200
_VEGA_SHOWN: Final = 50
_VEGA_STATES: Final = {
    "running": "running",
    "waiting": "blocked",
    "stopped": "waiting",
    "finished": "done",
    "cancelled": "cancelled",
}
_VEGA_AMONG_ALL: Final = 5  # the newest; the kind Vega shows more


class RunsQuery(RequestQuery):
    """`kind` is agent, program, supervisor, pipeline or vega; `text` is in the name, the program or the pid."""

    kind: str = ""
    text: str = ""

    def fits(self, pid: str, kind: str, name: str, what: str) -> bool:
        wanted = self.text.lower()
        return self.kind in ("", kind) and (not wanted or any(wanted in word.lower() for word in (pid, name, what)))


class RunLine(NamedTuple):
    pid: str
    name: str
    kind: str
    state: str  # HTML
    micro_usd: int | None
    began_at: float
    what: str = ""


def kind_of(call: HttpCall, process: Process) -> str:
    if process.pid in call.kernel.orchestrator.state.sessions:
        return "pipeline"
    run = process.stands_for or process
    if run.program == SUPERVISE:
        return "supervisor"
    return "agent" if run.program.startswith("agent:") else "program"


def state_of(process: Process) -> Html:
    """Return how a process stands, in the shapes of the pages."""
    ended = process.exit
    run = process.stands_for or process
    if ended is None:
        return state("idle" if run.receiver is not None else process.state)
    return end_state(ended.reason, has_error=ended.error is not None, stopped=not process.has_failed)


def vega_state(word: str) -> Html:
    """Return how a durable Vega run stands: one of `lyra.vega.durable.runs.STATES`."""
    return state(_VEGA_STATES.get(word, "failed"), word)


def _is_run(process: Process) -> bool:
    """Return whether a process is its own run: nothing but a supervisor started it, and no guard represents it."""
    parent = process.parent
    if process.known_as != process.pid:
        return False
    return parent is None or (parent.program == SUPERVISE and process.program != SUPERVISE)


class RunNames(NamedTuple):
    """What a run is found by."""

    kind: str
    name: str
    what: str


def _list_own_runs(call: HttpCall) -> list[Process]:
    """Return the runs that the caller may see."""
    kernel, sees_all = call.kernel, call.caller.is_operator
    return [
        process
        for process in kernel.processes.values()
        if _is_run(process) and (sees_all or call.caller.owns(owner_if_known(kernel, process.pid)))
    ]


def _names(call: HttpCall, process: Process) -> RunNames:
    fork = call.kernel.core.forks.get(process.pid)
    what = f"fork of {fork['of']} at step {fork['at']}" if fork and "of" in fork else ""
    session = call.kernel.orchestrator.state.sessions.get(process.pid)
    run = process.stands_for or process
    own = run.program.removeprefix("agent:") if session is None else session.pipeline_config.name
    return RunNames(kind_of(call, process), process.name or own, what)


def _lines(call: HttpCall, runs: Iterable[Process]) -> list[RunLine]:
    lines = []
    for process in runs:
        kind, name, what = _names(call, process)
        micro_usd = int(process.spent.usd)
        lines.append(RunLine(process.pid, name, kind, state_of(process), micro_usd, process.created_at, what))
    return lines


async def _vega_lines(call: HttpCall, limit: int) -> list[RunLine]:
    if not call.caller.owns(""):
        return []
    lines = []
    for name, facts in (await call.parts.get_shared(Timelines).vega_runs(limit)).items():
        micro_usd = round(facts.get("cost_usd", 0.0) * 1_000_000)
        what = f"fork of {facts['fork_of']}" if facts.get("fork_of") else "Vega program"
        lines.append(RunLine(name, name, "vega", vega_state(facts["state"]), micro_usd, facts.get("began", 0.0), what))
    return lines


class RunsContent(msgspec.Struct):
    """The lines to show, how many fit besides, and whether there is any run."""

    lines: list[RunLine]
    hidden: int
    is_any: bool


async def _read(call: HttpCall) -> RunsContent:
    query: RunsQuery = call.query
    vega = await _vega_lines(call, _VEGA_SHOWN if query.kind == "vega" else _VEGA_AMONG_ALL)
    runs = _list_own_runs(call)
    fitting = runs
    if query.kind or query.text:
        fitting = [process for process in runs if query.fits(process.pid, *_names(call, process))]
    newest = nlargest(_SHOWN, fitting, key=lambda process: process.created_at)
    lines = [*_lines(call, newest), *(line for line in vega if query.fits(line.pid, line.kind, line.name, line.what))]
    return RunsContent(lines[:_SHOWN], len(fitting) - len(newest) + max(0, len(lines) - _SHOWN), bool(runs or vega))


def _join(_call: HttpCall, told: Sequence[Told[RunsContent]]) -> RunsContent:
    lines = [line._replace(pid=to_address(shard, line.pid)) for shard, runs in told for line in runs.lines]
    lines.sort(key=lambda line: (line.kind == "vega", -line.began_at))
    hidden = sum(runs.hidden for _, runs in told) + max(0, len(lines) - _SHOWN)
    return RunsContent(lines[:_SHOWN], hidden, any(runs.is_any for _, runs in told))


SOURCE: Final = PageSource("runs", RunsContent, _read, _join, RunsQuery)


async def _runs(call: HttpCall) -> RawAnswer:
    query: RunsQuery = call.query
    runs = await gather(call, SOURCE)
    rows = [_row(call, line) for line in runs.lines]
    content: Child = table("Runs", _COLUMNS, rows, name="runs-table") if rows else _nothing(call, is_any=runs.is_any)
    hidden = runs.hidden
    more = tag("p", f"{hidden:,} older runs are not shown: narrow the list.", class_="note") if hidden > 0 else None
    return page(call, "Runs", _filter(call, query), region(call, "runs", _EVENTS, content, more, every_ms=1_000))


_COLUMNS: Final = (
    "Run",
    "Kind",
    "State",
    TableColumn("Cost", is_figure=True),
    TableColumn("Began", is_figure=True),
    "Pid",
)


def _row(call: HttpCall, line: RunLine) -> TableRow:
    name = tag("a", line.name or line.pid, href=link(call, "runs", line.pid))
    about = tag("span", line.what, class_="note") if line.what else None
    return TableRow(
        line.pid,
        (
            join(name, " ", about),
            line.kind,
            Html(line.state),
            money(line.micro_usd),
            moment(line.began_at, call.now),
            render_copyable_id(line.pid),
        ),
    )


def _filter(call: HttpCall, query: RunsQuery) -> Html:
    options = [
        tag("option", label, value=word, selected=word == query.kind) for word, label in {"": "All", **KINDS}.items()
    ]
    return tag(
        "form",
        tag("label", "Kind ", tag("select", options, name="kind")),
        tag("label", "Text ", tag("input", name="text", value=query.text, type="search", maxlength=100)),
        tag("button", "Show"),
        method="get",
        action=link(call, "runs"),
        class_="bar",
        role="search",
    )


def _nothing(call: HttpCall, *, is_any: bool) -> Html:
    if is_any:
        return empty("No run fits. Choose another kind, or another text.")
    return nothing_yet(call, "Conversations, programs, pipelines and Vega runs stand here, each to be stepped through.")


ENDPOINTS: Final = (Endpoint("pages.runs", "GET", "/runs", "The runs", _runs, query=RunsQuery),)
