"""Reads requests for OpenAI's chat completions."""

from __future__ import annotations

from typing import Any

from lyra.errors import ConfigError
from lyra.models.provider import Request
from lyra.server.gateway.translation.reading import (
    EFFORT_TOKENS,
    Members,
    TranslatedConversation,
    cannot_carry,
    image_part,
    read_call,
    read_tool,
)

_CHOICES = {"auto": "auto", "none": "none", "required": "any"}


def read_chat(data: dict[str, Any]) -> Request:
    """The Request; ConfigError for what cannot be carried."""
    body = Members(data)
    conversation = TranslatedConversation()
    for message in body.objects("messages"):
        _message(conversation, message)
    schema, name = _response_format(body.inside("response_format"))
    limit = body.whole("max_completion_tokens")
    other_limit = body.whole("max_tokens")
    parallel = body.take("parallel_tool_calls")
    request = Request(
        model=body.text("model"),
        messages=conversation.messages(),
        system="\n\n".join(conversation.system),
        tools=tuple(_tool(tool) for tool in body.objects("tools")),
        tool_choice=tool_choice(body.take("tool_choice")),
        parallel_tools=parallel is not False,
        max_tokens=limit or other_limit,
        temperature=body.number("temperature"),
        top_p=body.number("top_p"),
        stop=_stops(body.take("stop")),
        seed=body.whole("seed"),
        output_schema=schema,
        output_name=name,
        thinking_tokens=effort_tokens(body.take("reasoning_effort")),
    )
    body.skip("stream", "stream_options", "user", "metadata", "store", "safety_identifier")
    body.skip("prompt_cache_key", "prompt_cache_retention", "prompt_cache_options")
    body.skip_if("n", 1)
    body.skip_if("logprobs", False)
    body.skip_if("service_tier", "auto", "default")
    body.skip_if("modalities", ["text"])
    body.skip_if("frequency_penalty", 0)
    body.skip_if("presence_penalty", 0)
    body.end()
    return request


def _message(conversation: TranslatedConversation, message: Members) -> None:
    role = message.text("role")
    if role in ("system", "developer"):
        conversation.system.append(_text(message))
    elif role == "user":
        content = message.take("content")
        conversation.user(content if isinstance(content, str) else [_part(part) for part in message.objects("content")])
    elif role == "assistant":
        calls = [_call(call) for call in message.objects("tool_calls")]
        conversation.assistant(_text(message), calls)
        message.skip("reasoning_content", "reasoning", "annotations")
    elif role == "tool":
        conversation.result(message.text("tool_call_id"), _text(message))
    else:
        raise cannot_carry(f"a message of role {role!r}")
    message.skip("name")
    message.end()


def _text(message: Members) -> str:
    """The content of a message that has only text."""
    content = message.take("content")
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for part in message.objects("content"):
        kind = part.text("type")
        if kind not in ("text", "refusal"):
            raise cannot_carry(f"a part of type {kind!r} in this message")
        texts.append(part.text(kind))
    return "".join(texts)


def _part(part: Members) -> dict[str, Any]:
    kind = part.text("type")
    part.skip("cache_control")
    if kind == "text":
        content = {"type": "text", "text": part.text("text")}
    elif kind == "image_url":
        image = part.inside("image_url")
        content = image_part(image.text("url"))
        image.skip("detail")
        image.end()
    else:
        raise cannot_carry(f"a part of type {kind!r}")
    part.end()
    return content


def _call(call: Members) -> Any:
    call.skip_if("type", "function")
    function, call_id = call.inside("function"), call.text("id")
    call.skip("index")
    call.end()
    return read_call(call_id, function.text("name"), function.take("arguments"))


def _tool(tool: Members) -> Any:
    if tool.text("type") != "function":
        raise cannot_carry("a tool that is no function")
    function = tool.inside("function")
    declared = read_tool(function.text("name"), function.text("description"), function.take("parameters"))
    function.skip("strict")
    function.end()
    tool.skip("cache_control")
    tool.end()
    return declared


def tool_choice(choice: Any) -> str:
    """The choice of a tool as both of OpenAI's formats write it."""
    if choice is None:
        return "auto"
    if isinstance(choice, str) and choice in _CHOICES:
        return _CHOICES[choice]
    if isinstance(choice, dict) and choice.get("type") == "function":
        function = choice.get("function")
        name = function.get("name") if isinstance(function, dict) else choice.get("name")
        if isinstance(name, str):
            return name
    raise cannot_carry("this tool_choice")


def effort_tokens(effort: Any) -> int | None:
    if effort is None:
        return None
    tokens = EFFORT_TOKENS.get(effort) if isinstance(effort, str) else None
    if tokens is None:
        raise cannot_carry("this effort of reasoning")
    return tokens


def output_schema(schema: Members) -> tuple[dict[str, Any] | None, str]:
    """The schema of an answer, and its name."""
    value = schema.take("schema")
    if not isinstance(value, dict):
        raise ConfigError("the schema of an answer is a JSON object")
    return value, schema.text("name") or "answer"


def _response_format(given: Members) -> tuple[dict[str, Any] | None, str]:
    kind = given.text("type")
    if kind in ("", "text"):
        return None, "answer"
    if kind == "json_schema":
        return output_schema(given.inside("json_schema"))
    raise cannot_carry(f"a response_format of type {kind!r}")


def _stops(stop: Any) -> tuple[str, ...]:
    texts = [stop] if isinstance(stop, str) else stop or []
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ConfigError("stop is a text or a list of texts", key="stop")
    return tuple(texts)
