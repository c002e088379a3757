"""JSON Schema: what fits, what does not and where, and every mistake of a schema itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lyra.core.checking.schema import KEYWORDS, mismatch, schema_problems
from lyra.core.limits import SCHEMA_DEPTH_MAX

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("schema", "fits", "does_not", "words"),
    [
        ({"type": "object"}, {}, [], "the value is array, not object"),
        ({"type": ["string", "null"]}, None, 1, "number, not string or null"),
        ({"type": "integer"}, 3.0, 3.5, "not integer"),
        ({"type": "number"}, 3, True, "boolean, not number"),
        ({"type": "boolean"}, False, 0, "not boolean"),
        (PERSON, {"name": "a", "age": 1}, {"age": 1}, "the value has no name"),
        (PERSON, {"name": "a"}, {"name": "a", "age": -1}, "age is -1, below 0"),
        (PERSON, {"name": "a"}, {"name": "a", "x": 1}, "x may not be there"),
        ({"additionalProperties": {"type": "string"}}, {"x": "y"}, {"x": 1}, "x is number"),
        ({"items": {"properties": {"x": {"type": "string"}}}}, [{"x": "y"}], [{}, {"x": 1}], "[1].x is number"),
        ({"minItems": 1}, [1], [], "needs 1"),
        ({"maxItems": 1}, [1], [1, 2], "may have 1"),
        ({"minLength": 2}, "ab", "a", "1 characters"),
        ({"maxLength": 2}, "ab", "abc", "may have 2"),
        ({"minimum": 2}, 2, 1, "below 2"),
        ({"maximum": 2}, 2, 3, "above 2"),
        ({"exclusiveMinimum": 2}, 3, 2, "not above 2"),
        ({"exclusiveMaximum": 2}, 1, 2, "not below 2"),
        ({"enum": ["a", 1]}, 1.0, True, "none of 'a', 1"),
        ({"const": {"x": [1]}}, {"x": [1]}, {"x": [2]}, "is not {'x': [1]}"),
        ({"anyOf": [{"type": "string"}, {"minimum": 3}]}, 3, 2, "none of the schemas"),
        ({"oneOf": [{"minimum": 1}, {"minimum": 3}]}, 2, 4, "fits 2 of"),
        ({"allOf": [{"minimum": 1}, {"maximum": 3}]}, 2, 4, "above 3"),
        ({"not": {"type": "string"}}, 1, "x", "what it may not"),
        ({"properties": {"x": True, "y": False}}, {"x": 1}, {"y": 1}, "y may not be there"),
        ({"properties": {"x": {"type": "string"}}}, [], {"x": 1}, "x is number"),  # of an object, if it is one
        ({"minimum": 2, "minLength": 2, "minItems": 2}, None, 1, "below 2"),
    ],
)
def test_each_keyword(schema, fits, does_not, words):
    """One value that fits, one that does not, and the place in the sentence."""
    assert list(schema_problems(schema)) == []
    assert mismatch(fits, schema) is None
    assert words in (mismatch(does_not, schema) or "")


def test_every_keyword_of_the_table_is_checked():
    """A value can be found that each of them refuses."""
    refuses = {
        "type": ("string", 1),
        "properties": ({"a": False}, {"a": 1}),
        "required": (["a"], {}),
        "additionalProperties": (False, {"a": 1}),
        "items": (False, [1]),
        "minItems": (1, []),
        "maxItems": (0, [1]),
        "minLength": (1, ""),
        "maxLength": (0, "a"),
        "minimum": (1, 0),
        "maximum": (0, 1),
        "exclusiveMinimum": (0, 0),
        "exclusiveMaximum": (0, 0),
        "enum": ([1], 2),
        "const": (1, 2),
        "anyOf": ([{"const": 1}], 2),
        "oneOf": ([{"const": 1}], 2),
        "allOf": ([{"const": 1}], 2),
        "not": ({"const": 1}, 1),
    }
    assert set(refuses) == set(KEYWORDS)
    for keyword, (operand, value) in refuses.items():
        assert mismatch(value, {keyword: operand}) is not None, keyword


@pytest.mark.parametrize(
    ("schema", "path", "words"),
    [
        ([], (), "a mapping"),
        (True, (), "a mapping"),
        ({"tpye": "string"}, ("tpye",), "no keyword"),
        ({"$ref": "#"}, ("$ref",), "no keyword"),
        ({"pattern": "(a+)+$"}, ("pattern",), "no keyword"),
        ({"type": "text"}, ("type",), "one of object"),
        ({"type": []}, ("type",), "one of object"),
        ({"properties": []}, ("properties",), "each key"),
        ({"properties": {"a": {"type": 1}}}, ("properties", "a", "type"), "one of object"),
        ({"required": "a"}, ("required",), "must have"),
        ({"items": 3}, ("items",), "a mapping"),
        ({"minItems": -1}, ("minItems",), "at least"),
        ({"maxLength": 1.5}, ("maxLength",), "at most"),
        ({"minimum": "1"}, ("minimum",), "above"),
        ({"enum": []}, ("enum",), "one of these"),
        ({"anyOf": []}, ("anyOf",), "at least one"),
        ({"oneOf": [{"x": 1}]}, ("oneOf", 0, "x"), "no keyword"),
    ],
)
def test_mistakes_of_a_schema(schema, path, words):
    """Each with its path; what is not checked here is refused, not passed over."""
    problems = list(schema_problems(schema))
    assert any(where == path and words in message for where, message, _ in problems), problems


def test_a_slip_of_the_finger_gets_its_hint():
    """The nearest keyword is offered."""
    assert [hint for _, _, hint in schema_problems({"requierd": []})] == ["did you mean 'required'?"]


def test_depth_is_bounded():
    """A schema without end is refused before anything follows it."""
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(SCHEMA_DEPTH_MAX):
        deep = {"items": deep}
    assert any("levels deep" in message for _, message, _ in schema_problems(deep))


_values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)
_schemas = st.recursive(
    st.dictionaries(st.sampled_from([*KEYWORDS, "title", "x"]), _values, max_size=3),
    lambda inner: st.dictionaries(st.sampled_from(["items", "not", "additionalProperties"]), inner, max_size=2),
    max_leaves=5,
)


@given(_schemas, _values)
def test_a_schema_has_mistakes_or_decides(schema, value):
    """Checking never raises, and a schema without mistakes never raises on any value."""
    if not list(schema_problems(schema)):
        wrong = mismatch(value, schema)
        assert wrong != ""
        assert (mismatch(value, {"not": schema}) is None) == (wrong is not None)
