"""Prices: exact, never guessed, and a worst case that is one."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lyra.config import TABLES
from lyra.errors import ConfigError
from lyra.models.pricing import FREE, OUTPUT_TOKENS_MAX, Price, Prices, Rates, price_of
from lyra.models.stream import TokenUsage

NAMES = (
    "anthropic/claude-sonnet-4-20250514",
    "anthropic/claude-sonnet-4-5",
    "openai/gpt-4o",
    "openai/o3",
    "azure/gpt-4o",
    "gemini/gemini-2.5-pro",
    "vertex/gemini-2.5-flash",
    "bedrock/us.anthropic.claude-sonnet-4-20250514-v1:0",
    "groq/llama-3.3-70b-versatile",
)

_rate = st.integers(0, 10**12)
_tokens = st.integers(0, 10**6)


@st.composite
def prices(draw) -> Price:
    starts = sorted(draw(st.sets(st.integers(0, 10**6), max_size=3)))
    tiers = tuple(Rates(above, *(draw(_rate) for _ in range(5))) for above in (-1, *starts))
    return Price(tiers, draw(_rate))


@st.composite
def usages(draw) -> TokenUsage:
    read, write, plain, out = (draw(_tokens) for _ in range(4))
    apart = draw(st.booleans())
    thought = draw(st.integers(0, out))
    return TokenUsage(plain if apart else plain + read + write, out, read, write, thought, apart)


@given(prices(), usages(), _tokens, _tokens)
def test_no_usage_costs_more_than_its_worst_case(price, usage, more_in, more_out):
    """Whatever is cached, thought or tiered: what was reserved for the bounds pays for what happened within them."""
    assert price.cost(usage) <= price.worst_case(usage.total_input + more_in, usage.output_tokens + more_out)


@given(prices(), st.integers(0, 10**10), _tokens)
def test_affordable_output_is_payable_and_one_more_is_not(price, money, tokens):
    """The answer is exact: it can be paid, and one more token cannot."""
    affordable = price.affordable_output(money, tokens)
    assert 0 <= affordable <= OUTPUT_TOKENS_MAX
    if affordable:
        assert price.worst_case(tokens, affordable) <= money
    if affordable < OUTPUT_TOKENS_MAX:
        assert price.worst_case(tokens, affordable + 1) > money or price.worst_case(tokens, 0) > money


def test_a_call_is_rounded_up_once():
    """A tenth of a micro-dollar costs one; ten of them in one call cost one."""
    price = Price.per_mtok("0.1", "0.1")
    assert [price.cost(TokenUsage(count, 0)) for count in (0, 1, 10, 11)] == [0, 1, 1, 2]
    assert price.cost(TokenUsage(5, 5)) == 1


def test_cached_tokens_have_their_own_price():
    """The two ways of counting cached tokens cost the same."""
    price = Price.per_mtok(3, 15, cache_read_usd="0.3", cache_write_usd="3.75")
    apart = TokenUsage(1000, 100, 200, 400, cached_apart=True)
    assert price.cost(apart) == 3000 + 1500 + 60 + 1500
    assert price.cost(apart.flat()) == price.cost(apart)
    assert Price.per_mtok(3, 15).cost(apart) == 1600 * 3 + 1500  # no price of its own: as the rest


def test_a_tier_counts_for_the_whole_call():
    """The first token above the start makes all of them dearer."""
    price = Price((Rates(-1, 10**9, 10**9, 10**9, 10**9, 10**9), Rates(100, *[2 * 10**9] * 5)))
    assert price.cost(TokenUsage(100, 1)) == 101
    assert price.cost(TokenUsage(101, 1)) == 204
    assert price.cost(TokenUsage(60, 1, 41, cached_apart=True)) == 204
    assert price.worst_case(100, 1) == 101


@pytest.mark.parametrize("name", NAMES)
def test_costs_equal_those_of_genai_prices(name):
    """On a grid of usages our cost is theirs, rounded up to a micro-dollar."""
    from genai_prices import Usage, calc_price

    provider, _, model = name.partition("/")
    theirs = {"gemini": "google", "vertex": "google", "bedrock": "aws"}.get(provider, provider)
    price = price_of(name)
    for total in (0, 1, 999, 200_000, 200_001, 1_000_000):
        for cached in (0, total // 3):
            for out in (0, 7, 12_345):
                expected = calc_price(
                    Usage(input_tokens=total, cache_read_tokens=cached, output_tokens=out),
                    model,
                    provider_id=theirs,
                ).total_price
                ours = price.cost(TokenUsage(total, out, cached))
                assert ours == math.ceil(expected * 1_000_000), (total, cached, out)


def test_unknown_is_unknown():
    """An unknown model, a server of the user's own, and a model that is not paid by tokens have no price."""
    for name in ("foo/bar", "openai/none-such-model", "my-openai/gpt-4o", "openai/tts-1", "gpt-4o", "sim/script"):
        assert price_of(name) is None, name


def test_local_models_cost_nothing():
    """Known to be nothing, which is not the same as unknown."""
    assert price_of("ollama/llama3.2") is FREE
    assert price_of("sim/echo") is FREE
    assert FREE.is_free
    assert FREE.affordable_output(0, 10**6) == OUTPUT_TOKENS_MAX
    assert not price_of("openai/gpt-4o").is_free


def test_prices_of_the_users_own_come_first():
    """They are read from the digits that were written."""
    own = Prices({"openai/gpt-4o": {"input_usd_per_mtok": 0.1, "output_usd_per_mtok": "0.2", "request_usd": "0.001"}})
    assert own.find("openai/gpt-4o").cost(TokenUsage(1_000_000, 1_000_000)) == 300_000 + 1_000
    assert own.find("openai/o3") == price_of("openai/o3")
    with pytest.raises(ConfigError, match=r"the price of a/b: a price has no setting 'input'") as raised:
        Prices({"a/b": {"input": 1}})
    assert raised.value.key == "prices.a/b"
    for wrong in (True, -1, "nan", "x", 10**9):
        with pytest.raises(ConfigError, match="amount of dollars"):
            Price.from_data({"input_usd_per_mtok": wrong, "output_usd_per_mtok": 1})


# Each column of `[prices]`, what a call uses, and what that costs beside a price of nothing for the rest.
COLUMNS: dict[str, tuple[TokenUsage, int]] = {
    "input_usd_per_mtok": (TokenUsage(1000, 100), 7_000),
    "output_usd_per_mtok": (TokenUsage(1000, 100), 700),
    "cache_read_usd_per_mtok": (TokenUsage(1000, 100, 200, 400, cached_apart=True), 7 * 200),
    "cache_write_usd_per_mtok": (TokenUsage(1000, 100, 200, 400, cached_apart=True), 7 * 400),
    "request_usd": (TokenUsage(0, 0), 7_000_000),
}


@pytest.mark.parametrize("column", COLUMNS)
def test_each_column_of_a_price_is_paid(column):
    """Seven dollars in one column and nothing in the others: the call costs what that column says."""
    usage, micro_usd = COLUMNS[column]
    nothing = dict.fromkeys(TABLES["prices"].columns, 0)
    assert Prices({"a/b": {**nothing, column: 7}}).find("a/b").cost(usage) == micro_usd
    assert Prices({"a/b": nothing}).find("a/b").cost(usage) == 0
    assert set(COLUMNS) == set(TABLES["prices"].columns)


class _Clock:
    def __init__(self, date: str) -> None:
        self.set(date)

    def set(self, date: str) -> None:
        self.time = datetime.fromisoformat(date).replace(tzinfo=UTC).timestamp()

    def now(self) -> float:
        return self.time

    def monotonic(self) -> float:
        return self.time

    def call_at(self, when, callback):
        raise AssertionError


def test_a_price_that_changes_with_the_date_is_looked_up_again():
    """After its hour the price of the day is found, without a restart."""
    from genai_prices.data_snapshot import get_snapshot
    from genai_prices.types import StartDateConstraint

    found_one: tuple[str, date, Any, Any] = next(
        (f"{provider.id}/{model.id}", last.constraint.start_date, model.prices[-2].prices, last.prices)
        for provider in get_snapshot().providers
        for model in provider.models
        if isinstance(model.prices, list)
        and isinstance((last := model.prices[-1]).constraint, StartDateConstraint)
        and model.prices[-2].constraint is None
        and isinstance(last.prices.input_mtok, Decimal)
        and isinstance(model.prices[-2].prices.input_mtok, Decimal)
        and model.prices[-2].prices.output_mtok is not None
        and last.prices.input_mtok != model.prices[-2].prices.input_mtok
        and provider.find_model(model.id) is model
    )
    name, change, before, after = found_one
    clock = _Clock("2000-01-01")
    prices = Prices(clock=clock)
    million = TokenUsage(1_000_000, 0)
    assert prices.find(name).cost(million) == before.input_mtok * 1_000_000
    clock.set(change.isoformat())
    assert prices.find(name).cost(million) == after.input_mtok * 1_000_000


def test_thoughts_have_a_price_of_their_own():
    """They are part of the output, and paid at their own rate where there is one."""
    price = Price((Rates(above=-1, input=0, output=1_000_000, cache_read=0, cache_write=0, reasoning=3_000_000),))
    plain = price.cost(TokenUsage(0, 10**6))
    assert price.cost(TokenUsage(0, 10**6, reasoning_tokens=10**6)) == 3 * plain


def test_models_that_embed_are_priced_by_their_input():
    """They have no price for output, so that no answer can be paid; a model that answers has one price for both."""
    prices = Prices()
    assert prices.find("openai/text-embedding-3-small") is None
    embedding = prices.find_for_embeddings("openai/text-embedding-3-small")
    assert embedding is not None
    assert embedding.cost(TokenUsage(1_000_000, 0)) == 20_000
    assert prices.find_for_embeddings("openai/gpt-4o-mini") == prices.find("openai/gpt-4o-mini")
    assert prices.find_for_embeddings("openai/no-such-model") is None
    assert prices.find_for_embeddings("sim/other") is None


def test_prices_of_any_number_of_names_take_no_more_room():
    """Names may come from outside: what was looked up is forgotten, what was given stays."""
    own = Price.per_mtok(1, 2)
    prices = Prices({"own/model": own})
    for number in range(25_000):
        prices.find(f"nowhere/{number}")
        prices.find_for_embeddings(f"sim/{number}")
    assert len(prices._known) <= 10_001
    assert len(prices._embeddings) <= 10_000
    assert prices.find("own/model") is own
