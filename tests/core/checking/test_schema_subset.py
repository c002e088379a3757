"""The part of a schema that can be checked: what is left out never makes it refuse more."""

from __future__ import annotations

from typing import Any

import pytest

from lyra.core.checking.schema import checkable_part, mismatch, schema_problems


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"not": {"type": "string", "pattern": "^a"}}, "b"),  # not every string is refused
        ({"oneOf": [{"pattern": "^a"}, {"type": "string"}]}, "b"),
        ({"prefixItems": [{"type": "string"}], "items": False}, ["a"]),
        ({"patternProperties": {"^x": {}}, "additionalProperties": False}, {"x1": 1}),
        ({"$ref": "https://example.com/schema.json"}, 1),
        ({"$ref": "#/$defs/none"}, 1),
        ({"not": {"$ref": "#/$defs/none"}}, 1),
    ],
)
def test_it_takes_what_the_whole_schema_takes(schema: dict[str, Any], value: Any) -> None:
    assert mismatch(value, checkable_part(schema)) is None


def test_references_within_the_schema_are_followed() -> None:
    """By any way into it, with the keywords beside them."""
    schema = {
        "type": "object",
        "properties": {
            "size": {"$ref": "#/$defs/a~1b", "maximum": 9},
            "other": {"$ref": "#/properties/size"},
            "next": {"$ref": "#"},
        },
        "$defs": {"a/b": {"type": "integer"}},
    }
    part = checkable_part(schema)
    assert mismatch({"size": 3, "other": 4, "next": {"size": 1}}, part) is None
    assert mismatch({"size": "3"}, part) == "size is string, not integer"
    assert mismatch({"size": 10}, part) == "size is 10, above 9"
    assert mismatch({"other": 10}, part) == "other is 10, above 9"
    assert mismatch({"next": {"next": {"size": "x"}}}, part) == "next.next.size is string, not integer"


def test_a_reference_alone_is_its_target() -> None:
    part = checkable_part({"items": {"$ref": "#/$defs/n", "title": "N"}, "$defs": {"n": {"type": "null"}}})
    assert part == {"items": {"type": "null"}}


def test_schemas_that_double_at_every_step_end() -> None:
    defs = {f"n{i}": {"anyOf": [{"$ref": f"#/$defs/n{i + 1}"}] * 10} for i in range(12)}
    part = checkable_part({"$ref": "#/$defs/n0", "$defs": defs})
    assert not list(schema_problems(part))


def test_mistakes_stay_or_are_left_out() -> None:
    """A schema that a caller wrote is complained about, one of a server is read as far as it goes."""
    schema = {"properties": {"a": {"type": "text"}, "b": {"type": "string"}, "c": 5}, "allOf": 1, "$ref": "#/$defs/x"}
    assert {path for path, _, _ in schema_problems(checkable_part(schema))} == {
        ("properties", "a", "type"),
        ("properties", "c"),
        ("allOf",),
    }
    assert checkable_part(schema, drops_mistakes=True) == {}
    del schema["allOf"]
    part = checkable_part(schema, drops_mistakes=True)
    assert mismatch({"a": 1, "b": "x", "c": []}, part) is None
    assert mismatch({"b": 1}, part) == "b is number, not string"
