"""Structured output: the type an answer has to have, its JSON schema, and the reading of an answer as it.

Takes what people have: dataclasses, msgspec Structs, TypedDicts, unions and containers of them, pydantic models, or a
JSON schema as a mapping (the answer is then plain data). An answer that does not fit is told so to the model and
asked for again; the sentence comes from here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from lyra.errors import ConfigError

__all__ = ["Output"]

_FENCE: Final = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)


class Output:
    """One wanted type. `read(text)` gives the value, or raises ValueError with a sentence for the model."""

    __slots__ = ("_read", "name", "schema", "wrapped")

    def __init__(self, name: str, schema: dict[str, Any], read: Callable[[bytes], Any], *, wrapped: bool) -> None:
        self.name = name
        self.schema = schema
        self.wrapped = wrapped  # providers want an object at the top: anything else travels as {"value": …}
        self._read = read

    @classmethod
    def of(cls, wanted: Any) -> Output:
        if isinstance(wanted, Output):
            return wanted
        if isinstance(wanted, Mapping):
            return cls._made("answer", dict(wanted), msgspec.json.decode)
        if hasattr(wanted, "model_json_schema"):  # pydantic, without importing it
            return cls._made(wanted.__name__, wanted.model_json_schema(), wanted.model_validate_json)
        try:
            (reference,), parts = msgspec.json.schema_components([wanted])
            decoder = msgspec.json.Decoder(wanted)
        except TypeError as error:
            raise ConfigError(
                f"output is {wanted!r}, which has no JSON schema: {error}",
                hint="use a dataclass, a TypedDict, a msgspec Struct, a pydantic model or a schema",
                key="output",
            ) from None
        return cls._made(getattr(wanted, "__name__", "answer"), _inlined(reference, parts), decoder.decode)

    @classmethod
    def _made(cls, name: str, schema: dict[str, Any], read: Callable[[bytes], Any]) -> Output:
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

    def read(self, text: str) -> Any:
        found = _FENCE.search(text)
        data = (found[1] if found else text).strip().encode()
        try:
            if self.wrapped:
                data = _unwrapped(data)
            return self._read(data)
        except ValueError as error:  # msgspec's and pydantic's errors are ValueErrors
            raise ValueError(f"the answer does not fit: {' '.join(str(error).split())}") from None


def _unwrapped(data: bytes) -> bytes:
    try:
        value = msgspec.json.decode(data)
    except msgspec.DecodeError:
        return data
    if isinstance(value, dict) and value.keys() == {"value"}:
        return msgspec.json.encode(value["value"])
    return data


def _inlined(reference: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
    """The schema itself at the top, the others under $defs."""
    name = reference.get("$ref", "").rpartition("/")[2]
    if not name:
        return {**reference, "$defs": parts} if parts else reference
    uses_itself = f'"#/$defs/{name}"' in msgspec.json.encode(parts).decode()
    top = dict(parts[name] if uses_itself else parts.pop(name))
    if top.get("type") == "object":
        top.setdefault("additionalProperties", False)
    return {**top, "$defs": parts} if parts else top
