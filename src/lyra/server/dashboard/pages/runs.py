"""The runs: conversations with agents, programs, pipelines and Vega programs, each to be stepped through."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from lyra.core.naming import SUPERVISE
from lyra.server.dashboard.first_step import nothing_yet
from lyra.server.dashboard.html import Child, Html, join, tag
from lyra.server.dashboard.layout import link, page, region
from lyra.server.dashboard.table import TableColumn, TableRow, table
from lyra.server.dashboard.words import copied_id, empty, end_state, moment, money, state
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer, RequestQuery
from lyra.server.http.timelines import Timelines
from lyra.server.owners import owner_if_known

if TYPE_CHECKING:
    from lyra.kernel.process.process import Process

__all__ = ["ENDPOINTS", "kind_of", "state_of"]

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
_VEGA_AMONG_ALL: Final = 5  # the newest; the kind Vega shows more


class RunsQuery(RequestQuery):
    """`kind` is agent, program, supervisor, pipeline or vega; `text` is in the name, the program or the pid."""

    kind: str = ""
    text: str = ""


class RunLine(NamedTuple):
    pid: str
    name: str
    kind: str
    state: Html
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
    """How a process stands, in the shapes of the pages."""
    ended = process.exit
    run = process.stands_for or process
    if ended is None:
        return state("idle" if run.receiver is not None else process.state)
    return end_state(ended.reason, has_error=ended.error is not None)


def _is_run(process: Process) -> bool:
    """Whether a process is a run of its own: nothing but a supervisor started it, and no guard stands for it."""
    parent = process.parent
    if process.known_as != process.pid:
        return False
    return parent is None or (parent.program == SUPERVISE and process.program != SUPERVISE)


def _lines(call: HttpCall) -> list[RunLine]:
    spent: dict[str, float] = {}
    for _, span in call.parts.records.spans():
        if span.kind == "model":
            spent[span.pid] = spent.get(span.pid, 0.0) + float(span.data.get("cost_usd") or 0.0)
    forks = call.kernel.core.forks
    lines = []
    for process in call.kernel.processes.values():
        if not _is_run(process) or not call.caller.owns(owner_if_known(call.kernel, process.pid)):
            continue
        parent = process.parent
        above = call.kernel.budget if parent is None else parent.budget
        is_own = process.budget is not above
        micro_usd = int(process.budget.used("usd")) if is_own else round(spent.get(process.pid, 0.0) * 1_000_000)
        run = process.stands_for or process
        fork = forks.get(process.pid) or {}
        what = f"fork of {fork['of']} at step {fork['at']}" if "of" in fork else ""
        kind = kind_of(call, process)
        session = call.kernel.orchestrator.state.sessions.get(process.pid)
        own = run.program.removeprefix("agent:") if session is None else session.pipeline_config.name
        name = process.name or own
        lines.append(RunLine(process.pid, name, kind, state_of(process), micro_usd, process.created_at, what))
    return sorted(lines, key=lambda line: -line.began_at)


async def _vega_lines(call: HttpCall, limit: int) -> list[RunLine]:
    if not call.caller.owns(""):
        return []
    lines = []
    for name, summary in (await call.parts.shared(Timelines).vega_runs(limit)).items():
        word = summary["state"]
        mark = state("running") if word == "running" else end_state(word)
        began_at, micro_usd = summary["began_at"] or 0.0, summary["usage"].get("usd", 0)
        lines.append(RunLine(name, name, "vega", mark, micro_usd, began_at, "Vega program"))
    return lines


async def _runs(call: HttpCall) -> RawAnswer:
    query: RunsQuery = call.query
    vega = await _vega_lines(call, _VEGA_SHOWN if query.kind == "vega" else _VEGA_AMONG_ALL)
    lines = [*_lines(call), *vega]
    wanted = query.text.lower()
    chosen = [
        line
        for line in lines
        if query.kind in ("", line.kind)
        and (not wanted or any(wanted in word.lower() for word in (line.pid, line.name, line.what)))
    ]
    rows = [_row(call, line) for line in chosen[:_SHOWN]]
    content: Child = table("Runs", _COLUMNS, rows, name="runs-table") if rows else _nothing(call, is_any=bool(lines))
    hidden = len(chosen) - len(rows)
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
            line.state,
            money(line.micro_usd),
            moment(line.began_at, call.kernel.clock.now()),
            copied_id(line.pid),
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


ENDPOINTS: Final = (
    Endpoint(
        name="pages.runs",
        method="GET",
        path="/runs",
        summary="The runs",
        handler=_runs,
        query=RunsQuery,
        is_documented=False,
    ),
)
