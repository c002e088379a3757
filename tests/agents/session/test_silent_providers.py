"""Providers that count no tokens: Lyra's own count is charged, and marked as estimated wherever it is shown."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace as Part
from typing import Any

import pytest

import lyra
from lyra import Agent, Kernel
from lyra.agents.session.records import CALL_FIELDS, call_record
from lyra.core.budgets.budget import NOTHING, Usage
from lyra.core.event import ModelCalled
from lyra.core.message import Message
from lyra.errors import BudgetExceeded
from lyra.models.client import LLMClient
from lyra.models.pricing import Price
from lyra.models.stream import Completion, TokenUsage
from tests.agents.support import run
from tests.models.server import Reply, Server, sse

TEXT = "The quick brown fox jumps over the lazy dog. " * 10


def chunks(*texts: str) -> list[Any]:
    """An answer of llama-cpp-python's server: OpenAI's pieces, and no `usage`."""
    head = {"id": "c", "object": "chat.completion.chunk", "model": "local"}
    said = [{**head, "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}]} for text in texts]
    return [*said, {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}, "[DONE]"]


SILENT = Reply(sse(*chunks(TEXT, "It did.")))


def models(server: Server) -> LLMClient:
    return LLMClient({"local": {"base_url": f"{server.url}/v1", "api_key": "none-needed"}})


def agent(**settings) -> Agent:
    return Agent("reader", model="local/llama", max_tokens=500, **settings)


async def ask(times: int, *, priced: bool = False, **settings):
    """(metrics, records of model calls, records of turns, events of the answer) after so many questions."""
    async with Server(SILENT) as server, Kernel() as kernel:
        client = kernel.parts["models"] = models(server)
        if priced:
            client.provider("local").price = lambda model: Price.per_mtok(1, 10)  # type: ignore[method-assign]
        called, answered, told = [], [], []
        kernel.on_event(lambda event: called.append(event.data) if event.kind == "model.called" else None)
        kernel.on_event(lambda event: answered.append(event.data) if event.kind == "agent.answered" else None)
        process = await kernel.spawn(agent(**settings))
        for _ in range(times):
            events = [event async for event in process.stream(TEXT, events=True)]
            told += [event.to_data() for event in events if event.type == "usage"]
        await asyncio.sleep(0)
        await client.close()
        return process.metrics, called, answered, told


def test_the_record_of_a_call_is_what_its_type_writes():
    """Same fields in the same order, also where a cache was read, the caller samples, or a call was cut off."""
    session = Part(trace_id="t", turn_span="s", agent=Part(name="reader"), sampled=True)
    for usage, guess in [
        (TokenUsage(10, 5), NOTHING),
        (TokenUsage(10, 5, cache_read_tokens=3, cached_apart=True, estimated=True), Usage(input_tokens=7)),
        (TokenUsage(10, 5, cache_write_tokens=3), Usage(usd="$0.01")),
    ]:
        call = Part(lost=NOTHING, guess=guess, all_micro_usd=9, span_id="c", model="m", began_s=0.0, attempts=2)
        completion = Completion(Message("assistant", "It did."), usage)
        kernel = Part(clock=Part(monotonic=lambda: 1.0))
        record = call_record(kernel, session, call, completion, None)  # type: ignore[arg-type]
        assert list(record.items()) == list(ModelCalled.from_data(record).to_data().items())
        assert record["sampled"] is True


def test_tokens_are_counted_and_marked():
    metrics, (called,), (answered,), (told,) = run(ask(1))
    assert metrics.input_tokens >= len(TEXT) // 5
    assert metrics.output_tokens >= len(TEXT) // 5
    assert metrics.estimated_calls == 1
    for record in (called, answered, told):
        assert record["estimated"] is True
        assert record["output_tokens"] == metrics.output_tokens
    assert list(called) == [*CALL_FIELDS, "estimated"]


@pytest.mark.parametrize("budget", [{"output_tokens": 1_100}, {"usd": "$0.012"}])
def test_budgets_run_out(budget):
    with pytest.raises(BudgetExceeded):
        run(ask(50, priced=True, budget=budget))


def test_a_stream_that_broke_off_is_paid_for():
    """A try whose text came and whose end did not has cost something, also where no count came with it."""

    async def main():
        broken = Reply(sse(*chunks(TEXT, "It did.")[:2]))
        async with Server(broken, SILENT) as server, Kernel() as kernel:
            client = kernel.parts["models"] = models(server)
            process = await kernel.spawn(agent(retry={"max_attempts": 2, "backoff": {"initial_s": 0.01}}))
            await process.send("x")
            await client.close()
            return process.metrics

    once, twice = run(ask(1))[0], run(main())
    assert twice.output_tokens > 1.5 * once.output_tokens


def test_a_provider_that_counts_is_not_estimated():
    reply = lyra.run(Agent("a", model="sim/echo"), "hello")
    assert reply.output_tokens > 0

    async def main():
        async with Kernel() as kernel:
            records = []
            kernel.on_event(lambda event: records.append(event.data) if event.kind == "model.called" else None)
            process = await kernel.spawn(Agent("a", model="sim/echo"))
            await process.send("hello")
            return process.metrics, records

    metrics, records = run(main())
    assert metrics.estimated_calls == 0
    assert "estimated" not in json.dumps(records)
