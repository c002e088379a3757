"""Errors of Lyra as errors of the protocol: what went wrong and what to do, in the message that an editor shows."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from acp import RequestError, schema

from lyra.agents.acp.updates import render_text
from lyra.agents.declaration.output import Content, Image
from lyra.core.secrets.redact import redact
from lyra.core.secrets.visible import visible
from lyra.errors import ConfigError, LyraError

INVALID_REQUEST: Final = -32600
_INVALID_PARAMS: Final = -32602


def invalid(reason: str, code: int = _INVALID_PARAMS) -> RequestError:
    """Return the error for a request that cannot be served as it is."""
    words = render_text(reason)
    return RequestError(code, words, {"reason": words})


def refusal(error: LyraError, code: int = _INVALID_PARAMS) -> RequestError:
    """Return the error for the editor. `reason` has the same words: some editors show one, some the other."""
    message = redact(error.message)
    words = render_text(f"{message}\n{error.hint}" if error.hint else message)
    return RequestError(code, words, {"reason": words, "code": error.code})


# How a turn ended, in the words of the protocol.

# By the status of the result; a status that is not here is an error for the editor.
STOP_REASONS: Final[dict[str, schema.StopReason]] = {
    "success": "end_turn",
    "interrupted": "cancelled",
    "max_turns": "max_turn_requests",
    "max_iterations": "max_turn_requests",
    "max_tokens": "max_tokens",
    "content_filter": "refusal",
}


# A prompt of the editor as content for a session: text, images, and resources as text from outside.

_RESOURCE_CHARS_MAX: Final = 200_000


class EditorPrompt(NamedTuple):
    content: Content
    beside: str  # text from outside
    text: str  # the words of the user alone
    images: tuple[Image, ...] = ()

    def with_text(self, text: str) -> Content:
        """Return the content with other words, such as those that a slash command represents."""
        return [text, *self.images] if self.images else text


def read_prompt(blocks: Iterable[Any]) -> EditorPrompt:
    """Return the content of a prompt; a request error where a block cannot be used."""
    words: list[str] = []
    images: list[Image] = []
    beside: list[str] = []
    for block in blocks:
        if block.type == "text":
            words.append(block.text)
        elif block.type == "image":
            images.append(_image(block))
        elif block.type == "resource_link":
            words.append(f"({visible(block.name)}: {visible(_path_of(block.uri))})")
        elif block.type == "resource":
            beside.append(_resource(block.resource))
        else:
            raise invalid(f"a prompt cannot have a block of type {block.type}")
    text = "\n".join(words)
    if not text.strip() and not images and not beside:
        raise invalid("the prompt is empty")
    content: Content = [text or "See what is attached.", *images] if images else text or "See the text below."
    return EditorPrompt(content, "\n\n".join(beside), text, tuple(images))


def _image(block: Any) -> Image:
    try:
        data = base64.b64decode(block.data, validate=True)
    except (binascii.Error, ValueError):
        raise invalid("the data of an image is not base64") from None
    try:
        return Image.from_bytes(data, block.mime_type)
    except ConfigError as error:
        raise refusal(error) from None


def _resource(resource: Any) -> str:
    text = getattr(resource, "text", None)
    name = visible(_path_of(resource.uri))
    if text is None:
        return f"[{name}: data that is not text]"
    more = len(text) - _RESOURCE_CHARS_MAX
    body = text if more <= 0 else f"{text[:_RESOURCE_CHARS_MAX]}\n… {more} characters more"
    return f"[{name}]\n{body}"


def _path_of(uri: str) -> str:
    return uri.removeprefix("file://") if uri.startswith("file:///") else uri
