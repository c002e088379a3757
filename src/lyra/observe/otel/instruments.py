"""Records the metrics of the GenAI conventions from Events, on a meter of OpenTelemetry.

Durations and tokens are those that the Events report. Attributes name models, agents and tools, never pids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from opentelemetry.metrics import Meter, MeterProvider

from lyra.core.event import Event, ModelCalled
from lyra.observe.otel.conventions import error_type, provider_and_model

_TOKENS: Final = tuple(float(4**power) for power in range(14))
_SECONDS: Final = tuple(0.01 * 2**power for power in range(14))


class EventInstruments:
    """A listener that records."""

    def __init__(self, provider: MeterProvider, version: str) -> None:
        meter: Meter = provider.get_meter("lyra", version)
        histogram = meter.create_histogram
        self._tokens = histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=_TOKENS,
        )
        self._calls = histogram(
            "gen_ai.client.operation.duration",
            unit="s",
            description="GenAI operation duration.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._turns = histogram(
            "gen_ai.invoke_agent.duration",
            unit="s",
            description="Duration of an agent's turn.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._tools = histogram(
            "gen_ai.execute_tool.duration",
            unit="s",
            description="Duration of a call of a tool.",
            explicit_bucket_boundaries_advisory=_SECONDS,
        )
        self._cost = meter.create_counter("lyra.cost", unit="{USD}", description="Money spent on model calls.")
        self._sessions = meter.create_up_down_counter(
            "lyra.sessions.active", unit="{session}", description="Conversations with agents that are open now."
        )
        self._record: dict[str, Callable[[Mapping[str, Any], dict[str, str]], None]] = {
            "model.called": self._model_called,
            "tool.called": self._tool_called,
            "agent.answered": self._agent_answered,
            "agent.began": lambda data, _: self._session(data, 1),
            "agent.ended": lambda data, _: self._session(data, -1),
        }
        self.kinds = frozenset(self._record)

    def __call__(self, event: Event) -> None:
        failure = error_type(event.kind, event.data)
        self._record[event.kind](event.data, {"error.type": failure} if failure else {})

    def _model_called(self, data: Mapping[str, Any], failure: dict[str, str]) -> None:
        call = ModelCalled.from_data(data)
        provider, model = provider_and_model(call.model)
        named = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": model,
            "gen_ai.agent.name": call.agent,
        }
        self._calls.record(call.latency_ms / 1000, {**named, **failure})
        if call.cost_usd:
            self._cost.add(call.cost_usd, named)
        if not failure:
            self._tokens.record(call.all_input_tokens, {**named, "gen_ai.token.type": "input"})
            self._tokens.record(call.output_tokens, {**named, "gen_ai.token.type": "output"})

    def _tool_called(self, data: Mapping[str, Any], failure: dict[str, str]) -> None:
        tool = "unknown" if failure.get("error.type") == "not_found" else data["tool"]  # a model may make up names
        named = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
        self._tools.record(data["latency_ms"] / 1000, {**named, **failure})

    def _agent_answered(self, data: Mapping[str, Any], failure: dict[str, str]) -> None:
        named = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": data["agent"]}
        self._turns.record(data["latency_ms"] / 1000, {**named, **failure})

    def _session(self, data: Mapping[str, Any], change: int) -> None:
        if data["root"]:
            self._sessions.add(change, {"gen_ai.agent.name": data["agent"]})
