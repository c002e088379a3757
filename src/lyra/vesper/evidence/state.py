"""What is known about each node, kept in the journal: its mode, its comparisons, its divergences.

Facts belong to the content of a node (its digest): a changed node starts again, and its earlier evidence stays to be
looked at. Comparisons are counted in batches; those counted since the last batch are lost with a killed process, which
only makes the evidence smaller than it could be. A divergence is written at once, with the inputs that show it.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import msgspec

__all__ = ["DIVERGENCES_KEPT", "HISTORY_KEPT", "EvidenceState", "KeptDivergence", "NodeEvidence"]

DIVERGENCES_KEPT: Final = 100
HISTORY_KEPT: Final = 200


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


class EvidenceState:
    """The durable state: rows of three kinds."""

    NAME: ClassVar[str] = "vesper"
    KINDS: ClassVar[frozenset[str]] = frozenset({"vesper.mode", "vesper.compared", "vesper.diverged"})

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
            evidence.compared += data["compared"]
            evidence.errors += data["errors"]
            for path, count in data["executions"].items():
                evidence.executions[path] = evidence.executions.get(path, 0) + count
        elif kind == "vesper.diverged":
            evidence.compared += 1
            evidence.divergences += 1
            evidence.blocked = evidence.blocked or data["reproducible"]
            evidence.found.append(
                KeptDivergence(
                    time, data["mode"], data["inputs"], data["differences"], data["reproducible"], data["trace_id"]
                )
            )
            del evidence.found[:-DIVERGENCES_KEPT]
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
