"""Tools at work in an agent: whether the loop stays free while eight of them search, and what admitting a call costs.

Loop lag is how much later than asked a timer rings, asked for every five milliseconds while an agent's eight `Grep`s of
one turn run over a large tree; the worst of a hundred is the figure. What admitting costs is the difference between a
turn with a tool under permission rules and a Grant and one under neither, with a model that answers at once.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
import time
from collections.abc import Callable
from typing import Any

from benchmarks.measure import Figure, Row, Size, Stopwatch, Timing, at_most, interleave
from benchmarks.search import fill, tools_of
from lyra import Agent, Kernel, tool
from lyra.models.sim import SimProvider

TICK_S = 0.005
GREPS = 8


def _script(calls: Callable[[int], list[dict[str, Any]]]) -> SimProvider:
    """A model that asks for calls once a message, and then is done."""
    numbers = itertools.count()

    def reply(request: Any) -> Any:
        return {"tool_calls": calls(next(numbers))} if request.messages[-1].role == "user" else "done"

    return SimProvider(reply)


# ---------------------------------------------------------------- loop lag
async def _lag(folder: str, rounds: int, *, ripgrep: bool, pattern: str, **more: Any) -> list[float]:
    late: list[float] = []
    stop = asyncio.Event()

    async def tick() -> None:
        while not stop.is_set():
            began = time.perf_counter()
            await asyncio.sleep(TICK_S)
            late.append(time.perf_counter() - began - TICK_S)

    tools = list(tools_of(folder, ripgrep=ripgrep).values())
    calls = [{"name": "Grep", "arguments": {"pattern": pattern, **more}}] * GREPS
    model = _script(lambda _: calls)
    async with Kernel() as kernel:
        process = await kernel.spawn(Agent("a", model=model, tools=tools))
        ticking = asyncio.create_task(tick())
        for _ in range(rounds):
            await process.send("search")
        stop.set()
        await ticking
    return late


def _p99_ms(late: list[float]) -> Figure:
    return Figure(1000 * sorted(late)[int(0.99 * len(late))], "ms")


# ---------------------------------------------------------------- admission
@tool(trusted=True)
async def look(path: str) -> str:
    """Look at nothing."""
    return ""


def _turns(count: int, **options: Any) -> Timing:
    async def main() -> Timing:
        model = _script(lambda number: [{"name": "look", "arguments": {"path": f"src/x{number}.py"}}])
        agent = Agent("a", model=model, tools=[look], **options)
        async with Kernel() as kernel:
            process = await kernel.spawn(agent)
            with Stopwatch(count) as watch:
                for _ in range(count):
                    await process.send("go")
            return watch.timing

    return asyncio.run(main())


def run(size: Size) -> list[Row]:
    files = size.of(10_000, 60)
    rounds = size.of(2, 1)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        fill(folder, files)
        for words, more in (
            ("one match in a thousand files", {"pattern": "needle7$"}),
            ("every line, as many as are shown", {"pattern": ".", "output_mode": "content", "head_limit": 4_000}),
        ):
            for ripgrep in (True, False):
                by = "ripgrep" if ripgrep else "our own"
                late = asyncio.run(_lag(folder, rounds, ripgrep=ripgrep, **more))
                what = f"loop lag p99, {GREPS} Greps at once in {files} files, {words}, {by}"
                rows.append(Row(what, _p99_ms(late), goals=(at_most(50, "ms"),)))
    count = size.of(100, 3)
    best = interleave(
        {
            "free": lambda: _turns(count),
            "ruled": lambda: _turns(count, permissions={"allow": ["look(src/**)"], "deny": ["look(secret/**)"]}),
        },
        size.repeats,
    )
    cost = Figure(max(0.0, best["ruled"].value - best["free"].value))
    rows.append(Row("a turn with a tool under permission rules", best["ruled"], "… without", best["free"]))
    rows.append(Row("what admitting adds to a turn: a copy, the decision, its row", cost, note="goals: `permissions`"))
    return rows
