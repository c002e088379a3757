"""What `observability` and `performance` ask for: metrics, alerts, spans, log records, rates."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lyra.errors import SourceError
from lyra.observe.spans import span_of
from lyra.vesper import Runtime, load
from lyra.vesper.check.judge import check_text
from lyra.vesper.evidence.modes import find_allowed_mode, prometheus
from lyra.vesper.evidence.state import SERIES_MAX, EvidenceState

HALF = """\
node_id: half_v1
type: function
intent: halve a number

inputs:
  number: integer
  user_id: {type: string, required: false}
  token: {type: string, required: false, sensitive: true}

outputs:
  success:
    half: decimal

flow:
  - step: check
    operation: validation
    rules:
      - check: number >= 0
        error: {error_code: validation_failed, message: negative}
  - step: divide
    operation: arithmetic
    expression: number / 2
    output: half
"""


def node_with(more: str) -> Any:
    return load(HALF + more)


def events_of(runtime: Runtime, *kinds: str) -> list[Any]:
    events: list[Any] = []
    runtime.on_event(events.append, kinds)
    return events


def test_every_execution_is_measured(tmp_path: Path) -> None:
    """Counts, durations and errors by their names in document 004; also after a restart."""
    store = str(tmp_path / "lyra.db")
    node = node_with("")
    with Runtime(store) as runtime:
        for number in (1, 2, -1):
            runtime.execute(node, {"number": number})
    with Runtime(store) as runtime:
        runtime.execute(node, {"number": 3}, mode="direct_only")
        lines = prometheus([runtime.evidence(node)]).splitlines()
    assert 'sir_executions_total{node="half_v1",path="python"} 3' in lines
    assert 'sir_executions_total{node="half_v1",path="direct"} 1' in lines
    assert 'sir_executions_errors{node="half_v1",error="validation_failed"} 1' in lines
    assert "# TYPE sir_execution_duration_ms histogram" in lines
    assert 'sir_execution_duration_ms_count{node="half_v1",path="python"} 3' in lines
    assert 'sir_execution_duration_ms_bucket{node="half_v1",path="python",le="+Inf"} 3' in lines
    assert any(line.startswith('sir_execution_duration_ms_sum{node="half_v1",path="python"}') for line in lines)


def test_declared_metrics_are_kept() -> None:
    node = node_with(
        """
observability:
  metrics:
    - {name: halvings_total, type: counter, labels: [status, error_code, user_id]}
    - {name: half, type: gauge}
    - {name: number, type: histogram, buckets: [1, 10]}
    - {name: halving_ms, type: histogram}
"""
    )
    with Runtime() as runtime:
        for number in (3, 4, 20, -1):
            runtime.execute(node, {"number": number, "user_id": 'a"b'})
        lines = prometheus([runtime.evidence(node)]).splitlines()
    shown = 'halvings_total{node="half_v1",status="success",error_code="",user_id="a\\"b"} 3'
    assert shown in lines
    assert 'halvings_total{node="half_v1",status="error",error_code="validation_failed",user_id="a\\"b"} 1' in lines
    assert 'half{node="half_v1"} 10' in lines
    buckets = [line.rsplit(" ", 1)[1] for line in lines if line.startswith("number_bucket")]
    assert buckets == ["1", "3", "4"]
    assert 'halving_ms_count{node="half_v1"} 4' in lines


def test_an_alert_is_told_once_until_its_condition_was_false(tmp_path: Path) -> None:
    node = node_with(
        """
observability:
  alerts:
    - {condition: executions >= 4 AND error_rate > 0.4, severity: critical, notify: [ops]}
"""
    )
    with Runtime(str(tmp_path / "lyra.db")) as runtime:
        events = events_of(runtime, "vesper.alert")
        for number in (-1, -1, 1, 1, 1, 1, 1, -1, -1, -1, -1):
            runtime.execute(node, {"number": number})
        kept = runtime.evidence(node).alerts
    assert [event.data["severity"] for event in events] == ["critical", "critical"]
    assert events[0].data["notify"] == ["ops"]
    assert events[0].data["figures"]["error_rate"] == "0.5"
    assert [alert["condition"] for alert in kept] == ["executions >= 4 AND error_rate > 0.4"] * 2


@pytest.mark.parametrize(
    ("bound", "figure", "severity"),
    [
        ("max_latency_ms", "max_latency_ms", "warning"),
        ("p99_latency_ms", "p99_latency_ms", "warning"),
        ("expected_latency_ms", "p50_latency_ms", "info"),
    ],
)
def test_a_latency_above_the_declared_one_is_an_alert(bound: str, figure: str, severity: str) -> None:
    with Runtime() as runtime:
        events = events_of(runtime, "vesper.alert")
        runtime.execute(node_with(f"\nperformance: {{{bound}: 60000}}\n"), {"number": 1})
        assert events == []
        runtime.execute(node_with(f"\nperformance: {{{bound}: 0}}\n"), {"number": 1})
        runtime.settle()
    assert [(event.data["condition"], event.data["severity"]) for event in events] == [(f"{figure} > 0", severity)]


def test_spans_are_sampled() -> None:
    """Three of ten at 0.3, none where tracing is off; a span says what document 004 wants to know."""
    node = node_with("\nobservability:\n  tracing: {enabled: true, sample_rate: 0.3}\n")
    with Runtime() as runtime:
        events = events_of(runtime, "vesper.executed")
        outcomes = [runtime.execute(node, {"number": 1}) for _ in range(10)]
        runtime.execute(node_with("\nobservability:\n  tracing: {enabled: false, sample_rate: 1}\n"), {"number": 1})
        runtime.settle()
    assert len(events) == 3
    span = span_of(events[0])
    assert span is not None
    assert (span.kind, span.name, span.status) == ("node", "half_v1", "ok")
    assert span.trace_id in {outcome.trace_id for outcome in outcomes}
    assert span.data["name"] == "sir.execute"
    assert span.data["sir.execution_path"] == "python"
    assert span.data["sir.divergence"] is False


def test_log_records_are_written_as_asked(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "lyra.vesper")
    wishes = "\nobservability:\n  logging: {level: warning, structured: true, include_request_id: true}\n"
    with Runtime() as runtime:
        runtime.execute(node_with(""), {"number": 1})
        assert caplog.records == []
        outcome = runtime.execute(node_with(wishes), {"number": -1, "token": "s3cret-value"})
        runtime.execute(node_with("\nobservability:\n  logging: {level: debug}\n"), {"number": 1})
    first, second = caplog.records
    data = json.loads(first.getMessage())
    assert (first.levelname, data["code"], data["trace_id"]) == ("WARNING", "validation_failed", outcome.trace_id)
    assert second.getMessage().startswith("node=half_v1 status=success duration_ms=")
    assert "s3cret" not in caplog.text


def test_a_node_is_executed_as_often_as_its_rate_allows(tmp_path: Path) -> None:
    """Users by themselves, all together; a restart forgives nothing."""
    node = node_with("\nperformance:\n  rate_limit: {per_user: 2/hour, global: 3/day}\n")

    def code(runtime: Runtime, user: str) -> str:
        failure = runtime.execute(node, {"number": 1, "user_id": user}).error
        return "" if failure is None else failure.code

    with Runtime(str(tmp_path / "lyra.db")) as runtime:
        assert [code(runtime, "ann") for _ in range(3)] == ["", "", "rate_limited"]
    with Runtime(str(tmp_path / "lyra.db")) as runtime:
        assert [code(runtime, "ann"), code(runtime, "ben"), code(runtime, "ben")] == [
            "rate_limited",
            "",
            "rate_limited",
        ]


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ("observability: {alerts: [{condition: eror_rate > 1}]}", "undefined_name"),
        ("observability: {alerts: [{condition: executions}]}", "not_boolean"),
        ("observability: {alerts: [{severity: info}]}", "missing_key"),
        ("observability: {metrics: [{name: a b}]}", "bad_value"),
        ("observability: {metrics: [{name: a}, {name: a}]}", "duplicate"),
        ("observability: {metrics: [{name: a, type: gauge}]}", "type"),
        ("observability: {metrics: [{name: a, labels: [stats]}]}", "unknown_field"),
        ("observability: {metrics: [{name: a, labels: [token]}]}", "sensitive"),
        ("observability: {metrics: [{name: a, buckets: [2, 1]}]}", "bad_value"),
        ("observability: {tracing: {sample_rate: 2}}", "bad_value"),
        ("observability: {logging: {level: loud}}", "unknown_word"),
        ("performance: {rate_limit: {global: often}}", "bad_value"),
    ],
)
def test_mistakes_are_found(more: str, code: str) -> None:
    issues = [issue for issue in check_text(HALF + "\n" + more + "\n") if issue.severity == "error"]
    assert [issue.code for issue in issues] == [code]
    with pytest.raises(SourceError):
        load(HALF + "\n" + more + "\n")


def test_a_node_comes_up_slowly_after_a_divergence() -> None:
    """The executions since then count by themselves."""
    assert find_allowed_mode(300_000, 1, blocked=False, clean=200_000) == "direct_only"
    assert find_allowed_mode(300_000, 1, blocked=False, clean=20_000) == "dual_verify"
    assert find_allowed_mode(300_000, 1, blocked=False, clean=999) == "shadow_direct"
    assert find_allowed_mode(300_000, 0, blocked=False, clean=0) == "direct_only"


def test_all_names_of_nodes_are_one_text_for_prometheus():
    """`metrics_text` has the six names of every node, also of executions that were not written yet; it parses."""
    node = load(HALF)
    with Runtime() as runtime:
        runtime.execute(node, {"number": 4})
        runtime.execute(node, {"number": -1})
        text = runtime.metrics_text()
    names = {line.split("{")[0] for line in text.splitlines() if not line.startswith("#")}
    assert names >= {
        *("sir_executions_total", "sir_execution_duration_ms_bucket", "sir_executions_errors"),
        *("sir_divergences", "sir_confidence", "sir_traffic_split"),
    }
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert sum(sample.value for sample in families["sir_executions"].samples) == 2


def test_series_of_a_declared_metric_are_bounded():
    """Values of a label beyond the limit are counted together, also over many rows."""
    state = EvidenceState()
    for number in range(SERIES_MAX + 20):
        values = {json.dumps({"user_id": f"u{number}"}): 1}
        declared = {"calls": {"type": "counter", "buckets": [], "values": values}}
        row = {"node": "n", "digest": "d", "compared": 0, "errors": 0, "executions": {}, "metrics": declared}
        state.apply("vesper.compared", "", 0.0, row)
    kept = state.by_digest["d"].metrics["calls"]["values"]
    assert (len(kept), kept[json.dumps({"user_id": "other"})]) == (SERIES_MAX + 1, 20)
