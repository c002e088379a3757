"""The JSON Schema of `.vsp` files, for editors that complete and check YAML.

`json_schema` builds it from the tables of the loader and the checker: keys of sections, operations with their settings,
actions about errors. It is stricter than the loader in one thing: a key that is not known is wrong. It knows the form
of a file, not what expressions mean; `vesper validate` does. Published as docs/reference/vsp.schema.json.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from typing import Any, Final

from lyra.vesper.check import http_calls, rules, steps
from lyra.vesper.check.semantics import NODE_TYPES
from lyra.vesper.check.transforms import TRANSFORMS
from lyra.vesper.nodes.loader import NODE_KEYS
from lyra.vesper.nodes.operations import OPERATIONS, STEP_KEYS, Operation
from lyra.vesper.schema.recorder import TEXT, TEXTS, Schema, or_null, section_shapes
from lyra.vesper.schema.texts import KEY_TEXTS, SECTION_TEXTS, STEP_TEXTS
from lyra.vesper.values.limits import NAME_CHARS_MAX

_IDENTIFIER: Final = "^[A-Za-z_][A-Za-z0-9_]*$"
_NODE_ID: Final = r"^[a-z][a-z0-9_]*_v[0-9]{1,9}(\.[0-9]{1,9}){0,2}$"
_CUSTOM: Final = r"^custom\..*\..*$"
_DURATION: Final[Schema] = {
    "anyOf": [
        {"type": "number", "exclusiveMinimum": 0},
        {"type": "string", "pattern": r"^\s*[0-9]{1,9}(\.[0-9]{1,9})?\s*(ms|s|m|h)\s*$"},
    ]
}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_RETURNS: Final = ("return_success", "return_error")
_STEPS: Final[Schema] = {"$ref": "#/$defs/steps"}
_RULE: Final[Schema] = {"$ref": "#/$defs/rule"}
_FIELDS: Final[Schema] = {"$ref": "#/$defs/fields"}
_CONSTRAINTS: Final[Schema] = {
    "anyOf": [{"type": ["string", "object"]}, {"type": "array", "items": {"type": ["string", "object"]}}]
}
# What is known about keys whose form is a function.
_FIELD_KEYS: Final[dict[str, Schema]] = {
    "constraints": _CONSTRAINTS,
    "pattern": {"type": "string"},
    "min_length": _COUNT,
    "max_length": _COUNT,
}
_SETTINGS: Final[dict[str, Schema]] = {
    "transform": {"enum": list(TRANSFORMS)},
    "rounding": {"enum": list(steps._ROUNDINGS)},
    "method": {"enum": [*http_calls.METHODS, *(method.lower() for method in http_calls.METHODS)]},
    "then": _STEPS,
    "else": _STEPS,
    "steps": _STEPS,
    "state_machine": {"type": "string"},
    "provider": {"type": "string"},
    "endpoint": {"type": "string"},
    "table": {"type": "string"},
    "query": {"type": "string"},
    "template": TEXT,
    "headers": {"type": "object"},
    "as": {"type": "string"},
    "node_id": {"type": "string"},
}


def json_schema() -> Schema:
    """The schema."""
    shapes = section_shapes()
    sections = copy.deepcopy(_sections(shapes))
    for name, text in KEY_TEXTS.items():
        _describe(sections, name, text)
    properties = {key: {"description": SECTION_TEXTS[key], **schema} for key, schema in sections.items()}
    return copy.deepcopy(
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "A Vesper node",
            "description": "Written by `python -m verify reference` from the tables that read such files.",
            "type": "object",
            "required": ["node_id", "type", "intent"],
            "properties": {key: properties[key] for key in NODE_KEYS},
            "additionalProperties": False,
            "$defs": _definitions(shapes),
        }
    )


def schema_text() -> str:
    """The schema as the file that is published."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


# ------------------------------------------------------------------ sections
def _sections(shapes: dict[str, Schema]) -> dict[str, Schema]:
    plain = ("metadata", "performance", "observability", "testing", "state_machines")
    contract_keys = ("preconditions", "postconditions", "invariants")
    return {
        "node_id": {"type": "string", "pattern": _NODE_ID, "maxLength": NAME_CHARS_MAX},
        "type": {"anyOf": [{"enum": list(NODE_TYPES)}, {"type": "string", "pattern": _IDENTIFIER}]},
        "intent": {**TEXT, "minLength": 1},
        "idempotent": {"type": ["boolean", "null"]},
        **{name: or_null(shapes[name]) for name in plain},
        "types": or_null(_types(shapes["types"])),
        "inputs": or_null(_FIELDS),
        "outputs": {"anyOf": [_closed(dict.fromkeys(("success", "error"), or_null(_FIELDS))), or_null(_FIELDS)]},
        "state_machines": or_null(_machines(shapes["state_machines"])),
        "contracts": or_null(_closed(dict.fromkeys(contract_keys, or_null({"$ref": "#/$defs/conditions"})))),
        "flow": or_null(_STEPS),
        "error_handling": or_null({"type": "object", "additionalProperties": _rule_or_action()}),
        "security": or_null(_with(shapes["security"], {"sensitive_data": _flag_or_texts()})),
        "documentation": {"type": ["object", "null"]},
    }


def _describe(sections: dict[str, Schema], name: str, text: str) -> None:
    """Add the text of a key such as `testing.test_cases[].steps` to its schema."""
    section, *keys = name.split(".")
    schema = sections[section]
    for key in keys:
        schema = schema["properties"][key.removesuffix("[]")]
        schema = schema["items"] if key.endswith("[]") else schema
    schema["description"] = text


def _flag_or_texts() -> Schema:
    return {"anyOf": [{"type": ["boolean", "null"]}, *TEXTS["anyOf"]]}


def _types(shape: Schema) -> Schema:
    inner = _with(shape["additionalProperties"], {**_FIELD_KEYS, "fields": _FIELDS})
    inner["anyOf"] = [{"required": [key]} for key in ("fields", "base", "type", "values")]
    return {**shape, "propertyNames": {"pattern": _IDENTIFIER}, "additionalProperties": inner}


def _machines(shape: Schema) -> Schema:
    inner = copy.deepcopy(shape["additionalProperties"])
    inner["properties"]["states"] = {"anyOf": [{"type": ["object", "null"]}, *TEXTS["anyOf"]]}
    inner["properties"]["transitions"]["items"]["required"] = ["from", "to"]
    return {**shape, "additionalProperties": inner}


def _closed(properties: dict[str, Schema]) -> Schema:
    """A mapping with these keys and no others."""
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _with(shape: Schema, properties: dict[str, Schema]) -> Schema:
    """A mapping with more said about some of its keys."""
    return {**shape, "properties": {**shape["properties"], **{key: or_null(properties[key]) for key in properties}}}


# ------------------------------------------------------------------ definitions
def _definitions(shapes: dict[str, Schema]) -> dict[str, Schema]:
    field = _with(shapes["field"], _FIELD_KEYS)
    field["anyOf"] = [{"required": ["type"]}, {"required": ["values"]}]
    words = {"type": "array", "items": {"type": "string"}, "minItems": 1}
    condition = {"anyOf": [{"type": ["string", "boolean"]}, {"type": "object", "minProperties": 1, "maxProperties": 1}]}
    return {
        "fields": {
            "type": "object",
            "propertyNames": {"pattern": _IDENTIFIER, "maxLength": NAME_CHARS_MAX},
            "additionalProperties": {"anyOf": [{"type": "string"}, words, field]},
        },
        "conditions": {"anyOf": [{"type": "string"}, {"type": "array", "items": condition}]},
        "rule": _rule(),
        "retry_policy": {"type": "object", "properties": _retry_keys()},
        "steps": {"anyOf": [{"$ref": "#/$defs/step"}, {"type": "array", "items": {"$ref": "#/$defs/step"}}]},
        "step": _step(),
    }


def _retry_keys() -> dict[str, Schema]:
    counts = dict.fromkeys(("max_attempts", "max_retries", "backoff_base"), or_null(_COUNT))
    delays = dict.fromkeys(("initial_delay", "retry_after"), or_null(_DURATION))
    return {**counts, "backoff": {"enum": list(rules._BACKOFFS)}, **delays}


def _rule() -> Schema:
    known: dict[str, Schema] = {
        **_retry_keys(),
        "action": {"enum": list(rules.ACTIONS)},
        "compensation_steps": or_null(_STEPS),
        "threshold": or_null(_COUNT),
        "timeout": or_null(_DURATION),
        "description": TEXT,
    }
    return _closed({key: known.get(key, {}) for key in sorted(rules._KEYS)})


def _rule_or_action() -> Schema:
    return {"anyOf": [{"enum": list(rules.ACTIONS)}, _RULE]}


# ------------------------------------------------------------------ steps
def _step() -> Schema:
    settings = dict.fromkeys(key for operation in OPERATIONS.values() for key in operation.settings)
    properties: dict[str, Schema] = {key: _SETTINGS.get(key, {}) for key in settings}
    properties |= {key: {"description": STEP_TEXTS[key], **schema} for key, schema in _step_keys().items()}
    return {
        "type": "object",
        "properties": properties,
        "allOf": [
            {
                "if": {"not": {"required": ["operation"]}},
                "then": {"anyOf": [{"required": [key]} for key in _RETURNS], **_names(OPERATIONS["return"])},
            },
            *(_case(operation) for operation in OPERATIONS.values()),
        ],
    }


def _step_keys() -> dict[str, Schema]:
    error_rules = {
        "anyOf": [
            _RULE,
            {"type": "array", "items": _RULE},
            {"type": "object", "additionalProperties": _rule_or_action()},
            {"type": "null"},
        ]
    }
    known: dict[str, Schema] = {
        "step": {"type": ["string", "null"]},
        "operation": {"anyOf": [{"enum": list(OPERATIONS)}, {"type": "string", "pattern": _CUSTOM}]},
        "description": or_null(TEXT),
        "parameters": {"type": ["object", "null"]},
        "on_success": {"type": ["object", "null"]},
        "on_error": error_rules,
        "error_handling": error_rules,
        "on_result": or_null(_closed(dict.fromkeys(("if_found", "if_empty"), or_null(_STEPS)))),
        "timeout": or_null(_DURATION),
        "retry_policy": or_null({"$ref": "#/$defs/retry_policy"}),
        "output": {"type": ["string", "null"]},
    }
    return {key: known.get(key, {}) for key in STEP_KEYS}


def _case(operation: Operation) -> Schema:
    """What holds for the steps of one operation. A setting may stand under `parameters`, too."""
    then: dict[str, Any] = {"description": operation.text, **_names(operation)}
    if operation.required:
        then["allOf"] = [_present(key) for key in operation.required]
    if not operation.free:
        then["properties"] = {"parameters": _names(operation)}
    return {
        "if": {"properties": {"operation": {"const": operation.name}}, "required": ["operation"]},
        "then": then,
    }


def _present(key: str) -> Schema:
    below = {"properties": {"parameters": {"type": "object", "required": [key]}}, "required": ["parameters"]}
    return {"anyOf": [{"required": [key]}, below]}


def _names(operation: Operation) -> Schema:
    return {"propertyNames": {"enum": _unique((*STEP_KEYS, *_RETURNS, *operation.settings))}}


def _unique(words: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(words))
