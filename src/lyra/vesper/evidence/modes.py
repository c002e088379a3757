"""The five modes of a node, what each does with an execution, and which way a node may go.

A mode says which path is live (performs effects and answers) and which executions are compared. In a canary the live
path is chosen by a hash of the inputs, so the same request takes the same path in every process and after a restart.
`find_allowed_mode` gives the highest mode that some evidence allows; one reproducible divergence allows none with a
live direct path. `next_step` is the mode above with what is missing for it. Plain tables and functions: nothing is run
or stored here; `runtime.comparisons` changes modes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from lyra.core.codec import canonical
from lyra.errors import ConfigError, LyraError
from lyra.vesper.confidence import COMPARED_MIN, lower_bound
from lyra.vesper.evidence.state import DURATION_BUCKETS_MS, NodeEvidence
from lyra.vesper.values.json_values import to_json

CANARY_OF_10_000: Final = 500  # 5 % of the inputs take the direct path
SAMPLED: Final = 0.01  # in direct_only this share of the executions, chosen at random, is compared


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


def route(mode: Mode, node_id: str, inputs: Any, draw: float) -> Route:
    """Return what to do with an execution. `draw`, from 0 to 1, is its random number: the sample of direct_only is
    chosen by it, so that executions which come at a regular pace are sampled like all others."""
    if mode.direct_of_10_000 == 0:
        return _PYTHON if mode.compares == "never" else _SHADOWED if mode.compares == "shadow" else _DUAL
    if mode.direct_of_10_000 == 10_000:
        return _CANARY if draw < SAMPLED else _DIRECT
    return _CANARY if bucket(node_id, inputs) < mode.direct_of_10_000 else _DUAL


def bucket(node_id: str, inputs: Any) -> int:
    """Return a number below 10 000 that depends on the node and the inputs alone; of inputs that no node takes, the
    last."""
    try:
        plain = canonical(to_json(inputs))
    except (TypeError, ValueError, LyraError):
        return 9_999
    return int.from_bytes(blake2b(plain, digest_size=8, key=node_id.encode()[:64]).digest(), "big") % 10_000


def find_allowed_mode(compared: int, divergences: int, *, blocked: bool, clean: int | None = None) -> str:
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


SUCCESSES_MIN: Final = 1_000  # distinct inputs with which a node succeeded, before the direct path may answer


def highest_mode(evidence: NodeEvidence, min_successes: int = SUCCESSES_MIN) -> str:
    """Return the highest mode that this evidence allows."""
    if not evidence.blocked and not evidence.divergences and evidence.complete and not evidence.breaches:
        return ORDER[-1]
    if lack_of_reach(evidence, min_successes):
        return "shadow_direct"
    counted = max(evidence.accepted, evidence.divergences)
    return find_allowed_mode(counted, evidence.divergences, blocked=evidence.blocked, clean=evidence.clean)


def lack_of_reach(evidence: NodeEvidence, min_successes: int = SUCCESSES_MIN) -> str:
    """Return what the compared executions have not reached, or the contract that they broke, in words; "" where there
    is nothing of that."""
    if evidence.breaches:
        return f"the node breaks its contract: {describe_breach(evidence.breaches[0])}"
    if evidence.complete:
        return ""
    if evidence.successes < min_successes:
        return f"the node succeeded with {evidence.successes} distinct inputs, {min_successes} are needed"
    if not evidence.goals:
        return "it is not known which steps were reached: run `vesper verify`"
    if evidence.unreached:
        return f"not reached: {', '.join(evidence.unreached)}"
    return ""


def describe_breach(breach: Mapping[str, Any]) -> str:
    """Return a kept breach of a node's contract in a line."""
    return f"{breach['kind']}: {breach['expression']}"


def next_step(evidence: NodeEvidence, min_successes: int = SUCCESSES_MIN) -> Promotion:
    """Return the next mode up and whether the evidence allows it."""
    here = ORDER.index(evidence.mode)
    if here + 1 == len(ORDER):
        return Promotion(None, f"{evidence.mode} is the highest mode")
    mode = ORDER[here + 1]
    if ORDER.index(highest_mode(evidence, min_successes)) > here or mode == "shadow_direct":
        return Promotion(mode, "")
    return Promotion(mode, lack_of(evidence, mode, min_successes))


def check_mode(evidence: NodeEvidence, mode: str, min_successes: int, *, force: bool) -> bool:
    """Return whether a mode that is set by hand is forced against the evidence; ConfigError where it would be, and may
    not."""
    mode_named(mode)
    best = highest_mode(evidence, min_successes)
    is_enough = ORDER.index(mode) <= max(ORDER.index(best), ORDER.index("shadow_direct"))
    if not is_enough and not force:
        lack = lack_of(evidence, mode, min_successes)
        raise ConfigError(
            f"the evidence for {evidence.node_id} allows {best}, not {mode}: {lack}",
            hint="compare more (`vesper verify`), or say --force",
            key="mode",
        )
    return not is_enough


def find_promotion(evidence: NodeEvidence, min_successes: int) -> str | None:
    """Return the next mode up, if the evidence allows it."""
    here = ORDER.index(evidence.mode)
    return ORDER[here + 1] if ORDER.index(highest_mode(evidence, min_successes)) > here else None


def rollback_mode(mode: str) -> str | None:
    """Return the mode that a rollback leads to; None for the lowest."""
    if mode in RELYING_ON_DIRECT:
        return "shadow_direct"
    return None if mode == ORDER[0] else ORDER[0]


def lack_of(evidence: NodeEvidence, mode: str, min_successes: int = SUCCESSES_MIN) -> str:
    """Describe what the evidence lacks for a mode."""
    if evidence.blocked:
        return "a divergence could be reproduced"
    if evidence.breaches:
        return lack_of_reach(evidence, min_successes)
    counted, divergences, since = max(evidence.accepted, evidence.divergences), evidence.divergences, ""
    if divergences and lower_bound(evidence.clean, 0) < lower_bound(counted, divergences):
        counted, divergences, since = evidence.clean, 0, " since the last divergence"
    needed = GATES.get(mode, 0.0)
    if counted < COMPARED_MIN:
        return f"{counted} accepted inputs{since}, {COMPARED_MIN} and a confidence of {needed} are needed"
    confidence = lower_bound(counted, divergences)
    if confidence >= needed:
        return lack_of_reach(evidence, min_successes)
    return f"confidence {confidence:.5f} after {counted} accepted inputs{since}, {needed} are needed"


# ---------------------------------------------------------------- metrics
# The figures of nodes in the text format of Prometheus, by the names that document 004 gives them.

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
        text.sample("sir_confidence", {"node": entry.node_id}, entry.confidence)
    text.family("sir_traffic_split", "gauge")
    for entry in entries:
        for path, share in _split(entry.mode).items():
            text.sample("sir_traffic_split", {"node": entry.node_id, "path": path}, share)
    for entry in entries:
        for name, declared in entry.metrics.items():
            text.add_declared(name, entry.node_id, declared)
    return text.text()


class _MetricText:
    """Lines of the format, family by family."""

    def __init__(self) -> None:
        self._families: dict[str, list[str]] = {}

    def family(self, name: str, kind: str) -> None:
        self._families.setdefault(name, [f"# TYPE {name} {kind}"])

    def sample(self, name: str, labels: Labels, value: float, *, of: str = "") -> None:
        shown = ",".join(f'{key}="{_escape_label(word)}"' for key, word in labels.items())
        self._families[of or name].append(f"{name}{{{shown}}} {value:g}")

    def spread(self, name: str, labels: Labels, spread: Sequence[float], buckets: Sequence[float]) -> None:
        total = 0.0
        for bound, count in zip((*(f"{bound:g}" for bound in buckets), "+Inf"), spread[:-1], strict=True):
            total += count
            self.sample(f"{name}_bucket", {**labels, "le": bound}, total, of=name)
        self.sample(f"{name}_sum", labels, spread[-1], of=name)
        self.sample(f"{name}_count", labels, total, of=name)

    def add_declared(self, name: str, node_id: str, declared: Mapping[str, Any]) -> None:
        for key, value in declared["values"].items():
            self.family(name, declared["type"])
            labels = {"node": node_id, **json.loads(key)}
            if isinstance(value, list):
                self.spread(name, labels, value, declared["buckets"])
            else:
                self.sample(name, labels, value)

    def text(self) -> str:
        return "".join(f"{line}\n" for lines in self._families.values() for line in lines)


def _escape_label(word: str) -> str:
    return word.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _split(mode: str) -> dict[str, float]:
    direct = MODES[mode].direct_of_10_000 / 10_000
    return {"python": 1.0 - direct, "direct": direct}
