"""Nodes as tools of agents and as stages of pipelines."""

from __future__ import annotations

import asyncio

import pytest

import lyra
from lyra import vesper
from lyra.errors import StoreError, ToolError
from lyra.kernel import Kernel
from lyra.models.sim import SimProvider
from lyra.store.space import Space
from lyra.vesper.runtime.faces import stage_of, tool_of
from tests.cli.vesper.test_nodes import DISCOUNT
from tests.vesper.runtime.payments import GRANT, NODE


@pytest.fixture
def runtime():
    with vesper.Runtime() as runtime:
        yield runtime


def test_an_agent_calls_a_node(runtime):
    node = vesper.load(DISCOUNT)
    call = {"name": "discount_v1", "arguments": {"price": "99.90", "percent": 10}}
    script = {"replies": [{"tool": "discount_v1", "text": "cheap"}, {"tool_calls": [call]}]}
    agent = lyra.Agent("clerk", model=SimProvider(script), tools=[tool_of(node, runtime)])
    assert str(lyra.run(agent, "How much?")) == "cheap"
    assert (runtime.evidence(node).executions, runtime.evidence(node).errors) == ({"python": 1}, 0)


def test_a_tool_says_what_it_takes_and_needs(runtime):
    tool = tool_of(vesper.load(DISCOUNT), runtime)
    assert tool.schema["required"] == ["price", "percent"]
    assert tool.schema["properties"]["percent"]["type"] == "integer"
    assert tool.harmless
    payment = tool_of(vesper.load(NODE), runtime)
    assert len(payment.needs) == len(GRANT)
    assert not payment.harmless
    assert payment.idempotent


def test_an_error_of_a_node_is_an_error_of_the_tool(runtime):
    tool = tool_of(vesper.load(DISCOUNT), runtime)
    assert tool.run is not None
    with pytest.raises(ToolError, match="too_much: 95 percent"):
        asyncio.run(tool.run(price="1.00", percent=95))


def test_a_node_is_a_stage(runtime):
    pipeline = {
        "name": "sale",
        "agents": [{"name": "offer", "default_next": "price"}, {"name": "price"}],
    }

    async def offer(_envelope):
        return {"price": "50.00", "percent": 20}

    async def main():
        async with Kernel() as kernel:
            kernel.register_agent("offer", offer)
            kernel.register_agent("price", stage_of(vesper.load(DISCOUNT), runtime))
            events = [event async for event in kernel.execute_pipeline(pipeline, pid="sale")]
            return kernel.get_envelope("sale"), events

    envelope, events = asyncio.run(main())
    assert events[-1].type == "pipeline_completed"
    assert envelope.outputs["price"] == {"total": "40.00"}


def test_a_runtime_that_cannot_start_closes_what_it_opened(tmp_path, monkeypatch):
    opened = []
    begin = Space.__init__

    def note(space, *args, **options):
        begin(space, *args, **options)
        opened.append(space)

    monkeypatch.setattr(Space, "__init__", note)
    store = tmp_path / "nodes.db"
    with vesper.Runtime(store=store), pytest.raises(StoreError, match="owns"):
        vesper.Runtime(store=store)
    assert len(opened) == 2
    assert all(space._connection is None for space in opened)
