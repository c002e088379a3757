"""What is known about each node, kept in the journal: its mode, its comparisons, its divergences, its figures.

Facts belong to a key (`evidence.keys`): the content of a node and of all nodes that it calls, the version of Lyra's
paths and the tier of the direct one. A change of any starts again, and earlier evidence stays to be looked at.
Confidence counts distinct inputs that came past the entry checks. Comparisons are counted in batches; those counted
since the last batch are lost with a killed process, which only makes the evidence smaller than it could be. A
divergence is written at once, with the inputs that show it. A spread is a plain list, so that it lies in a row of the
journal as it is: how many numbers fell into each bucket, how many above the last, and their sum. Two spreads with the
same buckets add up place by place.

How quickly a node runs is compared with its own past: medians of its successes, path by path. Durations are gathered in
windows of `WINDOW` successes. The medians of the latest windows are the node's past, also that before its file was
changed. A node is slower when two windows in a row have a median of more than `SLOWER` times the usual one; such
windows do not become its past, until there are `MEDIANS_KEPT` of them: then that is its new pace.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from decimal import Decimal
from statistics import median
from typing import Any, ClassVar, Final

import msgspec

from lyra.vesper.confidence import lower_bound
from lyra.vesper.evidence.seen import SeenInputs

DIVERGENCES_KEPT: Final = 100
HISTORY_KEPT: Final = 200
ALERTS_KEPT: Final = 100
TIMELINE_KEPT: Final = 200
SERIES_MAX: Final = 1_000  # of one metric that a node declares; further labels are counted as `other`
WINDOW: Final = 100  # successes of which the median is taken
MEDIANS_KEPT: Final = 20
_PAST_MIN: Final = 3  # windows that are needed as a past
_IN_A_ROW: Final = 2
SLOWER: Final = 1.5
_NOISE_MS: Final = 0.005  # a difference that is no more than this is none


class KeptDivergence(msgspec.Struct):
    """A divergence: what two paths gave for the same inputs. Sensitive values are not kept."""

    time: float
    mode: str
    inputs: Any
    differences: list[dict[str, Any]]
    reproducible: bool
    trace_id: str = ""
    python: dict[str, Any] | None = None  # how the path ended: status, outputs, error; None where it is not known
    direct: dict[str, Any] | None = None
    step: str = ""  # after which the values of the paths differ; empty where it is not known


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
    clean: int = 0  # distinct inputs accepted since the last divergence
    codes: dict[str, int] = {}  # errors by code
    durations: dict[str, list[float]] = {}  # spreads of milliseconds by path
    metrics: dict[str, dict[str, Any]] = {}  # that the node declares, by name: type, buckets, values by labels
    alerts: list[dict[str, Any]] = []  # the newest last
    timeline: list[tuple[float, int, int]] = []  # time, accepted and divergences so far; thinned out where it is long
    distinct: int = 0  # inputs that were compared, each counted once
    accepted: int = 0  # of them, those past the entry checks
    successes: int = 0  # of them, those with which the node succeeded
    seen: bytes = b""  # the keys of the distinct inputs, see `evidence.seen`
    goals: list[str] = []  # steps, branches and declared errors that may be reached; empty before `vesper verify`
    reached: list[str] = []  # of them
    unreachable: dict[str, str] = {}  # parts that no execution can reach, with the reason
    complete: bool = False  # all inputs that the node may accept were compared
    breaches: list[dict[str, Any]] = []  # how the node broke its own contract: kind, expression, input

    @property
    def unreached(self) -> list[str]:
        """The steps, branches and declared errors that no compared execution has reached."""
        return [goal for goal in self.goals if goal not in self.reached and goal not in self.unreachable]

    @property
    def confidence(self) -> float:
        """The lowest share of agreement that the accepted inputs leave likely; not rounded."""
        if self.complete and not self.divergences:
            return 1.0
        return lower_bound(max(self.accepted, self.divergences), self.divergences)


class EvidenceState:
    """The durable state: rows of four kinds."""

    NAME: ClassVar[str] = "vesper"
    KINDS: ClassVar[frozenset[str]] = frozenset({"vesper.mode", "vesper.compared", "vesper.diverged", "vesper.alert"})

    __slots__ = ("_seen", "by_digest", "latest", "speeds")

    def __init__(self) -> None:
        self._seen: dict[str, SeenInputs] = {}  # of the nodes that were counted since the state was loaded
        self.by_digest: dict[str, NodeEvidence] = {}
        self.latest: dict[str, str] = {}  # node id → the digest that was used last
        self.speeds: dict[str, dict[str, PathSpeed]] = {}  # node id → path; a changed node keeps its past

    def get_or_create(self, node_id: str, digest: str) -> NodeEvidence:
        evidence = self.by_digest.get(digest)
        if evidence is None:
            evidence = self.by_digest[digest] = NodeEvidence(node_id, digest)
        self.latest[node_id] = digest
        return evidence

    def apply(self, kind: str, pid: str, time: float, data: dict[str, Any]) -> None:  # noqa: ARG002 (one signature)
        evidence = self.get_or_create(data["node"], data["digest"])
        if kind == "vesper.compared":
            _count(evidence, data)
            for path, durations in data.get("times", {}).items():
                self.speeds.setdefault(evidence.node_id, {}).setdefault(path, PathSpeed()).add(durations)
            self._note_reach(evidence, data)
            _note_time(evidence, time)
        elif kind == "vesper.diverged":
            evidence.compared += 1
            evidence.divergences += 1
            evidence.clean = 0
            evidence.blocked = evidence.blocked or data["reproducible"]
            evidence.found.append(msgspec.convert({"time": time, **data}, KeptDivergence))
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

    def _note_reach(self, evidence: NodeEvidence, row: dict[str, Any]) -> None:
        """Count the distinct inputs of a row and the parts that they reached and broke. Rows of older stores lack these
        keys."""
        if row.get("seen"):
            seen = self._seen.get(evidence.digest)
            if seen is None:
                seen = self._seen[evidence.digest] = SeenInputs(evidence.seen)
            before = seen.accepted
            seen.update(row["seen"])
            evidence.distinct, evidence.accepted, evidence.successes = len(seen), seen.accepted, seen.successes
            evidence.clean += seen.accepted - before
        elif row.get("totals"):  # as counted on another shard, which has the keys
            evidence.distinct, evidence.accepted, evidence.successes, evidence.clean = row["totals"]
        known = [(breach["kind"], breach["expression"]) for breach in evidence.breaches]
        for breach in row.get("breaches", ()):
            if (breach["kind"], breach["expression"]) not in known:
                evidence.breaches = [*evidence.breaches, breach]
        if row.get("goals"):
            evidence.goals = row["goals"]
            evidence.reached = sorted({*evidence.reached, *row["reached"]})
            evidence.unreachable = {**evidence.unreachable, **row["unreachable"]}
            evidence.complete = evidence.complete or row["complete"]

    def dump(self) -> Any:
        for digest, seen in self._seen.items():
            self.by_digest[digest].seen = seen.data
        return [list(self.by_digest.values()), self.latest, self.speeds]

    def slow_paths(self, node_id: str) -> set[str]:
        """Return the paths on which a node is slower than its own past."""
        return {path for path, speed in self.speeds.get(node_id, {}).items() if speed.is_slow}

    def load(self, data: Any) -> None:
        kept = msgspec.convert(data[0], list[NodeEvidence])
        self._seen = {}
        self.by_digest = {evidence.digest: evidence for evidence in kept}
        self.latest = {str(node): str(digest) for node, digest in data[1].items()}
        # A snapshot of an older store has no speeds.
        self.speeds = msgspec.convert(data[2], dict[str, dict[str, PathSpeed]]) if len(data) > 2 else {}


def _count(evidence: NodeEvidence, row: dict[str, Any]) -> None:
    """Add a row of counted executions. Rows of before have no codes, durations and metrics."""
    evidence.compared += row["compared"]
    evidence.errors += row["errors"]
    _add(evidence.executions, row["executions"])
    _add(evidence.codes, row.get("codes", {}))
    _add(evidence.durations, row.get("durations", {}))
    for name, declared in row.get("metrics", {}).items():
        known = evidence.metrics.setdefault(name, {**declared, "values": {}})
        for labels, value in declared["values"].items():
            key = _limit_series(labels, known["values"])
            if declared["type"] == "gauge":
                known["values"][key] = value
            else:
                _add(known["values"], {key: value})


def _note_time(evidence: NodeEvidence, time: float) -> None:
    """Add a point to the timeline. A full one keeps every second point, so that it always reaches back to the start."""
    counted = max(evidence.accepted, evidence.divergences)
    if evidence.timeline and evidence.timeline[-1][1:] == (counted, evidence.divergences):
        return
    evidence.timeline.append((time, counted, evidence.divergences))
    if len(evidence.timeline) > TIMELINE_KEPT:
        evidence.timeline = evidence.timeline[::2]


def _limit_series(labels: str, known: dict[str, Any]) -> str:
    """Return the labels of a series as JSON; those of `other` where there are `SERIES_MAX` of one metric already."""
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


# ---------------------------------------------------------------- figures

DURATION_BUCKETS_MS: Final = (0.01, 0.1, 1.0, 10.0, 100.0, 1_000.0, 10_000.0)


def empty_spread(buckets: Sequence[float]) -> list[float]:
    return [0] * (len(buckets) + 2)


def observe(spread: list[float], buckets: Sequence[float], number: float) -> None:
    spread[bisect_left(buckets, number)] += 1
    spread[-1] += number


def add_spread(first: list[float], second: Sequence[float]) -> list[float]:
    return [left + right for left, right in zip(first, second, strict=True)]


class LatestExecutions:
    """The last executions of a node: how many failed, and how long they took."""

    def __init__(self) -> None:
        self._rows: deque[tuple[bool, float]] = deque(maxlen=WINDOW)

    def add(self, *, failed: bool, milliseconds: float) -> None:
        self._rows.append((failed, milliseconds))

    def figures(self) -> dict[str, Any]:
        rows = self._rows.copy()  # at once: other threads execute the node meanwhile
        count = len(rows)
        errors = sum(failed for failed, _ in rows)
        times = sorted(milliseconds for _, milliseconds in rows)
        return {
            "executions": count,
            "errors": errors,
            "error_rate": Decimal(errors) / count if count else Decimal(0),
            "p50_latency_ms": _rank(times, 50),
            "p95_latency_ms": _rank(times, 95),
            "p99_latency_ms": _rank(times, 99),
            "max_latency_ms": _rank(times, 100),
        }


def _rank(times: list[float], percent: int) -> Decimal | None:
    """Return the nearest rank: the smallest number that so many percent of all do not exceed."""
    if not times:
        return None
    index = -(-len(times) * percent // 100) - 1
    return Decimal(repr(times[index]))


class PathSpeed(msgspec.Struct):
    """The durations of one path of one node, in milliseconds."""

    waiting: list[float] = []
    medians: list[float] = []  # of the latest windows that were not slow
    latest_ms: float = 0.0  # the median of the last full window
    slow_windows: int = 0  # in a row

    @property
    def usual_ms(self) -> float:
        return median(self.medians) if self.medians else 0.0

    @property
    def is_slow(self) -> bool:
        return self.slow_windows >= _IN_A_ROW

    def add(self, durations: Iterable[float]) -> None:
        self.waiting.extend(durations)
        while len(self.waiting) >= WINDOW:
            window, self.waiting = self.waiting[:WINDOW], self.waiting[WINDOW:]
            self._judge(median(window))

    def _judge(self, milliseconds: float) -> None:
        self.latest_ms, usual = milliseconds, self.usual_ms
        is_over = milliseconds > SLOWER * usual and milliseconds - usual > _NOISE_MS
        if len(self.medians) >= _PAST_MIN and is_over:
            self.slow_windows += 1
            if self.slow_windows < MEDIANS_KEPT:
                return
            self.medians.clear()
        self.slow_windows = 0
        self.medians.append(milliseconds)
        del self.medians[:-MEDIANS_KEPT]

    def to_data(self) -> dict[str, Any]:
        return {"latest_ms": self.latest_ms, "usual_ms": self.usual_ms, "is_slower": self.is_slow}


def slow_alert(node_id: str, digest: str, path: str, speed: PathSpeed) -> dict[str, Any]:
    """Return the alert of a node that became slower."""
    figures = {"path": path, "latest_ms": f"{speed.latest_ms:.4f}", "usual_ms": f"{speed.usual_ms:.4f}"}
    head = {"node": node_id, "digest": digest, "condition": "slower than its own past", "severity": "warning"}
    return {**head, "notify": [], "figures": figures}
