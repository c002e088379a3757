"""Arithmetic of the reference evaluator, on fractions.

A decimal is a fraction and a scale, the number of digits after the point. Sums have the larger scale, products the sum
of both, quotients the difference if they are exact there, else as many digits as they need, at most 28 in all. Slow and
plain on purpose: no decimal context takes part.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

from lyra.vesper.values.limits import DECIMAL_DIGITS_MAX, DECIMAL_EXPONENT_MAX, QUOTIENT_DIGITS
from lyra.vesper.values.outcome import NodeError
from lyra.vesper.values.types import INTEGER_MAX, INTEGER_MIN

_SCALE_MAX = DECIMAL_DIGITS_MAX + DECIMAL_EXPONENT_MAX - 1


def type_error(message: str) -> NodeError:
    return NodeError("type_error", message)


def is_number(value: Any) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def parts(number: Any) -> tuple[Fraction, int]:
    """The value and the scale; an integer has scale 0."""
    if isinstance(number, int):
        return Fraction(number), 0
    exponent = number.as_tuple().exponent
    return Fraction(number), max(0, -exponent)


def _digit_count(number: int) -> int:
    """How many decimal digits the number has; 1 for zero."""
    return len(Decimal(abs(number)).as_tuple().digits)


def _zeros_at_the_end(number: int) -> int:
    digits = "".join(map(str, Decimal(abs(number)).as_tuple().digits))
    return len(digits) - len(digits.rstrip("0"))


def decimal_of(value: Fraction, scale: int) -> Decimal:
    """The decimal with exactly this value, and this scale where its digits suffice; else `overflow`."""
    coefficient = value * 10**scale
    if coefficient.denominator != 1:
        raise NodeError("overflow", "not exact")
    number = coefficient.numerator
    while scale > 0 and number % 10 == 0 and (_digit_count(number) > DECIMAL_DIGITS_MAX or scale > _SCALE_MAX):
        number, scale = number // 10, scale - 1
    # The exponent is that of the first digit. Zeros at the end of a whole number need no digits.
    count = _digit_count(number)
    if number and abs(count - 1 - scale) > DECIMAL_EXPONENT_MAX:
        raise NodeError("overflow", "too large or too small")
    zeros = 0 if count <= DECIMAL_DIGITS_MAX else _zeros_at_the_end(number)
    if count - zeros > DECIMAL_DIGITS_MAX or scale > _SCALE_MAX:
        raise NodeError("overflow", "too many digits")
    digits = Decimal(abs(number)).as_tuple().digits
    return Decimal((1 if number < 0 else 0, digits, -scale))


def integer(number: int) -> int:
    if not INTEGER_MIN <= number <= INTEGER_MAX:
        raise NodeError("overflow", "an integer has 64 bits")
    return number


def arithmetic(operator: str, left: Any, right: Any) -> Any:
    if operator == "+" and isinstance(left, str) and isinstance(right, str):
        return left + right
    if not is_number(left) or not is_number(right):
        raise type_error(f"{operator} needs numbers")
    (first, first_scale), (second, second_scale) = parts(left), parts(right)
    whole = isinstance(left, int) and isinstance(right, int)
    if operator in "/%" and second == 0:
        raise NodeError("division_by_zero", "division by zero")
    match operator:
        case "+":
            result, scale = first + second, max(first_scale, second_scale)
        case "-":
            result, scale = first - second, max(first_scale, second_scale)
        case "*":
            result, scale = first * second, first_scale + second_scale
        case "%":
            result, scale = first - second * int(first / second), max(first_scale, second_scale)
        case "/":
            result = first / second
            if not (whole and result.denominator == 1):
                return _quotient(result, max(0, first_scale - second_scale))
            scale = 0
        case _:
            raise AssertionError(operator)
    return integer(result.numerator) if whole else decimal_of(result, scale)


def _quotient(value: Fraction, scale: int) -> Decimal:
    """The value with this scale if it is exact, else with the fewest digits that are, at most 28; else rounded."""
    most = QUOTIENT_DIGITS - 1 - _magnitude(value)  # the scale at which the value has 28 digits
    while scale < most and (value * 10**scale).denominator != 1:
        scale += 1
    if scale >= most:
        value = round(value * Fraction(10) ** most) * Fraction(10) ** -most  # half-even
        scale = most if _magnitude(value) == QUOTIENT_DIGITS - 1 - most else most - 1  # 9.99… became 10
    return decimal_of(value, max(0, scale))


def _magnitude(value: Fraction) -> int:
    """The power of ten of the first digit; 0 for zero."""
    if value == 0:
        return 0
    value = abs(value)
    guess = _digit_count(value.numerator) - _digit_count(value.denominator)
    while Fraction(10) ** guess > value:
        guess -= 1
    while Fraction(10) ** (guess + 1) <= value:
        guess += 1
    return guess


def negated(value: Any) -> Any:
    return arithmetic("-", 0, value)


def rounded(value: Fraction, scale: int, rounding: str) -> Decimal:
    """The value with exactly this scale."""
    if not 0 <= scale <= DECIMAL_DIGITS_MAX:
        raise type_error("no such scale")
    scaled = value * 10**scale
    down = int(scaled)  # towards zero
    rest = abs(scaled - down)
    away = down + (1 if scaled > 0 else -1)
    half = Fraction(1, 2)
    if rounding == "half_even":
        is_away = rest > half or (rest == half and down % 2 != 0)
    elif rounding == "half_up":
        is_away = rest >= half
    else:
        is_away = False
    return decimal_of(Fraction(away if is_away else down, 10**scale), scale)
