"""An agent's rights and its budgets: the Grant comes first, and a refusal leaves nothing reserved."""

from __future__ import annotations

import pytest

import lyra
from lyra import Agent, Kernel
from lyra.core.budgets.budget import Budget
from lyra.errors import BudgetExceeded, CapabilityDenied
from tests.agents.support import run, says


def test_a_reservation_is_released_when_a_later_scope_refuses():
    """The budgets around a call are reserved one after the other; where one refuses, those before are free again."""

    async def main() -> None:
        async with Kernel() as kernel:
            process = await kernel.spawn(Agent("asked", model=says("fine")))
            with lyra.budget(llm_calls=1):
                for _ in range(3):
                    with pytest.raises(BudgetExceeded) as refused:
                        await process.send("go", budget=Budget(llm_calls=0))
                    assert refused.value.fields["limit"] == 0
                assert await process.send("go") == "fine"

    run(main())


def test_a_denied_call_reserves_nothing():
    """The Grant is asked before the budgets."""

    async def main() -> None:
        async with Kernel() as kernel:
            process = await kernel.spawn(
                Agent("asked", model=says("fine")), grant={"allow": ["*"], "deny": ["model.use"]}
            )
            with lyra.budget(llm_calls=1):
                with pytest.raises(CapabilityDenied, match=r"model\.use"):
                    await process.send("go")
                process.regrant(None)
                assert await process.send("go") == "fine"

    run(main())
