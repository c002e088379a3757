"""What the pages of nodes show: a node's evidence in one value, the step up and the way back, its confidence over time.

`read_node` reads a runtime, which blocks: it is called in a thread. Nothing is changed here.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from lyra.core.codec import to_plain
from lyra.server.dashboard.html import Html, tag
from lyra.server.dashboard.plots import PlotColumn, PlotStep, plot
from lyra.server.dashboard.words import state
from lyra.server.http.mounted_nodes import MountedNodes

__all__ = ["NodeFacts", "confidence_plot", "mode_words", "read_node", "read_nodes", "traffic_bar"]

# What each mode does with an execution, in words.
MODE_WORDS: Final[dict[str, str]] = {
    "python_only": "the Python path answers; nothing is compared",
    "shadow_direct": "the Python path answers; the direct path is compared behind it",
    "canary_direct": "the direct path answers for a small share; every execution is compared",
    "dual_verify": "the Python path answers; every execution is compared at once",
    "direct_only": "the direct path answers; every hundredth execution is compared",
}


class NodeFacts(NamedTuple):
    """A node and what is known about it. `found` are its divergences, `changes` those of its mode; both plain data, the
    newest last."""

    node_id: str
    kind: str
    intent: str
    routes: list[str]
    mode: str
    is_forced: bool
    direct_share: float
    compared: int
    divergences: int
    is_blocked: bool
    executions: dict[str, int]
    errors: int
    low: float
    high: float
    next_mode: str | None
    lack: str  # why the next mode is not allowed; "" where it is
    rollback_mode: str | None
    needed: float | None  # the confidence that the next mode needs
    timeline: list[tuple[float, int, int]]
    found: list[dict[str, Any]]
    changes: list[dict[str, Any]]

    @property
    def share(self) -> float | None:
        """The share of compared executions that agreed."""
        return (self.compared - self.divergences) / self.compared if self.compared else None


def read_node(mounted: MountedNodes, node_id: str) -> NodeFacts:
    """The facts of one node; HttpRefusal where there is none."""
    from lyra.vesper.evidence.confidence import interval
    from lyra.vesper.evidence.modes import GATES, MODES
    from lyra.vesper.evidence.promotion import next_step, rollback_mode

    node = mounted.get(node_id)
    evidence = mounted.runtime.evidence(node)
    step = next_step(evidence)
    low, high = interval(evidence.compared, evidence.divergences)
    plain = msgspec.to_builtins({"found": evidence.found, "changes": evidence.history}, enc_hook=to_plain)
    return NodeFacts(
        node_id=node_id,
        kind=node.kind,
        intent=str(node.intent),
        routes=mounted.routes(node_id),
        mode=evidence.mode,
        is_forced=evidence.forced,
        direct_share=MODES[evidence.mode].direct_of_10_000 / 10_000,
        compared=evidence.compared,
        divergences=evidence.divergences,
        is_blocked=evidence.blocked,
        executions=dict(evidence.executions),
        errors=evidence.errors,
        low=low,
        high=high,
        next_mode=step.mode,
        lack=step.reason,
        rollback_mode=rollback_mode(evidence.mode),
        needed=None if step.mode is None else GATES.get(step.mode),
        timeline=list(evidence.timeline),
        found=plain["found"],
        changes=plain["changes"],
    )


def read_nodes(mounted: MountedNodes) -> list[NodeFacts]:
    return [read_node(mounted, node_id) for node_id in sorted(mounted.nodes)]


def mode_words(facts: NodeFacts) -> Html:
    """The mode as a state: a blocked node failed, one on the way is running."""
    look = "failed" if facts.is_blocked else "running" if facts.direct_share else "waiting"
    word = f"{facts.mode}, forced" if facts.is_forced else facts.mode
    return state(look, word)


def traffic_bar(facts: NodeFacts) -> Html:
    """The split of traffic between the two paths, as a bar and in words."""
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
    """The share of agreement with its interval, at each moment when comparisons were counted."""
    from lyra.vesper.evidence.confidence import interval

    steps = []
    for time, compared, divergences in facts.timeline:
        moment = datetime.fromtimestamp(time, UTC)
        low, high = interval(compared, divergences)
        label = f"{moment:%Y-%m-%d %H:%M:%S} UTC, {compared:,} compared"
        steps.append(PlotStep(label, f"{moment:%H:%M}", [low, (compared - divergences) / compared, high]))
    columns = [PlotColumn("lower end", "line low"), PlotColumn("agreed"), PlotColumn("upper end", "high")]
    needed = "" if facts.needed is None else f" {facts.next_mode} needs a lower end of {facts.needed * 100:g} %."
    about = f"Share of compared executions that agreed, with its interval at 99.9 %.{needed}"
    least = min((step.values[0] or 0.0 for step in steps), default=0.0)
    return plot(
        "confidence", "Confidence", about, columns, steps, unit="share", low=max(0.0, least - (1 - least) * 0.2)
    )
