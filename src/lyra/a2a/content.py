"""The parts of A2A messages and artifacts as the content of Lyra's messages, and back.

Text and JSON data become text, images become Images; a part that no agent can read is a ConfigError. What comes
from a remote agent is text from outside: characters that no screen shows are left out, and long texts are cut.
"""

from __future__ import annotations

import base64
import math
from typing import Any, Final

import msgspec

from lyra.a2a.sdk import messages, to_json
from lyra.agents.declaration.output import Image
from lyra.core.budgets.money import Money
from lyra.core.secrets.visible import without_invisible
from lyra.errors import ConfigError

UNREADABLE_PART: Final = "part.media_type"  # the key of an error about a part that no agent reads
IMAGE_TYPES: Final = ("image/png", "image/jpeg", "image/gif", "image/webp")
ANY_IMAGE: Final = "image/*"  # of an address whose kind is not known
OUTPUT_CHARS_MAX: Final = 100_000
_IMAGES_MAX: Final = 8


def content_of_parts(parts: Any) -> str | list[dict[str, Any]]:
    """Return the content for an agent: text, or texts and images."""
    content = [_readable(part) for part in parts]
    if any(part["type"] == "image" for part in content):
        return content
    text = "\n".join(part["text"] for part in content)
    if not text.strip():
        raise ConfigError("a message says something; this one has no text and no image", key="parts")
    return text


def _readable(part: Any) -> dict[str, Any]:
    kind = part.WhichOneof("content")
    media = _media(part)
    if kind == "text":
        return {"type": "text", "text": part.text}
    if kind == "data":
        return {"type": "text", "text": _json_text(part)}
    if kind == "raw" and media in IMAGE_TYPES:
        return Image.from_bytes(bytes(part.raw), media).to_data()
    if kind == "url" and media in (*IMAGE_TYPES, ANY_IMAGE) and part.url.startswith("https://"):
        return Image.from_url(part.url).to_data()
    if kind == "raw" and (media.startswith("text/") or media == "application/json"):
        return {"type": "text", "text": _prefix_file_name(part, bytes(part.raw).decode("utf-8", "replace"))}
    raise ConfigError(
        f"a part of type {media or 'unknown'!r} cannot be read", hint="send text, JSON or an image", key=UNREADABLE_PART
    )


def _prefix_file_name(part: Any, text: str) -> str:
    return f"{part.filename}:\n{text}" if part.filename else text


def _media(part: Any) -> str:
    return str(part.media_type).partition(";")[0].strip().lower()[:80]


def _json_text(part: Any) -> str:
    return msgspec.json.encode(to_json(part).get("data")).decode()


def text_of_parts(parts: Any) -> str:
    """Return the texts among the parts."""
    return "\n".join(part.text for part in parts if part.WhichOneof("content") == "text")


def data_of_parts(parts: Any) -> dict[str, Any]:
    """Return the JSON objects among the parts, as one."""
    merged: dict[str, Any] = {}
    for part in parts:
        data = to_json(part).get("data") if part.WhichOneof("content") == "data" else None
        if isinstance(data, dict):
            merged.update(data)
    return merged


def output_of_parts(parts: Any) -> str | list[str | Image]:
    """Return what a remote agent answered: text, or texts and images."""
    shown: list[str | Image] = []
    images = 0
    for part in parts:
        piece = _render_part(part)
        images += isinstance(piece, Image)
        shown.append(piece if isinstance(piece, str) or images <= _IMAGES_MAX else "[one more image]")
    if images:
        return [_cut(piece) if isinstance(piece, str) else piece for piece in shown]
    return _cut("\n".join(str(piece) for piece in shown))


def _render_part(part: Any) -> str | Image:
    kind, media = part.WhichOneof("content"), _media(part)
    if kind == "text":
        return str(part.text)
    if kind == "data":
        return _json_text(part)
    if kind == "url":
        return f"[{media or 'file'} at {part.url[:2_000]}]"
    if media in IMAGE_TYPES:
        try:
            return Image.from_bytes(bytes(part.raw), media)
        except ConfigError:
            return f"[an {media} that cannot be read]"
    if media.startswith("text/") or media == "application/json":
        return bytes(part.raw).decode("utf-8", "replace")
    return f"[{media or 'bytes'}, {len(part.raw)} bytes]"


def _cut(text: str) -> str:
    """Return the text without invisible characters, at most as long as a model reads in one go."""
    if len(text) > OUTPUT_CHARS_MAX:
        half = OUTPUT_CHARS_MAX // 2
        text = f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"
    return without_invisible(text)


def parts_of_content(content: Any) -> list[Any]:
    """Return the parts of a message to a remote agent, from the content of a message to an agent."""
    part_class = messages().Part
    if isinstance(content, str):
        return [part_class(text=content)]
    parts = []
    for part in content:
        if part["type"] == "text":
            parts.append(part_class(text=part["text"]))
        elif part.get("url"):
            parts.append(part_class(url=part["url"], media_type=ANY_IMAGE))
        else:
            parts.append(part_class(raw=base64.b64decode(part["data"]), media_type=part["media_type"]))
    return parts


# ---------------------------------------------------------------- answer
# RemoteAnswer: the outcome of a message to a remote agent so far, as plain data that a journal can hold.

# The state of the protocol → the word here.
STATES: Final[dict[str, str]] = {
    "TASK_STATE_UNSPECIFIED": "working",
    "TASK_STATE_SUBMITTED": "working",
    "TASK_STATE_WORKING": "working",
    "TASK_STATE_COMPLETED": "completed",
    "TASK_STATE_FAILED": "failed",
    "TASK_STATE_CANCELED": "canceled",
    "TASK_STATE_REJECTED": "rejected",
    "TASK_STATE_INPUT_REQUIRED": "asks",
    "TASK_STATE_AUTH_REQUIRED": "asks",
}
ENDED: Final = frozenset({"completed", "failed", "canceled", "rejected"})
_SENTENCE_CHARS_MAX: Final = 4_000
_ID_CHARS_MAX: Final = 512
_COST_USD_MAX: Final = 1e6  # a larger number is no cost


class RemoteAnswer(msgspec.Struct, frozen=True):
    """`output` is what was answered, `words` a question or why there is no answer."""

    state: str
    task_id: str = ""
    context_id: str = ""
    output: Any = ""
    words: str = ""


def answer_of_message(message: Any) -> RemoteAnswer:
    """Return the answer of an agent that made no task of it."""
    return RemoteAnswer("completed", "", _id(message.context_id), _to_plain_output(message.parts))


def answer_of_task(task: Any) -> RemoteAnswer:
    """Return the answer as far as a task has come."""
    state = STATES[messages().TaskState.Name(task.status.state)]
    words = _sentence(task.status.message) if task.status.HasField("message") else ""
    parts = [part for artifact in task.artifacts for part in artifact.parts]
    if state == "completed" and not parts and task.status.HasField("message"):
        parts = list(task.status.message.parts)
    output = _to_plain_output(parts) if state == "completed" else ""
    return RemoteAnswer(state, _id(task.id), _id(task.context_id), output, words)


def read_cost(task: Any) -> Money:
    """Return what the other side says that the task cost, in its metadata (`usage.cost_usd`); nothing where it says
    none."""
    usage = to_json(task).get("metadata", {}).get("usage")
    cost_usd = usage.get("cost_usd") if isinstance(usage, dict) else None
    if (
        isinstance(cost_usd, bool)
        or not isinstance(cost_usd, (int, float))
        or not math.isfinite(cost_usd)
        or not 0 < cost_usd < _COST_USD_MAX
    ):
        return Money(0)
    return Money(round(cost_usd * 1_000_000))


def _to_plain_output(parts: Any) -> Any:
    output = output_of_parts(parts)
    if isinstance(output, str):
        return output
    return [part.to_data() if isinstance(part, Image) else {"type": "text", "text": part} for part in output]


def _sentence(message: Any) -> str:
    output = output_of_parts(message.parts)
    text = output if isinstance(output, str) else "\n".join(part for part in output if isinstance(part, str))
    return text if len(text) <= _SENTENCE_CHARS_MAX else f"{text[:_SENTENCE_CHARS_MAX]}…"


def _id(text: str) -> str:
    return without_invisible(text[:_ID_CHARS_MAX])
