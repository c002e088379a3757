"""JSON schemas as providers want them for structured output.

`close_objects` adds `additionalProperties: false` to every object without that key: a model then keeps to the named
fields, and an answer that fits the closed schema fits the original. `is_strict`: whether OpenAI's strict mode accepts a
closed schema (every field required, no open maps, no refused keyword); else it is sent without strict mode.
`describe_unsupported` is for Anthropic, whose structured output knows few keywords: the others are put into the
description, where the model can read them. The agent validates the answer in any case.
"""

from __future__ import annotations

from typing import Any, Final

from lyra.core.checking.schema import map_parts

_MAPS: Final = ("properties", "$defs", "definitions", "patternProperties")
_REFUSED: Final = frozenset(
    (
        *("allOf", "oneOf", "not", "if", "then", "else", "default", "dependentRequired", "dependentSchemas"),
        *("patternProperties", "propertyNames", "unevaluatedProperties"),
        *("prefixItems", "contains", "minContains", "maxContains", "unevaluatedItems", "uniqueItems"),
    )
)

_FORMATS: Final = frozenset(
    ("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid")
)


def close_objects(schema: Any) -> Any:
    """Return a copy in which objects have the named properties only."""
    if not isinstance(schema, dict):
        return schema
    copy = {key: map_parts(key, value, close_objects) for key, value in schema.items()}
    if _is_object(schema) and "patternProperties" not in schema:
        copy.setdefault("additionalProperties", False)
    return copy


def is_strict(schema: Any) -> bool:
    """True for a closed schema of an object that OpenAI's strict mode takes."""
    return isinstance(schema, dict) and _is_object(schema) and "anyOf" not in schema and _fits(schema)


def _fits(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return False
    if _REFUSED & schema.keys():
        return False
    if not schema.keys() & {"type", "anyOf", "enum", "const", "$ref"}:
        return False  # a schema that allows anything is not strict
    if _is_object(schema):
        names = schema.get("properties", {}).keys()
        if schema.get("additionalProperties") is not False or set(schema.get("required", ())) != set(names):
            return False
    below = [*_values(schema, _MAPS), *schema.get("anyOf", ())]
    if "items" in schema:
        below.append(schema["items"])
    return all(_fits(part) for part in below)


def _values(schema: dict[str, Any], keys: tuple[str, ...]) -> list[Any]:
    return [part for key in keys if isinstance(schema.get(key), dict) for part in schema[key].values()]


def _is_object(schema: dict[str, Any]) -> bool:
    kind = schema.get("type")
    return (
        kind == "object" or (isinstance(kind, list) and "object" in kind) or (kind is None and "properties" in schema)
    )


def describe_unsupported(schema: Any) -> Any:
    """Return a copy with the keywords that Anthropic's structured output knows, and the others in words."""
    if not isinstance(schema, dict):
        return schema
    rest = dict(schema)
    result: dict[str, Any] = {}
    if isinstance(rest.get("$defs"), dict):
        result["$defs"] = {name: describe_unsupported(part) for name, part in rest.pop("$defs").items()}
    if "$ref" in rest:
        return {**result, "$ref": rest["$ref"]}
    kind = rest.pop("type", None)
    if isinstance(kind, list):
        return {
            **result,
            "anyOf": [
                describe_unsupported({**rest, "type": part} if part != "null" else {"type": part}) for part in kind
            ],
        }
    _choices(rest, result, kind)
    result |= {key: rest.pop(key) for key in ("description", "title") if key in rest}
    _inside(rest, result, kind)
    if rest:
        words = "{" + ", ".join(f"{key}: {value}" for key, value in rest.items()) + "}"
        result["description"] = f"{result['description']}\n\n{words}" if "description" in result else words
    return result


def _choices(rest: dict[str, Any], result: dict[str, Any], kind: Any) -> None:
    """Move the keywords for the choice of values: enum, const, anyOf, oneOf, allOf, type."""
    listed = [word for word in ("enum", "const") if word in rest]
    for word in listed:
        result[word] = rest.pop(word)
    for key, sent in (("anyOf", "anyOf"), ("oneOf", "anyOf"), ("allOf", "allOf")):
        if isinstance(rest.get(key), list):
            result[sent] = [describe_unsupported(part) for part in rest.pop(key)]
            return
    if not listed and kind is not None:
        result["type"] = kind


def _inside(rest: dict[str, Any], result: dict[str, Any], kind: Any) -> None:
    """Move the keywords for the content of objects, arrays and texts."""
    if kind == "object":
        result["properties"] = {name: describe_unsupported(part) for name, part in rest.pop("properties", {}).items()}
        rest.pop("additionalProperties", None)
        result["additionalProperties"] = False
        if "required" in rest:
            result["required"] = rest.pop("required")
    elif kind == "array":
        if "items" in rest:
            result["items"] = describe_unsupported(rest.pop("items"))
        if rest.get("minItems") in (0, 1):
            result["minItems"] = rest.pop("minItems")
    elif kind == "string" and rest.get("format") in _FORMATS:
        result["format"] = rest.pop("format")
