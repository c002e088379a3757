"""Models: one protocol, one stream of typed events, and a client for each provider.

    request     what is asked                      provider    who can answer: LLMProvider, one method
    stream      the events of an answer, the fold  client      LLMClient: any model, by name
    names       provider/model                     settings    keys, addresses, time-outs
    wire        what the wire clients share        providers   one module for each provider
    sim record script                              models without a network

`LLMProvider.stream` is the one path; `complete` is its fold. Providers know nothing of the kernel, whose door does
retries, limits and money. The names below are looked up when they are first used: a provider's module and the HTTP
library are imported at the first call.
"""

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import of typing
if TYPE_CHECKING:
    from typing import Any

    from lyra.core.message import Message
    from lyra.core.tool import ToolCall, ToolResult
    from lyra.models.client import LLMClient
    from lyra.models.names import ModelName, model_name
    from lyra.models.provider import LLMProvider, Request
    from lyra.models.settings import ProviderSettings, Timeouts, settings_of
    from lyra.models.stream import (
        Completion,
        Finished,
        Started,
        StreamEvent,
        TextDelta,
        ThinkingDelta,
        TokenUsage,
        ToolDelta,
        ToolEnd,
        ToolStart,
        UsageSeen,
        complete,
    )

__all__ = [
    "Completion",
    "Finished",
    "LLMClient",
    "LLMProvider",
    "Message",
    "ModelName",
    "ProviderSettings",
    "Request",
    "Started",
    "StreamEvent",
    "TextDelta",
    "ThinkingDelta",
    "Timeouts",
    "TokenUsage",
    "ToolCall",
    "ToolDelta",
    "ToolEnd",
    "ToolResult",
    "ToolStart",
    "UsageSeen",
    "complete",
    "model_name",
    "settings_of",
]

_HOMES = {
    "Completion": "lyra.models.stream",
    "Finished": "lyra.models.stream",
    "LLMClient": "lyra.models.client",
    "LLMProvider": "lyra.models.provider",
    "Message": "lyra.core.message",
    "ModelName": "lyra.models.names",
    "ProviderSettings": "lyra.models.settings",
    "Request": "lyra.models.provider",
    "Started": "lyra.models.stream",
    "StreamEvent": "lyra.models.stream",
    "TextDelta": "lyra.models.stream",
    "ThinkingDelta": "lyra.models.stream",
    "Timeouts": "lyra.models.settings",
    "TokenUsage": "lyra.models.stream",
    "ToolCall": "lyra.core.tool",
    "ToolDelta": "lyra.models.stream",
    "ToolEnd": "lyra.models.stream",
    "ToolResult": "lyra.core.tool",
    "ToolStart": "lyra.models.stream",
    "UsageSeen": "lyra.models.stream",
    "complete": "lyra.models.stream",
    "model_name": "lyra.models.names",
    "settings_of": "lyra.models.settings",
}


def __getattr__(name: str) -> "Any":
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'lyra.models' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
