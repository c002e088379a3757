"""`lyra serve --gateway` attacked and killed: the short version of `verify gateway-crash`."""

from __future__ import annotations

import asyncio

import pytest

from verify.crash import gateway
from verify.crash.gateway import overrun
from verify.crash.gateway.bill import BilledProvider
from verify.crash.gateway.gateway_server import Outcome
from verify.crash.gateway.ledger import SteadyLedger
from verify.servers import postgres_missing

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("store", gateway.STORES)
def test_spending_is_right_after_a_kill(store: str) -> None:
    """Calls that were answered are charged once with what they cost, those that a kill cut off once with what was
    reserved; keys, budgets and revocations are as they were acknowledged, and no key is in the store or the log."""
    if store == "postgresql" and (missing := postgres_missing()):
        pytest.skip(missing)
    result = gateway.run(2, seed=5, store=store)
    assert result.failures == []
    assert result.kills == 2
    assert result.calls > result.answered > 0


def test_no_number_of_streams_overruns_a_budget() -> None:
    """200 streams at once, with clients that leave and a provider that fails and makes tokens that it does not show:
    neither what is charged nor what the provider bills is a micro-dollar more than the budget."""
    result = overrun.run(2, seed=2)
    assert result.failures == []
    assert result.over_budget > 0
    assert result.answered > 0


def test_the_judge_sees_what_is_charged_twice_or_not_at_all() -> None:
    """The ledger: spending that is no sum of whole costs and reservations, or of too many of them, is a failure."""

    async def judged(spent: int, calls: int) -> list[str]:
        provider = BilledProvider()
        ledger = SteadyLedger("steady", "secret", 10_000)
        ledger.reserved = 100
        for is_whole in (True, True, False):
            ledger.next_id()
            ledger.note(Outcome(is_whole, 200 if is_whole else 0))
        view = {"spent_micro_usd": spent, "reserved_micro_usd": 0, "calls": calls, "budget_micro_usd": 10_000}
        return ledger.failures(view, provider)

    one = 14  # 40 tokens in and 12 out
    assert asyncio.run(judged(2 * one + 100, 3)) == []  # the third was in doubt
    assert asyncio.run(judged(3 * one, 3)) == []  # it was finished, and its client did not see it
    assert asyncio.run(judged(2 * one, 2)) == []  # it never began
    assert asyncio.run(judged(4 * one, 4))  # charged, and never asked for
    assert asyncio.run(judged(one, 1))  # answered, and free
    assert asyncio.run(judged(2 * one + 200, 4))  # in doubt, twice
    assert asyncio.run(judged(3 * one + 1, 3))
