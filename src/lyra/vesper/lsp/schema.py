"""The JSON Schema of `.vsp` files, for editors that complete and check YAML.

`json_schema` builds it from the tables of the loader and the checker: keys of sections, operations with their settings,
actions about errors. `ShapeRecorder` stands in for a `SectionReader`: the readers of sections pass it their tables of
keys, and it notes the forms, so the schema cannot know other keys than the loader. Forms that are plain functions
leave no note; they accept anything unless more is said here. The schema is stricter than the loader in one thing: a key
that is not known is wrong. It knows the form of a file, not what expressions mean; `vesper validate` does. Published as
docs/reference/vsp.schema.json and in the extension for VS Code; completion and hover read it, and the sentences of its
keys also stand on the reference page.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Collection, Mapping
from decimal import Decimal
from typing import Any, Final

from lyra.core.checking.document import Path
from lyra.vesper.check import effects, rules, steps
from lyra.vesper.check.semantics import NODE_TYPES
from lyra.vesper.check.transforms import TRANSFORMS
from lyra.vesper.loading import read_document
from lyra.vesper.nodes.reader import Form, SectionReader
from lyra.vesper.nodes.sections import NODE_KEYS, Sections
from lyra.vesper.nodes.steps import OPERATIONS, STEP_KEYS, Operation, StepReader
from lyra.vesper.values.limits import NAME_CHARS_MAX

# ---------------------------------------------------------------- recorder

Schema = dict[str, Any]
TEXT: Final[Schema] = {"type": ["string", "number", "boolean"]}
TEXTS: Final[Schema] = {"anyOf": [{"type": "string"}, {"type": "array", "items": TEXT}]}
_PROBE: Final = object()  # placeholder for a present value
_NAME: Final = "x"  # placeholder for a key of the author's choice
_SECTIONS: Final = ("metadata", "performance", "security", "observability", "testing", "types", "state_machines")


def or_null(schema: Schema) -> Schema:
    """Return the schema with null allowed: a key without a value counts as absent."""
    if "enum" in schema:
        return {**schema, "enum": [*schema["enum"], None]}
    kind = schema.get("type")
    if kind is not None:
        kinds = kind if isinstance(kind, list) else [kind]
        return {**schema, "type": [*kinds, "null"]}
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    return {"anyOf": [schema, {"type": "null"}]} if "$ref" in schema else schema


class ShapeRecorder(SectionReader):
    """A reader that notes the form of each part it is asked for, by path."""

    def __init__(self) -> None:
        super().__init__(read_document("{}"))
        self.shapes: dict[Path, Schema] = {}

    def error(self, code: str, message: str, path: Path, *, hint: str = "", value: bool = False) -> None:
        """Add no remark: nothing is read."""

    def warn(self, code: str, message: str, path: Path, *, hint: str = "") -> None:
        """Add no remark."""

    def unknown_key(self, key: str, path: Path, known: Collection[str], *, hint: str = "") -> None:
        """Add no remark."""

    # ------------------------------------------------------------ forms
    def text(self, value: Any, path: Path) -> str:  # noqa: ARG002 - the form alone counts
        self.shapes[path] = TEXT
        return ""

    def flag(self, value: Any, path: Path) -> bool:  # noqa: ARG002
        self.shapes[path] = {"type": "boolean"}
        return False

    def integer(self, value: Any, path: Path) -> int | None:  # noqa: ARG002
        self.shapes[path] = {"type": "integer", "minimum": 0}
        return None

    def number(self, value: Any, path: Path) -> None:  # noqa: ARG002
        self.shapes[path] = {"type": "number", "minimum": 0}

    def texts(self, value: Any, path: Path) -> tuple[str, ...]:  # noqa: ARG002
        self.shapes[path] = TEXTS
        return ()

    def items(self, value: Any, path: Path) -> list[Any]:
        self.shapes[path] = {"type": "array"}
        return [_PROBE] if value is _PROBE else []

    def mapping(self, value: Any, path: Path) -> dict[str, Any]:
        self.shapes[path] = {"type": "object"}
        return {_NAME: _PROBE} if value is _PROBE else {}

    def numbers(self, value: Any, path: Path) -> tuple[int | Decimal, ...]:  # noqa: ARG002
        self.shapes[path] = {"type": "array", "items": {"type": "number", "minimum": 0}}
        return ()

    def choice(self, *words: str) -> Form:
        def read(value: Any, path: Path) -> str:  # noqa: ARG001
            self.shapes[path] = {"enum": list(words)}
            return words[0]

        return read

    def section(self, value: Any, path: Path, table: Mapping[str, Form]) -> dict[str, Any]:  # noqa: ARG002
        properties: dict[str, Schema] = {}
        for key, form in table.items():
            inner = (*path, key)
            form(_PROBE, inner)
            properties[key] = or_null(self.shape(inner))
        self.shapes[path] = {"type": "object", "properties": properties, "additionalProperties": False}
        return {}

    # ------------------------------------------------------------ results
    def shape(self, path: Path) -> Schema:
        """Return the schema that was collected for a part, with the parts inside it."""
        shape = self.shapes.get(path, {})
        if shape == {"type": "array"} and (*path, 0) in self.shapes:
            return {**shape, "items": self.shape((*path, 0))}
        if shape == {"type": "object"} and (*path, _NAME) in self.shapes:
            return {**shape, "additionalProperties": self.shape((*path, _NAME))}
        return shape


def section_shapes() -> dict[str, Schema]:
    """Return the shapes of the simple sections, and of a `field` that is written as a mapping."""
    recorder = ShapeRecorder()
    sections = Sections(recorder, StepReader(recorder))
    for name in _SECTIONS:
        getattr(sections, name)(_PROBE, (name,))
    sections._field(_NAME, {}, ("field",), what="input")
    return {name: recorder.shape((name,)) for name in (*_SECTIONS, "field")}


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
    "method": {"enum": [*effects.METHODS, *(method.lower() for method in effects.METHODS)]},
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
    """Return the schema."""
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
    """Return the schema as the file that is published."""
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
        "outputs": {"anyOf": [_close_keys(dict.fromkeys(("success", "error"), or_null(_FIELDS))), or_null(_FIELDS)]},
        "state_machines": or_null(_machines(shapes["state_machines"])),
        "contracts": or_null(_close_keys(dict.fromkeys(contract_keys, or_null({"$ref": "#/$defs/conditions"})))),
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


def _close_keys(properties: dict[str, Schema]) -> Schema:
    """Return the schema of a mapping with these keys and no others."""
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _with(shape: Schema, properties: dict[str, Schema]) -> Schema:
    """Return the schema of a mapping with more said about some of its keys."""
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
    return _close_keys({key: known.get(key, {}) for key in sorted(rules._KEYS)})


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
        "on_result": or_null(_close_keys(dict.fromkeys(("if_found", "if_empty"), or_null(_STEPS)))),
        "timeout": or_null(_DURATION),
        "retry_policy": or_null({"$ref": "#/$defs/retry_policy"}),
        "output": {"type": ["string", "null"]},
    }
    return {key: known.get(key, {}) for key in STEP_KEYS}


def _case(operation: Operation) -> Schema:
    """Return the schema of the steps of one operation. A setting may also be under `parameters`."""
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
    return {"propertyNames": {"enum": list(dict.fromkeys((*STEP_KEYS, *_RETURNS, *operation.settings)))}}


# ---------------------------------------------------------------- texts

SECTION_TEXTS: Final = {
    "node_id": "the id with its version, such as payment_handler_v1 or payment_handler_v1.2.0",
    "type": "what the node is for",
    "intent": "what the node does, in one sentence",
    "idempotent": "true: equal inputs have equal results, which are kept instead of executing the node again",
    "metadata": "author, version, description, dependencies, change log; how handlers and jobs are reached",
    "types": "custom types: records with fields, or a base type with constraints",
    "inputs": "the inputs by name: a type, or a mapping with type, default and constraints",
    "outputs": "the fields of a success and of an error; without these two keys all are of a success",
    "state_machines": "states and the transitions that are allowed between them",
    "contracts": "conditions before, after and during an execution",
    "flow": "the steps, in order",
    "error_handling": "what is done about an error code, wherever it occurs",
    "performance": "expected times, and limits that are enforced",
    "security": "the rights that the node needs, and what must not be shown",
    "observability": "metrics, alerts, tracing and logging",
    "testing": "test cases, properties and differential tests",
    "documentation": "examples and notes for people; not interpreted",
}

STEP_TEXTS: Final = {
    "step": "the name of the step",
    "operation": "what the step does",
    "description": "a sentence for people",
    "parameters": "settings of the operation, or values by names of your choice",
    "guards": "conditions; unless all are true a step is skipped, a validation fails, a transition is invalid",
    "on_success": "`extract`: variables out of the answer",
    "on_error": "rules about errors of this step, tried in order",
    "on_failure": "what a validation that fails answers",
    "on_result": "steps for a query that has rows (`if_found`) or none (`if_empty`)",
    "error_handling": "another name for on_error; also a mapping of errors to their rules",
    "timeout": "a duration such as 30s",
    "retry_policy": "how often, and after which pauses, the step is tried again",
    "output": "the variable that holds the result",
}

_FOR_PEOPLE: Final = "for people, not interpreted"
# What follows from keys inside sections, where their names do not tell.
KEY_TEXTS: Final = {
    "metadata.author": _FOR_PEOPLE,
    "metadata.created": _FOR_PEOPLE,
    "metadata.tags": _FOR_PEOPLE,
    "metadata.changelog": _FOR_PEOPLE,
    "performance.expected_latency_ms": "an alert (info) where the median of the last 100 executions is above it",
    "performance.p99_latency_ms": "an alert where the 99th percentile of the last 100 executions is above it",
    "performance.max_latency_ms": "an alert where one of the last 100 executions took longer",
    "performance.cpu_limit_cores": "limits nothing: an execution has one thread",
    "performance.timeout_seconds": "the execution takes no longer",
    "performance.memory_limit_mb": "no value and no response is larger",
    "security.capabilities_required": "an execution without them is refused before its first step",
    "security.denied_capabilities": "refused also where it is granted, to the node and to the nodes that it calls",
    "security.compliance": _FOR_PEOPLE,
    "testing.property_tests[].strategy": "for other tools, not interpreted",
    "testing.test_cases[].answers": "by step: what its acts are answered; nothing is performed",
    "testing.test_cases[].steps": _FOR_PEOPLE,
    "testing.differential_tests.enabled": "false: `vesper verify` compares nothing unless it is given -n",
    "testing.differential_tests.sample_size": "inputs that `vesper verify` compares without -n",
}
