"""The figures of nodes in the text format of Prometheus, by the names that document 004 gives them.

`sir_executions_total`, `sir_execution_duration_ms`, `sir_executions_errors`, `sir_divergences`, `sir_confidence` and
`sir_traffic_split` are of every node; metrics that a node declares have the names it gives them. A name that two nodes
declare is written once, with the type of the first.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lyra.vesper.confidence import lower_bound
from lyra.vesper.evidence.modes import MODES
from lyra.vesper.evidence.state import DURATION_BUCKETS_MS, NodeEvidence

Labels = Mapping[str, str]


def prometheus(known: Iterable[NodeEvidence]) -> str:
    """Return one text for all nodes; a node's name is its label."""
    text = _MetricText()
    entries = list(known)
    text.family("sir_executions_total", "counter")
    for entry in entries:
        for path, count in entry.executions.items():
            text.sample("sir_executions_total", {"node": entry.node_id, "path": path}, count)
    text.family("sir_execution_duration_ms", "histogram")
    for entry in entries:
        for path, spread in entry.durations.items():
            labels = {"node": entry.node_id, "path": path}
            text.spread("sir_execution_duration_ms", labels, spread, DURATION_BUCKETS_MS)
    text.family("sir_executions_errors", "counter")
    for entry in entries:
        for code, count in entry.codes.items():
            text.sample("sir_executions_errors", {"node": entry.node_id, "error": code}, count)
    text.family("sir_divergences", "counter")
    for entry in entries:
        text.sample("sir_divergences", {"node": entry.node_id}, entry.divergences)
    text.family("sir_confidence", "gauge")
    for entry in entries:
        text.sample("sir_confidence", {"node": entry.node_id}, lower_bound(entry.compared, entry.divergences))
    text.family("sir_traffic_split", "gauge")
    for entry in entries:
        for path, share in _split(entry.mode).items():
            text.sample("sir_traffic_split", {"node": entry.node_id, "path": path}, share)
    for entry in entries:
        for name, declared in entry.metrics.items():
            text.declared(name, entry.node_id, declared)
    return text.text()


class _MetricText:
    """Lines of the format, family by family."""

    def __init__(self) -> None:
        self._families: dict[str, list[str]] = {}

    def family(self, name: str, kind: str) -> None:
        self._families.setdefault(name, [f"# TYPE {name} {kind}"])

    def sample(self, name: str, labels: Labels, value: float, *, of: str = "") -> None:
        shown = ",".join(f'{key}="{_escaped(word)}"' for key, word in labels.items())
        self._families[of or name].append(f"{name}{{{shown}}} {value:g}")

    def spread(self, name: str, labels: Labels, spread: Sequence[float], buckets: Sequence[float]) -> None:
        total = 0.0
        for bound, count in zip((*(f"{bound:g}" for bound in buckets), "+Inf"), spread[:-1], strict=True):
            total += count
            self.sample(f"{name}_bucket", {**labels, "le": bound}, total, of=name)
        self.sample(f"{name}_sum", labels, spread[-1], of=name)
        self.sample(f"{name}_count", labels, total, of=name)

    def declared(self, name: str, node_id: str, declared: Mapping[str, Any]) -> None:
        for key, value in declared["values"].items():
            self.family(name, declared["type"])
            labels = {"node": node_id, **json.loads(key)}
            if isinstance(value, list):
                self.spread(name, labels, value, declared["buckets"])
            else:
                self.sample(name, labels, value)

    def text(self) -> str:
        return "".join(f"{line}\n" for lines in self._families.values() for line in lines)


def _escaped(word: str) -> str:
    return word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _split(mode: str) -> dict[str, float]:
    direct = MODES[mode].direct_of_10_000 / 10_000
    return {"python": 1.0 - direct, "direct": direct}
