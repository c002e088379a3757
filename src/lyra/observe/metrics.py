"""Counts Events and requests for Prometheus, and writes the figures in its text format.

    metrics = attach_metrics(kernel)
    body, content_type = metrics.render()

`KINDS` says which Events are counted and how; durations are those that the Events report. Counting needs no other
package, writing needs prometheus_client. Labels have names of agents, tools, models, stages and routes: never a pid or
a text of a user. A value that is not a short plain word, that has the form of a key, or that comes after
`LABEL_VALUES_MAX` others becomes `other`, so that no client can make the figures grow. Figures of the kernel
(processes, questions, services) are read when they are asked for. Nothing here changes a kernel.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from lyra.core.event import ENDS_IN_ORDER, NO_FAILURES, Event, ModelCalled
from lyra.core.secrets.redact import redact
from lyra.core.user_folders import data_folder
from lyra.errors import ConfigError

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


_PART: Final = "prometheus"
_WORD: Final = re.compile(r"[A-Za-z0-9_./:@{}<>*+ -]{1,120}")
_HTTP_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Labels = tuple[str, ...]


class SystemFigures(Protocol):
    """What `kernel.get_system_status()` says about processes, questions and services."""

    @property
    def uptime_seconds(self) -> float: ...
    @property
    def process_counts(self) -> dict[str, int]: ...
    @property
    def queue_depth(self) -> int: ...
    @property
    def service_counts(self) -> dict[str, int]: ...
    @property
    def interrupts(self) -> dict[str, int]: ...


class Scraped(Protocol):
    """The part of a kernel that `attach_metrics` uses."""

    parts: dict[str, Any]

    def on_event(self, listener: Callable[[Event], Any], kinds: Iterable[str] | None = None) -> Callable[[], None]: ...
    def get_system_status(self) -> Any: ...


class PrometheusMetrics:
    """A listener that counts, with `render` for what it has counted."""

    __slots__ = ("_counts", "_known", "_spreads", "_status", "_texts")

    def __init__(self, *, status: Callable[[], SystemFigures] | None = None) -> None:
        self._counts: dict[str, dict[Labels, float]] = {
            name: {} for name, row in METRICS.items() if row.type != "histogram"
        }
        self._spreads: dict[str, dict[Labels, list[float]]] = {
            name: {} for name, row in METRICS.items() if row.type == "histogram"
        }
        self._known: dict[tuple[str, str], set[str]] = {}  # values of a metric's label
        self._status = status
        self._texts: list[Callable[[], str]] = []
        for name, row in METRICS.items():
            if not row.labels and row.type == "counter":
                self._counts[name][()] = 0.0

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of Event that are counted. None of them makes programs slower that call no agent."""
        return frozenset(KINDS)

    def __call__(self, event: Event) -> None:
        count = KINDS.get(event.kind)
        if count is not None:
            count(self, event.data)

    def grpc_request(self, method: str, code: str, seconds: float) -> None:
        """Count a gRPC request: the method as `Service/Method`, the name of the status code, how long it took."""
        self.add("lyra_grpc_requests_total", (method, code))
        self.observe("lyra_grpc_request_duration_seconds", (method,), seconds)

    def http_request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count an HTTP request: the route as it was declared (`/api/agents/{name}/chat`), not the path of the URL."""
        known = method.upper() if method.upper() in _HTTP_METHODS else OTHER
        self.add("lyra_http_requests_total", (route, known, str(status)))
        self.observe("lyra_http_request_duration_seconds", (route, known), seconds)

    def add(self, name: str, labels: Labels = (), value: float = 1.0) -> None:
        counts = self._counts[name]
        key = labels if labels in counts else self._limit_labels(name, labels)
        counts[key] = counts.get(key, 0.0) + value

    def set(self, name: str, labels: Labels = (), value: float = 0.0) -> None:
        counts = self._counts[name]
        counts[labels if labels in counts else self._limit_labels(name, labels)] = value

    def observe(self, name: str, labels: Labels, seconds: float) -> None:
        buckets, spreads = METRICS[name].buckets, self._spreads[name]
        key = labels if labels in spreads else self._limit_labels(name, labels)
        spread = spreads.get(key)
        if spread is None:  # the count of each bucket, of what is above the last, and the sum
            spread = spreads[key] = [0.0] * (len(buckets) + 2)
        spread[bisect_left(buckets, seconds)] += 1
        spread[-1] += max(seconds, 0.0)

    def _limit_labels(self, name: str, labels: Labels) -> Labels:
        if not labels:
            return labels
        return tuple(self._value(name, label, value) for label, value in zip(METRICS[name].labels, labels, strict=True))

    def _value(self, name: str, label: str, value: str) -> str:
        known = self._known.get((name, label))
        if known is None:
            known = self._known[name, label] = set()
        if value in known:
            return value
        if len(known) >= LABEL_VALUES_MAX or not _WORD.fullmatch(value) or redact(value) != value:
            return OTHER
        known.add(value)
        return value

    def add_text(self, source: Callable[[], str]) -> None:
        """Append a text in the same format at each `render`: the figures of a Vesper runtime (`metrics_text`)."""
        self._texts.append(source)

    def render(self) -> tuple[bytes, str]:
        """(the figures in the text format of Prometheus, its content type)."""
        try:
            from prometheus_client import generate_latest
        except ImportError:
            raise ConfigError("metrics need prometheus_client", hint="pip install 'lyra-agents[server]'") from None
        self._read_gauges()
        text = generate_latest(self).decode() + "".join(source() for source in self._texts)
        return text.encode(), _CONTENT_TYPE

    def collect(self) -> Iterator[Metric]:
        """Yield the families, as a registry of prometheus_client gives them: `REGISTRY.register(metrics)` works,
        too."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        for name, row in METRICS.items():
            if row.type == "histogram":
                histogram = HistogramMetricFamily(name, row.help, labels=row.labels)
                for labels, spread in self._spreads[name].copy().items():
                    buckets = row.buckets
                    total, rows = 0.0, []
                    for bound, count in zip((*(str(bound) for bound in buckets), "+Inf"), spread[:-1], strict=True):
                        total += count
                        rows.append((bound, total))
                    histogram.add_metric(labels, rows, spread[-1])
                yield histogram
                continue
            make = CounterMetricFamily if row.type == "counter" else GaugeMetricFamily
            family = make(name, row.help, labels=row.labels)
            for labels, value in self._counts[name].copy().items():
                family.add_metric(labels, value)
            yield family

    def _read_gauges(self) -> None:
        memory = memory_bytes()
        if memory is not None:
            self.set("memory_usage_bytes", (), memory)
        self.set("cache_size_bytes", (), cache_bytes())
        if self._status is None:
            return
        status = self._status()
        self.set("lyra_queue_depth", (), status.queue_depth)
        self.set("lyra_uptime_seconds", (), status.uptime_seconds)
        self.set("lyra_interrupts_pending", (), status.interrupts.get("pending", 0))
        self._set_all("lyra_processes", status.process_counts)
        self._set_all("lyra_interrupts", status.interrupts)
        self._set_all("lyra_services", status.service_counts)

    def _set_all(self, name: str, counts: Mapping[str, int]) -> None:
        """Replace the values of a gauge by those of now: a state without processes has 0, not what it had before."""
        before = dict.fromkeys(self._counts[name], 0.0)
        self._counts[name] = before
        for word, count in counts.items():
            key = self._limit_labels(name, (str(word),))
            before[key] = before.get(key, 0.0) + count


# ---------------------------------------------------------------- how each kind of Event is counted


def _model_called(metrics: PrometheusMetrics, data: Mapping[str, Any]) -> None:
    call = ModelCalled.from_data(data)
    model, status, seconds = call.model, call.status, call.latency_ms / 1000
    provider = model.partition("/")[0]
    metrics.add("llm_requests_total", (model, status))
    metrics.add("lyra_llm_calls_total", (provider, model, status))
    metrics.observe("llm_request_duration_seconds", (model,), seconds)
    metrics.observe("lyra_llm_duration_seconds", (provider, model), seconds)
    metrics.add("llm_tokens_input_total", (model,), call.input_tokens)
    metrics.add("llm_tokens_output_total", (model,), call.output_tokens)
    if call.retries > 0:
        metrics.add("lyra_llm_retries_total", (model,), call.retries)
    if call.cost_usd:
        metrics.add("lyra_cost_usd_total", (call.agent, model), call.cost_usd)
    if status not in NO_FAILURES:
        metrics.add("llm_errors_total", (model, status))
        metrics.add("lyra_errors_total", ("model", status))
    if status != "ok":
        return
    metrics.add("cache_hits_total" if call.cache_read_tokens else "cache_misses_total", (model,))
    metrics.set("context_tokens_current", (call.agent,), call.all_input_tokens)


def _tool_called(metrics: PrometheusMetrics, data: Mapping[str, Any]) -> None:
    error = data.get("error", "") if data["status"] != "ok" else ""
    tool = data["tool"] if error != "not_found" else OTHER  # a name that a model made up
    metrics.add("tool_calls_total", (tool,))
    metrics.observe("tool_duration_seconds", (tool,), data["latency_ms"] / 1000)
    if data["status"] == "ok":
        metrics.add("tool_success_total", (tool,))
        return
    if error in NO_FAILURES:
        return
    metrics.add("tool_errors_total", (tool,))
    metrics.add("lyra_errors_total", ("tool", error or "error"))


def _agent_answered(metrics: PrometheusMetrics, data: Mapping[str, Any]) -> None:
    agent, status = data["agent"], data["status"]
    metrics.add("lyra_agent_executions_total", (agent, status))
    metrics.observe("lyra_agent_duration_seconds", (agent,), data["latency_ms"] / 1000)
    if status not in NO_FAILURES:
        metrics.add("lyra_errors_total", ("agent", status))


def _agent_began(metrics: PrometheusMetrics, data: Mapping[str, Any]) -> None:
    if data["root"]:
        metrics.add("sessions_total")
        metrics.add("sessions_active")


def _agent_ended(metrics: PrometheusMetrics, data: Mapping[str, Any]) -> None:
    if data["root"]:
        metrics.add("sessions_active", (), -1.0)
        metrics.observe("session_duration_seconds", (), data["latency_ms"] / 1000)


def _pipeline_ended(metrics: PrometheusMetrics, data: Mapping[str, Any]) -> None:
    pipeline, reason = data.get("pipeline", OTHER), str(data["reason"]).lower() or "unknown"
    metrics.add("lyra_pipeline_executions_total", (pipeline, reason))
    if "latency_ms" in data:
        metrics.observe("lyra_pipeline_duration_seconds", (pipeline,), data["latency_ms"] / 1000)
    if reason not in ENDS_IN_ORDER:
        metrics.add("lyra_errors_total", ("pipeline", reason))


def _pipeline_reported(metrics: PrometheusMetrics, data: Mapping[str, Any]) -> None:
    status = "ok" if data["success"] else "error"
    metrics.add("lyra_stage_executions_total", (data["agent_name"] or OTHER, status))


KINDS: Final[dict[str, Callable[[PrometheusMetrics, Mapping[str, Any]], None]]] = {
    "model.called": _model_called,
    "tool.called": _tool_called,
    "agent.began": _agent_began,
    "agent.answered": _agent_answered,
    "agent.ended": _agent_ended,
    "pipeline.reported": _pipeline_reported,
    "pipeline.ended": _pipeline_ended,
}


class _AttachedMetrics:
    """A part of the kernel: the metrics that are counted for it, until it closes."""

    __slots__ = ("metrics", "stop")

    def __init__(self, metrics: PrometheusMetrics, stop: Callable[[], None]) -> None:
        self.metrics = metrics
        self.stop = stop

    async def close(self) -> None:
        self.stop()


def attach_metrics(kernel: Scraped) -> PrometheusMetrics:
    """Return the metrics of a kernel, counted from the first call on until it closes. A second call gives the same."""
    attached = kernel.parts.get(_PART)
    if isinstance(attached, _AttachedMetrics):
        return attached.metrics
    metrics = PrometheusMetrics(status=kernel.get_system_status)
    kernel.parts[_PART] = _AttachedMetrics(metrics, kernel.on_event(metrics, metrics.kinds))
    return metrics


# What this OS process uses of the machine: resident memory, and caches on disk. Read when asked, never kept.
_CACHES: Final = ("maps",)  # folders of the data folder that can be removed at any time


def memory_bytes() -> int | None:
    """Resident memory; None where the system does not say."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        # The most that was resident so far, where there is no /proc.
        try:
            import resource
        except ImportError:
            return None
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return used if os.uname().sysname == "Darwin" else used * 1024


def cache_bytes() -> int:
    """Bytes of the files in Lyra's cache folders; a folder that is missing or cannot be read counts as empty."""
    total = 0
    for name in _CACHES:
        try:
            with os.scandir(data_folder() / name) as entries:
                total += sum(entry.stat(follow_symlinks=False).st_size for entry in entries if entry.is_file())
        except OSError:
            continue
    return total


# ---------------------------------------------------------------- metric table
# The metrics that Lyra serves to Prometheus: one table of names, types, labels and meanings.

LABEL_VALUES_MAX: Final = 100  # distinct values of one label of one metric; later ones are counted as `other`
OTHER: Final = "other"

_CALL_S: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_TURN_S: Final = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
_TOOL_S: Final = (0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0)
_REQUEST_S: Final = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SESSION_S: Final = (60.0, 300.0, 600.0, 1800.0, 3600.0, 7200.0)


class MetricRow(NamedTuple):
    """`type` is counter, gauge or histogram; `buckets` are the upper bounds of a histogram."""

    type: str
    labels: tuple[str, ...]
    help: str
    buckets: tuple[float, ...] = ()


METRICS: Final[dict[str, MetricRow]] = {
    "llm_requests_total": MetricRow("counter", ("model", "status"), "Model calls, by how they ended."),
    "llm_tokens_input_total": MetricRow("counter", ("model",), "Tokens sent to models."),
    "llm_tokens_output_total": MetricRow("counter", ("model",), "Tokens that models answered with."),
    "llm_request_duration_seconds": MetricRow(
        "histogram", ("model",), "Duration of a model call with all its tries.", _CALL_S
    ),
    "llm_errors_total": MetricRow("counter", ("model", "error"), "Model calls that failed, by the kind of error."),
    "tool_calls_total": MetricRow("counter", ("tool",), "Calls of tools by agents."),
    "tool_success_total": MetricRow("counter", ("tool",), "Calls of tools that gave a result."),
    "tool_errors_total": MetricRow("counter", ("tool",), "Calls of tools that gave an error or were refused."),
    "tool_duration_seconds": MetricRow("histogram", ("tool",), "Duration of a call of a tool.", _TOOL_S),
    "sessions_active": MetricRow("gauge", (), "Conversations with agents that are open now."),
    "sessions_total": MetricRow("counter", (), "Conversations with agents that were opened."),
    "session_duration_seconds": MetricRow(
        "histogram", (), "How long a conversation with an agent was open.", _SESSION_S
    ),
    "cache_hits_total": MetricRow("counter", ("model",), "Model calls that read tokens from the provider's cache."),
    "cache_misses_total": MetricRow("counter", ("model",), "Model calls that read nothing from the provider's cache."),
    "cache_size_bytes": MetricRow("gauge", (), "Size of the caches that Lyra keeps on disk for this user."),
    "memory_usage_bytes": MetricRow("gauge", (), "Resident memory of this OS process."),
    "context_tokens_current": MetricRow("gauge", ("agent",), "Tokens of the latest request of an agent to its model."),
    "lyra_llm_calls_total": MetricRow("counter", ("provider", "model", "status"), "Model calls, with their provider."),
    "lyra_llm_duration_seconds": MetricRow(
        "histogram", ("provider", "model"), "Duration of a model call with all its tries.", _CALL_S
    ),
    "lyra_llm_retries_total": MetricRow("counter", ("model",), "Tries of model calls after the first."),
    "lyra_cost_usd_total": MetricRow("counter", ("agent", "model"), "Money spent on model calls with a known price."),
    "lyra_agent_executions_total": MetricRow("counter", ("agent", "status"), "Turns of agents, by how they ended."),
    "lyra_agent_duration_seconds": MetricRow("histogram", ("agent",), "Duration of an agent's turn.", _TURN_S),
    "lyra_pipeline_executions_total": MetricRow("counter", ("pipeline", "status"), "Pipelines, by how they ended."),
    "lyra_pipeline_duration_seconds": MetricRow(
        "histogram", ("pipeline",), "Duration of a pipeline from its begin to its end.", _TURN_S
    ),
    "lyra_stage_executions_total": MetricRow("counter", ("agent", "status"), "Runs of stages of pipelines."),
    "lyra_errors_total": MetricRow("counter", ("part", "error"), "Failures of models, tools, agents and pipelines."),
    "lyra_grpc_requests_total": MetricRow("counter", ("method", "code"), "gRPC requests, by status code."),
    "lyra_grpc_request_duration_seconds": MetricRow(
        "histogram", ("method",), "Duration of a gRPC request.", _REQUEST_S
    ),
    "lyra_http_requests_total": MetricRow("counter", ("route", "method", "status"), "HTTP requests, by status."),
    "lyra_http_request_duration_seconds": MetricRow(
        "histogram", ("route", "method"), "Duration of an HTTP request.", _REQUEST_S
    ),
    "lyra_processes": MetricRow("gauge", ("state",), "Processes in the table, by state."),
    "lyra_queue_depth": MetricRow("gauge", (), "Entries in line for a worker."),
    "lyra_interrupts": MetricRow("gauge", ("status",), "Questions to humans that are kept, by status."),
    "lyra_interrupts_pending": MetricRow("gauge", (), "Questions that wait for an answer."),
    "lyra_services": MetricRow("gauge", ("type",), "Registered services."),
    "lyra_uptime_seconds": MetricRow("gauge", (), "How long the kernel has been open."),
}
