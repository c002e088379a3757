"""A Request as Amazon Bedrock's Converse API wants it.

Roles alternate (turns of one role are joined), results of tools are the user's. An output schema becomes a tool
that has to be called (`answer_tool`); its input is the answer. The API refuses empty texts, and messages that hold
calls without any tool declared, so tools that only occur in the conversation are declared by name. The API has no field
for `parallel_tools`, and none for a `tool_choice` of none: the tools are left out where the conversation holds no call.
`CACHING` lists the models that accept marks for the prompt cache, and where.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from lyra.core.message import Message
from lyra.core.tool import Tool, ToolResult
from lyra.models.conversation_parts import image_data, output_parts, parts, system_text, turns
from lyra.models.providers.anthropic_body import EFFORTS, REDACTED, THINKING_LEAST, decides_itself
from lyra.models.request import Request
from lyra.models.wire.remote import fit_id

_CLAUDE: Final = "anthropic.claude"
_POINT: Final[dict[str, Any]] = {"cachePoint": {"type": "default"}}
_NO_OUTPUT: Final = "(no output)"
_ID_MAX: Final = 64

# Models (a pattern within the id, which may start with a region) and the fields that take a cache point.
CACHING: Final[tuple[tuple[re.Pattern[str], tuple[str, ...]], ...]] = (
    (
        re.compile(r"anthropic\.claude-(?:3-7|3-5-haiku|3-5-sonnet-20241022|[a-z]+-[4-9])"),
        ("system", "tools", "messages"),
    ),
    (re.compile(r"amazon\.nova-"), ("system",)),
)


class AnswerTool(NamedTuple):
    """The tool whose input is the answer. `wrapped`: the answer is its `value`, because an input is an object."""

    name: str
    schema: dict[str, Any]
    wrapped: bool


def answer_tool(request: Request) -> AnswerTool | None:
    schema = request.output_schema
    if schema is None:
        return None
    name = request.output_name
    while any(tool.name == name for tool in request.tools):
        name += "_"
    if schema.get("type") == "object":
        return AnswerTool(name, schema, wrapped=False)
    inner = {key: value for key, value in schema.items() if key != "$defs"}
    outer: dict[str, Any] = {"type": "object", "properties": {"value": inner}, "required": ["value"]}
    if "$defs" in schema:  # references start at the root
        outer["$defs"] = schema["$defs"]
    return AnswerTool(name, outer, wrapped=True)


def bedrock_body(request: Request) -> dict[str, Any]:
    cached = _cached(request)
    body: dict[str, Any] = {"messages": turns(request, _blocks)}
    system = system_text(request)
    if system:
        body["system"] = [{"text": system}, *([_POINT] if "system" in cached else [])]
    tools = _tools(request)
    if tools:
        body["toolConfig"] = {"tools": [*tools, *([_POINT] if "tools" in cached else [])], **_choice(request)}
    config = {
        "maxTokens": request.max_tokens,
        "temperature": request.temperature,
        "topP": request.top_p,
        "stopSequences": list(request.stop) or None,
    }
    _put_thinking(body, config, request)
    given = {name: value for name, value in config.items() if value is not None}
    if given:
        body["inferenceConfig"] = given
    if "messages" in cached and len(body["messages"]) > 1:
        body["messages"][-1]["content"].append(_POINT)
    return body


def _cached(request: Request) -> tuple[str, ...]:
    if not request.cache:
        return ()
    return next((fields for pattern, fields in CACHING if pattern.search(request.model)), ())


def _put_thinking(body: dict[str, Any], config: dict[str, Any], request: Request) -> None:
    """The thinking fields of Claude, as in `anthropic_body`; other models have no such setting."""
    if request.thinking_tokens is None or _CLAUDE not in request.model:
        return
    if decides_itself(request.model):
        words = (word for most, word in EFFORTS if request.thinking_tokens < most)
        body["outputConfig"] = {"effort": next(words, "high")}
    thinking = _thinking(request)
    if thinking is not None:
        body["additionalModelRequestFields"] = {"thinking": thinking}
        config["temperature"] = None  # not accepted together with thinking


def _thinking(request: Request) -> dict[str, Any] | None:
    tokens = request.thinking_tokens or 0
    if tokens <= 0 or _CLAUDE not in request.model:
        return None
    if decides_itself(request.model):
        return {"type": "adaptive"}
    if request.max_tokens is not None:
        tokens = min(tokens, request.max_tokens - 1)
    return {"type": "enabled", "budget_tokens": tokens} if tokens >= THINKING_LEAST else None


# ---------------------------------------------------------------- tools
def _tools(request: Request) -> list[dict[str, Any]]:
    remembered = _remembered(request)
    offered = () if request.tool_choice == "none" and not remembered else request.tools
    tools = [_spec(tool.name, tool.description, tool.schema) for tool in offered]
    answer = answer_tool(request)
    if answer is not None:
        tools.append(_spec(answer.name, "Give the answer.", answer.schema))
    if not tools:
        tools = [_spec(name, "", Tool(name).schema) for name in remembered]
    return tools


def _spec(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = {"name": name, "inputSchema": {"json": schema}}
    return {"toolSpec": {**spec, "description": description} if description else spec}


def _remembered(request: Request) -> list[str]:
    """The names of the tools in the conversation, each once."""
    calls = (call.name for message in request.messages for call in message.tool_calls)
    results = (result.name for message in request.messages for result in message.tool_results)
    return list(dict.fromkeys([*calls, *results]))


def _choice(request: Request) -> dict[str, Any]:
    """A thinking model cannot be forced to call a tool; a model with tools may call one of them before it answers."""
    answer = answer_tool(request)
    if answer is not None:
        if _thinking(request) is not None:
            return {}
        if request.tools and request.tool_choice != "none":
            return {"toolChoice": {"any": {}}}
        return {"toolChoice": {"tool": {"name": answer.name}}}
    if request.tool_choice == "any":
        return {"toolChoice": {"any": {}}}
    if request.tool_choice in ("auto", "none"):
        return {}
    return {"toolChoice": {"tool": {"name": request.tool_choice}}}


# ---------------------------------------------------------------- messages
def _blocks(message: Message) -> list[dict[str, Any]]:
    """Thoughts and texts in their order: Claude wants its thoughts back where they were."""
    blocks: list[dict[str, Any]] = [{"toolResult": _result(result)} for result in message.tool_results]
    for part in parts(message, thoughts=True):
        if part["type"] == "thinking":
            blocks += _thought(part)
        elif part["type"] == "image":
            blocks.append(_image(part))
        elif part["text"].strip():
            blocks.append({"text": part["text"]})
    blocks += [
        {"toolUse": {"toolUseId": fit_id(call.id, _ID_MAX), "name": call.name, "input": dict(call.arguments)}}
        for call in message.tool_calls
    ]
    return blocks


def _image(part: dict[str, Any]) -> dict[str, Any]:
    """The format is a word of its own, not a media type; a model that sees none refuses the request."""
    media_type, data = image_data(part, "bedrock")
    kind = media_type.removeprefix("image/")
    return {"image": {"format": "jpeg" if kind == "jpg" else kind, "source": {"bytes": data}}}


def _thought(part: dict[str, Any]) -> list[dict[str, Any]]:
    signature = str(part.get("signature", ""))
    if signature.startswith(REDACTED):
        return [{"reasoningContent": {"redactedContent": signature.removeprefix(REDACTED)}}]
    if not signature or ":" in signature:
        return []  # unsigned, or signed by another provider
    return [{"reasoningContent": {"reasoningText": {"text": str(part.get("thinking", "")), "signature": signature}}}]


def _result(result: ToolResult) -> dict[str, Any]:
    given = output_parts(result)
    text = "\n".join(part["text"] for part in given if part["type"] == "text")
    content = [{"text": text}] if text.strip() else []
    content += [_image(part) for part in given if part["type"] == "image"]
    block = {"toolUseId": fit_id(result.id, _ID_MAX), "content": content or [{"text": _NO_OUTPUT}]}
    return {**block, "status": "error"} if result.is_error else block
