"""The budget, rights, priority and name of a supervisor hold for the children that it starts."""

from __future__ import annotations

from typing import Any

import pytest

from lyra import Grant, Money
from lyra.core.rights.capability import Capability
from lyra.kernel import Child, Kernel
from lyra.kernel.process.process import PRIORITIES
from tests.kernel.conftest import run, settle

OPTIONS: dict[str, Any] = {
    "budget": "$0.25",
    "grant": Grant(allow=["*"], deny=["human.ask"]),
    "priority": "high",
    "name": "crew",
}


async def kid(ctx: Any) -> None:
    await ctx.receive()


async def boss(ctx: Any) -> None:
    ctx.supervise([Child("kid", kid)], **OPTIONS)
    await ctx.receive()


@pytest.mark.parametrize("inside", [False, True], ids=["of the kernel", "of a process"])
def test_options_of_a_supervisor_hold_for_its_children(inside: bool) -> None:
    async def main() -> None:
        async with Kernel(programs=[kid, boss], budget="$8") as kernel:
            if inside:
                kernel.spawn(boss)
            else:
                await kernel.supervise([Child("kid", kid)], **OPTIONS)
            await settle(kernel)
            supervisor = kernel.find("crew")
            (child,) = [process for process in kernel.processes.values() if process.parent is supervisor]
            assert child.budget.remaining("usd") == Money.parse("$0.25")
            assert child.priority == supervisor.priority == PRIORITIES.index("high")
            assert not child.grant.allows(Capability("human.ask", "clarification"))

    run(main())
