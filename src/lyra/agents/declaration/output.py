"""AnswerType: the type that an answer has to have, its JSON schema, and the reading of an answer as that type.

A type is a dataclass, a msgspec Struct, a TypedDict, a pydantic model, a union or container of them, `str` (an answer
in plain words), or a JSON schema as a mapping (the answer is then plain data). If an answer does not fit, the model is
told so with the sentence made here, and asked again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, Final, Union, get_args, get_origin

import msgspec

from lyra.core.checking.schema import CheckedSchema
from lyra.errors import AgentFailed, ConfigError
from lyra.tools.pydantic_types import in_short, is_model, read_foreign, schema_of, with_constraints

_FENCE: Final = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)


class AnswerType:
    """One wanted type. `read(text)` gives the value, or raises ValueError with a sentence for the model."""

    __slots__ = ("_read", "name", "schema", "wrapped")

    def __init__(self, name: str, schema: dict[str, Any], read: Callable[[bytes], Any], *, wrapped: bool) -> None:
        self.name = name
        self.schema = schema
        self.wrapped = wrapped  # providers want an object at the top: any other type is sent as {"value": …}
        self._read = read

    @classmethod
    def of(cls, wanted: Any) -> AnswerType:
        if isinstance(wanted, AnswerType):
            return wanted
        if isinstance(wanted, Mapping):
            checked = CheckedSchema(wanted, "output", key="output")
            return cls._named("answer", dict(wanted), lambda data: checked.check(msgspec.json.decode(data)))
        if wanted is str:
            return cls._named("answer", {"type": "string"}, _words)
        name = getattr(wanted, "__name__", "answer")
        wanted = with_constraints(wanted)
        if is_model(wanted):
            return cls._named(name, wanted.model_json_schema(), wanted.model_validate_json)
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
        return cls._named(name, _inlined(reference, parts), decoder.decode)

    @classmethod
    def _either(cls, wanted: Any) -> AnswerType:
        """A union whose members msgspec cannot tell apart: the first that fits, in the order they are written."""
        members = [cls.of(member) for member in get_args(wanted)]
        parts: dict[str, Any] = {}
        schemas = []
        for index, member in enumerate(members):
            schema = member.schema["properties"]["value"] if member.wrapped else dict(member.schema)
            own = {**member.schema.get("$defs", {})}
            schema.pop("$defs", None)
            schemas.append(_renamed(schema, own, f"{index}."))
            parts.update({f"{index}.{name}": _renamed(part, own, f"{index}.") for name, part in own.items()})
        whole = {"anyOf": schemas, "$defs": parts} if parts else {"anyOf": schemas}

        def read(data: bytes) -> Any:
            misfits = []
            for member in members:
                try:
                    return member._read(data)
                except Exception as misfit:  # noqa: BLE001 - a type may check itself with any error
                    misfits.append(f"as {member.name}: {in_short(misfit)}")
            raise ValueError("; ".join(misfits))

        return cls._named("answer", whole, read)

    @classmethod
    def _named(cls, name: str, schema: dict[str, Any], read: Callable[[bytes], Any]) -> AnswerType:
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
        fenced = None if self._read is _words else _FENCE.search(text)  # plain words may hold a fence of their own
        data = (fenced[1] if fenced else text).strip().encode()
        try:
            if self.wrapped:
                data = _unwrapped(data)
            return self._read(data)
        except Exception as error:  # noqa: BLE001 - a type may check itself with any error
            raise ValueError(f"the answer does not fit: {in_short(error)}") from None


def _unwrapped(data: bytes) -> bytes:
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


def _renamed(schema: Any, parts: Mapping[str, Any], before: str) -> Any:
    """The schema with its references to `parts` renamed."""
    if isinstance(schema, list):
        return [_renamed(item, parts, before) for item in schema]
    if not isinstance(schema, dict):
        return schema
    renamed = {key: _renamed(value, parts, before) for key, value in schema.items()}
    name = schema.get("$ref")
    if isinstance(name, str) and name.removeprefix("#/$defs/") in parts:
        renamed["$ref"] = f"#/$defs/{before}{name.removeprefix('#/$defs/')}"
    return renamed


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
