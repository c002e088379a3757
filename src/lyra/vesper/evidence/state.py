"""What is known about each node, kept in the journal: its mode, its comparisons, its divergences.

Facts belong to the content of a node (its digest): a changed node starts again, and its earlier evidence stays to be
looked at. Comparisons are counted in batches; those counted since the last batch are lost with a killed process, which
only makes the evidence smaller than it could be. A divergence is written at once, with the inputs that show it.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar, Final

import msgspec

from lyra.vesper.evidence.confidence import lower_bound
from lyra.vesper.evidence.figures import add_spread

DIVERGENCES_KEPT: Final = 100
HISTORY_KEPT: Final = 200
ALERTS_KEPT: Final = 100
TIMELINE_KEPT: Final = 200
SERIES_MAX: Final = 1_000  # of one metric that a node declares; further labels are counted as `other`


class KeptDivergence(msgspec.Struct):
    """A divergence: what two paths gave for the same inputs. Sensitive values are not kept."""

    time: float
    mode: str
    inputs: Any
    differences: list[dict[str, Any]]
    reproducible: bool
    trace_id: str = ""


class NodeEvidence(msgspec.Struct):
    """What is known about one content of one node."""

    node_id: str
    digest: str
    mode: str = "python_only"
    forced: bool = False  # set by hand against the evidence
    compared: int = 0
    divergences: int = 0
    blocked: bool = False  # a divergence could be reproduced: no promotion
    executions: dict[str, int] = {}  # by path
    errors: int = 0
    found: list[KeptDivergence] = []
    history: list[dict[str, Any]] = []  # changes of the mode, the newest last
    clean: int = 0  # compared since the last divergence
    codes: dict[str, int] = {}  # errors by code
    durations: dict[str, list[float]] = {}  # spreads of milliseconds by path
    metrics: dict[str, dict[str, Any]] = {}  # that the node declares, by name: type, buckets, values by labels
    alerts: list[dict[str, Any]] = []  # the newest last
    timeline: list[tuple[float, int, int]] = []  # time, compared and divergences so far; thinned out where it is long

    @property
    def confidence(self) -> float:
        """The lowest share of agreement that the comparisons leave likely; not rounded."""
        return lower_bound(self.compared, self.divergences)


class EvidenceState:
    """The durable state: rows of four kinds."""

    NAME: ClassVar[str] = "vesper"
    KINDS: ClassVar[frozenset[str]] = frozenset({"vesper.mode", "vesper.compared", "vesper.diverged", "vesper.alert"})

    __slots__ = ("by_digest", "latest")

    def __init__(self) -> None:
        self.by_digest: dict[str, NodeEvidence] = {}
        self.latest: dict[str, str] = {}  # node id → the digest that was used last

    def of(self, node_id: str, digest: str) -> NodeEvidence:
        evidence = self.by_digest.get(digest)
        if evidence is None:
            evidence = self.by_digest[digest] = NodeEvidence(node_id, digest)
        self.latest[node_id] = digest
        return evidence

    def apply(self, kind: str, pid: str, time: float, data: dict[str, Any]) -> None:  # noqa: ARG002 (one signature)
        evidence = self.of(data["node"], data["digest"])
        if kind == "vesper.compared":
            _count(evidence, data)
            _note_time(evidence, time)
        elif kind == "vesper.diverged":
            evidence.compared += 1
            evidence.divergences += 1
            evidence.clean = 0
            evidence.blocked = evidence.blocked or data["reproducible"]
            evidence.found.append(
                KeptDivergence(
                    time, data["mode"], data["inputs"], data["differences"], data["reproducible"], data["trace_id"]
                )
            )
            del evidence.found[:-DIVERGENCES_KEPT]
            _note_time(evidence, time)
        elif kind == "vesper.alert":
            names = ("condition", "severity", "notify", "figures")
            evidence.alerts.append({"time": time, **{name: data[name] for name in names}})
            del evidence.alerts[:-ALERTS_KEPT]
        else:
            change = {"time": time, "from": evidence.mode, "to": data["to"], "why": data["why"]}
            evidence.mode, evidence.forced = data["to"], data["forced"]
            evidence.history.append(change)
            del evidence.history[:-HISTORY_KEPT]

    def dump(self) -> Any:
        return [list(self.by_digest.values()), self.latest]

    def load(self, data: Any) -> None:
        kept = msgspec.convert(data[0], list[NodeEvidence])
        self.by_digest = {evidence.digest: evidence for evidence in kept}
        self.latest = {str(node): str(digest) for node, digest in data[1].items()}


def _count(evidence: NodeEvidence, row: dict[str, Any]) -> None:
    """Add a row of counted executions. Rows of before have no codes, durations and metrics."""
    evidence.compared += row["compared"]
    evidence.clean += row["compared"]
    evidence.errors += row["errors"]
    _add(evidence.executions, row["executions"])
    _add(evidence.codes, row.get("codes", {}))
    _add(evidence.durations, row.get("durations", {}))
    for name, declared in row.get("metrics", {}).items():
        known = evidence.metrics.setdefault(name, {**declared, "values": {}})
        for labels, value in declared["values"].items():
            key = _bounded(labels, known["values"])
            if declared["type"] == "gauge":
                known["values"][key] = value
            else:
                _add(known["values"], {key: value})


def _note_time(evidence: NodeEvidence, time: float) -> None:
    """Add a point to the timeline. A full one keeps every second point, so that it always reaches back to the start."""
    if evidence.timeline and evidence.timeline[-1][1:] == (evidence.compared, evidence.divergences):
        return
    evidence.timeline.append((time, evidence.compared, evidence.divergences))
    if len(evidence.timeline) > TIMELINE_KEPT:
        evidence.timeline = evidence.timeline[::2]


def _bounded(labels: str, known: dict[str, Any]) -> str:
    """The labels of a series as JSON; those of `other` where there are `SERIES_MAX` of one metric already."""
    if labels in known or len(known) < SERIES_MAX:
        return labels
    return json.dumps(dict.fromkeys(json.loads(labels), "other"))


def _add(totals: dict[str, Any], more: dict[str, Any]) -> None:
    """Add counts, and spreads of the same buckets."""
    for key, value in more.items():
        known = totals.get(key)
        if known is None:
            totals[key] = value
        else:
            totals[key] = add_spread(known, value) if isinstance(value, list) else known + value
