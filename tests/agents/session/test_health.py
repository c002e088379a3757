"""Agents under the health monitor: stale progress, high cost, error loops, time that runs out. In virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lyra import Agent, Kernel, tool
from lyra.errors import LyraError
from tests.agents.support import calls, clock_here, says, virtual

PRICE = {"input_usd_per_mtok": 0, "output_usd_per_mtok": 1_000_000}  # a dollar a token


class Watched:
    """A kernel with a monitor, and what it said."""

    def __init__(self, **thresholds: Any) -> None:
        self._thresholds = thresholds
        self.alerts: list[dict[str, Any]] = []

    async def __aenter__(self) -> Watched:
        self.kernel = await Kernel(clock=clock_here()).__aenter__()
        self.kernel.on_event(
            lambda event: self.alerts.append(dict(event.data)) if event.kind == "health.alert" else None
        )
        self.kernel.health.start(10.0, self._thresholds)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kernel.close()

    @property
    def words(self) -> list[str]:
        return [alert["alert"] for alert in self.alerts]


def test_an_agent_that_hangs_is_stale():
    """A model that does not answer, and a tool that does not come back; one that waits for a message is fine."""

    @tool
    async def hang() -> str:
        await asyncio.sleep(1_000)
        return "late"

    async def main():
        async with Watched(stale_s=300) as watched:
            slow = await watched.kernel.spawn(Agent("slow", model=says({"text": "x", "first_s": 900})))
            stuck = await watched.kernel.spawn(Agent("stuck", model=says(calls("hang"), "done"), tools=[hang]))
            await watched.kernel.spawn(Agent("idle", model="sim/echo"))
            await asyncio.gather(slow.send("go"), stuck.send("go"))
            return watched.alerts, slow.pid, stuck.pid

    alerts, slow, stuck = virtual(main())
    assert [(alert["alert"], alert["pid"]) for alert in alerts] == [("stale_progress", slow), ("stale_progress", stuck)]
    assert alerts[0]["effect"].startswith("model:slow")
    assert alerts[1]["effect"] == "tool:hang"


def test_a_long_answer_is_no_stall():
    """Piece by piece for half an hour, with and without a reader of the stream."""

    async def main(stream: bool):
        async with Watched(stale_s=300) as watched:
            process = await watched.kernel.spawn(Agent("slow", model=says("word " * 60, chunk_s=30)))
            if stream:
                assert len([piece async for piece in process.stream("go")]) == 60
            else:
                await process.send("go")
            return watched.words

    assert virtual(main(stream=False)) == []
    assert virtual(main(stream=True)) == []


def test_errors_in_a_row_are_a_loop():
    """Tools that fail, models that fail, and turns that come to nothing; one alert for each row of them."""

    @tool
    def broken(n: int) -> str:
        raise ValueError(str(n))

    async def failing(watched: Watched, agent: Agent, turns: int) -> str:
        process = await watched.kernel.spawn(agent)
        for _ in range(turns):
            with pytest.raises(LyraError):
                await process.send("go")
        return process.pid

    async def main():
        async with Watched(errors=4) as watched:
            model = says({"error": {"kind": "auth"}})
            pids = [
                await failing(watched, Agent("a", model=model), 4),
                await failing(watched, Agent("b", model=says("")), 4),
                await failing(watched, Agent("fine", model=says("")), 3),
            ]
            return [(alert["alert"], alert["pid"], alert["last_error"]) for alert in watched.alerts], pids

    alerts, pids = virtual(main())
    assert [(word, pid) for word, pid, _ in alerts] == [("error_loop", pids[0]), ("error_loop", pids[1])]
    assert alerts[1][2] == "empty"

    async def tools():
        async with Kernel() as kernel:  # functions that are not async need threads, which virtual time has not
            heard = []
            kernel.on_event(lambda event: heard.append(event.data["alert"]) if event.kind == "health.alert" else None)
            kernel.health.start(10.0, {"errors": 4})
            several = {"tool_calls": [{"name": "broken", "arguments": {"n": n}} for n in range(4)]}
            process = await kernel.spawn(Agent("c", model=says(several, "done"), tools=[broken]))
            await process.send("go")
            return heard

    assert asyncio.run(tools()) == ["error_loop"]


def test_money_is_watched():
    """Most of a budget is spent; or so much money, budget or not, and again when as much again is spent."""

    async def main(**settings: Any):
        thresholds = settings.pop("thresholds")
        async with Watched(**thresholds) as watched:
            agent = Agent("a", model=says("one two three four", price=PRICE), max_tokens=10, **settings)
            process = await watched.kernel.spawn(agent)
            counts = []
            for _ in range(6):
                await process.send("go")
                await asyncio.sleep(20)
                counts.append(len(watched.alerts))
            return counts, watched.alerts

    counts, alerts = virtual(main(thresholds={"cost_percent": 50}, budget="$60"))
    assert counts == [0, 0, 0, 0, 0, 1]
    assert {alert["alert"] for alert in alerts} == {"high_cost"}
    counts, alerts = virtual(main(thresholds={"cost_usd": 12.0}))
    assert counts == [0, 0, 1, 1, 1, 2]
    assert alerts[0]["limit_micro_usd"] == 12_000_000
    assert alerts[0]["spent_micro_usd"] == 15_000_000
    counts, _ = virtual(main(thresholds={}))
    assert counts == [0] * 6


def test_time_that_runs_out_is_told():
    """Four fifths of a budget's seconds: one alert, while there is time to do something."""

    async def main():
        async with Watched() as watched:
            process = await watched.kernel.spawn(
                Agent("a", model=says({"text": "x", "first_s": 90})), budget={"seconds": 100}
            )
            await process.send("go")
            return watched.alerts

    (alert,) = virtual(main())
    assert alert["alert"] == "timeout_warning"
    assert 80 <= alert["seconds"] <= 90
