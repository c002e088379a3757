"""What the pages of pipelines show: the runs that a caller may see, how each stands, and its graph with the envelope.

Reads the sessions of the kernel's orchestrator and changes nothing. `run_graph` draws the declared stages; the stage at
which the envelope is, those it has passed and the edges it took have kinds of their own, and each position of the work
is a mark that moves when the region is fetched again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from lyra.core.svg_graph import GraphMark, draw_layers
from lyra.kernel.pipelines.graph import arrows, nodes
from lyra.kernel.pipelines.session import Session
from lyra.server.dashboard.html import Html, tag
from lyra.server.http.endpoint import HttpCall
from lyra.server.owners import owner_if_known

PIPELINE_EVENTS: Final = (
    *("pipeline.initialized", "pipeline.started", "pipeline.reported", "pipeline.waiting", "pipeline.resumed"),
    *("pipeline.terminated", "pipeline.ended", "pipeline.forgotten"),
)
_MARKED_STATES: Final = {"ready": "ready to run", "running": "running", "waiting": "waits for an answer"}


class RunStanding(NamedTuple):
    """How a run stands: `status` is a word that `words.state` knows, `word` says it."""

    status: str
    word: str


def own_sessions(call: HttpCall) -> list[Session]:
    """The runs of the caller, the newest first."""
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
    """The class of each stage: current, waiting, failed, passed; none for one that was not reached."""
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
    """The graph of a run's pipeline."""
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
