"""One run of a pipeline: its graph with the envelope moving, what each stage gave, and a button that ends it."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from lyra.core.codec import to_plain
from lyra.errors import InvalidTransition
from lyra.kernel.pipelines.session import Session
from lyra.server.dashboard.html import Child, Html, join, tag
from lyra.server.dashboard.layout import act_form, link, page, region, see_other
from lyra.server.dashboard.pages.pipelines import runs_table
from lyra.server.dashboard.table import TableColumn, TableRow, table
from lyra.server.dashboard.views.facts import facts_row
from lyra.server.dashboard.views.pipelines import PIPELINE_EVENTS, own_sessions, run_graph, standing_of
from lyra.server.dashboard.words import copied_id, duration, moment, state
from lyra.server.http.endpoint import Endpoint, HttpCall, RawAnswer
from lyra.server.http.problems import HttpRefusal

_TEXT_CHARS_MAX: Final = 10_000
_OTHER_RUNS: Final = 10
_STATES: Final = {"running": "running", "success": "done", "error": "failed", "skipped": "done"}


def _session(call: HttpCall) -> Session:
    pid = call.path["pid"]
    session = next((session for session in own_sessions(call) if session.process_id == pid), None)
    if session is None:
        raise HttpRefusal(404, f"no run of a pipeline {pid[:100]!r}", hint="the page Pipelines lists them")
    return session


async def _pipeline(call: HttpCall) -> RawAnswer:
    session = _session(call)
    name = session.pipeline_config.name
    others = [
        run for run in own_sessions(call) if run.pipeline_config.name == name and run.process_id != session.process_id
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
        ("Run", copied_id(session.process_id)),
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


ENDPOINTS: Final = (
    Endpoint(
        name="pages.pipeline",
        method="GET",
        path="/pipelines/{pid}",
        summary="One run of a pipeline",
        handler=_pipeline,
        is_documented=False,
        statuses=(404,),
    ),
    Endpoint(
        name="acts.stop_pipeline",
        method="POST",
        path="/acts/pipelines/{pid}/stop",
        summary="End a run of a pipeline",
        handler=_stop,
        is_documented=False,
        statuses=(404, 409),
    ),
)
