"""The five modes of a node, what each does with an execution, and which way a node may go.

A mode says which path is live (performs effects and answers) and which executions are compared. In a canary the live
path is chosen by a hash of the inputs, so the same request takes the same path in every process and after a restart.
`allowed` gives the highest mode that some evidence allows; one reproducible divergence allows none with a live direct
path. `next_step` is the mode above with what is missing for it. Plain tables and functions: nothing is run or stored
here; `runtime.comparisons` changes modes.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final, NamedTuple

from lyra.core.codec import canonical
from lyra.errors import ConfigError, LyraError
from lyra.vesper.confidence import COMPARED_MIN, lower_bound
from lyra.vesper.evidence.state import NodeEvidence
from lyra.vesper.values.json_values import to_json

CANARY_OF_10_000: Final = 500  # 5 % of the inputs take the direct path
SAMPLED_OF: Final = 100  # in direct_only every hundredth execution is compared


class Mode(NamedTuple):
    name: str
    direct_of_10_000: int  # executions, by the hash of their inputs, whose live path is the direct one
    compares: str  # never, shadow, direct (those that run direct), always or sampled


class Route(NamedTuple):
    """What to do with one execution."""

    live: str  # python or direct
    compare: str  # "", now or shadow


MODES: Final[dict[str, Mode]] = {
    mode.name: mode
    for mode in (
        Mode("python_only", 0, "never"),
        Mode("shadow_direct", 0, "shadow"),
        Mode("canary_direct", CANARY_OF_10_000, "always"),
        Mode("dual_verify", 0, "always"),
        Mode("direct_only", 10_000, "sampled"),
    )
}
ORDER: Final = tuple(MODES)
# The confidence that each mode needs.
GATES: Final[dict[str, float]] = {"canary_direct": 0.95, "dual_verify": 0.999, "direct_only": 0.9999}
_PYTHON: Final = Route("python", "")
_DIRECT: Final = Route("direct", "")
_SHADOWED: Final = Route("python", "shadow")
_DUAL: Final = Route("python", "now")
_CANARY: Final = Route("direct", "now")


def mode_named(name: str) -> Mode:
    mode = MODES.get(name)
    if mode is None:
        raise ConfigError(f"no mode {name!r}", hint=f"one of {', '.join(MODES)}", key="mode")
    return mode


def route(mode: Mode, node_id: str, inputs: Any, number: int) -> Route:
    """Return what to do with the execution of that number."""
    if mode.direct_of_10_000 == 0:
        return _PYTHON if mode.compares == "never" else _SHADOWED if mode.compares == "shadow" else _DUAL
    if mode.direct_of_10_000 == 10_000:
        return _CANARY if number % SAMPLED_OF == 0 else _DIRECT
    return _CANARY if bucket(node_id, inputs) < mode.direct_of_10_000 else _DUAL


def bucket(node_id: str, inputs: Any) -> int:
    """Return a number below 10 000 that depends on the node and the inputs alone; of inputs that no node takes, the
    last."""
    try:
        plain = canonical(to_json(inputs))
    except (TypeError, ValueError, LyraError):
        return 9_999
    return int.from_bytes(blake2b(plain, digest_size=8, key=node_id.encode()[:64]).digest(), "big") % 10_000


def allowed(compared: int, divergences: int, *, blocked: bool, clean: int | None = None) -> str:
    """Return the highest mode that this evidence allows. After a divergence that could not be reproduced, the
    executions since then, `clean`, must show by themselves what a mode needs: a node goes back at once and comes up
    slowly."""
    lowest = "shadow_direct"
    if blocked:
        return lowest
    confidence = lower_bound(compared, divergences)
    if divergences and clean is not None:
        confidence = min(confidence, lower_bound(clean, 0))
    passed = [name for name, least in GATES.items() if confidence >= least]
    return passed[-1] if passed else lowest


# ---------------------------------------------------------------- promotion

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
    """Return the highest mode that this evidence allows."""
    return allowed(evidence.compared, evidence.divergences, blocked=evidence.blocked, clean=evidence.clean)


def next_step(evidence: NodeEvidence) -> Promotion:
    """Return the next mode up and whether the evidence allows it."""
    here = ORDER.index(evidence.mode)
    if here + 1 == len(ORDER):
        return Promotion(None, f"{evidence.mode} is the highest mode")
    mode = ORDER[here + 1]
    if ORDER.index(highest_mode(evidence)) > here:
        return Promotion(mode, "")
    return Promotion(mode, lack_of(evidence, mode))


def rollback_mode(mode: str) -> str | None:
    """Return the mode that a rollback leads to; None for the lowest."""
    if mode in RELYING_ON_DIRECT:
        return "shadow_direct"
    return None if mode == ORDER[0] else ORDER[0]


def lack_of(evidence: NodeEvidence, mode: str) -> str:
    """Return what the evidence lacks for a mode, in words."""
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
