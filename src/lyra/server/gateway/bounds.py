"""The most that a call may cost, before it is made: bounds of the tokens that go in and come out.

A budget holds only if no call can cost more than was reserved for it, so these are bounds, not guesses: no tokenizer
makes more tokens of a text than it has bytes, an image counts as the largest that providers take, and an answer has at
most the tokens that the request allows. What has no bound is refused for a key with a budget.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from lyra.errors import ConfigError
from lyra.models.tokens import BASE_TOKENS, IMAGE_TOKENS, MESSAGE_TOKENS, TOOLS_TOKENS
from lyra.server.gateway.request import GatewayRequest
from lyra.server.gateway.tool_bounds import BoundedTools, described_tokens

__all__ = ["ANSWER_TOKENS", "answer_least", "choices", "input_bound", "output_bound", "refuse_unbounded"]

ANSWER_TOKENS: Final = 32_768  # the bound of an answer where neither the request nor the money left sets a lower one
# Models whose provider refuses a higher bound than this, by the beginning of their names.
_ANSWER_TOKENS_BY_NAME: Final = (
    *(("gpt-4o", 16_384), ("chatgpt-4o", 16_384), ("gpt-4.", ANSWER_TOKENS), ("gpt-4", 4_096)),
    *(("gpt-3.5", 4_096), ("deepseek-chat", 8_192)),
)
_ANSWER_TOKENS_LEAST: Final = 64  # for a shorter answer than this, or than was asked for, the model is not asked
_IMAGE_PARTS: Final = frozenset({"image", "image_url", "input_image"})
_CONVERSATION: Final = ("messages", "input")
# The parts of a conversation whose tokens are bounded by their bytes, or are those of an image. Any other may bring in
# text that is not in the request (a file, a stored item, what a tool of the provider found), sound or moving pictures.
_BOUNDED_PARTS: Final = {
    "chat": frozenset({"message", "text", "image_url", "refusal"}),
    "messages": frozenset(
        {
            *("text", "image", "tool_use", "tool_result", "thinking", "redacted_thinking"),
            *("search_result", "tool_reference"),
        }
    ),
    "responses": frozenset(
        {
            *("message", "input_text", "output_text", "input_image", "refusal", "text"),
            *("reasoning", "reasoning_text", "summary_text", "encrypted_content"),
            *("function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"),
            *("local_shell_call", "local_shell_call_output", "apply_patch_call", "apply_patch_call_output"),
            *("tool_search_call", "tool_search_output", "agent_message", "additional_tools", "configuration_update"),
        }
    ),
    "embeddings": frozenset[str](),
}
# Members that bring in text which the gateway does not see, or that are paid for in another way than by the token.
_UNBOUNDED: Final = (
    *("previous_response_id", "conversation", "thread", "prompt", "background", "compaction"),
    *("container", "mcp_servers", "web_search_options", "audio", "image", "moderation", "prediction"),
    *("search_parameters", "enable_search", "plugins", "best_of"),
    *("fallbacks", "models", "route", "provider", "speed", "inference_geo"),  # another model, or another price
)
# Edits of a conversation before the model reads it. These take text away; others (compaction) ask the model once more.
_SHORTENING_EDITS: Final = ("clear_thinking_", "clear_tool_uses_")
_USUAL_TIERS: Final = (None, "auto", "default", "flex", "standard", "standard_only")


# The tokens of an image as large as providers take them: models of OpenAI count by tiles or patches, each in its way.
_IMAGE_TOKENS_BY_NAME: Final = (("4o-mini", 50_000), ("claude", IMAGE_TOKENS))
_IMAGE_TOKENS_USUAL: Final = 25_000


def input_bound(request: GatewayRequest, model: str) -> int:
    """The most tokens that the request can be for a model."""
    image_tokens = next((most for word, most in _IMAGE_TOKENS_BY_NAME if word in model), _IMAGE_TOKENS_USUAL)
    tokens = request.size_bytes + BASE_TOKENS + (TOOLS_TOKENS if request.has("tools") else 0)
    tokens += described_tokens(request)
    for _, part in _parts(request):
        tokens += MESSAGE_TOKENS
        if _type(part) in _IMAGE_PARTS:
            tokens += image_tokens - _data_bytes(part)
    return tokens


def _parts(request: GatewayRequest) -> Iterator[tuple[int, dict[str, Any]]]:
    """The messages of a request (level 0), their parts (1), and the parts of tools' results (2). Only what a provider
    reads as a part is one: an object inside the arguments of a tool call is text to it."""
    for name in _CONVERSATION:
        pending = request.value(name)
        for level in range(3):
            parts = [part for part in pending if isinstance(part, dict)] if isinstance(pending, list) else []
            yield from ((level, part) for part in parts)
            nested = [part.get(field) for part in parts for field in ("content", "output")]
            pending = [part for inside in nested for part in (inside if isinstance(inside, list) else [inside])]


def _type(part: dict[str, Any]) -> str:
    kind = part.get("type")
    return kind if isinstance(kind, str) else ""


def _data_bytes(part: dict[str, Any]) -> int:
    """The bytes of an image's data inside a request."""
    source = part.get("source")
    if isinstance(source, dict):
        return len(source["data"]) if isinstance(source.get("data"), str) and source.get("type") == "base64" else 0
    url = part.get("image_url")
    text = url.get("url") if isinstance(url, dict) else url
    return len(text) if isinstance(text, str) and text.startswith("data:image/") else 0


def output_bound(request: GatewayRequest, model: str) -> int:
    """The most tokens that the answer can have, of each of its choices."""
    if not request.format.limits:
        return 0
    return request.limit or next(
        (most for word, most in _ANSWER_TOKENS_BY_NAME if model.startswith(word)), ANSWER_TOKENS
    )


def answer_least(request: GatewayRequest) -> int:
    """The fewest tokens of answer that are worth a call: the provider refuses a bound that its thinking would fill."""
    thinking = request.value("thinking")
    budget = thinking.get("budget_tokens") if isinstance(thinking, dict) else None
    return _ANSWER_TOKENS_LEAST + (budget if isinstance(budget, int) and budget > 0 else 0)


def choices(request: GatewayRequest) -> int:
    """How many answers are asked for."""
    count = request.value("n") if request.format.name == "chat" else None
    return count if isinstance(count, int) and not isinstance(count, bool) and count > 1 else 1


def refuse_unbounded(request: GatewayRequest, tools: BoundedTools) -> None:
    """Refuse what has no known bound; `tools` are those of the request."""
    for name in _UNBOUNDED:
        if request.value(name):
            raise _unbounded(name)
    if request.value("n") is not None and type(request.value("n")) is not int:  # some providers read "50" as 50
        raise ConfigError("n is a whole number", key="n")
    if not _only_shortens(request.value("context_management")):
        raise _unbounded("context_management")
    if tools.unbounded is not None:
        raise _unbounded(
            f"the tool {tools.unbounded[:60]!r}", hint="switch that tool off, or use a key without a budget"
        )
    if request.format.vendor == "anthropic" and request.may_name("ttl") and _is_cached_long(request.data()):
        raise _unbounded("a cache_control of another ttl than 5m")
    if request.value("service_tier") not in _USUAL_TIERS:
        raise _unbounded("service_tier")
    bounded = _BOUNDED_PARTS[request.format.name]
    for level, part in _parts(request):
        is_message = not level and bool(bounded) and part.get("type") is None  # it says its role alone
        if (not is_message and _type(part) not in bounded) or part.get("audio"):
            raise _unbounded(f"a part of type {_type(part)[:60]!r}")


def _is_cached_long(data: Any) -> bool:
    """Whether a part asks for a cache that costs more to write than the price of the model says."""
    pending = [data]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            control = node.get("cache_control")
            if isinstance(control, dict) and control.get("ttl", "5m") != "5m":
                return True
            pending += node.values()
        elif isinstance(node, list):
            pending += node
    return False


def _only_shortens(management: Any) -> bool:
    """Whether the edits of a conversation that the provider makes only take text away."""
    if not management:
        return True
    is_known = isinstance(management, dict) and management.keys() <= {"edits"}
    edits = management.get("edits") if is_known else None
    return isinstance(edits, list) and all(
        isinstance(edit, dict) and _type(edit).startswith(_SHORTENING_EDITS) for edit in edits
    )


def _unbounded(what: str, *, hint: str = "leave it out, or use a key without a budget") -> ConfigError:
    return ConfigError(f"what {what} costs is not known before the call, so the key's budget cannot hold it", hint=hint)
