"""What a turn of a sub-agent on a cluster reserves in the budgets that it is charged to."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from lyra.core.budgets.budget import Budget, Usage
from lyra.core.clock import SystemClock
from lyra.errors import BudgetExceeded
from lyra.sage.agent.tasks.placed import PlacedTurns


class Placer:
    """A cluster that is never asked."""

    async def ask(self, *_: Any, **__: Any) -> dict[str, Any]:
        raise AssertionError("a turn without room was asked")


async def _do(effect: Any, content: Any, *, cost: Any) -> Any:
    return await effect.run(content, idempotency_key="k")


def test_a_turn_for_which_one_budget_has_no_room_holds_nothing_in_another() -> None:
    roomy, spent = Budget.of({"llm_calls": 9}), Budget.of({"llm_calls": 9})
    spent.settle(spent.reserve(Usage(llm_calls=8)))
    spec: Any = SimpleNamespace(id="t", placed="s1/p", limits={"llm_calls": 2})
    process = SimpleNamespace(spent=Usage(), core=SimpleNamespace(clock=SystemClock()))
    turn: Any = SimpleNamespace(
        process=process,
        pending=SimpleNamespace(scopes=(roomy, spent)),
        ctx=SimpleNamespace(do=_do),
        session=SimpleNamespace(messages=[SimpleNamespace(content="go")]),
    )
    placer: Any = Placer()
    with pytest.raises(BudgetExceeded):
        asyncio.run(PlacedTurns(placer, spec).answer(turn))
    assert (roomy.used("llm_calls"), roomy.reserved("llm_calls")) == (0, 0)
