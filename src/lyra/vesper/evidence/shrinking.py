"""Makes inputs that show a divergence as small as they can be.

`shrink(inputs, still_fails)` tries simpler values one at a time and keeps each that still fails, until none does or the
number of attempts is used up. Simpler means: absent, null, zero, false, empty, shorter, nearer to zero, fewer digits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

ATTEMPTS_MAX: Final = 2000
_DIGITS_MAX: Final = 60


def shrink(
    inputs: Mapping[str, Any], still_fails: Callable[[dict[str, Any]], bool], attempts_max: int = ATTEMPTS_MAX
) -> dict[str, Any]:
    """The simplest inputs that were reached and still fail."""
    best = dict(inputs)
    left = attempts_max
    improved = True
    while improved and left > 0:
        improved = False
        for candidate in _simpler_map(best):
            left -= 1
            if still_fails(candidate):
                best, improved = candidate, True
                break
            if left <= 0:
                break
    return best


def simpler(value: Any) -> Iterator[Any]:
    """Values that are simpler than this one, the simplest first."""
    match value:
        case bool():
            if value:
                yield False
        case int():
            yield from _simpler_integers(value)
        case float():
            if value == int(value) if abs(value) < 1e15 else False:
                yield int(value)
        case Decimal():
            yield from _simpler_decimals(value)
        case str():
            yield from _simpler_texts(value)
        case bytes():
            yield from (value[:length] for length in _shorter(len(value)))
        case list():
            yield from _simpler_lists(value)
        case dict():
            yield from _simpler_map(value)


def _simpler_integers(value: int) -> Iterator[int]:
    if value == 0:
        return
    yield 0
    if value < 0:
        yield -value
    step = value // 2 if value > 0 else -(-value // 2)
    while step:
        yield value - step
        step = int(step / 2) if abs(step) < 2**53 else step // 2


def _simpler_decimals(value: Decimal) -> Iterator[Decimal]:
    if not value.is_finite() or len(value.as_tuple().digits) > _DIGITS_MAX:
        yield Decimal(0)
        return
    if value != 0 or value.is_signed() or value.as_tuple().exponent != 0:
        yield Decimal(0)
    if value < 0:
        yield abs(value)
    exponent = value.as_tuple().exponent
    if isinstance(exponent, int) and exponent < 0:
        yield Decimal(int(value))
        yield value.quantize(Decimal((0, (1,), exponent + 1)))
    coefficient = int(value.scaleb(-exponent)) if isinstance(exponent, int) else 0
    for number in _simpler_integers(coefficient):
        yield Decimal(number).scaleb(exponent) if isinstance(exponent, int) else Decimal(0)


def _shorter(length: int) -> Iterator[int]:
    """Lengths below this one: 0, the half, one less."""
    yield from sorted({0, length // 2, length - 1} & set(range(length)))


def _simpler_texts(value: str) -> Iterator[str]:
    yield from (value[:length] for length in _shorter(len(value)))
    if len(value) <= 64:
        yield from (value[:index] + value[index + 1 :] for index in range(len(value)))
        for index, char in enumerate(value):
            yield from (value[:index] + plain + value[index + 1 :] for plain in "0a" if plain < char)


def _simpler_lists(value: list[Any]) -> Iterator[list[Any]]:
    yield from (value[:length] for length in _shorter(len(value)))
    yield from (value[:index] + value[index + 1 :] for index in range(len(value)))
    for index, item in enumerate(value):
        yield from ([*value[:index], other, *value[index + 1 :]] for other in simpler(item))


def _simpler_map(value: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name in value:
        yield {other: item for other, item in value.items() if other != name}
    for name, item in value.items():
        yield from ({**value, name: other} for other in simpler(item))
