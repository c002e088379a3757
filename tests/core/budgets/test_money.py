"""Money is whole micro-dollars, read and shown exactly."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lyra.core.budgets.money import Money, money
from lyra.core.limits import MONEY_MICRO_USD_MAX
from lyra.errors import ConfigError
from tests.cases import cases

quick = settings(derandomize=True, deadline=None, max_examples=cases(200))
amounts = st.integers(0, MONEY_MICRO_USD_MAX)


@pytest.mark.parametrize(
    ("written", "micro", "shown"),
    [
        ("$0.50", 500_000, "$0.50"),
        ("0.5", 500_000, "$0.50"),
        ("$10", 10_000_000, "$10.00"),
        (" $1.2300000 ", 1_230_000, "$1.23"),
        ("$0.000001", 1, "$0.000001"),
        ("0.0043", 4_300, "$0.0043"),
        (0, 0, "$0.00"),
        (12, 12, "$0.000012"),
        (Decimal("0.1"), 100_000, "$0.10"),
        (Decimal("1E+2"), 100_000_000, "$100.00"),
        (Decimal("0.1000000000000000000000000000000000000"), 100_000, "$0.10"),
        (Money(7), 7, "$0.000007"),
    ],
)
def test_amounts_are_read_exactly_and_shown_with_at_least_two_decimals(written, micro, shown):
    """What a person writes is what is counted, to the micro-dollar."""
    assert money(written) == Money.parse(written) == micro
    assert str(money(written)) == f"{money(written)}" == shown


@pytest.mark.parametrize(
    "written",
    [
        0.1,
        1.0,
        True,
        None,
        [],
        "",
        "$",
        "$-1",
        "-1",
        -1,
        Money(-1),
        Decimal(-1),
        "$1,000.00",
        "1_000",
        "1.2.3",
        ".5",
        "5.",
        "1e3",
        "٣",
        "$0.0000001",
        Decimal("0.0000001"),
        Decimal("1.0000000000000000000000000000000000001"),
        Decimal("1E-1000000"),
        Decimal("1E+1000000"),
        Decimal("NaN"),
        Decimal("Infinity"),
        "9" * 30,
        2**63,
        "9223372036854.775808",
    ],
)
def test_what_is_no_exact_amount_is_refused_with_a_hint(written):
    """Floats, negative, ambiguous, too fine and too large amounts are ConfigErrors that say what to write."""
    with pytest.raises(ConfigError) as caught:
        Money.parse(written)
    assert caught.value.hint


def test_the_largest_amount_fits():
    """63 bits of micro-dollars are an amount; one more is not."""
    assert Money.parse("9223372036854.775807") == MONEY_MICRO_USD_MAX
    with pytest.raises(ConfigError):
        Money(MONEY_MICRO_USD_MAX) + 1


@quick
@given(amounts)
def test_reading_what_was_shown_gives_the_same_amount(micro):
    """parse ∘ str is the identity."""
    amount = Money(micro)
    assert Money.parse(str(amount)) == amount
    assert amount.usd == Decimal(micro) / 1_000_000
    assert eval(repr(amount), {"Money": Money.parse}) == amount


@quick
@given(st.integers(-(10**15), 10**15), st.integers(-(10**15), 10**15))
def test_arithmetic_keeps_money(left, right):
    """Adding, subtracting and multiplying with whole numbers is exact and stays Money, whichever side it is on."""
    a, b = Money(left), Money(right)
    results = {
        a + b: left + right,
        a + right: left + right,
        left + b: left + right,
        a - b: left - right,
        left - b: left - right,
        a * 3: left * 3,
        3 * a: left * 3,
        -a: -left,
        abs(a): abs(left),
    }
    for got, expected in results.items():
        assert got == expected
        assert type(got) is Money


def test_negative_amounts_are_shown_with_their_sign():
    """An overdraft reads as one."""
    assert str(Money(-1_500_000)) == "-$1.50"
    assert f"{Money(5):>12}" == "   $0.000005"
    assert f"{Money(5):d}" == "5"


@pytest.mark.parametrize("spoil", [lambda m: m + 0.5, lambda m: m - 1.0, lambda m: m * 1.5])
def test_arithmetic_with_floats_is_a_type_error(spoil):
    """A float would lose a micro-dollar somewhere; it is refused at once."""
    with pytest.raises(TypeError, match="whole numbers"):
        spoil(Money(1))


@pytest.mark.parametrize("wrong", [1.0, True, "5", None])
def test_the_constructor_takes_only_whole_numbers(wrong):
    """`Money(1.9)` is an error, not `Money(1)`."""
    with pytest.raises(ConfigError):
        Money(wrong)
