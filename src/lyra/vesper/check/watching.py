"""What a node asks to be watched: its metrics, alerts, traces and rates, judged and made ready.

The condition of an alert is an expression over `ALERT_NAMES`, figures of the latest executions. A label of a metric is
`status`, `error_code`, an input or an output; its values leave the machine with the metric, so nothing sensitive may be
one. A gauge, and a histogram that is not of the duration, shows the number of that name among inputs and outputs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from lyra.core.checking.document import Path
from lyra.vesper.check.infer import Typing
from lyra.vesper.check.kinds import nullable
from lyra.vesper.check.scope import NameScope
from lyra.vesper.check.state import CheckState
from lyra.vesper.ir import NodeInput, NodeOutput, NodeProgram, TypedExpression
from lyra.vesper.nodes.model import DeclaredMetric, Node
from lyra.vesper.nodes.reader import close_to
from lyra.vesper.values.types import INTEGER, DecimalType, ValueType, is_numeric, without_null

ALERT_NAMES: Final[dict[str, ValueType]] = {
    "executions": INTEGER,
    "errors": INTEGER,
    "error_rate": DecimalType(),
    "divergences": INTEGER,
    "confidence": DecimalType(),
    "p50_latency_ms": nullable(DecimalType()),
    "p95_latency_ms": nullable(DecimalType()),
    "p99_latency_ms": nullable(DecimalType()),
    "max_latency_ms": nullable(DecimalType()),
}
OWN_LABELS: Final = ("status", "error_code")
_METRIC_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,99}\Z")
_RATE: Final = re.compile(r"\s*([0-9]{1,9})\s*/\s*(minute|hour|day)\s*\Z")
_SECTION: Final = "observability"
Fields = Mapping[str, NodeInput | NodeOutput]


def alert_conditions(node: Node) -> tuple[TypedExpression, ...]:
    """The conditions of a node's alerts, in order; of a node without errors."""
    return _conditions(CheckState(node))


def rate_of(text: str) -> tuple[int, str]:
    """How many executions in which time; ValueError where the text is no rate."""
    match = _RATE.match(text)
    if match is None or int(match[1]) < 1:
        raise ValueError(text)
    return int(match[1]), match[2]


def _conditions(state: CheckState) -> tuple[TypedExpression, ...]:
    typing, scope = Typing(state), NameScope(names=dict(ALERT_NAMES))
    return tuple(
        typing.condition(alert.condition, (_SECTION, "alerts", index, "condition"), scope)
        for index, alert in enumerate(state.node.observability.alerts)
    )


# ------------------------------------------------------------------ rules
def alerts(_: NodeProgram, state: CheckState) -> None:
    for index, alert in enumerate(state.node.observability.alerts):
        if not alert.condition:
            state.error("missing_key", "an alert has no `condition`", (_SECTION, "alerts", index))
            return
    _conditions(state)


def metrics(program: NodeProgram, state: CheckState) -> None:
    entries: tuple[NodeInput | NodeOutput, ...] = (*program.inputs, *program.success)
    fields = {entry.name: entry for entry in entries}
    names: set[str] = set()
    for index, metric in enumerate(state.node.observability.metrics):
        path: Path = (_SECTION, "metrics", index)
        if _METRIC_NAME.match(metric.name) is None:
            state.error("bad_value", "the name of a metric is letters, digits and underscores", path)
        elif metric.name in names:
            state.error("duplicate", f"a metric `{metric.name}` is there already", path)
        names.add(metric.name)
        if metric.type == "gauge" and not _is_number(metric, fields):
            state.error("type", f"a gauge is the name of a number among inputs and outputs: `{metric.name}`", path)
        if list(metric.buckets) != sorted(set(metric.buckets)):
            state.error("bad_value", "buckets are numbers in rising order", (*path, "buckets"), value=True)
        for place, label in enumerate(metric.labels):
            _judge_label(label, fields, (*path, "labels", place), state)


def _is_number(metric: DeclaredMetric, fields: Fields) -> bool:
    entry = fields.get(metric.name)
    return entry is not None and is_numeric(without_null(entry.type))


def _judge_label(label: str, fields: Fields, path: Path, state: CheckState) -> None:
    if label in OWN_LABELS:
        return
    entry = fields.get(label)
    if entry is None:
        hint = close_to(label, (*fields, *OWN_LABELS))
        state.error(
            "unknown_field", f"a label is status, error_code, an input or an output: `{label}`", path, hint=hint
        )
    elif entry.sensitive:
        state.error("sensitive", f"`{label}` is sensitive and would leave the machine with the metric", path)


def tracing(_: NodeProgram, state: CheckState) -> None:
    rate = state.node.observability.tracing.sample_rate
    if rate is not None and rate > 1:
        state.error("bad_value", "a sample rate is from 0 to 1", (_SECTION, "tracing", "sample_rate"), value=True)


def rates(_: NodeProgram, state: CheckState) -> None:
    declared = state.node.performance.rate_limit
    if declared is None:
        return
    for key, text in (("per_user", declared.per_user), ("global", declared.overall)):
        try:
            rate_of(text or "1/minute")
        except ValueError:
            path = ("performance", "rate_limit", key)
            state.error("bad_value", "a rate is such as 100/minute, 5/hour or 1000/day", path, value=True)


WATCHING_RULES: Final = (alerts, metrics, tracing, rates)
