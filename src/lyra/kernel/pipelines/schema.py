"""The published JSON Schema (2020-12) of a declaration, and its picture: both made from the declaration.

For editors and for programs that write declarations. It checks all that can be checked of one place and its neighbours;
checks that need the whole declaration (declared names, loops, stages that wait for one another) are in `check` only.
Both accept words in capitals, and null for a key that is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from lyra.core import svg_graph
from lyra.core.limits import COUNTED_MAX, NAME_LENGTH_MAX, PIPELINE_STAGES_MAX, RETRY_ATTEMPTS_MAX
from lyra.kernel.pipelines.declaration import AgentConfig, PipelineConfig
from lyra.kernel.pipelines.routing import (
    ALIASES,
    EDGE_ALIASES,
    EDGE_KEYS,
    JOINING,
    MILLISECONDS_MAX,
    OPS,
    PIPELINE_KEYS,
    SCOPES,
    SECONDS_MAX,
    SPECIAL_TARGETS,
    STAGE_KEYS,
    WITH_VALUE,
    Key,
    MergeStrategy,
    NodeKind,
    RunMode,
)

_Schema = dict[str, Any]


def json_schema() -> _Schema:
    """Return the JSON Schema (2020-12) of a declaration."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Lyra pipeline",
        "type": "object",
        "additionalProperties": False,
        "required": ["name"],
        "oneOf": [{"required": ["agents"]}, {"required": ["stages"]}],
        "properties": _properties(PIPELINE_KEYS, "#/properties"),
        "$defs": {
            "stage": {
                "type": "object",
                "additionalProperties": False,
                "required": ["name"],
                "allOf": _TOGETHER,
                "properties": _properties(STAGE_KEYS, "#/$defs/stage/properties"),
            },
            "rule": _RULE_SCHEMA,
            "expression": _EXPRESSION_SCHEMA,
            "field": _FIELD_SCHEMA,
        },
    }


def _properties(table: Mapping[str, Key], reference: str) -> _Schema:
    aliases = {alias: {"$ref": f"{reference}/{name}"} for alias, name in ALIASES.items() if name in table}
    return {**{name: _schema(name, key) for name, key in table.items()}, **aliases}


def _schema(name: str, key: Key) -> _Schema:
    shapes: dict[str, _Schema] = {
        "text": {"type": "string", "maxLength": NAME_LENGTH_MAX},
        "flag": {"type": "boolean"},
        "count": {"type": "integer", "minimum": key.least, "maximum": key.most},
        "seconds": {"type": "number", "exclusiveMinimum": 0, "maximum": SECONDS_MAX},
        "number": {"type": "number"},
        "names": _TEXTS,
        "word": _words(key.words),
        "rules": {"type": "array", "items": {"$ref": "#/$defs/rule"}},
        "retry": _RETRY_SCHEMA,
        "generation": _GENERATION_SCHEMA,
        "schema": {"type": "object"},
        "state": _STATE_SCHEMA,
        "edges": _EDGES_SCHEMA,
        "stages": {
            "type": "array",
            "minItems": 1,
            "maxItems": PIPELINE_STAGES_MAX,
            "items": {"$ref": "#/$defs/stage"},
        },
    }
    shape = shapes[key.type]
    if name == "name":
        shape = {**shape, "minLength": 1, "not": {"enum": list(SPECIAL_TARGETS)}} if key is _STAGE_NAME else _NAME
    elif key.type != "stages":
        shape = _or_null(shape)
    default = {} if key.default in (None, "", (), {}) else {"default": key.default}
    return {**shape, **default, "description": key.meaning}


def _or_null(shape: _Schema) -> _Schema:
    """Return the schema with null allowed too."""
    if "type" in shape:
        kinds = shape["type"] if isinstance(shape["type"], list) else [shape["type"]]
        return {**shape, "type": [*kinds, "null"]}
    return {"anyOf": [*shape["anyOf"], {"type": "null"}]}


def _words(words: Iterable[str], *, underscores: bool = False) -> _Schema:
    """One of these words, in any case; with `underscores` also NotExists for not_exists."""
    plain = [str(word) for word in words]
    gap = "_*" if underscores else ""
    patterns = [gap.join(map(_letter, word.replace("_", "") if underscores else word)) for word in plain]
    return {"anyOf": [{"enum": plain}, {"type": "string", "pattern": f"^{gap}(?:{'|'.join(patterns)}){gap}$"}]}


def _letter(mark: str) -> str:
    return f"[{mark.upper()}{mark}]" if mark.isalpha() else mark


_NAME: Final[_Schema] = {"type": "string", "minLength": 1, "maxLength": NAME_LENGTH_MAX}
_TEXT: Final[_Schema] = {"type": "string", "minLength": 1}
_TEXTS: Final[_Schema] = {"type": "array", "items": {"type": "string", "maxLength": NAME_LENGTH_MAX}}
_STAGE_NAME: Final = STAGE_KEYS["name"]


def _where(name: str, shape: _Schema) -> _Schema:
    """Return a schema for objects that have this key with a value of this shape."""
    return {"required": [name], "properties": {name: shape}}


_FORK: Final = _where("node_kind", _words(["fork"]))
_SOME: Final[_Schema] = {"type": "array", "minItems": 1}
_TOGETHER: Final[list[_Schema]] = [
    {
        "if": _FORK,
        "then": {"anyOf": [_where(name, _SOME) for name in ("branches", "routing_rules", "routing")]},
        "else": {"not": _where("branches", _SOME)},
    },
    {"if": _where("has_llm", {"const": True}), "then": _where("model_role", _TEXT)},
    {
        "if": _where("context_overflow", {"allOf": [{"type": "string"}, {"not": _words(["fail"])}]}),
        "then": _where("max_context_tokens", {"type": "integer"}),
    },
]
_STATE_SCHEMA: Final[_Schema] = {
    "anyOf": [
        {"type": "object", "propertyNames": {"minLength": 1}, "additionalProperties": _words(MergeStrategy)},
        {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["key"],
                "properties": {"key": _TEXT, "merge": _or_null(_words(MergeStrategy))},
            },
        },
    ]
}
_RETRY_SCHEMA: Final[_Schema] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "max_retries": {"type": ["integer", "null"], "minimum": 0, "maximum": RETRY_ATTEMPTS_MAX - 1, "default": 0},
        "initial_ms": {"type": ["number", "null"], "minimum": 0, "maximum": MILLISECONDS_MAX, "default": 1000},
        "max_ms": {"type": ["number", "null"], "minimum": 0, "maximum": MILLISECONDS_MAX, "default": 30000},
        "multiplier": {"type": ["number", "null"], "minimum": 1, "default": 2},
    },
}
_GENERATION_SCHEMA: Final[_Schema] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "stop": _or_null(_TEXTS),
        "repeat_penalty": {"type": ["number", "null"], "minimum": 0},
        "top_p": {"type": ["number", "null"], "minimum": 0},
        "top_k": {"type": ["integer", "null"], "minimum": 0, "maximum": COUNTED_MAX},
        "seed": {"type": ["integer", "null"], "minimum": -COUNTED_MAX, "maximum": COUNTED_MAX},
    },
}


def _also(name: str) -> list[str]:
    """Return the aliases of an end of an edge."""
    return [alias for alias, known in EDGE_ALIASES.items() if known == name]


_MAX_COUNT: Final[_Schema] = {"type": "integer", "minimum": 1, "maximum": COUNTED_MAX}
_EDGES_SCHEMA: Final[_Schema] = {
    "anyOf": [
        {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["max_count"],
                "allOf": [
                    {"oneOf": [{"required": [key]} for key in (name, *_also(name))]}
                    for name in EDGE_KEYS
                    if name != "max_count"
                ],
                "properties": {
                    **{key: {"type": "string"} for key in ("from", "to", *EDGE_ALIASES)},
                    "max_count": _MAX_COUNT,
                },
            },
        },
        {"type": "object", "propertyNames": {"pattern": "->"}, "additionalProperties": _MAX_COUNT},
    ]
}
_RULE_SCHEMA: Final[_Schema] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["target"],
    "properties": {
        "condition": {"type": ["string", "null"], "description": "a key of the stage's output"},
        "value": {"description": "what that key must equal"},
        "expr": {"anyOf": [{"$ref": "#/$defs/expression"}, {"type": "null"}]},
        "target": {**_NAME, "description": "a stage, end, clarification or confirmation"},
    },
    "if": _where("condition", {"type": "string"}),
    "then": {"required": ["value"], "not": _where("expr", {"type": "object"})},
}


def _expression(words: Iterable[str], **parts: _Schema) -> _Schema:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["op", *parts],
        "properties": {"op": _words(words, underscores=True), **parts},
    }


_AN_EXPRESSION: Final[_Schema] = {"$ref": "#/$defs/expression"}
_A_FIELD: Final[_Schema] = {"$ref": "#/$defs/field"}
_EXPRESSION_SCHEMA: Final[_Schema] = {
    "anyOf": [
        _expression(WITH_VALUE, field=_A_FIELD, value={}),
        _expression(("exists", "not_exists"), field=_A_FIELD),
        _expression(JOINING, exprs={"type": "array", "minItems": 1, "items": _AN_EXPRESSION}),
        _expression(("not",), expr=_AN_EXPRESSION),
        _expression(("always",)),
    ],
    "description": "; ".join(f"{op}: {meaning}" for op, meaning in OPS.items()),
}
_OTHER_SCOPES: Final = _words([scope for scope in SCOPES if scope != "agent"], underscores=True)
_FIELD_SCHEMA: Final[_Schema] = {
    "anyOf": [
        {
            "type": "object",
            "additionalProperties": False,
            "required": ["key"],
            "properties": {
                "scope": {**_or_null(_OTHER_SCOPES), "default": "current"},
                "agent": {"type": "null"},
                "key": _TEXT,
            },
        },
        {
            "type": "object",
            "additionalProperties": False,
            "required": ["scope", "agent", "key"],
            "properties": {"scope": _words(["agent"], underscores=True), "agent": _TEXT, "key": _TEXT},
        },
    ],
    "description": "; ".join(f"{scope}: {meaning}" for scope, meaning in SCOPES.items()),
}


# ---------------------------------------------------------------- graph
# A picture of a pipeline: SVG as plain text, from the declaration alone.

_SPECIAL: Final = ("end", "clarification", "confirmation")
_SYMBOLS: Final = {"eq": "=", "neq": "≠", "gt": ">", "lt": "<", "gte": "≥", "lte": "≤"}

_SHAPES: Final = {NodeKind.GATE: "diamond", NodeKind.FORK: "slanted"}
_STYLE: Final = """\
.agent { fill: #eef4ff; stroke: #4a74c9; } .gate { fill: #fff6df; stroke: #c7952b; }
.fork { fill: #efeafc; stroke: #7a5cc4; } .special { fill: #f1f3f5; stroke: #8a94a1; }
"""


class Edge(NamedTuple):
    source: str
    target: str
    label: str = ""
    kind: str = "next"  # next | rule | error | fork | join | requires | after


def edges(config: PipelineConfig) -> list[Edge]:
    """Every edge of a pipeline, in the order declared."""
    if config.default_run_mode is RunMode.PARALLEL:
        return [edge for stage in config.agents for edge in _list_requirements(stage)]
    routes = {stage.name: _routes(stage) for stage in config.agents}
    for fork in config.agents:
        if fork.node_kind is NodeKind.FORK:
            _meet(fork, routes)
    return [edge for outgoing in routes.values() for edge in outgoing]


def _meet(fork: AgentConfig, routes: dict[str, list[Edge]]) -> None:
    """Redirect the ends of a fork's branches: they lead to the stage where the branches join, not to the end."""
    join = fork.default_next or "end"
    label = f"join {fork.join_strategy}"
    ways = [edge.target for edge in routes[fork.name] if edge.kind == "fork"]
    seen: set[str] = set()
    while ways:
        name = ways.pop()
        if name in seen or name == join or name not in routes:
            continue
        seen.add(name)
        routes[name] = [
            edge._replace(target=join, label=edge.label or label, kind="join") if edge.target == "end" else edge
            for edge in routes[name]
        ]
        ways += [edge.target for edge in routes[name]]
    if seen:
        routes[fork.name] = [edge for edge in routes[fork.name] if edge.kind != "join"]


def _list_requirements(stage: AgentConfig) -> list[Edge]:
    label = "any" if stage.join_strategy == "any" and len(stage.requires) > 1 else ""
    requires = [Edge(name, stage.name, label, "requires") for name in stage.requires]
    return requires + [Edge(name, stage.name, "after", "after") for name in stage.after]


def _routes(stage: AgentConfig) -> list[Edge]:
    fork = stage.node_kind is NodeKind.FORK
    outgoing = [Edge(stage.name, name, "", "fork") for name in stage.branches]
    for rule in stage.routing_rules:
        text = _condition_text(rule.expr) if rule.expr is not None else _condition(rule.condition, rule.value)
        outgoing.append(Edge(stage.name, rule.target, text, "fork" if fork else "rule"))
    if stage.default_next:
        outgoing.append(
            Edge(
                stage.name,
                stage.default_next,
                f"join {stage.join_strategy}" if fork else "",
                "join" if fork else "next",
            )
        )
    elif not fork and not any(rule.condition is None and rule.expr is None for rule in stage.routing_rules):
        outgoing.append(Edge(stage.name, "end"))
    if stage.error_next:
        outgoing.append(Edge(stage.name, stage.error_next, "error", "error"))
    return outgoing


def _condition(condition: str | None, value: Any) -> str:
    return "" if condition is None else f"{condition} = {_value(value)}"


def _value(value: Any) -> str:
    return (
        {True: "true", False: "false", None: "null"}[value] if value is None or isinstance(value, bool) else str(value)
    )


def _condition_text(expr: Mapping[str, Any]) -> str:
    op = expr["op"]
    if op == "always":
        return "always"
    if op == "not":
        return f"not ({_condition_text(expr['expr'])})"
    if op in ("and", "or"):
        return f" {op} ".join(_condition_text(part) for part in expr["exprs"])
    field = expr["field"]
    scope = field.get("agent", field["scope"]) if field["scope"] != "current" else ""
    name = f"{scope}.{field['key']}" if scope else str(field["key"])
    if op in ("exists", "not_exists"):
        return f"{name} {op.replace('_', ' ')}"
    return f"{name} {_SYMBOLS.get(op, op)} {_value(expr.get('value'))}"


# ------------------------------------------------------------------ drawing
def svg(config: PipelineConfig) -> str:
    """Return the picture, a whole SVG document."""
    return svg_graph.draw_layers(config.name, nodes(config), arrows(config), style=_STYLE, last=("end",))


def nodes(config: PipelineConfig, classes: Mapping[str, str] | None = None) -> list[svg_graph.GraphNode]:
    """Return the stages, and the places where a pipeline may lead besides them; `classes` are more kinds by name."""
    more = classes or {}
    targets = {edge.target for edge in edges(config)}
    stages = [
        svg_graph.GraphNode(
            stage.name,
            f"{stage.node_kind.value} {more.get(stage.name, '')}".strip(),
            _note(stage),
            _SHAPES.get(stage.node_kind, "box"),
        )
        for stage in config.agents
    ]
    special = [name for name in _SPECIAL if name in targets]
    return stages + [
        svg_graph.GraphNode(name, f"special {more.get(name, '')}".strip(), shape="round") for name in special
    ]


def arrows(config: PipelineConfig, taken: Mapping[tuple[str, str], int] | None = None) -> list[svg_graph.GraphEdge]:
    """Return the edges; `taken` says how often the pipeline went from one stage to another."""
    drawn = []
    for edge in edges(config):
        count = (taken or {}).get((edge.source, edge.target), 0)
        label = f"{edge.label} ×{count}".strip() if count > 1 else edge.label
        kind = ("error" if edge.kind == "error" else "") + (" taken" if count else "")
        drawn.append(svg_graph.GraphEdge(edge.source, edge.target, label, kind.strip()))
    return drawn


def _note(stage: AgentConfig) -> str:
    parts = [stage.model_role] if stage.model_role else []
    parts += [f"≤ {stage.max_visits} visits"] if stage.max_visits is not None else []
    parts += [f"{stage.max_retries} retries"] if stage.max_retries else []
    return " · ".join(parts)
