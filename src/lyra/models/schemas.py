"""JSON schemas as providers want them for structured output.

`closed` adds `additionalProperties: false` to every object that does not say: a model then keeps to the fields that
were named, and an answer that fits the closed schema fits the original. `is_strict` tells whether a closed schema is
within what OpenAI's strict mode takes (every field required, no open maps, no keyword it refuses); a schema that is
not is sent as a wish. `worded` is for Anthropic, whose structured output knows few keywords: the others are put into
the description, where the model can read them. Whoever asked validates the answer anyway.
"""

from __future__ import annotations

from typing import Any, Final

from lyra.core.checking.schema import map_parts

__all__ = ["closed", "is_strict", "worded"]

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


def closed(schema: Any) -> Any:
    """A copy in which objects have the named properties only."""
    if not isinstance(schema, dict):
        return schema
    found = {key: map_parts(key, value, closed) for key, value in schema.items()}
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


# ---------------------------------------------------------------- Anthropic's
def worded(schema: Any) -> Any:
    """A copy with the keywords that Anthropic's structured output knows, and the others in words."""
    if not isinstance(schema, dict):
        return schema
    rest = dict(schema)
    found: dict[str, Any] = {}
    if isinstance(rest.get("$defs"), dict):
        found["$defs"] = {name: worded(one) for name, one in rest.pop("$defs").items()}
    if "$ref" in rest:
        return {**found, "$ref": rest["$ref"]}
    kind = rest.pop("type", None)
    if isinstance(kind, list):
        return {**found, "anyOf": [worded({**rest, "type": one} if one != "null" else {"type": one}) for one in kind]}
    _choices(rest, found, kind)
    found |= {key: rest.pop(key) for key in ("description", "title") if key in rest}
    _inside(rest, found, kind)
    if rest:
        words = "{" + ", ".join(f"{key}: {value}" for key, value in rest.items()) + "}"
        found["description"] = f"{found['description']}\n\n{words}" if "description" in found else words
    return found


def _choices(rest: dict[str, Any], found: dict[str, Any], kind: Any) -> None:
    """What a value may be: listed, one of several, or of a type."""
    listed = [word for word in ("enum", "const") if word in rest]
    for word in listed:
        found[word] = rest.pop(word)
    for key, sent in (("anyOf", "anyOf"), ("oneOf", "anyOf"), ("allOf", "allOf")):
        if isinstance(rest.get(key), list):
            found[sent] = [worded(one) for one in rest.pop(key)]
            return
    if not listed and kind is not None:
        found["type"] = kind


def _inside(rest: dict[str, Any], found: dict[str, Any], kind: Any) -> None:
    """What a value holds."""
    if kind == "object":
        found["properties"] = {name: worded(one) for name, one in rest.pop("properties", {}).items()}
        rest.pop("additionalProperties", None)
        found["additionalProperties"] = False
        if "required" in rest:
            found["required"] = rest.pop("required")
    elif kind == "array":
        if "items" in rest:
            found["items"] = worded(rest.pop("items"))
        if rest.get("minItems") in (0, 1):
            found["minItems"] = rest.pop("minItems")
    elif kind == "string" and rest.get("format") in _FORMATS:
        found["format"] = rest.pop("format")
