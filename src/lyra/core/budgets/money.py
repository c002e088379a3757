"""Money: whole micro-dollars, never a float.

Parses, adds and formats amounts. `$0.10 + $0.20` is `$0.30`, exactly, and an amount
that has no exact micro-dollar form is refused instead of rounded. Never knows a price: those live in
`lyra.models`. Next: `budget`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Self

from lyra.core.limits import MONEY_MICRO_USD_MAX
from lyra.errors import ConfigError

if TYPE_CHECKING:
    from decimal import Decimal


_MICRO: Final = 1_000_000
_HINT: Final = "write '$0.10' or an int of micro-dollars"


class Money(int):
    """Micro-dollars. `Money(500_000)`, `Money.parse("$0.50")` and `money("0.50")` are the same amount."""

    __slots__ = ()

    def __new__(cls, micro_usd: int = 0) -> Self:
        if isinstance(micro_usd, bool) or not isinstance(micro_usd, int):
            raise ConfigError(f"money is whole micro-dollars, not {micro_usd!r}", hint=_HINT)
        if not -MONEY_MICRO_USD_MAX <= micro_usd <= MONEY_MICRO_USD_MAX:
            raise ConfigError("an amount of money must fit 63 bits of micro-dollars", hint=_HINT)
        return super().__new__(cls, micro_usd)

    @classmethod
    def parse(cls, value: Any) -> Self:
        """Read `"$0.50"`, `"0.50"`, an int of micro-dollars or a Decimal of dollars; never a negative one."""
        if isinstance(value, str):
            return cls(_from_text(value))
        if isinstance(value, int) and not isinstance(value, bool):
            amount = cls(value)
        else:
            amount = cls(_from_decimal(value))
        if amount < 0:
            raise ConfigError(f"an amount of money is not negative: {amount}", hint=_HINT)
        return amount

    @property
    def usd(self) -> Decimal:
        from decimal import Decimal

        return Decimal(int(self)) / _MICRO

    def __str__(self) -> str:
        dollars, micro = divmod(abs(int(self)), _MICRO)
        cents = f"{micro:06d}".rstrip("0").ljust(2, "0")
        return f"{'-' if self < 0 else ''}${dollars}.{cents}"

    def __repr__(self) -> str:
        return f"Money({str(self)!r})"

    def __format__(self, spec: str) -> str:
        return format(str(self), spec) if not spec or spec[-1] in "s<>^0123456789" else format(int(self), spec)

    def __add__(self, other: int) -> Money:
        return Money(int(self) + _to_int(other))

    def __radd__(self, other: int) -> Money:
        return Money(_to_int(other) + int(self))

    def __sub__(self, other: int) -> Money:
        return Money(int(self) - _to_int(other))

    def __rsub__(self, other: int) -> Money:
        return Money(_to_int(other) - int(self))

    def __mul__(self, other: int) -> Money:
        return Money(int(self) * _to_int(other))

    def __rmul__(self, other: int) -> Money:
        return Money(_to_int(other) * int(self))

    def __neg__(self) -> Money:
        return Money(-int(self))

    def __abs__(self) -> Money:
        return Money(abs(int(self)))


def money(value: Any) -> Money:
    """`Money.parse`, with a short name."""
    return value if isinstance(value, Money) and value >= 0 else Money.parse(value)


def _to_int(other: Any) -> int:
    """Return the operand as an int; TypeError for a float, whose arithmetic would lose micro-dollars."""
    if isinstance(other, int):
        return int(other)
    raise TypeError(f"money is added, subtracted and multiplied with whole numbers, not {type(other).__name__}")


def _from_text(text: str) -> int:
    digits = text.strip().removeprefix("$")
    dollars, point, fraction = digits.partition(".")
    fraction_kept = fraction.rstrip("0")
    if "," in digits or "_" in digits:
        raise ConfigError(f"{text!r} may mean two amounts", hint="write it without separators: '$1000.00'")
    if digits.startswith("-"):
        raise ConfigError(f"an amount of money is not negative: {text!r}", hint=_HINT)
    if not _digits(dollars) or (point and not _digits(fraction)):
        raise ConfigError(f"{text[:40]!r} is not an amount of money", hint=_HINT)
    if len(fraction_kept) > 6:
        raise ConfigError(f"{text[:40]!r} is finer than a micro-dollar", hint="keep at most six decimals")
    if len(dollars) > 19:
        raise ConfigError("an amount of money must fit 63 bits of micro-dollars", hint=_HINT)
    return int(dollars) * _MICRO + int(fraction_kept.ljust(6, "0"))


def _digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _from_decimal(value: Any) -> int:
    if isinstance(value, float) or not (hasattr(value, "as_integer_ratio") and hasattr(value, "adjusted")):
        raise ConfigError(f"{value!r} is not an amount of money", hint=_HINT)
    if not value.is_finite() or value.adjusted() > 18:
        raise ConfigError(f"{value} is not an amount of money that fits 63 bits of micro-dollars", hint=_HINT)
    if value.as_tuple().exponent < -100:
        raise ConfigError("a Decimal is finer than a micro-dollar", hint="keep at most six decimals")
    numerator, denominator = value.as_integer_ratio()  # exact, where Decimal arithmetic would round to its context
    micro, rest = divmod(numerator * _MICRO, denominator)
    if rest:
        raise ConfigError(f"{value} is finer than a micro-dollar", hint="keep at most six decimals")
    return int(micro)
