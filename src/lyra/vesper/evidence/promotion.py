"""Which way a node may go: the next mode up with what is missing for it, and the mode that a rollback leads to.

Reads evidence and says; `runtime.comparisons` changes modes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from lyra.vesper.evidence.confidence import COMPARED_MIN, lower_bound
from lyra.vesper.evidence.modes import GATES, ORDER, allowed
from lyra.vesper.evidence.state import NodeEvidence

# Modes that rely on the direct path: a divergence, or a rollback, leads from them to shadow_direct.
RELYING_ON_DIRECT: Final = ("canary_direct", "dual_verify", "direct_only")


class Promotion(NamedTuple):
    """The mode above; `reason` says why the evidence does not allow it, "" where it does."""

    mode: str | None
    reason: str

    @property
    def is_allowed(self) -> bool:
        return not self.reason


def highest_mode(evidence: NodeEvidence) -> str:
    """The highest mode that this evidence allows."""
    return allowed(evidence.compared, evidence.divergences, blocked=evidence.blocked, clean=evidence.clean)


def next_step(evidence: NodeEvidence) -> Promotion:
    """The next mode up and whether the evidence allows it."""
    here = ORDER.index(evidence.mode)
    if here + 1 == len(ORDER):
        return Promotion(None, f"{evidence.mode} is the highest mode")
    mode = ORDER[here + 1]
    if ORDER.index(highest_mode(evidence)) > here:
        return Promotion(mode, "")
    return Promotion(mode, lack_of(evidence, mode))


def rollback_mode(mode: str) -> str | None:
    """The mode that a rollback leads to; None for the lowest."""
    if mode in RELYING_ON_DIRECT:
        return "shadow_direct"
    return None if mode == ORDER[0] else ORDER[0]


def lack_of(evidence: NodeEvidence, mode: str) -> str:
    """What the evidence lacks for a mode, in words."""
    if evidence.blocked:
        return "a divergence could be reproduced"
    counted, divergences, since = evidence.compared, evidence.divergences, ""
    if divergences and lower_bound(evidence.clean, 0) < lower_bound(counted, divergences):
        counted, divergences, since = evidence.clean, 0, " since the last divergence"
    needed = GATES.get(mode, 0.0)
    if counted < COMPARED_MIN:
        return f"{counted} compared runs{since}, {COMPARED_MIN} and a confidence of {needed} are needed"
    confidence = lower_bound(counted, divergences)
    return f"confidence {confidence:.5f} after {counted} compared runs{since}, {needed} are needed"
