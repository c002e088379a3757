"""The metrics that Lyra serves to Prometheus: one table of names, types, labels and meanings.

`metrics` counts what is listed here and nothing else, and the reference page is written from this table. Names without
the prefix `lyra_` are those that agents of this kind have in other systems, too; dashboards made for them work here.
The figures of nodes (`sir_…`) are not in the table: a node may declare metrics of its own, so Vesper writes them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

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
