"""The published JSON Schema (2020-12) of a declaration, made from the tables of `pipeline_keys`.

For editors and for those who write declarations by machine; the kernel's own check (`pipeline_check`) knows more.
"""

from __future__ import annotations

from typing import Any, Final

from lyra.core.limits import NAME_LENGTH_MAX
from lyra.kernel.pipeline_keys import EDGE_ALIASES, EDGE_KEYS, PIPELINE_KEYS, STAGE_KEYS, Key, MergeStrategy
from lyra.kernel.routing import OPS, SCOPES

__all__ = ["json_schema"]


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of a declaration, from the tables above."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Lyra pipeline",
        "type": "object",
        "additionalProperties": False,
        "required": ["name"],
        "anyOf": [{"required": ["agents"]}, {"required": ["stages"]}],
        "properties": {
            **{name: _schema(key) for name, key in PIPELINE_KEYS.items()},
            "stages": {"$ref": "#/properties/agents"},
            "run_mode": {"$ref": "#/properties/default_run_mode"},
        },
        "$defs": {
            "stage": {
                "type": "object",
                "additionalProperties": False,
                "required": ["name"],
                "properties": {
                    **{name: _schema(key) for name, key in STAGE_KEYS.items()},
                    "routing": {"$ref": "#/$defs/stage/properties/routing_rules"},
                },
            },
            "rule": _RULE_SCHEMA,
            "expression": _EXPRESSION_SCHEMA,
        },
    }


def _schema(key: Key) -> dict[str, Any]:
    shapes: dict[str, dict[str, Any]] = {
        "text": {"type": "string", "maxLength": NAME_LENGTH_MAX},
        "flag": {"type": "boolean"},
        "count": {"type": "integer", "minimum": int(key.least)},
        "seconds": {"type": "number", "exclusiveMinimum": 0},
        "number": {"type": "number"},
        "names": {"type": "array", "items": {"type": "string"}},
        "word": {"enum": [str(word) for word in key.words]},
        "rules": {"type": "array", "items": {"$ref": "#/$defs/rule"}},
        "retry": _RETRY_SCHEMA,
        "generation": _GENERATION_SCHEMA,
        "schema": {"type": "object"},
        "state": _STATE_SCHEMA,
        "edges": _EDGES_SCHEMA,
        "stages": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/stage"}},
    }
    default = {} if key.default in (None, "", (), {}) else {"default": key.default}
    return {**shapes[key.type], **default, "description": key.meaning}


_STATE_SCHEMA: Final = {"type": "object", "additionalProperties": {"enum": [str(word) for word in MergeStrategy]}}
_RETRY_SCHEMA: Final = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "max_retries": {"type": "integer", "minimum": 0, "default": 0},
        "initial_ms": {"type": "number", "minimum": 0, "default": 1000},
        "max_ms": {"type": "number", "minimum": 0, "default": 30000},
        "multiplier": {"type": "number", "minimum": 1, "default": 2},
    },
}
_GENERATION_SCHEMA: Final = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "stop": {"type": "array", "items": {"type": "string"}},
        "repeat_penalty": {"type": "number", "minimum": 0},
        "top_p": {"type": "number", "minimum": 0},
        "top_k": {"type": "integer", "minimum": 0},
        "seed": {"type": "integer"},
    },
}


def _also(name: str) -> list[str]:
    """How else an end of an edge is called."""
    return [alias for alias, known in EDGE_ALIASES.items() if known == name]


_EDGES_SCHEMA: Final = {
    "type": "array",
    "items": {
        "type": "object",
        "additionalProperties": False,
        "required": ["max_count"],
        "allOf": [
            {"oneOf": [{"required": [each]} for each in (name, *_also(name))]}
            for name in EDGE_KEYS
            if name != "max_count"
        ],
        "properties": {
            **{each: {"type": "string"} for each in ("from", "to", *EDGE_ALIASES)},
            "max_count": {"type": "integer", "minimum": 1},
        },
    },
}
_RULE_SCHEMA: Final = {
    "type": "object",
    "additionalProperties": False,
    "required": ["target"],
    "properties": {
        "condition": {"type": "string", "description": "a key of the stage's output"},
        "value": {"description": "what that key must equal"},
        "expr": {"$ref": "#/$defs/expression"},
        "target": {"type": "string", "description": "a stage, end, clarification or confirmation"},
    },
}
_EXPRESSION_SCHEMA: Final = {
    "type": "object",
    "additionalProperties": False,
    "required": ["op"],
    "properties": {
        "op": {"enum": list(OPS)},
        "field": {
            "type": "object",
            "additionalProperties": False,
            "required": ["key"],
            "properties": {
                "scope": {"enum": list(SCOPES), "default": "current"},
                "agent": {"type": "string"},
                "key": {"type": "string"},
            },
        },
        "value": {},
        "exprs": {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/expression"}},
        "expr": {"$ref": "#/$defs/expression"},
    },
}
