"""Tools out of functions: methods, hints that cannot be looked up, pydantic parameters, and what is refused."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypedDict

import pytest

from lyra import Agent, tool
from lyra.errors import ConfigError, ToolError

pydantic = pytest.importorskip("pydantic")

if TYPE_CHECKING:
    from nowhere import Nope  # type: ignore[import-not-found]


class Point(pydantic.BaseModel):  # type: ignore[misc,name-defined]
    x: int


class Line(pydantic.BaseModel):  # type: ignore[misc,name-defined]
    start: Point


class Shop:
    def __init__(self, stock: int) -> None:
        self.stock = stock

    @tool
    def left(self, sold: int) -> int:
        """What is left."""
        return self.stock - sold

    @tool(name="later", idempotent=True)
    async def soon(self, sold: int) -> int:
        """The same, later."""
        return self.stock - sold

    def plain(self, sold: int) -> int:
        return self.stock - sold

    @tool
    @staticmethod
    def twice(number: int) -> int:
        return 2 * number


def test_a_tool_of_a_method_runs_with_its_object() -> None:
    """`self` is nothing that a model is asked for; each object has its own."""
    few, many = Shop(3), Shop(30)
    agent = Agent("a", model="sim/echo", tools=[few.left, few.soon, few.plain, few.twice])
    assert [tool_.schema["required"] for tool_ in agent.toolbox] == [["sold"], ["sold"], ["sold"], ["number"]]
    assert [shop.left.run(sold=1) for shop in (few, many) if shop.left.run is not None] == [2, 29]
    assert few.left(1) == 2
    assert few.left.description == "What is left."
    assert (few.soon.name, few.soon.idempotent, getattr(few.soon.run, "is_async", False)) == ("later", True, True)


@pytest.mark.parametrize("value", [Shop.left, Shop.plain])
def test_a_method_without_an_object_is_refused(value: Any) -> None:
    """Nothing says on which object it would run."""
    with pytest.raises(ConfigError, match="without its object"):
        Agent("a", model="sim/echo", tools=[value])


def test_a_hint_that_cannot_be_looked_up_is_refused() -> None:
    """A parameter without its type would take anything."""

    def look(count: int, thing: Nope, word: str = "x") -> None:
        """Look."""

    with pytest.raises(ConfigError, match=r"'thing' of type 'Nope', which cannot be looked up"):
        tool(look)


def test_a_hint_of_an_enclosing_function_is_found() -> None:
    """As far as the function holds on to it, and also while it is not whole itself."""

    class Pair(TypedDict):
        left: int

    @tool
    def inner(pair: Pair, depth: int = 0) -> Any:
        """Itself, and its type."""
        return inner, Pair

    assert inner.schema["properties"]["pair"] == {"$ref": "#/$defs/Pair"}
    assert inner.schema["properties"]["depth"]["type"] == "integer"


def test_partial_functions_and_objects_keep_their_hints() -> None:
    """What stands for a function is looked up where the function is."""

    class Adder:
        def __call__(self, number: int) -> int:
            return number + 1

    rest = tool(functools.partial(_add, right=2), name="add_two")
    assert rest.schema["properties"]["left"] == {"type": "integer"}
    assert tool(Adder(), name="adder").schema["properties"] == {"number": {"type": "integer"}}


def _add(left: int, right: int) -> int:
    return left + right


def test_parameters_may_be_pydantic_models() -> None:
    """Also inside other types; what is wrong is said without the library's addresses."""

    def draw(lines: list[Line], centre: Point | None = None) -> Any:
        """Draw."""
        return lines, centre

    draw_tool = tool(draw)
    assert draw_tool.run is not None
    assert draw_tool.run(lines=[{"start": {"x": 1}}], centre={"x": 2}) == ([Line(start=Point(x=1))], Point(x=2))
    assert draw_tool.schema["$defs"]["Line.Point"]["required"] == ["x"]
    with pytest.raises(ToolError) as wrong:
        draw_tool.run(lines=[{"start": {"x": "no"}}])
    assert "start.x: Input should be a valid integer" in wrong.value.message
    assert "http" not in wrong.value.message


def test_a_parameter_that_no_model_can_fill_in_is_named() -> None:
    """In our words."""

    def draw(count: int, shape: Line | Point) -> None:
        """Draw."""

    with pytest.raises(ConfigError, match="shape") as refused:
        tool(draw)
    assert "union" in str(refused.value.hint)
    assert "hook" not in refused.value.message


def test_generators_are_refused() -> None:
    """A tool gives one value."""

    def some() -> Any:
        yield 1

    async def more() -> Any:
        yield 1

    for function in (some, more):
        with pytest.raises(ConfigError, match="generator"):
            tool(function)
