"""pydantic's models wherever a value goes: tools, helpers, teams, pipelines, effects, programs, after a restart."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import pytest

import lyra
from lyra import Agent, Context, Kernel, tool
from lyra.agents.declaration.output import text_of
from lyra.errors import ConfigError, ToolError
from tests.agents.support import calls, says

pydantic = pytest.importorskip("pydantic")
Field = pydantic.Field


class Item(pydantic.BaseModel):  # type: ignore[misc,name-defined]
    name: str
    price: Decimal
    since: date


class Order(pydantic.BaseModel):  # type: ignore[misc,name-defined]
    model_config = pydantic.ConfigDict(strict=True)

    items: list[Item]
    note: str = pydantic.Field("", alias="remark")


class Other(pydantic.BaseModel):  # type: ignore[misc,name-defined]
    wings: int


@dataclass
class Box:
    order: Order


ITEM = {"name": "bread", "price": "2.50", "since": "2026-01-02"}


def order() -> Order:
    return Order(items=[Item(name="bread", price=Decimal("2.50"), since=date(2026, 1, 2))], remark="soon")


async def fetch(number: int) -> Order:
    return order()


async def fetch_box(number: int) -> Box:
    return Box(order())


async def either(number: int) -> Order | Other:
    return Other(wings=2) if number else order()


async def child(ctx: Context, sent: Order, box: Box) -> list[Order]:
    assert sent == order()
    assert box == Box(order())
    return [sent]


async def parent(ctx: Context) -> Box:
    assert await ctx.do(fetch, 1) == order()
    assert await ctx.do(fetch_box, 1) == Box(order())
    assert [await ctx.do(either, 0), await ctx.do(either, 1)] == [order(), Other(wings=2)]
    ended = await ctx.spawn(child, order(), Box(order())).wait()
    assert ended.error is None, ended.error
    assert ended.result == [order()]
    await ctx.receive()
    return Box(ended.result[0])


@pytest.mark.parametrize("store", ["memory", "run.db"])
def test_effects_and_programs_give_models(store: str, tmp_path: Any) -> None:
    """Nested ones, unions, arguments and results; the same after a restart, and for a reader after the end."""
    path = store if store == "memory" else tmp_path / store

    async def first() -> Any:
        async with Kernel(path, programs=[parent, child]) as kernel:
            handle = kernel.spawn(parent, pid="p")
            while handle.state != "waiting" and handle.alive:
                await asyncio.sleep(0)
            if store == "memory":
                await handle.send("go")
                return (await handle.wait()).result
            return None

    async def second(message: str | None) -> Any:
        async with Kernel(path, programs=[parent, child]) as kernel:
            handle = kernel.spawn(parent, pid="p")
            if message:
                await handle.send(message)
            ended = await handle.wait()
            assert ended.error is None, ended.error
            return ended.result

    if store == "memory":
        assert asyncio.run(first()) == Box(order())
        return
    asyncio.run(first())
    assert asyncio.run(second("go")) == Box(order())
    assert asyncio.run(second(None)) == Box(order())


def test_a_tool_that_gives_a_model_shows_its_json(tmp_path: Any) -> None:
    """To the model; alone, in a list, and with a store."""

    @tool
    def shop() -> Order:
        """Shop."""
        return order()

    @tool
    async def shops() -> list[Order]:
        """Shops."""
        return [order()]

    for options in ({}, {"store": str(tmp_path / "a.db")}):
        model = says({"tool_calls": [{"name": "shop"}, {"name": "shops"}]}, "done")
        assert lyra.run(Agent("a", model=model, tools=[shop, shops]), "go", **options) == "done"  # type: ignore[arg-type]
        outputs = [json.loads(result.output) for result in model.requests[-1].messages[-1].tool_results]
        assert outputs == [{"items": [ITEM], "remark": "soon"}, [{"items": [ITEM], "remark": "soon"}]]


def test_helpers_teams_and_pipelines_pass_models_on() -> None:
    """As JSON to the next agent, as a mapping in an envelope."""
    answer = json.dumps({"items": [ITEM], "remark": "soon"})
    clerk = Agent("clerk", model=says(answer), output=Order)
    assert json.loads(text_of(order())) == {"items": [ITEM], "remark": "soon"}
    reader = says("read")
    assert asyncio.run(_through(clerk, Agent("reader", model=reader))) == "read"
    assert json.loads(reader.requests[0].messages[-1].text) == json.loads(answer)
    lead_model = says(calls("clerk", task="order"), "ok")
    assert lyra.run(Agent("lead", model=lead_model, tools=[clerk]), "go") == "ok"
    assert json.loads(lead_model.requests[-1].messages[-1].tool_results[0].output) == json.loads(answer)

    async def main() -> Any:
        async with Kernel() as kernel:
            kernel.register_agent("clerk", stage)
            declared = {"name": "p", "agents": [{"name": "clerk"}]}
            return [event async for event in kernel.execute_pipeline(declared, {"raw_input": "hello"})][-1].envelope

    envelope = asyncio.run(main())
    assert envelope.outputs["clerk"] == {"items": [ITEM], "remark": "soon"}


async def stage(envelope: Any) -> Order:
    return order()


async def _through(*stages: Agent[Any]) -> Any:
    return await lyra.pipeline(*stages)("go")


def test_constraints_of_pydantic_and_msgspec_are_enforced() -> None:
    """They are in the schema, for a parameter itself and inside of other types."""

    @dataclass
    class Inside:
        count: Annotated[int, Field(gt=3)]

    @tool
    def pick(
        a: Annotated[int, Field(gt=3, description="how many")],
        b: Annotated[int, msgspec.Meta(ge=2, description="how long")] = 2,
        c: list[Annotated[str, Field(max_length=2)]] = [],  # noqa: B006 - copied for each call
        d: Inside | None = None,
    ) -> Any:
        """Pick."""
        return a, b, c, d

    properties = pick.schema["properties"]
    assert properties["a"]["description"] == "how many"
    assert properties["b"]["description"] == "how long"
    assert "exclusiveMinimum" in json.dumps(pick.schema)
    assert pick.run is not None
    assert pick.run(a=4, b=2, c=["ab"], d={"count": 4}) == (4, 2, ["ab"], Inside(4))
    assert pick.run(a=4) == (4, 2, [], None)
    for wrong in ({"a": 3}, {"a": 4, "b": 1}, {"a": 4, "c": ["abc"]}, {"a": 4, "d": {"count": 3}}):
        with pytest.raises(ToolError, match="bad arguments for pick"):
            pick.run(**wrong)
    agent = Agent("a", model=says('{"count": 3}', '{"count": 5}'), output=Inside)
    assert lyra.run(agent, "go") == Inside(5)
    with pytest.raises(ConfigError, match="pydantic's constraints") as refused:
        tool(_struct)
    assert "msgspec.Meta" in str(refused.value.hint)


class Odd(msgspec.Struct):
    count: Annotated[int, Field(gt=3)]


def _struct(odd: Odd) -> None:
    """Odd."""


def test_local_classes_are_found_or_the_tool_is_refused() -> None:
    """Under `from __future__ import annotations`; a model's arguments never reach a function unchecked."""

    class Local(pydantic.BaseModel):  # type: ignore[misc,name-defined]
        size: int

    def inner() -> Any:
        @tool
        def take(local: Local) -> int:
            """Take."""
            return int(local.size)

        return take

    take = inner()
    assert take.run(local={"size": 3}) == 3
    with pytest.raises(ToolError):
        take.run(local={"size": "x"})

    def lost(local: Gone) -> None:  # type: ignore[name-defined]  # noqa: F821 - that is the test
        """Lost."""

    with pytest.raises(ConfigError, match="cannot be looked up"):
        tool(lost)
