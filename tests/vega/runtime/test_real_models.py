"""Vega on real models: agents of each vendor with functions as tools, streams, and a session budget in dollars."""

from __future__ import annotations

import asyncio
from typing import Any

from lyra import Kernel, vega
from tests.real_models import Answer, Call, FakeVendor, Vendor

CALL = Call("add", {"a": 2, "b": 3})
SOURCE = """
fn add(a: int, b: int) -> int { return a + b; }
agent Adder { model "MODEL" tools [add] max_tokens 4000 }
let adder = spawn Adder;
print(adder <- "2 + 3?");
for piece in adder <~ "Sure?" { print(piece); }
"""


def run(source: str, vendor: Vendor, **options: Any) -> tuple[list[str], float | None]:
    """The printed lines, and the dollars that the kernel has counted."""
    lines: list[str] = []

    async def main() -> float:
        async with Kernel() as kernel:
            await vega.run(
                source.replace("MODEL", vendor.model),
                kernel=kernel,
                stdout=lines.append,
                stderr=lines.append,
                **options,
            )
            return int(kernel.budget.used("usd")) / 1_000_000

    return lines, asyncio.run(asyncio.wait_for(main(), 30))


def test_an_agent_with_a_tool(vendor: Vendor, provider: FakeVendor) -> None:
    """The function gets its arguments, the model its result and its own signature back; the cost is the published
    one."""
    answers = (Answer(thinking="Sum.", calls=(CALL,)), Answer("It is 5.", thinking="So."), Answer("Yes."))
    provider.say(*answers)
    lines, cost_usd = run(SOURCE, vendor)
    assert lines == ["It is 5.", "Yes."]
    assert cost_usd == vendor.cost_usd(*answers)
    signed = [answers[0].signature] if vendor.thinks_aloud else []
    assert [request.signatures for request in provider.requests] == [[], signed, []]  # a message is a talk of its own
    assert provider.requests[1].results == ["5"]


def test_a_session_budget(vendor: Vendor, provider: FakeVendor) -> None:
    """It counts published prices: what one answer leaves does not pay for the next, which is not asked for."""
    provider.say(answer := Answer("Hello.", output_tokens=4_000, thinking_tokens=0))
    source = """
agent Poor { model "MODEL" max_tokens 4000 }
let poor = spawn Poor;
session budget $LIMIT {
    print(poor <- "Hi");
    try { print(poor <- "Again"); } catch BudgetExceeded { print("spent"); }
}
"""
    lines, cost_usd = run(source.replace("LIMIT", f"{vendor.cost_usd(answer) * 1.01:.6f}"), vendor)
    assert lines == ["Hello.", "spent"]
    assert cost_usd == vendor.cost_usd(answer)
    assert len(provider.requests) == 1
