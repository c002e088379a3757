"""One run of a pipeline: its graph with the envelope moving, what each stage gave, and a button that ends it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from lyra.core.codec import to_plain
from lyra.core.svg_graph import GraphMark, draw_layers
from lyra.errors import InvalidTransition
from lyra.kernel.pipelines.schema import arrows, nodes
from lyra.kernel.pipelines.session import Session
from lyra.server.dashboard.html import Child, Html, TableColumn, TableRow, facts_row, join, table, tag
from lyra.server.dashboard.layout import act_form, link, page, region, see_other
from lyra.server.dashboard.words import duration, empty, moment, render_copyable_id, state
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer, RequestQuery
from lyra.server.http.problems import HttpRefusal
from lyra.server.owners import owner_if_known

_TEXT_CHARS_MAX: Final = 10_000
_OTHER_RUNS: Final = 10
_STATES: Final = {"running": "running", "success": "done", "error": "failed", "skipped": "done"}


def _session(call: HttpCall) -> Session:
    pid = call.path["pid"]
    session = next((session for session in list_own_sessions(call) if session.process_id == pid), None)
    if session is None:
        raise HttpRefusal(404, f"no run of a pipeline {pid[:100]!r}", hint="the page Pipelines lists them")
    return session


async def _pipeline(call: HttpCall) -> RawAnswer:
    session = _session(call)
    name = session.pipeline_config.name
    others = [
        run
        for run in list_own_sessions(call)
        if run.pipeline_config.name == name and run.process_id != session.process_id
    ]
    return page(
        call,
        f"Pipeline {name}",
        region(call, "run", PIPELINE_EVENTS, _head(call, session), run_graph(session)),
        region(call, "stages", PIPELINE_EVENTS, _stages(call, session), _outputs(session)),
        _other_runs(call, name, others),
        wide=True,
    )


def _head(call: HttpCall, session: Session) -> Html:
    standing, envelope = standing_of(session), session.envelope
    now = call.now
    end = session.last_activity_at if session.terminated else now
    facts: list[tuple[str, Child]] = [
        ("State", state(standing.status, standing.word)),
        ("Stage", envelope.current_stage or "–"),
        ("Began", moment(session.created_at, now)),
        ("Took", duration(max(end - session.created_at, 0.0))),
        ("Model calls", f"{envelope.llm_call_count:,} of {envelope.max_llm_calls:,}"),
        ("Hops", f"{envelope.agent_hop_count:,} of {envelope.max_agent_hops:,}"),
        ("Iteration", f"{envelope.iteration:,} of {envelope.max_iterations:,}"),
        ("User", envelope.user_id),
        ("Run", render_copyable_id(session.process_id)),
    ]
    why = "The run has ended" if session.terminated else ""
    stop = act_form(
        call,
        link(call, "acts/pipelines", session.process_id, "stop"),
        tag("button", "Stop", class_="danger"),
        why_not=why,
    )
    questions = [
        tag("p", state("blocked", str(question.interrupt.get("question") or question.interrupt.get("message") or "")))
        for question in session.waiting
    ]
    return join(tag("div", facts_row(facts), stop, class_="bar spread"), questions)


# ---------------------------------------------------------------- what the stages did
def _stages(call: HttpCall, session: Session) -> Html:
    envelope = session.envelope
    columns: list[TableColumn | str] = [
        *("Stage", "State", "Began"),
        TableColumn("took", is_figure=True),
        TableColumn("model calls", is_figure=True),
        "Error",
    ]
    now = call.now
    rows = [
        TableRow(
            f"{number}-{record.agent}",
            (
                record.agent,
                state(_STATES.get(record.status.value, "unknown"), record.status.value),
                moment(record.started_at, now),
                duration(record.duration_ms / 1000) if record.completed_at else "–",
                record.llm_calls,
                record.error or "",
            ),
        )
        for number, record in enumerate(envelope.processing_history)
    ]
    return join(tag("h2", "Stages"), table("Stages that were run, in order", columns, rows))


def _outputs(session: Session) -> Html:
    envelope = session.envelope
    parts = [_text("input", envelope.raw_input)]
    parts += [_text(f"output of {name}", value) for name, value in envelope.outputs.items()]
    return join(tag("h2", "Envelope"), *parts)


def _text(title: str, value: Any) -> Html:
    text = value if isinstance(value, str) else _json(value)
    cut = text[:_TEXT_CHARS_MAX] + ("…" if len(text) > _TEXT_CHARS_MAX else "")
    return tag("details", tag("summary", title), tag("pre", cut, tabindex="0"), class_="card", data_key=title)


def _json(value: Any) -> str:
    plain = msgspec.to_builtins(value, enc_hook=to_plain, str_keys=True)
    return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode()


def _other_runs(call: HttpCall, name: str, others: list[Session]) -> Html | None:
    if not others:
        return None
    return tag("section", tag("h2", "Other runs"), runs_table(call, name, others[:_OTHER_RUNS]))


async def _stop(call: HttpCall) -> RawAnswer:
    session = _session(call)
    if session.terminated:
        raise InvalidTransition("the run has ended")
    reason = f"stopped by {call.caller.name}"
    await call.kernel.orchestrator.terminate_session(session.process_id, "user_cancelled", reason)
    return see_other(call, "pipelines", session.process_id)


# ---------------------------------------------------------------- pipelines
# The runs of pipelines, by pipeline: how each stands and where its envelope is.

_RUNS_SHOWN: Final = 50  # of one pipeline
_PIPELINES_SHOWN: Final = 20
_PID_CHARS: Final = 40


class PipelineQuery(RequestQuery):
    """`name` shows the runs of one pipeline alone."""

    name: str = ""


async def _pipelines(call: HttpCall) -> RawAnswer:
    by_name: dict[str, list[Session]] = {}
    for session in list_own_sessions(call):
        by_name.setdefault(session.pipeline_config.name, []).append(session)
    wanted: str = call.query.name
    shown = {name: runs for name, runs in by_name.items() if not wanted or name == wanted}
    parts = [_pipeline_row(call, name, runs) for name, runs in list(shown.items())[:_PIPELINES_SHOWN]]
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


def _pipeline_row(call: HttpCall, name: str, runs: list[Session]) -> Html:
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
    """Return the runs of one pipeline, a row each."""
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
    Endpoint("pages.pipeline", "GET", "/pipelines/{pid}", "One run of a pipeline", _pipeline, statuses=(404,)),
    Endpoint(
        "acts.stop_pipeline",
        "POST",
        "/acts/pipelines/{pid}/stop",
        "End a run of a pipeline",
        _stop,
        statuses=(404, 409),
    ),
    Endpoint("pages.pipelines", "GET", "/pipelines", "The runs of pipelines", _pipelines, query=PipelineQuery),
)


# ---------------------------------------------------------------- pipelines
# What the pages of pipelines show: the runs that a caller may see, how each stands, and its graph with the envelope.

PIPELINE_EVENTS: Final = (
    *("pipeline.initialized", "pipeline.started", "pipeline.reported", "pipeline.waiting", "pipeline.resumed"),
    *("pipeline.terminated", "pipeline.ended", "pipeline.forgotten"),
)
_MARKED_STATES: Final = {"ready": "ready to run", "running": "running", "waiting": "waits for an answer"}


class RunStanding(NamedTuple):
    """How a run stands: `status` is a word that `words.state` knows, `word` says it."""

    status: str
    word: str


def list_own_sessions(call: HttpCall) -> list[Session]:
    """Return the runs of the caller, the newest first."""
    kernel = call.kernel
    sessions = kernel.orchestrator.state.sessions.values()
    own = [session for session in sessions if call.caller.owns(owner_if_known(kernel, session.process_id))]
    return sorted(own, key=lambda session: (-session.created_at, session.process_id))


def standing_of(session: Session) -> RunStanding:
    if session.terminated:
        reason = session.terminal_reason
        outcome = "completed" if reason is None else reason.outcome()
        word = (
            outcome.replace("_", " ") if reason is None or reason.value == outcome else reason.value.replace("_", " ")
        )
        return RunStanding("done" if outcome == "completed" else "failed", word)
    if session.envelope.interrupt_pending or session.waiting:
        return RunStanding("blocked", "waits for an answer")
    return RunStanding("running", "running")


def _stage_kinds(session: Session) -> dict[str, str]:
    """Return the class of each stage: current, waiting, failed, passed; none for one that was not reached."""
    kinds = dict.fromkeys((name for name, visits in session.stage_visits.items() if visits), "passed")
    kinds |= dict.fromkeys(session.envelope.failed_stages, "failed")
    for token in session.tokens:
        if token.stage:
            kinds[token.stage] = "asking" if token.state == "waiting" else "current"
    if session.terminated:
        kinds["end"] = "passed" if standing_of(session).status == "done" else "failed"
    return kinds


def _edges_taken(session: Session) -> dict[tuple[str, str], int]:
    taken: dict[tuple[str, str], int] = {}
    for key, count in session.edge_traversals.items():
        source, _, target = key.partition("->")
        taken[source, target] = count
    history = session.envelope.processing_history
    if session.terminated and history and standing_of(session).status == "done":
        last = [stage.name for stage in session.pipeline_config.agents if stage.agent_name == history[-1].agent]
        taken |= {(name, "end"): 1 for name in last}
    return taken


def _marks(session: Session, places: Iterable[str]) -> list[GraphMark]:
    known = set(places)
    if session.terminated:
        return [GraphMark("end", "token-1", "envelope ended", "the envelope came to its end")] if "end" in known else []
    return [
        GraphMark(
            token.stage, f"token-{token.id}", f"envelope {token.state}", f"the envelope: {_MARKED_STATES[token.state]}"
        )
        for token in session.tokens
        if token.stage in known and token.state in _MARKED_STATES
    ]


def run_graph(session: Session) -> Html:
    """Return the graph of a run's pipeline."""
    config = session.pipeline_config
    drawn = nodes(config, _stage_kinds(session))
    picture = draw_layers(
        config.name,
        drawn,
        arrows(config, _edges_taken(session)),
        last=("end",),
        embedded=True,
        marks=_marks(session, (node.name for node in drawn)),
    )
    return tag("div", Html(picture), class_="graph-box")
