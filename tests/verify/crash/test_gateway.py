"""`lyra serve --gateway` attacked and killed: the short version of `verify gateway-crash`."""

from __future__ import annotations

import asyncio

import pytest

from lyra.server.gateway.targets import money_held
from verify.crash import gateway
from verify.crash.gateway import overrun
from verify.crash.gateway.bill import BilledProvider, BilledRequest
from verify.crash.gateway.gateway_server import Outcome, is_over_budget
from verify.crash.gateway.ledger import RestlessLedger, SteadyLedger
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


def test_the_judge_sees_a_budget_that_lets_too_much_through() -> None:
    """Refusals do not hide it: more on the provider's bill than the budget or than is charged, more promised to calls
    in flight than there is, and money that stays reserved are failures, however many calls were refused."""

    async def judged(billed_tokens: int, spent: int, reserved: int = 0, watched: int = 0) -> list[str]:
        provider = BilledProvider()
        ledger = RestlessLedger("key0", "secret", 1_000)
        for _ in range(3):
            name = f"stream.{ledger.next_id()}"
            row = provider.bill[name] = BilledRequest(name)
            row.tokens_in, row.tokens_out = 40, billed_tokens
            ledger.note(Outcome(True, 200))
        ledger.next_id()
        ledger.note(Outcome(False, 429, is_over_budget=True))
        ledger.watch({"spent_micro_usd": 0, "reserved_micro_usd": watched})
        view = {"spent_micro_usd": spent, "reserved_micro_usd": reserved, "calls": 3, "budget_micro_usd": 1_000}
        assert ledger.refused == 1
        return ledger.problems + ledger.failures(view, provider)

    bill = 3 * 306  # 40 tokens in and 500 out, three times
    assert asyncio.run(judged(500, bill)) == []
    assert asyncio.run(judged(500, bill, watched=1_000)) == []
    assert asyncio.run(judged(600, 1_000))  # 1 098 on the bill of a budget of 1 000
    assert asyncio.run(judged(600, 1_098))
    assert asyncio.run(judged(500, bill - 1))  # on the bill, and not charged
    assert asyncio.run(judged(500, bill, reserved=10))
    assert asyncio.run(judged(500, bill, watched=1_001))


def test_a_refusal_of_the_provider_is_not_counted_as_one_for_want_of_money() -> None:
    """A 429 counts where the gateway says that calls in flight hold the money."""
    sentence = money_held(50).message.encode()
    assert is_over_budget(402, b"")
    assert is_over_budget(429, b'{"error": {"message": "%s"}}' % sentence)
    assert not is_over_budget(429, b"too many requests")
    assert not is_over_budget(503, sentence)
