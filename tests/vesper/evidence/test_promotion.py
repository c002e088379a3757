"""Which way a node may go, the interval of its confidence and how both came about over time."""

from __future__ import annotations

import msgspec
import pytest

from lyra.core import codec
from lyra.vesper.confidence import interval, lower_bound
from lyra.vesper.evidence.modes import ORDER, next_step, rollback_mode
from lyra.vesper.evidence.state import TIMELINE_KEPT, EvidenceState, NodeEvidence

HEAD = {"node": "n", "digest": "d"}


def counted(state: EvidenceState, time: float, compared: int) -> None:
    state.apply("vesper.compared", "", time, {**HEAD, "compared": compared, "errors": 0, "executions": {}})


def diverged(state: EvidenceState, time: float, *, reproducible: bool) -> None:
    row = {"mode": "shadow_direct", "inputs": {}, "differences": [], "reproducible": reproducible, "trace_id": ""}
    state.apply("vesper.diverged", "", time, {**HEAD, **row})


def test_the_next_mode_is_allowed_or_says_what_is_missing() -> None:
    assert next_step(NodeEvidence("n", "d")) == ("shadow_direct", "")
    shadowed = NodeEvidence("n", "d", mode="shadow_direct", compared=500)
    assert not next_step(shadowed).is_allowed
    assert "500 compared runs" in next_step(shadowed).reason
    enough = NodeEvidence("n", "d", mode="shadow_direct", compared=2_000, clean=2_000)
    assert next_step(enough) == ("canary_direct", "")
    assert next_step(NodeEvidence("n", "d", mode="canary_direct", compared=2_000)).reason.endswith("0.999 are needed")
    shaken = NodeEvidence("n", "d", mode="shadow_direct", compared=9_000, divergences=1, clean=20)
    assert (
        next_step(shaken).reason
        == "20 compared runs since the last divergence, 1000 and a confidence of 0.95 are needed"
    )
    blocked = NodeEvidence("n", "d", mode="shadow_direct", compared=9_999, divergences=1, blocked=True)
    assert next_step(blocked).reason == "a divergence could be reproduced"
    assert next_step(NodeEvidence("n", "d", mode="direct_only")).mode is None


def test_a_rollback_leads_where_a_divergence_leads() -> None:
    assert [rollback_mode(mode) for mode in ORDER] == [None, "python_only", *["shadow_direct"] * 3]


def test_the_interval_holds_the_share_and_has_the_lower_bound() -> None:
    assert interval(0, 0) == (0.0, 1.0)
    low, high = interval(5_000, 3)
    assert low < 1 - 3 / 5_000 < high
    assert low == lower_bound(5_000, 3)
    assert interval(10, 0)[0] > 0
    assert interval(10, 0)[1] == pytest.approx(1.0)


def test_the_timeline_reaches_back_to_the_start_and_survives_a_snapshot() -> None:
    state = EvidenceState()
    for number in range(1_000):
        counted(state, float(number), 10)
    diverged(state, 1_000.0, reproducible=False)
    evidence = state.by_digest["d"]
    assert len(evidence.timeline) <= TIMELINE_KEPT
    assert evidence.timeline[0] == (0.0, 10, 0)
    assert evidence.timeline[-1] == (1_000.0, 10_001, 1)
    again = EvidenceState()
    again.load(codec.decode(codec.encode(msgspec.to_builtins(state.dump()))))
    assert again.by_digest["d"].timeline == evidence.timeline
