"""AnswerType: the type that an answer has to have, its JSON schema, and the reading of an answer as that type.

A type is a dataclass, a msgspec Struct, a TypedDict, a pydantic model, a union or container of them, `str` (an answer
in plain words), or a JSON schema as a mapping (the answer is then plain data). If an answer does not fit, the model is
told so with the sentence made here, and asked again.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Final, TypeAlias, Union, get_args, get_origin

import msgspec

from lyra.core.checking.check import did_you_mean
from lyra.core.checking.schema import CheckedSchema
from lyra.core.codec import to_plain
from lyra.core.message import Message
from lyra.errors import AgentFailed, ConfigError
from lyra.tools.pydantic_types import in_short, is_model, read_foreign, schema_of, with_constraints

FENCED_JSON: Final = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)


class AnswerType:
    """One wanted type. `read(text)` gives the value, or raises ValueError with a sentence for the model."""

    __slots__ = ("_read", "name", "schema", "wrapped")

    def __init__(self, name: str, schema: dict[str, Any], read: Callable[[bytes], Any], *, wrapped: bool) -> None:
        self.name = name
        self.schema = schema
        self.wrapped = wrapped  # providers want an object at the top: any other type is sent as {"value": …}
        self._read = read

    @classmethod
    def from_value(cls, wanted: Any) -> AnswerType:
        if isinstance(wanted, AnswerType):
            return wanted
        if isinstance(wanted, Mapping):
            checked = CheckedSchema(wanted, "output", key="output")
            return cls._make("answer", dict(wanted), lambda data: checked.check(msgspec.json.decode(data)))
        if wanted is str:
            return cls._make("answer", {"type": "string"}, _words)
        name = getattr(wanted, "__name__", "answer")
        wanted = with_constraints(wanted)
        if is_model(wanted):
            return cls._make(name, wanted.model_json_schema(), wanted.model_validate_json)
        try:
            reference, parts = schema_of(wanted)
            decoder = msgspec.json.Decoder(wanted, dec_hook=read_foreign)
        except (TypeError, NotImplementedError):
            if get_origin(wanted) in (Union, UnionType):
                return cls._either(wanted)
            raise ConfigError(
                f"output is {wanted!r}, which has no JSON schema",
                hint="use a dataclass, a TypedDict, a msgspec Struct, a pydantic model, a union of them, or a schema; "
                "a union inside of another type has at most one of them",
                key="output",
            ) from None
        return cls._make(name, _inline(reference, parts), decoder.decode)

    @classmethod
    def _either(cls, wanted: Any) -> AnswerType:
        """Return a union whose members msgspec cannot tell apart: the first that fits, in the order they are
        written."""
        members = [cls.from_value(member) for member in get_args(wanted)]
        parts: dict[str, Any] = {}
        schemas = []
        for index, member in enumerate(members):
            schema = member.schema["properties"]["value"] if member.wrapped else dict(member.schema)
            own = {**member.schema.get("$defs", {})}
            schema.pop("$defs", None)
            schemas.append(_rename_references(schema, own, f"{index}."))
            parts.update({f"{index}.{name}": _rename_references(part, own, f"{index}.") for name, part in own.items()})
        whole = {"anyOf": schemas, "$defs": parts} if parts else {"anyOf": schemas}

        def read(data: bytes) -> Any:
            misfits = []
            for member in members:
                try:
                    return member._read(data)
                except Exception as misfit:  # noqa: BLE001 - a type may check itself with any error
                    misfits.append(f"as {member.name}: {in_short(misfit)}")
            raise ValueError("; ".join(misfits))

        return cls._make("answer", whole, read)

    @classmethod
    def _make(cls, name: str, schema: dict[str, Any], read: Callable[[bytes], Any]) -> AnswerType:
        clean = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:60] or "answer"
        if schema.get("type") == "object" or "properties" in schema:
            return cls(clean, schema, read, wrapped=False)
        whole = {
            "type": "object",
            "properties": {"value": schema},
            "required": ["value"],
            "additionalProperties": False,
        }
        if "$defs" in schema:
            whole["$defs"] = schema.pop("$defs")
        return cls(clean, whole, read, wrapped=True)

    def read_result(self, result: Any) -> Any:
        """Return the result of an agent's task as this type; AgentFailed where the type was changed since then."""
        try:
            return self.read(result) if isinstance(result, str) else result
        except ValueError as misfit:
            raise AgentFailed(str(misfit), status="output_invalid") from None

    def read(self, text: str) -> Any:
        fenced = None if self._read is _words else FENCED_JSON.search(text)  # plain words may hold their own fence
        data = (fenced[1] if fenced else text).strip().encode()
        try:
            if self.wrapped:
                data = _unwrap(data)
            return self._read(data)
        except Exception as error:  # noqa: BLE001 - a type may check itself with any error
            raise ValueError(f"the answer does not fit: {in_short(error)}") from None


def _unwrap(data: bytes) -> bytes:
    try:
        value = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return data
    if isinstance(value, dict) and value.keys() == {"value"}:
        return msgspec.json.encode(value["value"])
    return data


def _words(data: bytes) -> str:
    """Text: a JSON string, or the answer as it is."""
    try:
        return msgspec.json.decode(data, type=str)
    except msgspec.MsgspecError:
        return data.decode()


def _rename_references(schema: Any, parts: Mapping[str, Any], before: str) -> Any:
    """Return the schema with its references to `parts` renamed."""
    if isinstance(schema, list):
        return [_rename_references(item, parts, before) for item in schema]
    if not isinstance(schema, dict):
        return schema
    renamed = {key: _rename_references(value, parts, before) for key, value in schema.items()}
    name = schema.get("$ref")
    if isinstance(name, str) and name.removeprefix("#/$defs/") in parts:
        renamed["$ref"] = f"#/$defs/{before}{name.removeprefix('#/$defs/')}"
    return renamed


def _inline(reference: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
    """Return the schema itself at the top, the others under $defs."""
    name = reference.get("$ref", "").rpartition("/")[2]
    if not name:
        return {**reference, "$defs": parts} if parts else reference
    uses_itself = f'"#/$defs/{name}"' in msgspec.json.encode(parts).decode()
    top = dict(parts[name] if uses_itself else parts.pop(name))
    if top.get("type") == "object":
        top.setdefault("additionalProperties", False)
    return {**top, "$defs": parts} if parts else top


# ---------------------------------------------------------------- content
# The content of a message to an agent: text, an Image, or a list of both; and the Message made of it.

# What `content_of` reads.
Content: TypeAlias = "str | Image | Message | Sequence[str | Image | Mapping[str, Any]]"

_KINDS: Final = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
IMAGE_BYTES_MAX: Final = 20 << 20
# The keys that a part of each type needs: one of these sets.
_PARTS: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "text": (("text",),),
    "image": (("url",), ("media_type", "data")),
}


class Image(msgspec.Struct, frozen=True):
    """A picture for a model that can see: its bytes in base64, or its address on the web."""

    media_type: str = ""
    data: str = ""
    url: str = ""

    def __post_init__(self) -> None:
        if not self.url and not (self.media_type and self.data):
            raise ConfigError(
                "an Image has data and its media_type, or a url",
                hint="use Image.from_path, Image.from_bytes or Image.from_url",
                key="content",
            )

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
    """Return the content that a caller gave as plain data: text, or a list of parts. An empty one is refused."""
    if type(message) is not str and isinstance(message, Message):
        message = message.content
    if isinstance(message, str):
        if not message or message.isspace():
            raise ConfigError("a message to an agent says something; this one is empty")
        return str(message)
    if isinstance(message, Image):
        return [message.to_data()]
    if isinstance(message, (list, tuple)):
        parts = [_part(part) for part in message]
        if all(part["type"] == "text" and not part["text"].strip() for part in parts):
            raise ConfigError("a message to an agent says something; this one has no text and no image")
        return parts
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
        return _check_part(dict(part))
    raise ConfigError(f"a part of a message is text or an Image, not {type(part).__name__}")


def _check_part(part: dict[str, Any]) -> dict[str, Any]:
    """Check a part that is plain data: its type, and the keys that the type needs."""
    kind = part["type"]
    if kind not in _PARTS:
        near = did_you_mean(kind, _PARTS)
        hint = f"did you mean {near!r}?" if near else f"there are: {', '.join(_PARTS)}"
        raise ConfigError(f"a message has no part of type {kind!r}", hint=hint, key="content")
    if not any(all(_is_given(part.get(key), kind) for key in keys) for keys in _PARTS[kind]):
        wanted = ", or ".join(" and ".join(map(repr, keys)) for keys in _PARTS[kind])
        raise ConfigError(f"a part of type {kind!r} has {wanted}, as text", key="content")
    return part


def _is_given(value: Any, kind: str) -> bool:
    """Return whether a key of a part is there: a text may be empty, an image has content."""
    return isinstance(value, str) and (kind == "text" or bool(value))


def parts_of(output: Any) -> Any:
    """Return the output of a tool with its Images as parts of a message; an output without any as it is."""
    if isinstance(output, Image):
        return [output.to_data()]
    if isinstance(output, (list, tuple)) and any(isinstance(item, Image) for item in output):
        return [item.to_data() if isinstance(item, Image) else _text_part(item) for item in output]
    return output


def to_plain_or_text(value: Any) -> Any:
    """Plain data of a value that JSON does not know, such as a pydantic model; of any other, its text."""
    try:
        return to_plain(value)
    except TypeError:
        return str(value)


def _text_part(value: Any) -> dict[str, Any]:
    text = value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=to_plain_or_text).decode()
    return {"type": "text", "text": text}


def message_of(content: Any) -> Message:
    """Return the message of the conversation; content that is no text and no list of parts becomes JSON."""
    if isinstance(content, str):
        return Message("user", content)
    if isinstance(content, (list, tuple)) and all(isinstance(part, dict) and "type" in part for part in content):
        return Message("user", tuple(content))
    try:
        return Message("user", msgspec.json.encode(content).decode())
    except (TypeError, ValueError):  # it has no JSON, such as a mapping whose keys are not texts
        return Message("user", str(content))


def text_of(value: Any) -> str:
    """Return an answer as a message: text as it is, anything else as JSON."""
    if isinstance(value, str):
        return str(value)
    try:
        return msgspec.json.encode(value, enc_hook=to_plain).decode()
    except TypeError as error:
        raise ConfigError(f"{type(value).__name__} cannot be passed on as a message: {error}") from None
