"""What a node's `observability` asks for, done after each of its executions: metrics, alerts, spans, log records.

A node that asks for nothing has no watch and pays nothing. Metrics are counted with the executions and written in the
same rows. An alert is a fact when its condition becomes true, once until it was false again. `performance` makes alerts
by itself: a median, a 99th percentile and a longest time above what it says. A span is an Event of its own kind, of as
many executions as the sample rate says.

Whether a node became slower than its own past is watched for all nodes, in `evidence.state`.

`over_rate` holds `performance.rate_limit` by the kernel's rate limiter: `per_user` counts the executions of each user
(the input `user_id`, or `user.id` of the context), `global` those of all. Both windows slide, and the counts are in the
journal: a restart forgives nothing. An execution that is too many is answered with the code `rate_limited` before
anything is run.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from lyra.core.trace_context import enclosing_span
from lyra.vesper.check.semantics import alert_conditions, rate_of
from lyra.vesper.evidence.state import (
    DURATION_BUCKETS_MS,
    SERIES_MAX,
    LatestExecutions,
    NodeEvidence,
    empty_spread,
    observe,
)
from lyra.vesper.reference.evaluate import StepMeter, is_true
from lyra.vesper.runtime.privacy import user_of
from lyra.vesper.values.outcome import NodeError, Outcome, build_refusal, new_execution

if TYPE_CHECKING:
    from lyra.kernel import Kernel
    from lyra.vesper.ir import NodeProgram, TypedExpression
    from lyra.vesper.nodes.model import DeclaredMetric, Node, NodeRates


SAMPLE_RATE_DEFAULT: Final = Decimal("0.1")
LABEL_CHARS_MAX: Final = 100
_log: Final = logging.getLogger("lyra.vesper")
# By the key of `performance`: the figure that it bounds, and the severity of the alert.
_BOUNDS: Final = {
    "expected_latency_ms": ("p50_latency_ms", "info"),
    "p99_latency_ms": ("p99_latency_ms", "warning"),
    "max_latency_ms": ("max_latency_ms", "warning"),
}

Tell = Callable[[str, dict[str, Any]], None]
Series = dict[str, dict[str, Any]]  # by the name of a metric: type, buckets, and values by the labels as JSON


def watch_of(node: Node, program: NodeProgram) -> NodeWatch | None:
    """Return the watch of a node; None where it asks for nothing."""
    wishes, numbers = node.observability, node.performance
    asks = wishes.metrics or wishes.alerts or wishes.tracing.enabled or wishes.logging.level != "none"
    is_bounded = any(getattr(numbers, name) is not None for name in _BOUNDS)
    return NodeWatch(node, program) if asks or is_bounded else None


class NodeWatch:
    """See the module."""

    def __init__(self, node: Node, program: NodeProgram) -> None:
        self._node = node
        self._program = program
        self._latest = LatestExecutions()
        self._firing: set[int] = set()
        self._alerts = _alerts_of(node)
        wishes = node.observability
        rate = wishes.tracing.sample_rate
        self._rate = (SAMPLE_RATE_DEFAULT if rate is None else Decimal(rate)) if wishes.tracing.enabled else Decimal(0)
        self._executions = 0
        self._divergences = 0  # when an execution ended last

    def note_execution(self, outcome: Outcome, milliseconds: float, evidence: NodeEvidence, tell: Tell) -> None:
        """Count an ended execution, and send the alerts and spans that it calls for."""
        self._executions += 1
        failure = outcome.error
        self._latest.add(failed=failure is not None, milliseconds=milliseconds)
        if self._alerts:
            self._look(evidence, tell)
        if int(self._executions * self._rate) != int((self._executions - 1) * self._rate):
            diverged = evidence.divergences > self._divergences
            tell("vesper.executed", self._span(outcome, milliseconds, diverged=diverged))
        self._divergences = evidence.divergences
        self._write_log(outcome, milliseconds)

    def count(self, outcome: Outcome, inputs: Mapping[str, Any], milliseconds: float, series: Series) -> None:
        """Add an execution to the metrics that the node declares."""
        for metric in self._node.observability.metrics:
            buckets = [float(bound) for bound in metric.buckets] or list(DURATION_BUCKETS_MS)
            head = {"type": metric.type, "buckets": buckets, "values": {}}
            values = series.setdefault(metric.name, head)["values"]
            labels = self._labels(metric, outcome, inputs)
            if labels not in values and len(values) >= SERIES_MAX:
                labels = json.dumps(dict.fromkeys(metric.labels, "other"))
            if metric.type == "counter":
                values[labels] = values.get(labels, 0) + 1
                continue
            number = self._number(metric.name, outcome, inputs)
            if metric.type == "gauge":
                if number is not None:
                    values[labels] = number
                continue
            spread = values.setdefault(labels, empty_spread(buckets))
            observe(spread, buckets, milliseconds if number is None else number)

    def _labels(self, metric: DeclaredMetric, outcome: Outcome, inputs: Mapping[str, Any]) -> str:
        own = {"status": outcome.status, "error_code": "" if outcome.error is None else outcome.error.code}
        values = {**inputs, **outcome.outputs, **own}
        return json.dumps({name: str(values.get(name, ""))[:LABEL_CHARS_MAX] for name in metric.labels})

    @staticmethod
    def _number(name: str, outcome: Outcome, inputs: Mapping[str, Any]) -> float | None:
        value = outcome.outputs.get(name, inputs.get(name))
        try:
            return None if isinstance(value, bool) or value is None else float(value)
        except (TypeError, ValueError, OverflowError):
            return None

    def _look(self, evidence: NodeEvidence, tell: Tell) -> None:
        figures = self._latest.figures()
        figures["divergences"] = evidence.divergences
        figures["confidence"] = Decimal(repr(evidence.confidence))
        for index, (condition, head) in enumerate(self._alerts):
            if not self._holds(condition, figures):
                self._firing.discard(index)
            elif index not in self._firing:
                self._firing.add(index)
                shown = {name: str(value) for name, value in figures.items()}
                row = {"node": self._program.node_id, "digest": evidence.digest}
                tell("vesper.alert", {**row, **head, "figures": shown})

    def _holds(self, condition: TypedExpression | tuple[str, Decimal], figures: Mapping[str, Any]) -> bool:
        if isinstance(condition, tuple):
            value = figures[condition[0]]
            return value is not None and value > condition[1]
        try:
            return is_true(condition, figures, StepMeter(new_execution(), self._program.limits))
        except NodeError:  # a division by a figure that is zero
            return False

    def _span(self, outcome: Outcome, milliseconds: float, *, diverged: bool) -> dict[str, Any]:
        program, outer = self._program, enclosing_span()
        return {
            "trace_id": outcome.trace_id if outer is None else outer.trace_id,
            "span_id": f"{outcome.trace_id}-node",
            "parent_span": None if outer is None else outer.span_id or None,
            **({} if outer is None or outer.sampled is None else {"sampled": outer.sampled}),
            "sir.trace_id": outcome.trace_id,
            "agent": "",
            "name": "sir.execute",
            "node": program.node_id,
            "status": "ok" if outcome.error is None else "error",
            "latency_ms": round(milliseconds),
            "sir.node_id": program.node_id,
            "sir.node_type": self._node.kind,
            "sir.intent": program.intent,
            "sir.execution_path": outcome.path,
            "sir.duration_ms": milliseconds,
            "sir.divergence": diverged,
        }

    def _write_log(self, outcome: Outcome, milliseconds: float) -> None:
        wishes = self._node.observability.logging
        level = logging.getLevelNamesMapping().get(wishes.level.upper())
        if level is None or not _log.isEnabledFor(level):
            return
        row: dict[str, Any] = {"node": self._program.node_id, "status": outcome.status}
        if outcome.error is not None:
            row["code"] = outcome.error.code
        row["duration_ms"] = round(milliseconds, 3)
        if wishes.include_request_id:
            row["trace_id"] = outcome.trace_id
        text = json.dumps(row) if wishes.structured else " ".join(f"{name}={value}" for name, value in row.items())
        _log.log(level, "%s", text)


def _alerts_of(node: Node) -> list[tuple[TypedExpression | tuple[str, Decimal], dict[str, Any]]]:
    alerts: list[tuple[Any, dict[str, Any]]] = []
    for alert, condition in zip(node.observability.alerts, alert_conditions(node), strict=True):
        head = {"condition": alert.condition, "severity": alert.severity, "notify": list(alert.notify)}
        alerts.append((condition, head))
    for name, (figure, severity) in _BOUNDS.items():
        bound = getattr(node.performance, name)
        if bound is not None:
            head = {"condition": f"{figure} > {bound}", "severity": severity, "notify": []}
            alerts.append(((figure, Decimal(bound)), head))
    return alerts


_ALL: Final = "vesper"  # the user name under which the calls of all users are counted
_NO_LIMITS: Final = dict.fromkeys(("requests_per_minute", "requests_per_hour", "requests_per_day", "burst_size"), 0)


async def over_rate(
    node: Node, limits: NodeRates, inputs: Mapping[str, Any], ambient: Mapping[str, Any] | None, kernel: Kernel
) -> Outcome | None:
    """Count an execution; the answer where it is too many."""
    counted = []
    if limits.per_user:
        counted.append((user_of(inputs, ambient or {}), f"vesper:{node.node_id}:user", limits.per_user))
    if limits.overall:
        counted.append((_ALL, f"vesper:{node.node_id}", limits.overall))
    limiter = kernel.rate_limiter
    for _, endpoint, rate in counted:
        number, unit = rate_of(rate)
        config = {**_NO_LIMITS, f"requests_per_{unit}": number}
        if limiter.get_config("", endpoint).limit(unit) != number:
            limiter.set_endpoint_limits(endpoint, config)
    for records in (False, True):  # one that is refused counts nowhere
        for user, endpoint, rate in counted:
            result = kernel.check_rate_limit(user, endpoint, record=records)
            if kernel.core.remote is not None:
                result = await result
            if not result.allowed:
                return _refuse(node, rate, result.retry_after_seconds)
    return None


def _refuse(node: Node, rate: str, seconds: float) -> Outcome:
    message = f"{node.node_id} may be executed {rate}; try again in {seconds:.0f} s"
    return build_refusal("rate_limited", message, phase="limit")
