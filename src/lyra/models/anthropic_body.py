"""A Request as Anthropic's Messages API wants it.

Roles alternate (turns of one role are joined), results of tools are the user's, system messages go to the top. What
stays the same from turn to turn is marked for the prompt cache: the system prompt, the last tool, and in a
conversation that goes on its last message. Thoughts go back with the signature they came with, and only Anthropic's
own.
"""

from __future__ import annotations

from typing import Any, Final

from lyra.core.message import Message
from lyra.core.tool import ToolResult
from lyra.errors import ConfigError
from lyra.models.remote import result_parts, result_text
from lyra.models.request import Request
from lyra.models.schemas import closed

__all__ = ["MAX_TOKENS", "REDACTED", "body_of"]

MAX_TOKENS: Final = 8192  # the API wants a number; this is what every model of today can write
REDACTED: Final = "redacted:"  # the signature of a thought that only the provider can read
_THINKING_LEAST: Final = 1024
_CACHED: Final = {"type": "ephemeral"}


def body_of(request: Request) -> dict[str, Any]:
    messages = _messages(request)
    body: dict[str, Any] = {"model": request.model, "messages": messages, "stream": True}
    _put_system(body, request)
    _put_tools(body, request)
    _put_thinking(body, request)
    if request.top_p is not None:
        body["top_p"] = request.top_p
    if request.stop:
        body["stop_sequences"] = list(request.stop)
    if request.output_schema is not None:
        body["output_config"] = {"format": {"type": "json_schema", "schema": closed(request.output_schema)}}
    if request.cache and len(messages) > 1:
        _mark(messages[-1]["content"])
    return body


def _put_system(body: dict[str, Any], request: Request) -> None:
    texts = [request.system, *(message.text for message in request.messages if message.role == "system")]
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text} for text in texts if text]
    if blocks:
        if request.cache:
            blocks[-1]["cache_control"] = _CACHED
        body["system"] = blocks


def _put_tools(body: dict[str, Any], request: Request) -> None:
    if not request.tools:
        return
    tools: list[dict[str, Any]] = [
        {"name": tool.name, "description": tool.description, "input_schema": tool.schema} for tool in request.tools
    ]
    if request.cache:
        tools[-1]["cache_control"] = _CACHED
    body["tools"] = tools
    choice: dict[str, Any]
    if request.tool_choice in ("auto", "any", "none"):
        choice = {"type": request.tool_choice}
    else:
        choice = {"type": "tool", "name": request.tool_choice}
    if not request.parallel_tools and request.tool_choice != "none":
        choice["disable_parallel_tool_use"] = True
    if choice != {"type": "auto"}:
        body["tool_choice"] = choice


def _put_thinking(body: dict[str, Any], request: Request) -> None:
    """Thoughts count towards max_tokens and must leave room for the answer; a thinking model takes no temperature."""
    thinking = request.thinking_tokens
    if request.max_tokens is not None:
        body["max_tokens"] = request.max_tokens
        thinking = min(thinking, request.max_tokens - 1) if thinking else thinking
    else:
        body["max_tokens"] = MAX_TOKENS + max(thinking or 0, 0)
    if thinking is not None and thinking >= _THINKING_LEAST:
        body["thinking"] = {"type": "enabled", "budget_tokens": thinking}
    elif request.temperature is not None:
        body["temperature"] = request.temperature


def _mark(blocks: list[dict[str, Any]]) -> None:
    """Mark the last block that may be marked; a thought may not."""
    for block in reversed(blocks):
        if block["type"] not in ("thinking", "redacted_thinking"):
            block["cache_control"] = _CACHED
            return


# ---------------------------------------------------------------- messages
def _messages(request: Request) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for message in request.messages:
        if message.role == "system":
            continue
        role = "assistant" if message.role == "assistant" else "user"
        blocks = _blocks(message)
        if not blocks:
            continue
        if found and found[-1]["role"] == role:
            found[-1]["content"].extend(blocks)
        else:
            found.append({"role": role, "content": blocks})
    return found


def _blocks(message: Message) -> list[dict[str, Any]]:
    """Empty texts are left out: the API refuses them."""
    blocks = [_result(result) for result in message.tool_results]
    if isinstance(message.content, str):
        if message.content:
            blocks.append({"type": "text", "text": message.content})
    else:
        blocks += [block for part in message.content if (block := _part(part)) is not None]
    blocks += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments} for call in message.tool_calls
    ]
    return blocks


def _part(part: dict[str, Any]) -> dict[str, Any] | None:
    kind = part["type"]
    if kind == "text":
        return {"type": "text", "text": part["text"]} if part.get("text") else None
    if kind == "image":
        return _image(part)
    if kind == "thinking":
        return _thought(part)
    raise ConfigError(f"anthropic cannot be sent a part of type {kind!r}", key="content")


def _image(part: dict[str, Any]) -> dict[str, Any]:
    if isinstance(part.get("url"), str):
        return {"type": "image", "source": {"type": "url", "url": part["url"]}}
    if not isinstance(part.get("data"), str) or not isinstance(part.get("media_type"), str):
        raise ConfigError("an image part has a 'url', or 'media_type' and 'data' (base64)", key="content")
    return {"type": "image", "source": {"type": "base64", "media_type": part["media_type"], "data": part["data"]}}


def _thought(part: dict[str, Any]) -> dict[str, Any] | None:
    signature = str(part.get("signature", ""))
    if signature.startswith(REDACTED):
        return {"type": "redacted_thinking", "data": signature.removeprefix(REDACTED)}
    if not signature or ":" in signature:
        return None  # unsigned, or signed by another provider
    return {"type": "thinking", "thinking": str(part.get("thinking", "")), "signature": signature}


def _result(result: ToolResult) -> dict[str, Any]:
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": result.id}
    parts = result_parts(result)
    if parts is not None:
        block["content"] = [found for part in parts if (found := _part(part)) is not None]
    elif text := result_text(result.output):
        block["content"] = text
    if result.is_error:
        block["is_error"] = True
    return block
