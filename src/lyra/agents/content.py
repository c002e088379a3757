"""What a caller may say to an agent: text, an Image, or a list of both; and the message that it becomes."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from lyra.core.message import Message
from lyra.errors import ConfigError

__all__ = ["Image", "content_of", "message_of"]

_KINDS: Final = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
IMAGE_BYTES_MAX: Final = 20 << 20


class Image(msgspec.Struct, frozen=True):
    """A picture for a model that can see: its bytes in base64, or where it is on the web."""

    media_type: str = ""
    data: str = ""
    url: str = ""

    @classmethod
    def from_path(cls, path: str | Path) -> Image:
        try:
            return cls.from_bytes(Path(path).read_bytes())
        except OSError as error:
            raise ConfigError(f"the image {path} cannot be read: {error.strerror or error}") from None

    @classmethod
    def from_bytes(cls, data: bytes, media_type: str = "") -> Image:
        kind = media_type or _kind(data)
        if len(data) > IMAGE_BYTES_MAX:
            raise ConfigError(f"an image of {len(data)} bytes; at most {IMAGE_BYTES_MAX} are sent")
        return cls(kind, base64.b64encode(data).decode())

    @classmethod
    def from_url(cls, url: str) -> Image:
        if not url.startswith("https://"):
            raise ConfigError(f"{url!r} is no https address", hint="load the image and use Image.from_bytes")
        return cls(url=url)

    def to_data(self) -> dict[str, str]:
        if self.url:
            return {"type": "image", "url": self.url}
        return {"type": "image", "media_type": self.media_type, "data": self.data}


def _kind(data: bytes) -> str:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    for start, kind in _KINDS.items():
        if data.startswith(start):
            return kind
    raise ConfigError("this is no image that models read", hint="use PNG, JPEG, GIF or WebP")


def content_of(message: Any) -> Any:
    """What a caller gave as plain data: text, or a list of parts."""
    if isinstance(message, str):
        return str(message)
    if isinstance(message, Image):
        return [message.to_data()]
    if isinstance(message, Message):
        return message.content if isinstance(message.content, str) else list(message.content)
    if isinstance(message, (list, tuple)):
        return [_part(part) for part in message]
    raise ConfigError(
        f"a message to an agent is text, an Image or a list of both, not {type(message).__name__}",
        hint="turn it into text first",
    )


def _part(part: Any) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if isinstance(part, Image):
        return part.to_data()
    if isinstance(part, Mapping) and isinstance(part.get("type"), str):
        return dict(part)
    raise ConfigError(f"a part of a message is text or an Image, not {type(part).__name__}")


def message_of(content: Any) -> Message:
    """The message of the conversation; what is no text and no list of parts is shown as JSON."""
    if isinstance(content, str):
        return Message("user", content)
    if isinstance(content, (list, tuple)) and all(isinstance(part, dict) and "type" in part for part in content):
        return Message("user", tuple(content))
    return Message("user", msgspec.json.encode(content).decode())
