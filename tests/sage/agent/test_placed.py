"""What a turn of a sub-agent on a cluster reserves in the budgets that it is charged to."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from lyra.core.budgets.budget import Budget, Usage
from lyra.core.clock import SystemClock
from lyra.errors import BudgetExceeded
from lyra.kernel.base.tasks import Tasks
from lyra.sage.agent.tasks.placed import PlacedTurns


class Placer:
    """A cluster that does not answer."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.given_up: list[str] = []

    async def ask(self, *_: Any, **__: Any) -> dict[str, Any]:
        self.asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def give_up(self, _: str, key: str) -> None:
        self.given_up.append(key)


async def _do(effect: Any, content: Any, *, cost: Any) -> Any:
    return await effect.run(content, idempotency_key="k")


def make_turn(*scopes: Budget, stopping: bool = False) -> Any:
    core = SimpleNamespace(
        clock=SystemClock(), stopping=stopping, taint=SimpleNamespace(state=SimpleNamespace(pids=())), tasks=Tasks()
    )
    return SimpleNamespace(
        process=SimpleNamespace(spent=Usage(), core=core, pid="p1"),
        sink=None,
        pending=SimpleNamespace(scopes=scopes),
        ctx=SimpleNamespace(do=_do),
        session=SimpleNamespace(messages=[SimpleNamespace(content="go")]),
    )


SPEC: Any = SimpleNamespace(id="t", placed="s1/p", limits={"llm_calls": 2})


def test_a_turn_for_which_one_budget_has_no_room_holds_nothing_in_another() -> None:
    roomy, spent = Budget.of({"llm_calls": 9}), Budget.of({"llm_calls": 9})
    spent.settle(spent.reserve(Usage(llm_calls=8)))
    placer: Any = Placer()
    with pytest.raises(BudgetExceeded):
        asyncio.run(PlacedTurns(placer, SPEC).answer(make_turn(roomy, spent)))
    assert not placer.asked.is_set()
    assert (roomy.used("llm_calls"), roomy.reserved("llm_calls")) == (0, 0)


@pytest.mark.parametrize(("stopping", "used"), [(False, 2), (True, 0)])
def test_a_turn_that_is_stopped_counts_as_the_most_that_it_may_have_spent(stopping: bool, used: int) -> None:
    """What it has spent is known to the host alone. Where the session itself ends, its next life asks again."""
    budget = Budget.of({"llm_calls": 9})
    placer: Any = Placer()

    async def main() -> None:
        turn = make_turn(budget, stopping=stopping)
        working = asyncio.ensure_future(PlacedTurns(placer, SPEC).answer(turn))
        await placer.asked.wait()
        working.cancel()
        with pytest.raises(asyncio.CancelledError):
            await working
        await asyncio.sleep(0)
        await turn.process.core.tasks.close()

    asyncio.run(main())
    assert placer.given_up == ([] if stopping else ["k"])
    assert (budget.used("llm_calls"), budget.reserved("llm_calls")) == (used, 0)
