"""Types as they are written in Vega (`str`, `list[int]`, `{name: str, age: int}`) as JSON schemas."""

from __future__ import annotations

from typing import Any, Final

from lyra.errors import ConfigError
from lyra.vega.runtime.convert import from_python
from lyra.vega.syntax.ast import Type
from lyra.vega.values.values import Duration, Money

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
    schema = type_schema(parsed_type(text))
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


def typed(value: Any, written: Type) -> Any:
    """A value that fits the schema of a type as a value of that type: JSON has no money and no durations."""
    if written.name == "money":
        return Money.parse(str(value))
    if written.name == "duration":
        return Duration(round(value * 1_000_000_000))
    if written.name == "float":
        return float(value)
    fields = getattr(written, "fields", None)
    if fields:
        return {name: typed(value[name], field) for name, field in fields.items()}
    if written.name == "list" and written.parameters:
        return [typed(item, written.parameters[0]) for item in value]
    if written.name == "map" and written.parameters:
        return {key: typed(item, written.parameters[-1]) for key, item in value.items()}
    return from_python(value)


def parsed_type(text: str) -> Type:
    """A type from its text, with the language's own parser."""
    from lyra.vega.syntax.parser import parse

    written = text.strip()
    module = parse(f"agent a {{ output {written} }}", "<type>")
    value: Any = module.statements[0].fields["output"]  # type: ignore[attr-defined]
    parsed: Type = value.type
    return parsed
