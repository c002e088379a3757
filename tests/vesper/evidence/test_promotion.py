"""Which way a node may go, the interval of its confidence and how both came about over time."""

from __future__ import annotations

import msgspec
import pytest

from lyra.core import codec
from lyra.vesper.confidence import interval, lower_bound
from lyra.vesper.evidence.modes import ORDER, next_step, rollback_mode
from lyra.vesper.evidence.seen import ACCEPTED, SUCCEEDED, SeenInputs
from lyra.vesper.evidence.state import TIMELINE_KEPT, EvidenceState, NodeEvidence

HEAD = {"node": "n", "digest": "d"}


def counted(state: EvidenceState, time: float, compared: int) -> None:
    """Count so many inputs that were not seen before."""
    seen = SeenInputs()
    for number in range(compared):
        seen.add((int(time) * 1_000 + number) * 4, ACCEPTED | SUCCEEDED)
    row = {**HEAD, "compared": compared, "errors": 0, "executions": {}, "seen": seen.data}
    state.apply("vesper.compared", "", time, row)


def diverged(state: EvidenceState, time: float, *, reproducible: bool) -> None:
    row = {"mode": "shadow_direct", "inputs": {}, "differences": [], "reproducible": reproducible, "trace_id": ""}
    state.apply("vesper.diverged", "", time, {**HEAD, **row})


def reached(**changes) -> NodeEvidence:
    """Evidence of a node of which every part was reached."""
    usual = {"successes": 1_000, "goals": ["a", "b: else"], "reached": ["a", "b: else"]}
    return NodeEvidence("n", "d", **{**usual, **changes})


def test_the_next_mode_is_allowed_or_says_what_is_missing() -> None:
    assert next_step(NodeEvidence("n", "d")) == ("shadow_direct", "")
    shadowed = reached(mode="shadow_direct", accepted=500)
    assert not next_step(shadowed).is_allowed
    assert "500 accepted inputs" in next_step(shadowed).reason
    enough = reached(mode="shadow_direct", accepted=2_000, clean=2_000)
    assert next_step(enough) == ("canary_direct", "")
    assert next_step(reached(mode="canary_direct", accepted=2_000)).reason.endswith("0.999 are needed")
    shaken = reached(mode="shadow_direct", accepted=9_000, divergences=1, clean=20)
    assert (
        next_step(shaken).reason
        == "20 accepted inputs since the last divergence, 1000 and a confidence of 0.95 are needed"
    )
    blocked = reached(mode="shadow_direct", accepted=9_999, divergences=1, blocked=True)
    assert next_step(blocked).reason == "a divergence could be reproduced"
    assert next_step(NodeEvidence("n", "d", mode="direct_only")).mode is None


def test_refused_inputs_leave_room_for_those_that_the_last_gate_asks_for() -> None:
    seen = SeenInputs()
    for number in range(0, 1_200_000, 4):
        seen.add(number, 0)
    for number in range(2_000_000, 2_000_000 + 4 * 110_000, 4):
        assert seen.add(number, ACCEPTED)
    assert (seen.accepted, len(seen)) == (110_000, 210_000)
    again = SeenInputs(seen.data)
    assert (again.accepted, len(again)) == (110_000, 210_000)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"successes": 999}, "the node succeeded with 999 distinct inputs, 1000 are needed"),
        ({"goals": []}, "it is not known which steps were reached: run `vesper verify`"),
        ({"reached": ["a"]}, "not reached: b: else"),
        ({"compared": 90_000, "accepted": 0}, "0 accepted inputs, 1000 and a confidence of 0.95 are needed"),
    ],
)
def test_comparisons_alone_allow_no_mode(changes, reason):
    """Nor do inputs that the entry refuses, too few successes, and steps that may be reached and were not."""
    step = next_step(reached(mode="shadow_direct", **{"accepted": 200_000, **changes}))
    assert step == ("canary_direct", reason)


def test_a_step_that_cannot_be_reached_stands_in_no_way():
    evidence = reached(mode="shadow_direct", accepted=2_000, reached=["a"], unreachable={"b: else": "never"})
    assert next_step(evidence).is_allowed


def test_a_node_that_was_tried_on_all_its_inputs_may_go_all_the_way():
    evidence = NodeEvidence("n", "d", mode="dual_verify", compared=8, accepted=8, successes=2, complete=True)
    assert (next_step(evidence), evidence.confidence) == (("direct_only", ""), 1.0)
    evidence.divergences = 1
    assert not next_step(evidence).is_allowed


def test_an_input_counts_once():
    state = EvidenceState()
    for _ in range(3):
        counted(state, 1.0, 400)
    evidence = state.by_digest["d"]
    assert (evidence.compared, evidence.distinct, evidence.accepted, evidence.successes) == (1_200, 400, 400, 400)
    again = EvidenceState()
    again.load(codec.decode(codec.encode(msgspec.to_builtins(state.dump()))))
    counted(again, 1.0, 400)
    assert again.by_digest["d"].distinct == 400


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
    assert evidence.timeline[-1] == (1_000.0, 10_000, 1)
    again = EvidenceState()
    again.load(codec.decode(codec.encode(msgspec.to_builtins(state.dump()))))
    assert again.by_digest["d"].timeline == evidence.timeline
