"""The wire formats that the gateway takes, one row each: where the fields are that it has to know.

A format is a vendor's API: its path, the field that bounds an answer, how its usage is written, how its streams are
read. Everything else in a request or an answer passes unread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lyra.models.stream import TokenUsage, count_of

if TYPE_CHECKING:
    from lyra.models.wire.remote import Reader


# The names under which providers take the most tokens of an answer. Servers that speak a vendor's format often take
# those of others beside it.
ANSWER_BOUNDS: Final = (
    *("max_completion_tokens", "max_tokens", "max_output_tokens"),
    *("max_new_tokens", "max_tokens_to_sample", "num_predict", "n_predict"),
)


class WireFormat(NamedTuple):
    """`limits` are the fields that bound the tokens of an answer; the first is the one that is added where none is
    given. `reader` makes a reader of streams."""

    name: str
    vendor: str
    path: str  # below the provider's base URL
    limits: tuple[str, ...]
    usage: Callable[[dict[str, Any]], TokenUsage]
    reader: Callable[[], Reader] | None = None
    is_free: bool = False  # providers take nothing for it


def _openai_usage(usage: dict[str, Any]) -> TokenUsage:
    """Usage as OpenAI writes it, in its three forms."""
    into = usage.get("prompt_tokens", usage.get("input_tokens"))
    out = usage.get("completion_tokens", usage.get("output_tokens"))
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
    answer = usage.get("completion_tokens_details") or usage.get("output_tokens_details") or {}
    return TokenUsage(
        count_of(into),
        count_of(out),
        cache_read_tokens=count_of(_of(details, "cached_tokens")),
        reasoning_tokens=count_of(_of(answer, "reasoning_tokens")),
    )


def _anthropic_usage(usage: dict[str, Any]) -> TokenUsage:
    return TokenUsage(
        count_of(usage.get("input_tokens")),
        count_of(usage.get("output_tokens")),
        cache_read_tokens=count_of(usage.get("cache_read_input_tokens")),
        cache_write_tokens=count_of(usage.get("cache_creation_input_tokens")),
        cached_apart=True,
    )


def _of(details: Any, field: str) -> Any:
    return details.get(field) if isinstance(details, dict) else None


def _chat_reader() -> Reader:
    from lyra.models.providers.openai_chat import ChatReader

    return ChatReader()


def _responses_reader() -> Reader:
    from lyra.models.providers.openai_responses import ResponsesReader

    return ResponsesReader()


def _messages_reader() -> Reader:
    from lyra.models.providers.anthropic import AnthropicReader

    return AnthropicReader()


FORMATS: Final = {
    "chat": WireFormat(
        "chat",
        "openai",
        "chat/completions",
        ("max_completion_tokens", "max_tokens"),
        _openai_usage,
        _chat_reader,
    ),
    "responses": WireFormat(
        "responses", "openai", "responses", ("max_output_tokens",), _openai_usage, _responses_reader
    ),
    "messages": WireFormat("messages", "anthropic", "v1/messages", ("max_tokens",), _anthropic_usage, _messages_reader),
    "count_tokens": WireFormat(
        "count_tokens", "anthropic", "v1/messages/count_tokens", (), _anthropic_usage, is_free=True
    ),
    "embeddings": WireFormat("embeddings", "openai", "embeddings", (), _openai_usage),
}
