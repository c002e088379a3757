"""Types as they are written in Vega (`str`, `list[int]`, `{name: str, age: int}`) as JSON schemas."""

from __future__ import annotations

from typing import Any, Final

from lyra.errors import ConfigError
from lyra.vega.ast import Type

__all__ = ["schema_of_type", "type_schema"]

_SCHEMAS: Final[dict[str, dict[str, Any]]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "null": {"type": "null"},
    "map": {"type": "object"},
    "list": {"type": "array"},
    "money": {"type": "string", "description": "an amount such as $0.50"},
    "duration": {"type": "number", "description": "seconds"},
    "any": {},
    "": {},
}


def schema_of_type(text: str) -> Any:
    """What lyra's Agent takes as `output`: the schema of a type as it is written; plain text for `str`."""
    schema = type_schema(_parsed(text))
    return str if schema == {"type": "string"} else schema


def type_schema(written: Type) -> dict[str, Any]:
    fields = getattr(written, "fields", None)
    if fields:
        return {
            "type": "object",
            "properties": {name: type_schema(field) for name, field in fields.items()},
            "required": list(fields),
            "additionalProperties": False,
        }
    schema = _SCHEMAS.get(written.name)
    if schema is None:
        raise ConfigError(f"`{written.name}` is no type that an answer or an argument can have")
    if written.name == "list" and written.parameters:
        return {"type": "array", "items": type_schema(written.parameters[0])}
    if written.name == "map" and written.parameters:
        return {"type": "object", "additionalProperties": type_schema(written.parameters[-1])}
    return dict(schema)


def _parsed(text: str) -> Type:
    """A type from its text, with the language's own parser."""
    from lyra.vega.parser import parse

    written = text.strip()
    module = parse(f"agent a {{ output {written} }}", "<type>")
    value: Any = module.statements[0].fields["output"]  # type: ignore[attr-defined]
    found: Type = value.type
    return found
