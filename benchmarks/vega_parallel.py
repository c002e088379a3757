"""Calls that overlap by themselves: the reviews of the language's document, beside one review and one summary.

The model takes the same time for every answer. Wall time is what counts here: CPU time hardly knows about waiting.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from benchmarks.measure import Figure, Row, Size, ratio_at_most

AGENTS = """
agent Reviewer { model "sim/script" }
agent Summarizer { model "sim/script" }
let reviewer = spawn Reviewer;
let summarizer = spawn Summarizer;
"""
REVIEWS = (
    AGENTS
    + """
mark();
let review1 = reviewer <- "one";
let review2 = reviewer <- "two";
let review3 = reviewer <- "three";
let summary = summarizer <- review1 + review2 + review3;
mark();
"""
)
ONE_OF_EACH = AGENTS + 'mark(); let review = reviewer <- "one"; let summary = summarizer <- review; mark();'
LOOP = (
    AGENTS
    + 'mark(); let all = ""; for i in list::range(0, COUNT) { let r = reviewer <- "n${i}"; all = all + r; } mark();'
)
ONE = AGENTS + 'mark(); let review = reviewer <- "one"; mark();'


def took_s(source: str, latency_s: float, *, sequential: bool = False) -> float:
    """The time between the marks of a program."""
    from lyra.kernel.kernel import Kernel
    from lyra.models.client import LLMClient
    from lyra.models.script import Reply
    from lyra.models.sim import SimProvider
    from lyra.vega import run as run_program

    marks: list[float] = []
    reply = Reply.from_data({"text": "a few words", "first_s": latency_s})
    host: dict[str, Any] = {"mark": lambda: marks.append(time.perf_counter())}

    async def main() -> None:
        async with Kernel() as kernel:
            client = LLMClient()
            client.register("sim", SimProvider(script=lambda _: reply))
            kernel.parts["models"] = client
            await run_program(source, host=host, kernel=kernel, sequential=sequential)

    asyncio.run(main())
    return marks[1] - marks[0]


def run(size: Size) -> list[Row]:
    latency_s = 0.2 if not size.quick else 0.02
    count = size.of(60, 3)
    loop = LOOP.replace("COUNT", str(count))
    repeats = size.of(3, 1)

    def best(source: str, **options: Any) -> Figure:
        shortest_s = min(took_s(source, latency_s, **options) for _ in range(repeats))
        return Figure(shortest_s * 1000, "ms", shortest_s * 1000)

    reviews, one_review, looped, one_call = best(REVIEWS), best(ONE_OF_EACH), best(loop), best(ONE)
    in_turn = best(REVIEWS, sequential=True)
    return [
        Row("three reviews and a summary", reviews, "one review and a summary", one_review, (ratio_at_most(1.1),)),
        Row("three reviews and a summary", reviews, "the same, --sequential", in_turn),
        Row(f"a loop of {count} calls", looped, "one call", one_call),
    ]
