"""The runs of pipelines, by pipeline: how each stands and where its envelope is."""

from __future__ import annotations

from typing import Final

from lyra.kernel.pipelines.session import Session
from lyra.server.dashboard.html import Html, tag
from lyra.server.dashboard.layout import link, page, region
from lyra.server.dashboard.table import TableColumn, TableRow, table
from lyra.server.dashboard.views.pipelines import PIPELINE_EVENTS, own_sessions, run_graph, standing_of
from lyra.server.dashboard.words import duration, empty, moment, state
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer, RequestQuery

_RUNS_SHOWN: Final = 50  # of one pipeline
_PIPELINES_SHOWN: Final = 20
_PID_CHARS: Final = 40


class PipelineQuery(RequestQuery):
    """`name` shows the runs of one pipeline alone."""

    name: str = ""


async def _pipelines(call: HttpCall) -> RawAnswer:
    by_name: dict[str, list[Session]] = {}
    for session in own_sessions(call):
        by_name.setdefault(session.pipeline_config.name, []).append(session)
    wanted: str = call.query.name
    shown = {name: runs for name, runs in by_name.items() if not wanted or name == wanted}
    parts = [_pipeline(call, name, runs) for name, runs in list(shown.items())[:_PIPELINES_SHOWN]]
    nothing = empty(
        "Runs of pipelines stand here, with the envelope moving from stage to stage.",
        'curl -H "Authorization: Bearer $TOKEN" -d \'{"pipeline": {…}, "input": "…"}\' '
        f"http://{call.headers.get('host', 'HOST')}/api/pipelines",
    )
    hidden = len(shown) - len(parts)
    return page(
        call,
        "Pipelines",
        region(call, "pipelines", PIPELINE_EVENTS, parts or nothing),
        tag("p", f"{hidden} more pipelines are not shown.", class_="note") if hidden > 0 else None,
        lead="Work that passes through declared stages. The dot is the work: where it is now, or where it ended.",
    )


def _pipeline(call: HttpCall, name: str, runs: list[Session]) -> Html:
    counts: dict[str, int] = {}
    for session in runs:
        word = standing_of(session).status
        counts[word] = counts.get(word, 0) + 1
    summary = [tag("span", state(word, f"{count} {_COUNTED[word]}"), " ") for word, count in sorted(counts.items())]
    return tag(
        "section",
        tag(
            "div", tag("h2", tag("a", name, href=link(call, "pipelines", query={"name": name}))), summary, class_="bar"
        ),
        run_graph(runs[0]),
        runs_table(call, name, runs[:_RUNS_SHOWN]),
        tag("p", f"{len(runs) - _RUNS_SHOWN:,} older runs.", class_="note") if len(runs) > _RUNS_SHOWN else None,
        data_key=name,
    )


_COUNTED: Final = {"running": "running", "blocked": "waiting", "done": "completed", "failed": "failed"}


def runs_table(call: HttpCall, name: str, runs: list[Session]) -> Html:
    """The runs of one pipeline, a row each."""
    columns: list[TableColumn | str] = [
        *("Run", "State", "Stage", "Began"),
        *(TableColumn(word, is_figure=True) for word in ("took", "stages", "model calls")),
    ]
    return table(f"Runs of {name}", columns, [_row(call, session) for session in runs])


def _short(pid: str) -> str:
    return pid if len(pid) <= _PID_CHARS else f"{pid[:_PID_CHARS]}…"


def _row(call: HttpCall, session: Session) -> TableRow:
    standing, envelope = standing_of(session), session.envelope
    end = session.last_activity_at if session.terminated else call.now
    pid = session.process_id
    stages = ", ".join(dict.fromkeys(token.stage for token in session.tokens if token.stage)) or envelope.current_stage
    cells = (
        tag("a", _short(pid), href=link(call, "pipelines", pid), title=pid),
        state(standing.status, standing.word),
        "–" if session.terminated else stages,
        moment(session.created_at, call.now),
        duration(max(end - session.created_at, 0.0)),
        f"{sum(session.stage_visits.values()):,}",
        f"{envelope.llm_call_count:,}",
    )
    return TableRow(pid, cells)


ENDPOINTS: Final = (
    Endpoint(
        name="pages.pipelines",
        method="GET",
        path="/pipelines",
        summary="The runs of pipelines",
        handler=_pipelines,
        query=PipelineQuery,
        is_documented=False,
    ),
)
