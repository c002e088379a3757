"""Rules and expressions: what holds, what does not, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lyra.core.checking.schema import is_equal_json
from lyra.core.limits import PIPELINE_EXPRESSION_DEPTH_MAX
from lyra.kernel.pipelines.routing import (
    OPS,
    Facts,
    condition_holds,
    expression_problems,
    fields_of,
    holds,
    normal_expression,
)
from tests.cases import cases, each

FACTS = Facts(
    current={"score": 7, "tags": ["a", "b"], "text": "hello", "ok": True, "deep": {"x": {"y": 1}}, "none": None},
    outputs={"critic": {"verdict": "pass"}},
    meta={"tier": "gold"},
    interrupt={"approved": True},
    state={"log": [1, 2]},
)


def expr(op, key="score", value=..., scope="current", **more):
    expression = {"op": op, "field": {"scope": scope, "key": key, **more}}
    return expression if value is ... else {**expression, "value": value}


def decide(expression):
    assert not list(expression_problems(expression)), list(expression_problems(expression))
    return holds(normal_expression(expression), FACTS)


@each(
    [
        (expr("eq", value=7), True),
        (expr("eq", value=7.0), True),
        (expr("eq", "ok", 1), False),  # True is no number
        (expr("neq", value=8), True),
        (expr("neq", "missing", 8), False),  # what is not there differs from nothing
        (expr("eq", "missing", None), False),
        (expr("eq", "none", None), True),
        (expr("gt", value=6), True),
        (expr("gte", value=7), True),
        (expr("lt", value=7), False),
        (expr("lte", value=7), True),
        (expr("gt", "text", 1), False),  # no number
        (expr("gt", "ok", 0), False),
        (expr("gt", value="6"), False),
        (expr("contains", "tags", "a"), True),
        (expr("contains", "text", "ell"), True),
        (expr("contains", "deep", "x"), True),
        (expr("contains", "score", 7), False),
        (expr("exists", "deep.x.y"), True),
        (expr("not_exists", "deep.x.z"), True),
        (expr("Exists"), True),
        (expr("NotExists"), False),
        (expr("eq", "verdict", "pass", scope="agent", agent="critic"), True),
        (expr("eq", "verdict", "pass", scope="Agent", agent="missing"), False),
        (expr("eq", "tier", "gold", scope="meta"), True),
        (expr("eq", "approved", True, scope="interrupt"), True),
        (expr("eq", "log", [1, 2], scope="state"), True),
        ({"op": "and", "exprs": [expr("gt", value=1), expr("lt", value=9)]}, True),
        ({"op": "or", "exprs": [expr("gt", value=9), expr("lt", value=9)]}, True),
        ({"op": "not", "expr": expr("exists", "missing")}, True),
        ({"op": "always"}, True),
    ]
)
def test_expressions(expression, expected):
    """Each op and each scope, at its edges."""
    assert decide(expression) is expected


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("x", "a mapping with an op"),
        ({}, "no op"),
        ({"op": "equals"}, "no op 'equals'"),
        (expr("eq"), "needs value"),
        ({"op": "eq", "value": 1}, "needs field"),
        (expr("eq", value=1, scope="curent"), "no scope"),
        (expr("eq", value=1, scope="agent"), "needs agent"),
        (expr("exists", ""), "needs key"),
        ({"op": "and", "exprs": []}, "at least one"),
        ({"op": "not", "expr": {"op": "nope"}}, "no op 'nope'"),
        ({"op": "always", "value": 1}, "no setting 'value'"),
        (expr("eq", value=1, agent="a"), "no setting 'agent'"),
    ],
)
def test_what_is_refused(expression, words):
    """A mistake is found before the pipeline runs, with its path."""
    problems = list(expression_problems(expression, ("at",)))
    assert any(words in problem.message for problem in problems), problems
    assert all(problem.path[0] == "at" for problem in problems)


def test_depth_is_bounded():
    """Sixteen levels hold, seventeen do not."""
    expression: dict[str, object] = {"op": "always"}
    for _ in range(15):
        expression = {"op": "not", "expr": expression}
    assert not list(expression_problems(expression))
    assert "levels deep" in next(iter(expression_problems({"op": "not", "expr": expression}))).message


def test_conditions():
    """A plain rule compares one key of the output; without a condition it holds."""
    assert condition_holds(None, None, {})
    assert condition_holds("a.b", 1, {"a": {"b": 1.0}})
    assert not condition_holds("a", None, {})
    assert not condition_holds("a", 1, {"a": True})


_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["a", "b", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=5,
)


@settings(max_examples=cases(80), deadline=None)
@given(st.sampled_from([op for op in OPS if op not in ("and", "or", "not", "always")]), _values, _values)
def test_deciding_never_raises(op, content, value):
    """Whatever stands in a field and a value: true or false; and eq is never what neq is."""
    facts = FACTS._replace(current={"k": content})
    outcome = holds(normal_expression({"op": op, "field": {"key": "k"}, "value": value}), facts)
    assert isinstance(outcome, bool)
    assert is_equal_json(content, content)
    if op == "eq":
        assert outcome is not holds({"op": "neq", "field": {"scope": "current", "key": "k"}, "value": value}, facts)


def test_fields_are_found_as_deep_as_an_expression_may_be():
    field = {"scope": "state", "key": "x"}
    expression: dict[str, Any] = {"op": "exists", "field": field}
    for _ in range(PIPELINE_EXPRESSION_DEPTH_MAX - 1):
        expression = {"op": "not", "expr": expression}
    assert [found for _, found in fields_of(expression)] == [field]
    assert list(fields_of({"op": "not", "expr": expression})) == []
