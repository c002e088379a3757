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

from lyra._imports import on_first_use

TYPE_CHECKING = False  # typing.TYPE_CHECKING without the import of typing
if TYPE_CHECKING:
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

if not TYPE_CHECKING:  # type checkers read the imports above
    __getattr__ = on_first_use(
        __name__,
        {
            "stream": "Completion Finished Started StreamEvent "
            "TextDelta ThinkingDelta TokenUsage ToolDelta ToolEnd ToolStart UsageSeen complete",
            "client": "LLMClient",
            "provider": "LLMProvider Request",
            "lyra.core.message": "Message",
            "names": "ModelName model_name",
            "settings": "ProviderSettings Timeouts settings_of",
            "lyra.core.tool": "ToolCall ToolResult",
        },
    )


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
