"""The figures of nodes in the text format of Prometheus, by the names that document 004 gives them."""

from __future__ import annotations

from collections.abc import Iterable

from lyra.vesper.evidence.confidence import lower_bound
from lyra.vesper.evidence.modes import MODES
from lyra.vesper.evidence.state import NodeEvidence

__all__ = ["prometheus"]


def prometheus(known: Iterable[NodeEvidence]) -> str:
    """One text for all nodes; a node's name is its label."""
    entries = list(known)
    lines: list[str] = []

    def family(name: str, kind: str, rows: Iterable[tuple[str, float]]) -> None:
        lines.append(f"# TYPE {name} {kind}")
        lines.extend(f"{name}{{{labels}}} {value:g}" for labels, value in rows)

    family(
        "sir_executions_total",
        "counter",
        [(f'node="{entry.node_id}",path="{path}"', n) for entry in entries for path, n in entry.executions.items()],
    )
    family("sir_executions_errors", "counter", [(f'node="{entry.node_id}"', entry.errors) for entry in entries])
    family("sir_divergences", "counter", [(f'node="{entry.node_id}"', entry.divergences) for entry in entries])
    family(
        "sir_confidence",
        "gauge",
        [(f'node="{entry.node_id}"', lower_bound(entry.compared, entry.divergences)) for entry in entries],
    )
    family(
        "sir_traffic_split",
        "gauge",
        [
            (f'node="{entry.node_id}",path="{path}"', share)
            for entry in entries
            for path, share in _split(entry.mode).items()
        ],
    )
    return "\n".join(lines) + "\n"


def _split(mode: str) -> dict[str, float]:
    direct = MODES[mode].direct_of_10_000 / 10_000
    return {"python": 1.0 - direct, "direct": direct}
