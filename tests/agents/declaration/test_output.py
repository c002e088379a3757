"""Types that an answer may have: pydantic's anywhere, unions, plain words, and schemas that are kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

import lyra
from lyra import Agent
from lyra.agents.declaration.output import AnswerType
from lyra.errors import AgentFailed, ConfigError
from tests.agents.support import says

pydantic = pytest.importorskip("pydantic")


class Point(pydantic.BaseModel):  # type: ignore[misc,name-defined]
    x: int


class Line(pydantic.BaseModel):  # type: ignore[misc,name-defined]
    start: Point
    end: Point


@dataclass
class Cat:
    lives: int


@dataclass
class Dog:
    tricks: list[str]


@dataclass
class Owner:
    place: Point
    home: Line | None = None


@dataclass
class Strict:
    n: int

    def __post_init__(self) -> None:
        if self.n < 0:
            raise RuntimeError("n is below zero")


def read(wanted: Any, *answers: str) -> Any:
    return lyra.run(Agent("reader", model=says(*answers), output=wanted), "go")


LINE = '{"start": {"x": 1}, "end": {"x": 2}}'


@pytest.mark.parametrize(
    ("wanted", "answer", "value"),
    [
        (list[Point], '{"value": [{"x": 1}]}', [Point(x=1)]),
        (Point | None, '{"value": null}', None),
        (Point | None, '{"value": {"x": 1}}', Point(x=1)),
        (dict[str, Line], f'{{"a": {LINE}}}', {"a": Line(start=Point(x=1), end=Point(x=2))}),
        (Owner, f'{{"place": {{"x": 1}}, "home": {LINE}}}', Owner(Point(x=1), Line(start=Point(x=1), end=Point(x=2)))),
        (Cat | Dog, '{"value": {"tricks": ["sit"]}}', Dog(["sit"])),
        (Cat | Dog, '{"lives": 9}', Cat(9)),
        (Line | Point, '{"value": {"x": 1}}', Point(x=1)),
        (Line | Cat | None, '{"value": null}', None),
        (str, "plain words", "plain words"),
        (str, '{"value": "wrapped"}', "wrapped"),
        (str, "Use this:\n```json\n{}\n```", "Use this:\n```json\n{}\n```"),
    ],
)
def test_an_answer_may_have_any_of_these_types(wanted: Any, answer: str, value: Any) -> None:
    """Pydantic models inside other types, unions that msgspec cannot tell apart, and text as it stands."""
    assert read(wanted, answer) == value


@pytest.mark.parametrize("wanted", [list[Line], Owner, Line | Cat, dict[str, Line], Line])
def test_every_reference_of_a_schema_leads_somewhere(wanted: Any) -> None:
    """A provider that is sent the schema finds each part that it refers to."""
    schema = AnswerType.from_value(wanted).schema

    def references(part: Any) -> list[str]:
        if isinstance(part, list):
            return [name for item in part for name in references(item)]
        if not isinstance(part, dict):
            return []
        own = [part["$ref"]] if isinstance(part.get("$ref"), str) else []
        return own + [name for value in part.values() for name in references(value)]

    names = references(schema)
    assert names
    assert all(name.removeprefix("#/$defs/") in schema["$defs"] for name in names)


def test_what_is_wrong_is_said_in_a_sentence() -> None:
    """The model is told where and what, without the addresses of a library's report; also when a type raises."""
    model = says('{"value": [{"x": "no"}]}', '{"value": [{"x": 2}]}')
    assert lyra.run(Agent("reader", model=model, output=list[Point]), "go") == [Point(x=2)]
    feedback = model.requests[-1].messages[-1].text
    assert "x: Input should be a valid integer" in feedback
    assert "http" not in feedback
    assert "\n" not in feedback
    assert read(Strict, '{"n": -1}', '{"n": 1}') == Strict(1)


@pytest.mark.parametrize("wanted", [object(), complex, list[Cat | Dog]])
def test_a_type_without_a_schema_is_refused_in_our_words(wanted: Any) -> None:
    """The error names the type and what to use instead, not the hooks of a library."""
    with pytest.raises(ConfigError) as refused:
        Agent("reader", model="sim/echo", output=wanted)
    assert "no JSON schema" in refused.value.message
    assert "pydantic model" in str(refused.value.hint)
    assert "hook" not in f"{refused.value} {refused.value.hint}"
    assert "tagged" not in refused.value.message


# ---------------------------------------------------------------------- schemas


WANTED = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def test_a_schema_is_kept() -> None:
    """An answer that does not fit the mapping is asked for again, and fails where it never fits."""
    assert read(WANTED, '{"a": "x"}', '{"a": 1}') == {"a": 1}
    with pytest.raises(AgentFailed) as failed:
        read(WANTED, '{"a": "x"}')
    assert failed.value.fields["status"] == "output_invalid"
    assert "a is string, not integer" in failed.value.message


NAMED = {
    "type": "object",
    "properties": {"tree": {"$ref": "#/$defs/Tree"}},
    "required": ["tree"],
    "$defs": {
        "Tree": {
            "type": "object",
            "properties": {"v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}},
            "required": ["v"],
        }
    },
}


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (NAMED, '{"tree": {"v": 1, "kids": [{"v": 2}]}}', '{"tree": {"v": 1, "kids": [{"v": "x"}]}}'),
        ({"type": "object", "properties": {"a": {"type": "string", "pattern": "^b"}}}, '{"a": "x"}', '{"a": 1}'),
        (
            {"type": "object", "patternProperties": {"^x": {}}, "additionalProperties": False, "required": ["a"]},
            '{"a": 1, "x1": 2}',
            '{"x1": 2}',
        ),
        ({"type": "object", "required": ["b"], "not": {"pattern": "^b"}}, '{"b": 1}', "{}"),
        ({"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}}, '["a", 1]', '{"a": 1}'),
    ],
)
def test_of_a_larger_schema_what_can_be_checked_is(schema: dict[str, Any], good: str, bad: str) -> None:
    """References are followed; a keyword that is not checked never refuses an answer."""
    output = AnswerType.from_value(schema)
    output.read(good)
    with pytest.raises(ValueError, match="does not fit"):
        output.read(bad)


def test_a_schema_with_a_mistake_is_refused() -> None:
    """When the agent is made, with the place of the mistake."""
    with pytest.raises(ConfigError, match=r"properties\.a\.type"):
        Agent("reader", model="sim/echo", output={"type": "object", "properties": {"a": {"type": "integr"}}})
