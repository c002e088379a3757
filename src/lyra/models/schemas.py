"""JSON schemas as providers want them for structured output.

`closed` adds `additionalProperties: false` to every object that does not say: a model then keeps to the fields that
were named, and an answer that fits the closed schema fits the original. `is_strict` tells whether a closed schema is
within what OpenAI's strict mode takes (every field required, no open maps, no keyword it refuses); a schema that is
not is sent as a wish, and whoever asked validates the answer anyway.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ["closed", "is_strict"]

_SCHEMAS: Final = ("items", "not", "if", "then", "else", "contains", "propertyNames", "additionalProperties")
_LISTS: Final = ("anyOf", "oneOf", "allOf", "prefixItems")
_MAPS: Final = ("properties", "$defs", "definitions", "patternProperties")
_REFUSED: Final = frozenset(
    (
        *("allOf", "oneOf", "not", "if", "then", "else", "default", "dependentRequired", "dependentSchemas"),
        *("patternProperties", "propertyNames", "unevaluatedProperties"),
        *("prefixItems", "contains", "minContains", "maxContains", "unevaluatedItems", "uniqueItems"),
    )
)


def closed(schema: Any) -> Any:
    """A copy in which objects have the named properties only."""
    if not isinstance(schema, dict):
        return schema
    found: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _MAPS and isinstance(value, dict):
            found[key] = {name: closed(one) for name, one in value.items()}
        elif key in _LISTS and isinstance(value, list):
            found[key] = [closed(one) for one in value]
        else:
            found[key] = closed(value) if key in _SCHEMAS else value
    if _is_object(schema) and "patternProperties" not in schema:
        found.setdefault("additionalProperties", False)
    return found


def is_strict(schema: Any) -> bool:
    """True for a closed schema of an object that OpenAI's strict mode takes."""
    return isinstance(schema, dict) and _is_object(schema) and "anyOf" not in schema and _fits(schema)


def _fits(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return False
    if _REFUSED & schema.keys():
        return False
    if not schema.keys() & {"type", "anyOf", "enum", "const", "$ref"}:
        return False  # "anything at all" cannot be promised
    if _is_object(schema):
        names = schema.get("properties", {}).keys()
        if schema.get("additionalProperties") is not False or set(schema.get("required", ())) != set(names):
            return False
    below = [*_values(schema, _MAPS), *schema.get("anyOf", ())]
    if "items" in schema:
        below.append(schema["items"])
    return all(_fits(one) for one in below)


def _values(schema: dict[str, Any], keys: tuple[str, ...]) -> list[Any]:
    return [one for key in keys if isinstance(schema.get(key), dict) for one in schema[key].values()]


def _is_object(schema: dict[str, Any]) -> bool:
    kind = schema.get("type")
    return (
        kind == "object" or (isinstance(kind, list) and "object" in kind) or (kind is None and "properties" in schema)
    )
