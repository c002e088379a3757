"""The facts of mounted nodes: a node's evidence in one value, with the step up, the way back, and its past.

`read_node` reads a runtime, which blocks: it is called in a thread. Nothing is changed here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from lyra.core.codec import to_plain
from lyra.server.http.mounted_nodes import MountedNodes


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
    confidence: float  # the lower end, 0 below the minimum of comparisons
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
    from lyra.vesper.confidence import interval
    from lyra.vesper.evidence.modes import GATES, MODES, next_step, rollback_mode

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
        confidence=evidence.confidence,
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
