"""What a span of Lyra is called in OpenTelemetry, and which attributes it has: the GenAI semantic conventions.

`SHAPES` has a row for each kind of span. Attributes of the conventions begin with "gen_ai.", those of nodes with "sir."
and what the conventions have no name for (cost, tries, status) with "lyra.". Texts of prompts are no attributes, unless
the details of a call have them, which they only do where the user asked for content. `EventInstruments` records the
metrics of the conventions from Events.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from hashlib import blake2b
from string import hexdigits
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from lyra.core.event import NO_FAILURES, Event, ModelCalled
from lyra.core.providers import USUAL
from lyra.core.secrets.redact import redact

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter, MeterProvider

Attributes = dict[str, Any]

# By Lyra's name of a provider; any other provider keeps its name. The two that are added have no row of their own: they
# speak OpenAI's format behind a base URL.
PROVIDERS: Final = {name: usual.telemetry for name, usual in USUAL.items() if usual.telemetry} | {
    "mistral": "mistral_ai",
    "xai": "x_ai",
}
_TEXT_CHARS_MAX: Final = 1_000  # of an attribute that a program sets


class SpanShape(NamedTuple):
    """`client` spans wait for another system; `attributes` takes the Event's data and its pid."""

    name: Callable[[Mapping[str, Any]], str]
    attributes: Callable[[Mapping[str, Any], str], Attributes]
    client: bool = False


def provider_and_model(model: str) -> tuple[str, str]:
    """(the provider by the conventions, the provider's name for the model) of Lyra's name of a model."""
    provider, _, name = model.partition("/")
    return PROVIDERS.get(provider, provider), name or provider


def error_type(kind: str, data: Mapping[str, Any]) -> str:
    """Return why a piece of work failed; "" where it did not."""
    status = str(data.get("status", "ok"))
    if kind == "tool.called" and status != "ok":
        status = str(data.get("error") or status)
    return "" if status in NO_FAILURES else status


def hex_id(text: str, size_bytes: int) -> int:
    """Return an id as a number. Ids of nodes are no hexadecimal numbers: they are hashed."""
    if len(text) == size_bytes * 2 and not text.strip(hexdigits):
        return int(text, 16)
    return int.from_bytes(blake2b(text.encode(), digest_size=size_bytes).digest())


def _common(data: Mapping[str, Any], pid: str, operation: str) -> Attributes:
    return {
        "gen_ai.operation.name": operation,
        "gen_ai.agent.name": data["agent"],
        "gen_ai.conversation.id": pid,
        "lyra.pid": pid,
        "lyra.status": data["status"],
        "lyra.latency_ms": data["latency_ms"],
    }


def _tokens(tokens_in: int, tokens_out: int, cost_usd: float | None, *, estimated: bool) -> Attributes:
    tokens: Attributes = {"gen_ai.usage.input_tokens": tokens_in, "gen_ai.usage.output_tokens": tokens_out}
    if cost_usd is not None:
        tokens["lyra.cost_usd"] = cost_usd
    if estimated:
        tokens["lyra.tokens_estimated"] = True
    return tokens


def _chat(data: Mapping[str, Any], pid: str) -> Attributes:
    call = ModelCalled.from_data(data)
    provider, model = provider_and_model(call.model)
    attributes = {
        **_common(data, pid, "chat"),
        "gen_ai.provider.name": provider,
        "gen_ai.request.model": model,
        "lyra.model": call.model,
        "lyra.retries": call.retries,
        **_tokens(call.all_input_tokens, call.output_tokens, call.cost_usd, estimated=call.estimated),
    }
    if call.cache_read_tokens or call.cache_write_tokens:
        attributes["gen_ai.usage.cache_read.input_tokens"] = call.cache_read_tokens
        attributes["gen_ai.usage.cache_creation.input_tokens"] = call.cache_write_tokens
    return attributes


def _turn(data: Mapping[str, Any], pid: str) -> Attributes:
    counts = {"lyra.model_calls": data["model_calls"], "lyra.tool_calls": data["tool_calls"]}
    tokens = _tokens(
        data["input_tokens"], data["output_tokens"], data["cost_usd"], estimated=bool(data.get("estimated"))
    )
    return {**_common(data, pid, "invoke_agent"), "gen_ai.agent.id": pid, **tokens, **counts}


def _tool(data: Mapping[str, Any], pid: str) -> Attributes:
    call = {"gen_ai.tool.call.id": data["call_id"]} if data.get("call_id") else {}
    return {
        **_common(data, pid, "execute_tool"),
        "gen_ai.tool.name": data["tool"],
        "gen_ai.tool.type": "function",
        **call,
    }


def _session(data: Mapping[str, Any], pid: str) -> Attributes:
    return {
        "gen_ai.agent.name": data["agent"],
        "gen_ai.conversation.id": pid,
        "lyra.pid": pid,
        "lyra.status": data["status"],
        "lyra.latency_ms": data["latency_ms"],
    }


def _node(data: Mapping[str, Any], pid: str) -> Attributes:
    return {"lyra.pid": pid, **{name: value for name, value in data.items() if name.startswith("sir.")}}


def _program(data: Mapping[str, Any], pid: str) -> Attributes:
    own = {
        str(name): value if isinstance(value, (bool, int, float)) else redact(str(value))[:_TEXT_CHARS_MAX]
        for name, value in data.get("attributes", {}).items()
    }
    return {**own, "lyra.pid": pid}


SHAPES: Final[dict[str, SpanShape]] = {
    "model.called": SpanShape(lambda data: f"chat {provider_and_model(data['model'])[1]}", _chat, client=True),
    "tool.called": SpanShape(lambda data: f"execute_tool {data['tool']}", _tool),
    "agent.answered": SpanShape(lambda data: f"invoke_agent {data['agent']}", _turn),
    "agent.began": SpanShape(lambda data: f"session {data['agent']}", _session),
    "agent.ended": SpanShape(lambda data: f"session {data['agent']}", _session),
    "vesper.executed": SpanShape(lambda data: str(data["name"]), _node),
    "trace.span": SpanShape(lambda data: redact(str(data["name"]))[:_TEXT_CHARS_MAX], _program),
}

_DETAILS: Final = {
    "response_model": "gen_ai.response.model",
    "response_id": "gen_ai.response.id",
    "max_tokens": "gen_ai.request.max_tokens",
    "temperature": "gen_ai.request.temperature",
    "top_p": "gen_ai.request.top_p",
}
_CONTENT: Final = {
    "input": "gen_ai.input.messages",
    "output": "gen_ai.output.messages",
    "system": "gen_ai.system_instructions",
    "arguments": "gen_ai.tool.call.arguments",
    "result": "gen_ai.tool.call.result",
}


def detail_attributes(details: Mapping[str, Any]) -> Attributes:
    """Settings and ids of a model call, without its content."""
    attributes = {name: details[key] for key, name in _DETAILS.items() if details.get(key) is not None}
    if details.get("finish_reason"):
        attributes["gen_ai.response.finish_reasons"] = [details["finish_reason"]]
    return attributes


def content_attributes(details: Mapping[str, Any]) -> Attributes:
    """Return the content of a call as texts of JSON, redacted where it was made."""
    return {name: msgspec.json.encode(details[key]).decode() for key, name in _CONTENT.items() if details.get(key)}


# What the records of model and tool calls leave out: settings, ids and, where the user asked for it, content.

PART: Final = "call_details"
_KEPT_MAX: Final = 1_000


class CallDetails:
    """`content` says where the texts of a call go: `span`, `event`, both or nowhere."""

    __slots__ = ("_kept", "content")

    def __init__(self, content: Collection[str]) -> None:
        self.content = frozenset(content)
        self._kept: OrderedDict[str, dict[str, Any]] = OrderedDict()

    @property
    def wants_content(self) -> bool:
        return bool(self.content)

    def add(self, span_id: str, details: dict[str, Any]) -> None:
        self._kept[span_id] = details
        while len(self._kept) > _KEPT_MAX:
            self._kept.popitem(last=False)

    def take(self, span_id: str) -> dict[str, Any] | None:
        return self._kept.pop(span_id, None)

    async def close(self) -> None:
        self._kept.clear()


# Records the metrics of the GenAI conventions from Events, on a meter of OpenTelemetry.

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
