"""The published schema and the kernel's check say the same of everything that can be said of one place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from lyra.core.limits import COUNTED_MAX
from lyra.kernel.pipelines.check import problems
from lyra.kernel.pipelines.declaration import PipelineConfig
from lyra.kernel.pipelines.schema import json_schema
from tests.cases import each

SCHEMA = json_schema()
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}
SAID = {"$schema", "$defs", "title", "description", "default"}


def is_type(value: Any, word: str) -> bool:
    if word in ("integer", "number"):
        real = isinstance(value, (int, float)) and not isinstance(value, bool)
        return real and (word == "number" or value == int(value))
    return isinstance(value, TYPES[word])


def fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Whether a value fits, as a validator of JSON Schema sees it: all keywords that the schema uses, and no others."""
    return all(keyword in SAID or CHECKS[keyword](value, operand, schema) for keyword, operand in schema.items())


def ref(value, operand, _schema):
    part_schema: Any = SCHEMA
    for part in operand.removeprefix("#/").split("/"):
        part_schema = part_schema[part]
    return fits(value, part_schema)


def others(value, operand, schema):
    known = schema.get("properties", {})
    left = [key for key in value if key not in known] if isinstance(value, dict) else []
    return all(operand is not False and fits(value[key], operand) for key in left)


def number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


CHECKS = {
    "$ref": ref,
    "type": lambda value, operand, _: any(
        is_type(value, word) for word in ([operand] if isinstance(operand, str) else operand)
    ),
    "enum": lambda value, operand, _: value in operand,
    "const": lambda value, operand, _: value is operand,
    "required": lambda value, operand, _: not isinstance(value, dict) or all(key in value for key in operand),
    "properties": lambda value, operand, _: (
        not isinstance(value, dict) or all(fits(value[key], inner) for key, inner in operand.items() if key in value)
    ),
    "additionalProperties": others,
    "propertyNames": lambda value, operand, _: not isinstance(value, dict) or all(fits(key, operand) for key in value),
    "items": lambda value, operand, _: not isinstance(value, list) or all(fits(item, operand) for item in value),
    "minItems": lambda value, operand, _: not isinstance(value, list) or len(value) >= operand,
    "maxItems": lambda value, operand, _: not isinstance(value, list) or len(value) <= operand,
    "minLength": lambda value, operand, _: not isinstance(value, str) or len(value) >= operand,
    "maxLength": lambda value, operand, _: not isinstance(value, str) or len(value) <= operand,
    "pattern": lambda value, operand, _: not isinstance(value, str) or re.search(operand, value) is not None,
    "minimum": lambda value, operand, _: not number(value) or value >= operand,
    "maximum": lambda value, operand, _: not number(value) or value <= operand,
    "exclusiveMinimum": lambda value, operand, _: not number(value) or value > operand,
    "allOf": lambda value, operand, _: all(fits(value, option) for option in operand),
    "anyOf": lambda value, operand, _: any(fits(value, option) for option in operand),
    "oneOf": lambda value, operand, _: sum(fits(value, option) for option in operand) == 1,
    "not": lambda value, operand, _: not fits(value, operand),
    "if": lambda value, operand, schema: fits(value, schema.get("then" if fits(value, operand) else "else", {})),
    "then": lambda *_: True,
    "else": lambda *_: True,
}


def stage(**more: Any) -> dict[str, Any]:
    return {"name": "p", "agents": [{"name": "a", **more}, {"name": "b"}]}


def rule(**more: Any) -> dict[str, Any]:
    return stage(routing_rules=[{"target": "b", **more}])


def expr(**more: Any) -> dict[str, Any]:
    return rule(expr=more)


def whole(**more: Any) -> dict[str, Any]:
    return {**stage(), **more}


FIELD = {"key": "x"}
GOOD = [
    stage(),
    {"name": "p", "stages": [{"name": "a"}]},
    stage(node_kind="GATE", default_next="b"),
    stage(node_kind="Fork", branches=["b"]),
    stage(node_kind="fork", routing=[{"target": "b"}]),
    stage(node_kind=None, branches=[], agent=None, requires=None, max_tokens=None, retry_policy=None, generation=None),
    stage(max_tokens=3.0, max_visits=COUNTED_MAX, timeout_seconds=0.5),
    stage(has_llm=True, model_role="big"),
    stage(context_overflow="Truncate_Oldest", max_context_tokens=5),
    stage(context_overflow="FAIL"),
    stage(retry_policy={"max_retries": 2, "initial_ms": None}),
    stage(generation={"stop": None, "seed": -5, "top_k": 3}),
    stage(generation={"seed": -(2**53), "top_k": 2**53}),
    stage(output_schema={"type": "object"}),
    rule(),
    rule(condition="x", value=None),
    rule(condition=None, expr=None),
    expr(op="Eq", field=FIELD, value=1),
    expr(op="NotExists", field={"scope": "META", "key": "x"}),
    expr(op="exists", field={"scope": None, "agent": None, "key": "x"}),
    expr(op="eq", field={"scope": "agent", "agent": "b", "key": "x"}, value=None),
    expr(op="and", exprs=[{"op": "not", "expr": {"op": "always"}}]),
    whole(run_mode="Parallel"),
    whole(edge_limit=[{"from_stage": "a", "to": "b", "max_count": 1}]),
    whole(edge_limits={"a->b": 2}),
    whole(edge_limits=None, state_schema=None, default_run_mode=None, max_iterations=None),
    whole(state_schema={"x": "APPEND"}),
    whole(state_schema=[{"key": "x", "merge": "merge_dict"}, {"key": "y", "merge": None}, {"key": "z"}]),
]
BAD = [
    {},
    {"name": "", "agents": [{"name": "a"}]},
    {"name": "p", "agents": []},
    {"name": "p", "agents": None},
    {"name": "p", "agents": [{"name": "a"}], "stages": [{"name": "a"}]},
    {"name": "p", "agents": [{"name": ""}]},
    {"name": "p", "agents": [{"name": "end"}]},
    {"name": "p", "agents": [{}]},
    {"name": "p", "agents": [{"name": "a"}], "nmae": 1},
    stage(node_kind="fork"),
    stage(node_kind="fork", branches=[], routing_rules=[]),
    stage(branches=["b"]),
    stage(node_kind="gates"),
    stage(max_tokens=3.5),
    stage(max_tokens=True),
    stage(max_visits=10**20),
    stage(max_visits=0),
    stage(max_retries=10**9),
    stage(timeout_seconds=0),
    stage(timeout_seconds=10**10),
    stage(has_llm=True),
    stage(has_llm=True, model_role=None),
    stage(context_overflow="truncate_oldest"),
    stage(context_overflow="truncate_oldest", max_context_tokens=None),
    stage(retry_policy={"max_retries": -1}),
    stage(generation={"top_k": 10**20}),
    stage(generation={"top_k": 2**53 + 1}),
    rule(condition="x"),
    rule(condition="x", value=1, expr={"op": "always"}),
    rule(target=""),
    expr(op="eq", value=1),
    expr(op="eq", field=FIELD),
    expr(op="exists", field=FIELD, value=1),
    expr(op="not"),
    expr(op="and", exprs=[]),
    expr(op="equals", field=FIELD, value=1),
    expr(op="eq", field={"scope": "agent", "key": "x"}, value=1),
    expr(op="eq", field={"scope": "agent", "agent": None, "key": "x"}, value=1),
    expr(op="eq", field={"scope": "meta", "agent": "b", "key": "x"}, value=1),
    expr(op="eq", field={"key": ""}, value=1),
    whole(edge_limits=[{"from": "a", "to": "b"}]),
    whole(edge_limits=[{"from": "a", "source": "a", "to": "b", "max_count": 1}]),
    whole(edge_limits={"a->b": 0}),
    whole(edge_limits={"a b": 1}),
    whole(state_schema={"": "append"}),
    whole(state_schema={"x": "add"}),
    whole(state_schema=[{"key": "x", "merges": "append"}]),
    whole(max_iterations="3"),
]


@pytest.mark.parametrize("declared", GOOD)
def test_both_accept(declared):
    assert fits(declared, SCHEMA)
    assert list(problems(declared)) == []
    PipelineConfig.of(declared)


@each(BAD)
def test_both_refuse(declared):
    assert not fits(declared, SCHEMA)
    assert list(problems(declared)) != []


def test_a_number_that_is_too_large_is_told_the_bound():
    (problem,) = problems(stage(max_visits=10**20))
    assert str(COUNTED_MAX) in problem.message
