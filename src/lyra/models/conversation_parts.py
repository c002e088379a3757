"""The parts of a conversation as wire formats need them: parts, thoughts, results of tools, ids of calls.

`image_data` is for providers that take images as data only; `schema_in_words` asks for a schema in words where a
provider cannot enforce one beside tools. Nothing here depends on a provider.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from lyra.core.message import Message
from lyra.core.tool import ToolResult
from lyra.errors import ConfigError
from lyra.models.provider import Request
from lyra.models.stream import StreamEvent, TextDelta
from lyra.models.wire.remote import result_parts, result_text

_MADE_UP: Final = re.compile(r"call_[0-9]{1,9}")
_SOURCES_MAX: Final = 20
_TITLE_CHARS_MAX: Final = 200
_PARTS: Final = ("text", "thinking", "image")


class WebSources:
    """The pages that a vendor's own search found, for the end of the answer."""

    __slots__ = ("_titles",)

    def __init__(self) -> None:
        self._titles: dict[str, str] = {}  # by address

    def add(self, url: Any, title: Any) -> None:
        """Take a page; what is no address is left out."""
        if isinstance(url, str) and url.startswith(("https://", "http://")) and len(self._titles) < _SOURCES_MAX:
            words = " ".join(title.split())[:_TITLE_CHARS_MAX] if isinstance(title, str) else ""
            self._titles.setdefault(url, words)

    def events(self) -> list[StreamEvent]:
        """Return the text that names the pages; nothing where there are none."""
        lines = [f"- {title}: {url}" if title else f"- {url}" for url, title in self._titles.items()]
        return [TextDelta("\n\nSources:\n" + "\n".join(lines))] if lines else []


def turns(request: Request, blocks_of: Callable[[Message], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the messages for formats in which user and assistant take turns: two in a row of one side are joined."""
    messages: list[dict[str, Any]] = []
    for message in request.messages:
        if message.role == "system":
            continue
        role = "assistant" if message.role == "assistant" else "user"
        blocks = blocks_of(message)
        if not blocks:
            continue
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"].extend(blocks)
        else:
            messages.append({"role": role, "content": blocks})
    return messages


def system_text(request: Request) -> str:
    """Return the system prompt and the messages of role system, for formats that have one place for them."""
    system_messages = [message.text for message in request.messages if message.role == "system"]
    return "\n\n".join(text for text in (request.system, *system_messages) if text)


def parts(message: Message, *, thoughts: bool = False) -> list[dict[str, Any]]:
    """Return the parts of a message in order, empty texts left out; with its thoughts where asked for."""
    if isinstance(message.content, str):
        return [{"type": "text", "text": message.content}] if message.content else []
    for part in message.content:
        if part["type"] not in _PARTS:
            raise ConfigError(
                f"a message cannot hold a part of type {part['type']!r}",
                hint=f"the types are {', '.join(_PARTS)}",
                key="content",
            )
    return [
        part
        for part in message.content
        if (thoughts if part["type"] == "thinking" else part["type"] == "image" or part["text"])
    ]


def thoughts(message: Message) -> list[dict[str, Any]]:
    """Return the thoughts of an assistant's message."""
    return [] if isinstance(message.content, str) else [part for part in message.content if part["type"] == "thinking"]


def output_parts(result: ToolResult) -> list[dict[str, Any]]:
    """Return the output of a tool as parts: a list of text and image parts unchanged, everything else as one text."""
    listed_parts = result_parts(result)
    return [{"type": "text", "text": result_text(result.output)}] if listed_parts is None else listed_parts


def output_text(result: ToolResult) -> str:
    """Return the text of a tool's output, for formats that take only text."""
    return "\n".join(part["text"] for part in output_parts(result) if part["type"] == "text")


def image_data(part: dict[str, Any], provider: str) -> tuple[str, str]:
    """(media type, base64) of an image part, for a format that takes no addresses; a `data:` URL has both."""
    url = part.get("url")
    media_type, data = part.get("media_type"), part.get("data")
    if isinstance(url, str):
        head, _, data = url.partition(",")
        media_type = head.removeprefix("data:").removesuffix(";base64")
        if not (head.startswith("data:") and head.endswith(";base64")):
            raise ConfigError(
                f"{provider} takes images as data, not by their addresses",
                hint="load the image and use Image.from_bytes",
                key="content",
                provider=provider,
            )
    if not isinstance(media_type, str) or not isinstance(data, str):
        raise ConfigError("an image part has a 'url', or 'media_type' and 'data' (base64)", key="content")
    return media_type, data


def first_call_number(request: Request) -> int:
    """Return the number of the next made-up id `call_N`, unique within the conversation."""
    ids = (call.id for message in request.messages for call in message.tool_calls)
    return max((int(call_id.removeprefix("call_")) for call_id in ids if is_made_up(call_id)), default=-1) + 1


def is_made_up(call_id: str) -> bool:
    """Return whether Lyra made up this id of a call, so that it means nothing to the provider."""
    return _MADE_UP.fullmatch(call_id) is not None


def schema_in_words(request: Request) -> str:
    """Return the output schema as a sentence, for models that cannot be forced to it while they have tools."""
    schema = msgspec.json.encode(request.output_schema).decode()
    return f"When you give your final answer, write only JSON that fits this schema, with no words around it: {schema}"
