"""Requests of clients of OpenAI and Anthropic, read into one form: the counterpart of `lyra.models.answers`.

`read_chat`, `read_responses` and `read_messages` read one format each into a VendorRequest; `READERS` is their table.
A member of a request is carried, may be left out, or is refused with a sentence that names it: a client never gets an
answer to another question than the one it asked. Three servers read requests, and differ in what they can take: a
`RequestFace` says what is refused, and in which words. The default is the gateway's, which carries a request to a
provider of another format and so refuses all that has no place in a Request. Every refusal is a ConfigError; a server
writes it in the form of its vendor. `Members` is a JSON object that knows which of its members were read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from lyra.core.message import Message
from lyra.core.providers import EFFORT_TOKENS
from lyra.core.tool import Tool, ToolCall, ToolResult
from lyra.errors import ConfigError
from lyra.models.provider import Request
from lyra.models.stream import REDACTED
from lyra.models.wire.faults import UNREADABLE


class RequestFace(NamedTuple):
    """`refused` is a sentence about `{what}` a server does not take. A server that takes other members leaves those out
    that have no place in a Request; one that takes other kinds reads parts, tools and settings of a kind that it does
    not know as if they were not there."""

    refused: str
    hint: str
    takes_other_members: bool = False
    takes_other_kinds: bool = False

    def refusal(self, what: str) -> ConfigError:
        return ConfigError(self.refused.format(what=what), hint=self.hint)


CARRIED: Final = RequestFace(
    "{what} cannot be carried to this model's provider, which speaks another format",
    "leave it out, or ask a model of a provider with this format",
)


class VendorRequest(NamedTuple):
    """`with_usage`: a stream of chat completions is to end with its usage."""

    request: Request
    stream: bool
    with_usage: bool = False


class Members:
    """An object of a request. `take` reads a member; `end` refuses those that are left."""

    __slots__ = ("_data", "_left", "_place", "face")

    def __init__(self, data: Any, face: RequestFace, place: str = "") -> None:
        if not isinstance(data, Mapping):
            raise ConfigError(f"{place or 'the body'} is a JSON object")
        self.face = face
        self._data = data
        self._left = dict.fromkeys(name for name, value in data.items() if value is not None)
        self._place = f"{place}." if place else ""

    def take(self, name: str) -> Any:
        """Return a member, or None."""
        self._left.pop(name, None)
        return self._data.get(name)

    def text(self, name: str) -> str:
        """Return a member that is a text; "" where there is none."""
        value = self.take(name)
        if value is not None and not isinstance(value, str):
            raise self._wrong(name, "a text")
        return value or ""

    def flag(self, name: str) -> bool:
        """Return a member that is true or false; False where there is none."""
        value = self.take(name)
        if value is not None and not isinstance(value, bool):
            raise self._wrong(name, "true or false")
        return value or False

    def number(self, name: str) -> float | None:
        value = self.take(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float))):
            raise self._wrong(name, "a number")
        return value

    def integer(self, name: str, least: int = 0) -> int | None:
        value = self.number(name)
        if value is not None and (not isinstance(value, int) or value < least):
            raise self._wrong(name, f"a whole number from {least} on")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a member that is a text or a list of texts."""
        value = self.take(name)
        texts = [value] if isinstance(value, str) else value or []
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise self._wrong(name, "a list of texts")
        return tuple(texts)

    def objects(self, name: str) -> Iterator[Members]:
        """Yield the objects of a list."""
        values = self.take(name)
        if values is None:
            return
        if not isinstance(values, list):
            raise self._wrong(name, "a list")
        for index, value in enumerate(values):
            yield Members(value, self.face, f"{self._place}{name}[{index}]")

    def inside(self, name: str) -> Members:
        """Return an object; an empty one where there is none."""
        value = self.take(name)
        return Members({} if value is None else value, self.face, f"{self._place}{name}")

    def skip(self, *names: str) -> None:
        """Leave out members that do not change the answer."""
        for name in names:
            self._left.pop(name, None)

    def skip_if(self, name: str, *values: Any) -> None:
        """Leave out a member where it has one of these values."""
        if self._data.get(name) in values:
            self._left.pop(name, None)

    def refuse_unless(self, name: str, *values: Any) -> None:
        """Refuse a member that no server takes with another value than these."""
        if self.take(name) not in (None, *values):
            raise self.face.refusal(name)

    def refuse_kind(self, what: str) -> None:
        """Refuse what is of a kind that is not known, where the server does."""
        if not self.face.takes_other_kinds:
            raise self.face.refusal(what)

    def end(self) -> None:
        if self._left and not self.face.takes_other_members:
            raise self.face.refusal(f"{self._place}{next(iter(self._left))}")

    def _wrong(self, name: str, what: str) -> ConfigError:
        return ConfigError(f"{self._place}{name} is {what}", key=name)


class ReadConversation:
    """Messages as they are read: results find the name of their tool, and those that follow each other are one
    message."""

    __slots__ = ("_messages", "_names", "_results", "system")

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self.system: list[str] = []
        self._names: dict[str, str] = {}
        self._results: list[ToolResult] = []

    def user(self, content: str | Iterable[dict[str, Any]]) -> None:
        self._end_results()
        self._messages.append(Message("user", _content(content)))

    def assistant(self, content: str | Iterable[dict[str, Any]], calls: Iterable[ToolCall] = ()) -> None:
        self._end_results()
        calls = tuple(calls)
        self._names |= {call.id: call.name for call in calls}
        last = self._messages[-1] if self._messages else None
        if not content and last is not None and last.role == "assistant":  # calls of one turn that came as items
            self._messages[-1] = msgspec.structs.replace(last, tool_calls=(*last.tool_calls, *calls))
            return
        self._messages.append(Message("assistant", _content(content), calls))

    def result(
        self, call_id: str, output: str | list[dict[str, Any]], *, name: str = "", is_error: bool = False
    ) -> None:
        name = name or self._names.get(call_id, "tool")
        self._results.append(ToolResult(call_id, name, _unwrap_text(output), is_error))

    def messages(self) -> tuple[Message, ...]:
        self._end_results()
        if not self._messages:
            raise ConfigError("the request needs at least one message", key="messages")
        return tuple(self._messages)

    def _end_results(self) -> None:
        if self._results:
            self._messages.append(Message("tool", tool_results=tuple(self._results)))
            self._results = []


def _content(content: str | Iterable[dict[str, Any]]) -> str | tuple[dict[str, Any], ...]:
    plain = _unwrap_text(content if isinstance(content, str) else list(content))
    return plain if isinstance(plain, str) else tuple(plain)


def _unwrap_text(parts: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Return the text of a single part of text; what is more than that as it is."""
    return parts[0]["text"] if len(parts) == 1 and not isinstance(parts, str) and parts[0]["type"] == "text" else parts


def read_call(call_id: str, name: str, arguments: Any) -> ToolCall:
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments) if arguments.strip() else {}
        except UNREADABLE:
            raise ConfigError("the arguments of a tool call are not valid JSON") from None
    return ToolCall(call_id, name, arguments if arguments is not None else {})


def _read_tool(name: str, description: str, schema: Any) -> Tool:
    return Tool(name, description, schema if isinstance(schema, dict) else {})


def _effort_tokens(members: Members, name: str) -> int | None:
    effort = members.take(name)
    tokens = EFFORT_TOKENS.get(effort) if isinstance(effort, str) else None
    if tokens is None and effort is not None:
        members.refuse_kind("this effort of reasoning")
    return tokens


def _schema(given: Members) -> tuple[dict[str, Any], str]:
    """Return the schema of an answer, and its name."""
    value = given.take("schema")
    if not isinstance(value, dict):
        raise ConfigError("the schema of an answer is a JSON object")
    return value, given.text("name") or "answer"


# ---------------------------------------------------------------- both formats of OpenAI's

_CHOICES: Final = {"auto": "auto", "none": "none", "required": "any"}
_TEXT_PARTS: Final = ("text", "input_text", "output_text", "refusal")
_NOT_OF_THE_QUESTION: Final = (
    *("stream_options", "user", "metadata", "store", "safety_identifier"),
    *("prompt_cache_key", "prompt_cache_retention", "prompt_cache_options"),
)


def _openai_request(
    body: Members, conversation: ReadConversation, output: tuple[dict[str, Any] | None, str], **more: Any
) -> VendorRequest:
    """Return the request, with what both formats name alike; `more` is what they do not."""
    parallel = body.take("parallel_tool_calls")
    request = Request(
        model=_model(body),
        messages=conversation.messages(),
        system="\n\n".join(conversation.system),
        tools=tuple(filter(None, map(read_function, body.objects("tools")))),
        tool_choice=_openai_choice(body),
        parallel_tools=parallel is not False,
        temperature=body.number("temperature"),
        top_p=body.number("top_p"),
        output_schema=output[0],
        output_name=output[1],
        **more,
    )
    options = body.take("stream_options")
    with_usage = isinstance(options, dict) and options.get("include_usage") is True
    vendor_request = VendorRequest(request, body.flag("stream"), with_usage)
    body.skip(*_NOT_OF_THE_QUESTION)
    body.skip_if("service_tier", "auto", "default")
    body.end()
    return vendor_request


def _model(body: Members) -> str:
    model = body.text("model")
    if not model:
        raise ConfigError("the request names no model", key="model")
    return model


def _openai_message(conversation: ReadConversation, message: Members) -> None:
    role = message.text("role")
    if role in ("system", "developer"):
        conversation.system.append(_openai_text(message))
    elif role == "user":
        conversation.user(_openai_content(message, "content"))
    elif role == "assistant":
        conversation.assistant(_openai_text(message), map(_call, message.objects("tool_calls")))
    else:
        raise message.face.refusal(f"a message of role {role!r}")


def _openai_content(message: Members, name: str) -> str | list[dict[str, Any]]:
    content = message.take(name)
    return content if isinstance(content, str) else [_openai_part(part) for part in message.objects(name)]


def _openai_text(message: Members) -> str:
    """Return the content of a message that has only text."""
    content = _openai_content(message, "content")
    if isinstance(content, str):
        return content
    if any(part["type"] != "text" for part in content):
        message.refuse_kind("an image in this message")
    return "".join(part.get("text", "") for part in content)


def _openai_part(part: Members) -> dict[str, Any]:
    kind = part.text("type")
    if kind in ("image_url", "input_image"):
        content = _openai_image(part, kind)
    else:
        if kind not in _TEXT_PARTS:
            part.refuse_kind(f"a part of type {kind!r}")
        content = {"type": "text", "text": part.text("refusal" if kind == "refusal" else "text")}
    part.skip("cache_control", "detail", "annotations", "logprobs")
    part.end()
    return content


def _openai_image(part: Members, kind: str) -> dict[str, Any]:
    """Return an image by its address; the data of a `data:` address are taken out."""
    url = part.take("image_url")
    if isinstance(url, dict):
        image = part.inside("image_url")
        url = image.text("url")
        image.skip("detail")
        image.end()
    if not isinstance(url, str) or not url:
        raise part.face.refusal(f"a part of type {kind!r} without an address")
    head, comma, data = url.partition(",")
    if comma and head.startswith("data:") and head.endswith(";base64"):
        return {"type": "image", "media_type": head[5:-7], "data": data}
    return {"type": "image", "url": url}


def _call(call: Members) -> ToolCall:
    call.skip_if("type", "function")
    function, call_id = call.inside("function"), call.text("id")
    call.skip("index")
    call.end()
    return read_call(call_id, function.text("name"), function.take("arguments"))


def read_function(tool: Members) -> Tool | None:
    """Return a function, which one format has inside of the tool; None for a tool of another kind."""
    if tool.text("type") != "function":
        tool.refuse_kind("a tool that is no function")
        return None
    function = tool if tool.take("function") is None else tool.inside("function")
    declared = _read_tool(function.text("name"), function.text("description"), function.take("parameters"))
    for members in (function, tool):
        members.skip("strict", "cache_control")
        members.end()
    return declared


def _openai_choice(body: Members) -> str:
    choice = body.take("tool_choice")
    if choice is None:
        return "auto"
    if isinstance(choice, str) and choice in _CHOICES:
        return _CHOICES[choice]
    if isinstance(choice, dict) and choice.get("type") == "function":
        function = choice.get("function")
        name = function.get("name") if isinstance(function, dict) else choice.get("name")
        if isinstance(name, str):
            return name
    body.refuse_kind("this tool_choice")
    return "auto"


def _openai_output(given: Members, schema_in: str) -> tuple[dict[str, Any] | None, str]:
    """Return the schema of the answer and its name; it is in the member `schema_in` of the format, or in itself."""
    kind = given.text("type")
    if kind == "json_schema":
        return _schema(given.inside(schema_in) if schema_in else given)
    if kind not in ("", "text"):
        given.refuse_kind(f"a response_format of type {kind!r}")
    return None, "answer"


# ---------------------------------------------------------------- OpenAI's chat completions


def read_chat(data: Any, face: RequestFace = CARRIED) -> VendorRequest:
    """Read a request; ConfigError for what the server does not take."""
    body = Members(data, face)
    conversation = ReadConversation()
    for message in body.objects("messages"):
        if message.text("role") == "tool":
            conversation.result(message.text("tool_call_id"), _openai_text(message))
        else:
            _openai_message(conversation, message)
        message.skip("name", "reasoning_content", "reasoning", "annotations")
        message.end()
    body.refuse_unless("n", 1)
    body.skip_if("logprobs", False)
    body.skip_if("modalities", ["text"])
    body.skip_if("frequency_penalty", 0)
    body.skip_if("presence_penalty", 0)
    limits = body.integer("max_completion_tokens", 1), body.integer("max_tokens", 1)
    return _openai_request(
        body,
        conversation,
        _openai_output(body.inside("response_format"), "json_schema"),
        max_tokens=limits[0] or limits[1],
        stop=body.texts("stop"),
        seed=body.integer("seed"),
        thinking_tokens=_effort_tokens(body, "reasoning_effort"),
    )


# ---------------------------------------------------------------- OpenAI's responses
# Nothing is stored: what refers to an earlier response is refused.


def read_responses(data: Any, face: RequestFace = CARRIED) -> VendorRequest:
    """Read a request; ConfigError for what the server does not take."""
    body = Members(data, face)
    conversation = ReadConversation()
    given = body.take("input")
    if isinstance(given, str):
        conversation.user(given)
    else:
        for item in body.objects("input"):
            kind = item.text("type") or "message"
            if kind == "message":
                _openai_message(conversation, item)
            elif kind == "function_call":
                conversation.assistant("", [read_call(item.text("call_id"), item.text("name"), item.take("arguments"))])
            elif kind == "function_call_output":
                conversation.result(item.text("call_id"), _openai_content(item, "output"))
            elif kind != "reasoning":  # thoughts of another provider's model mean nothing to this one
                raise item.face.refusal(f"an item of type {kind!r}")
    instructions = body.text("instructions")
    if instructions:
        conversation.system.insert(0, instructions)
    body.refuse_unless("previous_response_id")
    text, reasoning = body.inside("text"), body.inside("reasoning")
    output = _openai_output(text.inside("format"), "")
    text.skip_if("verbosity", "medium")
    text.end()
    effort = _effort_tokens(reasoning, "effort")
    reasoning.skip("summary", "generate_summary")
    reasoning.end()
    body.skip("include")
    body.skip_if("background", False)
    body.skip_if("truncation", "disabled")
    limit = body.integer("max_output_tokens", 1)
    return _openai_request(body, conversation, output, max_tokens=limit, thinking_tokens=effort)


# ---------------------------------------------------------------- Anthropic's messages


def read_messages(data: Any, face: RequestFace = CARRIED) -> VendorRequest:
    """Read a request; ConfigError for what the server does not take."""
    body = Members(data, face)
    conversation = ReadConversation()
    system = body.take("system")
    if system is not None and not isinstance(system, str):
        system = "\n\n".join(block.text("text") for block in body.objects("system"))
    for message in body.objects("messages"):
        _messages_message(conversation, message)
    choice, parallel = _messages_choice(body.inside("tool_choice"))
    config, thinking = body.inside("output_config"), _thinking(body.inside("thinking"))
    schema = _messages_schema(config.inside("format"))
    effort = _effort_tokens(config, "effort")
    config.end()
    request = Request(
        model=_model(body),
        messages=conversation.messages(),
        system="\n\n".join([*filter(None, [system]), *conversation.system]),
        tools=tuple(filter(None, map(_messages_tool, body.objects("tools")))),
        tool_choice=choice,
        parallel_tools=parallel,
        max_tokens=body.integer("max_tokens", 1),
        temperature=body.number("temperature"),
        top_p=body.number("top_p"),
        top_k=body.integer("top_k"),
        stop=body.texts("stop_sequences"),
        output_schema=schema,
        thinking_tokens=effort if thinking is None else thinking,
    )
    stream = body.flag("stream")
    body.skip("metadata")
    body.skip_if("service_tier", "auto", "standard_only")
    body.end()
    return VendorRequest(request, stream)


def _messages_message(conversation: ReadConversation, message: Members) -> None:
    role, content = message.text("role"), message.take("content")
    if role == "system":
        blocks = () if isinstance(content, str) else message.objects("content")
        conversation.system.append(content if isinstance(content, str) else "".join(row.text("text") for row in blocks))
    elif role not in ("user", "assistant"):
        raise message.face.refusal(f"a message of role {role!r} (a role is 'user' or 'assistant')")
    elif isinstance(content, str):
        conversation.user(content) if role == "user" else conversation.assistant(content)
    else:
        _blocks(conversation, role, message)
    message.end()


def _blocks(conversation: ReadConversation, role: str, message: Members) -> None:
    parts: list[dict[str, Any]] = []
    calls = []
    for block in message.objects("content"):
        kind = block.text("type")
        if kind == "tool_result" and role == "user":
            output = _output(block)
            conversation.result(block.text("tool_use_id"), output, is_error=block.take("is_error") is True)
        elif kind == "tool_use" and role == "assistant":
            calls.append(read_call(block.text("id"), block.text("name"), block.take("input")))
        else:
            parts.append(_messages_part(block))
        block.skip("cache_control")
        if role == "assistant":
            block.skip("citations", "caller")  # of an answer that comes back
        block.end()
    if role == "assistant":
        conversation.assistant(parts or "", calls)
    elif parts:
        conversation.user(parts)


def _output(block: Members) -> str | list[dict[str, Any]]:
    content = block.take("content")
    if content is None or isinstance(content, str):
        return content or ""
    parts = []
    for part in block.objects("content"):
        parts.append(_messages_part(part))
        part.skip("cache_control")
        part.end()
    return parts


def _messages_part(block: Members) -> dict[str, Any]:
    kind = block.text("type")
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
    if kind != "text":
        block.refuse_kind(f"a block of type {kind!r}")
    return {"type": "text", "text": block.text("text")}


def _messages_tool(tool: Members) -> Tool | None:
    kind = tool.text("type")
    if kind not in ("", "custom"):
        tool.refuse_kind(f"the tool of type {kind!r}")
        return None
    declared = _read_tool(tool.text("name"), tool.text("description"), tool.take("input_schema"))
    tool.skip("cache_control", "strict", "eager_input_streaming")
    tool.skip_if("defer_loading", False)
    tool.end()
    return declared


def _messages_choice(choice: Members) -> tuple[str, bool]:
    """Return the choice of a tool, and whether several may be called at once."""
    kind = choice.text("type") or "auto"
    parallel = choice.take("disable_parallel_tool_use") is not True
    if kind == "tool":
        return choice.text("name"), parallel
    if kind not in ("auto", "any", "none"):
        choice.refuse_kind(f"a tool_choice of type {kind!r}")
        kind = "auto"
    return kind, parallel


def _thinking(thinking: Members) -> int | None:
    kind = thinking.text("type")
    if kind == "enabled":
        return thinking.integer("budget_tokens")
    if kind not in ("", "disabled", "adaptive"):
        thinking.refuse_kind(f"thinking of type {kind!r}")
    return None


def _messages_schema(given: Members) -> dict[str, Any] | None:
    kind = given.text("type")
    if kind == "json_schema":
        return _schema(given)[0]
    if kind:
        given.refuse_kind(f"a format of type {kind!r}")
    return None


READERS: Final[dict[str, Callable[[Any, RequestFace], VendorRequest]]] = {
    "chat": read_chat,
    "messages": read_messages,
    "responses": read_responses,
}
