"""Turns a server's result into a tool's output: text, images or plain data, up to a limit.

Text stays text, without the characters that no screen shows. Images that a model can see become Images; audio and
other bytes become a line with their type. Structured content is used if there is no other content. A result that is
marked as an error becomes a ToolError with the server's message.
"""

from __future__ import annotations

import base64
from typing import Any, Final

import msgspec

from lyra.agents.declaration.output import Image
from lyra.core.secrets.redact import redact
from lyra.core.secrets.visible import without_invisible, without_invisible_data
from lyra.errors import ConfigError, ToolError

OUTPUT_CHARS_MAX: Final = 100_000
_ERROR_CHARS_MAX: Final = 4_000
_IMAGES_MAX: Final = 8
_SEEN: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")


def output_of(result: Any, tool: str) -> Any:
    """The output of one call; a ToolError if the server reports a failure."""
    parts = _parts(result.content)
    if result.is_error:
        text = "\n".join(part for part in parts if isinstance(part, str)).strip()
        raise ToolError(
            _cut(text, _ERROR_CHARS_MAX) or "the tool failed and did not say why", tool=tool, reason="exec_failed"
        )
    if not parts and result.structured_content is not None:
        return _structured(result.structured_content)
    return _joined(parts)


def resource_of(result: Any) -> Any:
    """The content of a resource."""
    return _joined([_held(content) for content in result.contents])


def prompt_of(result: Any) -> str:
    """A prompt as text."""
    messages = [f"{message.role}: {_joined(_parts([message.content]))}" for message in result.messages]
    return _cut("\n\n".join(messages), OUTPUT_CHARS_MAX)


def without_secrets(output: Any, secrets: list[str]) -> Any:
    """The output with the secrets of the server redacted."""
    if not secrets:
        return output
    if isinstance(output, str):
        return redact(output, secrets, forms=False)
    if isinstance(output, dict):
        return {without_secrets(key, secrets): without_secrets(value, secrets) for key, value in output.items()}
    return [without_secrets(item, secrets) for item in output] if isinstance(output, list) else output


def _parts(content: Any) -> list[str | Image]:
    return [_READERS.get(part.type, _unknown)(part) for part in content]


def _joined(parts: list[str | Image]) -> Any:
    """One text, or a list if there are images; cut to the limit."""
    images = [part for part in parts if isinstance(part, Image)]
    if not images:
        return _cut("\n".join(str(part) for part in parts), OUTPUT_CHARS_MAX)
    left, shown, joined = OUTPUT_CHARS_MAX, 0, []
    for part in parts:
        if isinstance(part, Image):
            shown += 1
            joined.append(part if shown <= _IMAGES_MAX else "[one more image]")
        else:
            text = _cut(part, max(left, 0))
            left -= len(text)
            joined.append(text)
    return joined


def _structured(value: Any) -> Any:
    """Plain data unchanged if it is small enough, else its JSON cut to the limit."""
    try:
        text = msgspec.json.encode(value).decode()
    except (TypeError, ValueError, RecursionError):
        raise ToolError("the result is nested too deeply", reason="io_error") from None
    return without_invisible_data(value) if len(text) <= OUTPUT_CHARS_MAX else _cut(text, OUTPUT_CHARS_MAX)


def _cut(text: str, most: int) -> str:
    """The text without invisible characters, cut to `most`."""
    return without_invisible(_shortened(text, most))


def _shortened(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    half = most // 2
    return f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[len(text) - half :]}"


# ---------------------------------------------------------------- one reader a kind of content
def _text(part: Any) -> str:
    return str(part.text)


def _image(part: Any) -> str | Image:
    return _picture(part.data, part.mime_type)


def _audio(part: Any) -> str:
    return f"[{_plain(part.mime_type)}, {len(part.data)} characters of base64]"


def _link(part: Any) -> str:
    return f"[resource {part.uri}{f': {part.name}' if part.name else ''}]"


def _embedded(part: Any) -> str | Image:
    return _held(part.resource)


def _held(resource: Any) -> str | Image:
    text = getattr(resource, "text", None)
    if text is not None:
        return str(text)
    return _picture(resource.blob, resource.mime_type or "", what=f"resource {resource.uri}")


def _picture(data: str, kind: str, what: str = "image") -> str | Image:
    kind = _plain(kind)
    if kind in _SEEN:
        try:
            return Image.from_bytes(base64.b64decode(data, validate=True), kind)
        except (ConfigError, ValueError):  # not an image, or not base64
            return f"[an {kind} that cannot be read]"
    return f"[{what}: {kind or 'bytes'}, {len(data)} characters of base64]"


def _plain(kind: str) -> str:
    return kind.partition(";")[0].strip().lower()[:80]


def _unknown(part: Any) -> str:
    return f"[{str(part.type)[:40]}]"


_READERS: Final = {"text": _text, "image": _image, "audio": _audio, "resource_link": _link, "resource": _embedded}
