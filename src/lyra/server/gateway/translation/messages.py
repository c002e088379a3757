"""Reads requests for Anthropic's messages."""

from __future__ import annotations

from typing import Any, Final

from lyra.errors import ConfigError
from lyra.models.provider import Request
from lyra.models.providers.anthropic import REDACTED
from lyra.server.gateway.translation.chat import effort_tokens, output_schema
from lyra.server.gateway.translation.reading import (
    Members,
    TranslatedConversation,
    cannot_carry,
    read_call,
    read_tool,
)

_TOOL_KINDS: Final = ("", "custom")


def read_messages(data: dict[str, Any]) -> Request:
    """The Request; ConfigError for what cannot be carried."""
    body = Members(data)
    conversation = TranslatedConversation()
    system = _system(body)
    for message in body.objects("messages"):
        _message(conversation, message)
    choice, parallel = _tool_choice(body.inside("tool_choice"))
    config = body.inside("output_config")
    schema = _schema(config)
    thinking = _thinking(body.inside("thinking"))
    effort = effort_tokens(config.take("effort"))
    config.end()
    stops = body.take("stop_sequences") or []
    if not isinstance(stops, list) or not all(isinstance(text, str) for text in stops):
        raise ConfigError("stop_sequences is a list of texts", key="stop_sequences")
    request = Request(
        model=body.text("model"),
        messages=conversation.messages(),
        system="\n\n".join([*filter(None, [system]), *conversation.system]),
        tools=tuple(_tool(tool) for tool in body.objects("tools")),
        tool_choice=choice,
        parallel_tools=parallel,
        max_tokens=body.whole("max_tokens"),
        temperature=body.number("temperature"),
        top_p=body.number("top_p"),
        top_k=body.whole("top_k"),
        stop=tuple(stops),
        output_schema=schema,
        thinking_tokens=effort if thinking is None else thinking,
    )
    body.skip("stream", "metadata")
    body.skip_if("service_tier", "auto", "standard_only")
    body.end()
    return request


def _system(body: Members) -> str:
    system = body.take("system")
    if system is None or isinstance(system, str):
        return system or ""
    return "\n\n".join(block.text("text") for block in body.objects("system"))


def _message(conversation: TranslatedConversation, message: Members) -> None:
    role, content = message.text("role"), message.take("content")
    if role == "system":
        conversation.system.append(content if isinstance(content, str) else _texts(message))
    elif role not in ("user", "assistant"):
        raise cannot_carry(f"a message of role {role!r}")
    elif isinstance(content, str):
        conversation.user(content) if role == "user" else conversation.assistant(content)
    elif role == "user":
        _user(conversation, message)
    else:
        _assistant(conversation, message)
    message.end()


def _texts(message: Members) -> str:
    return "".join(block.text("text") for block in message.objects("content"))


def _user(conversation: TranslatedConversation, message: Members) -> None:
    parts: list[dict[str, Any]] = []
    for block in message.objects("content"):
        block.skip("cache_control")
        if block.text("type") == "tool_result":
            output = _output(block)
            conversation.result(block.text("tool_use_id"), output, is_error=block.take("is_error") is True)
        else:
            parts.append(_part(block))
        block.end()
    if parts:
        conversation.user(parts)


def _output(block: Members) -> str | list[dict[str, Any]]:
    content = block.take("content")
    if content is None or isinstance(content, str):
        return content or ""
    parts = []
    for part in block.objects("content"):
        part.skip("cache_control")
        parts.append(_part(part))
        part.end()
    return parts


def _assistant(conversation: TranslatedConversation, message: Members) -> None:
    parts: list[dict[str, Any]] = []
    calls = []
    for block in message.objects("content"):
        block.skip("cache_control", "citations", "caller")  # of an answer that comes back
        if block.text("type") == "tool_use":
            calls.append(read_call(block.text("id"), block.text("name"), block.take("input")))
        else:
            parts.append(_part(block))
        block.end()
    conversation.assistant(parts or "", calls)


def _part(block: Members) -> dict[str, Any]:
    kind = block.text("type")
    if kind == "text":
        return {"type": "text", "text": block.text("text")}
    if kind == "thinking":
        return {"type": "thinking", "thinking": block.text("thinking"), "signature": block.text("signature")}
    if kind == "redacted_thinking":
        return {"type": "thinking", "thinking": "", "signature": REDACTED + block.text("data")}
    if kind == "image":
        source = block.inside("source")
        form = source.text("type")
        if form == "base64":
            return {"type": "image", "media_type": source.text("media_type"), "data": source.text("data")}
        if form == "url":
            return {"type": "image", "url": source.text("url")}
    raise cannot_carry(f"a block of type {kind!r}")


def _tool(tool: Members) -> Any:
    kind = tool.text("type")
    if kind not in _TOOL_KINDS:
        raise cannot_carry(f"the tool of type {kind!r}")
    declared = read_tool(tool.text("name"), tool.text("description"), tool.take("input_schema"))
    tool.skip("cache_control", "strict", "eager_input_streaming")
    tool.skip_if("defer_loading", False)
    tool.end()
    return declared


def _tool_choice(choice: Members) -> tuple[str, bool]:
    """The choice of a tool, and whether several may be called at once."""
    kind = choice.text("type") or "auto"
    parallel = choice.take("disable_parallel_tool_use") is not True
    if kind == "tool":
        return choice.text("name"), parallel
    if kind in ("auto", "any", "none"):
        return kind, parallel
    raise cannot_carry(f"a tool_choice of type {kind!r}")


def _thinking(thinking: Members) -> int | None:
    kind = thinking.text("type")
    if kind == "enabled":
        return thinking.whole("budget_tokens")
    if kind in ("", "disabled", "adaptive"):
        return None
    raise cannot_carry(f"thinking of type {kind!r}")


def _schema(config: Members) -> dict[str, Any] | None:
    given = config.inside("format")
    kind = given.text("type")
    if not kind:
        return None
    if kind != "json_schema":
        raise cannot_carry(f"a format of type {kind!r}")
    return output_schema(given)[0]
