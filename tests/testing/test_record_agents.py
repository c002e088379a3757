"""Agents under a recording: the second run needs no model."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import lyra
from lyra.errors import ModelError
from lyra.models.client import LLMClient
from lyra.models.sim import SimProvider
from lyra.testing import record

SCRIPT = {
    "price": {"input_usd_per_mtok": 3, "output_usd_per_mtok": 15},
    "replies": [
        {"user": r"weather in (\w+)", "tool_calls": [{"name": "weather", "arguments": {"city": "{1}"}}]},
        {"tool": "weather", "text": "It is {result} there."},
        "Hello.",
    ],
}


@lyra.tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"sunny in {city}"


def client(script: Any) -> LLMClient:
    llm = LLMClient(env={})
    llm.register("acme", SimProvider(script, every_model=True))
    return llm


def fails(request: Any) -> str:
    raise AssertionError("a model was called in a replay")


async def talk(models: LLMClient, *texts: str) -> list[str]:
    agent = lyra.Agent("a", model="acme/one", tools=[weather])
    async with lyra.Kernel() as kernel:
        kernel.parts["models"] = models
        process = await kernel.spawn(agent)
        return [str(await process.send(text)) for text in texts]


def test_an_agent_with_tools_is_recorded_and_replayed(tmp_path):
    """The same words, with the tools run again and the model not."""
    file = tmp_path / "c.jsonl"
    with record(file, client(SCRIPT), mode="all") as models:
        first = asyncio.run(talk(models, "the weather in Bern?", "thanks"))
    assert first == ["It is sunny in Bern there.", "Hello."]
    with record(file, client(fails), mode="replay") as models:
        assert asyncio.run(talk(models, "the weather in Bern?", "thanks")) == first
        with pytest.raises(ModelError, match="was not recorded"):
            asyncio.run(talk(models, "the weather in Rome?"))


def test_a_recording_may_begin_and_end_while_a_kernel_runs(tmp_path):
    """What was found before it or during it is not kept beyond."""
    file = tmp_path / "c.jsonl"
    models = client(lambda request: f"call {len(request.messages)}")

    async def main() -> list[str]:
        agent = lyra.Agent("a", model="acme/one")
        async with lyra.Kernel() as kernel:
            kernel.parts["models"] = models
            process = await kernel.spawn(agent)
            before = str(await process.send("one"))
            with record(file, models, mode="all"):
                during = str(await process.send("two"))
            return [before, during, str(await process.send("three"))]

    assert asyncio.run(main()) == ["call 1", "call 3", "call 5"]
    assert file.read_text().count('"provider":"acme"') == 1
